//! A checkpoint: a model file that also holds all that a run needs to continue.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::Progress;
use crate::error::{Error, Result};
use crate::files::{self, FileKind};
use crate::kind::Named;
use crate::model::file::{Entered, FileReader, Metadata, entered, json, read_whole, write_tensors};
use crate::model::{BEST, Model, OPTIMIZER, Own, Weights};
use crate::optimizers::Optimizer;
use crate::plan::Layout;
use crate::runtime::threads;
use crate::scheduler::TrainingState;

/// Key of the metadata under which a checkpoint's progress is stored.
const TRAINING_KEY: &str = "manyhands.training";
/// Values that one thread checks at a time.
const CHECKED: usize = 1 << 18;
/// Prefix, after that of the optimizer, of the weights with which training continues if the model's are the best ones.
const LAST: &str = "last";

/// The state of a run between two steps.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The model. At the end of training its weights may be the best ones, from which training does not continue.
    pub model: Model,
    /// The optimizer whose state this is.
    pub optimizer: Optimizer,
    /// Weights, statistics and optimizer state with which training continues.
    #[doc(hidden)]
    pub state: TrainingState,
    /// Position of the run.
    pub progress: Progress,
    /// The file that it was read from.
    pub(super) file: Option<PathBuf>,
}

#[derive(Serialize)]
struct Training<'a> {
    optimizer: &'a Optimizer,
    progress: &'a Progress,
}

/// [`Training`] in a file, before the optimizer of this name is looked up: it may be the user's.
#[derive(Deserialize)]
struct TrainingRead {
    optimizer: Named,
    progress: Progress,
}

/// A checkpoint without its metadata.
#[derive(Clone, Copy)]
struct Contents<'a> {
    layout: &'a Layout,
    /// The model's own weights.
    weights: &'a Weights,
    optimizer: &'a Optimizer,
    state: &'a TrainingState,
    best: Option<&'a Weights>,
}

impl Contents<'_> {
    fn tensors(&self) -> Vec<Entered<'_>> {
        let Contents { layout, weights, optimizer, state, best } = *self;
        let mut tensors = entered(layout, weights, "");
        tensors.extend(best.into_iter().flat_map(|best| entered(layout, best, &format!("{BEST}/"))));
        if !std::ptr::eq(weights, &raw const state.weights) && *weights != state.weights {
            tensors.extend(entered(layout, &state.weights, &format!("{OPTIMIZER}/{LAST}/")));
        }
        for (kind, segments) in optimizer.state_names().iter().zip(&state.optimizer) {
            tensors.extend(layout.trainable().iter().map(|placed| Entered {
                name: format!("{OPTIMIZER}/{kind}/{}", placed.name),
                shape: &placed.shape,
                values: &segments[placed.segment as usize][placed.range()],
                packing: None,
            }));
        }
        tensors
    }

    fn write(&self, path: &Path, metadata: &Metadata) -> Result<()> {
        files::write(path, FileKind::Model, |out| write_tensors(out, self.tensors(), metadata))
    }

    /// The first tensor with a value that is not finite, if one has. All threads search.
    fn spoilt(&self) -> Option<String> {
        let mut tensors = self.tensors();
        // The scales of packed blocks were checked when they came.
        tensors.retain(|tensor| tensor.packing.is_none());
        let first = AtomicUsize::new(usize::MAX);
        let parts = tensors.iter().enumerate();
        let parts = parts.flat_map(|(at, tensor)| tensor.values.chunks(CHECKED).map(move |values| (at, values)));
        threads::for_each(parts.collect(), |(at, values)| {
            // Without an end at the first: so the loop becomes vectors.
            if !values.iter().fold(true, |all, value| all & value.is_finite()) {
                first.fetch_min(at, Ordering::Relaxed);
            }
        });
        tensors.get(first.into_inner()).map(|tensor| tensor.name.clone())
    }
}

fn metadata(model: &Model, optimizer: &Optimizer, progress: &Progress) -> Result<Metadata> {
    let mut metadata = model.metadata()?;
    metadata.insert(TRAINING_KEY, json(&Training { optimizer, progress })?);
    Ok(metadata)
}

/// A run's state at a step, which is written while training continues: the next step that changes it copies it.
#[derive(Debug)]
pub(super) struct Frozen {
    /// Training steps done.
    pub(super) step: u64,
    metadata: Metadata,
    layout: Layout,
    optimizer: Optimizer,
    state: Arc<TrainingState>,
    /// The model's own weights, if they differ from those with which training continues.
    chosen: Option<Weights>,
    best: Option<Weights>,
}

impl Frozen {
    /// Keeps a state, with what goes with it. `chosen`: weights for the model, where they are others than
    /// those with which training continues.
    ///
    /// # Errors
    /// If a value is not finite: such a state is never saved.
    pub(super) fn new(
        model: &Model,
        chosen: Option<&Weights>,
        optimizer: &Optimizer,
        state: Arc<TrainingState>,
        progress: &Progress,
        best: Option<&Weights>,
    ) -> Result<Self> {
        let layout = model.layout();
        let contents = Contents { layout, weights: chosen.unwrap_or(&state.weights), optimizer, state: &state, best };
        if let Some(tensor) = contents.spoilt() {
            return Err(Error::non_finite(
                format!("the state after training step {}", progress.step),
                format!("needs finite values to be saved, but `{tensor}` has others; it was not saved"),
                "lower the learning rate, clip gradients (`clip_norm`), or check the data's scale",
            ));
        }
        Ok(Self {
            step: progress.step,
            metadata: metadata(model, optimizer, progress)?,
            layout: layout.clone(),
            optimizer: optimizer.clone(),
            state,
            chosen: chosen.cloned(),
            best: best.cloned(),
        })
    }

    /// Writes it as a checkpoint, atomically.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let Self { layout, optimizer, state, .. } = self;
        let weights = self.chosen.as_ref().unwrap_or(&state.weights);
        let contents = Contents { layout, weights, optimizer, state, best: self.best.as_ref() };
        contents.write(path, &self.metadata)
    }
}

impl Checkpoint {
    /// Writes the checkpoint atomically. It replaces an existing model or checkpoint, but no other file.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let Self { model, optimizer, state, progress, .. } = self;
        let (layout, weights, best) = (model.layout(), &model.weights, progress.best.as_ref());
        let contents = Contents { layout, weights, optimizer, state, best };
        contents.write(path, &metadata(model, optimizer, progress)?)
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// If the file is missing, truncated, or only a model.
    pub fn load(path: &Path) -> Result<Self> {
        Self::load_with(path, Own::default())
    }

    /// Reads a checkpoint of a run with layers, or an optimizer, of your own: a slice of layers' entries, or an [`Own`].
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with<'a>(path: &Path, own: impl Into<Own<'a>>) -> Result<Self> {
        Self::read_with(&read_whole(path)?, path, own.into())
    }

    /// The bytes of a checkpoint's file.
    ///
    /// # Errors
    /// If the file can't be read, or is no checkpoint.
    pub fn bytes_of(path: &Path) -> Result<Vec<u8>> {
        read_whole(path)
    }

    /// Reads a checkpoint from the bytes of its file, which may be on another machine.
    ///
    /// # Errors
    /// If the file can't be read, or is no checkpoint.
    pub fn read(bytes: &[u8], path: &Path) -> Result<Self> {
        Self::read_with(bytes, path, Own::default())
    }

    fn read_with(bytes: &[u8], path: &Path, own: Own<'_>) -> Result<Self> {
        let name = crate::shown(path).to_string();
        let file = FileReader::open(bytes, &name)?;
        let model = file.model(own)?;
        let TrainingRead { optimizer, progress } = file.metadata(TRAINING_KEY).map_err(|problem| {
            file.refuse(
                &problem,
                "this file holds a model, not a run: load it as a model, or name the run's checkpoint",
            )
        })?;
        let optimizer = Optimizer::read(optimizer, own.optimizers).map_err(|problem| {
            let help = "name optimizers of your own in `load_with`; nothing was loaded";
            file.refuse(&format!("has an optimizer that can't be read: {problem}"), help)
        })?;
        let states = optimizer_state(&file, &model, &optimizer)?;
        let last = weights_under(&file, &model, &format!("{OPTIMIZER}/{LAST}/"))?;
        let state = TrainingState { weights: last.unwrap_or_else(|| model.weights.clone()), optimizer: states };
        let progress = Progress { best: weights_under(&file, &model, &format!("{BEST}/"))?, ..progress };
        Ok(Self { model, optimizer, state, progress, file: Some(path.to_owned()) })
    }

    /// Checks that a trainer of this model and optimizer can continue from here.
    ///
    /// # Errors
    /// If not: what differs.
    pub fn check_fits(&self, model: &Model, optimizer: &Optimizer) -> Result<()> {
        let (own, given) = (self.model.config(), model.config());
        if own.trains_others(&given) {
            return Err(Error::checkpoint(
                "the checkpoint",
                "holds the optimizer's state of other trainable layers than those of the model",
                "resume with the same layers frozen, or start a new run from the checkpoint's model",
            ));
        }
        if own != given {
            return Err(Error::checkpoint(
                "the checkpoint",
                "needs the model it was made with, but got another model",
                "build the model as it was, or load it from the checkpoint itself",
            ));
        }
        if self.optimizer.name() != optimizer.name() {
            return Err(Error::checkpoint(
                "the checkpoint",
                format!("holds the state of `{}`, but the optimizer is `{}`", self.optimizer.name(), optimizer.name()),
                "resume with the same optimizer, or start a new run from the checkpoint's model",
            ));
        }
        let (own, given) = (self.optimizer.state_names(), optimizer.state_names());
        if own != given {
            return Err(Error::checkpoint(
                "the checkpoint",
                format!("holds {own:?} of each parameter, but the optimizer keeps {given:?}"),
                "resume with the same `use_ema`, or start a new run from the checkpoint's model",
            ));
        }
        Ok(())
    }
}

impl Checkpoint {
    /// Checks that weights and optimizer state are finite: from others no training goes on.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check_finite(&self) -> Result<()> {
        self.model.check_finite()?;
        let TrainingState { weights, optimizer } = &self.state;
        let floats = self.model.layout().parameters.iter().filter(|placed| placed.packing.is_none());
        let floats = floats.map(|placed| &weights.parameters[placed.segment as usize][placed.range()]);
        let mut values = floats.chain(optimizer.iter().flatten().map(Vec::as_slice)).flatten();
        if values.all(|value| value.is_finite()) {
            return Ok(());
        }
        Err(Error::non_finite(
            "the checkpoint",
            "needs finite numbers, but the state of its optimizer has others",
            "its training has diverged: go back to an earlier file, or train again with a lower learning rate or `clip_norm`",
        ))
    }
}

/// The weights under a prefix, if any are there.
fn weights_under(file: &FileReader<'_>, model: &Model, prefix: &str) -> Result<Option<Weights>> {
    let layout = model.layout();
    let is_of = |name: &str| layout.parameter(name).or(layout.statistic(name)).is_some();
    let is_there = file.names().iter().any(|name| name.strip_prefix(prefix).is_some_and(is_of));
    is_there.then(|| file.weights(model, prefix)).transpose()
}

/// The optimizer's state, by kind and segment.
fn optimizer_state(file: &FileReader<'_>, model: &Model, optimizer: &Optimizer) -> Result<Vec<Vec<Vec<f32>>>> {
    let mut state = TrainingState::new(Weights::default(), model.layout(), optimizer).optimizer;
    for (kind, segments) in optimizer.state_names().iter().zip(&mut state) {
        for placed in model.layout().trainable() {
            let values = &mut segments[placed.segment as usize][placed.range()];
            file.read(&format!("{OPTIMIZER}/{kind}/{}", placed.name), placed, values)?;
        }
    }
    Ok(state)
}
