//! The trainer: `fit`, `evaluate`, `predict` over any number of adapters.

mod adapt;
mod advice;
#[cfg(not(target_arch = "wasm32"))]
mod blocking;
mod callbacks;
mod checkpoint;
mod compile;
mod describe;
#[cfg(feature = "files")]
mod files;
mod fit;
mod live;
mod log;
mod meter;
mod on_batch;
mod predictor;
mod run;
mod saver;
mod status;
mod steps;
mod time;

use std::path::PathBuf;
use std::sync::Arc;

use crate::adapters::{self, Info, Opener, Throttles};
use crate::data::LoaderSettings;
use crate::error::Result;
use crate::model::Model;
use crate::runtime::{self, Runtime};
use crate::scheduler::split::SplitMode;
use crate::scheduler::timeline::Timeline;
use crate::scheduler::{CpuFallback, Scheduler, TrainingState};

use self::on_batch::Brought;
use self::saver::Saver;
pub use callbacks::{Callback, EarlyStopping, EpochEnd, Flow, Monitor};
pub use checkpoint::{Checkpoint, Progress};
pub use compile::{Compile, NonFinite};
#[cfg(feature = "files")]
pub use files::{CsvLog, JsonLog};
pub use fit::Fit;
pub use live::Session;
pub use log::{AdapterLog, EpochLog, History, StepLog, Values};
pub use meter::Meter;
pub use predictor::Predictor;
pub use saver::{Existing, SaveSettings};
pub use status::OpenAdapter;

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
    /// State for opening adapters; while they are open, the scheduler owns it.
    state: TrainingState,
    progress: Progress,
    /// Position of the scheduler's copy of the state, which the only adapter may be ahead of.
    snapshot: Option<Progress>,
    /// Times of the last adapters, kept while others are opened.
    timeline: Option<Timeline>,
    /// Settings by which evaluation and prediction read their data.
    reading: LoaderSettings,
    /// Writer of checkpoints, for a run that is saved.
    saver: Option<Saver>,
    /// The file that this run was resumed from, or saved to.
    own_file: Option<PathBuf>,
    /// The step at which it was resumed.
    resumed_step: Option<u64>,
    /// Whether a validation loss of this run was finite.
    was_validation_finite: bool,
    /// Batches that the caller brings.
    brought: Brought,
}

/// Open adapters, for batches of up to `capacity` rows.
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
        compile.check(&model)?;
        meter::check_names(&compile, &model.outputs())?;
        model.plan(&compile.objective())?;
        let state = TrainingState::new(model.weights.clone(), model.layout(), &compile.optimizer);
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
            brought: Brought::default(),
        })
    }

    /// Trains on other adapters, without blocking: see [`choose`](adapters::choose).
    ///
    /// # Errors
    /// If one is not there.
    pub async fn adapters_async(self, wanted: &str) -> Result<Self> {
        let chosen = adapters::choose(&adapters::list_async().await, wanted)?;
        Ok(self.on(chosen))
    }

    /// Trains on these adapters. An adapter may be listed twice, and is then opened twice.
    #[must_use]
    pub fn on(mut self, adapters: Vec<Info>) -> Self {
        self.adapters = Some(adapters);
        self.close();
        self
    }

    /// Sets another split than by measured speed.
    #[must_use]
    pub fn split(mut self, split: SplitMode) -> Self {
        self.split = split;
        self.close();
        self
    }

    /// Sets the number of threads that read data for evaluation and prediction; within a run [`Fit`] sets it.
    #[must_use]
    pub fn workers(mut self, n_workers: usize) -> Self {
        self.reading.workers = n_workers;
        self
    }

    /// Sets whether the CPU takes over when every adapter is lost.
    #[must_use]
    pub fn cpu_fallback(mut self, fallback: CpuFallback) -> Self {
        self.cpu_fallback = fallback;
        self
    }

    /// Slows the adapter at a position of the list down by `factor`, by waiting, to try a slower one. Takes effect when
    /// the adapter is opened, or at once if it is open.
    #[must_use]
    pub fn throttle(self, adapter_idx: usize, factor: f64) -> Self {
        self.throttles.set(adapter_idx, factor);
        self
    }

    /// Slows an adapter down by `factor`; may be called while training.
    pub fn set_throttle(&mut self, adapter_idx: usize, factor: f64) {
        self.throttles.set(adapter_idx, factor);
    }

    /// Factor by which an adapter is slowed down.
    pub fn throttle_of(&self, adapter_idx: usize) -> f64 {
        self.throttles.of(adapter_idx)
    }

    /// Sets the opener of adapters: workers of a page, for example.
    #[doc(hidden)]
    #[must_use]
    pub fn opener(mut self, opener: Opener) -> Self {
        self.opener = opener;
        self
    }

    /// Sets another clock, timer and spawn than the native ones.
    #[doc(hidden)]
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

    /// Position of training.
    pub fn progress(&self) -> &Progress {
        &self.progress
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
        // A rate that was changed on purpose counts; reductions by plateaus stay.
        if rate != old_rate && old_rate > 0.0 {
            self.progress.learning_rate *= rate / old_rate;
        } else if rate != old_rate {
            self.progress.learning_rate = rate;
        }
        self.snapshot = None;
        Ok(())
    }
}
