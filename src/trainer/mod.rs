//! The trainer: `fit`, `evaluate`, `predict` over any number of adapters.

mod advice;
#[cfg(not(target_arch = "wasm32"))]
mod blocking;
mod callbacks;
mod checkpoint;
mod describe;
#[cfg(feature = "files")]
mod files;
mod fit;
mod live;
mod log;
mod meter;
mod predictor;
mod run;
mod saver;
mod steps;
mod time;

use std::path::PathBuf;
use std::sync::Arc;

use crate::adapters::{self, Info, Opener, Throttles};
use crate::data::LoaderSettings;
use crate::error::{Error, Problem, Result};
use crate::losses::{Loss, Metric, Reduction};
use crate::model::{Model, Objective};
use crate::optimizers::{Optimizer, Schedule};
use crate::plan::{BatchStatistics, GradientCompression};
use crate::runtime::{self, Runtime};
use crate::scheduler::split::SplitMode;
use crate::scheduler::timeline::Timeline;
use crate::scheduler::{CpuFallback, Scheduler, TrainingState};

use self::saver::Saver;
pub use callbacks::{Callback, EarlyStopping, EpochEnd, Flow, Monitor};
pub use checkpoint::{Checkpoint, Progress};
#[cfg(feature = "files")]
pub use files::{CsvLog, JsonLog};
pub use fit::Fit;
pub use live::Session;
pub use log::{AdapterLog, EpochLog, History, StepLog, Values};
pub use meter::Meter;
pub use predictor::Predictor;
pub use saver::{Existing, SaveSettings};

/// What to do with a step whose gradient is not finite. It is never applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// End the run with an error that names step, adapter and node.
    #[default]
    Stop,
    /// Warn, and go on with the next batch.
    Skip,
}

/// What training is for, as Keras' `compile`.
#[derive(Clone, Debug)]
pub struct Compile {
    /// How parameters are updated.
    pub optimizer: Optimizer,
    /// Loss of each output.
    pub losses: Vec<Loss>,
    /// Weight of each output's loss; 1 where none is given.
    pub loss_weights: Vec<f32>,
    /// How the rows' losses become one.
    pub reduction: Reduction,
    /// Metrics of each output; those that go with its loss where none are given.
    pub metrics: Vec<Vec<Metric>>,
    /// Global norm above which gradients are scaled down.
    pub clip_norm: Option<f32>,
    /// What gradients are on their way to the host. One adapter that updates by itself sends none.
    pub gradient_compression: GradientCompression,
    /// Whose mean and variance batch normalization takes where several adapters share a batch.
    pub batch_statistics: BatchStatistics,
    /// Learning rate over the steps.
    pub schedule: Schedule,
    /// Batch size for which the learning rate was chosen: with another batch it is scaled in proportion.
    /// Source: Goyal et al. 2017, arXiv:1706.02677.
    pub learning_rate_batch: Option<usize>,
    /// What to do with values that are not finite.
    pub non_finite: NonFinite,
    /// Seed of shuffling and dropout.
    pub seed: u64,
}

impl Compile {
    /// One optimizer and one loss, for a model with one output.
    pub fn new(optimizer: impl Into<Optimizer>, loss: impl Into<Loss>) -> Self {
        Self {
            optimizer: optimizer.into(),
            losses: vec![loss.into()],
            loss_weights: Vec::new(),
            reduction: Reduction::default(),
            metrics: Vec::new(),
            clip_norm: None,
            gradient_compression: GradientCompression::None,
            batch_statistics: BatchStatistics::default(),
            schedule: Schedule::default(),
            learning_rate_batch: None,
            non_finite: NonFinite::default(),
            seed: 0,
        }
    }

    fn objective(&self) -> Objective {
        Objective {
            losses: self.losses.clone(),
            optimizer: self.optimizer.clone(),
            clip_norm: self.clip_norm.unwrap_or(0.0),
            gradient_compression: self.gradient_compression,
            batch_statistics: self.batch_statistics,
        }
    }

    fn loss_weight(&self, output: usize) -> f32 {
        self.loss_weights.get(output).copied().unwrap_or(1.0)
    }

    fn metrics_of(&self, output: usize) -> Vec<Metric> {
        let default = || vec![Metric::default_of(self.losses[output].function())];
        self.metrics.get(output).cloned().unwrap_or_else(default)
    }
}

/// Trains a model over the adapters of the machine.
///
/// ```
/// use manyhands::data::digits;
/// use manyhands::layers::{Dense, Flatten};
/// use manyhands::{Compile, Fit, Loss, Optimizer, Sequential, Trainer};
/// # fn main() -> manyhands::Result<()> {
/// let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
/// let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
/// let mut trainer = Trainer::new(model, compile)?.adapters("cpu")?;
/// trainer.fit(digits::train()?, &Fit::new(5))?;
/// let accuracy = trainer.evaluate(digits::test()?, 64)?.get("accuracy").unwrap();
/// assert!(accuracy > 0.9, "{accuracy}");
/// # Ok(())
/// # }
/// ```
pub struct Trainer {
    model: Model,
    compile: Compile,
    runtime: Arc<dyn Runtime>,
    opener: Opener,
    adapters: Option<Vec<Info>>,
    split: SplitMode,
    cpu_fallback: CpuFallback,
    throttles: Throttles,
    scheduler: Option<Opened>,
    /// The state to open adapters with; while they are open, it is the scheduler's.
    state: TrainingState,
    progress: Progress,
    /// The position of the scheduler's copy of the state, where the only adapter may be ahead of it.
    snapshot: Option<Progress>,
    /// Of adapters that were open, for those that are opened next.
    timeline: Option<Timeline>,
    /// How evaluation and prediction read their data.
    reading: LoaderSettings,
    /// Of a run that is saved.
    saver: Option<Saver>,
    /// The file that this run was resumed from, or saved to.
    own_file: Option<PathBuf>,
    /// The step at which it was resumed.
    resumed_step: Option<u64>,
    /// Has a validation loss of this run been finite?
    was_validation_finite: bool,
}

/// Adapters that are open, for batches of up to `capacity` rows.
struct Opened {
    scheduler: Scheduler,
    capacity: usize,
    accumulation_steps: u32,
}

impl Trainer {
    /// A trainer on the adapters that the environment variable `MANYHANDS_ADAPTERS` names, else on all GPUs, or the CPU
    /// where there are none.
    ///
    /// # Errors
    /// If losses, metrics and outputs do not go together, or a setting is out of its range.
    pub fn new(model: Model, compile: Compile) -> Result<Self> {
        compile.schedule.check()?;
        check_compile(&model, &compile)?;
        model.plan(&compile.objective())?;
        let state = TrainingState::new(model.weights.clone(), &compile.optimizer);
        let progress = Progress { learning_rate: compile.optimizer.learning_rate(), ..Progress::default() };
        Ok(Self {
            model,
            compile,
            runtime: runtime::system(),
            opener: Arc::new(adapters::open),
            adapters: None,
            split: SplitMode::default(),
            cpu_fallback: CpuFallback::default(),
            throttles: Throttles::default(),
            scheduler: None,
            state,
            progress,
            snapshot: None,
            timeline: None,
            reading: LoaderSettings::default(),
            saver: None,
            own_file: None,
            resumed_step: None,
            was_validation_finite: false,
        })
    }

    /// Trains on these adapters. One may stand twice, and is then opened twice.
    #[must_use]
    pub fn on(mut self, adapters: Vec<Info>) -> Self {
        self.adapters = Some(adapters);
        self.close();
        self
    }

    /// Splits batches in another way than by measured speed.
    #[must_use]
    pub fn split(mut self, split: SplitMode) -> Self {
        self.split = split;
        self.close();
        self
    }

    /// Threads that read the data of evaluation and prediction; within a run those of [`Fit`] do.
    #[must_use]
    pub fn workers(mut self, n_workers: usize) -> Self {
        self.reading.workers = n_workers;
        self
    }

    /// What happens when every adapter is lost.
    #[must_use]
    pub fn cpu_fallback(mut self, fallback: CpuFallback) -> Self {
        self.cpu_fallback = fallback;
        self
    }

    /// Makes the adapter at a position of the list in use `factor` times as slow, by waiting: to see what a slower one
    /// would do. Holds from when it is opened, or at once if it is open.
    #[must_use]
    pub fn throttle(self, adapter_idx: usize, factor: f64) -> Self {
        self.throttles.set(adapter_idx, factor);
        self
    }

    /// Makes an adapter `factor` times as slow, also while training.
    pub fn set_throttle(&mut self, adapter_idx: usize, factor: f64) {
        self.throttles.set(adapter_idx, factor);
    }

    /// How many times as slow an adapter is made.
    pub fn throttle_of(&self, adapter_idx: usize) -> f64 {
        self.throttles.of(adapter_idx)
    }

    /// Opens adapters in another way: in other workers of a page, for example.
    #[must_use]
    pub fn opener(mut self, opener: Opener) -> Self {
        self.opener = opener;
        self
    }

    /// Runs on another clock, timer and spawn than the native ones.
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = runtime;
        self
    }

    /// The model, with the weights of the last finished epoch.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model, with the weights of the last finished epoch.
    pub fn into_model(self) -> Model {
        self.model
    }

    /// How far training has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The scheduler, once adapters are open: to read buffers back, or to take an adapter away.
    pub fn scheduler(&mut self) -> Option<&mut Scheduler> {
        self.scheduler.as_mut().map(|opened| &mut opened.scheduler)
    }

    /// Continues from a checkpoint: weights, statistics, optimizer state, and the position in the data.
    ///
    /// # Errors
    /// If the checkpoint is of another model or optimizer. Then nothing is changed.
    pub fn resume(&mut self, checkpoint: Checkpoint) -> Result<()> {
        checkpoint.check_fits(&self.model, &self.compile.optimizer)?;
        self.close();
        self.model.weights = checkpoint.state.weights.clone();
        self.model.schema = checkpoint.model.schema;
        self.state = checkpoint.state;
        self.progress = checkpoint.progress;
        (self.own_file, self.resumed_step) = (checkpoint.file, Some(self.progress.step));
        let (rate, old_rate) = (self.compile.optimizer.learning_rate(), checkpoint.optimizer.learning_rate());
        // A rate that was changed on purpose counts; what plateaus took off it stays off.
        if rate != old_rate && old_rate > 0.0 {
            self.progress.learning_rate *= rate / old_rate;
        } else if rate != old_rate {
            self.progress.learning_rate = rate;
        }
        self.snapshot = None;
        Ok(())
    }
}

fn check_compile(model: &Model, compile: &Compile) -> Result<()> {
    let outputs = model.outputs().len();
    let refuse = |who: &str, problem: String, help: &str| Err(Error::setting(who, problem, help));
    if compile.losses.len() != outputs {
        return refuse(
            "losses",
            format!("need one for each of {outputs} outputs, but got {}", compile.losses.len()),
            "give the losses in the order of the model's outputs",
        );
    }
    for (output, loss) in compile.losses.iter().enumerate() {
        for metric in compile.metrics_of(output) {
            metric.check(loss.function()).map_err(|Problem { problem, help }| {
                Error::setting(format!("metric `{}` of output {output}", metric.name()), problem, help)
            })?;
        }
    }
    meter::check_names(compile, &model.outputs())?;
    if compile.clip_norm.is_some_and(|norm| !(norm > 0.0 && norm.is_finite())) {
        return refuse(
            "clip_norm",
            format!("needs to be above 0, but is {:?}", compile.clip_norm),
            "1.0 is usual; leave it out for none",
        );
    }
    Ok(())
}
