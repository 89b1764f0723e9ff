//! The trainer's dealings with adapters: opening them, single batches, evaluation and prediction.

use std::sync::Arc;

use super::describe::check_meaning;
use super::meter::{self, Meter};
use super::{Fit, Opened, Trainer, Values};
use crate::adapters::{self, Info};
use crate::data::{Dataset, Loader, LoaderSettings, check_labels, check_probabilities};
use crate::error::{Error, Result};
use crate::losses::Domain;
use crate::model::Model;
use crate::scheduler::timeline::What;
use crate::scheduler::{CpuFallback, RigSettings, Scheduler};
use crate::shape::Shape;

/// Fewest rows an adapter should get on average, for its fixed costs to be worth it and its statistics to mean something.
const FEW_ROWS: usize = 8;

impl Trainer {
    /// Opens the adapters as a run needs them, if they are not yet, without blocking.
    ///
    /// # Errors
    /// If no adapter can be opened, or one can't run the model.
    pub async fn open_async(&mut self, fit: &Fit) -> Result<()> {
        self.open_for(fit.batch_size, fit.micro_batches).await
    }

    /// The same for a data set: batches hold no more rows than there are.
    pub(super) async fn open_for_rows(&mut self, fit: &Fit, rows: usize) -> Result<()> {
        let rows = fit.validation.as_ref().map_or(rows, |validation| rows.max(validation.len()));
        self.open_for(fit.batch_size.min(rows), fit.micro_batches).await
    }

    async fn open_for(&mut self, batch_size: usize, accumulation_steps: u32) -> Result<()> {
        let fits = |opened: &Opened| opened.capacity >= batch_size && opened.accumulation_steps == accumulation_steps;
        if self.scheduler.as_ref().is_some_and(fits) {
            return Ok(());
        }
        if let Some(opened) = self.scheduler.as_mut().filter(|opened| opened.accumulation_steps == accumulation_steps) {
            let capacity = capacity_of(batch_size, accumulation_steps);
            let plan = opened.scheduler.plan().clone();
            match opened.scheduler.reload(plan, capacity).await {
                Ok(()) => {
                    opened.capacity = batch_size;
                    return Ok(());
                }
                Err(error) => self.fall_back(error)?,
            }
        }
        if let Some(opened) = &mut self.scheduler {
            match opened.scheduler.sync().await {
                Ok(state) => {
                    self.state = state.clone();
                    self.timeline = Some(std::mem::take(opened.scheduler.timeline_mut()));
                    self.scheduler = None;
                }
                Err(error) => self.fall_back(error)?,
            }
        }
        let adapters = chosen(self.adapters.as_deref()).await?;
        let settings = RigSettings {
            adapters,
            split: self.split.clone(),
            capacity: capacity_of(batch_size, accumulation_steps),
            cpu_fallback: self.cpu_fallback,
            accumulation_steps,
        };
        let objective = self.compile.objective();
        let (plan, layout) = (self.model.plan(&objective)?, self.model.layout().clone());
        let (runtime, state) = (self.runtime.clone(), self.state.clone());
        let n_adapters = settings.adapters.len();
        let opener = self.opener.clone();
        let mut scheduler =
            Scheduler::open_with(opener, runtime, settings, plan, layout, Some(&objective), state).await?;
        if accumulation_steps > 1 && scheduler.is_coupled() {
            return Err(Error::setting(
                "micro_batches",
                format!(
                    "needs to be 1 where batch-norm is `synchronized`, whose statistics are those of the whole batch, but is \
                     {accumulation_steps}"
                ),
                "leave it out, or set `synchronized = false`: then statistics are those of a micro-batch",
            ));
        }
        for (adapter_idx, factor) in self.throttles.iter().filter(|(adapter_idx, _)| **adapter_idx < n_adapters) {
            scheduler.throttle(*adapter_idx, *factor);
        }
        if let Some(timeline) = self.timeline.take() {
            scheduler.timeline_mut().go_on(timeline);
        }
        self.scheduler = Some(Opened { scheduler, capacity: batch_size, accumulation_steps });
        Ok(())
    }

    /// Adapters that train serve inference, too.
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

    /// Brings state and model up to date with the adapters.
    pub(super) async fn sync(&mut self) -> Result<()> {
        self.sync_state().await?;
        self.model.weights = self.state.weights.clone();
        Ok(())
    }

    /// Brings the state up to date with the adapters. If the only one is lost it is that of the last snapshot.
    pub(super) async fn sync_state(&mut self) -> Result<()> {
        let Some(opened) = &mut self.scheduler else { return Ok(()) };
        match opened.scheduler.sync().await {
            Ok(state) => self.state = state.clone(),
            Err(error) => return self.go_back(error).await,
        }
        self.snapshot = opened.scheduler.is_on_device().then(|| self.progress.clone());
        Ok(())
    }

    /// Copies the state to the host if it lives on a single adapter and the last copy is `steps` old.
    pub(super) async fn take_snapshot(&mut self, steps: u64) -> Result<()> {
        let age = self.snapshot.as_ref().map_or(u64::MAX, |progress| self.progress.step - progress.step);
        if age >= steps && self.opened()?.is_on_device() { self.sync_state().await } else { Ok(()) }
    }

    /// After the loss of the only adapter: goes on with the CPU adapter from the last snapshot, if that is allowed.
    ///
    /// Steps since the snapshot are trained again, and reported again.
    pub(super) async fn go_back(&mut self, error: Error) -> Result<()> {
        let opened = self.scheduler.as_ref().map_or((0, 1), |opened| (opened.capacity, opened.accumulation_steps));
        self.fall_back(error)?;
        self.open_for(opened.0, opened.1).await
    }

    /// The same without opening it: state and position are those of the snapshot, and no adapter is open.
    fn fall_back(&mut self, error: Error) -> Result<()> {
        let is_lost = self.scheduler.as_ref().is_some_and(|opened| !opened.scheduler.has_survivor());
        if !is_lost || self.cpu_fallback == CpuFallback::Refused {
            return Err(error);
        }
        let Some(progress) = self.snapshot.take() else { return Err(error) };
        let steps = self.progress.step - progress.step;
        log::warn!("{error}\n  the CPU adapter goes on from {steps} steps before");
        self.progress = progress;
        self.is_loader_off = true;
        self.timeline = self.scheduler.take().map(|mut lost| std::mem::take(lost.scheduler.timeline_mut()));
        self.adapters = Some(vec![adapters::cpu::info()]);
        // They were those of the adapter that is lost.
        self.throttles.clear();
        Ok(())
    }

    /// Gives changed weights of the model to all adapters.
    pub(super) fn push_weights(&mut self) {
        self.state.weights = self.model.weights.clone();
        if let Some(opened) = &mut self.scheduler {
            opened.scheduler.restore(self.state.clone());
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
        match self.evaluate_once(dataset.clone(), batch_size).await {
            Ok(values) => Ok(values),
            Err(error) => {
                self.go_back(error).await?;
                self.evaluate_once(dataset, batch_size).await
            }
        }
    }

    async fn evaluate_once(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Values> {
        self.open_for_inference(batch_size.min(dataset.len())).await?;
        let mut loader = Loader::new(dataset, LoaderSettings { batch_size, ..self.reading.clone() })?;
        loader.start_epoch(0, 0);
        let mut meter = Meter::default();
        loop {
            let begin_ms = self.runtime.now_ms();
            let Some(batch) = loader.next().await? else { break };
            self.trace(What::Data, begin_ms);
            let scales = meter::loss_scales(&self.compile, &self.model.outputs(), &batch);
            let reports = self.opened()?.evaluate(&batch, scales).await?;
            meter.add(&self.compile, &self.model.outputs(), &reports, &batch);
        }
        Ok(meter.values(&self.compile, &self.model.outputs()))
    }

    /// The outputs for a dataset in the order of its rows, without blocking.
    ///
    /// # Errors
    /// If the data does not fit the model, or an adapter fails beyond repair.
    pub async fn predict_async(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Vec<Vec<f32>>> {
        check_inputs(&self.model, dataset.as_ref())?;
        check_meaning(&self.model, &dataset.schema())?;
        match self.predict_once(dataset.clone(), batch_size).await {
            Ok(outputs) => Ok(outputs),
            Err(error) => {
                self.go_back(error).await?;
                self.predict_once(dataset, batch_size).await
            }
        }
    }

    async fn predict_once(&mut self, dataset: Arc<dyn Dataset>, batch_size: usize) -> Result<Vec<Vec<f32>>> {
        self.open_for_inference(batch_size.min(dataset.len())).await?;
        let n_outputs = self.model.outputs().len();
        let reading = LoaderSettings { batch_size, ..self.reading.clone() };
        predict_with(self.opened()?, n_outputs, dataset, reading).await
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
pub(super) fn capacity_of(batch_size: usize, accumulation_steps: u32) -> u32 {
    u32::try_from(batch_size.div_ceil(accumulation_steps.max(1) as usize)).unwrap_or(u32::MAX)
}

/// The adapters that were chosen, else those of the environment, else the default.
pub(super) async fn chosen(adapters: Option<&[Info]>) -> Result<Vec<Info>> {
    match adapters {
        Some(adapters) => Ok(adapters.to_vec()),
        None => {
            let wanted = std::env::var(adapters::ADAPTERS_VARIABLE).unwrap_or_default();
            adapters::choose(&adapters::list().await, &wanted)
        }
    }
}

pub(super) async fn predict_with(
    scheduler: &mut Scheduler,
    n_outputs: usize,
    dataset: Arc<dyn Dataset>,
    reading: LoaderSettings,
) -> Result<Vec<Vec<f32>>> {
    let mut loader = Loader::new(dataset, reading)?;
    loader.start_epoch(0, 0);
    let mut outputs: Vec<Vec<f32>> = vec![Vec::new(); n_outputs];
    while let Some(batch) = loader.next().await? {
        let parts = scheduler.predict(&batch).await?;
        outputs.iter_mut().zip(parts).for_each(|(output, part)| output.extend(part));
    }
    Ok(outputs)
}

pub(super) fn check_inputs(model: &Model, dataset: &dyn Dataset) -> Result<()> {
    let names: Vec<(&str, &Shape)> = model.inputs().iter().map(|input| (input.name.as_str(), &input.shape)).collect();
    check_shapes("input", &names, &dataset.input_shapes())
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
