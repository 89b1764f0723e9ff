//! A checkpoint: a model file that also holds all that a run needs to go on.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Meter;
use crate::error::{Error, Result};
use crate::files;
use crate::kind::Named;
use crate::model::file::{Entered, FileReader, json, serialized};
use crate::model::{BEST, Model, OPTIMIZER, Own, Weights};
use crate::optimizers::Optimizer;
use crate::scheduler::TrainingState;

/// Key of the metadata under which a checkpoint's progress stands.
const TRAINING_KEY: &str = "manyhands.training";

/// How far a run has come: with the weights and the optimizer's state, all that it needs to go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Progress {
    /// Training steps done.
    pub step: u64,
    /// Epochs done.
    pub epoch: u64,
    /// Batches done in the epoch at hand.
    pub batch: usize,
    /// Rows of the training data.
    pub rows: usize,
    /// Rows of a batch.
    pub batch_size: usize,
    /// Seed of shuffling and dropout.
    pub seed: u64,
    /// The optimizer's learning rate, less what plateaus have taken off it.
    pub learning_rate: f32,
    /// Best value that the plateau schedule has seen.
    pub plateau_best: Option<f64>,
    /// Epochs since then.
    pub plateau_waited: u32,
    /// Loss and metrics of the epoch at hand.
    pub meter: Meter,
    /// State of the callbacks.
    pub callbacks: Vec<Value>,
    /// Did a callback end the run?
    pub is_finished: bool,
    /// Weights that a callback may go back to: tensors of the file, under `best/`.
    #[serde(skip)]
    pub best: Option<Weights>,
}

/// A run as it stands between two steps.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The model.
    pub model: Model,
    /// The optimizer whose state this is.
    pub optimizer: Optimizer,
    /// Weights, statistics and optimizer state.
    pub state: TrainingState,
    /// How far it has come.
    pub progress: Progress,
}

#[derive(Serialize)]
struct Training<'a> {
    optimizer: &'a Optimizer,
    progress: &'a Progress,
}

/// The same as it is read: it may take entries of the user's to know the optimizer.
#[derive(Deserialize)]
struct TrainingRead {
    optimizer: Named,
    progress: Progress,
}

impl Checkpoint {
    /// Writes the checkpoint, in one go.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut tensors = self.model.entered();
        let best = self.progress.best.clone().map(|weights| Model { weights, ..self.model.clone() });
        tensors.extend(
            best.iter().flat_map(Model::entered).map(|it| Entered { name: format!("{BEST}/{}", it.name), ..it }),
        );
        for (kind, segments) in self.optimizer.state_names().iter().zip(&self.state.optimizer) {
            tensors.extend(self.model.layout().parameters.iter().map(|placed| Entered {
                name: format!("{OPTIMIZER}/{kind}/{}", placed.name),
                shape: &placed.shape,
                values: &segments[placed.segment as usize][placed.range()],
            }));
        }
        let training = Training { optimizer: &self.optimizer, progress: &self.progress };
        let mut metadata = self.model.metadata()?;
        metadata.insert(TRAINING_KEY.to_owned(), json(&training)?);
        files::write_atomically(path, &serialized(&tensors, metadata)?)
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// If the file is not there, not whole, or only a model.
    pub fn load(path: &Path) -> Result<Self> {
        Self::load_with(path, Own::default())
    }

    /// Reads a checkpoint of a run with layers, or an optimizer, of your own: a slice of layers' entries, or an [`Own`].
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with<'a>(path: &Path, own: impl Into<Own<'a>>) -> Result<Self> {
        let own = own.into();
        let bytes = std::fs::read(path).map_err(|error| Error::reading(path, error))?;
        let name = crate::shown(path).to_string();
        let file = FileReader::open(&bytes, &name)?;
        let model = file.model(own)?;
        let TrainingRead { optimizer, progress } = file.metadata(TRAINING_KEY).map_err(|problem| {
            file.refuse(
                &problem,
                "this file holds a model, not a run: load it as a model, or name the run's checkpoint",
            )
        })?;
        let optimizer = Optimizer::read(optimizer, own.optimizers).map_err(|problem| {
            let help = "name optimizers of your own in `load_with`; nothing of it was loaded";
            file.refuse(&format!("has an optimizer that can't be read: {problem}"), help)
        })?;
        let states = optimizer_state(&file, &model, &optimizer)?;
        let state = TrainingState { weights: model.weights.clone(), optimizer: states };
        let progress = Progress { best: best_weights(&file, &model)?, ..progress };
        Ok(Self { model, optimizer, state, progress })
    }

    /// Can a trainer of this model and optimizer go on from here?
    ///
    /// # Errors
    /// If not: what differs.
    pub fn check_fits(&self, model: &Model, optimizer: &Optimizer) -> Result<()> {
        if self.model.config() != model.config() {
            return Err(Error::checkpoint(
                "the checkpoint",
                "needs the model it was made with, but the model at hand is another",
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
        Ok(())
    }
}

/// The weights to which a callback may go back.
fn best_weights(file: &FileReader<'_>, model: &Model) -> Result<Option<Weights>> {
    let layout = model.layout();
    let is_of = |name: &str| layout.parameter(name).or(layout.statistic(name)).is_some();
    let names = file.names();
    let is_there =
        names.iter().any(|name| name.strip_prefix(BEST).and_then(|it| it.strip_prefix('/')).is_some_and(is_of));
    is_there.then(|| file.weights(model, &format!("{BEST}/"))).transpose()
}

/// The optimizer's state, by kind and segment.
fn optimizer_state(file: &FileReader<'_>, model: &Model, optimizer: &Optimizer) -> Result<Vec<Vec<Vec<f32>>>> {
    let mut state =
        TrainingState::new(Weights { statistics: Vec::new(), ..model.weights.clone() }, optimizer).optimizer;
    for (kind, segments) in optimizer.state_names().iter().zip(&mut state) {
        for placed in &model.layout().parameters {
            let values = &mut segments[placed.segment as usize][placed.range()];
            file.read(&format!("{OPTIMIZER}/{kind}/{}", placed.name), placed, values)?;
        }
    }
    Ok(state)
}
