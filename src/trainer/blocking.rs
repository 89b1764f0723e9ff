//! The same for callers without an executor: each blocks until it is done. A page has none of these.

use std::sync::Arc;

use super::{Callback, Fit, History, Trainer, Values};
use crate::adapters;
use crate::data::Dataset;
use crate::error::Result;

impl Trainer {
    /// Trains on other adapters: `"all"`, `"0,1"`, `"nvidia,cpu"`. This line is all that several adapters need.
    ///
    /// # Errors
    /// If one is not there.
    pub fn adapters(self, wanted: &str) -> Result<Self> {
        let list = pollster::block_on(adapters::list());
        let chosen = adapters::choose(&list, wanted)?;
        Ok(self.on(chosen))
    }

    /// Opens the adapters as a run needs them, if they are not yet. `fit` does so itself; to open them before is of
    /// use to look at them first. Blocks until they are open.
    ///
    /// # Errors
    /// If no adapter can be opened, or one can't run the model.
    pub fn open(&mut self, fit: &Fit) -> Result<()> {
        pollster::block_on(self.open_async(fit))
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
        pollster::block_on(self.fit_async(Arc::new(train), fit, callbacks))
    }

    /// Loss and metrics of a dataset at inference. Blocks until it is done.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub fn evaluate(&mut self, dataset: impl Dataset + 'static, batch_size: usize) -> Result<Values> {
        pollster::block_on(self.evaluate_async(Arc::new(dataset), batch_size))
    }

    /// The outputs for a dataset, in the order of its rows: one flat array for each output. Blocks until it is done.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub fn predict(&mut self, dataset: impl Dataset + 'static, batch_size: usize) -> Result<Vec<Vec<f32>>> {
        pollster::block_on(self.predict_async(Arc::new(dataset), batch_size))
    }
}
