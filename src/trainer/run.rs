//! The trainer's use of adapters: opening them, single batches, evaluation and prediction.

use std::sync::Arc;

use ndarray::ArrayD;

use super::describe::check_meaning;
use super::meter::{self, Meter, Reports};
use super::{Fit, Opened, Trainer, Values};
use crate::adapters::{self, Info};
use crate::data::{ClassWeighted, Dataset, Loader, LoaderSettings, check_indices, check_labels, check_probabilities};
use crate::error::{Error, Result};
use crate::losses::Domain;
use crate::model::Model;
use crate::scheduler::timeline::Activity;
use crate::scheduler::{AdapterStatus, Scheduler, TrainingState};
use crate::shape::Shape;

/// Fewest rows that an adapter should get on average to be worth its fixed costs and to have useful statistics.
const FEW_ROWS: usize = 8;

impl Trainer {
    /// Opens the adapters for a run over `rows` training rows, if they are not open yet, and the file in which the run
    /// is saved, without blocking. Batches hold no more rows than the training or validation data.
    ///
    /// # Errors
    /// If no adapter can be opened, one can't run the model, or another run is, or was, saved to that file.
    pub async fn open_async(&mut self, fit: &Fit, rows: usize) -> Result<()> {
        self.claim_file(fit)?;
        let rows = fit.validation.as_ref().map_or(rows, |validation| rows.max(validation.len()));
        self.open_for(fit.batch_size.min(rows), fit.micro_batches).await
    }

    pub(super) async fn open_for(&mut self, batch_size: usize, accumulation_steps: u32) -> Result<()> {
        let fits = |opened: &Opened| opened.capacity >= batch_size && opened.accumulation_steps == accumulation_steps;
        if self.scheduler.as_ref().is_some_and(fits) {
            return Ok(());
        }
        let capacity = capacity_of(batch_size, accumulation_steps)?;
        if let Some(opened) = self.scheduler.as_mut().filter(|opened| opened.accumulation_steps == accumulation_steps) {
            let plan = opened.scheduler.plan().clone();
            opened.scheduler.reload(plan, capacity).await?;
            opened.capacity = batch_size;
            self.follow_rewind();
            return Ok(());
        }
        self.sync_state().await?;
        self.close();
        let adapters = chosen(self.adapters.as_deref()).await?;
        let objective = self.compile.objective();
        let mut scheduler = Scheduler::builder(&self.model, &objective)
            .adapters(adapters)
            .opener(self.throttles.wrap(self.opener.clone()))
            .runtime(self.runtime.clone())
            .split(self.split.clone())
            .capacity(capacity)
            .cpu_fallback(self.cpu_fallback)
            .micro_batches(accumulation_steps)
            .state(self.state.clone())
            .open()
            .await?;
        if let Some(timeline) = self.timeline.take() {
            scheduler.timeline_mut().go_on(timeline);
        }
        self.state = TrainingState::default();
        self.scheduler = Some(Opened { scheduler, capacity: batch_size, accumulation_steps });
        Ok(())
    }

    /// Closes the adapters, if they are open. Their state stays.
    pub(super) fn close(&mut self) {
        if let Some(mut opened) = self.scheduler.take() {
            self.timeline = Some(std::mem::take(opened.scheduler.timeline_mut()));
            self.state = opened.scheduler.into_state();
        }
    }

    /// Adapters opened for training serve inference, too.
    async fn open_for_inference(&mut self, batch_size: usize) -> Result<()> {
        let accumulation_steps = self.scheduler.as_ref().map_or(1, |opened| opened.accumulation_steps);
        self.open_for(batch_size, accumulation_steps).await
    }

    pub(super) fn opened(&mut self) -> Result<&mut Scheduler> {
        match &mut self.scheduler {
            Some(opened) => Ok(&mut opened.scheduler),
            None => Err(Error::adapter(
                "the trainer",
                "needs open adapters, but has none",
                "call `fit` or `evaluate` first",
            )),
        }
    }

    /// Copies state and model from the adapters.
    pub(super) async fn sync(&mut self) -> Result<()> {
        self.sync_state().await?;
        let state = self.scheduler.as_ref().map_or(&self.state, |opened| opened.scheduler.state());
        self.model.weights.clone_from(&state.weights);
        Ok(())
    }

    /// Copies the state from the adapters. If the only one is lost it is that of the last snapshot.
    pub(super) async fn sync_state(&mut self) -> Result<()> {
        let Some(opened) = &mut self.scheduler else { return Ok(()) };
        opened.scheduler.sync().await?;
        let is_on_device = opened.scheduler.is_on_device();
        self.follow_rewind();
        self.snapshot = is_on_device.then(|| self.progress.clone());
        Ok(())
    }

    /// Weights, statistics and optimizer state as of the last [`sync_state`](Self::sync_state).
    pub(super) fn state(&self) -> &TrainingState {
        self.scheduler.as_ref().map_or(&self.state, |opened| opened.scheduler.state())
    }

    /// Copies the state to the host if it is on a single adapter and the last copy is `steps` steps old.
    pub(super) async fn take_snapshot(&mut self, steps: u64) -> Result<()> {
        let age = self.snapshot.as_ref().map_or(u64::MAX, |progress| self.progress.step - progress.step);
        if age >= steps && self.opened()?.is_on_device() { self.sync_state().await } else { Ok(()) }
    }

    /// Rewinds with the scheduler, if it did: see [`rewind`](Self::rewind). Returns whether it did.
    pub(super) fn follow_rewind(&mut self) -> bool {
        let is_rewound = self.scheduler.as_mut().is_some_and(|opened| opened.scheduler.take_rewound());
        if is_rewound {
            self.rewind();
        }
        is_rewound
    }

    /// Sets the position to that of the snapshot after the loss of the only adapter; the CPU adapter trains.
    ///
    /// Steps since the snapshot are trained again, and reported again.
    pub(super) fn rewind(&mut self) {
        if let Some(progress) = self.snapshot.clone() {
            log::warn!("resuming after step {}, {} steps back", progress.step, self.progress.step - progress.step);
            self.progress = progress;
        }
        // They belonged to the lost adapter.
        self.throttles.clear();
        self.note_adapters();
    }

    /// Keeps the list of open adapters for the next opening.
    pub(super) fn note_adapters(&mut self) {
        if let Some(opened) = &self.scheduler {
            let stays = |(info, status): (&Info, _)| (status != AdapterStatus::Left).then(|| info.clone());
            let statuses = opened.scheduler.statuses();
            self.adapters = Some(opened.scheduler.adapters().zip(statuses).filter_map(stays).collect());
        }
    }

    /// Sends changed weights of the model to all adapters.
    pub(super) fn push_weights(&mut self) {
        let weights = self.model.weights.clone();
        match &mut self.scheduler {
            Some(opened) => {
                let state = TrainingState { weights, ..opened.scheduler.state().clone() };
                opened.scheduler.restore(state);
            }
            None => self.state.weights = weights,
        }
    }

    /// Loss and metrics of the epoch so far.
    pub(super) fn running(&self) -> Values {
        self.progress.meter.values(&self.compile, &self.model.outputs())
    }

    /// Loss and metrics of a dataset at inference, without blocking.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub async fn evaluate_async(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Values> {
        self.check_data(dataset.as_ref())?;
        loop {
            let values = self.evaluate_once(dataset.clone(), batch_size).await?;
            // All rows are to see the same weights.
            if !self.follow_rewind() {
                return Ok(values);
            }
        }
    }

    async fn evaluate_once(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Values> {
        self.open_for_inference(batch_size.min(dataset.len())).await?;
        let mut loader = Loader::new(dataset, LoaderSettings { batch_size, ..self.reading.clone() })?;
        loader.start_epoch(0, 0);
        let mut meter = Meter::default();
        let penalty = self.penalty().await?;
        loop {
            let begin_ms = self.runtime.now_ms();
            let Some(batch) = loader.next_async().await? else { break };
            self.trace(Activity::Data, begin_ms);
            let scales = meter::loss_scales(&self.compile, &self.model.outputs(), &batch);
            let reports = self.opened()?.evaluate(&batch, scales).await?;
            let reports = Reports { rows: &reports, penalty };
            meter.add(&self.compile, &self.model.outputs(), &reports, &batch);
        }
        Ok(meter.values(&self.compile, &self.model.outputs()))
    }

    /// Penalties of the parameters at this moment.
    pub(super) async fn penalty(&mut self) -> Result<f64> {
        let penalty = self.opened()?.penalty().await?;
        self.follow_rewind();
        Ok(penalty)
    }

    /// The outputs for a dataset, `[rows, …]` each, in the order of its rows, without blocking.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub async fn predict_async(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Vec<ArrayD<f32>>> {
        check_inputs(&self.model, dataset.as_ref())?;
        check_meaning(&self.model, &dataset.schema())?;
        loop {
            let outputs = self.predict_once(dataset.clone(), batch_size).await?;
            if !self.follow_rewind() {
                return Ok(outputs);
            }
        }
    }

    async fn predict_once(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Vec<ArrayD<f32>>> {
        self.open_for_inference(batch_size.min(dataset.len())).await?;
        let shapes = output_shapes(&self.model);
        let reading = LoaderSettings { batch_size, ..self.reading.clone() };
        predict_with(self.opened()?, &shapes, dataset, reading).await
    }

    /// Checks that a dataset has the shapes and labels that model and losses need, before anything runs.
    ///
    /// # Errors
    /// If not: which shape, or the first label that is no class.
    pub fn check_data(&self, dataset: &dyn Dataset) -> Result<()> {
        check_inputs(&self.model, dataset)?;
        let schema = dataset.schema();
        check_meaning(&self.model, &schema)?;
        self.check_classes(&schema)?;
        let outputs = self.model.outputs();
        let targets: Vec<Shape> =
            outputs.iter().zip(&self.compile.losses).map(|((_, shape), loss)| loss.target_shape(shape)).collect();
        let names: Vec<(&str, &Shape)> = outputs.iter().map(|(name, _)| *name).zip(&targets).collect();
        check_shapes("target for output", &names, &dataset.target_shapes())?;
        for (output, ((_, shape), loss)) in outputs.iter().zip(&self.compile.losses).enumerate() {
            match loss.target(shape).domain {
                Domain::Classes(classes) => check_labels(dataset, output, classes)?,
                Domain::Probabilities => check_probabilities(dataset, output)?,
                Domain::Numbers => {}
            }
        }
        Ok(())
    }

    /// The numbers that an epoch reports.
    pub fn log_names(&self, has_validation: bool) -> Vec<String> {
        let names = meter::names(&self.compile, &self.model.outputs());
        let validation = has_validation.then(|| names.iter().map(|name| format!("val_{name}")).collect::<Vec<_>>());
        names.iter().cloned().chain(validation.into_iter().flatten()).collect()
    }

    /// The training data, with the weights of their classes where a run has them.
    pub(super) fn class_weighted(&self, train: Arc<dyn Dataset>, fit: &Fit) -> Result<Arc<dyn Dataset>> {
        let Some((highest, _)) = fit.class_weight.last_key_value() else { return Ok(train) };
        let weighted = ClassWeighted::new(train, fit.class_weight.clone())?;
        let (_, shape) = self.model.outputs()[0];
        let target = self.compile.losses[0].target(shape);
        let classes = match (target.domain, target.shape.len()) {
            (Domain::Classes(classes), 1) => classes,
            (Domain::Probabilities, 1) => 2,
            (Domain::Probabilities, classes) => classes,
            _ => {
                return Err(Error::setting(
                    "`class_weight`",
                    "needs a loss whose targets are one class for each row, but has another",
                    "give sample weights instead",
                ));
            }
        };
        if *highest >= classes {
            return Err(Error::setting(
                "`class_weight`",
                format!("needs classes from 0 to {}, but names {highest}", classes - 1),
                "count the classes from 0",
            ));
        }
        Ok(Arc::new(weighted))
    }

    /// Warns, as Keras does, that no layer is trainable.
    pub(super) fn warn_of_frozen(&self) {
        if self.model.layout().trainable().is_empty() {
            log::warn!("the model has no trainable weights: training changes nothing");
        }
    }

    /// Refuses changes of trainable layers by a callback: plans and optimizer state depend on them.
    pub(super) fn check_frozen(&self) -> Result<()> {
        let is_same = |opened: &Opened| opened.scheduler.layout() == self.model.layout();
        if self.scheduler.as_ref().is_none_or(is_same) {
            return Ok(());
        }
        Err(Error::model(
            "the model of the run",
            "needs the trainable layers that the run began with, but a callback changed them",
            "end the run, freeze or unfreeze layers of its model, and make a new trainer of that",
        ))
    }

    pub(super) fn warn_of_small_batches(&self, batch_size: usize, rows: usize) {
        let Some(opened) = &self.scheduler else { return };
        let n_adapters = opened.scheduler.adapters().count();
        if n_adapters > 1 && batch_size < FEW_ROWS * n_adapters {
            log::warn!(
                "a batch of {batch_size} rows is small for {n_adapters} adapters: some will get none\n  \
                 help: use {} rows or more, or fewer adapters",
                FEW_ROWS * n_adapters
            );
        }
        let last = rows % batch_size.max(1);
        if last > 0 && last < FEW_ROWS && self.model.has_batch_statistics() {
            log::warn!(
                "the last batch of each epoch has only {last} rows, too few for batch normalization\n  \
                 help: use another batch size, or `drop_remainder`"
            );
        }
    }
}

/// Rows that an adapter must be able to run at once.
///
/// # Errors
/// If there are more than can be counted.
pub(super) fn capacity_of(batch_size: usize, accumulation_steps: u32) -> Result<u32> {
    let rows = batch_size.div_ceil(accumulation_steps.max(1) as usize);
    u32::try_from(rows).map_err(|_| {
        Error::setting("batch_size", format!("needs less than 2^32 rows for an adapter, but got {rows}"), "32 is usual")
    })
}

/// The chosen adapters, else those of the environment, else the default.
pub(super) async fn chosen(adapters: Option<&[Info]>) -> Result<Vec<Info>> {
    match adapters {
        Some(adapters) => Ok(adapters.to_vec()),
        None => {
            let wanted = std::env::var(adapters::ADAPTERS_VARIABLE).unwrap_or_default();
            adapters::choose(&adapters::list_async().await, &wanted)
        }
    }
}

pub(super) async fn predict_with(
    scheduler: &mut Scheduler,
    shapes: &[Shape],
    dataset: Arc<dyn Dataset>,
    reading: LoaderSettings,
) -> Result<Vec<ArrayD<f32>>> {
    let rows = dataset.len();
    let mut loader = Loader::new(dataset, reading)?;
    loader.start_epoch(0, 0);
    let mut outputs: Vec<Vec<f32>> = vec![Vec::new(); shapes.len()];
    while let Some(batch) = loader.next_async().await? {
        let parts = scheduler.predict(&batch).await?;
        outputs.iter_mut().zip(parts).for_each(|(output, part)| output.extend(part));
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

pub(super) fn check_inputs(model: &Model, dataset: &dyn Dataset) -> Result<()> {
    let names: Vec<(&str, &Shape)> = model.inputs().iter().map(|input| (input.name.as_str(), &input.shape)).collect();
    check_shapes("input", &names, &dataset.input_shapes())?;
    for (idx, (name, _)) in names.iter().enumerate() {
        model.index_bound(idx).map_or(Ok(()), |bound| check_indices(dataset, idx, name, bound))?;
    }
    Ok(())
}

fn check_shapes(kind: &str, needed: &[(&str, &Shape)], got: &[Shape]) -> Result<()> {
    if needed.len() != got.len() {
        return Err(Error::data(
            "the dataset",
            format!("needs to have {} arrays as {kind}, but has {}", needed.len(), got.len()),
            "give one array for each, in the model's order",
        ));
    }
    for ((name, needed), got) in needed.iter().zip(got) {
        // A column of shape [1] and a scalar hold the same elements.
        let same = *needed == got
            || (needed.len() == got.len() && needed.rank().abs_diff(got.rank()) == 1 && needed.last() == 1);
        let same = same || (got.last() == 1 && got.rank() == needed.rank() + 1 && got.len() == needed.len());
        if !same {
            return Err(Error::data(
                format!("{kind} `{name}`"),
                format!("needs shape {needed}, but the dataset gives {got}"),
                "reshape the data, or change the model's input or last layer to fit it",
            ));
        }
    }
    Ok(())
}
