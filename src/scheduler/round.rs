//! One round: a pass over all shards of a batch, until every answer is in. A lost shard is re-run on another adapter.

use std::sync::Arc;

use litemap::LiteMap;

use super::combine::{combine, combine_processes};
use super::partition::Partition;
use super::recovery::ensure_active;
use super::rig::Rig;
use super::shards::{self, Answer, Shard};
use super::state::State;
use super::timeline::{Activity, Lane, RunOf, Span};
use crate::adapters::{Combining, Event, Fault, Request, Run, Ticket};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::plan::{Command, Exchange, Pass, Scalars, When};

/// Shortest time after which an adapter counts as hung, and the limit of a first run.
const SILENCE_MS: f64 = 10_000.0;
pub(super) const FIRST_RUN_MS: f64 = 120_000.0;
/// Times the predicted duration after which an adapter counts as hung.
const SILENCE_FACTOR: f64 = 20.0;

/// Longest silence of an adapter whose run is predicted to take so long, if that is known.
pub(super) fn longest_silence_ms(predicted_ms: Option<f64>) -> f64 {
    predicted_ms.map_or(FIRST_RUN_MS, |predicted_ms| (SILENCE_FACTOR * predicted_ms).max(SILENCE_MS))
}

/// Work of a round.
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

/// A shard that is in flight.
pub(super) struct Task {
    shard: Shard,
    ticket: Ticket,
    /// Values to be combined, by command, both before the next command and before the update.
    exchanges: LiteMap<usize, Vec<f32>>,
    /// Arrival of its last value.
    came_ms: f64,
    /// Its waits for combined values, from the arrival of its own: start and end.
    waits: Vec<(f64, f64)>,
    answer: Option<Answer>,
}

impl Task {
    pub fn new(shard: Shard, ticket: Ticket) -> Self {
        Self { shard, ticket, exchanges: LiteMap::new(), came_ms: 0.0, waits: Vec::new(), answer: None }
    }
}

/// A pass over all shards of a batch.
pub(super) struct Round<'a> {
    job: Job<'a>,
    /// Whether shards wait for each other within the pass.
    is_coupled: bool,
    rig: &'a mut Rig,
    state: &'a mut State,
    partition: &'a mut Partition,
    tasks: Vec<Task>,
    /// Values that were combined over all processes, by command: a round that starts again can't ask for them twice.
    combined: LiteMap<usize, Arc<[f32]>>,
}

impl<'a> Round<'a> {
    pub fn new(rig: &'a mut Rig, state: &'a mut State, partition: &'a mut Partition, job: Job<'a>) -> Self {
        let is_coupled = job.combining == Combining::Host && rig.plan().is_coupled(job.pass);
        Self { job, is_coupled, rig, state, partition, tasks: Vec::new(), combined: LiteMap::new() }
    }

    /// Runs the pass on every shard. The answers come in the order of the rows.
    ///
    /// # Errors
    /// If no adapter is left to run it, or one can't.
    pub async fn run(mut self, shards: Vec<Shard>) -> Result<Vec<Answer>> {
        self.start(shards)?;
        if self.tasks.is_empty() {
            self.join_without_rows().await?;
        }
        self.wait().await?;
        let answers: Vec<Answer> = self.tasks.into_iter().filter_map(|task| task.answer).collect();
        record_ends(self.rig, self.job.step(), &answers);
        Ok(answers)
    }

    /// Waits for a run of the only adapter. `None` if it did not finish: memory did not suffice, or the adapter was
    /// lost with the state it had trained.
    ///
    /// # Errors
    /// If no adapter is left to continue on.
    pub async fn finish(mut self, shard: Shard, ticket: Ticket) -> Result<Option<Answer>> {
        self.tasks.push(Task::new(shard, ticket));
        self.wait().await?;
        Ok(self.tasks.pop().and_then(|task| task.answer))
    }

    async fn wait(&mut self) -> Result<()> {
        while self.tasks.iter().any(|task| task.answer.is_none()) {
            match self.rig.event_within(self.patience_ms()).await {
                Some((adapter_idx, event)) => self.handle(adapter_idx, event).await?,
                None => self.declare_silent().await?,
            }
        }
        Ok(())
    }

    fn start(&mut self, shards: Vec<Shard>) -> Result<()> {
        if self.is_coupled {
            self.check_coupled(&shards)?;
        }
        self.tasks.clear();
        for (slot, shard) in (0..).zip(shards) {
            let ticket = self.send(shard, slot);
            self.tasks.push(Task::new(shard, ticket));
        }
        Ok(())
    }

    /// Shards that wait for each other must all run at once: no two may be queued on one adapter.
    fn check_coupled(&self, shards: &[Shard]) -> Result<()> {
        let mut busy = vec![false; self.rig.members.len()];
        match shards.iter().find(|shard| std::mem::replace(&mut busy[shard.adapter_idx], true)) {
            None => Ok(()),
            Some(shard) => Err(Error::setting(
                "batch size",
                format!(
                    "needs to fit the adapters at once, since batch-norm over the whole batch lets shards wait for each \
                     other, but {} takes only {} rows",
                    self.rig.name(shard.adapter_idx),
                    self.rig.members[shard.adapter_idx].capacity
                ),
                "use a smaller batch, more adapters, `micro_batches = 1`, or statistics of each adapter's rows \
                 (`batch_statistics = \"shard\"`, and layers without `synchronized`)",
            )),
        }
    }

    /// Sends a shard to its adapter, after the newest weights if the adapter lacks them.
    pub fn send(&mut self, shard: Shard, slot: u32) -> Ticket {
        let Job { pass, batch, scalars, combining, .. } = self.job;
        let ticket = self.rig.ticket(scalars.step, slot);
        let scalars = shard.scalars(scalars);
        let feeds = shards::feeds(self.rig.plan(), pass, &batch.shard(shard.range()));
        self.state.freshen(self.rig, shard.adapter_idx);
        self.rig.members[shard.adapter_idx].last_seen_ms = self.rig.runtime.now_ms();
        self.rig.send(shard.adapter_idx, Request::Run(Run { ticket, pass, scalars, feeds, combining }));
        ticket
    }

    /// Longest wait for the next event; then some adapter counts as hung.
    fn patience_ms(&self) -> f64 {
        let now_ms = self.rig.runtime.now_ms();
        let left_ms = self.limits().into_iter().map(|(_, until_ms)| until_ms - now_ms);
        left_ms.fold(FIRST_RUN_MS, f64::min).max(1.0)
    }

    /// Adapters whose answers are open, with the time until which each may be silent.
    fn limits(&self) -> Vec<(usize, f64)> {
        let open = self.tasks.iter().filter(|task| task.answer.is_none()).map(|task| task.shard);
        let mut limits: Vec<(usize, f64)> = open.map(|shard| (shard.adapter_idx, self.limit_ms(shard))).collect();
        if self.is_coupled {
            // Adapters blocked at an exchange send no events: all get the longest limit.
            let longest_ms = limits.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
            limits.iter_mut().for_each(|(_, ms)| *ms = longest_ms);
        }
        limits.into_iter().map(|(idx, ms)| (idx, self.rig.members[idx].last_seen_ms + ms)).collect()
    }

    fn limit_ms(&self, shard: Shard) -> f64 {
        longest_silence_ms(self.partition.splitter().predicted_ms(shard.adapter_idx, shard.rows))
    }

    async fn declare_silent(&mut self) -> Result<()> {
        let now_ms = self.rig.runtime.now_ms();
        let is_overdue = |(idx, until_ms): &(usize, f64)| *until_ms <= now_ms && self.rig.members[*idx].is_active();
        let overdue = self.limits().into_iter().filter(is_overdue);
        // Only the adapter that is silent longest: the adapters that waited for it get work again.
        if let Some((adapter_idx, _)) = overdue.min_by(|a, b| a.1.total_cmp(&b.1)) {
            self.on_failure(adapter_idx, Fault::Lost("it does not answer".into())).await?;
        }
        Ok(())
    }

    async fn handle(&mut self, adapter_idx: usize, event: Event) -> Result<()> {
        match event {
            Event::Exchange { ticket, command, data } => {
                if let Some(task) = self.tasks.iter_mut().find(|task| task.ticket == ticket) {
                    task.exchanges.insert(command, data);
                    task.came_ms = self.rig.runtime.now_ms();
                    self.combine_if_all_in(command).await?;
                }
            }
            Event::Done { ticket, reports, outputs, timing } => {
                if let Some(task) = self.tasks.iter_mut().find(|task| task.ticket == ticket) {
                    let (pass, step, rows) = (self.job.pass, self.job.step(), task.shard.rows);
                    self.rig.timeline.record_run(
                        &RunOf { adapter_idx, pass, step, task: None, rows },
                        &timing,
                        &task.waits,
                    );
                    let exchanges = std::mem::take(&mut task.exchanges);
                    let (shard, stage) = (task.shard, 0);
                    task.answer = Some(Answer { shard, stage, exchanges, reports, outputs, timing });
                }
            }
            Event::Failed { fault, .. } => self.on_failure(adapter_idx, fault).await?,
            Event::Loaded { .. } | Event::Contents { .. } => {}
        }
        Ok(())
    }

    /// Combines the values of an awaited exchange and answers all shards, once every shard has sent its value.
    async fn combine_if_all_in(&mut self, command: usize) -> Result<()> {
        let plan = self.rig.plan().clone();
        let Some(Command::Exchange(exchange)) = plan.commands(self.job.pass).get(command) else { return Ok(()) };
        if exchange.when != When::NextCommand || !self.tasks.iter().all(|task| task.exchanges.contains_key(&command)) {
            return Ok(());
        }
        let parts = self.tasks.iter().map(|task| (task.shard.rows, task.exchanges[&command].as_slice()));
        let own = combine(exchange, parts);
        let combined = self.over_processes(command, exchange, own).await?;
        let now_ms = self.rig.runtime.now_ms();
        let last = self.tasks.iter().max_by(|a, b| a.came_ms.total_cmp(&b.came_ms)).map(|task| task.shard.adapter_idx);
        for task in &mut self.tasks {
            let data = combined.clone();
            self.rig.send(task.shard.adapter_idx, Request::Combined { ticket: task.ticket, command, data });
            task.waits.push((task.came_ms, now_ms));
            if let Some(last) = last {
                self.rig.timeline.hold_up(last, now_ms - task.came_ms);
            }
        }
        // Adapters that waited for other processes were not silent.
        self.tasks.iter().for_each(|task| self.rig.members[task.shard.adapter_idx].last_seen_ms = now_ms);
        Ok(())
    }

    /// Takes part in the awaited exchanges of the other processes.
    async fn join_without_rows(&mut self) -> Result<()> {
        if !self.is_coupled || self.job.among == Among::Adapters {
            return Ok(());
        }
        let plan = self.rig.plan().clone();
        for (command_idx, command) in plan.commands(self.job.pass).iter().enumerate() {
            if let Command::Exchange(exchange) = command
                && exchange.when == When::NextCommand
            {
                self.over_processes(command_idx, exchange, Vec::new()).await?;
            }
        }
        Ok(())
    }

    /// This process' combined values of a command, combined with those of the other processes.
    async fn over_processes(&mut self, command: usize, exchange: &Exchange, own: Vec<f32>) -> Result<Arc<[f32]>> {
        let joined = self.rig.processes.joined().filter(|_| self.job.among == Among::Processes);
        let Some(joined) = joined else { return Ok(own.into()) };
        if let Some(combined) = self.combined.get(&command) {
            return Ok(combined.clone());
        }
        let rows = self.tasks.iter().map(|task| task.shard.rows).sum::<u32>();
        let combined: Arc<[f32]> = combine_processes(exchange, joined, rows, &own).await?.into();
        self.combined.insert(command, combined.clone());
        Ok(combined)
    }

    async fn on_failure(&mut self, adapter_idx: usize, fault: Fault) -> Result<()> {
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
            Fault::Lost(text) | Fault::OutOfMemory(text) => {
                self.rig.lose(adapter_idx, &text);
                self.continue_without(adapter_idx).await
            }
        }
    }

    /// Re-runs the shards of a lost adapter, or all shards if they wait for each other.
    async fn continue_without(&mut self, lost: usize) -> Result<()> {
        ensure_active(self.rig, self.state, self.partition).await?;
        if self.job.combining == Combining::Device {
            // The caller decides how to continue.
            self.tasks.clear();
            Ok(())
        } else if self.is_coupled {
            self.restart()
        } else {
            self.rerun(lost)
        }
    }

    /// Makes an adapter load the plan again for half the rows. If that fails, or it had a single row, it counts as lost.
    async fn on_out_of_memory(&mut self, adapter_idx: usize, text: &str) -> Result<()> {
        let is_alone = self.job.combining == Combining::Device;
        if is_alone {
            // The update after this pass, and later steps, were dropped.
            self.abandon();
        }
        // The newest state may be on the device only, and loading clears it.
        match self.state.read_back(self.rig).await {
            Ok(()) => {
                self.state.move_to_host();
                if self.rig.members[adapter_idx].capacity > 1 {
                    self.rig.load_fewer_rows(adapter_idx, text);
                    self.rig.finish_load_or_lose(adapter_idx).await?;
                } else {
                    self.rig.lose(adapter_idx, &format!("{text} for a single row"));
                }
            }
            Err(error) if self.rig.has_active() => return Err(error),
            Err(error) => log::debug!("{error}"),
        }
        ensure_active(self.rig, self.state, self.partition).await?;
        if is_alone {
            // The step begins again, in pieces, with the update on the host.
            self.tasks.clear();
            return Ok(());
        }
        self.restart()
    }

    /// Gives the unfinished shards of a lost adapter to others, each in its slot. Shards whose gradients were added there
    /// all run again, those with an answer, too, unless their sum was sent: it is added anew, behind the other adapter's own.
    fn rerun(&mut self, lost: usize) -> Result<()> {
        for group in shards::groups(self.tasks.iter().map(|task| task.shard)) {
            let tasks = &self.tasks[group.clone()];
            let is_done = tasks.iter().all(|task| task.answer.is_some());
            if is_done || tasks.iter().all(|task| task.shard.adapter_idx != lost) {
                continue;
            }
            let Some(replacement) = self.replacement_for(tasks) else { return self.restart() };
            for idx in group {
                let shard = Shard { adapter_idx: replacement, ..self.tasks[idx].shard };
                let ticket = self.send(shard, self.tasks[idx].ticket.slot);
                self.tasks[idx] = Task::new(shard, ticket);
            }
        }
        Ok(())
    }

    /// The active adapter with the least predicted time for some shards; `None` if one fits nowhere.
    fn replacement_for(&self, tasks: &[Task]) -> Option<usize> {
        let members = &self.rig.members;
        let most = shards::most_rows(tasks.iter().map(|task| task.shard));
        let fits = |idx: &usize| members[*idx].is_active() && members[*idx].capacity >= most;
        let predicted = |idx: &usize| self.partition.splitter().predicted_ms(*idx, most).unwrap_or(0.0);
        (0..members.len()).filter(fits).min_by(|a, b| predicted(a).total_cmp(&predicted(b)))
    }

    /// Abandons all runs of the round and starts it again with a new split.
    fn restart(&mut self) -> Result<()> {
        self.abandon();
        self.start(self.partition.shards(self.rig, self.job.pass, self.job.scalars.rows))
    }

    fn abandon(&self) {
        for task in &self.tasks {
            self.rig.send(task.shard.adapter_idx, Request::Abandon(task.ticket));
        }
    }
}

impl Job<'_> {
    /// The training step of this round, if it is one.
    pub fn step(&self) -> Option<u64> {
        matches!(self.pass, Pass::Train | Pass::Update).then(|| u64::from(self.scalars.step))
    }
}

/// Records how long each adapter waited for the slowest at the end of a round.
fn record_ends(rig: &mut Rig, step: Option<u64>, answers: &[Answer]) {
    let ended_ms = |adapter_idx: usize| {
        let own = answers.iter().filter(move |answer| answer.shard.adapter_idx == adapter_idx);
        own.map(|answer| answer.timing.end_ms()).reduce(f64::max)
    };
    let ends = |it: &usize| ended_ms(*it).unwrap_or(f64::NEG_INFINITY);
    let Some(slowest) = (0..rig.members.len()).max_by(|a, b| ends(a).total_cmp(&ends(b))) else { return };
    let end_ms = ends(&slowest);
    for adapter_idx in (0..rig.members.len()).filter(|idx| *idx != slowest) {
        let Some(start_ms) = ended_ms(adapter_idx).filter(|_| rig.members[adapter_idx].is_active()) else { continue };
        let (lane, ms) = (Lane::Adapter(adapter_idx), end_ms - start_ms);
        rig.timeline.record(Span { lane, what: Activity::Wait, start_ms, ms, step, task: None, rows: 0 });
        rig.timeline.hold_up(slowest, ms);
    }
}
