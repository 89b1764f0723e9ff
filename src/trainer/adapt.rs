//! Adapts `Normalization` layers to the data: mean and variance of their inputs.

use std::sync::Arc;

use super::AsyncTrainer;
use super::adapters::capacity_of;
use super::needs::check_inputs;
use crate::data::{Dataset, Loader, LoaderSettings};
use crate::error::Result;
use crate::model::Model;
use crate::runtime::Runtime;
use crate::scheduler::Scheduler;
use manyhands_engine::adapters::cpu;

/// Rows that are read at once.
const ROWS: usize = 256;

/// Mean and squared deviations of each place, merged batch by batch. Source: Chan, Golub, LeVeque 1979.
struct Moments {
    /// Values that each place has seen.
    count: f64,
    mean: Vec<f64>,
    deviations: Vec<f64>,
}

impl Moments {
    fn new(places: usize) -> Self {
        Self { count: 0.0, mean: vec![0.0; places], deviations: vec![0.0; places] }
    }

    /// Adds the elements of whole rows; `places` says which place each element of a row belongs to.
    #[allow(clippy::cast_precision_loss, reason = "a batch has fewer than 2^52 values")]
    fn add(&mut self, values: &[f32], places: &[usize]) {
        let count = (values.len() / self.mean.len()) as f64;
        let rows = || values.chunks_exact(places.len()).flat_map(|row| row.iter().zip(places));
        let mut means = vec![0.0; self.mean.len()];
        rows().for_each(|(value, place)| means[*place] += f64::from(*value));
        means.iter_mut().for_each(|mean| *mean /= count);
        let mut deviations = vec![0.0; self.mean.len()];
        rows().for_each(|(value, place)| deviations[*place] += (f64::from(*value) - means[*place]).powi(2));
        let all = self.count + count;
        let merged = self.mean.iter_mut().zip(&mut self.deviations).zip(means.iter().zip(&deviations));
        for ((mean, squares), (batch_mean, batch_squares)) in merged {
            let delta = batch_mean - *mean;
            *mean += delta * count / all;
            *squares += batch_squares + delta * delta * self.count * count / all;
        }
        self.count = all;
    }

    #[allow(clippy::cast_possible_truncation, reason = "statistics are f32")]
    fn mean(&self) -> Vec<f32> {
        self.mean.iter().map(|mean| *mean as f32).collect()
    }

    #[allow(clippy::cast_possible_truncation, reason = "statistics are f32")]
    fn variance(&self) -> Vec<f32> {
        self.deviations.iter().map(|squares| (squares / self.count) as f32).collect()
    }
}

/// Sets mean and variance of each `Normalization` of a model that lacks them from its inputs, in order.
async fn adapt(model: &mut Model, dataset: &Arc<dyn Dataset>, runtime: &Arc<dyn Runtime>) -> Result<()> {
    for adapted in model.adapted() {
        if dataset.is_empty() {
            return Ok(());
        }
        let rows = ROWS.min(dataset.len());
        let part = model.up_to(adapted.input);
        let scheduler = Scheduler::for_inference(&part).adapters(vec![cpu::info()]);
        let mut scheduler = scheduler.runtime(runtime.clone()).capacity(capacity_of(rows, 1)?).open().await?;
        let mut loader =
            Loader::new(dataset.clone(), LoaderSettings { batch_size: rows, ..LoaderSettings::default() })?;
        loader.start_epoch(0, 0);
        let n_places = adapted.places.iter().max().map_or(1, |last| last + 1);
        let mut moments = Moments::new(n_places);
        while let Some(batch) = loader.next_async().await? {
            moments.add(&scheduler.predict(&batch).await?[0], &adapted.places);
        }
        for (name, values) in [("mean", moments.mean()), ("variance", moments.variance())] {
            if let Some(tensor) = model.tensor_mut(&format!("{}/{name}", adapted.layer)) {
                tensor.copy_from_slice(&values);
            }
        }
        log::info!("`{}` is adapted to {} rows", adapted.layer, dataset.len());
    }
    Ok(())
}

impl AsyncTrainer<'_> {
    /// Sets mean and variance of each `Normalization` that lacks them from its inputs, without blocking.
    ///
    /// The rows are read once for each such layer, on the CPU. Call it before `fit`, with the rows to train on; a model from
    /// a file has its means already.
    ///
    /// # Errors
    /// If the data does not fit the model, or can't be read.
    pub async fn adapt(&mut self, dataset: Arc<dyn Dataset>) -> Result<()> {
        check_inputs(&self.trainer.model, dataset.as_ref())?;
        self.trainer.sync().await?;
        adapt(&mut self.trainer.model, &dataset, &self.trainer.adapters.runtime).await?;
        self.trainer.adapters.take_weights(&self.trainer.model);
        Ok(())
    }
}
