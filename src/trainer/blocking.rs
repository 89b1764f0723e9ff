//! Blocking forms of async functions, for callers without an executor. A page has none of these.

use std::sync::Arc;

use ndarray::ArrayD;

use super::{Callback, Fit, History, Session, StepLog, Trainer, Values};
use crate::data::{Batch, Dataset};
use crate::error::Result;
use crate::model::{Model, Weights};
use crate::scheduler::TrainingState;
use manyhands_engine::adapters::{self, Info};

impl Trainer {
    /// Trains on other adapters: `"all"`, `"0,1"`, `"nvidia,cpu"`. Several adapters need no other line.
    ///
    /// # Errors
    /// If one is not there.
    pub fn adapters(self, wanted: &str) -> Result<Self> {
        Ok(self.on(adapters::choose(&adapters::list(), wanted)?))
    }

    /// Opens the adapters for a run over `rows` training rows, if they are not open yet. `fit` does so itself; open
    /// them before to inspect them first. Blocks until they are open.
    ///
    /// # Errors
    /// As [`AsyncTrainer::open`](super::AsyncTrainer::open).
    pub fn open(&mut self, fit: &Fit, rows: usize) -> Result<()> {
        pollster::block_on(self.asynchronous().open(fit, rows))
    }

    /// Sets mean and variance of each `Normalization` that lacks them from its inputs. Blocks until it is
    /// done.
    ///
    /// ```
    /// use manyhands::data::digits;
    /// use manyhands::layers::{Dense, Flatten, Normalization};
    /// use manyhands::{Compile, Fit, Loss, Optimizer, Sequential, Trainer};
    /// # fn main() -> manyhands::Result<()> {
    /// let model = Sequential::new([8, 8, 1]).add(Normalization::default()).add(Flatten::default()).add(Dense::new(10));
    /// let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    /// let mut trainer = Trainer::new(model.build(0)?, compile)?.adapters("cpu")?;
    /// trainer.adapt(digits::train()?)?;
    /// let mean = trainer.model().tensor("normalization/mean").unwrap();
    /// assert!((mean[0] - 0.305).abs() < 1e-3, "{mean:?}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`AsyncTrainer::adapt`](super::AsyncTrainer::adapt).
    pub fn adapt(&mut self, dataset: impl Dataset + 'static) -> Result<()> {
        pollster::block_on(self.asynchronous().adapt(Arc::new(dataset)))
    }

    /// Trains: see [`Fit`]. Blocks until it is done.
    ///
    /// # Errors
    /// If the data does not fit the model, an adapter fails beyond repair, or a file can't be written.
    pub fn fit(&mut self, train: impl Dataset + 'static, fit: &Fit) -> Result<History> {
        self.fit_with(train, fit, &mut [])
    }

    /// Trains, with callbacks. Blocks until it is done.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_with(
        &mut self,
        train: impl Dataset + 'static,
        fit: &Fit,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<History> {
        pollster::block_on(self.asynchronous().fit(Arc::new(train), fit, callbacks))
    }

    /// Loss and metrics of a dataset at inference. Blocks until it is done.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub fn evaluate(&mut self, dataset: impl Dataset + 'static, batch_size: usize) -> Result<Values> {
        pollster::block_on(self.asynchronous().evaluate(Arc::new(dataset), batch_size))
    }

    /// The outputs for a dataset, `[rows, …]` each, in the order of its rows. Blocks until it is done.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub fn predict(&mut self, dataset: impl Dataset + 'static, batch_size: usize) -> Result<Vec<ArrayD<f32>>> {
        pollster::block_on(self.asynchronous().predict(Arc::new(dataset), batch_size))
    }

    /// One training step on a batch, as Keras' `train_on_batch`. Blocks until it is done.
    ///
    /// # Errors
    /// If the batch does not fit model and losses, a value is not finite, or an adapter fails beyond repair.
    pub fn train_on_batch(&mut self, batch: Batch) -> Result<StepLog> {
        pollster::block_on(self.asynchronous().train_on_batch(batch))
    }

    /// Loss and metrics of a batch at inference, as Keras' `test_on_batch`. Blocks until it is done.
    ///
    /// # Errors
    /// If the batch does not fit model and losses, or an adapter fails beyond repair.
    pub fn test_on_batch(&mut self, batch: &Batch) -> Result<Values> {
        pollster::block_on(self.asynchronous().test_on_batch(batch))
    }

    /// The outputs for a batch, one flat array for each, as Keras' `predict_on_batch`. Blocks until it is done.
    ///
    /// # Errors
    /// If the inputs do not fit the model, or an adapter fails beyond repair.
    pub fn predict_on_batch(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        pollster::block_on(self.asynchronous().predict_on_batch(batch))
    }

    /// Begins, or resumes, a run that is driven step by step. Files are the caller's task. Blocks until adapters are
    /// open.
    ///
    /// # Errors
    /// If the data does not fit the model, or no adapter can be opened.
    pub fn session(&mut self, train: impl Dataset + 'static, fit: Fit) -> Result<Session> {
        pollster::block_on(self.asynchronous().session(train, fit))
    }

    /// Opens another adapter, which takes part from the next step on; returns its position. Blocks until it is open.
    ///
    /// # Errors
    /// If no adapters are open yet, or this one can't be opened. Then nothing has changed.
    pub fn join(&mut self, info: &Info) -> Result<usize> {
        pollster::block_on(self.asynchronous().join(info))
    }

    /// Continues with a model of the same tensors, in which layers have other settings. Weights and optimizer state
    /// stay as they are. Blocks until it is done.
    ///
    /// # Errors
    /// If its tensors are others, or an adapter can't run it.
    pub fn exchange_model(&mut self, model: Model) -> Result<()> {
        pollster::block_on(self.asynchronous().exchange_model(model))
    }

    /// The model with the current weights, also within an epoch. Blocks until they are read.
    ///
    /// # Errors
    /// If the weights live on an adapter that was lost.
    pub fn current_model(&mut self) -> Result<&Model> {
        pollster::block_on(self.asynchronous().current_model())
    }

    /// Continues with other weights, as `set_weights` of Keras; the optimizer's state stays. Blocks until those at hand are
    /// read.
    ///
    /// # Errors
    /// If they are those of another model.
    pub fn set_weights(&mut self, weights: Weights) -> Result<()> {
        pollster::block_on(async {
            let optimizer = self.asynchronous().current_state().await?.optimizer.clone();
            let step = self.progress().step;
            self.asynchronous().set_state(TrainingState { weights, optimizer }, step).await
        })
    }
}
