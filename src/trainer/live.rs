//! Training that its caller drives step by step, with changes during the run: for a page with sliders.

use std::sync::Arc;

use super::epochs::Run;
use super::{AsyncTrainer, EpochLog, Fit, Flow, LoneStep, StepLog, Trainer};
use crate::data::{Dataset, Loader};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::scheduler::split::SplitMode;
use manyhands_engine::adapters::Info;

/// A run of a [`Trainer`] that continues step by step. Between two steps the trainer is free for anything else.
///
/// ```
/// use manyhands::data::digits;
/// use manyhands::layers::{Dense, Flatten};
/// use manyhands::{Compile, Fit, Loss, Optimizer, Sequential, Trainer};
/// # fn main() -> manyhands::Result<()> {
/// let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
/// let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
/// let mut trainer = Trainer::new(model, compile)?.adapters("cpu")?;
/// let mut session = trainer.session(digits::train()?, Fit::new(1).validation(digits::test()?))?;
/// while let Some(step) = session.step(&mut trainer)? {
///     assert!(step.values.get("loss").is_some());
///     session.set_batch_size(&mut trainer, 64)?;
/// }
/// let epoch = session.end_epoch(&mut trainer)?;
/// assert!(epoch.values.get("val_accuracy").unwrap() > 0.5);
/// # Ok(())
/// # }
/// ```
pub struct Session {
    loader: Loader,
    fit: Fit,
    rows: usize,
    begin_ms: f64,
}

impl Session {
    /// One training step, without blocking; `None` at the end of an epoch, until [`end_epoch`](Self::end_epoch_async).
    ///
    /// # Errors
    /// If an adapter fails beyond repair, or a value is not finite.
    pub async fn step_async(&mut self, trainer: &mut Trainer) -> Result<Option<StepLog>> {
        trainer.asynchronous().open(&self.fit, self.loader.dataset().len()).await?;
        trainer.take_snapshot(u64::MAX).await?;
        let log = trainer.asynchronous().next_step(&mut self.loader, &|_| false).await?;
        self.rows += log.as_ref().map_or(0, |log| log.rows);
        Ok(log)
    }

    /// Loss and metrics of the next step as the first adapter alone computes them, with all rows and the weights of now, beside its norm of
    /// the gradients: by them, what the split changes of that step. Nothing changes, and the step itself may follow. Does not block.
    ///
    /// `None` at the end of an epoch, and where no two adapters share a step, or the first does not hold its rows.
    ///
    /// # Errors
    /// If no adapter is left to run it.
    pub async fn step_alone_async(&mut self, trainer: &mut Trainer) -> Result<Option<LoneStep>> {
        trainer.asynchronous().open(&self.fit, self.loader.dataset().len()).await?;
        trainer.asynchronous().step_alone(&mut self.loader).await
    }

    /// Validates, and goes to the next epoch, without blocking.
    ///
    /// # Errors
    /// If an adapter fails beyond repair, or the only one was lost with steps of the epoch.
    pub async fn end_epoch_async(&mut self, trainer: &mut Trainer) -> Result<EpochLog> {
        trainer.take_snapshot(0).await?;
        if !trainer.progress.is_at(&self.loader) {
            let problem = "can't end yet: some of its steps must be trained again";
            return Err(Error::setting("the epoch", problem, "call `step` until it gives `None`"));
        }
        let mut run = Run { trainer: &mut *trainer, fit: &self.fit, callbacks: &mut [] };
        let log = run.epoch_log(self.rows, self.begin_ms).await?;
        if run.end_epoch(&log).await? == Flow::Continue {
            self.loader.start_epoch(trainer.progress.epoch, 0);
            trainer.take_snapshot(0).await?;
        }
        trainer.saving.finish()?;
        (self.rows, self.begin_ms) = (0, trainer.adapters.runtime.now_ms());
        Ok(log)
    }

    /// One training step; `None` at the end of an epoch, until [`end_epoch`](Self::end_epoch). Blocks until it is done.
    ///
    /// # Errors
    /// If an adapter fails beyond repair, or a value is not finite.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn step(&mut self, trainer: &mut Trainer) -> Result<Option<StepLog>> {
        pollster::block_on(self.step_async(trainer))
    }

    /// Validates, and goes to the next epoch. Blocks until it is done.
    ///
    /// # Errors
    /// If an adapter fails beyond repair, or the only one was lost with steps of the epoch.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn end_epoch(&mut self, trainer: &mut Trainer) -> Result<EpochLog> {
        pollster::block_on(self.end_epoch_async(trainer))
    }

    /// Number of batches in an epoch.
    pub fn batches(&self) -> usize {
        self.loader.batches_per_epoch()
    }

    /// Sets the rows of a batch from the next step on.
    ///
    /// # Errors
    /// If no batch can be made. Then nothing has changed.
    pub fn set_batch_size(&mut self, trainer: &mut Trainer, rows: usize) -> Result<()> {
        if rows == self.fit.batch_size {
            return Ok(());
        }
        self.loader.seek(trainer.progress.epoch, trainer.progress.batch);
        self.loader.set_batch_size(rows)?;
        self.fit.batch_size = rows;
        trainer.progress.batch_size = rows;
        trainer.progress.batch = self.loader.position().batch;
        if let Some(progress) = &mut trainer.snapshot {
            // Whole batches of the new size, as the loader counts.
            progress.batch = progress.batch * progress.batch_size / rows.max(1);
            progress.batch_size = rows;
        }
        Ok(())
    }
}

impl Trainer {
    /// Removes an adapter between two steps. Its position stays empty.
    ///
    /// # Errors
    /// If it is the only one that takes part.
    pub fn leave(&mut self, adapter_idx: usize) -> Result<()> {
        self.adapters.scheduler()?.leave(adapter_idx)?;
        self.adapters.note();
        Ok(())
    }

    /// Sets another split from the next step on.
    ///
    /// # Errors
    /// If the split does not go with the adapters. Then nothing has changed.
    pub fn set_split(&mut self, split: SplitMode) -> Result<()> {
        self.adapters.set_split(split)
    }

    /// Sets the learning rate from the next step on, before schedule and batch size change it.
    pub fn set_learning_rate(&mut self, rate: f32) {
        self.progress.learning_rate = rate;
        if let Some(progress) = &mut self.snapshot {
            progress.learning_rate = rate;
        }
    }
}

impl AsyncTrainer<'_> {
    /// Begins, or resumes, a run that is driven step by step, without blocking. Files are the caller's task.
    ///
    /// # Errors
    /// If the data does not fit the model, or no adapter can be opened.
    pub async fn session(&mut self, train: impl Dataset + 'static, fit: Fit) -> Result<Session> {
        self.refuse_own_batches()?;
        let mut loader = self.begin_run(Arc::new(train), &fit).await?;
        loader.start_epoch(self.trainer.progress.epoch, self.trainer.progress.batch);
        self.trainer.take_snapshot(0).await?;
        let begin_ms = self.trainer.adapters.runtime.now_ms();
        Ok(Session { loader, fit, rows: 0, begin_ms })
    }

    /// Opens another adapter, which takes part from the next step on; returns its position. Does not block.
    ///
    /// # Errors
    /// If no adapters are open yet, or this one can't be opened. Then nothing has changed.
    pub async fn join(&mut self, info: &Info) -> Result<usize> {
        self.trainer.sync().await?;
        let adapter_idx = self.trainer.adapters.scheduler()?.join(info).await?;
        self.trainer.adapters.note();
        Ok(adapter_idx)
    }

    /// Continues with a model of the same tensors, in which layers have other settings: batch normalization over the
    /// whole batch in place of each shard. Weights and optimizer state stay as they are. Without blocking.
    ///
    /// # Errors
    /// If its tensors are others, or an adapter can't run it.
    pub async fn exchange_model(&mut self, mut model: Model) -> Result<()> {
        if model.layout() != self.trainer.model.layout() {
            return Err(Error::model(
                "the new model",
                "needs the tensors of the old one, but has others",
                "change settings of layers alone; for another architecture begin a new run",
            ));
        }
        self.trainer.sync().await?;
        model.weights = self.trainer.model.weights.clone();
        (model.schema, model.evaluation) = (self.trainer.model.schema.clone(), self.trainer.model.evaluation.clone());
        let objective =
            self.trainer.compile.objective().for_micro_batches(self.trainer.adapters.micro_batches().unwrap_or(1));
        let plan = model.plan(&objective)?;
        self.trainer.adapters.reload(plan).await?;
        self.trainer.model = model;
        Ok(())
    }
}

impl<'a> AsyncTrainer<'a> {
    /// The model with the current weights, also within an epoch, without blocking.
    ///
    /// # Errors
    /// If the weights live on an adapter that was lost.
    pub async fn current_model(self) -> Result<&'a Model> {
        self.trainer.sync().await?;
        Ok(&self.trainer.model)
    }
}
