//! Training on the caller's batches: from a generator, or the loader of another library.

use std::collections::VecDeque;

use super::batch_check::Remake;
use super::meter::Whole;
use super::needs::Needs;
use super::snapshots::SNAPSHOT_STEPS;
use super::steps::StepNumbers;
use super::{AsyncTrainer, BatchCheck, CheckedBatch, Meter, StepLog, Trainer, Values};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::scheduler::timeline::Tracing;
use crate::scheduler::{DataWait, NextStep, Scheduler, StepSource, TrainingState};

/// Bytes of kept batches above which the host copies the state. They are kept until the host has a copy of the state
/// after them.
const MOST_KEPT_BYTES: usize = 256 << 20;

/// Batches that a lost adapter may need again, and batches that wait for their step; oldest first.
#[derive(Default)]
pub(super) struct Brought {
    batches: VecDeque<Kept>,
    /// Steps that had to end before their reports were requested.
    ended: VecDeque<StepLog>,
    /// Loss and metrics of steps that were reported.
    meter: Meter,
    /// Whether the adapters could begin another step, if its batch were there.
    is_wanted: bool,
}

/// Steps on a caller's batches that may begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Each whose batch is there.
    All,
    /// Steps that were reported already: after a rewind they run again.
    Again,
}

/// The steps on a caller's batches.
struct BroughtSteps<'a> {
    numbers: StepNumbers<'a>,
    brought: &'a mut Brought,
    begun: Begun,
}

impl StepSource for BroughtSteps<'_> {
    async fn next(&mut self, ahead: usize) -> Result<Option<NextStep>> {
        let number = self.numbers.of(ahead);
        if ahead > 0 && !(self.numbers.may_run_ahead(number) && self.brought.bytes() <= MOST_KEPT_BYTES) {
            return Ok(None);
        }
        let Some(kept) = self.brought.of(number) else {
            self.brought.is_wanted = true;
            return Ok(None);
        };
        if self.begun == Begun::Again && !kept.is_reported {
            return Ok(None);
        }
        let batch = kept.values.batch()?;
        let whole = Whole::of(self.numbers.compile, self.numbers.model, &batch);
        // The learning rate is that of the time when the batch was added.
        let step = self.numbers.step(ahead, kept.learning_rate, &whole);
        NextStep::whole(batch, step, DataWait::default()).map(Some)
    }
}

struct Kept {
    /// Number of its step, counted from 0.
    step: u64,
    values: KeptValues,
    learning_rate: f32,
    /// Whether the caller has its log.
    is_reported: bool,
}

/// The origin of a batch's values.
enum KeptValues {
    Held(Batch, Option<Remake>),
    Remade(Remake),
}

impl KeptValues {
    fn batch(&self) -> Result<Batch> {
        match self {
            Self::Held(batch, _) => Ok(batch.clone()),
            Self::Remade(remake) => remake(),
        }
    }

    /// Drops the values if they can be made again.
    fn release(&mut self) {
        if let Self::Held(_, Some(remake)) = self {
            *self = Self::Remade(remake.clone());
        }
    }

    fn bytes(&self) -> usize {
        let Self::Held(batch, _) = self else { return 0 };
        batch.inputs.iter().chain(&batch.targets).map(|values| size_of_val(&**values)).sum()
    }
}

impl Kept {
    /// Notes that the caller gets its log; false if the caller has it already.
    fn report(&mut self) -> bool {
        self.values.release();
        !std::mem::replace(&mut self.is_reported, true)
    }
}

impl Brought {
    fn bytes(&self) -> usize {
        self.batches.iter().map(|kept| kept.values.bytes()).sum()
    }

    /// Whether a batch's step is not yet reported.
    fn is_waiting(&self) -> bool {
        self.batches.back().is_some_and(|last| !last.is_reported)
    }

    /// Whether a step was reported. If it is to run again, training was rewound.
    fn is_reported(&self, step: u64) -> bool {
        self.batches.iter().any(|kept| kept.step == step && kept.is_reported)
    }

    /// The batch of a step.
    fn of(&mut self, step: u64) -> Option<&mut Kept> {
        self.batches.iter_mut().find(|kept| kept.step == step)
    }

    /// Drops batches that are no longer needed once the host's copy of the state is that after `step` steps.
    fn forget(&mut self, step: u64) {
        self.batches.retain(|kept| kept.step >= step || !kept.is_reported);
    }
}

impl Trainer {
    /// Requirements for batches, by which another thread can check them.
    #[doc(hidden)]
    pub fn batch_check(&self) -> BatchCheck {
        Needs::of(self).batch_check()
    }

    /// Whether the adapters could begin another step beside those of the batches that were added last: then a caller that adds one more
    /// batch before it ends the oldest step lets no adapter wait.
    pub fn wants_batch(&self) -> bool {
        self.brought.is_wanted
    }

    /// Forgets loss and metrics of the caller's batches so far, as Keras' `reset_metrics`.
    pub fn reset_metrics(&mut self) {
        self.brought.meter = Meter::default();
    }

    /// Loss and metrics of the caller's batches since [`reset_metrics`](Self::reset_metrics).
    pub fn metrics_on_batch(&self) -> Values {
        self.brought.meter.values(&self.compile, &self.model)
    }
}

impl AsyncTrainer<'_> {
    /// Adds a batch for a training step with the current learning rate, and begins the step if the adapters can take it.
    /// [`end_on_batch`](Self::end_on_batch) ends the steps, one for each batch and in order. To keep a single adapter busy, add
    /// another batch first where [`wants_batch`](Trainer::wants_batch) says so.
    ///
    /// # Errors
    /// If the batch does not fit model and losses, or an adapter can't be opened. Then the batch is not taken.
    ///
    /// ```
    /// use manyhands::data::{Batch, digits};
    /// use manyhands::layers::{Dense, Flatten};
    /// use manyhands::{Compile, Loss, Optimizer, Sequential, Trainer};
    /// # fn main() -> manyhands::Result<()> {
    /// let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
    /// let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    /// let mut trainer = Trainer::new(model, compile)?.adapters("cpu")?;
    /// # pollster::block_on(async {
    /// let digits = digits::train()?;
    /// trainer.asynchronous().begin_on_batch(Batch::fetch(&digits, &[0, 1, 2])?).await?;
    /// trainer.asynchronous().begin_on_batch(Batch::fetch(&digits, &[3, 4, 5])?).await?;
    /// let rows = trainer.asynchronous().end_on_batch().await?.rows + trainer.asynchronous().end_on_batch().await?.rows;
    /// assert_eq!((rows, trainer.progress().step), (6, 2));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn begin_on_batch(&mut self, batch: Batch) -> Result<()> {
        let batch = self.trainer.batch_check().check(batch)?;
        self.begin_checked_on_batch(batch).await
    }

    /// As [`begin_on_batch`](Self::begin_on_batch), for a batch that another thread has checked by
    /// [`batch_check`](Trainer::batch_check) of this trainer.
    ///
    /// # Errors
    /// If the batch is one of another trainer, or an adapter can't be opened. Then the batch is not taken.
    #[doc(hidden)]
    pub async fn begin_checked_on_batch(&mut self, batch: CheckedBatch) -> Result<()> {
        self.refuse_own_batches()?;
        let CheckedBatch { batch, remake } = batch;
        self.trainer.batch_check().check_sizes(&batch)?;
        self.open_for(batch.rows, self.trainer.micro_batches).await?;
        let next = self.trainer.brought.batches.back().map_or(self.trainer.progress.step, |last| last.step + 1);
        self.trainer.brought.batches.push_back(Kept {
            step: next,
            values: KeptValues::Held(batch, remake),
            learning_rate: self.trainer.progress.learning_rate,
            is_reported: false,
        });
        self.begin_brought().await
    }

    /// The outputs of a batch, flat, as the next training step computes them: with its dropout and its batch statistics. For a loss whose
    /// targets are made of them ([`needs_outputs`](crate::losses::LossFunction::needs_outputs)).
    ///
    /// # Errors
    /// If the inputs do not fit the model, a step is in flight, no loss asks for it, or no adapter is left.
    pub async fn forward_on_batch(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        self.refuse_own_batches()?;
        let is_needed = self.trainer.compile.losses.iter().any(|loss| loss.needs_outputs());
        if !is_needed || self.trainer.brought.is_waiting() {
            let problem = "are computed before its batch is added, and only where a loss needs them";
            return Err(Error::setting("the outputs of a training step", problem, "end the steps in flight first"));
        }
        self.trainer.batch_check().check_inputs(batch)?;
        self.open_for(batch.rows, self.trainer.micro_batches).await?;
        self.copy_if_due().await?;
        let Trainer { model, compile, adapters, progress, snapshot, .. } = &mut *self.trainer;
        let numbers = StepNumbers { model, compile, progress, copied: snapshot.as_ref() };
        // There are no targets yet, and so no loss to scale.
        let step = numbers.step(0, progress.learning_rate, &Whole::default());
        let outputs = adapters.scheduler()?.forward(batch, &step).await?;
        self.trainer.follow_rewind();
        Ok(outputs)
    }

    /// Ends the oldest training step in flight and returns its log. Its running values are
    /// those of the batches since [`reset_metrics`](Trainer::reset_metrics).
    ///
    /// # Errors
    /// If no batch waits, no adapter is left, or a value is not finite. Batches that wait are then forgotten.
    pub async fn end_on_batch(&mut self) -> Result<StepLog> {
        let ended = self.end_brought().await;
        if ended.is_err() {
            self.trainer.brought = Brought::default();
            self.end_steps(0).await;
            // The state can't be computed again from kept batches: the next step begins with a copy.
            self.trainer.snapshot = None;
        }
        ended
    }

    /// One training step on a batch, as Keras' `train_on_batch`.
    ///
    /// # Errors
    /// See [`begin_on_batch`](Self::begin_on_batch) and [`end_on_batch`](Self::end_on_batch).
    pub async fn train_on_batch(&mut self, batch: Batch) -> Result<StepLog> {
        self.begin_on_batch(batch).await?;
        self.end_on_batch().await
    }

    /// Begins a new timeline of all work. Opens the adapters for batches of up to `rows` rows, if they are not open yet.
    ///
    /// # Errors
    /// If an adapter can't be opened.
    #[doc(hidden)]
    pub async fn start_timeline(&mut self, rows: usize, tracing: Tracing) -> Result<()> {
        self.open_for(rows, self.trainer.micro_batches).await?;
        self.trainer.adapters.start_timeline(tracing)
    }

    /// Continues from another state, as after `step` training steps: that of another program, for example.
    ///
    /// # Errors
    /// If it is the state of another model or optimizer. Then nothing is changed.
    pub async fn set_state(&mut self, state: TrainingState, step: u64) -> Result<()> {
        let lens = |segments: &[Vec<f32>]| segments.iter().map(Vec::len).collect::<Vec<_>>();
        let weights = &self.trainer.model.weights;
        let fits = lens(&state.weights.parameters) == lens(&weights.parameters)
            && state.weights.statistics.len() == weights.statistics.len()
            && state.fits_optimizer(self.trainer.model.layout(), &self.trainer.compile.optimizer);
        if !fits {
            let problem = "needs the tensors of this model and optimizer, but has others";
            return Err(Error::model("the new state", problem, "begin with `TrainingState::new`, and fill it"));
        }
        self.end_steps(0).await;
        self.trainer.brought = Brought { meter: std::mem::take(&mut self.trainer.brought.meter), ..Brought::default() };
        self.trainer.model.weights.clone_from(&state.weights);
        (self.trainer.progress.step, self.trainer.snapshot) = (step, None);
        self.trainer.adapters.restore(state);
        Ok(())
    }

    async fn end_brought(&mut self) -> Result<StepLog> {
        loop {
            if let Some(log) = self.trainer.brought.ended.pop_front() {
                return Ok(log);
            }
            if !self.trainer.brought.is_waiting() || !self.advance_brought(Begun::All).await? {
                let problem = "needs a batch in flight, but there is none";
                return Err(Error::setting("a training step to end", problem, "call `begin_on_batch` first"));
            }
        }
    }

    /// Begins the steps that may run now, without waiting for their end.
    async fn begin_brought(&mut self) -> Result<()> {
        self.copy_if_due().await?;
        let (scheduler, mut steps) = self.brought_steps(Begun::All)?;
        scheduler.begin(&mut steps).await
    }

    /// Ends the oldest step in flight, after a begin of those that may run beside it; false if there is none. Its log is kept, unless
    /// the caller has it already.
    async fn advance_brought(&mut self, begun: Begun) -> Result<bool> {
        if begun == Begun::All {
            self.copy_if_due().await?;
        }
        let (scheduler, mut steps) = self.brought_steps(begun)?;
        let Some(finished) = scheduler.advance(&mut steps).await? else { return Ok(false) };
        let step = self.trainer.progress.step;
        self.trainer.progress.meter = self.trainer.brought.meter.clone();
        let log = self.count(finished, 0).await;
        // Batches are the caller's: there is no epoch, and no position in one.
        self.trainer.progress.batch = 0;
        let meter = std::mem::take(&mut self.trainer.progress.meter);
        if let Some(log) = log?
            && self.trainer.brought.of(step).is_some_and(Kept::report)
        {
            self.trainer.brought.meter = meter;
            self.trainer.brought.ended.push_back(log);
        }
        Ok(true)
    }

    fn brought_steps(&mut self, begun: Begun) -> Result<(&mut Scheduler, BroughtSteps<'_>)> {
        let Trainer { model, compile, adapters, progress, snapshot, brought, .. } = &mut *self.trainer;
        brought.is_wanted = false;
        let numbers = StepNumbers { model, compile, progress, copied: snapshot.as_ref() };
        Ok((adapters.scheduler()?, BroughtSteps { numbers, brought, begun }))
    }

    /// Copies the state to the host between two steps if the last copy is old, and drops the batches of steps before the copy.
    async fn copy_if_due(&mut self) -> Result<()> {
        if !self.trainer.adapters.is_idle() {
            return Ok(());
        }
        let is_much = self.trainer.brought.bytes() > MOST_KEPT_BYTES;
        self.trainer.take_snapshot(if is_much { 0 } else { SNAPSHOT_STEPS }).await?;
        let is_on_device = self.trainer.adapters.is_on_device();
        let copied = self.trainer.snapshot.as_ref().filter(|_| is_on_device);
        let step = copied.map_or(self.trainer.progress.step, |progress| progress.step);
        self.trainer.brought.forget(step);
        Ok(())
    }
}

impl<'a> AsyncTrainer<'a> {
    /// Current weights, statistics and optimizer state, after all steps in flight.
    ///
    /// # Errors
    /// If they live on an adapter that was lost.
    pub async fn current_state(mut self) -> Result<&'a TrainingState> {
        loop {
            while self.trainer.adapters.if_open().is_some() && self.advance_brought(Begun::Again).await? {}
            self.trainer.sync().await?;
            if !self.trainer.brought.is_reported(self.trainer.progress.step) {
                return Ok(self.trainer.adapters.state());
            }
        }
    }
}
