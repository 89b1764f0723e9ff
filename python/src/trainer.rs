//! The trainer, driven batch by batch.

use std::sync::{Mutex, MutexGuard, PoisonError};

use manyhands::adapters::Info;
use manyhands::internals::plan::Placed;
use manyhands::internals::scheduler::TrainingState;
use manyhands::logs::{StepLog, Values};
use manyhands::{BatchStatistics, Compile, Error, Loss, Metric, Model, Optimizer, Reduction, SplitMode};
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Deserialize;

use crate::adapters::{Described, chosen, described};
use crate::batch::Batch;
use crate::errors::{detached, exception};
use crate::{log, model};

/// What training is for, as Python writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Objective {
    optimizer: Optimizer,
    losses: Vec<Loss>,
    loss_weights: Vec<f32>,
    metrics: Vec<Vec<Metric>>,
    reduction: Reduction,
    clip_norm: Option<f32>,
    batch_statistics: BatchStatistics,
    seed: u64,
}

impl Objective {
    fn compile(self) -> Compile {
        let Self { optimizer, losses, loss_weights, metrics, reduction, clip_norm, batch_statistics, seed } = self;
        Compile {
            losses,
            loss_weights,
            metrics,
            reduction,
            clip_norm,
            batch_statistics,
            seed,
            ..Compile::new(optimizer, Loss::MEAN_SQUARED_ERROR)
        }
    }
}

/// What a step gave: loss and metrics, and how many rows each adapter had, by its position.
type Stepped = (Vec<(String, f64)>, Vec<(usize, u32)>);

/// A model in training on some adapters.
#[pyclass(frozen, module = "manyhands_ml._native")]
pub(crate) struct Trainer {
    trainer: Mutex<manyhands::Trainer>,
    adapters: Vec<Info>,
    optimizer: Optimizer,
}

#[pymethods]
impl Trainer {
    /// A trainer for an architecture and an objective, both as JSON. `split` is `learned`, `even`, or a share for each
    /// adapter; without `adapters`, the default ones are taken.
    #[new]
    #[pyo3(signature = (model, objective, adapters, shares=None))]
    fn new(py: Python<'_>, model: &str, objective: &str, adapters: &str, shares: Option<Vec<f64>>) -> PyResult<Self> {
        log::install();
        let model = model::build(py, model)?;
        let compile = model::read::<Objective>(py, "the objective", objective)?.compile();
        let split = match shares {
            None => SplitMode::Learned,
            Some(shares) if shares.is_empty() => SplitMode::Even,
            Some(shares) => SplitMode::Fixed(shares),
        };
        detached(py, || {
            let (adapters, optimizer) = (chosen(adapters)?, compile.optimizer.clone());
            let trainer = manyhands::Trainer::new(model, compile)?.on(adapters.clone()).split(split);
            Ok(Self { trainer: Mutex::new(trainer), adapters, optimizer })
        })
    }

    /// The adapters, in order.
    #[getter]
    fn adapters(&self) -> Vec<Described> {
        self.adapters.iter().map(described).collect()
    }

    /// Training steps done.
    #[getter]
    fn step(&self) -> u64 {
        self.lock().progress().step
    }

    /// Takes in a batch, and begins its step where the adapters can.
    fn begin(&self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let batch = batch.0.clone();
        detached(py, || pollster::block_on(self.lock().begin_on_batch(batch)))
    }

    /// Ends the oldest step.
    fn end(&self, py: Python<'_>) -> PyResult<Stepped> {
        let log = detached(py, || pollster::block_on(self.lock().end_on_batch()))?;
        Ok(stepped(&log))
    }

    /// Loss and metrics of a batch at inference.
    fn test(&self, py: Python<'_>, batch: &Batch) -> PyResult<Vec<(String, f64)>> {
        let values = detached(py, || self.lock().test_on_batch(&batch.0))?;
        Ok(listed(&values))
    }

    /// The outputs for a batch, flat.
    fn predict<'py>(&self, py: Python<'py>, batch: &Batch) -> PyResult<Vec<Bound<'py, PyArray1<f32>>>> {
        let outputs = detached(py, || self.lock().predict_on_batch(&batch.0))?;
        Ok(outputs.into_iter().map(|values| PyArray1::from_vec(py, values)).collect())
    }

    /// Learning rate of the steps that begin from now on.
    fn set_learning_rate(&self, rate: f32) {
        self.lock().set_learning_rate(rate);
    }

    /// Weights and statistics by name, `layer/tensor`, after all steps that have begun.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (state, model) = self.state(py)?;
        let tensors = PyDict::new(py);
        let layout = model.layout();
        for placed in &layout.parameters {
            let values = &state.weights.parameters[placed.segment as usize][placed.range()];
            tensors.set_item(&placed.name, shaped(py, placed, values)?)?;
        }
        for placed in &layout.statistics {
            tensors.set_item(&placed.name, shaped(py, placed, &state.weights.statistics[placed.range()])?)?;
        }
        Ok(tensors)
    }

    /// State of the optimizer by kind and name, `momentum/layer/tensor`.
    fn optimizer_tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (state, model) = self.state(py)?;
        let tensors = PyDict::new(py);
        for (kind, segments) in self.optimizer.state_names().iter().zip(&state.optimizer) {
            for placed in model.layout().trainable() {
                let values = &segments[placed.segment as usize][placed.range()];
                tensors.set_item(format!("{kind}/{}", placed.name), shaped(py, placed, values)?)?;
            }
        }
        Ok(tensors)
    }

    /// Goes on from these weights and this state of the optimizer, as after `step` steps. What is not named stays.
    fn set_tensors(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyDict>,
        optimizer: &Bound<'_, PyDict>,
        step: u64,
    ) -> PyResult<()> {
        let (mut state, model) = self.state(py)?;
        let layout = model.layout();
        for placed in &layout.parameters {
            copy(tensors, &placed.name, &mut state.weights.parameters[placed.segment as usize][placed.range()])?;
        }
        for placed in &layout.statistics {
            copy(tensors, &placed.name, &mut state.weights.statistics[placed.range()])?;
        }
        for (kind, segments) in self.optimizer.state_names().iter().zip(&mut state.optimizer) {
            for placed in layout.trainable() {
                let name = format!("{kind}/{}", placed.name);
                copy(optimizer, &name, &mut segments[placed.segment as usize][placed.range()])?;
            }
        }
        detached(py, || pollster::block_on(self.lock().set_state(state, step)))
    }
}

impl Trainer {
    fn lock(&self) -> MutexGuard<'_, manyhands::Trainer> {
        self.trainer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of this moment, and the model that knows where each tensor stands in it.
    fn state(&self, py: Python<'_>) -> PyResult<(TrainingState, Model)> {
        detached(py, || {
            let mut trainer = self.lock();
            let state = pollster::block_on(trainer.current_state())?.clone();
            Ok((state, trainer.model().clone()))
        })
    }
}

fn listed(values: &Values) -> Vec<(String, f64)> {
    values.iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn stepped(log: &StepLog) -> Stepped {
    (listed(&log.values), log.adapters.iter().map(|shard| (shard.adapter, shard.rows)).collect())
}

fn shaped<'py>(py: Python<'py>, placed: &Placed, values: &[f32]) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    PyArray1::from_slice(py, values).reshape(placed.shape.clone())
}

/// Copies an array over the values of the tensor of its name.
fn copy(tensors: &Bound<'_, PyDict>, name: &str, values: &mut [f32]) -> PyResult<()> {
    let Some(array) = tensors.get_item(name)? else { return Ok(()) };
    let array = array.extract::<PyReadonlyArrayDyn<'_, f32>>()?;
    if array.len() != values.len() {
        let problem = format!("needs {} values, but got {}", values.len(), array.len());
        let error = Error::data(format!("tensor `{name}`"), problem, "give an array of the weight's shape");
        return Err(exception(tensors.py(), &error));
    }
    values.copy_from_slice(array.as_slice()?);
    Ok(())
}
