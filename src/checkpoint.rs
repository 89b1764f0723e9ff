//! Files: a model as one safetensors file, and a checkpoint, which holds all that a run needs to go on.
//!
//! A file knows nothing of adapters. Tensors are named `layer/tensor`; the architecture stands in the metadata.
//! Writing is atomic: a temporary file beside the old one, then a rename.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::layers::Entry;
use crate::model::{BEST, Model, ModelConfig, OPTIMIZER, Weights};
use crate::optimizers::Optimizer;
use crate::plan::Placed;
use crate::runtime::threads;
use crate::scheduler::TrainingState;
use crate::trainer::Meter;

/// Key of the metadata under which the architecture stands.
const MODEL_KEY: &str = "manyhands.model";
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

#[derive(Serialize, Deserialize)]
struct Training {
    optimizer: Optimizer,
    progress: Progress,
}

/// A tensor on its way to a file.
struct Entered<'a> {
    name: String,
    shape: &'a [usize],
    values: &'a [f32],
}

fn serialized(tensors: &[Entered<'_>], metadata: HashMap<String, String>) -> Result<Vec<u8>> {
    let refuse = |error: safetensors::SafeTensorError| {
        Error::checkpoint(
            "the model",
            format!("can't be written: {error}"),
            "this is an error in manyhands: please report it",
        )
    };
    let views = tensors.iter().map(|tensor| {
        let bytes = bytemuck::cast_slice(tensor.values);
        Ok((tensor.name.clone(), TensorView::new(Dtype::F32, tensor.shape.to_vec(), bytes)?))
    });
    let views = views.collect::<std::result::Result<Vec<_>, _>>().map_err(refuse)?;
    safetensors::serialize(views, Some(metadata)).map_err(refuse)
}

/// Writes a file in one go: whoever reads it sees the old contents or the new, never a part.
///
/// The temporary file has a fixed name, so that a run that is killed over and over leaves at most one behind.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".partial");
    let temporary = Path::new(&temporary);
    let written = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // Windows neither renames nor removes what is open.
        drop(file);
        replace(temporary, path)
    };
    written().map_err(|error| {
        if let Err(left) = std::fs::remove_file(temporary) {
            log::debug!("`{}` can't be removed: {left}", temporary.display());
        }
        Error::writing(path, error)
    })
}

/// Renames a file over another.
///
/// On Windows a program that has the other open can forbid that. Scanners and indexes open every new file for a moment,
/// so this waits for them.
fn replace(temporary: &Path, path: &Path) -> std::io::Result<()> {
    const WAIT_MS: u64 = 50;
    const ATTEMPTS: u32 = 60;
    for _ in 0..ATTEMPTS {
        match std::fs::rename(temporary, path) {
            Err(error) if is_held(&error) => threads::pause(WAIT_MS),
            done => return done,
        }
    }
    std::fs::rename(temporary, path)
}

/// Is another program in the way? Windows says `ERROR_ACCESS_DENIED` or `ERROR_SHARING_VIOLATION`.
fn is_held(error: &std::io::Error) -> bool {
    cfg!(windows) && matches!(error.raw_os_error(), Some(5 | 32))
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| {
        Error::checkpoint(
            "the model",
            format!("can't be written: {error}"),
            "let the settings of your own layers serialise",
        )
    })
}

impl Model {
    fn entered(&self) -> Vec<Entered<'_>> {
        let tensors = self.tensors();
        tensors.map(|(placed, values)| Entered { name: placed.name.clone(), shape: &placed.shape, values }).collect()
    }

    /// Weights, architecture and moving statistics as the bytes of a safetensors file.
    ///
    /// # Errors
    /// If a layer's settings do not serialise.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let metadata = HashMap::from([(MODEL_KEY.to_owned(), json(&self.config())?)]);
        serialized(&self.entered(), metadata)
    }

    /// Writes weights, architecture and moving statistics to a safetensors file, in one go.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        write_atomically(path.as_ref(), &self.to_bytes()?)
    }

    /// Reads a model, from a model file or a checkpoint.
    ///
    /// # Errors
    /// If the file is not there, not whole, or not of this crate.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(path, &[])
    }

    /// Reads a model with layers of your own beside the crate's.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(path: impl AsRef<Path>, own: &[Entry]) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| Error::reading(path, error))?;
        Self::from_bytes(&bytes, &path.display().to_string(), own)
    }

    /// Reads a model from the bytes of a file; `name` is for messages.
    ///
    /// # Errors
    /// If they are not whole, or not of this crate.
    pub fn from_bytes(bytes: &[u8], name: &str, own: &[Entry]) -> Result<Self> {
        File::open(bytes, name)?.model(own)
    }
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
        let training = Training { optimizer: self.optimizer, progress: self.progress.clone() };
        let metadata = HashMap::from([
            (MODEL_KEY.to_owned(), json(&self.model.config())?),
            (TRAINING_KEY.to_owned(), json(&training)?),
        ]);
        write_atomically(path, &serialized(&tensors, metadata)?)
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// If the file is not there, not whole, or only a model.
    pub fn load(path: &Path) -> Result<Self> {
        Self::load_with(path, &[])
    }

    /// Reads a checkpoint of a model with layers of your own.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(path: &Path, own: &[Entry]) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| Error::reading(path, error))?;
        let name = path.display().to_string();
        let file = File::open(&bytes, &name)?;
        let model = file.model(own)?;
        let training: Training = file.metadata(TRAINING_KEY).map_err(|problem| {
            file.refuse(
                &problem,
                "this file holds a model, not a run: load it as a model, or name the run's checkpoint",
            )
        })?;
        let optimizer = file.optimizer(&model, training.optimizer)?;
        let state = TrainingState { weights: model.weights.clone(), optimizer };
        let progress = Progress { best: file.best(&model)?, ..training.progress };
        Ok(Self { model, optimizer: training.optimizer, state, progress })
    }

    /// Can a trainer of this model and optimizer go on from here?
    ///
    /// # Errors
    /// If not: what differs.
    pub fn check_fits(&self, model: &Model, optimizer: Optimizer) -> Result<()> {
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

/// An open file: its tensors and its metadata.
struct File<'a> {
    name: &'a str,
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

impl<'a> File<'a> {
    fn open(bytes: &'a [u8], name: &'a str) -> Result<Self> {
        let refuse = |error: safetensors::SafeTensorError| {
            Error::checkpoint(
                format!("`{name}`"),
                format!("needs to be a whole safetensors file, but is not: {error}"),
                "it may be cut off or of another program; nothing of it was loaded",
            )
        };
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(refuse)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(refuse)?;
        Ok(Self { name, tensors, metadata: metadata.metadata().clone().unwrap_or_default() })
    }

    fn refuse(&self, problem: &str, help: &str) -> Error {
        Error::checkpoint(format!("`{}`", self.name), problem, help)
    }

    fn metadata<T: serde::de::DeserializeOwned>(&self, key: &str) -> std::result::Result<T, String> {
        let text = self.metadata.get(key).ok_or_else(|| format!("needs metadata `{key}`, but has none"))?;
        serde_json::from_str(text).map_err(|error| format!("has metadata `{key}` that can't be read: {error}"))
    }

    fn model(&self, own: &[Entry]) -> Result<Model> {
        let config: ModelConfig = self.metadata(MODEL_KEY).map_err(|problem| {
            self.refuse(&problem, "only files that manyhands wrote hold an architecture; nothing of it was loaded")
        })?;
        let mut model = config.build_with(own, 0)?;
        let weights = self.weights(&model, "")?;
        self.check_no_more(&model)?;
        model.weights = weights;
        Ok(model)
    }

    /// Parameters and statistics under a prefix.
    fn weights(&self, model: &Model, prefix: &str) -> Result<Weights> {
        let mut weights = model.weights.clone();
        for placed in &model.layout().parameters {
            let values = &mut weights.parameters[placed.segment as usize][placed.range()];
            self.read(&format!("{prefix}{}", placed.name), placed, values)?;
        }
        for placed in &model.layout().statistics {
            self.read(&format!("{prefix}{}", placed.name), placed, &mut weights.statistics[placed.range()])?;
        }
        Ok(weights)
    }

    fn best(&self, model: &Model) -> Result<Option<Weights>> {
        let layout = model.layout();
        let is_of = |name: &str| layout.parameter(name).or(layout.statistic(name)).is_some();
        let names = self.tensors.names();
        let is_there =
            names.iter().any(|name| name.strip_prefix(BEST).and_then(|it| it.strip_prefix('/')).is_some_and(is_of));
        is_there.then(|| self.weights(model, &format!("{BEST}/"))).transpose()
    }

    fn optimizer(&self, model: &Model, optimizer: Optimizer) -> Result<Vec<Vec<Vec<f32>>>> {
        let mut state =
            TrainingState::new(Weights { statistics: Vec::new(), ..model.weights.clone() }, optimizer).optimizer;
        for (kind, segments) in optimizer.state_names().iter().zip(&mut state) {
            for placed in &model.layout().parameters {
                let values = &mut segments[placed.segment as usize][placed.range()];
                self.read(&format!("{OPTIMIZER}/{kind}/{}", placed.name), placed, values)?;
            }
        }
        Ok(state)
    }

    fn read(&self, name: &str, placed: &Placed, values: &mut [f32]) -> Result<()> {
        let refuse = |problem: String| {
            let help = "the file is of another model or damaged; nothing of it was loaded";
            Error::checkpoint(format!("`{}`, tensor `{name}`,", self.name), problem, help)
        };
        let tensor = self.tensors.tensor(name).map_err(|_| refuse("is needed, but is not there".into()))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != placed.shape {
            let (dtype, shape) = (tensor.dtype(), tensor.shape());
            return Err(refuse(format!("needs F32 of shape {:?}, but is {dtype:?} of shape {shape:?}", placed.shape)));
        }
        for (value, bytes) in values.iter_mut().zip(tensor.data().as_chunks::<4>().0) {
            *value = f32::from_le_bytes(*bytes);
        }
        Ok(())
    }

    fn check_no_more(&self, model: &Model) -> Result<()> {
        let layout = model.layout();
        let is_known = |name: &str| {
            [OPTIMIZER, BEST].iter().any(|prefix| name.starts_with(&format!("{prefix}/")))
                || layout.parameter(name).or(layout.statistic(name)).is_some()
        };
        let names = self.tensors.names();
        match names.iter().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(Error::checkpoint(
                format!("`{}`, tensor `{name}`,", self.name),
                "belongs to no layer of the file's own architecture",
                "the file is damaged or was edited; nothing of it was loaded",
            )),
        }
    }
}
