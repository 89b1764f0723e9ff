//! The trainer: `fit`, `evaluate`, `predict` over any number of adapters.
//!
//! **Unstable**: for the packages of this repository. Names and behaviour change with any version.

// Files, by question. Settings: `compile.rs`, `fit.rs`, `save_settings.rs`. Adapters: `adapters.rs`, `memory.rs`, `auto.rs`
// (`no_auto.rs` without the feature `placer`), `rig.rs`. A run: `epochs.rs`, `steps.rs`, `progress.rs`, `loss_scale.rs`, `meter.rs`,
// `needs.rs` (checks of data), `adapt.rs`, `advice.rs`. Driven by the caller: `live.rs`, `on_batch.rs`, `batch_check.rs`. Without
// training: `inference.rs`, `predictor.rs`. Kept: `snapshots.rs` (on the host), `checkpoint.rs`, `saving.rs`, `saver.rs`,
// `model_checkpoint.rs` (in files). Reported: `callbacks.rs`, `log.rs`, `files.rs`, `tensorboard.rs`. Several processes: `share.rs`,
// `process_split.rs`, `alike.rs`. `asynchronous.rs`: what does not block; `blocking.rs`: the same, blocking.

mod adapt;
mod adapters;
mod advice;
mod alike;
mod asynchronous;
#[cfg_attr(not(feature = "placer"), path = "no_auto.rs")]
mod auto;
mod batch_check;
#[cfg(not(target_arch = "wasm32"))]
mod blocking;
mod callbacks;
mod checkpoint;
mod compile;
mod epochs;
#[cfg(feature = "files")]
mod files;
mod fit;
mod inference;
mod live;
mod log;
mod loss_scale;
mod memory;
mod meter;
mod model_checkpoint;
mod needs;
mod on_batch;
mod predictor;
mod process_split;
mod progress;
mod rig;
mod save_settings;
mod saver;
mod saving;
mod share;
mod snapshots;
mod steps;
#[cfg(all(feature = "files", not(target_arch = "wasm32")))]
mod tensorboard;

use std::sync::Arc;

use crate::data::{Dataset, LoaderSettings};
use crate::error::Result;
use crate::metrics::Reported;
use crate::model::Model;
use crate::placer::ChosenPlacement;
use crate::processes::Group;
use crate::runtime::Runtime;
use crate::scheduler::split::SplitMode;
use crate::scheduler::{CpuFallback, Placement, Scheduler, TrainingState};
use crate::schema::Schema;
use manyhands_engine::adapters::{Info, Opener};

use self::adapters::Adapters;
use self::needs::Needs;
use self::on_batch::Brought;
use self::saving::Saving;
use self::share::Share;
pub use adapters::OpenAdapter;
pub use asynchronous::AsyncTrainer;
pub use batch_check::{BatchCheck, CheckedBatch};
pub use callbacks::{Callback, EarlyStopping, EpochEnd, Flow, Monitor};
pub use checkpoint::Checkpoint;
pub use compile::{Compile, NonFinite};
#[cfg(feature = "files")]
pub use files::{CsvLog, JsonLog};
pub use fit::Fit;
pub use inference::check_outputs;
pub use live::Session;
pub use log::{AdapterLog, EpochLog, History, LoneStep, ProcessLog, SharedAdapterLog, StepLog, Values};
pub use loss_scale::LossScale;
pub use meter::Meter;
pub use model_checkpoint::ModelCheckpoint;
pub use predictor::Predictor;
pub use progress::Progress;
pub use save_settings::{Existing, SaveSettings};
#[cfg(all(feature = "files", not(target_arch = "wasm32")))]
pub use tensorboard::TensorBoard;

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
    adapters: Adapters,
    progress: Progress,
    /// Position of the host's copy of the state, which the only adapter may be ahead of.
    snapshot: Option<Progress>,
    /// Settings by which evaluation and prediction read their data.
    reading: LoaderSettings,
    /// Micro-batches of a batch that the caller brings.
    micro_batches: u32,
    saving: Saving,
    /// Batches that the caller brings.
    brought: Brought,
    /// Rows of this process, if it is one of several.
    share: Share,
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
        let progress = Progress::start(&compile);
        Ok(Self {
            model,
            compile,
            adapters: Adapters::new(state),
            progress,
            snapshot: None,
            reading: LoaderSettings::default(),
            micro_batches: 1,
            saving: Saving::default(),
            brought: Brought::default(),
            share: Share::default(),
        })
    }

    /// Trains on these adapters. An adapter may be listed twice, and is then opened twice.
    #[must_use]
    pub fn on(mut self, adapters: Vec<Info>) -> Self {
        self.adapters.choose(adapters);
        self
    }

    /// Sets another split than by measured speed.
    #[must_use]
    pub fn split(mut self, split: SplitMode) -> Self {
        self.adapters.choose_split(split);
        self
    }

    /// Keeps all adapters in training, even if it is faster without one of them: to show a split. It holds for adapters that are
    /// opened from now on.
    #[doc(hidden)]
    #[must_use]
    pub fn keep_all(mut self) -> Self {
        self.adapters.keeps_all = true;
        self
    }

    /// Sets where layers are computed: by default each adapter computes all of them.
    ///
    /// Names of layers and positions of adapters are checked when the adapters are opened.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.adapters.choose_placement(placement);
        self
    }

    /// The placement that was chosen by measurement for [`Placement::Auto`], while adapters are open for it; `None` where there
    /// is nothing to choose, as on one adapter.
    pub fn chosen_placement(&self) -> Option<ChosenPlacement> {
        self.adapters.chosen_placement()
    }

    /// Predicted milliseconds of a step of another placement over some of the adapters, by position, while they are open for a
    /// chosen one: for benches. `None` if none was chosen, or the placement cuts a measured block of layers.
    ///
    /// # Errors
    /// If the placement does not go with the model.
    #[doc(hidden)]
    pub fn predicted_ms(&self, placement: &Placement, adapters: &[usize], micro_batches: u32) -> Result<Option<f64>> {
        self.adapters.predicted_ms(placement, adapters, micro_batches)
    }

    /// Trains together with other processes, each of which calls the same functions with the same settings, model and data on
    /// adapters of its own: with the package `manyhands-mpi`, the processes that `mpirun` starts.
    ///
    /// Each computes its rows of every batch, by speed as adapters do, and all have the same weights after each step. Evaluation and
    /// prediction give the same in all. The process of rank 0 saves the run; callbacks are called in all of them.
    #[must_use]
    pub fn processes(mut self, group: Group) -> Self {
        self.adapters.join(group);
        self
    }

    /// The processes that train together; a lone one by default.
    pub fn group(&self) -> &Group {
        &self.adapters.group
    }

    /// Leaves the other processes: from now on this one evaluates and predicts by itself.
    pub fn leave_group(&mut self) {
        (self.adapters.group, self.share) = (Group::alone(), Share::default());
    }

    /// Names of the adapters of each process, by rank, once they are open; empty for a lone process.
    pub fn adapters_of_processes(&self) -> &[Vec<String>] {
        &self.share.adapters
    }

    /// Sets the number of threads that read data for evaluation and prediction; within a run [`Fit`] sets it.
    #[must_use]
    pub fn workers(mut self, n_workers: usize) -> Self {
        self.reading.workers = n_workers;
        self
    }

    /// Sets the number of micro-batches into which each adapter cuts its rows of a batch that the caller brings, as to
    /// [`begin_on_batch`](AsyncTrainer::begin_on_batch); within a run [`Fit`] sets it.
    #[must_use]
    pub fn micro_batches(mut self, parts: u32) -> Self {
        self.micro_batches = parts;
        self
    }

    /// Sets whether the CPU takes over when every adapter is lost.
    #[must_use]
    pub fn cpu_fallback(mut self, fallback: CpuFallback) -> Self {
        self.adapters.cpu_fallback = fallback;
        self
    }

    /// Slows the adapter at a position of the list down by `factor`, by waiting, to try a slower one. Takes effect when
    /// the adapter is opened, or at once if it is open.
    #[must_use]
    pub fn throttle(self, adapter_idx: usize, factor: f64) -> Self {
        self.adapters.throttles.set(adapter_idx, factor);
        self
    }

    /// Slows an adapter down by `factor`; may be called while training.
    pub fn set_throttle(&mut self, adapter_idx: usize, factor: f64) {
        self.adapters.throttles.set(adapter_idx, factor);
    }

    /// Sets the opener of adapters: workers of a page, for example.
    #[doc(hidden)]
    #[must_use]
    pub fn opener(mut self, opener: Opener) -> Self {
        self.adapters.opener = opener;
        self
    }

    /// Sets another clock, timer and spawn than the native ones.
    #[doc(hidden)]
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.adapters.runtime = runtime;
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

    /// The open adapters, by position; none before the first run. Removed ones keep their positions.
    pub fn open_adapters(&self) -> Vec<OpenAdapter> {
        self.adapters.list()
    }

    /// Scheduler of the open adapters; `None` before they are open.
    #[doc(hidden)]
    pub fn scheduler(&self) -> Option<&Scheduler> {
        self.adapters.if_open()
    }

    /// The numbers that an epoch reports.
    pub fn reported(&self, has_validation: bool) -> Vec<Reported> {
        let numbers = meter::reported(&self.compile, &self.model.outputs());
        let validation = |number: &Reported| Reported { name: format!("val_{}", number.name), ..number.clone() };
        let validation: Vec<Reported> = numbers.iter().filter(|_| has_validation).map(validation).collect();
        [numbers, validation].concat()
    }

    /// Checks that a dataset has the shapes and labels that model and losses need, before anything runs.
    ///
    /// # Errors
    /// If not: which shape, or the first label that is no class.
    pub fn check_data(&self, dataset: &dyn Dataset) -> Result<()> {
        Needs::of(self).check_data(dataset)
    }

    /// Checks the data of a run before anything is opened, and describes them in the model: names of columns and
    /// classes, and the losses of its training. Training does so by itself.
    ///
    /// # Errors
    /// If the data do not fit the model; if validation data, or those of a run that continues, have columns or classes
    /// of other names.
    pub fn check_run(&mut self, train: &dyn Dataset, validation: Option<&dyn Dataset>) -> Result<()> {
        let schema = train.schema();
        if self.progress.step == 0 || self.model.schema == Schema::default() {
            self.model.schema = schema;
        } else {
            self.model.schema.held_out = schema.held_out;
        }
        self.model.evaluation = Some(self.compile.evaluation());
        [Some(train), validation].into_iter().flatten().try_for_each(|data| self.check_data(data))?;
        let target_means = Needs::of(self).target_means(train)?;
        if let Some(evaluation) = &mut self.model.evaluation {
            evaluation.target_means = target_means;
        }
        Ok(())
    }

    /// Continues from a checkpoint: weights, statistics, optimizer state, and the position in the data.
    ///
    /// # Errors
    /// If the checkpoint is of another model or optimizer. Then nothing is changed.
    pub fn resume(&mut self, checkpoint: Checkpoint) -> Result<()> {
        checkpoint.check_fits(&self.model, &self.compile.optimizer)?;
        checkpoint.check_finite()?;
        self.adapters.close();
        self.model.weights = checkpoint.state.weights.clone();
        self.model.schema = checkpoint.model.schema;
        self.adapters.restore(checkpoint.state);
        self.progress = checkpoint.progress.computing_in(self.compile.precision);
        self.saving.resume(checkpoint.file, self.progress.step);
        self.progress.change_rate(checkpoint.optimizer.learning_rate(), self.compile.optimizer.learning_rate());
        self.snapshot = None;
        Ok(())
    }
}
