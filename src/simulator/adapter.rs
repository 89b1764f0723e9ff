//! The actor of a simulated adapter: requests and events like a real one, time from its spec.
//!
//! As on a card, a run begins ahead: what it is fed comes while the run before computes, and what that one gives travels to
//! the host while this one computes. The CPU adapter does one after the other.

use std::future::pending;
use std::sync::{Arc, Mutex};

use async_channel::Sender;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::arithmetic::{Arithmetic, Memory};
use super::cost::{Cost, Times};
use super::crowd::{Computing, Crowd};
use super::link::{Link, transfer_ms};
use super::spec::{AdapterSpec, FaultKind, InjectedFault, Trigger};
use super::traffic::Traffic;
use super::virtual_time::{Virtual, lock};
use crate::plan::{Combine, Command, Exchange, Pass, Plan, Role};
use crate::runtime::Runtime;
use manyhands_engine::adapters::mailbox::{self, Device, Done, Mailbox, Serving, Stop};
use manyhands_engine::adapters::memory;
use manyhands_engine::adapters::{
    ActorId, Combining, Event, Fault, Handle, Info, Kind, Message, Request, Run, Ticket, Timing, Writes,
};

/// Part of a training row's time that a run which only goes forward takes: backward is about twice as much.
pub(crate) const FORWARD_PART: f64 = 1.0 / 3.0;

/// An adapter of the world, with the state that outlives its loss and reopening.
pub(super) struct SimulatedAdapter {
    pub spec: AdapterSpec,
    pub arithmetic: Arithmetic,
    /// Its position in the world, and in its machine.
    pub index: usize,
    pub position: usize,
    /// Costs of plans, if the plans do not determine them.
    pub costs: Arc<[Cost]>,
    /// Its host, and the adapters that compute there.
    pub runtime: Virtual,
    pub crowd: Arc<Crowd>,
    pub history: Mutex<AdapterHistory>,
}

/// Record of an adapter's past faults and runs.
pub(super) struct AdapterHistory {
    /// Troubles still to come.
    pub faults: Vec<InjectedFault>,
    pub loads: u64,
    pub runs: u64,
    pub computes_wrong: bool,
    pub rng: ChaCha8Rng,
}

impl SimulatedAdapter {
    pub fn new(
        (index, position, spec): (usize, usize, AdapterSpec),
        arithmetic: Arithmetic,
        costs: Arc<[Cost]>,
        (runtime, crowd): (Virtual, Arc<Crowd>),
        rng: ChaCha8Rng,
    ) -> Self {
        let history = AdapterHistory { faults: spec.faults.clone(), loads: 0, runs: 0, computes_wrong: false, rng };
        Self { spec, arithmetic, index, position, costs, runtime, crowd, history: Mutex::new(history) }
    }
}

/// Opens a simulated adapter.
pub(super) fn open(adapter: Arc<SimulatedAdapter>, info: &Info, actor: ActorId, events: Sender<Message>) -> Handle {
    let (runtime, clock) = (adapter.runtime.clone(), adapter.runtime.clone());
    let device =
        async move |_| Ok(SimulatedDevice { runtime: clock.clone(), adapter, loaded: None, link: Link::new(clock) });
    let runtime: Arc<dyn Runtime> = Arc::new(runtime);
    Handle { info: info.clone(), requests: mailbox::spawn(&info.name, actor, &runtime, events, device) }
}

struct SimulatedDevice {
    runtime: Virtual,
    adapter: Arc<SimulatedAdapter>,
    loaded: Option<SimulatedPlan>,
    link: Link,
}

/// A plan that is loaded.
struct SimulatedPlan {
    memory: Memory,
    capacity: u32,
    plan: Arc<Plan>,
    traffic: Traffic,
    /// Its part of the whole model's work.
    part: f64,
    /// Its computing times, if they are known.
    times: Option<Times>,
}

/// One run, with its progress.
struct RunProgress {
    number: u64,
    n_dispatches: u32,
    done: u32,
    /// Milliseconds for each dispatch.
    dispatch_ms: f64,
    /// Computing that is done, but has not yet passed on the clock.
    owed_ms: f64,
    /// Whether it begins while what the run before gives is underway.
    begins_ahead: bool,
}

impl RunProgress {
    fn part(&self) -> f64 {
        f64::from(self.done) / f64::from(self.n_dispatches.max(1))
    }
}

impl Device for SimulatedDevice {
    /// The next request, unless a fault comes first. Meanwhile arrives what is underway.
    fn next<'a>(&'a mut self, mailbox: &'a mut Mailbox) -> Serving<'a, Request> {
        Box::pin(async move {
            loop {
                self.link.deliver(mailbox).await?;
                let arrival_ms = self.link.ms_to_arrival();
                let trouble_ms = self.ms_to_trouble();
                let request = async { Some(mailbox.next().await) };
                let pause = async {
                    match [arrival_ms, trouble_ms].into_iter().flatten().reduce(f64::min) {
                        Some(ms) => self.runtime.sleep(ms).await,
                        None => pending().await,
                    }
                    None
                };
                match futures_lite::future::or(request, pause).await {
                    Some(request) => return request,
                    None if arrival_ms.is_some_and(|ms| trouble_ms.is_none_or(|trouble_ms| ms < trouble_ms)) => {}
                    None => {
                        let met = self.meet(|moment| matches!(moment, Trigger::Time { .. })).await;
                        self.stopped(mailbox, NO_RUN, met).await?;
                    }
                }
            }
        })
    }

    fn loaded(&self) -> Option<(&Plan, u32)> {
        self.loaded.as_ref().map(|loaded| (&*loaded.plan, loaded.capacity))
    }

    fn needs(&self, plan: &Plan, capacity: u32) -> u64 {
        memory::bytes(plan, capacity, Kind::Cpu)
    }

    fn load(&mut self, plan: Arc<Plan>, capacity: u32) -> Serving<'_, u64> {
        Box::pin(async move {
            self.loaded = None;
            let number = {
                let mut history = lock(&self.adapter.history);
                history.loads += 1;
                history.loads - 1
            };
            self.meet(|at| matches!(at, Trigger::Load { number: at } if at == number)).await?;
            if self.adapter.spec.max_rows.is_some_and(|max_rows| capacity > max_rows) {
                return Err(out_of_memory());
            }
            if self.adapter.spec.memory_bytes().is_some_and(|most| self.needs(&plan, capacity) > most) {
                return Err(out_of_memory());
            }
            let cost = Cost::find(&self.adapter.costs, &plan);
            let traffic = cost.map_or_else(|| Traffic::of(&plan), |cost| cost.traffic.clone());
            let part = cost.map_or(1.0, |cost| cost.part);
            let times = cost.and_then(|cost| cost.times.get(self.adapter.index).copied());
            let memory = Memory::new(self.adapter.arithmetic, plan.clone(), capacity);
            let bytes = memory.bytes();
            self.loaded = Some(SimulatedPlan { memory, capacity, plan, traffic, part, times });
            Ok(bytes)
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    fn write<'a>(&'a mut self, role: Role, offset: u64, data: &'a [f32]) -> Serving<'a> {
        Box::pin(async move {
            let Some(loaded) = &mut self.loaded else { return Ok(()) };
            let scale = if matches!(role, Role::Parameters(_) | Role::State(..)) { loaded.traffic.scale } else { 1.0 };
            let bytes = size_of_val(data) as f64 * scale;
            self.runtime.sleep(transfer_ms(bytes, self.adapter.spec.upload_gb_s, self.adapter.spec.latency_ms)).await;
            loaded.memory.write(role, offset, data);
            self.link.note_written();
            Ok(())
        })
    }

    fn read<'a>(&'a mut self, _mailbox: &'a mut Mailbox, role: Role) -> Serving<'a, Vec<f32>> {
        Box::pin(async move { Ok(self.loaded.as_ref().map_or_else(Vec::new, |loaded| loaded.memory.read(role))) })
    }

    fn run<'a>(&'a mut self, mailbox: &'a mut Mailbox, run: &'a Run, weights: Writes) -> Serving<'a> {
        Box::pin(async move {
            let Some(mut loaded) = self.loaded.take() else { return Ok(()) };
            let mut progress = self.begin(mailbox, &loaded, run);
            let done = self.run_commands(mailbox, &mut loaded, (run, weights), &mut progress).await;
            self.loaded = Some(loaded);
            let done = self.stopped(mailbox, run.ticket, done).await?;
            if !progress.begins_ahead {
                return mailbox.done(done).await;
            }
            self.link.send_done(done);
            Ok(())
        })
    }

    fn finish<'a>(&'a mut self, mailbox: &'a mut Mailbox) -> Serving<'a> {
        Box::pin(async move { self.link.finish(mailbox).await })
    }

    fn give_up(&mut self, ticket: Ticket) {
        self.link.give_up(ticket);
    }

    fn destroy(&mut self) -> Fault {
        lost()
    }
}

/// Longest piece of work between two signs of life.
const PIECE_MS: f64 = 2_000.0;

/// No run has this attempt.
const NO_RUN: Ticket = Ticket { step: 0, attempt: 0, slot: 0 };

fn lost() -> Fault {
    Fault::Lost("simulated".into())
}

fn out_of_memory() -> Stop {
    Fault::OutOfMemory("simulated".into()).into()
}

impl SimulatedDevice {
    /// The result of work on a run. Runs before one for which memory does not suffice are answered first; of one that is given up
    /// nothing more arrives.
    async fn stopped<T>(&mut self, mailbox: &mut Mailbox, run: Ticket, result: Result<T, Stop>) -> Result<T, Stop> {
        match &result {
            Err(Stop::Fault(Fault::OutOfMemory(_))) => self.link.finish(mailbox).await?,
            Err(Stop::Abandoned) => self.link.give_up(run),
            _ => {}
        }
        result
    }

    fn ms_to_trouble(&self) -> Option<f64> {
        let history = lock(&self.adapter.history);
        let times = history.faults.iter().filter_map(|fault| match fault.at {
            Trigger::Time { ms } => Some(ms - self.runtime.now_ms()),
            Trigger::Load { .. } | Trigger::Run { .. } => None,
        });
        times.reduce(f64::min)
    }

    /// Injects the first fault with one of these triggers, or whose time has come.
    async fn meet(&self, is_due: impl Fn(Trigger) -> bool) -> Result<(), Stop> {
        let now_ms = self.runtime.now_ms();
        let is_met = |at: Trigger| match at {
            Trigger::Time { ms } => ms <= now_ms,
            other => is_due(other),
        };
        let fault = {
            let faults = &mut lock(&self.adapter.history).faults;
            let place = faults.iter().position(|fault| is_met(fault.at));
            place.map(|place| faults.remove(place))
        };
        match fault.map(|fault| fault.what) {
            None => Ok(()),
            Some(FaultKind::Lost) => Err(lost().into()),
            Some(FaultKind::Hang) => pending().await,
            Some(FaultKind::OutOfMemory) => Err(out_of_memory()),
            Some(FaultKind::WrongNumbers) => {
                lock(&self.adapter.history).computes_wrong = true;
                Ok(())
            }
            Some(FaultKind::Pause { ms }) => {
                self.runtime.sleep(ms).await;
                Ok(())
            }
        }
    }

    async fn run_commands(
        &mut self,
        mailbox: &mut Mailbox,
        loaded: &mut SimulatedPlan,
        (run, weights): (&Run, Writes),
        progress: &mut RunProgress,
    ) -> Result<Done, Stop> {
        if !progress.begins_ahead {
            self.link.finish(mailbox).await?;
        }
        let plan = loaded.plan.clone();
        let mut timing = Timing { start_ms: self.runtime.now_ms(), weights, ..Timing::default() };
        self.feed(mailbox, loaded, run, progress).await?;
        timing.upload_ms = self.runtime.now_ms() - timing.start_ms;
        self.fault(progress).await?;
        for (command_idx, command) in plan.commands(run.pass).iter().enumerate() {
            mailbox.check(run.ticket)?;
            match command {
                command if run.skips(command) => {}
                Command::Dispatch(dispatch) => {
                    loaded.memory.dispatch(dispatch, &run.scalars);
                    progress.done += 1;
                    progress.owed_ms += progress.dispatch_ms;
                }
                Command::Exchange(exchange) => {
                    self.compute(mailbox, run.ticket, progress, &mut timing).await?;
                    if progress.begins_ahead {
                        let (bytes, data) = self.sent(loaded, run, (command_idx, exchange));
                        self.link.send(&self.adapter.spec, bytes, (run.ticket, command_idx, data));
                    } else {
                        self.exchange(mailbox, loaded, run, (command_idx, exchange), &mut timing).await?;
                    }
                }
            }
        }
        self.compute(mailbox, run.ticket, progress, &mut timing).await?;
        let begin_ms = self.runtime.now_ms();
        let (before_ms, end_ms) = self.link.end(&self.adapter.spec);
        timing.readback_ms += end_ms - begin_ms;
        if progress.begins_ahead {
            timing = behind(timing, before_ms);
        } else {
            self.runtime.sleep(end_ms - begin_ms).await;
        }
        let (ticket, pass, rows) = (run.ticket, run.pass, run.scalars.rows);
        Ok(Done::new((ticket, pass, rows), loaded.memory.results(pass, rows), timing))
    }

    /// A run's work. It begins ahead, as on a card, unless it waits for combined values, or runs are made slower by waits behind
    /// them.
    fn begin(&self, mailbox: &Mailbox, loaded: &SimulatedPlan, run: &Run) -> RunProgress {
        let plan = &loaded.plan;
        let waits = run.combining == Combining::Host && plan.is_coupled(run.pass);
        let begins_ahead = self.adapter.spec.kind != Some(Kind::Cpu) && !waits && !mailbox.is_throttled();
        let mut history = lock(&self.adapter.history);
        history.runs += 1;
        let noise = 1.0 + self.adapter.spec.jitter * history.rng.random_range(-1.0..=1.0);
        let dispatches = plan.commands(run.pass).iter().filter(|command| matches!(command, Command::Dispatch(_)));
        let n_dispatches = u32::try_from(dispatches.count()).unwrap_or(u32::MAX);
        let total_ms = self.compute_ms(loaded, run.pass, run.scalars.rows) * noise.max(0.05);
        let dispatch_ms = total_ms / f64::from(n_dispatches.max(1));
        RunProgress { number: history.runs - 1, n_dispatches, done: 0, dispatch_ms, owed_ms: 0.0, begins_ahead }
    }

    /// Milliseconds of computing that a run takes when nothing slows it down.
    fn compute_ms(&self, loaded: &SimulatedPlan, pass: Pass, rows: u32) -> f64 {
        if let Some(times) = loaded.times {
            return times.of(pass, rows);
        }
        let spec = &self.adapter.spec;
        match (pass, spec.per_row_ms) {
            // Submitted with the run before it.
            (Pass::Update, _) => spec.pass_ms(&loaded.plan, pass, rows),
            (Pass::Train, Some(per_row_ms)) => spec.fixed_ms + loaded.part * per_row_ms * f64::from(rows),
            (_, Some(per_row_ms)) => spec.fixed_ms + FORWARD_PART * loaded.part * per_row_ms * f64::from(rows),
            (_, None) => spec.fixed_ms + spec.pass_ms(&loaded.plan, pass, rows),
        }
    }

    /// Feeds a run: from its turn on, or, if it begins ahead, from when it came and the values before it are there.
    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    async fn feed(
        &mut self,
        mailbox: &mut Mailbox,
        loaded: &mut SimulatedPlan,
        run: &Run,
        progress: &RunProgress,
    ) -> Result<(), Stop> {
        if run.feeds.is_empty() {
            return Ok(());
        }
        for (role, data) in &run.feeds {
            loaded.memory.write(*role, 0, data);
        }
        let from_ms = if progress.begins_ahead { mailbox.came_ms() } else { self.runtime.now_ms() };
        let bytes = loaded.traffic.fed(run.pass, run.scalars.rows) as f64;
        let ms = self.link.feed(&self.adapter.spec, bytes, from_ms);
        self.link.pass(mailbox, run.ticket, ms).await
    }

    /// Advances the clock by the computing that was done.
    async fn compute(
        &mut self,
        mailbox: &mut Mailbox,
        run: Ticket,
        progress: &mut RunProgress,
        timing: &mut Timing,
    ) -> Result<(), Stop> {
        let begin_ms = self.runtime.now_ms();
        self.work(mailbox, run, std::mem::take(&mut progress.owed_ms)).await?;
        self.fault(progress).await?;
        timing.compute_ms += self.runtime.now_ms() - begin_ms;
        Ok(())
    }

    async fn fault(&self, progress: &RunProgress) -> Result<(), Stop> {
        let (run, part) = (progress.number, progress.part());
        self.meet(|at| matches!(at, Trigger::Run { number, progress } if number == run && progress <= part)).await
    }

    /// Lets `ms` of undisturbed work pass, in pieces between the changes of what slows it down.
    async fn work(&mut self, mailbox: &mut Mailbox, run: Ticket, ms: f64) -> Result<(), Stop> {
        if ms <= 0.0 {
            return Ok(());
        }
        let computing = Computing::begin(self.adapter.crowd.clone(), self.adapter.position);
        let mut left_ms = ms;
        while left_ms > 0.0 {
            let now_ms = self.runtime.now_ms();
            let AdapterSpec { slowdowns, crowding, .. } = &self.adapter.spec;
            let now = slowdowns.iter().filter(|slow| slow.from_ms <= now_ms && now_ms < slow.to_ms);
            let (others, n_changes) = computing.others();
            let factor = now.map(|slow| slow.factor).product::<f64>()
                * crowding.as_ref().map_or(1.0, |crowding| crowding.factor(&others));
            let changes = slowdowns.iter().flat_map(|slow| [slow.from_ms, slow.to_ms]);
            let until_ms = changes.filter(|at_ms| *at_ms > now_ms).fold(f64::INFINITY, f64::min);
            let piece_ms = (left_ms * factor).min(until_ms - now_ms).min(PIECE_MS);
            mailbox.beat();
            let pass = async { self.link.pass(mailbox, run, piece_ms).await.map(|()| Some(piece_ms)) };
            let change = async {
                match crowding {
                    Some(_) => computing.changed(n_changes).await,
                    None => pending().await,
                }
                Ok(None)
            };
            let passed_ms = match futures_lite::future::or(pass, change).await? {
                Some(piece_ms) if piece_ms >= left_ms * factor => return Ok(()),
                Some(piece_ms) => piece_ms,
                None => self.runtime.now_ms() - now_ms,
            };
            left_ms -= passed_ms / factor;
        }
        Ok(())
    }

    /// Bytes of an exchange, and its value.
    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    fn sent(&self, loaded: &SimulatedPlan, run: &Run, (command, exchange): (usize, &Exchange)) -> (f64, Vec<f32>) {
        let bytes = loaded.traffic.exchange(run.pass, command, run.scalars.rows) as f64;
        let mut values = loaded.memory.view(exchange.sent(), run.scalars.rows);
        if lock(&self.adapter.history).computes_wrong {
            values.iter_mut().for_each(|value| *value = -*value);
        }
        (bytes, values)
    }

    /// Sends a value to be combined, and waits for the result where the next command needs it.
    async fn exchange(
        &mut self,
        mailbox: &mut Mailbox,
        loaded: &mut SimulatedPlan,
        run: &Run,
        (command, exchange): (usize, &Exchange),
        timing: &mut Timing,
    ) -> Result<(), Stop> {
        let spec = &self.adapter.spec;
        let (bytes, data) = self.sent(loaded, run, (command, exchange));
        let begin_ms = self.runtime.now_ms();
        let come_ms = self.link.move_down(spec, bytes) + spec.latency_ms;
        let event = Event::Exchange { ticket: run.ticket, command, data };
        if matches!(exchange.combine, Combine::HandOver(_)) {
            // Another stage may wait for it.
            self.runtime.sleep(come_ms - begin_ms).await;
            timing.readback_ms += self.runtime.now_ms() - begin_ms;
            return mailbox.send(event).await;
        }
        if !exchange.is_awaited() {
            // Sent before the transfer ends: it is not used before the run's end, which waits for the link.
            return mailbox.send(event).await;
        }
        self.runtime.sleep(come_ms - begin_ms).await;
        let upload_ms = transfer_ms(bytes, spec.upload_gb_s, spec.latency_ms);
        mailbox.send(event).await?;
        let asked_ms = self.runtime.now_ms();
        let combined = mailbox.combined(run.ticket, command).await?;
        timing.wait_ms += self.runtime.now_ms() - asked_ms;
        loaded.memory.replace(exchange.view, run.scalars.rows, &combined);
        self.runtime.sleep(upload_ms).await;
        timing.compute_ms += asked_ms - begin_ms + upload_ms;
        Ok(())
    }
}

/// The times of a run without what was hidden behind the run before, which ended at that time.
fn behind(mut timing: Timing, ended_ms: f64) -> Timing {
    let mut hidden_ms = (ended_ms - timing.start_ms).max(0.0);
    for part in [&mut timing.upload_ms, &mut timing.compute_ms, &mut timing.readback_ms] {
        let ms = hidden_ms.min(*part);
        *part -= ms;
        hidden_ms -= ms;
        timing.start_ms += ms;
    }
    timing
}
