//! The open runs of a pass: sent to adapters, and not answered yet. The one place for silence, failure and abandoned runs.
//!
//! `Round`, `Pipeline` and the steps of an only adapter stand on it. They decide what runs where, and where the runs of a lost
//! adapter run again.
//!
//! - **Silence.** An adapter with an open run must send an event in time, else it is lost. Runs are open on active adapters
//!   only, since a loss closes those of the lost adapter: none is lost twice for one silence, and one without runs never is.
//! - **Late events** of runs that are no longer open are dropped. So is a failure for want of memory: the pass has begun again
//!   with other rows, and a run of these fails by itself if they do not fit. [`Fault::Lost`] always counts: it is the adapter's,
//!   not a run's.
//! - **Too little memory.** All runs are abandoned, and the adapter takes half the rows from then on. With a single row it is
//!   lost like any other, so that the work of the others stays. So it is after an update, which may have changed a part of the
//!   state.

use std::sync::Arc;

use litemap::LiteMap;

use super::rig::Rig;
use super::shards::{self, Answer, Shard};
use super::state::State;
use super::timeline::{RunOf, StageTask};
use crate::data::Batch;
use crate::error::Result;
use crate::plan::{Combine, Command, Handed, Pass, Role, Scalars};
use manyhands_engine::adapters::{Combining, Event, Fault, Request, Run, Ticket};

/// Shortest time after which an adapter counts as hung, and the limit of a first run.
const SILENCE_MS: f64 = 10_000.0;
const FIRST_RUN_MS: f64 = 120_000.0;
/// Times the predicted duration after which an adapter counts as hung.
const SILENCE_FACTOR: f64 = 20.0;

/// Longest silence of an adapter whose run is predicted to take so long, if that is known.
fn longest_silence_ms(predicted_ms: Option<f64>) -> f64 {
    predicted_ms.map_or(FIRST_RUN_MS, |predicted_ms| (SILENCE_FACTOR * predicted_ms).max(SILENCE_MS))
}

/// Work of a pass.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub pass: Pass,
    pub batch: &'a Batch,
    pub scalars: &'a Scalars,
    pub combining: Combining,
    pub among: Among,
}

/// Reach of the exchanges within a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Among {
    /// The adapters of this process.
    Adapters,
    /// The adapters of all processes, which are at the same pass.
    Processes,
}

impl Job<'_> {
    /// The training step of this pass, if it is one.
    pub fn step(&self) -> Option<u64> {
        matches!(self.pass, Pass::Train | Pass::Update).then(|| u64::from(self.scalars.step))
    }
}

/// A run to be sent.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// Number of the task in the pass, which its outcomes name.
    pub slot: usize,
    pub pass: Pass,
    pub shard: Shard,
    /// Index of the piece of the batch, in a model of several stages.
    pub piece: Option<usize>,
}

/// A run that was sent, and is not answered yet.
struct OpenRun {
    order: Order,
    ticket: Ticket,
    stage: usize,
    /// Values to be combined, by command, both before the next command and before the update.
    exchanges: LiteMap<usize, Vec<f32>>,
    /// Arrival of its last value.
    came_ms: f64,
    /// Its waits for combined values, from the arrival of its own: start and end.
    waits: Vec<(f64, f64)>,
}

/// Outcome of an open run, or fate of an adapter.
pub(super) enum Outcome {
    /// A task has handed over a value to other stages.
    HandedOver { slot: usize, handed: Handed, data: Vec<f32> },
    /// All open runs wait for the combined value of a command.
    Awaited { command: usize },
    /// A task is done.
    Done { slot: usize, answer: Answer },
    /// An adapter was lost. Its runs are closed, all others stay open.
    Lost { adapter_idx: usize },
    /// An adapter takes fewer rows from now on. No run is open.
    Reduced,
}

/// Predicted milliseconds of an adapter for so many rows, if known.
pub(super) type Predicted<'a> = &'a (dyn Fn(usize, u32) -> Option<f64> + Sync);

/// The open runs of a pass.
pub(super) struct OpenRuns<'a> {
    pub rig: &'a mut Rig,
    pub state: &'a mut State,
    pub job: Job<'a>,
    /// Whether runs wait for each other within the pass.
    pub is_coupled: bool,
    /// In the order in which they were sent.
    open: Vec<OpenRun>,
}

impl<'a> OpenRuns<'a> {
    pub fn new(rig: &'a mut Rig, state: &'a mut State, job: Job<'a>) -> Self {
        let is_coupled = job.combining == Combining::Host && rig.plan().is_coupled(job.pass);
        Self { rig, state, job, is_coupled, open: Vec::new() }
    }

    /// Sends a run to the adapter of its shard, after the newest weights if the adapter lacks them. `handed` are values of
    /// other stages.
    pub fn send(&mut self, order: Order, handed: Vec<(Role, Arc<[f32]>)>) -> Ticket {
        let Order { slot, pass, shard, .. } = order;
        let Job { batch, scalars, combining, .. } = self.job;
        let ticket = self.rig.ticket(scalars.step, u32::try_from(slot).unwrap_or(u32::MAX));
        let scalars = shard.scalars(scalars);
        let mut feeds = handed;
        feeds.extend(shards::feeds(&self.rig.stage(shard.adapter_idx).plan, pass, &batch.shard(shard.range())));
        self.state.freshen(self.rig, shard.adapter_idx);
        self.rig.members[shard.adapter_idx].last_seen_ms = self.rig.runtime.now_ms();
        self.rig.send(shard.adapter_idx, Request::Run(Run { ticket, pass, scalars, feeds, combining }));
        self.expect(order, ticket);
        ticket
    }

    /// Counts a run as open that was sent before.
    pub fn expect(&mut self, order: Order, ticket: Ticket) {
        let stage = self.rig.members[order.shard.adapter_idx].stage;
        let (exchanges, waits) = (LiteMap::new(), Vec::new());
        self.open.push(OpenRun { order, ticket, stage, exchanges, came_ms: 0.0, waits });
    }

    /// Number of open runs of an adapter.
    pub fn count(&self, adapter_idx: usize) -> usize {
        self.open.iter().filter(|run| run.order.shard.adapter_idx == adapter_idx).count()
    }

    /// Abandons all runs: what still comes of them is dropped.
    pub fn abandon(&mut self) {
        for run in self.open.drain(..) {
            self.rig.send(run.order.shard.adapter_idx, Request::Abandon(run.ticket));
        }
    }

    /// The next outcome.
    ///
    /// # Errors
    /// If an adapter can't run the plan, or none is left that has the newest state.
    pub async fn next(&mut self, predicted_ms: Predicted<'_>) -> Result<Outcome> {
        loop {
            let first = self.first_due(predicted_ms);
            let left_ms = first.map_or(FIRST_RUN_MS, |(_, until_ms)| until_ms - self.rig.runtime.now_ms());
            let outcome = match self.rig.event_within(left_ms.clamp(1.0, FIRST_RUN_MS)).await {
                Some((adapter_idx, event)) => self.handle(adapter_idx, event).await?,
                None => first.and_then(|(adapter_idx, until_ms)| self.declare_silent(adapter_idx, until_ms)),
            };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
    }

    /// The adapter whose silence ends first, and the time until which it may last.
    fn first_due(&self, predicted_ms: Predicted) -> Option<(usize, f64)> {
        let limit = |Shard { adapter_idx, rows, .. }| longest_silence_ms(predicted_ms(adapter_idx, rows));
        let limits = self.open.iter().map(|run| (run.order.shard.adapter_idx, limit(run.order.shard)));
        // Adapters blocked at an exchange send no events: all get the longest limit.
        let least_ms = if self.is_coupled { limits.clone().map(|(_, ms)| ms).fold(0.0, f64::max) } else { 0.0 };
        let until = limits.map(|(idx, ms)| (idx, self.rig.members[idx].last_seen_ms + ms.max(least_ms)));
        until.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Loses the adapter that is silent longest, if its time is up. The adapters that waited for it get work again.
    fn declare_silent(&mut self, adapter_idx: usize, until_ms: f64) -> Option<Outcome> {
        (until_ms <= self.rig.runtime.now_ms()).then(|| self.lose(adapter_idx, "it does not answer"))
    }

    async fn handle(&mut self, adapter_idx: usize, event: Event) -> Result<Option<Outcome>> {
        Ok(match event {
            Event::Exchange { ticket, command, data } => self.take(ticket, command, data),
            Event::Done { ticket, reports, outputs, timing } => self.position_of(ticket).map(|at| {
                let OpenRun { order, stage, exchanges, waits, .. } = self.open.remove(at);
                let Order { slot, pass, shard, piece } = order;
                let task = piece.map(|piece| StageTask { stage, pass, piece });
                let run = RunOf { adapter_idx, pass, step: self.job.step(), task, rows: shard.rows };
                self.rig.timeline.record_run(&run, &timing, &waits);
                Outcome::Done { slot, answer: Answer { shard, stage, exchanges, reports, outputs, timing } }
            }),
            Event::Failed { ticket: Some(ticket), fault: Fault::OutOfMemory(_) | Fault::Unsupported(_) }
                if self.position_of(ticket).is_none() =>
            {
                None
            }
            Event::Failed { fault, .. } => Some(self.on_failure(adapter_idx, fault).await?),
            Event::Loaded { .. } | Event::Contents { .. } | Event::Working => None,
        })
    }

    fn position_of(&self, ticket: Ticket) -> Option<usize> {
        self.open.iter().position(|run| run.ticket == ticket)
    }

    /// Takes a value that a run has sent, and keeps it for the answer if it is to be combined.
    fn take(&mut self, ticket: Ticket, command: usize, data: Vec<f32>) -> Option<Outcome> {
        let now_ms = self.rig.runtime.now_ms();
        let run = self.open.iter_mut().find(|run| run.ticket == ticket)?;
        let commands = self.rig.stages[run.stage].plan.commands(run.order.pass);
        let Command::Exchange(exchange) = commands.get(command)? else { return None };
        if let Combine::HandOver(handed) = exchange.combine {
            return Some(Outcome::HandedOver { slot: run.order.slot, handed, data });
        }
        let is_awaited = exchange.is_awaited();
        run.exchanges.insert(command, data);
        run.came_ms = now_ms;
        let is_all_in = is_awaited && self.open.iter().all(|run| run.exchanges.contains_key(&command));
        is_all_in.then_some(Outcome::Awaited { command })
    }

    /// The values of a command that all open runs wait for, each with its rows, in the order of their slots.
    pub fn awaited(&self, command: usize) -> impl Iterator<Item = (u32, &[f32])> {
        self.open.iter().filter_map(move |run| Some((run.order.shard.rows, run.exchanges.get(&command)?.as_slice())))
    }

    /// Sends the combined value of a command to all runs that wait for it.
    pub fn send_combined(&mut self, command: usize, data: &Arc<[f32]>) {
        let now_ms = self.rig.runtime.now_ms();
        let last = self.open.iter().max_by(|a, b| a.came_ms.total_cmp(&b.came_ms));
        let last = last.map(|run| run.order.shard.adapter_idx);
        for run in &mut self.open {
            let (adapter_idx, data) = (run.order.shard.adapter_idx, data.clone());
            self.rig.send(adapter_idx, Request::Combined { ticket: run.ticket, command, data });
            run.waits.push((run.came_ms, now_ms));
            if let Some(last) = last {
                self.rig.timeline.hold_up(last, now_ms - run.came_ms);
            }
            // An adapter that waited for other processes was not silent.
            self.rig.members[adapter_idx].last_seen_ms = now_ms;
        }
    }

    async fn on_failure(&mut self, adapter_idx: usize, fault: Fault) -> Result<Outcome> {
        match fault {
            Fault::Unsupported(_) => {
                // The adapters are free for whatever comes next.
                self.abandon();
                Err(self.rig.refused(adapter_idx, &fault))
            }
            Fault::OutOfMemory(text) if self.job.pass != Pass::Update => {
                self.on_out_of_memory(adapter_idx, &text).await
            }
            // A failed update may have changed a part of the state, so it counts as a loss.
            Fault::Lost(text) | Fault::OutOfMemory(text) => Ok(self.lose(adapter_idx, &text)),
        }
    }

    /// Makes an adapter load the plan again for half the rows. If it had a single row, it counts as lost.
    async fn on_out_of_memory(&mut self, adapter_idx: usize, text: &str) -> Result<Outcome> {
        // The newest state may be on the device only, and loading clears it.
        if let Err(error) = self.state.read_back(self.rig).await {
            if self.rig.has_active() {
                return Err(error);
            }
            log::debug!("{error}");
            self.open.clear();
            return Ok(Outcome::Lost { adapter_idx });
        }
        self.state.move_to_host();
        if self.rig.members[adapter_idx].capacity == 1 {
            return Ok(self.lose(adapter_idx, &format!("{text} for a single row")));
        }
        self.abandon();
        self.rig.load_fewer_rows(adapter_idx, text);
        self.rig.finish_load_or_lose(adapter_idx).await?;
        Ok(Outcome::Reduced)
    }

    fn lose(&mut self, adapter_idx: usize, text: &str) -> Outcome {
        self.rig.lose(adapter_idx, text);
        self.open.retain(|run| run.order.shard.adapter_idx != adapter_idx);
        Outcome::Lost { adapter_idx }
    }
}
