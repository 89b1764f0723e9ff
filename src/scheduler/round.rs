//! One round: a pass over all shards of a batch, until every answer is in. A lost shard is re-run on another adapter.

use std::sync::Arc;

use litemap::LiteMap;

use super::combine::{combine, combine_processes};
use super::open_runs::{Among, OpenRuns, Order, Outcome};
use super::partition::Partition;
use super::recovery::ensure_active;
use super::rig::Rig;
use super::shards::{self, Answer, Shard};
use super::timeline::{Activity, Lane, Span};
use crate::error::{Error, Result};
use crate::plan::{Command, Exchange};

/// A pass over all shards of a batch.
pub(super) struct Round<'a> {
    runs: OpenRuns<'a>,
    partition: &'a mut Partition,
    /// The shards, in the order of the rows, and the answer of each.
    shards: Vec<Shard>,
    answers: Vec<Option<Answer>>,
    /// Values that were combined over all processes, by command: a round that starts again can't ask for them twice.
    combined: LiteMap<usize, Arc<[f32]>>,
}

impl<'a> Round<'a> {
    pub fn new(runs: OpenRuns<'a>, partition: &'a mut Partition) -> Self {
        Self { runs, partition, shards: Vec::new(), answers: Vec::new(), combined: LiteMap::new() }
    }

    /// Runs the pass on every shard. The answers come in the order of the rows.
    ///
    /// # Errors
    /// If no adapter is left to run it, or one can't.
    pub async fn run(mut self, shards: Vec<Shard>) -> Result<Vec<Answer>> {
        self.start(shards)?;
        if self.shards.is_empty() {
            self.join_without_rows().await?;
        }
        while self.answers.iter().any(Option::is_none) {
            let splitter = self.partition.splitter();
            match self.runs.next(&|adapter_idx, rows| splitter.predicted_ms(adapter_idx, rows)).await? {
                Outcome::Done { slot, answer } => self.answers[slot] = Some(answer),
                Outcome::Awaited { command } => self.combine(command).await?,
                Outcome::Lost { adapter_idx } => self.continue_without(Some(adapter_idx)).await?,
                Outcome::Reduced => self.continue_without(None).await?,
                Outcome::HandedOver { .. } => {}
            }
        }
        let answers: Vec<Answer> = self.answers.into_iter().flatten().collect();
        record_ends(self.runs.rig, self.runs.job.step(), &answers);
        Ok(answers)
    }

    fn start(&mut self, shards: Vec<Shard>) -> Result<()> {
        if self.runs.is_coupled {
            self.check_coupled(&shards)?;
        }
        self.answers = vec![None; shards.len()];
        self.shards = shards;
        (0..self.shards.len()).for_each(|slot| self.send(slot));
        Ok(())
    }

    /// Shards that wait for each other must all run at once: no two may be queued on one adapter.
    fn check_coupled(&self, shards: &[Shard]) -> Result<()> {
        let mut busy = vec![false; self.runs.rig.members.len()];
        match shards.iter().find(|shard| std::mem::replace(&mut busy[shard.adapter_idx], true)) {
            None => Ok(()),
            Some(shard) => Err(Error::setting(
                "batch size",
                format!(
                    "needs to fit the adapters at once, since batch-norm over the whole batch lets shards wait for each \
                     other, but {} takes only {} rows",
                    self.runs.rig.name(shard.adapter_idx),
                    self.runs.rig.members[shard.adapter_idx].capacity
                ),
                "use a smaller batch, more adapters, `micro_batches = 1`, or statistics of each adapter's rows \
                 (`batch_statistics = \"shard\"`, and layers without `synchronized`)",
            )),
        }
    }

    fn send(&mut self, slot: usize) {
        self.answers[slot] = None;
        let order = Order { slot, pass: self.runs.job.pass, shard: self.shards[slot], piece: None };
        self.runs.send(order, Vec::new());
    }

    /// Combines the values of an awaited exchange, and answers all shards.
    async fn combine(&mut self, command: usize) -> Result<()> {
        let plan = self.runs.rig.plan().clone();
        let Some(Command::Exchange(exchange)) = plan.commands(self.runs.job.pass).get(command) else { return Ok(()) };
        let own = combine(exchange, self.runs.awaited(command));
        let combined = self.over_processes(command, exchange, own).await?;
        self.runs.send_combined(command, &combined);
        Ok(())
    }

    /// Takes part in the awaited exchanges of the other processes.
    async fn join_without_rows(&mut self) -> Result<()> {
        if !self.runs.is_coupled || self.runs.job.among == Among::Adapters {
            return Ok(());
        }
        let plan = self.runs.rig.plan().clone();
        for (command_idx, command) in plan.commands(self.runs.job.pass).iter().enumerate() {
            if let Command::Exchange(exchange) = command
                && exchange.is_awaited()
            {
                self.over_processes(command_idx, exchange, Vec::new()).await?;
            }
        }
        Ok(())
    }

    /// This process' combined values of a command, combined with those of the other processes.
    async fn over_processes(&mut self, command: usize, exchange: &Exchange, own: Vec<f32>) -> Result<Arc<[f32]>> {
        let joined = self.runs.rig.processes.joined().filter(|_| self.runs.job.among == Among::Processes);
        let Some(joined) = joined else { return Ok(own.into()) };
        if let Some(combined) = self.combined.get(&command) {
            return Ok(combined.clone());
        }
        let rows = self.shards.iter().map(|shard| shard.rows).sum::<u32>();
        let combined: Arc<[f32]> = combine_processes(exchange, joined, rows, &own).await?.into();
        self.combined.insert(command, combined.clone());
        Ok(combined)
    }

    /// Continues after a failure: re-runs the shards of a lost adapter, or all shards if they wait for each other.
    async fn continue_without(&mut self, lost: Option<usize>) -> Result<()> {
        ensure_active(self.runs.rig, self.runs.state, self.partition).await?;
        match lost.filter(|_| !self.runs.is_coupled) {
            Some(lost) => self.rerun(lost),
            None => self.restart(),
        }
    }

    /// Gives the unfinished shards of a lost adapter to others, each in its slot. Shards whose gradients were added there
    /// all run again, those with an answer, too, unless their sum was sent: it is added anew, behind the other adapter's own.
    fn rerun(&mut self, lost: usize) -> Result<()> {
        for group in shards::groups(self.shards.iter().copied()) {
            let is_done = self.answers[group.clone()].iter().all(Option::is_some);
            if is_done || self.shards[group.clone()].iter().all(|shard| shard.adapter_idx != lost) {
                continue;
            }
            let Some(replacement) = self.replacement_for(&self.shards[group.clone()]) else { return self.restart() };
            for slot in group {
                self.shards[slot].adapter_idx = replacement;
                self.send(slot);
            }
        }
        Ok(())
    }

    /// The active adapter with the least predicted time for some shards; `None` if one fits nowhere.
    fn replacement_for(&self, shards: &[Shard]) -> Option<usize> {
        let members = &self.runs.rig.members;
        let most = shards::most_rows(shards.iter().copied());
        let fits = |idx: &usize| members[*idx].is_active() && members[*idx].capacity >= most;
        let predicted = |idx: &usize| self.partition.splitter().predicted_ms(*idx, most).unwrap_or(0.0);
        (0..members.len()).filter(fits).min_by(|a, b| predicted(a).total_cmp(&predicted(b)))
    }

    /// Abandons all runs of the round and starts it again with a new split.
    fn restart(&mut self) -> Result<()> {
        self.runs.abandon();
        let job = self.runs.job;
        self.start(self.partition.shards(self.runs.rig, job.pass, job.scalars.rows))
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
