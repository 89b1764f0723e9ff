//! The trainer, driven batch by batch.

use std::ops::Range;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manyhands::adapters::{Info, MemoryLimits};
use manyhands::data;
use manyhands::logs::{StepLog, Values};
use manyhands::model::Evaluation;
use manyhands::scheduler::timeline::{Lane, Span, Tracing};
use manyhands::scheduler::{Scheduler, TrainingState};
use manyhands::trainer::{CheckedBatch, Meter, check_outputs};
use manyhands::{BatchStatistics, Compile, Loss, Metric, Optimizer, Placement, Precision, Reduction, SplitMode};
use manyhands_engine::adapters::{Opener, Request, open};
use manyhands_engine::plan::Layout;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Deserialize;

use crate::adapters::{Described, chosen, described};
use crate::batch::{Batch, Check, Rows, places};
use crate::epoch::{Listener, Tally, Wanted, raised};
use crate::errors::detached;
use crate::model::copy_values;
use crate::{epoch, given, log, model};

/// Settings of training, in Python's form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Objective {
    optimizer: Optimizer,
    #[serde(deserialize_with = "given::losses")]
    losses: Vec<Loss>,
    loss_weights: Vec<f32>,
    metrics: Vec<Vec<Metric>>,
    reduction: Reduction,
    clip_norm: Option<f32>,
    batch_statistics: BatchStatistics,
    #[serde(default)]
    precision: Precision,
    seed: u64,
}

impl Objective {
    /// Losses and metrics, as a model file keeps them.
    pub(crate) fn evaluation(self) -> Evaluation {
        let Self { losses, loss_weights, reduction, metrics, .. } = self;
        Evaluation { losses, loss_weights, reduction, metrics, target_means: Vec::new() }
    }

    fn compile(self) -> Compile {
        let mut compile = Compile::with_losses(self.optimizer, self.losses)
            .loss_weights(self.loss_weights)
            .batch_statistics(self.batch_statistics)
            .precision(self.precision)
            .seed(self.seed);
        (compile.metrics, compile.reduction, compile.clip_norm) = (self.metrics, self.reduction, self.clip_norm);
        compile
    }
}

/// The adapters of a model and what each of them computes, in Python's form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rig {
    /// Choice of adapters; empty for the default ones.
    adapters: String,
    /// A share of the rows for each; empty for even ones, none for learned ones.
    shares: Option<Vec<f64>>,
    /// Limits of the memory that the model takes on each.
    memory: Option<String>,
    /// As in a settings file.
    placement: serde_json::Value,
    micro_batches: u32,
}

impl Rig {
    fn split(&mut self) -> SplitMode {
        match self.shares.take() {
            None => SplitMode::Learned,
            Some(shares) if shares.is_empty() => SplitMode::Even,
            Some(shares) => SplitMode::Fixed(shares),
        }
    }

    /// A trainer on the adapters, which it names in order.
    pub(crate) fn trainer(
        mut self,
        model: manyhands::Model,
        compile: Compile,
    ) -> manyhands::Result<(Vec<Info>, manyhands::Trainer)> {
        let adapters = chosen(&self.adapters)?;
        let limits = self.memory.as_deref().map_or_else(|| Ok(MemoryLimits::default()), str::parse)?;
        limits.check(&adapters)?;
        let trainer = manyhands::Trainer::new(model, compile)?.on(adapters.clone()).memory(limits);
        let trainer = trainer.split(self.split()).placement(self.placement()?).micro_batches(self.micro_batches);
        Ok((adapters, trainer))
    }

    fn placement(&mut self) -> manyhands::Result<Placement> {
        let read = |error| {
            let help = "name the layers and the adapters of each stage: `[{\"layers\": [\"..hidden\"], \"adapters\": [0]}, ...]`";
            manyhands::Error::setting("`placement`", format!("can't be read: {error}"), help)
        };
        serde_json::from_value(self.placement.take()).map_err(read)
    }
}

/// Results of a step: loss and metrics, and the rows of each adapter by its position.
type Ended = (Vec<(String, f64)>, Vec<(usize, u32)>);

/// The learning rate of the next step.
enum Rate {
    Fixed(f32),
    /// Python says it.
    Asked(Py<PyAny>),
}

impl Rate {
    fn next(&self) -> PyResult<f32> {
        match self {
            Self::Fixed(rate) => Ok(*rate),
            Self::Asked(rate) => Python::attach(|py| rate.call0(py)?.extract(py)),
        }
    }
}

/// The training steps of an epoch.
struct Steps<'a> {
    trainer: &'a Trainer,
    /// Steps that have begun and not ended.
    n_begun: usize,
    tally: &'a mut Tally,
}

impl Steps<'_> {
    fn run(
        &mut self,
        batches: &Receiver<manyhands::Result<CheckedBatch>>,
        rate: &Rate,
        waits: bool,
        listener: &mut Listener<'_>,
    ) -> PyResult<()> {
        let mut wanted = Wanted::More;
        loop {
            let next = if wanted == Wanted::More { batches.recv().ok() } else { None };
            let may_go_on = match next {
                Some(batch) => self.begin(batch.map_err(|error| raised(&error))?, rate.next()?)?,
                None => {
                    // That was the last.
                    wanted = Wanted::NoMore;
                    false
                }
            };
            if may_go_on && !waits {
                continue;
            }
            if self.n_begun == 0 {
                return Ok(());
            }
            self.end()?;
            if listener.hear(self.tally)? == Wanted::NoMore {
                wanted = Wanted::NoMore;
            }
        }
    }

    /// Begins a step; whether another may begin before it ends.
    fn begin(&mut self, batch: CheckedBatch, rate: f32) -> PyResult<bool> {
        let mut trainer = self.trainer.lock();
        trainer.set_learning_rate(rate);
        pollster::block_on(trainer.asynchronous().begin_checked_on_batch(batch)).map_err(|error| raised(&error))?;
        self.n_begun += 1;
        Ok(trainer.wants_batch())
    }

    fn end(&mut self) -> PyResult<()> {
        let log =
            pollster::block_on(self.trainer.lock().asynchronous().end_on_batch()).map_err(|error| raised(&error))?;
        self.n_begun -= 1;
        self.tally.add(log.rows, listed(&log.running), &shards(&log));
        Ok(())
    }
}

/// Called to destroy a device.
type Plugs = Arc<Mutex<Vec<Box<dyn Fn() + Send>>>>;

/// Opens adapters so that they can be taken away.
fn opener(plugs: &Plugs) -> Opener {
    let plugs = plugs.clone();
    Arc::new(move |info, actor, runtime, events| {
        let handle = open(info, actor, runtime, events)?;
        let requests = handle.requests.clone();
        let plug = move || drop(requests.try_send(Request::Lose));
        plugs.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(plug));
        Ok(handle)
    })
}

/// A model in training on some adapters.
#[pyclass(frozen, module = "manyhands_ml._native")]
pub(crate) struct Trainer {
    trainer: Mutex<manyhands::Trainer>,
    /// Handles that destroy each adapter's device, in the order in which they were opened.
    plugs: Plugs,
    adapters: Vec<Info>,
    optimizer: Optimizer,
    /// Loss and metrics of batches that are tested one by one.
    tested: Mutex<Meter>,
}

#[pymethods]
impl Trainer {
    /// A trainer for an architecture and an objective on adapters, all as JSON.
    #[new]
    fn new(py: Python<'_>, model: &str, objective: &str, rig: &str) -> PyResult<Self> {
        log::install();
        let model = model::build(py, model)?;
        let compile = model::read::<Objective>(py, "the objective", objective)?.compile();
        let rig = model::read::<Rig>(py, "the adapters", rig)?;
        detached(py, || {
            let (plugs, optimizer) = (Plugs::default(), compile.optimizer.clone());
            let (adapters, trainer) = rig.trainer(model, compile)?;
            let trainer = Mutex::new(trainer.opener(opener(&plugs)));
            Ok(Self { trainer, plugs, adapters, optimizer, tested: Mutex::default() })
        })
    }

    /// The adapters, in order.
    #[getter]
    fn adapters(&self) -> Vec<Described> {
        self.adapters.iter().map(described).collect()
    }

    /// Training steps done.
    #[getter]
    fn step(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().progress().step)
    }

    /// The learning rate of the steps that begin from now on.
    #[getter]
    fn learning_rate(&self, py: Python<'_>) -> f32 {
        py.detach(|| self.lock().progress().learning_rate)
    }

    /// Sets it.
    fn set_learning_rate(&self, py: Python<'_>, rate: f32) {
        py.detach(|| self.lock().set_learning_rate(rate));
    }

    /// Destroys the device of the adapter that was opened as number `position`, as a driver that fails does: for tests.
    fn lose(&self, py: Python<'_>, position: usize) {
        py.detach(|| {
            let plugs = self.plugs.lock().unwrap_or_else(PoisonError::into_inner);
            plugs.get(position).into_iter().for_each(|plug| plug());
        });
    }

    /// The requirements for batches of `begin`, for a thread that reads them.
    fn check(&self, py: Python<'_>) -> Check {
        Check(py.detach(|| self.lock().batch_check()))
    }

    /// Takes in a batch, and begins its step where the adapters can; whether another may begin before the oldest ends.
    fn begin(&self, py: Python<'_>, batch: &Batch, rate: f32) -> PyResult<bool> {
        detached(py, || {
            let mut trainer = self.lock();
            trainer.set_learning_rate(rate);
            match &batch.checked {
                Some(checked) => pollster::block_on(trainer.asynchronous().begin_checked_on_batch(checked.clone()))?,
                None => pollster::block_on(trainer.asynchronous().begin_on_batch(batch.values.clone()))?,
            }
            Ok(trainer.wants_batch())
        })
    }

    /// Ends the oldest step: its numbers, and how many rows each adapter had, by its position.
    fn end(&self, py: Python<'_>) -> PyResult<Ended> {
        let log = detached(py, || pollster::block_on(self.lock().asynchronous().end_on_batch()))?;
        Ok((listed(&log.values), shards(&log)))
    }

    /// Trains on batches of rows in an order, and tells of what was done so far: after each step, or every so many
    /// milliseconds. Where adapters can, a step begins before the oldest is told, unless it `waits` for that. `rate` is a learning
    /// rate, or is called for that of each step; without it, the optimizer's stays. Training ends early where `tell` gives something
    /// true.
    #[pyo3(signature = (rows, order, batch_size, rate, tell, waits, every_ms=None))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by name")]
    fn train(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, Rows>,
        order: PyReadonlyArray1<'_, i64>,
        batch_size: usize,
        rate: Option<&Bound<'_, PyAny>>,
        tell: Py<PyAny>,
        waits: bool,
        every_ms: Option<u64>,
    ) -> PyResult<()> {
        let rate = match rate {
            Some(rate) if rate.is_callable() => Rate::Asked(rate.clone().unbind()),
            Some(rate) => Rate::Fixed(rate.extract()?),
            None => Rate::Fixed(py.detach(|| self.lock().progress().learning_rate)),
        };
        py.detach(|| self.lock().reset_metrics());
        let mut tally = Tally::default();
        let mut listener = Listener::new(&tell, every_ms);
        let check = py.detach(|| self.lock().batch_check());
        let order: Arc<[usize]> = places(&order)?.into();
        // The arrays are there for the whole epoch: a lost adapter's batches are gathered again, and need no memory until then.
        let source = Arc::new((rows.clone().unbind(), order.clone()));
        let checked = |places: Range<usize>, batch| {
            let source = source.clone();
            let batch = check.check_rows(batch, &order[places.clone()])?;
            Ok(batch.remade_by(move || gathered(&source.0, &source.1[places.clone()])))
        };
        epoch::each(py, rows.get(), &order, batch_size, checked, |batches| {
            let mut steps = Steps { trainer: self, n_begun: 0, tally: &mut tally };
            let trained = steps.run(batches, &rate, waits, &mut listener);
            if trained.is_err() {
                // What has begun comes to its end, so that the weights are whole.
                while steps.n_begun > 0 && steps.end().is_ok() {}
            }
            trained.and_then(|()| listener.tell(&tally).map(drop))
        })
    }

    /// Begins a new timeline, and keeps the spans of all work from now on.
    fn start_timeline(&self, py: Python<'_>, batch_size: usize) -> PyResult<()> {
        detached(py, || pollster::block_on(self.lock().asynchronous().start_timeline(batch_size, Tracing::On)))
    }

    /// Names of the adapters by position; the newest spans; how many older ones were dropped.
    fn timeline(&self, py: Python<'_>) -> (Vec<String>, Vec<Told>, u64) {
        py.detach(|| {
            let trainer = self.lock();
            let names = trainer.open_adapters().into_iter().map(|adapter| adapter.info.name).collect();
            let Some(timeline) = trainer.scheduler().map(Scheduler::timeline) else { return (names, Vec::new(), 0) };
            (names, timeline.spans().map(told).collect(), timeline.n_dropped())
        })
    }

    /// Loss and metrics of a batch at inference.
    fn test(&self, py: Python<'_>, batch: &Batch) -> PyResult<Vec<(String, f64)>> {
        let values = detached(py, || self.lock().test_on_batch(&batch.values))?;
        Ok(listed(&values))
    }

    /// Loss and metrics at inference of a batch and those before it, back to the last that was the first.
    fn count(&self, py: Python<'_>, batch: &Batch, is_first: bool) -> PyResult<Vec<(String, f64)>> {
        let values = detached(py, || {
            let mut meter = self.tested.lock().unwrap_or_else(PoisonError::into_inner);
            if is_first {
                *meter = Meter::default();
            }
            self.counted(&batch.values, &mut meter)
        })?;
        Ok(listed(&values))
    }

    /// Forgets loss and metrics of the steps so far.
    fn reset_metrics(&self, py: Python<'_>) {
        py.detach(|| self.lock().reset_metrics());
    }

    /// Loss and metrics of the steps since they were forgotten.
    fn metrics(&self, py: Python<'_>) -> Vec<(String, f64)> {
        listed(&py.detach(|| self.lock().metrics_on_batch()))
    }

    /// Loss and metrics of rows at inference, batch by batch: told as by `train`.
    #[pyo3(signature = (rows, batch_size, tell, every_ms=None))]
    fn evaluate(
        &self,
        py: Python<'_>,
        rows: &Rows,
        batch_size: usize,
        tell: Py<PyAny>,
        every_ms: Option<u64>,
    ) -> PyResult<()> {
        let (mut tally, mut meter) = (Tally::default(), Meter::default());
        let mut listener = Listener::new(&tell, every_ms);
        let check = py.detach(|| self.lock().batch_check());
        epoch::each(
            py,
            rows,
            &(0..rows.rows()).collect::<Vec<_>>(),
            batch_size,
            |places, batch| (places.collect::<Vec<_>>(), batch),
            |batches| {
                for (rows, batch) in batches {
                    let values = self.counted(&batch, &mut meter);
                    // Found again by the rows of the arrays, where a value is refused.
                    let found = |error| check.check_rows(batch.clone(), &rows).err().unwrap_or(error);
                    let values = values.map_err(|error| raised(&found(error)))?;
                    tally.add(batch.rows, listed(&values), &[]);
                    if listener.hear(&tally)? == Wanted::NoMore {
                        break;
                    }
                }
                listener.tell(&tally).map(drop)
            },
        )
    }

    /// The outputs of a batch, flat, as the next training step computes them.
    fn forward<'py>(&self, py: Python<'py>, batch: &Batch) -> PyResult<Vec<Bound<'py, PyArray1<f32>>>> {
        let outputs = detached(py, || pollster::block_on(self.lock().asynchronous().forward_on_batch(&batch.values)))?;
        Ok(outputs.into_iter().map(|values| PyArray1::from_vec(py, values)).collect())
    }

    /// The outputs for a batch, flat.
    fn predict<'py>(&self, py: Python<'py>, batch: &Batch) -> PyResult<Vec<Bound<'py, PyArray1<f32>>>> {
        let outputs = detached(py, || self.lock().predict_on_batch(&batch.values))?;
        Ok(outputs.into_iter().map(|values| PyArray1::from_vec(py, values)).collect())
    }

    /// The outputs for rows, flat, batch by batch: told as by `train`.
    #[pyo3(signature = (rows, batch_size, tell, every_ms=None))]
    fn predict_rows<'py>(
        &self,
        py: Python<'py>,
        rows: &Rows,
        batch_size: usize,
        tell: Py<PyAny>,
        every_ms: Option<u64>,
    ) -> PyResult<Vec<Bound<'py, PyArray1<f32>>>> {
        let mut tally = Tally::default();
        let mut listener = Listener::new(&tell, every_ms);
        detached(py, || check_outputs(self.lock().model(), rows.rows()))?;
        let check = py.detach(|| self.lock().batch_check());
        let outputs = epoch::each(
            py,
            rows,
            &(0..rows.rows()).collect::<Vec<_>>(),
            batch_size,
            |places, batch| (places.collect::<Vec<_>>(), batch),
            |batches| {
                let mut outputs: Vec<Vec<f32>> = Vec::new();
                for (rows, batch) in batches {
                    let values = self.lock().predict_on_batch(&batch);
                    let found = |error| check.check_input_rows(&batch, &rows).err().unwrap_or(error);
                    let values = values.map_err(|error| raised(&found(error)))?;
                    outputs.resize_with(values.len(), Vec::new);
                    outputs.iter_mut().zip(&values).for_each(|(output, values)| output.extend_from_slice(values));
                    tally.add(batch.rows, Vec::new(), &[]);
                    if listener.hear(&tally)? == Wanted::NoMore {
                        break;
                    }
                }
                listener.tell(&tally)?;
                Ok(outputs)
            },
        )?;
        Ok(outputs.into_iter().map(|values| PyArray1::from_vec(py, values)).collect())
    }

    /// Weights and statistics by name, `layer/tensor`, after all steps that have begun.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dict(py, detached(py, || self.copied(|state, layout| Ok(weights(state, layout))))?)
    }

    /// Weights and statistics as `tensors` gives them, and the state of the optimizer by kind and name,
    /// `momentum/layer/tensor`.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let kinds = self.optimizer.state_names();
        let both =
            |state: &TrainingState, layout: &Layout| Ok((weights(state, layout), moments(state, layout, &kinds)));
        let (weights, moments) = detached(py, || self.copied(both))?;
        Ok((dict(py, weights)?, dict(py, moments)?))
    }

    /// Goes on from these weights and this state of the optimizer, as after `step` steps. What is not named stays.
    fn set_tensors(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyDict>,
        optimizer: &Bound<'_, PyDict>,
        step: u64,
    ) -> PyResult<()> {
        // Before the first step it is that of the beginning.
        let kept = |state: &TrainingState| if step == 0 { Vec::new() } else { state.optimizer.clone() };
        let copied = |state: &TrainingState, layout: &Layout| Ok((state.weights.clone(), kept(state), layout.clone()));
        let (mut weights, optimizer_state, layout) = detached(py, || self.copied(copied))?;
        // Packed parameters stay as they are.
        for placed in layout.parameters.iter().filter(|placed| placed.packing.is_none()) {
            copy(tensors, &placed.name, &mut weights.parameters[placed.segment as usize][placed.range()])?;
        }
        for placed in &layout.statistics {
            copy(tensors, &placed.name, &mut weights.statistics[placed.range()])?;
        }
        let mut state = match step {
            0 => TrainingState::new(weights, &layout, &self.optimizer),
            _ => TrainingState { weights, optimizer: optimizer_state },
        };
        for (kind, segments) in self.optimizer.state_names().iter().zip(&mut state.optimizer) {
            for placed in layout.trainable() {
                let name = format!("{kind}/{}", placed.name);
                copy(optimizer, &name, &mut segments[placed.segment as usize][placed.range()])?;
            }
        }
        detached(py, || pollster::block_on(self.lock().asynchronous().set_state(state, step)))
    }
}

impl Trainer {
    /// Never while the interpreter's lock is held: whoever has this one may need that one for a warning.
    fn lock(&self) -> MutexGuard<'_, manyhands::Trainer> {
        self.trainer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loss and metrics at inference of the batches of a meter, to which this one is added.
    fn counted(&self, batch: &data::Batch, meter: &mut Meter) -> manyhands::Result<Values> {
        let mut trainer = self.lock();
        pollster::block_on(trainer.asynchronous().count_on_batch(batch, meter))?;
        Ok(trainer.metrics_of(meter))
    }

    /// A function's copy of parts of the current state; the layout has the position of each tensor in it.
    fn copied<T>(&self, copy: impl FnOnce(&TrainingState, &Layout) -> manyhands::Result<T>) -> manyhands::Result<T> {
        let mut trainer = self.lock();
        let layout = trainer.model().layout().clone();
        copy(pollster::block_on(trainer.asynchronous().current_state())?, &layout)
    }
}

/// A span as Python gets it: the adapter's position, or none for the host; work, begin and length in milliseconds, step, rows.
type Told = (Option<usize>, &'static str, f64, f64, Option<u64>, u32);

fn told(span: &Span) -> Told {
    let adapter = match span.lane {
        Lane::Host => None,
        Lane::Adapter(position) => Some(position),
    };
    (adapter, span.what.name(), span.start_ms, span.ms, span.step, span.rows)
}

/// Name, shape and values of tensors.
type Tensors = Vec<(String, Vec<usize>, Vec<f32>)>;

/// Copies of weights, but packed ones, and of statistics.
fn weights(state: &TrainingState, layout: &Layout) -> Tensors {
    let (parameters, statistics) = (&state.weights.parameters, &state.weights.statistics);
    let parameters = layout.parameters.iter().filter(|placed| placed.packing.is_none()).map(|placed| {
        let values = &parameters[placed.segment as usize][placed.range()];
        (placed.name.clone(), placed.shape.clone(), values.to_vec())
    });
    let statistics = layout
        .statistics
        .iter()
        .map(|placed| (placed.name.clone(), placed.shape.clone(), statistics[placed.range()].to_vec()));
    parameters.chain(statistics).collect()
}

/// Copies of the optimizer's state, by kind and name.
fn moments(state: &TrainingState, layout: &Layout, kinds: &[&str]) -> Tensors {
    let of_kind = |(kind, segments): (&&str, &Vec<Vec<f32>>)| -> Tensors {
        let named = layout.trainable().iter().map(|placed| {
            let values = &segments[placed.segment as usize][placed.range()];
            (format!("{kind}/{}", placed.name), placed.shape.clone(), values.to_vec())
        });
        named.collect()
    };
    kinds.iter().zip(&state.optimizer).flat_map(of_kind).collect()
}

/// Tensors as Python gets them: they are not copied again.
fn dict(py: Python<'_>, tensors: Tensors) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, shape, values) in tensors {
        dict.set_item(name, PyArray1::from_vec(py, values).reshape(shape)?)?;
    }
    Ok(dict)
}

pub(crate) fn listed(values: &Values) -> Vec<(String, f64)> {
    values.iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn shards(log: &StepLog) -> Vec<(usize, u32)> {
    log.adapters.iter().map(|shard| (shard.adapter, shard.rows)).collect()
}

/// A batch of rows, for a thread without the interpreter's lock.
fn gathered(rows: &Py<Rows>, places: &[usize]) -> manyhands::Result<data::Batch> {
    Python::attach(|py| rows.get().lent(py, |lent| lent.batch(places))).map_err(|error| {
        let problem = format!("need to be read again for a lost adapter, but can't be: {error}");
        manyhands::Error::data("the rows of a step", problem, "leave the arrays as they are while `fit` runs")
    })
}

/// Copies an array over the values of the tensor of its name, if there is one.
fn copy(tensors: &Bound<'_, PyDict>, name: &str, values: &mut [f32]) -> PyResult<()> {
    tensors.get_item(name)?.map_or(Ok(()), |array| copy_values(&array, name, values))
}
