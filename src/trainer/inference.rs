//! Evaluation and prediction with a trainer's adapters.

use std::sync::Arc;

use ndarray::ArrayD;

use super::meter::{self, Meter, Reports, Tally, Whole};
use super::needs::{Needs, check_inputs, check_meaning};
use super::{AsyncTrainer, Trainer, Values, share};
use crate::data::{Batch, Dataset, Loader, LoaderSettings, Part};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;
use crate::processes::Group;
use crate::runtime;
use crate::scheduler::Scheduler;
use crate::scheduler::timeline::Activity;
use crate::shape::Shape;
use crate::shown::bytes;
use crate::size::F32_BYTES;

impl Trainer {
    /// Loss and metrics of the batches that a meter has counted.
    #[doc(hidden)]
    pub fn metrics_of(&self, meter: &Meter) -> Values {
        meter.values(&self.compile, &self.model)
    }
}

impl AsyncTrainer<'_> {
    /// Loss and metrics of a dataset at inference, without blocking.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub async fn evaluate(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Values> {
        let evaluated = self.evaluate_here(dataset, batch_size).await;
        self.trainer.group().clone().shared(evaluated).await
    }

    async fn evaluate_here(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Values> {
        Needs::of(self.trainer).check_data(dataset.as_ref())?;
        loop {
            let values = self.evaluate_once(dataset.clone(), batch_size).await?;
            // All rows are to see the same weights.
            if !self.trainer.follow_rewind() {
                return Ok(values);
            }
        }
    }

    async fn evaluate_once(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Values> {
        self.open_for_inference(batch_size.min(dataset.len())).await?;
        let mut loader = Loader::new(dataset, LoaderSettings { batch_size, ..self.trainer.reading.clone() })?;
        self.trainer.share.part().into_iter().for_each(|part| loader.set_part(part));
        loader.start_epoch(0, 0);
        let mut meter = Meter::default();
        let penalty = self.penalty().await?;
        let penalty = share::own_penalty(&self.trainer.adapters.group, penalty);
        loop {
            let begin_ms = self.trainer.adapters.runtime.now_ms();
            let rows = loader.next_rows();
            let Some(batch) = loader.next_async().await? else { break };
            self.trainer.adapters.trace(Activity::Data, begin_ms);
            let whole = share::whole_of(
                &self.trainer.adapters.group,
                (&self.trainer.compile, &self.trainer.model),
                &batch,
                rows,
            )
            .await?;
            let scales = meter::loss_scales(&self.trainer.compile, &whole);
            let reports = self.trainer.adapters.scheduler()?.evaluate(&batch, scales).await?;
            let reports = Reports { rows: &reports, penalty };
            let mut tally = Tally::of(&self.trainer.compile, &self.trainer.model, &reports, &batch, &whole);
            share::add_up(&self.trainer.adapters.group, &mut tally).await?;
            meter.add(&self.trainer.compile, &self.trainer.model, &tally, whole.rows);
        }
        Ok(meter.values(&self.trainer.compile, &self.trainer.model))
    }

    /// The outputs for a dataset, `[rows, …]` each, in the order of its rows, without blocking.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub async fn predict(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Vec<ArrayD<f32>>> {
        let predicted = self.predict_here(dataset, batch_size).await;
        self.trainer.group().clone().shared(predicted).await
    }

    async fn predict_here(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Vec<ArrayD<f32>>> {
        check_inputs(&self.trainer.model, dataset.as_ref())?;
        check_meaning(&self.trainer.model, &dataset.schema())?;
        loop {
            let outputs = self.predict_once(dataset.clone(), batch_size).await?;
            if !self.trainer.follow_rewind() {
                return Ok(outputs);
            }
        }
    }

    async fn predict_once(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Vec<ArrayD<f32>>> {
        self.trainer.adapters.predicts = true;
        self.open_for_inference(batch_size.min(dataset.len())).await?;
        let shapes = output_shapes(&self.trainer.model);
        let reading = LoaderSettings { batch_size, ..self.trainer.reading.clone() };
        let (part, group) = (self.trainer.share.part(), self.trainer.group().clone());
        predict_with(self.trainer.adapters.scheduler()?, &shapes, dataset, reading, (part, &group)).await
    }

    /// Loss and metrics of a batch at inference, as Keras' `test_on_batch`.
    ///
    /// # Errors
    /// If the batch does not fit model and losses, or no adapter is left.
    pub async fn test_on_batch(&mut self, batch: &Batch) -> Result<Values> {
        self.count_on_batch(batch, &mut Meter::default()).await
    }

    /// Adds loss and metrics of a batch at inference to those of others; returns its own.
    ///
    /// # Errors
    /// If the batch does not fit model and losses, or no adapter is left.
    #[doc(hidden)]
    pub async fn count_on_batch(&mut self, batch: &Batch, meter: &mut Meter) -> Result<Values> {
        self.trainer.batch_check().check_all(batch)?;
        self.refuse_own_batches()?;
        self.open_for_inference(batch.rows).await?;
        let whole = Whole::of(&self.trainer.compile, &self.trainer.model, batch);
        let scales = meter::loss_scales(&self.trainer.compile, &whole);
        let penalty = self.penalty().await?;
        let reports = self.trainer.adapters.scheduler()?.evaluate(batch, scales).await?;
        self.trainer.follow_rewind();
        let reports = Reports { rows: &reports, penalty };
        let tally = Tally::of(&self.trainer.compile, &self.trainer.model, &reports, batch, &whole);
        Ok(meter.add(&self.trainer.compile, &self.trainer.model, &tally, batch.rows))
    }

    /// The outputs for a batch, one flat array for each, as Keras' `predict_on_batch`.
    ///
    /// # Errors
    /// If the inputs do not fit the model, or no adapter is left.
    pub async fn predict_on_batch(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        self.trainer.batch_check().check_inputs(batch)?;
        self.refuse_own_batches()?;
        check_outputs(&self.trainer.model, batch.rows)?;
        self.trainer.adapters.predicts = true;
        self.open_for_inference(batch.rows).await?;
        let outputs = self.trainer.adapters.scheduler()?.predict(batch).await?;
        self.trainer.follow_rewind();
        Ok(outputs)
    }

    /// Refuses batches that the caller brings to one of several processes.
    pub(super) fn refuse_own_batches(&self) -> Result<()> {
        self.trainer
            .group()
            .refuse("training and inference on batches of your own", "use `fit`, `evaluate` and `predict`")
    }

    /// Adapters opened for training serve inference, too.
    async fn open_for_inference(&mut self, batch_size: usize) -> Result<()> {
        self.open_for(batch_size, self.trainer.adapters.micro_batches().unwrap_or(self.trainer.micro_batches)).await
    }

    /// Penalties of the parameters at this moment.
    async fn penalty(&mut self) -> Result<f64> {
        let penalty = self.trainer.adapters.scheduler()?.penalty().await?;
        self.trainer.follow_rewind();
        Ok(penalty)
    }
}

/// Checks that the outputs of all rows fit in the memory that is free.
///
/// # Errors
/// If not: how much they need.
pub fn check_outputs(model: &Model, rows: usize) -> Result<()> {
    check_room(&output_shapes(model), rows)
}

fn check_room(shapes: &[Shape], rows: usize) -> Result<()> {
    let values = shapes.iter().fold(0_u64, |sum, shape| sum.saturating_add(shape.len() as u64));
    let needed = values.saturating_mul(rows as u64).saturating_mul(F32_BYTES);
    match runtime::free_if_below(needed) {
        None => Ok(()),
        Some(free) => Err(Error::new(
            ErrorKind::OutOfMemory,
            format!("the outputs of {rows} rows"),
            format!("need {}, but the system has {} free", bytes(needed), bytes(free)),
            "predict fewer rows at a time, or use a model with smaller outputs",
        )),
    }
}

/// The outputs of a scheduler for a dataset, whose rows have these shapes.
pub(super) async fn predict_with(
    scheduler: &mut Scheduler,
    shapes: &[Shape],
    dataset: Arc<dyn Dataset>,
    reading: LoaderSettings,
    (part, group): (Option<Part>, &Group),
) -> Result<Vec<ArrayD<f32>>> {
    let rows = dataset.len();
    check_room(shapes, rows)?;
    let mut loader = Loader::new(dataset, reading)?;
    part.into_iter().for_each(|part| loader.set_part(part));
    loader.start_epoch(0, 0);
    let mut outputs: Vec<Vec<f32>> = vec![Vec::new(); shapes.len()];
    while let Some(batch) = loader.next_async().await? {
        let parts = scheduler.predict(&batch).await?;
        for (output, part) in outputs.iter_mut().zip(parts) {
            let Some(joined) = group.joined() else {
                output.extend(part);
                continue;
            };
            // The rows of the processes, in order.
            for message in joined.all_gather(part.iter().flat_map(|value| value.to_le_bytes()).collect()).await? {
                output.extend(message.chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().unwrap_or_default())));
            }
        }
    }
    let shaped = |(values, shape): (Vec<f32>, &Shape)| {
        let axes: Vec<usize> = [rows].iter().chain(shape.axes()).copied().collect();
        ArrayD::from_shape_vec(axes, values)
            .map_err(|error| Error::data("an output", format!("needs the shape {shape}: {error}"), "predict again"))
    };
    outputs.into_iter().zip(shapes).map(shaped).collect()
}

/// Shape of a row of each output.
pub(super) fn output_shapes(model: &Model) -> Vec<Shape> {
    model.outputs().into_iter().map(|(_, shape)| shape.clone()).collect()
}
