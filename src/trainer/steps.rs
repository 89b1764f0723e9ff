//! Training steps, one after the other. With one adapter the next step begins before this one is reported.

use super::adapters::capacity_of;
use super::meter::{self, Meter, Reports, Tally, Whole};
use super::share::{self, Share};
use super::snapshots::SNAPSHOT_STEPS;
use super::{AdapterLog, AsyncTrainer, Compile, LoneStep, NonFinite, Progress, StepLog, Trainer};
use crate::data::{Batch, Loader};
use crate::error::Result;
use crate::model::Model;
use crate::processes::Group;
use crate::runtime::Runtime;
use crate::scheduler::{DataWait, Finished, FinishedStep, NextStep, Part, ShardReport, Step, StepReport, StepSource};
use crate::size::power_of_two;
use crate::timing::per_second;

/// Numbers of the steps to come.
pub(super) struct StepNumbers<'a> {
    pub(super) model: &'a Model,
    pub(super) compile: &'a Compile,
    pub(super) progress: &'a Progress,
    /// Position of the host's copy of the state.
    pub(super) copied: Option<&'a Progress>,
}

impl StepNumbers<'_> {
    /// Number of the step behind `ahead` others in flight, counted from 0.
    pub(super) fn of(&self, ahead: usize) -> u64 {
        self.progress.step + ahead as u64
    }

    /// Whether the step of a number may begin before those before it have ended: the host needs no copy of the state between them.
    pub(super) fn may_run_ahead(&self, number: u64) -> bool {
        self.copied.is_some_and(|copied| number - copied.step < SNAPSHOT_STEPS)
    }

    /// The step behind `ahead` others in flight; `rate` is its learning rate before schedule and batch size change it.
    pub(super) fn step(&self, ahead: usize, rate: f32, whole: &Whole) -> Step {
        let (number, scaling) = (self.of(ahead), self.progress.scaling(ahead as u64));
        let updates = scaling.map_or(number, |scaling| scaling.updates);
        Step {
            step: number,
            seed: seed_bits(self.compile.seed),
            learning_rate: self.progress.scheduled(rate, updates, self.compile),
            loss_scales: meter::loss_scales(self.compile, whole),
            scaling,
        }
    }
}

/// The steps of an epoch on the batches of a loader.
struct EpochSteps<'a> {
    numbers: StepNumbers<'a>,
    loader: &'a mut Loader,
    share: &'a mut Share,
    group: &'a Group,
    runtime: &'a dyn Runtime,
    /// Whether nothing is to be done between a step of that number, counted from 1, and the next.
    is_free: &'a dyn Fn(u64) -> bool,
}

impl StepSource for EpochSteps<'_> {
    async fn next(&mut self, ahead: usize) -> Result<Option<NextStep>> {
        let StepNumbers { model, compile, progress, .. } = self.numbers;
        let number = self.numbers.of(ahead);
        if ahead > 0 && !(self.numbers.may_run_ahead(number) && (self.is_free)(number)) {
            return Ok(None);
        }
        // After a failed or rewound step its batch comes again.
        self.loader.seek(progress.epoch, progress.batch + ahead);
        let begin_ms = self.runtime.now_ms();
        self.share.divide(self.loader);
        let rows = self.loader.next_rows();
        let Some(batch) = self.loader.next_async().await? else { return Ok(None) };
        let data = DataWait::since(begin_ms, self.runtime.now_ms());
        let rate = progress.learning_rate;
        if self.group.is_alone() {
            let step = self.numbers.step(ahead, rate, &Whole::of(compile, model, &batch));
            return NextStep::whole(batch, step, data).map(Some);
        }
        self.share.whole = share::whole_of(self.group, (compile, model), &batch, rows).await?;
        let step = self.numbers.step(ahead, rate, &self.share.whole);
        let part = Part { first_row: capacity_of(self.share.first_row(rows), 1)?, batch_rows: capacity_of(rows, 1)? };
        Ok(Some(NextStep { batch, part, step, data }))
    }
}

impl AsyncTrainer<'_> {
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
            let Trainer { model, compile, adapters, progress, snapshot, share, .. } = &mut *self.trainer;
            let (group, runtime) = (adapters.group.clone(), adapters.runtime.clone());
            let numbers = StepNumbers { model, compile, progress, copied: snapshot.as_ref() };
            let mut steps =
                EpochSteps { numbers, loader: &mut *loader, share, group: &group, runtime: &*runtime, is_free };
            let Some(finished) = adapters.scheduler()?.advance(&mut steps).await? else {
                // The end of an epoch finds the newest state on the host, so validation can't lose steps.
                self.trainer.take_snapshot(0).await?;
                if self.trainer.progress.is_at(loader) {
                    return Ok(None);
                }
                continue;
            };
            if let Some(log) = self.count(finished, loader.batches_per_epoch()).await? {
                if self.trainer.adapters.is_idle() {
                    self.trainer.take_snapshot(SNAPSHOT_STEPS).await?;
                }
                return Ok(Some(log));
            }
        }
    }

    /// The next step of an epoch as the first adapter alone computes it; `None` at the end, and where there is nothing to compare with.
    pub(super) async fn step_alone(&mut self, loader: &mut Loader) -> Result<Option<LoneStep>> {
        let Trainer { model, compile, adapters, progress, .. } = &mut *self.trainer;
        if adapters.is_on_device() {
            return Ok(None);
        }
        loader.seek(progress.epoch, progress.batch);
        let batch = loader.next_async().await?;
        loader.seek(progress.epoch, progress.batch);
        let Some(batch) = batch else { return Ok(None) };
        let whole = Whole::of(compile, model, &batch);
        let numbers = StepNumbers { model, compile, progress, copied: None };
        let step = numbers.step(0, progress.learning_rate, &whole);
        let Some(report) = adapters.scheduler()?.compute_alone(&batch, &step).await? else { return Ok(None) };
        let reports = Reports { rows: &report.reports, penalty: report.penalty };
        let tally = Tally::of(compile, model, &reports, &batch, &whole);
        let values = Meter::default().add(compile, model, &tally, whole.rows);
        let adapter = report.shards.first().map_or(0, |shard| shard.adapter_idx);
        Ok(Some(LoneStep { adapter, values, gradient_norm: report.gradient_norm }))
    }

    /// Ends steps that are still in flight, so that weights and data position stay consistent.
    pub(super) async fn end_steps(&mut self, batches: usize) {
        while !self.trainer.adapters.is_idle() {
            // Errors of these steps are ignored: the error that ended the run is reported.
            let Ok(scheduler) = self.trainer.adapters.scheduler() else { return };
            if let Ok(Some(finished)) = scheduler.finish().await {
                drop(self.count(finished, batches).await);
            }
        }
    }

    /// Counts a step that has ended; `None` if training was rewound.
    pub(super) async fn count(&mut self, finished: Finished, batches: usize) -> Result<Option<StepLog>> {
        let FinishedStep { batch, step, report, data, ms } = match finished {
            Finished::Step(finished) => *finished,
            Finished::Rewound => {
                self.trainer.rewind();
                return Ok(None);
            }
        };
        let whole = if self.trainer.adapters.group.is_alone() {
            Whole::of(&self.trainer.compile, &self.trainer.model, &batch)
        } else {
            self.trainer.share.learn(&report.processes);
            self.trainer.share.whole.clone()
        };
        let reports = Reports {
            rows: &report.reports,
            penalty: share::own_penalty(&self.trainer.adapters.group, report.penalty),
        };
        let mut tally = Tally::of(&self.trainer.compile, &self.trainer.model, &reports, &batch, &whole);
        let ended =
            self.trainer.share.end_together(&self.trainer.adapters, self.trainer.progress.step, &mut tally).await;
        let mut aside = Meter::default();
        let meter = if report.is_applied { &mut self.trainer.progress.meter } else { &mut aside };
        let values = meter.add(&self.trainer.compile, &self.trainer.model, &tally, whole.rows);
        let refused = if report.is_applied { Ok(()) } else { self.refuse(&batch, &step, &report).await };

        if refused.is_ok() || !self.trainer.adapters.is_idle() {
            // Weights already hold the step after a refused one, so it counts.
            self.trainer.progress.follow(report.is_applied);
            self.trainer.progress.step += 1;
            self.trainer.progress.batch += 1;
        }
        ended?;
        refused?;
        if self.trainer.adapters.is_idle() {
            self.trainer.adapters.follow_speeds().await?;
        }
        Ok(Some(StepLog {
            step: self.trainer.progress.step,
            epoch: self.trainer.progress.epoch + 1,
            batch: self.trainer.progress.batch,
            batches,
            rows: whole.rows,
            values,
            running: self.trainer.progress.running(&self.trainer.compile, &self.trainer.model),
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
            adapters: adapter_logs(&self.trainer.adapters.names(), &report.shards),
            processes: self.trainer.share.process_logs(&report.processes),
        }))
    }

    /// Treats a step that is not applied. Under mixed precision that is usual while the loss scale can fall.
    async fn refuse(&mut self, batch: &Batch, step: &Step, report: &StepReport) -> Result<()> {
        match self.trainer.progress.loss_scale {
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

    async fn refuse_non_finite(&mut self, batch: &Batch, step: &Step, report: &StepReport) -> Result<()> {
        self.trainer.saving.doubt();
        let error = self.trainer.adapters.scheduler()?.non_finite(batch, step, report).await?;
        match self.trainer.compile.non_finite {
            NonFinite::Stop => Err(error),
            NonFinite::Skip => {
                log::warn!("{error}");
                Ok(())
            }
        }
    }
}

/// Each adapter's part in a step.
fn adapter_logs(names: &[String], shards: &[ShardReport]) -> Vec<AdapterLog> {
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

/// The key of dropout's random numbers: the seed folded to 32 bits.
#[allow(clippy::cast_possible_truncation, reason = "folding keeps both halves")]
fn seed_bits(seed: u64) -> u32 {
    (seed ^ (seed >> 32)) as u32
}
