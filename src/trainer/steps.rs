//! Training steps, one after the other. With one adapter the next step begins before this one is reported.

use super::adapters::capacity_of;
use super::meter::{self, Meter, Reports, Tally, Whole};
use super::snapshots::SNAPSHOT_STEPS;
use super::{AdapterLog, NonFinite, StepLog, Trainer, Values};
use crate::data::{Batch, Loader};
use crate::error::Result;
use crate::scheduler::{DataWait, Finished, FinishedStep, Part, ShardReport, Step, StepReport};
use crate::size::power_of_two;
use crate::timing::per_second;

impl Trainer {
    /// The next training step of an epoch; `None` at its end.
    ///
    /// `is_free` tells whether nothing is to be done between a step of that number, counted from 1, and the next, which
    /// may then begin before this one has ended.
    pub(super) async fn next_step(
        &mut self,
        loader: &mut Loader,
        is_free: &dyn Fn(u64) -> bool,
    ) -> Result<Option<StepLog>> {
        loop {
            self.reposition(loader);
            if self.adapters.n_in_flight() == 0 && !self.begin_step(loader).await? {
                // The end of an epoch finds the newest state on the host, so validation can't lose steps.
                self.take_snapshot(0).await?;
                if self.is_at(loader) {
                    return Ok(None);
                }
                continue;
            }
            if self.adapters.n_in_flight() == 1 && self.may_run_ahead(is_free)? {
                // A batch that can't be read is an error of its own step, not of the one in flight.
                drop(self.begin_step(loader).await);
            }
            if let Some(log) = self.finish_step(loader.batches_per_epoch()).await? {
                if self.adapters.n_in_flight() == 0 {
                    self.take_snapshot(SNAPSHOT_STEPS).await?;
                }
                return Ok(Some(log));
            }
        }
    }

    /// Ends steps that are still in flight, so that weights and data position stay consistent.
    pub(super) async fn end_steps(&mut self, batches: usize) {
        while self.adapters.n_in_flight() > 0 {
            // Errors of these steps are ignored: the error that ended the run is reported.
            drop(self.finish_step(batches).await);
        }
    }

    /// Learning rate of a step of the optimizer, counted from 0.
    pub(super) fn learning_rate_of(&self, step: u64) -> f32 {
        self.progress.learning_rate_of(step, &self.compile)
    }

    /// Loss and metrics of the epoch so far.
    pub(super) fn running(&self) -> Values {
        self.progress.meter.values(&self.compile, &self.model)
    }

    /// Whether a loader's next batch is that of the next step.
    pub(super) fn is_at(&self, loader: &Loader) -> bool {
        let position = loader.position();
        (position.epoch, position.batch) == (self.progress.epoch, self.progress.batch + self.adapters.n_in_flight())
    }

    /// Repositions a loader to the batch of the next step: after a failed or rewound step its batch comes again.
    pub(super) fn reposition(&self, loader: &mut Loader) {
        if self.adapters.n_in_flight() == 0 && !self.is_at(loader) {
            loader.start_epoch(self.progress.epoch, self.progress.batch);
        }
    }

    /// Whether the step after the one in flight may begin, too.
    pub(super) fn may_run_ahead(&mut self, is_free: &dyn Fn(u64) -> bool) -> Result<bool> {
        let number = self.progress.step + 1;
        let is_snapshot_due = self.snapshot.as_ref().is_none_or(|progress| number - progress.step >= SNAPSHOT_STEPS);
        Ok(!is_snapshot_due && is_free(number) && self.adapters.is_on_device())
    }

    /// Begins a step with the next batch; false if there is none.
    async fn begin_step(&mut self, loader: &mut Loader) -> Result<bool> {
        let begin_ms = self.adapters.runtime.now_ms();
        self.divide(loader);
        let rows = loader.next_rows();
        let Some(batch) = loader.next_async().await? else { return Ok(false) };
        let data = DataWait::since(begin_ms, self.adapters.runtime.now_ms());
        if self.adapters.group.is_alone() {
            self.begin_with(batch, data)?;
            return Ok(true);
        }
        self.share.whole = self.whole_of(&batch, rows).await?;
        let part = Part { first_row: capacity_of(self.share.first_row(rows), 1)?, batch_rows: capacity_of(rows, 1)? };
        self.begin_part(batch, part, &self.share.whole.clone(), data)?;
        Ok(true)
    }

    /// Begins a step with a batch.
    pub(super) fn begin_with(&mut self, batch: Batch, data: DataWait) -> Result<()> {
        let (part, whole) = (Part::whole(capacity_of(batch.rows, 1)?), Whole::of(&self.compile, &self.model, &batch));
        self.begin_part(batch, part, &whole, data)
    }

    fn begin_part(&mut self, batch: Batch, part: Part, whole: &Whole, data: DataWait) -> Result<()> {
        let in_flight = self.adapters.n_in_flight() as u64;
        let number = self.progress.step + in_flight;
        let scaling = self.progress.scaling(in_flight);
        let step = Step {
            step: number,
            seed: seed_bits(self.compile.seed),
            learning_rate: self.learning_rate_of(scaling.map_or(number, |scaling| scaling.updates)),
            loss_scales: meter::loss_scales(&self.compile, whole),
            scaling,
        };
        self.adapters.scheduler()?.begin_part(batch, part, step, data)
    }

    /// Ends the oldest step in flight, and counts it; `None` if training was rewound.
    pub(super) async fn finish_step(&mut self, batches: usize) -> Result<Option<StepLog>> {
        let FinishedStep { batch, step, report, data, ms } = match self.adapters.scheduler()?.finish().await? {
            Finished::Step(finished) => *finished,
            Finished::Rewound => {
                self.rewind();
                return Ok(None);
            }
        };
        if report.is_void {
            // Its batch comes again.
            return Ok(None);
        }
        let whole = if self.adapters.group.is_alone() {
            Whole::of(&self.compile, &self.model, &batch)
        } else {
            self.share.learn(&report.processes);
            self.share.whole.clone()
        };
        let reports = Reports { rows: &report.reports, penalty: self.own_penalty(report.penalty) };
        let mut tally = Tally::of(&self.compile, &self.model, &reports, &batch, &whole);
        let ended = self.end_together(&mut tally).await;
        let mut aside = Meter::default();
        let meter = if report.is_applied { &mut self.progress.meter } else { &mut aside };
        let values = meter.add(&self.compile, &self.model, &tally, whole.rows);
        let refused = if report.is_applied { Ok(()) } else { self.refuse(&batch, &step, &report).await };

        if refused.is_ok() || self.adapters.n_in_flight() > 0 {
            // Weights already hold the step after a refused one, so it counts.
            self.progress.follow(report.is_applied);
            self.progress.step += 1;
            self.progress.batch += 1;
        }
        ended?;
        refused?;
        if step.scaling.is_some() && !report.is_applied {
            self.begin_void_again().await?;
        }
        if self.adapters.n_in_flight() == 0 {
            self.adapters.follow_speeds().await?;
        }
        Ok(Some(StepLog {
            step: self.progress.step,
            epoch: self.progress.epoch + 1,
            batch: self.progress.batch,
            batches,
            rows: whole.rows,
            values,
            running: self.running(),
            learning_rate: step.learning_rate,
            gradient_norm: report.gradient_norm,
            is_applied: report.is_applied,
            loss_scale: step.scaling.map(|scaling| power_of_two(scaling.exponent)),
            ms,
            data_ms: data.exposed_ms(),
            reduce_ms: report.reduce_ms,
            update_ms: report.update_ms,
            processes_ms: report.processes_ms,
            samples_per_s: per_second(whole.rows as u64, ms),
            adapters: self.adapter_logs(&report.shards),
            processes: self.process_logs(&report.processes),
        }))
    }

    /// Penalties of the parameters, which count once: in the first process.
    pub(super) fn own_penalty(&self, penalty: f64) -> f64 {
        if self.adapters.group.is_first() { penalty } else { 0.0 }
    }

    /// Treats a step that is not applied. Under mixed precision that is usual while the loss scale can fall.
    async fn refuse(&mut self, batch: &Batch, step: &Step, report: &StepReport) -> Result<()> {
        match self.progress.loss_scale {
            Some(scale) if !scale.is_least() => {
                log::debug!(
                    "step {} is not applied: gradients are not finite at a loss scale of {}",
                    step.step + 1,
                    scale.scale()
                );
                Ok(())
            }
            _ => self.refuse_non_finite(batch, step, report).await,
        }
    }

    /// Begins the step again that is void since the one before it was not applied: with a smaller loss scale.
    async fn begin_void_again(&mut self) -> Result<()> {
        match self.adapters.scheduler()?.take_void().await? {
            Some((batch, data)) => self.begin_with(batch, data),
            None => Ok(()),
        }
    }

    async fn refuse_non_finite(&mut self, batch: &Batch, step: &Step, report: &StepReport) -> Result<()> {
        self.saving.doubt();
        let error = self.adapters.scheduler()?.non_finite(batch, step, report).await?;
        match self.compile.non_finite {
            NonFinite::Stop => Err(error),
            NonFinite::Skip => {
                log::warn!("{error}");
                Ok(())
            }
        }
    }

    fn adapter_logs(&self, shards: &[ShardReport]) -> Vec<AdapterLog> {
        let names = self.adapters.names();
        let end_ms = shards.iter().map(|shard| shard.timing.end_ms()).fold(f64::NEG_INFINITY, f64::max);
        let logs = shards.iter().map(|shard| AdapterLog {
            adapter: shard.adapter_idx,
            name: names.get(shard.adapter_idx).cloned().unwrap_or_default(),
            rows: shard.rows,
            ms: shard.timing.busy_ms(),
            upload_ms: shard.timing.upload_ms,
            compute_ms: shard.timing.compute_ms,
            readback_ms: shard.timing.readback_ms,
            wait_ms: shard.timing.wait_ms,
            end_wait_ms: end_ms - shard.timing.end_ms(),
        });
        logs.collect()
    }
}

/// The key of dropout's random numbers: the seed folded to 32 bits.
#[allow(clippy::cast_possible_truncation, reason = "folding keeps both halves")]
fn seed_bits(seed: u64) -> u32 {
    (seed ^ (seed >> 32)) as u32
}
