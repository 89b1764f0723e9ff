//! Does every adapter serve each request as the contract says: the GPUs that are present, the CPU, a simulated one?
//!
//! The plan is small and made by hand; its kernels stand here, with what they must give in closed form.

#![cfg(feature = "gpu")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stands outside the engine: it blocks, prints and panics"
)]

mod accumulation;
mod ahead;
mod kernels;
mod memory;

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;

use litemap::LiteMap;
use manyhands::adapters::{Info, Kind, list};
use manyhands::extend::{Dispatch, Grid, Kernel, Length, View, Word};
use manyhands::simulator::AdapterSpec;
use manyhands::simulator::World;
use manyhands_engine::adapters::{
    self, ActorId, Combining, Event, Fault, Handle, Message, Request, Run, Ticket, cpu, gpu,
};
use manyhands_engine::plan::{Buffer, BufferId, Combine, Command, Exchange, Pass, Plan, Role, Scalars, When};
use manyhands_engine::runtime::{LocalTask, Native, Runtime};

use self::kernels::{ADD, BROKEN, SCALE, SUM};
use crate::alone::alone;
use crate::needed;

const COLUMNS: usize = 3;
/// More than one chunk of the rings, and no whole number of them.
const MANY: usize = 3_000_001;

const INPUT: u32 = 0;
const DOUBLED: u32 = 1;
const SHIFTED: u32 = 2;
const TOTAL: u32 = 3;
const GRADIENT: u32 = 4;
const REPORT: u32 = 5;
const OUTPUT: u32 = 6;
const PARAMETERS: u32 = 7;
const CONTROL: u32 = 8;

fn view(buffer: u32, len: Length) -> View {
    View { buffer: BufferId(buffer), offset: 0, len }
}

fn rows() -> Length {
    Length::per_row(COLUMNS)
}

fn row() -> Length {
    Length::fixed(COLUMNS)
}

fn step(kernel: &'static Kernel, rows_word: Word, factor: Word, inputs: Vec<View>, output: View) -> Command {
    let elements = match rows_word {
        Word::Rows(_) => Word::Rows(3),
        _ => Word::U32(3),
    };
    let grid = if kernel.entry == "sum" { Grid::Items(Word::U32(3)) } else { Grid::Elements(elements) };
    Command::Dispatch(Dispatch {
        kernel,
        node: kernel.entry.into(),
        constants: if kernel.entry == "scale" { vec![("SHIFT", 1.0)] } else { Vec::new() },
        params: vec![rows_word, Word::U32(3), factor],
        inputs,
        outputs: vec![output],
        grid,
    })
}

fn exchange(buffer: u32, when: When) -> Command {
    Command::Exchange(Exchange { view: view(buffer, row()), combine: Combine::Sum, when, halves: None })
}

/// Doubled = 2 x + 1; shifted = h doubled + 1; total = sum of shifted over all rows of all adapters;
/// gradient = sum of doubled; report = doubled + total.
fn plan() -> Plan {
    let fixed = |len| Length::fixed(len);
    let buffers = [
        ("input", Role::Input(0), rows()),
        ("doubled", Role::Activation, rows()),
        ("shifted", Role::Activation, rows()),
        ("total", Role::Activation, row()),
        ("gradient", Role::Gradients(0), row()),
        ("report", Role::Report(0), rows()),
        ("output", Role::Output(0), rows()),
        ("parameters", Role::Parameters(0), fixed(MANY)),
        ("control", Role::Control, row()),
    ];
    let buffers = buffers.map(|(name, role, len)| Buffer { name: name.into(), role, len }).to_vec();
    let (input, doubled, shifted) = (view(INPUT, rows()), view(DOUBLED, rows()), view(SHIFTED, rows()));
    let per_row = Word::Rows(1);
    let train = vec![
        step(&SCALE, per_row, 2.0.into(), vec![input], doubled),
        step(&SUM, per_row, 1.0.into(), vec![doubled], view(GRADIENT, row())),
        exchange(GRADIENT, When::Update),
        step(&SCALE, per_row, Word::Hyper(0), vec![doubled], shifted),
        step(&SUM, per_row, 1.0.into(), vec![shifted], view(TOTAL, row())),
        exchange(TOTAL, When::NextCommand),
        step(&ADD, per_row, 1.0.into(), vec![doubled, view(TOTAL, row())], view(REPORT, rows())),
    ];
    let predict = vec![step(&SCALE, per_row, 3.0.into(), vec![input], view(OUTPUT, rows()))];
    let parameters = view(PARAMETERS, Length::fixed(MANY));
    let update = vec![step(&SCALE, Word::U32(1), Word::Hyper(0), vec![parameters], view(CONTROL, row()))];
    Plan {
        buffers,
        passes: LiteMap::from_iter([(Pass::Train, train), (Pass::Predict, predict), (Pass::Update, update)]),
        ..Plan::default()
    }
}

/// An adapter under test, and the world that it lives in if it is simulated.
struct Rig {
    handle: Handle,
    events: async_channel::Receiver<Message>,
    world: Option<RefCell<World>>,
}

/// Who the adapter is told to be.
const ACTOR: ActorId = ActorId { adapter_idx: 7, reopened: 2 };

/// A clock that is twenty times as fast.
struct Hasty;

impl Runtime for Hasty {
    fn now_ms(&self) -> f64 {
        20.0 * Native.now_ms()
    }

    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Native.sleep(ms / 20.0)
    }

    fn spawn(&self, name: &str, actor: Box<dyn FnOnce() -> LocalTask + Send>) {
        Native.spawn(name, actor);
    }
}

impl Rig {
    fn open(info: &Info) -> Self {
        Self::by_clock(info, Arc::new(Native))
    }

    fn by_clock(info: &Info, clock: Arc<dyn Runtime>) -> Self {
        let (sender, events) = async_channel::unbounded();
        let handle = adapters::open(info, ACTOR, clock, sender).unwrap();
        Self { handle, events, world: None }
    }

    fn simulated() -> Self {
        let world = World::new(vec![AdapterSpec::new("simulated", 1.0, 0.1)]);
        let (sender, events) = async_channel::unbounded();
        let handle = world.opener()(&world.adapters()[0], ACTOR, world.runtime(), sender).unwrap();
        Self { handle, events, world: Some(RefCell::new(world)) }
    }

    fn is_gpu(&self) -> bool {
        self.world.is_none() && self.handle.info.kind != Kind::Cpu
    }

    fn ask(&self, request: Request) {
        self.handle.requests.send_blocking(request).unwrap();
    }

    /// The next message that answers something; `None` when the adapter has ended.
    fn next(&self) -> Option<Message> {
        let message = self.message()?;
        if matches!(message.event, Event::Working) { self.next() } else { Some(message) }
    }

    fn message(&self) -> Option<Message> {
        let next = async { self.events.recv().await.ok() };
        match &self.world {
            Some(world) => world.borrow_mut().run(f64::INFINITY, next).unwrap(),
            None => pollster::block_on(futures_lite::future::or(next, async {
                Native.sleep(60_000.0).await;
                panic!("no event within a minute")
            })),
        }
    }

    fn event(&self) -> Event {
        let message = self.next().expect("an adapter that goes on");
        assert_eq!(message.actor, ACTOR);
        message.event
    }

    /// Why a request is refused; the adapter goes on.
    fn refused(&self, request: Request) -> String {
        let ticket = if let Request::Run(run) = &request { Some(run.ticket) } else { None };
        self.ask(request);
        match self.event() {
            Event::Failed { ticket: failed, fault: Fault::Unsupported(text) } if failed == ticket => text,
            other => panic!("{other:?}"),
        }
    }

    fn load(&self, plan: Plan, capacity: u32) -> Event {
        self.ask(Request::Load { plan: Arc::new(plan), capacity });
        self.event()
    }

    fn run(&self, pass: Pass, input: &[f32], combining: Combining, step: u64) -> Ticket {
        let ticket = Ticket { step, attempt: 1, slot: 2 };
        let rows = u32::try_from(input.len() / COLUMNS).unwrap();
        let scalars = Scalars { rows, hyper: vec![10.0], ..Default::default() };
        let feeds = if pass == Pass::Update { Vec::new() } else { vec![(Role::Input(0), input.into())] };
        self.ask(Request::Run(Run { ticket, pass, scalars, feeds, combining }));
        ticket
    }

    fn done(&self) -> (Vec<Vec<f32>>, Vec<Vec<f32>>, manyhands_engine::adapters::Timing) {
        match self.event() {
            Event::Done { reports, outputs, timing, .. } => (reports, outputs, timing),
            other => panic!("{other:?}"),
        }
    }

    fn exchanged(&self) -> (usize, Vec<f32>) {
        match self.event() {
            Event::Exchange { command, data, .. } => (command, data),
            other => panic!("{other:?}"),
        }
    }

    /// A training run whose totals are answered with `combined`.
    fn train(&self, input: &[f32], combined: &[f32], step: u64) -> Vec<f32> {
        let ticket = self.run(Pass::Train, input, Combining::Host, step);
        let doubled = doubled(input);
        assert_eq!(self.exchanged(), (2, sums(&doubled)));
        let shifted: Vec<f32> = doubled.iter().map(|d| 10.0 * d + 1.0).collect();
        assert_eq!(self.exchanged(), (5, sums(&shifted)));
        self.ask(Request::Combined { ticket, command: 5, data: combined.into() });
        let (mut reports, outputs, _) = self.done();
        assert!(outputs.is_empty());
        reports.pop().unwrap()
    }
}

fn doubled(input: &[f32]) -> Vec<f32> {
    input.iter().map(|x| 2.0 * x + 1.0).collect()
}

fn sums(values: &[f32]) -> Vec<f32> {
    (0..COLUMNS).map(|column| values.iter().skip(column).step_by(COLUMNS).sum()).collect()
}

/// Small whole numbers, whose sums are exact.
fn input(rows: usize) -> Vec<f32> {
    (0..rows * COLUMNS).map(|i| (i % 17) as f32 - 8.0).collect()
}

/// Runs a test on the GPUs of this machine.
fn on_every_gpu(test: impl Fn(&Rig)) {
    let _alone = alone();
    for info in needed::gpus() {
        println!("on {} ({})", info.name, info.backend);
        test(&Rig::open(&info));
    }
}

/// Runs a test on the GPUs of this machine, the CPU adapter and a simulated one.
fn on_every_adapter(test: impl Fn(&Rig)) {
    on_every_gpu(&test);
    test(&Rig::open(&cpu::info()));
    test(&Rig::simulated());
}

#[test]
fn a_run_feeds_exchanges_and_reports() {
    on_every_adapter(|rig| {
        let Event::Loaded { bytes } = rig.load(plan(), 70) else { panic!("not loaded") };
        assert!(bytes >= 4 * MANY as u64);
        // The largest run, a smaller one, none at all, and the largest again.
        for (step, rows) in [(1, 70), (2, 5), (3, 0), (4, 70)] {
            let input = input(rows);
            let report = rig.train(&input, &[100.0, 200.0, 300.0], step);
            let expected: Vec<f32> =
                doubled(&input).iter().enumerate().map(|(i, d)| d + 100.0 * (i % 3 + 1) as f32).collect();
            assert_eq!(report, expected);
        }
    });
}

#[test]
fn a_lone_device_passes_exchanges_over() {
    on_every_adapter(|rig| {
        rig.load(plan(), 8);
        let input = input(8);
        rig.run(Pass::Train, &input, Combining::Device, 1);
        let doubled = doubled(&input);
        let total = sums(&doubled.iter().map(|d| 10.0 * d + 1.0).collect::<Vec<_>>());
        let expected: Vec<f32> = doubled.iter().enumerate().map(|(i, d)| d + total[i % 3]).collect();
        assert_eq!(rig.done().0, [expected]);
    });
}

/// Who waits for an adapter hears from it every two seconds as long as it gets on.
#[test]
fn an_adapter_says_that_it_gets_on() {
    let _alone = alone();
    for info in needed::gpus().into_iter().chain([cpu::info()]) {
        let rig = Rig::by_clock(&info, Arc::new(Hasty));
        rig.load(plan(), 8);
        let begin_ms = Native.now_ms();
        let (mut beats, mut answers) = (0, 0);
        while beats < 3 {
            assert!(Native.now_ms() < begin_ms + 30_000.0, "{}: {beats} beats in {answers} answers", info.name);
            rig.run(Pass::Predict, &input(8), Combining::Host, answers);
            answers += 1;
            while !matches!(rig.message().unwrap().event, Event::Done { .. }) {
                beats += 1;
            }
        }
        let most = 1.0 + (Native.now_ms() - begin_ms) / 100.0 + 1.0;
        assert!(f64::from(beats) <= most, "{}: {beats} beats, at most {most}", info.name);
    }
}

/// The device computes a step while the host prepares the next: two runs stay under way, once they have run before.
#[test]
fn a_lone_device_begins_the_next_runs_before_it_answers() {
    on_every_gpu(|rig| {
        rig.load(plan(), 8);
        rig.ask(Request::Write { role: Role::Parameters(0), offset: 0, data: [1.0, 2.0, 3.0].as_slice().into() });
        let answered = || match rig.event() {
            Event::Done { ticket, reports, .. } => (ticket.step, reports),
            other => panic!("{other:?}"),
        };
        let report = |rows: usize| {
            let doubled = doubled(&input(rows));
            let total = sums(&doubled.iter().map(|d| 10.0 * d + 1.0).collect::<Vec<_>>());
            vec![doubled.iter().enumerate().map(|(i, d)| d + total[i % 3]).collect::<Vec<f32>>()]
        };
        let control = || vec![vec![11.0, 21.0, 31.0]];
        rig.run(Pass::Train, &input(8), Combining::Device, 1);
        rig.run(Pass::Update, &[], Combining::Device, 1);
        assert_eq!((answered(), answered()), ((1, report(8)), (1, control())));
        rig.run(Pass::Train, &input(5), Combining::Device, 2);
        rig.run(Pass::Update, &[], Combining::Device, 2);
        std::thread::sleep(std::time::Duration::from_millis(300));
        // The training pass may be, if its results were there when the update came.
        assert!(rig.events.len() < 2, "the update is answered before anybody asked");
        rig.run(Pass::Train, &input(3), Combining::Device, 3);
        assert_eq!(answered(), (2, report(5)));
        rig.run(Pass::Update, &[], Combining::Device, 3);
        assert_eq!(answered(), (2, control()));
        // A read sees what all runs before it did, and comes behind their answers.
        rig.ask(Request::Read(Role::Control));
        assert_eq!((answered(), answered()), ((3, report(3)), (3, control())));
        assert!(matches!(rig.event(), Event::Contents { data, .. } if data == [11.0, 21.0, 31.0]));
    });
}

#[test]
fn what_stands_behind_a_failed_run_of_a_lone_device_is_dropped() {
    on_every_adapter(|rig| {
        let ticket = rig.run(Pass::Train, &input(8), Combining::Device, 1);
        rig.run(Pass::Update, &[], Combining::Device, 1);
        assert!(matches!(rig.event(), Event::Failed { ticket: Some(failed), .. } if failed == ticket));
        assert!(matches!(rig.load(plan(), 8), Event::Loaded { .. }));
        rig.run(Pass::Train, &input(8), Combining::Device, 2);
        rig.ask(Request::Abandon(ticket));
        rig.run(Pass::Update, &[], Combining::Device, 3);
        assert!(matches!(rig.event(), Event::Done { ticket, .. } if ticket.step == 3));
    });
}

#[test]
fn long_values_go_there_and_back() {
    on_every_adapter(|rig| {
        let capacity = 1_000_000;
        rig.load(plan(), capacity);
        let values: Arc<[f32]> = (0..MANY).map(|i| (i % 8191) as f32).collect();
        rig.ask(Request::Write { role: Role::Parameters(0), offset: 0, data: values.clone() });
        rig.ask(Request::Write { role: Role::Parameters(0), offset: 64, data: [7.0, 8.0].as_slice().into() });
        rig.ask(Request::Read(Role::Parameters(0)));
        let Event::Contents { role: Role::Parameters(0), data } = rig.event() else { panic!("no contents") };
        assert_eq!((data.len(), data[64], data[65]), (MANY, 7.0, 8.0));
        assert!(data.iter().zip(values.iter()).enumerate().all(|(i, (a, b))| a == b || i == 64 || i == 65));
        let input = input(capacity as usize);
        rig.run(Pass::Predict, &input, Combining::Host, 1);
        let (reports, outputs, _) = rig.done();
        assert!(reports.is_empty());
        assert!(outputs[0].iter().zip(&input).all(|(y, x)| *y == 3.0 * x + 1.0));
        assert_eq!(outputs[0].len(), input.len());
    });
}

#[test]
fn a_long_pass_goes_in_pieces_and_long_exchanges_in_chunks() {
    on_every_gpu(|rig| {
        let (a, b) = (view(DOUBLED, rows()), view(SHIFTED, rows()));
        let mut commands = vec![step(&SCALE, Word::Rows(1), 1.0.into(), vec![view(INPUT, rows())], a)];
        for _ in 0..20 {
            commands.push(step(&SCALE, Word::Rows(1), 1.0.into(), vec![a], b));
            commands.push(step(&SCALE, Word::Rows(1), 1.0.into(), vec![b], a));
        }
        let values = |when| Command::Exchange(Exchange { view: a, combine: Combine::Sum, when, halves: None });
        commands.extend([values(When::Update), values(When::NextCommand)]);
        commands.push(step(&SCALE, Word::Rows(1), 2.0.into(), vec![a], view(REPORT, rows())));
        let plan =
            Plan { buffers: plan().buffers, passes: LiteMap::from_iter([(Pass::Train, commands)]), ..Plan::default() };
        rig.load(plan, 1_000_000);
        // A small run to learn the pace, then one of which each exchange takes two chunks.
        for (step, rows) in [(1, 3), (2, 1_000_000)] {
            let input = input(rows);
            let ticket = rig.run(Pass::Train, &input, Combining::Host, step);
            for command in [41, 42] {
                let (found, data) = rig.exchanged();
                assert_eq!((found, data.len()), (command, input.len()));
                assert!(data.iter().zip(&input).all(|(y, x)| *y == x + 41.0));
            }
            rig.ask(Request::Combined { ticket, command: 42, data: input.clone().into() });
            assert!(rig.done().0[0].iter().zip(&input).all(|(y, x)| *y == 2.0 * x + 1.0));
        }
    });
}

#[test]
fn an_adapter_opened_twice_is_two_devices() {
    on_every_gpu(|rig| {
        let before = gpu::devices_opened();
        let twin = Rig::open(&rig.handle.info);
        for rig in [rig, &twin] {
            rig.load(plan(), 8);
        }
        assert!(gpu::devices_opened() > before);
        twin.ask(Request::Lose);
        assert!(matches!(twin.event(), Event::Failed { fault: Fault::Lost(_), .. }));
        rig.train(&input(8), &[0.0; 3], 1);
    });
}

#[test]
fn an_update_gives_its_control_words() {
    on_every_adapter(|rig| {
        rig.load(plan(), 1);
        rig.ask(Request::Write { role: Role::Parameters(0), offset: 0, data: [1.0, 2.0, 3.0].as_slice().into() });
        rig.run(Pass::Update, &[], Combining::Device, 1);
        rig.ask(Request::Finish);
        assert_eq!(rig.done().0, [[11.0, 21.0, 31.0]]);
    });
}

#[test]
fn nothing_is_created_between_steps() {
    on_every_gpu(|rig| {
        rig.load(plan(), 64);
        rig.train(&input(64), &[0.0; 3], 1);
        let before = (gpu::objects_created(), gpu::devices_opened());
        for step in 2..6 {
            rig.train(&input(70 - step * 3), &[0.0; 3], step as u64);
        }
        assert_eq!((gpu::objects_created(), gpu::devices_opened()), before);
    });
}

#[test]
fn requests_that_come_in_a_wait_are_served_after_it() {
    on_every_adapter(|rig| {
        rig.load(plan(), 8);
        let ticket = rig.run(Pass::Train, &input(8), Combining::Host, 1);
        let (_, _) = (rig.exchanged(), rig.exchanged());
        rig.ask(Request::Read(Role::Gradients(0)));
        rig.ask(Request::Combined { ticket: Ticket { attempt: 0, ..ticket }, command: 5, data: [9.0; 3].into() });
        rig.ask(Request::Combined { ticket, command: 5, data: [0.0; 3].into() });
        assert_eq!(rig.done().0, [doubled(&input(8))]);
        assert!(matches!(rig.event(), Event::Contents { data, .. } if data == sums(&doubled(&input(8)))));
    });
}

#[test]
fn a_run_that_is_given_up_says_nothing() {
    on_every_adapter(|rig| {
        rig.load(plan(), 8);
        let ticket = rig.run(Pass::Train, &input(8), Combining::Host, 1);
        let (_, _) = (rig.exchanged(), rig.exchanged());
        rig.ask(Request::Abandon(ticket));
        assert_eq!(rig.train(&input(2), &[0.0; 3], 2), doubled(&input(2)));
    });
}

#[test]
fn a_throttled_run_takes_longer() {
    on_every_adapter(|rig| {
        rig.load(plan(), 60_000);
        let input = input(60_000);
        let usual = [1, 2, 3].map(|number| {
            rig.run(Pass::Predict, &input, Combining::Host, number);
            rig.done().2.busy_ms()
        });
        let usual_ms = usual.into_iter().fold(f64::INFINITY, f64::min);
        // The factor is far larger than the bound: the wait follows the shortest run, which may be the fourth, and a busy
        // machine makes the others longer. `Throttle` has tests of the exact wait.
        rig.ask(Request::Throttle(60.0));
        rig.run(Pass::Predict, &input, Combining::Host, 4);
        let (_, _, timing) = rig.done();
        assert!(timing.busy_ms() > 6.0 * usual_ms, "{timing:?}, but {usual_ms} ms without");
    });
}

#[test]
fn a_lost_device_says_so_once_and_no_more() {
    on_every_adapter(|rig| {
        rig.load(plan(), 8);
        rig.train(&input(8), &[0.0; 3], 1);
        rig.ask(Request::Lose);
        assert!(matches!(rig.event(), Event::Failed { ticket: None, fault: Fault::Lost(_) }));
        assert!(rig.next().is_none());
        assert!(rig.handle.requests.is_closed());
    });
}

#[test]
fn a_device_lost_in_a_wait_names_its_run() {
    on_every_adapter(|rig| {
        rig.load(plan(), 8);
        let ticket = rig.run(Pass::Train, &input(8), Combining::Host, 1);
        let (_, _) = (rig.exchanged(), rig.exchanged());
        rig.ask(Request::Lose);
        let Event::Failed { ticket: Some(failed), fault: Fault::Lost(_) } = rig.event() else { panic!("not lost") };
        assert_eq!(failed, ticket);
        assert!(rig.next().is_none());
    });
}

#[test]
fn an_adapter_that_nobody_wants_any_more_ends() {
    on_every_adapter(|rig| {
        rig.load(plan(), 8);
        rig.handle.requests.close();
        assert!(rig.next().is_none());
    });
}

#[test]
fn what_does_not_fit_fails_and_the_device_stays() {
    on_every_adapter(|rig| {
        if rig.world.is_none() {
            let Event::Failed { ticket: None, fault: Fault::OutOfMemory(text) } = rig.load(plan(), u32::MAX) else {
                panic!("it fits")
            };
            let needed = if rig.is_gpu() { "`input` needs 51539607552 bytes" } else { "`input` has more than" };
            assert!(text.contains(needed), "{text}");
        }
        rig.run(Pass::Train, &input(1), Combining::Host, 1);
        assert!(matches!(rig.event(), Event::Failed { ticket: Some(_), fault: Fault::Unsupported(_) }));
        assert!(matches!(rig.load(plan(), 4), Event::Loaded { .. }));
        rig.train(&input(4), &[0.0; 3], 2);
    });
}

#[test]
fn a_plan_that_can_not_run_is_refused_by_name() {
    on_every_gpu(|rig| {
        let with = |kernel, output| {
            let mut plan = plan();
            let step = step(kernel, Word::Rows(1), 1.0.into(), vec![view(INPUT, rows())], output);
            plan.passes.insert(Pass::Evaluate, vec![step]);
            match rig.load(plan, 4) {
                Event::Failed { fault: Fault::Unsupported(text), .. } => text,
                other => panic!("{other:?}"),
            }
        };
        let text = with(&BROKEN, view(OUTPUT, rows()));
        assert!(text.starts_with("kernel `test.broken` can't be built: "), "{text}");
        assert_eq!(with(&SCALE, view(INPUT, rows())), "`scale` binds `input` twice in `test.scale`, once to write it");
        let text = with(&SCALE, view(TOTAL, rows()));
        assert_eq!(text, "`scale` sees 12 values of `total`, which has 3");
    });
}

#[test]
fn what_the_plan_lacks_is_refused_and_the_plan_stays() {
    on_every_adapter(|rig| {
        assert_eq!(rig.refused(Request::Read(Role::Gradients(0))), "no plan is loaded");
        rig.load(plan(), 4);
        let write = |role, offset| Request::Write { role, offset, data: [1.0].as_slice().into() };
        assert_eq!(rig.refused(write(Role::Statistics, 0)), "the plan has no buffer for Statistics");
        assert_eq!(rig.refused(Request::Read(Role::State(0, 0))), "the plan has no buffer for State(0, 0)");
        let text = rig.refused(write(Role::Gradients(0), 3));
        assert_eq!(text, "Gradients(0) has room for 3 values, but 4 were written");
        let run = |pass, rows, role| {
            let ticket = Ticket { step: 9, attempt: 1, slot: 0 };
            let (scalars, feeds) = (Scalars { rows, ..Scalars::default() }, vec![(role, [0.0; 3].as_slice().into())]);
            Request::Run(Run { ticket, pass, scalars, feeds, combining: Combining::Host })
        };
        assert_eq!(rig.refused(run(Pass::Train, 1, Role::Target(0))), "the plan has no buffer for Target(0)");
        assert_eq!(rig.refused(run(Pass::Evaluate, 1, Role::Input(0))), "the plan has no pass Evaluate");
        let text = rig.refused(run(Pass::Train, 5, Role::Input(0)));
        assert_eq!(text, "the plan was loaded for 4 rows, but the run has 5");
        assert_eq!(rig.train(&input(4), &[0.0; 3], 2), doubled(&input(4)));
    });
}

#[test]
fn a_run_that_is_given_up_before_it_begins_is_dropped() {
    on_every_adapter(|rig| {
        rig.load(plan(), 8);
        let first = rig.run(Pass::Train, &input(8), Combining::Host, 1);
        let (_, _) = (rig.exchanged(), rig.exchanged());
        let queued = rig.run(Pass::Train, &input(5), Combining::Host, 2);
        rig.run(Pass::Predict, &input(2), Combining::Host, 3);
        rig.ask(Request::Abandon(queued));
        rig.ask(Request::Combined { ticket: first, command: 5, data: [0.0; 3].into() });
        let answered = || match rig.event() {
            Event::Done { ticket, .. } => ticket.step,
            other => panic!("{other:?}"),
        };
        assert_eq!((answered(), answered()), (1, 3));
    });
}

/// A panic in an adapter's thread once left everybody waiting for ever.
#[test]
fn a_panic_is_reported_as_a_lost_adapter() {
    for rig in [Rig::open(&cpu::info()), Rig::simulated()] {
        let mut plan = plan();
        let step = step(&BROKEN, Word::Rows(1), 1.0.into(), vec![view(INPUT, rows())], view(OUTPUT, rows()));
        plan.passes.insert(Pass::Predict, vec![step]);
        rig.load(plan, 4);
        rig.run(Pass::Predict, &input(2), Combining::Host, 1);
        let Event::Failed { fault: Fault::Lost(text), .. } = rig.event() else { panic!("not lost") };
        assert_eq!(text, "its thread panicked: this is no twin");
        assert!(rig.next().is_none() && rig.handle.requests.is_closed());
    }
}

/// A system that is out of threads.
struct NoThreads;

impl Runtime for NoThreads {
    fn now_ms(&self) -> f64 {
        Native.now_ms()
    }

    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Native.sleep(ms)
    }

    fn spawn(&self, _: &str, _: Box<dyn FnOnce() -> LocalTask + Send>) {}
}

/// An adapter that got no thread once left everybody waiting for ever.
#[test]
fn an_adapter_without_a_thread_is_lost() {
    let (sender, events) = async_channel::unbounded();
    let handle = adapters::open(&cpu::info(), ACTOR, Arc::new(NoThreads), sender).unwrap();
    let rig = Rig { handle, events, world: None };
    let Event::Failed { fault: Fault::Lost(text), .. } = rig.event() else { panic!("not lost") };
    assert_eq!(text, "the system gives it no thread");
    assert!(rig.next().is_none() && rig.handle.requests.is_closed());
}

#[test]
fn listing_opens_no_device() {
    let _alone = alone();
    let before = gpu::devices_opened();
    assert_eq!(list(), list());
    assert_eq!(gpu::devices_opened(), before);
}
