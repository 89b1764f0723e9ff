//! Prediction with a trained model, without loss and optimizer.

use std::sync::Arc;

use ndarray::ArrayD;

use super::adapters::{capacity_of, chosen};
use super::inference::{output_shapes, predict_with};
use super::needs::{check_inputs, check_meaning};
use crate::data::{Dataset, LoaderSettings};
use crate::error::Result;
use crate::model::Model;
use crate::processes::Group;
use crate::runtime::{self, Runtime};
use crate::scheduler::Scheduler;
use manyhands_engine::adapters::{self, Info};

/// Runs a trained model over the adapters of the machine.
///
/// **Across adapters** the first batch is split evenly, the others by speed; outputs come in the order of the rows.
///
/// ```
/// use manyhands::data::digits;
/// use manyhands::layers::{Dense, Flatten};
/// use manyhands::{Predictor, Sequential};
/// # fn main() -> manyhands::Result<()> {
/// let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
/// let outputs = Predictor::new(model).adapters("cpu,cpu")?.predict(digits::test()?, 100)?;
/// assert_eq!(outputs[0].shape(), [360, 10]);
/// # Ok(())
/// # }
/// ```
pub struct Predictor {
    model: Model,
    runtime: Arc<dyn Runtime>,
    adapters: Option<Vec<Info>>,
    /// Scheduler, with the largest batch that it takes.
    scheduler: Option<(Scheduler, usize)>,
}

impl Predictor {
    /// Predicts on the adapters that the environment variable `MANYHANDS_ADAPTERS` names, else on all GPUs, or the CPU
    /// where there are none.
    pub fn new(model: Model) -> Self {
        Self { model, runtime: runtime::system(), adapters: None, scheduler: None }
    }

    /// Predicts on other adapters, without blocking: see [`choose`](adapters::choose).
    ///
    /// # Errors
    /// If one is not there.
    pub async fn adapters_async(self, wanted: &str) -> Result<Self> {
        let chosen = adapters::choose(&adapters::list_async().await, wanted)?;
        Ok(self.on(chosen))
    }

    /// Predicts on these adapters. An adapter may be listed twice, and is then opened twice.
    #[must_use]
    pub fn on(mut self, adapters: Vec<Info>) -> Self {
        self.adapters = Some(adapters);
        self.scheduler = None;
        self
    }

    /// Sets another clock, timer and spawn than the native ones.
    #[doc(hidden)]
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = runtime;
        self
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The outputs for a dataset, `[rows, …]` each, in the order of its rows, without blocking.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub async fn predict_async(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Vec<ArrayD<f32>>> {
        check_inputs(&self.model, dataset.as_ref())?;
        // No more is planned for than there is.
        let batch_size = batch_size.min(dataset.len().max(1));
        check_meaning(&self.model, &dataset.schema())?;
        let scheduler = match self.scheduler.take() {
            Some((scheduler, capacity)) if capacity >= batch_size => self.scheduler.insert((scheduler, capacity)),
            _ => {
                let scheduler = self.open(batch_size).await?;
                self.scheduler.insert((scheduler, batch_size))
            }
        };
        let reading = LoaderSettings { batch_size, ..LoaderSettings::default() };
        predict_with(&mut scheduler.0, &output_shapes(&self.model), dataset, reading, (None, &Group::alone())).await
    }

    async fn open(&self, batch_size: usize) -> Result<Scheduler> {
        Scheduler::for_inference(&self.model)
            .adapters(chosen(self.adapters.as_deref()).await?)
            .runtime(self.runtime.clone())
            .capacity(capacity_of(batch_size, 1)?)
            .open()
            .await
    }
}

/// Blocking forms of async functions; not in a page.
#[cfg(not(target_arch = "wasm32"))]
impl Predictor {
    /// Predicts on other adapters: see [`choose`](adapters::choose). Blocks until they are listed.
    ///
    /// # Errors
    /// If one is not there.
    pub fn adapters(self, wanted: &str) -> Result<Self> {
        pollster::block_on(self.adapters_async(wanted))
    }

    /// The outputs for a dataset, `[rows, …]` each, in the order of its rows. Blocks until it is done.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub fn predict(&mut self, dataset: impl Dataset + 'static, batch_size: usize) -> Result<Vec<ArrayD<f32>>> {
        pollster::block_on(self.predict_async(Arc::new(dataset), batch_size))
    }
}
