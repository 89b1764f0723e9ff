//! The actor of a simulated adapter: requests and events as those of a real one, time by its spec.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use async_channel::{Receiver, Sender};
use rand::RngExt;

use super::arithmetic::Memory;
use super::spec::{Mishap, Moment};
use super::traffic::Traffic;
use super::virtual_time::{Virtual, lock};
use super::world::Seat;
use crate::adapters::{Combining, Event, Fault, Handle, Info, Message, Request, Run, Ticket, Timing, Writes};
use crate::plan::{Command, Exchange, Pass, Plan, Role, When, Work};
use crate::runtime::{Runtime, Task};

/// Part of a training row's time that a run which only goes forward takes: backward is about twice as much.
const FORWARD_PART: f64 = 1.0 / 3.0;

/// Opens a simulated adapter.
pub(super) fn open(
    seat: Arc<Seat>,
    info: &Info,
    adapter_idx: usize,
    runtime: Virtual,
    events: Sender<Message>,
) -> Handle {
    let (requests, inbox) = async_channel::unbounded();
    let clock = runtime.clone();
    let actor = move || -> Task {
        Box::pin(async move {
            let mut actor = Actor {
                adapter_idx,
                runtime: clock,
                seat,
                events,
                inbox,
                held: VecDeque::new(),
                memory: None,
                traffic: Traffic::default(),
                throttle: 1.0,
                weights: Writes::default(),
                link_free_ms: 0.0,
                is_halted: false,
            };
            actor.serve().await;
        })
    };
    runtime.spawn(&info.name, Box::new(actor));
    Handle { info: info.clone(), requests }
}

/// Why a run, or the actor, does not go on.
enum Stop {
    /// The other end is gone.
    Gone,
    /// The device is gone.
    Lost,
    /// Too little memory for this request.
    OutOfMemory,
    /// The run was given up.
    Abandoned,
}

struct Actor {
    adapter_idx: usize,
    runtime: Virtual,
    seat: Arc<Seat>,
    events: Sender<Message>,
    inbox: Receiver<Request>,
    /// Requests that came while a run waited for a combined value.
    held: VecDeque<Request>,
    memory: Option<Memory>,
    traffic: Traffic,
    throttle: f64,
    /// Weights that were written since the last run.
    weights: Writes,
    /// When what was read back so far is on the host: buckets travel while later commands compute.
    link_free_ms: f64,
    /// Did a run without other adapters fail, so that what was asked behind it makes no sense?
    is_halted: bool,
}

/// One run: which it is, and how much of it is done.
struct Progress {
    number: u64,
    n_dispatches: u32,
    done: u32,
    /// Milliseconds for each dispatch.
    dispatch_ms: f64,
    /// Computing that is behind the run's values, but not yet behind the clock.
    owed_ms: f64,
}

impl Progress {
    fn part(&self) -> f64 {
        f64::from(self.done) / f64::from(self.n_dispatches.max(1))
    }
}

impl Actor {
    async fn serve(&mut self) {
        loop {
            let request = match self.next().await {
                Ok(request) => request,
                Err(stop) => return self.fall(stop).await,
            };
            let ticket = if let Request::Run(run) = &request { Some(run.ticket) } else { None };
            match self.answer(request).await {
                Ok(()) | Err(Stop::Abandoned) => {}
                Err(Stop::OutOfMemory) => {
                    let fault = Fault::OutOfMemory("simulated".into());
                    drop(self.say(Event::Failed { ticket, fault }).await);
                }
                Err(stop) => return self.fall(stop).await,
            }
        }
    }

    async fn fall(&self, stop: Stop) {
        if let Stop::Lost = stop {
            let fault = Fault::Lost("simulated".into());
            drop(self.say(Event::Failed { ticket: None, fault }).await);
        }
    }

    async fn say(&self, event: Event) -> Result<(), Stop> {
        self.events.send(Message { adapter_idx: self.adapter_idx, event }).await.map_err(|_| Stop::Gone)
    }

    /// The next request, unless a trouble comes first.
    async fn next(&mut self) -> Result<Request, Stop> {
        loop {
            if let Some(request) = self.held.pop_front() {
                return Ok(request);
            }
            let request = async { Some(self.inbox.recv().await.map_err(|_| Stop::Gone)) };
            let trouble = async {
                match self.ms_to_trouble() {
                    Some(ms) => self.runtime.sleep(ms).await,
                    None => pending().await,
                }
                None
            };
            match futures_lite::future::or(request, trouble).await {
                Some(request) => return request,
                None => self.meet(|moment| matches!(moment, Moment::Time { .. })).await?,
            }
        }
    }

    fn ms_to_trouble(&self) -> Option<f64> {
        let history = lock(&self.seat.history);
        let times = history.troubles.iter().filter_map(|trouble| match trouble.at {
            Moment::Time { ms } => Some(ms - self.runtime.now_ms()),
            Moment::Load { .. } | Moment::Run { .. } => None,
        });
        times.reduce(f64::min)
    }

    /// Meets the first trouble whose moment is among those given, or whose time has come.
    async fn meet(&self, is_due: impl Fn(Moment) -> bool) -> Result<(), Stop> {
        let now_ms = self.runtime.now_ms();
        let is_met = |at: Moment| match at {
            Moment::Time { ms } => ms <= now_ms,
            other => is_due(other),
        };
        let trouble = {
            let troubles = &mut lock(&self.seat.history).troubles;
            let place = troubles.iter().position(|trouble| is_met(trouble.at));
            place.map(|place| troubles.remove(place))
        };
        match trouble.map(|trouble| trouble.what) {
            None => Ok(()),
            Some(Mishap::Lost) => Err(Stop::Lost),
            Some(Mishap::Hang) => pending().await,
            Some(Mishap::OutOfMemory) => Err(Stop::OutOfMemory),
            Some(Mishap::Pause { ms }) => {
                self.runtime.sleep(ms).await;
                Ok(())
            }
        }
    }

    async fn answer(&mut self, request: Request) -> Result<(), Stop> {
        match request {
            Request::Load { plan, capacity } => self.load(plan, capacity).await,
            Request::Write { role, offset, data } => {
                let begin_ms = self.runtime.now_ms();
                self.write(role, &data).await;
                self.weights.add(begin_ms, self.runtime.now_ms());
                if let Some(memory) = &mut self.memory {
                    memory.write(role, offset, &data);
                }
                Ok(())
            }
            Request::Read(role) => {
                let data = self.memory.as_ref().map_or_else(Vec::new, |memory| memory.read(role));
                self.say(Event::Contents { role, data }).await
            }
            Request::Throttle(factor) => {
                self.throttle = factor.max(1.0);
                Ok(())
            }
            Request::Lose => Err(Stop::Lost),
            Request::Abandon(_) => {
                self.is_halted = false;
                Ok(())
            }
            // Late: the run that waited for it is over. Runs are answered as they end.
            Request::Combined { .. } | Request::Finish => Ok(()),
            Request::Run(run) if self.is_halted && run.combining == Combining::Device => Ok(()),
            Request::Run(run) => {
                let ran = self.run(&run).await;
                self.is_halted = ran.is_err() && run.combining == Combining::Device;
                ran
            }
        }
    }

    async fn load(&mut self, plan: Arc<Plan>, capacity: u32) -> Result<(), Stop> {
        self.memory = None;
        let number = {
            let mut history = lock(&self.seat.history);
            history.loads += 1;
            history.loads - 1
        };
        self.meet(|at| matches!(at, Moment::Load { number: at } if at == number)).await?;
        if self.seat.spec.max_rows.is_some_and(|max_rows| capacity > max_rows) {
            return Err(Stop::OutOfMemory);
        }
        self.traffic = self.seat.traffic.clone().unwrap_or_else(|| Traffic::of(&plan));
        let memory = Memory::new(self.seat.arithmetic, plan, capacity);
        let bytes = memory.bytes();
        self.memory = Some(memory);
        self.say(Event::Loaded { bytes }).await
    }

    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    async fn write(&self, role: Role, data: &[f32]) {
        let scale = if matches!(role, Role::Parameters(_) | Role::State(..)) { self.traffic.scale } else { 1.0 };
        let bytes = size_of_val(data) as f64 * scale;
        self.runtime.sleep(transfer_ms(bytes, self.seat.spec.upload_gb_s, self.seat.spec.latency_ms)).await;
    }

    async fn run(&mut self, run: &Run) -> Result<(), Stop> {
        let Some(mut memory) = self.memory.take() else {
            let fault = Fault::Unsupported("no plan is loaded".into());
            return self.say(Event::Failed { ticket: Some(run.ticket), fault }).await;
        };
        let done = self.run_commands(&mut memory, run).await;
        self.memory = Some(memory);
        let done = done?;
        self.say(done).await
    }

    async fn run_commands(&mut self, memory: &mut Memory, run: &Run) -> Result<Event, Stop> {
        let plan = memory.plan();
        let weights = std::mem::take(&mut self.weights);
        let mut timing = Timing { start_ms: self.runtime.now_ms(), weights, ..Timing::default() };
        let mut progress = self.begin(&plan, run);
        self.feed(memory, run).await;
        timing.upload_ms = self.runtime.now_ms() - timing.start_ms;
        self.trouble(&progress).await?;
        for (command_idx, command) in plan.commands(run.pass).iter().enumerate() {
            match command {
                command if run.combining == Combining::Device && command.is_for_others() => {}
                Command::Dispatch(dispatch) => {
                    memory.dispatch(dispatch, &run.scalars);
                    progress.done += 1;
                    progress.owed_ms += progress.dispatch_ms;
                }
                Command::Exchange(exchange) => {
                    self.compute(&mut progress, &mut timing).await?;
                    self.exchange(memory, run, command_idx, exchange, &mut timing).await?;
                }
            }
        }
        self.compute(&mut progress, &mut timing).await?;
        let begin_ms = self.runtime.now_ms();
        self.runtime.sleep(self.link_free_ms - begin_ms).await;
        self.runtime.sleep(self.seat.spec.latency_ms).await;
        timing.readback_ms += self.runtime.now_ms() - begin_ms;
        let (reports, outputs) = memory.results(run.pass, run.scalars.rows);
        Ok(Event::Done { ticket: run.ticket, reports, outputs, timing })
    }

    fn begin(&self, plan: &Plan, run: &Run) -> Progress {
        let mut history = lock(&self.seat.history);
        history.runs += 1;
        let noise = 1.0 + self.seat.spec.jitter * history.rng.random_range(-1.0..=1.0);
        let dispatches = plan.commands(run.pass).iter().filter(|command| matches!(command, Command::Dispatch(_)));
        let n_dispatches = u32::try_from(dispatches.count()).unwrap_or(u32::MAX);
        let total_ms = self.compute_ms(plan, run.pass, run.scalars.rows) * noise.max(0.05);
        let dispatch_ms = total_ms / f64::from(n_dispatches.max(1));
        Progress { number: history.runs - 1, n_dispatches, done: 0, dispatch_ms, owed_ms: 0.0 }
    }

    /// Milliseconds of computing that a run takes when nothing slows it down.
    fn compute_ms(&self, plan: &Plan, pass: Pass, rows: u32) -> f64 {
        let spec = &self.seat.spec;
        let work = Work::of(plan, pass, rows);
        let touched_ms = spec.memory_gb_s.map_or(0.0, |gb_s| work.bytes / (gb_s * 1e6));
        match (pass, spec.per_row_ms) {
            (Pass::Update, Some(_)) => touched_ms,
            (Pass::Train, Some(per_row_ms)) => spec.fixed_ms + per_row_ms * f64::from(rows),
            (_, Some(per_row_ms)) => spec.fixed_ms + FORWARD_PART * per_row_ms * f64::from(rows),
            (_, None) => spec.fixed_ms + spec.gflops.map_or(0.0, |gflops| work.flops / (gflops * 1e6)) + touched_ms,
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    async fn feed(&self, memory: &mut Memory, run: &Run) {
        if run.feeds.is_empty() {
            return;
        }
        for (role, data) in &run.feeds {
            memory.write(*role, 0, data);
        }
        let bytes = (self.traffic.fed_per_row * u64::from(run.scalars.rows)) as f64;
        self.runtime.sleep(transfer_ms(bytes, self.seat.spec.upload_gb_s, self.seat.spec.latency_ms)).await;
    }

    /// Lets the computing that was done pass by the clock too.
    async fn compute(&self, progress: &mut Progress, timing: &mut Timing) -> Result<(), Stop> {
        let begin_ms = self.runtime.now_ms();
        self.work(std::mem::take(&mut progress.owed_ms) * self.throttle).await;
        self.trouble(progress).await?;
        timing.compute_ms += self.runtime.now_ms() - begin_ms;
        Ok(())
    }

    async fn trouble(&self, progress: &Progress) -> Result<(), Stop> {
        let (run, part) = (progress.number, progress.part());
        self.meet(|at| matches!(at, Moment::Run { number, progress } if number == run && progress <= part)).await
    }

    /// Lets `ms` of undisturbed work pass, in pieces between the beginnings and ends of slowdowns.
    async fn work(&self, ms: f64) {
        let mut left_ms = ms;
        while left_ms > 0.0 {
            let now_ms = self.runtime.now_ms();
            let slowdowns = &self.seat.spec.slowdowns;
            let now = slowdowns.iter().filter(|slow| slow.from_ms <= now_ms && now_ms < slow.to_ms);
            let factor: f64 = now.map(|slow| slow.factor).product();
            let changes = slowdowns.iter().flat_map(|slow| [slow.from_ms, slow.to_ms]);
            let until_ms = changes.filter(|at_ms| *at_ms > now_ms).fold(f64::INFINITY, f64::min);
            let piece_ms = (left_ms * factor).min(until_ms - now_ms);
            self.runtime.sleep(piece_ms).await;
            left_ms = if piece_ms < left_ms * factor { left_ms - piece_ms / factor } else { 0.0 };
        }
    }

    /// Sends a value to be combined, and waits for the result where the next command needs it.
    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    async fn exchange(
        &mut self,
        memory: &mut Memory,
        run: &Run,
        command: usize,
        exchange: &Exchange,
        timing: &mut Timing,
    ) -> Result<(), Stop> {
        let spec = &self.seat.spec;
        let bytes = self.traffic.exchange(command, run.scalars.rows) as f64;
        let begin_ms = self.runtime.now_ms();
        self.link_free_ms = self.link_free_ms.max(begin_ms) + transfer_ms(bytes, spec.download_gb_s, 0.0);
        let data = memory.view(exchange.sent(), run.scalars.rows);
        let event = Event::Exchange { ticket: run.ticket, command, data };
        if exchange.when == When::Update {
            // Said before it has travelled: nothing is done with it before the run's end, which waits for the link.
            return self.say(event).await;
        }
        self.runtime.sleep(self.link_free_ms - begin_ms + spec.latency_ms).await;
        let upload_ms = transfer_ms(bytes, spec.upload_gb_s, spec.latency_ms);
        self.say(event).await?;
        let asked_ms = self.runtime.now_ms();
        let combined = self.combined(run.ticket, command).await?;
        timing.wait_ms += self.runtime.now_ms() - asked_ms;
        memory.replace(exchange.view, run.scalars.rows, &combined);
        self.runtime.sleep(upload_ms).await;
        timing.compute_ms += asked_ms - begin_ms + upload_ms;
        Ok(())
    }

    async fn combined(&mut self, wanted: Ticket, wanted_command: usize) -> Result<Arc<[f32]>, Stop> {
        loop {
            match self.inbox.recv().await.map_err(|_| Stop::Gone)? {
                Request::Combined { ticket, command, data } if ticket == wanted && command == wanted_command => {
                    return Ok(data);
                }
                Request::Abandon(ticket) if ticket == wanted => return Err(Stop::Abandoned),
                Request::Combined { .. } | Request::Abandon(_) => {}
                other => self.held.push_back(other),
            }
        }
    }
}

/// Milliseconds of a transfer.
fn transfer_ms(bytes: f64, gb_s: Option<f64>, latency_ms: f64) -> f64 {
    latency_ms + gb_s.map_or(0.0, |gb_s| bytes / (gb_s * 1e6))
}
