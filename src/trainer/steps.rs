//! Training steps, one after the other. On an adapter that is alone the next begins before this one is reported.

use super::meter::{self, Meter};
use super::{AdapterLog, NonFinite, StepLog, Trainer};
use crate::data::{Batch, Loader};
use crate::error::{Error, Result};
use crate::scheduler::{ShardReport, Step, StepReport};

/// Steps after which the state of a single adapter is copied to the host: so many at most are trained again if it is lost.
const SNAPSHOT_STEPS: u64 = 100;
/// A wait for an adapter that is longer than this tells that it was busy all the time before.
const BUSY_MS: f64 = 0.2;

/// A step that has begun.
pub(super) struct Begun {
    batch: Batch,
    step: Step,
    begin_ms: f64,
    data_ms: f64,
}

impl Trainer {
    /// The next training step of an epoch; `None` at its end.
    ///
    /// `is_free` says whether nothing is to be done between a step of that number, counted from 1, and the next, which may
    /// then begin before this one has ended.
    pub(super) async fn next_step(
        &mut self,
        loader: &mut Loader,
        is_free: &dyn Fn(u64) -> bool,
    ) -> Result<Option<StepLog>> {
        loop {
            if std::mem::take(&mut self.is_loader_off) {
                self.begun.clear();
                loader.start_epoch(self.progress.epoch, self.progress.batch);
            }
            if self.begun.is_empty() && !self.begin_step(loader).await? {
                // What comes at the end of an epoch finds all that was trained on the host, and can lose nothing.
                self.take_snapshot(0).await?;
                if self.is_loader_off {
                    continue;
                }
                return Ok(None);
            }
            if self.begun.len() == 1 && self.may_run_ahead(is_free)? {
                // A batch that can't be read is an error of its own step, not of the one under way.
                drop(self.begin_step(loader).await);
            }
            match self.finish_step(loader.batches_per_epoch()).await {
                Ok(log) => {
                    if self.begun.is_empty() {
                        self.take_snapshot(SNAPSHOT_STEPS).await?;
                    }
                    return Ok(Some(log));
                }
                Err(error) => {
                    // The batch of a step that failed comes again.
                    self.is_loader_off = self.begun.is_empty();
                    self.go_back(error).await?;
                }
            }
        }
    }

    /// Ends the steps that have begun when nobody asks for them any more: weights and position stay one.
    pub(super) async fn end_steps(&mut self, batches: usize) {
        while !self.begun.is_empty() {
            // What fails now counts for nothing, and the error that ended the run is the one that is told.
            drop(self.finish_step(batches).await);
        }
    }

    /// May the step after the one that has begun begin, too?
    fn may_run_ahead(&mut self, is_free: &dyn Fn(u64) -> bool) -> Result<bool> {
        let number = self.progress.step + 1;
        let is_snapshot_due = self.snapshot.as_ref().is_none_or(|progress| number - progress.step >= SNAPSHOT_STEPS);
        Ok(!is_snapshot_due && is_free(number) && self.opened()?.is_on_device())
    }

    /// Begins a step with the next batch; false if there is none.
    async fn begin_step(&mut self, loader: &mut Loader) -> Result<bool> {
        let begin_ms = self.runtime.now_ms();
        let Some(batch) = loader.next().await? else { return Ok(false) };
        let data_ms = self.runtime.now_ms() - begin_ms;
        if self.begun.is_empty() {
            self.record_data(begin_ms, data_ms, false);
        }
        let number = self.progress.step + self.begun.len() as u64;
        let step = Step {
            step: number,
            seed: seed_bits(self.compile.seed),
            learning_rate: self.learning_rate_of(number),
            loss_scales: meter::loss_scales(&self.compile, &self.model.outputs(), &batch),
        };
        self.opened()?.begin(&batch, &step);
        self.begun.push_back(Begun { batch, step, begin_ms, data_ms });
        Ok(true)
    }

    /// Ends the oldest step that has begun, and counts it.
    async fn finish_step(&mut self, batches: usize) -> Result<StepLog> {
        let asked_ms = self.runtime.now_ms();
        let Some(begun) = self.begun.pop_front() else {
            return Err(Error::setting("a training step", "needs to have begun, but none has", "begin one first"));
        };
        let report = self.opened()?.finish().await?;
        let was_busy = self.runtime.now_ms() - asked_ms > BUSY_MS;
        if let Some(next) = self.begun.front_mut() {
            // Nobody waited for that batch but the host.
            let (start_ms, ms) = (next.begin_ms, next.data_ms);
            next.data_ms = if was_busy { 0.0 } else { ms };
            self.record_data(start_ms, ms, was_busy);
        }
        let Begun { batch, step, begin_ms, data_ms } = begun;
        let outputs = self.model.outputs();
        let mut aside = Meter::default();
        let meter = if report.is_applied { &mut self.progress.meter } else { &mut aside };
        let values = meter.add(&self.compile, &outputs, &report.reports, &batch);
        let refused = if report.is_applied { Ok(()) } else { self.refuse_non_finite(&batch, &step, &report).await };
        if refused.is_ok() || !self.begun.is_empty() {
            // Weights already hold the step behind a refused one, so that it counts.
            self.progress.step += 1;
            self.progress.batch += 1;
        }
        refused?;
        let now_ms = self.runtime.now_ms();
        // It may have begun while the step before it was under way.
        let ms = now_ms - begin_ms.max(self.stepped_ms);
        self.stepped_ms = now_ms;
        Ok(StepLog {
            step: self.progress.step,
            epoch: self.progress.epoch + 1,
            batch: self.progress.batch,
            batches,
            rows: batch.rows,
            values,
            running: self.running(),
            learning_rate: step.learning_rate,
            gradient_norm: report.gradient_norm,
            is_applied: report.is_applied,
            ms,
            data_ms,
            reduce_ms: report.reduce_ms,
            update_ms: report.update_ms,
            samples_per_s: super::fit::per_second(batch.rows, ms),
            adapters: self.adapter_logs(&report.shards),
        })
    }

    async fn refuse_non_finite(&mut self, batch: &Batch, step: &Step, report: &StepReport) -> Result<()> {
        let error = self.opened()?.non_finite(batch, step, report).await?;
        match self.compile.non_finite {
            NonFinite::Stop => Err(error),
            NonFinite::Skip => {
                log::warn!("{error}");
                Ok(())
            }
        }
    }

    fn adapter_logs(&self, shards: &[ShardReport]) -> Vec<AdapterLog> {
        let names: Vec<String> = match &self.scheduler {
            Some(opened) => opened.scheduler.adapters().map(|info| info.name.clone()).collect(),
            None => Vec::new(),
        };
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
