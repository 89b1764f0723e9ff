//! Training on the caller's batches: from a generator, or the loader of another library.

use std::collections::VecDeque;

use super::meter::{self, Meter, Reports};
use super::steps::SNAPSHOT_STEPS;
use super::{StepLog, Trainer, Values};
use crate::data::{Batch, check_batch_indices, check_batch_labels, check_batch_probabilities};
use crate::error::{Error, Result};
use crate::losses::Domain;
use crate::scheduler::{DataWait, TrainingState};

/// Bytes of kept batches above which the host copies the state. They are kept until the host has a copy of the state
/// after them.
const MOST_KEPT_BYTES: usize = 256 << 20;

/// Batches that a lost adapter may need again, and batches that wait for their step; oldest first.
#[derive(Default)]
pub(super) struct Brought {
    batches: VecDeque<Kept>,
    /// Steps that had to end before their reports were requested.
    ended: VecDeque<StepLog>,
}

struct Kept {
    /// Number of its step, counted from 0.
    step: u64,
    batch: Batch,
    learning_rate: f32,
    /// Whether the caller has its log.
    is_reported: bool,
}

impl Brought {
    fn bytes(&self) -> usize {
        let values = |batch: &Batch| {
            batch.inputs.iter().chain(&batch.targets).map(|values| size_of_val(&**values)).sum::<usize>()
        };
        self.batches.iter().map(|kept| values(&kept.batch)).sum()
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
    /// Adds a batch for a training step with the current learning rate, and begins the step if the adapters can take it.
    /// [`end_on_batch`](Self::end_on_batch)
    /// ends the steps, one for each batch and in order. To keep a single adapter busy, add two batches first, then end one
    /// step for each further batch.
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
    /// trainer.begin_on_batch(Batch::fetch(&digits, &[0, 1, 2])?).await?;
    /// trainer.begin_on_batch(Batch::fetch(&digits, &[3, 4, 5])?).await?;
    /// let rows = trainer.end_on_batch().await?.rows + trainer.end_on_batch().await?.rows;
    /// assert_eq!((rows, trainer.progress().step), (6, 2));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn begin_on_batch(&mut self, batch: Batch) -> Result<()> {
        self.check_inputs_of(&batch)?;
        self.check_targets_of(&batch)?;
        self.open_for(batch.rows, 1).await?;
        let next = self.brought.batches.back().map_or(self.progress.step, |last| last.step + 1);
        self.brought.batches.push_back(Kept {
            step: next,
            batch,
            learning_rate: self.progress.learning_rate,
            is_reported: false,
        });
        self.begin_brought().await
    }

    /// Ends the oldest training step in flight and returns its log. Its running values are
    /// those of the batch.
    ///
    /// # Errors
    /// If no batch waits, no adapter is left, or a value is not finite. Batches that wait are then forgotten.
    pub async fn end_on_batch(&mut self) -> Result<StepLog> {
        let ended = self.end_brought().await;
        if ended.is_err() {
            self.brought = Brought::default();
            self.end_steps(0).await;
            // The state can't be computed again from kept batches: the next step begins with a copy.
            self.snapshot = None;
        }
        ended
    }

    /// One training step on a batch, as Keras' `train_on_batch`.
    ///
    /// # Errors
    /// See [`begin_on_batch`](Self::begin_on_batch) and [`end_on_batch`](Self::end_on_batch).
    pub async fn train_on_batch_async(&mut self, batch: Batch) -> Result<StepLog> {
        self.begin_on_batch(batch).await?;
        self.end_on_batch().await
    }

    /// Loss and metrics of a batch at inference, as Keras' `test_on_batch`.
    ///
    /// # Errors
    /// If the batch does not fit model and losses, or no adapter is left.
    pub async fn test_on_batch_async(&mut self, batch: &Batch) -> Result<Values> {
        self.check_inputs_of(batch)?;
        self.check_targets_of(batch)?;
        self.open_for(batch.rows, 1).await?;
        let scales = meter::loss_scales(&self.compile, &self.model.outputs(), batch);
        let penalty = self.penalty().await?;
        let reports = self.opened()?.evaluate(batch, scales).await?;
        self.follow_rewind();
        let reports = Reports { rows: &reports, penalty };
        Ok(Meter::default().add(&self.compile, &self.model.outputs(), &reports, batch))
    }

    /// The outputs for a batch, one flat array for each, as Keras' `predict_on_batch`.
    ///
    /// # Errors
    /// If the inputs do not fit the model, or no adapter is left.
    pub async fn predict_on_batch_async(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        self.check_inputs_of(batch)?;
        self.open_for(batch.rows, 1).await?;
        let outputs = self.opened()?.predict(batch).await?;
        self.follow_rewind();
        Ok(outputs)
    }

    /// Current weights, statistics and optimizer state, after all steps in flight.
    ///
    /// # Errors
    /// If they live on an adapter that was lost.
    pub async fn current_state(&mut self) -> Result<&TrainingState> {
        loop {
            while self.n_in_flight() > 0 || self.begin_again()? {
                if let Some(log) = self.finish_brought().await? {
                    self.brought.ended.push_back(log);
                }
            }
            self.sync().await?;
            if !self.brought.is_reported(self.progress.step) {
                return Ok(self.state());
            }
        }
    }

    /// Continues from another state, as after `step` training steps: that of another program, for example.
    ///
    /// # Errors
    /// If it is the state of another model or optimizer. Then nothing is changed.
    pub async fn set_state(&mut self, state: TrainingState, step: u64) -> Result<()> {
        let lens = |segments: &[Vec<f32>]| segments.iter().map(Vec::len).collect::<Vec<_>>();
        let (weights, layout) = (self.model.weights.clone(), self.model.layout());
        let needed = TrainingState::new(weights, layout, &self.compile.optimizer);
        let fits = lens(&state.weights.parameters) == lens(&needed.weights.parameters)
            && state.weights.statistics.len() == needed.weights.statistics.len()
            && state.optimizer.len() == needed.optimizer.len()
            && state.optimizer.iter().zip(&needed.optimizer).all(|(given, needed)| lens(given) == lens(needed));
        if !fits {
            let problem = "needs the tensors of this model and optimizer, but has others";
            return Err(Error::model("the new state", problem, "begin with `TrainingState::new`, and fill it"));
        }
        self.end_steps(0).await;
        self.brought = Brought::default();
        self.model.weights.clone_from(&state.weights);
        (self.progress.step, self.snapshot) = (step, None);
        match &mut self.scheduler {
            Some(opened) => opened.scheduler.restore(state),
            None => self.state = state,
        }
        Ok(())
    }

    async fn end_brought(&mut self) -> Result<StepLog> {
        if let Some(log) = self.brought.ended.pop_front() {
            return Ok(log);
        }
        while self.brought.is_waiting() {
            self.begin_brought().await?;
            if let Some(log) = self.finish_brought().await? {
                return Ok(log);
            }
        }
        let problem = "needs a batch in flight, but there is none";
        Err(Error::setting("a training step to end", problem, "call `begin_on_batch` first"))
    }

    /// Ends the oldest step in flight; `None` if its log is known already, or training was rewound.
    async fn finish_brought(&mut self) -> Result<Option<StepLog>> {
        let step = self.progress.step;
        let log = self.finish_step(0).await?;
        // Batches are the caller's: there is no epoch, and no position in one.
        (self.progress.batch, self.progress.meter) = (0, Meter::default());
        let kept = self.brought.of(step).filter(|_| log.is_some());
        let is_news = kept.is_some_and(|kept| !std::mem::replace(&mut kept.is_reported, true));
        Ok(log.filter(|_| is_news))
    }

    /// Begins the steps that may run now: the next one, and with one adapter also the one after it.
    async fn begin_brought(&mut self) -> Result<()> {
        if self.n_in_flight() == 0 {
            let is_much = self.brought.bytes() > MOST_KEPT_BYTES;
            self.take_snapshot(if is_much { 0 } else { SNAPSHOT_STEPS }).await?;
            let is_on_device = self.opened()?.is_on_device();
            let copied = self.snapshot.as_ref().filter(|_| is_on_device);
            let step = copied.map_or(self.progress.step, |progress| progress.step);
            self.brought.forget(step);
            self.begin_number(self.progress.step)?;
        }
        let is_free = self.brought.bytes() <= MOST_KEPT_BYTES;
        if self.n_in_flight() == 1 && self.may_run_ahead(&|_| is_free)? {
            self.begin_number(self.progress.step + 1)?;
        }
        Ok(())
    }

    /// Re-runs the steps since the last copy of the state after a rewind; logs that were returned are not returned
    /// again.
    fn begin_again(&mut self) -> Result<bool> {
        let is_rewound = self.brought.is_reported(self.progress.step);
        if is_rewound {
            self.begin_number(self.progress.step)?;
        }
        Ok(is_rewound)
    }

    /// Begins a step, if its batch is there, with the learning rate at the time when the batch was added.
    fn begin_number(&mut self, step: u64) -> Result<()> {
        let Some(kept) = self.brought.of(step) else { return Ok(()) };
        let (batch, learning_rate) = (kept.batch.clone(), kept.learning_rate);
        let newest = std::mem::replace(&mut self.progress.learning_rate, learning_rate);
        let result = self.begin_with(batch, DataWait::default());
        self.progress.learning_rate = newest;
        result
    }

    fn check_inputs_of(&self, batch: &Batch) -> Result<()> {
        let needed = self.model.inputs().iter().map(|input| (input.name.as_str(), &input.shape));
        check_lens("input", needed.map(|(name, shape)| (name, shape.len())).collect(), &batch.inputs, batch.rows)?;
        batch.check_values()?;
        for (idx, (input, values)) in self.model.inputs().iter().zip(&batch.inputs).enumerate() {
            let checked = |bound| check_batch_indices(values, input.shape.len(), &input.name, bound);
            self.model.index_bound(idx).map_or(Ok(()), checked)?;
        }
        Ok(())
    }

    fn check_targets_of(&self, batch: &Batch) -> Result<()> {
        let outputs = self.model.outputs();
        let targets: Vec<_> =
            outputs.iter().zip(&self.compile.losses).map(|((_, shape), loss)| loss.target(shape)).collect();
        let needed = outputs.iter().zip(&targets).map(|((name, _), target)| (*name, target.shape.len()));
        check_lens("target for output", needed.collect(), &batch.targets, batch.rows)?;
        for (output, (target, values)) in targets.iter().zip(&batch.targets).enumerate() {
            let row_len = target.shape.len();
            match target.domain {
                Domain::Classes(classes) => check_batch_labels(values, row_len, output, classes)?,
                Domain::Probabilities => check_batch_probabilities(values, row_len, output)?,
                Domain::Numbers => {}
            }
        }
        Ok(())
    }
}

fn check_lens(kind: &str, needed: Vec<(&str, usize)>, got: &[std::sync::Arc<[f32]>], rows: usize) -> Result<()> {
    if rows == 0 {
        return Err(Error::data("the batch", "needs at least one row, but has none", "leave it out"));
    }
    if needed.len() != got.len() {
        return Err(Error::data(
            "the batch",
            format!("needs to have {} arrays as {kind}, but has {}", needed.len(), got.len()),
            "give one array for each, in the model's order",
        ));
    }
    for ((name, row_len), values) in needed.into_iter().zip(got) {
        if values.len() != rows * row_len {
            return Err(Error::data(
                format!("{kind} `{name}`"),
                format!("needs {row_len} values for each of {rows} rows, but the batch has {} in all", values.len()),
                "reshape the data, or change the model's input or last layer to fit it",
            ));
        }
    }
    Ok(())
}
