//! One round: a pass over all shards of a batch, until every answer is in. A lost shard is run again on a survivor.

use litemap::LiteMap;
use std::sync::Arc;

use crate::adapters::{Combining, Event, Fault, Message, Request, Run, Ticket, Timing};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::kernels::rounding::single;
use crate::plan::{Combine, Command, Exchange, Pass, Scalars, When};

use super::shards::{self, Shard, count};
use super::timeline::{Lane, RunOf, Span, What};
use super::{CpuFallback, Place, Scheduler, statistics};

/// All that one shard gave.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub shard: Shard,
    /// Values to be combined before the update, by command.
    pub exchanges: LiteMap<usize, Vec<f32>>,
    pub reports: Vec<Vec<f32>>,
    pub outputs: Vec<Vec<f32>>,
    pub timing: Timing,
}

/// A shard on its way.
pub(super) struct Task {
    shard: Shard,
    ticket: Ticket,
    /// Values to be combined, by command, both before the next command and before the update.
    exchanges: LiteMap<usize, Vec<f32>>,
    /// When its last value came.
    came_ms: f64,
    /// Its waits for combined values, from when its own came: start and end.
    waits: Vec<(f64, f64)>,
    pub(super) answer: Option<Answer>,
}

impl Task {
    pub(super) fn new(shard: Shard, ticket: Ticket) -> Self {
        Self { shard, ticket, exchanges: LiteMap::new(), came_ms: 0.0, waits: Vec::new(), answer: None }
    }
}

/// What can be said of a round as a whole.
pub(super) struct Job<'a> {
    pass: Pass,
    batch: &'a Batch,
    scalars: &'a Scalars,
    combining: Combining,
    /// Do shards wait for each other within the pass?
    is_coupled: bool,
}

/// Shortest time after which an adapter counts as hung, and what a first run may take.
const SILENCE_MS: f64 = 10_000.0;
const FIRST_RUN_MS: f64 = 120_000.0;
/// Times the predicted duration after which an adapter counts as hung.
const SILENCE_FACTOR: f64 = 20.0;

impl Scheduler {
    /// Runs a pass on every shard. The answers come in the order of the rows.
    pub(super) async fn round(
        &mut self,
        pass: Pass,
        batch: &Batch,
        scalars: &Scalars,
        shards: Vec<Shard>,
        combining: Combining,
    ) -> Result<Vec<Answer>> {
        let is_coupled = combining == Combining::Host && self.plan.commands(pass).iter().any(is_awaited);
        let job = Job { pass, batch, scalars, combining, is_coupled };
        let mut tasks = self.start(&job, shards)?;
        self.wait_for_answers(&job, &mut tasks).await?;
        let answers: Vec<Answer> = tasks.into_iter().filter_map(|task| task.answer).collect();
        self.record_ends(job.step(), &answers);
        Ok(answers)
    }

    /// Takes in what adapters say until every task has its answer, or none is left.
    pub(super) async fn wait_for_answers(&mut self, job: &Job<'_>, tasks: &mut Vec<Task>) -> Result<()> {
        while tasks.iter().any(|task| task.answer.is_none()) {
            match self.event_within(self.patience_ms(job, tasks)).await {
                Some(message) => self.handle(job, tasks, message).await?,
                None => self.declare_silent(job, tasks).await?,
            }
        }
        Ok(())
    }

    /// Takes in how long each adapter waited for the slowest at the end of a round.
    fn record_ends(&mut self, step: Option<u64>, answers: &[Answer]) {
        let ended_ms = |adapter_idx: usize| {
            let own = answers.iter().filter(move |answer| answer.shard.adapter_idx == adapter_idx);
            own.map(|answer| answer.timing.end_ms()).reduce(f64::max)
        };
        let ends = |it: &usize| ended_ms(*it).unwrap_or(f64::NEG_INFINITY);
        let Some(slowest) = (0..self.members.len()).max_by(|a, b| ends(a).total_cmp(&ends(b))) else { return };
        let end_ms = ends(&slowest);
        for adapter_idx in (0..self.members.len()).filter(|idx| *idx != slowest) {
            let Some(start_ms) = ended_ms(adapter_idx).filter(|_| self.members[adapter_idx].is_alive()) else {
                continue;
            };
            let (lane, ms) = (Lane::Adapter(adapter_idx), end_ms - start_ms);
            self.timeline.record(Span { lane, what: What::Wait, start_ms, ms, step, rows: 0 });
            self.timeline.hold_up(slowest, ms);
        }
    }

    fn start(&mut self, job: &Job<'_>, shards: Vec<Shard>) -> Result<Vec<Task>> {
        if job.is_coupled {
            self.check_coupled(&shards)?;
        }
        let mut tasks = Vec::with_capacity(shards.len());
        for (slot, shard) in (0..).zip(shards) {
            let ticket = self.dispatch(job, shard, slot);
            tasks.push(Task::new(shard, ticket));
        }
        Ok(tasks)
    }

    /// Shards that wait for each other must all run at once: none may stand behind another on one adapter.
    fn check_coupled(&self, shards: &[Shard]) -> Result<()> {
        let mut busy = vec![false; self.members.len()];
        match shards.iter().find(|shard| std::mem::replace(&mut busy[shard.adapter_idx], true)) {
            None => Ok(()),
            Some(shard) => Err(Error::setting(
                "batch size",
                format!(
                    "needs to fit the adapters at once, since batch-norm over the whole batch lets shards wait for each \
                     other, but {} takes only {} rows",
                    self.who(shard.adapter_idx),
                    self.members[shard.adapter_idx].capacity
                ),
                "use a smaller batch, more adapters, `micro_batches = 1`, or statistics of each adapter's rows \
                 (`batch_statistics = \"shard\"`, and layers without `synchronized`)",
            )),
        }
    }

    pub(super) fn dispatch(&mut self, job: &Job<'_>, shard: Shard, slot: u32) -> Ticket {
        self.attempt = self.attempt.wrapping_add(1);
        let ticket = Ticket { step: u64::from(job.scalars.step), attempt: self.attempt, slot };
        let scalars = Scalars { rows: count(shard.rows), first_row: count(shard.first), ..job.scalars.clone() };
        let rows = job.batch.shard(shard.first..shard.first + shard.rows);
        let feeds = shards::feeds(&self.plan, job.pass, &rows);
        let run = Run { ticket, pass: job.pass, scalars, feeds, combining: job.combining };
        if self.members[shard.adapter_idx].is_stale {
            self.hand_out_state(shard.adapter_idx);
        }
        self.members[shard.adapter_idx].heard_ms = self.runtime.now_ms();
        self.send(shard.adapter_idx, Request::Run(run));
        ticket
    }

    /// How long to wait for the next event before some adapter counts as hung.
    fn patience_ms(&self, job: &Job<'_>, tasks: &[Task]) -> f64 {
        let now_ms = self.runtime.now_ms();
        let left_ms = self.limits(job, tasks).into_iter().map(|(_, until_ms)| until_ms - now_ms);
        left_ms.fold(FIRST_RUN_MS, f64::min).max(1.0)
    }

    /// The adapters whose answers are open, and until when each may be silent.
    fn limits(&self, job: &Job<'_>, tasks: &[Task]) -> Vec<(usize, f64)> {
        let open = tasks.iter().filter(|task| task.answer.is_none()).map(|task| task.shard);
        let mut limits: Vec<(usize, f64)> = open.map(|shard| (shard.adapter_idx, self.limit_ms(shard))).collect();
        if job.is_coupled {
            // Who waits for the slowest says nothing meanwhile.
            let longest_ms = limits.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
            limits.iter_mut().for_each(|(_, ms)| *ms = longest_ms);
        }
        limits.into_iter().map(|(idx, ms)| (idx, self.members[idx].heard_ms + ms)).collect()
    }

    fn limit_ms(&self, shard: Shard) -> f64 {
        match self.splitter.predicted_ms(shard.adapter_idx, count(shard.rows)) {
            Some(predicted_ms) => (SILENCE_FACTOR * predicted_ms).max(SILENCE_MS),
            None => FIRST_RUN_MS,
        }
    }

    async fn declare_silent(&mut self, job: &Job<'_>, tasks: &mut Vec<Task>) -> Result<()> {
        let now_ms = self.runtime.now_ms();
        let is_overdue = |(idx, until_ms): &(usize, f64)| *until_ms <= now_ms && self.members[*idx].is_alive();
        let overdue = self.limits(job, tasks).into_iter().filter(is_overdue);
        // Only the one that is silent longest: those who waited for it get work again.
        if let Some((adapter_idx, _)) = overdue.min_by(|a, b| a.1.total_cmp(&b.1)) {
            self.failed(job, tasks, adapter_idx, Fault::Lost("it is silent".into())).await?;
        }
        Ok(())
    }

    async fn handle(&mut self, job: &Job<'_>, tasks: &mut Vec<Task>, message: Message) -> Result<()> {
        // Late words of a lost adapter are of no use.
        let Some(adapter_idx) = self.played_by(message.adapter_idx) else { return Ok(()) };
        let event = message.event;
        if !self.members[adapter_idx].is_alive() {
            self.hear_returning(adapter_idx, &event);
            return Ok(());
        }
        let now_ms = self.runtime.now_ms();
        self.members[adapter_idx].heard_ms = now_ms;
        match event {
            Event::Exchange { ticket, command, data } => {
                if let Some(task) = tasks.iter_mut().find(|task| task.ticket == ticket) {
                    task.exchanges.insert(command, data);
                    task.came_ms = now_ms;
                    self.combine_if_all_in(job, tasks, command);
                }
            }
            Event::Done { ticket, reports, outputs, timing } => {
                if let Some(task) = tasks.iter_mut().find(|task| task.ticket == ticket) {
                    let (step, rows) = (job.step(), count(task.shard.rows));
                    let run = RunOf { adapter_idx, pass: job.pass, step, rows };
                    self.timeline.record_run(&run, &timing, &task.waits);
                    let exchanges = std::mem::take(&mut task.exchanges);
                    task.answer = Some(Answer { shard: task.shard, exchanges, reports, outputs, timing });
                }
            }
            Event::Failed { fault, .. } => self.failed(job, tasks, adapter_idx, fault).await?,
            Event::Loaded { .. } | Event::Contents { .. } => {}
        }
        Ok(())
    }

    /// When every shard has given its value for an awaited exchange, combines them and answers all.
    fn combine_if_all_in(&mut self, job: &Job<'_>, tasks: &mut [Task], command: usize) {
        let Some(Command::Exchange(exchange)) = self.plan.commands(job.pass).get(command) else { return };
        if exchange.when != When::NextCommand || !tasks.iter().all(|task| task.exchanges.contains_key(&command)) {
            return;
        }
        let parts = tasks.iter().map(|task| (count(task.shard.rows), task.exchanges[&command].as_slice()));
        let combined: Arc<[f32]> = combine(exchange, parts).into();
        let now_ms = self.runtime.now_ms();
        let last = tasks.iter().max_by(|a, b| a.came_ms.total_cmp(&b.came_ms)).map(|task| task.shard.adapter_idx);
        for task in tasks {
            let data = combined.clone();
            self.send(task.shard.adapter_idx, Request::Combined { ticket: task.ticket, command, data });
            task.waits.push((task.came_ms, now_ms));
            if let Some(last) = last {
                self.timeline.hold_up(last, now_ms - task.came_ms);
            }
        }
    }

    async fn failed(&mut self, job: &Job<'_>, tasks: &mut Vec<Task>, adapter_idx: usize, fault: Fault) -> Result<()> {
        match fault {
            Fault::Unsupported(_) => {
                // Whoever uses the adapter next finds it free.
                tasks.iter().for_each(|task| self.send(task.shard.adapter_idx, Request::Abandon(task.ticket)));
                Err(self.refused(adapter_idx, &fault))
            }
            Fault::OutOfMemory(text) if job.pass != Pass::Update => {
                self.ran_out_of_memory(job, tasks, adapter_idx, &text).await
            }
            // An update that failed may have changed a part of the state, which is as bad as a loss.
            Fault::Lost(text) | Fault::OutOfMemory(text) => {
                self.lose_member(adapter_idx, &text);
                self.ensure_survivor().await?;
                if job.is_coupled { self.restart(job, tasks) } else { self.run_again(job, tasks, adapter_idx) }
            }
        }
    }

    /// Lets an adapter load the plan again for half the rows. One that fails at that, or had a single row, counts as lost.
    async fn ran_out_of_memory(
        &mut self,
        job: &Job<'_>,
        tasks: &mut Vec<Task>,
        adapter_idx: usize,
        text: &str,
    ) -> Result<()> {
        if job.combining == Combining::Device {
            // The update behind this pass, and steps behind it, were dropped.
            tasks.iter().for_each(|task| self.send(adapter_idx, Request::Abandon(task.ticket)));
        }
        // What was trained may stand on the device alone, and loading clears it.
        self.read_state().await?;
        self.place = Place::Host;
        if self.members[adapter_idx].capacity > 1 {
            let capacity = self.members[adapter_idx].capacity.div_ceil(2);
            log::warn!("{} ran out of memory ({text}); it now takes {capacity} rows at once", self.who(adapter_idx));
            self.members[adapter_idx].capacity = capacity;
            self.send(adapter_idx, Request::Load { plan: self.plan.clone(), capacity });
            self.finish_load_or_lose(adapter_idx).await?;
        } else {
            self.lose_member(adapter_idx, &format!("{text} for a single row"));
        }
        self.ensure_survivor().await?;
        if job.combining == Combining::Device {
            // The step begins anew, in pieces whose gradients are added on the host.
            tasks.clear();
            return Ok(());
        }
        self.restart(job, tasks)
    }

    /// Has the CPU adapter go on if no other is left, if that is allowed.
    ///
    /// # Errors
    /// If not, or if the only adapter took with it what it had trained.
    pub(super) async fn ensure_survivor(&mut self) -> Result<()> {
        if self.has_survivor() {
            return Ok(());
        }
        if self.is_behind {
            return Err(self.refused(0, &Fault::Lost("with what it had trained".into())));
        }
        self.place = Place::Host;
        if self.cpu_fallback == CpuFallback::Refused {
            return Err(Error::adapter(
                "all adapters",
                "were lost: none is left to go on with",
                "the last checkpoint resumes; allow the CPU adapter to take over, or name it beside the others",
            ));
        }
        log::warn!("every adapter was lost: the CPU adapter goes on");
        let capacity = self.members.iter().map(|member| member.capacity).max().unwrap_or(1);
        self.add_member(&crate::adapters::cpu::info(), capacity)?;
        self.splitter.add();
        let adapter_idx = self.members.len() - 1;
        self.members[adapter_idx].has_seat = false;
        self.send(adapter_idx, Request::Load { plan: self.plan.clone(), capacity });
        self.finish_load(adapter_idx).await
    }

    /// Gives the unfinished shards of a lost adapter to survivors, each in its slot.
    fn run_again(&mut self, job: &Job<'_>, tasks: &mut Vec<Task>, lost: usize) -> Result<()> {
        let open: Vec<usize> = (0..tasks.len()).filter(|idx| tasks[*idx].answer.is_none()).collect();
        for idx in open {
            let mut shard = tasks[idx].shard;
            if shard.adapter_idx != lost {
                continue;
            }
            let fits = |adapter_idx: &usize| {
                self.members[*adapter_idx].is_alive() && self.members[*adapter_idx].capacity as usize >= shard.rows
            };
            let predicted =
                |adapter_idx: &usize| self.splitter.predicted_ms(*adapter_idx, count(shard.rows)).unwrap_or(0.0);
            let best = (0..self.members.len()).filter(fits).min_by(|a, b| predicted(a).total_cmp(&predicted(b)));
            let Some(best) = best else {
                return self.restart(job, tasks);
            };
            shard.adapter_idx = best;
            let ticket = self.dispatch(job, shard, tasks[idx].ticket.slot);
            tasks[idx] = Task::new(shard, ticket);
        }
        Ok(())
    }

    /// Gives up all runs of a round and starts it again with a new split.
    fn restart(&mut self, job: &Job<'_>, tasks: &mut Vec<Task>) -> Result<()> {
        for task in tasks.iter().filter(|task| task.answer.is_none()) {
            self.send(task.shard.adapter_idx, Request::Abandon(task.ticket));
        }
        let shards = self.shards(job.scalars.batch_rows);
        *tasks = self.start(job, shards)?;
        Ok(())
    }
}

impl<'a> Job<'a> {
    /// A pass of the only adapter.
    pub(super) fn alone(pass: Pass, batch: &'a Batch, scalars: &'a Scalars) -> Self {
        Self { pass, batch, scalars, combining: Combining::Device, is_coupled: false }
    }

    /// The training step, if this is of one.
    fn step(&self) -> Option<u64> {
        matches!(self.pass, Pass::Train | Pass::Update).then(|| u64::from(self.scalars.step))
    }
}

/// Does the next command wait for what all shards have?
pub(super) fn is_awaited(command: &Command) -> bool {
    matches!(command, Command::Exchange(exchange) if exchange.when == When::NextCommand)
}

/// The value of all shards, in the order of their slots.
pub(super) fn combine<'a>(exchange: &Exchange, parts: impl Iterator<Item = (u32, &'a [f32])>) -> Vec<f32> {
    match exchange.combine {
        Combine::Sum => {
            let mut sum: Vec<f64> = Vec::new();
            for (_, part) in parts {
                sum.resize(part.len(), 0.0);
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += f64::from(*part));
            }
            sum.into_iter().map(single).collect()
        }
        Combine::Moments { count_per_row } => {
            let parts = parts.map(|(rows, part)| (u64::from(rows) * u64::from(count_per_row), part));
            statistics::merge(parts).1
        }
    }
}
