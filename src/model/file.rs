//! Model files: weights, architecture and moving statistics as one safetensors file.
//!
//! A file knows nothing of adapters. Tensors are named `layer/tensor`; the architecture stands in the metadata.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::Serialize;

use super::evaluation::EvaluationRead;
use super::{BEST, Model, ModelConfig, OPTIMIZER, Own, Weights};
use crate::error::{Error, Result};
use crate::files;
use crate::plan::Placed;
use crate::schema::Schema;

/// Key of the metadata under which the architecture stands.
const MODEL_KEY: &str = "manyhands.model";
/// Key of the metadata under which stands what the data mean.
const SCHEMA_KEY: &str = "manyhands.schema";
/// Key of the metadata under which losses and metrics stand.
const EVALUATION_KEY: &str = "manyhands.evaluation";

/// A tensor on its way to a file.
pub(crate) struct Entered<'a> {
    pub(crate) name: String,
    pub(crate) shape: &'a [usize],
    pub(crate) values: &'a [f32],
}

/// The bytes of a file with these tensors and metadata.
pub(crate) fn serialized(tensors: &[Entered<'_>], metadata: HashMap<String, String>) -> Result<Vec<u8>> {
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

/// A value as metadata.
pub(crate) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| {
        Error::checkpoint(
            "the model",
            format!("can't be written: {error}"),
            "let the settings of your own layers serialise",
        )
    })
}

impl Model {
    /// All tensors, as they go into a file.
    pub(crate) fn entered(&self) -> Vec<Entered<'_>> {
        let tensors = self.tensors();
        tensors.map(|(placed, values)| Entered { name: placed.name.clone(), shape: &placed.shape, values }).collect()
    }

    /// Architecture, names and losses, as they go into a file.
    pub(crate) fn metadata(&self) -> Result<HashMap<String, String>> {
        let mut metadata = HashMap::from([(MODEL_KEY.to_owned(), json(&self.config())?)]);
        if self.schema != Schema::default() {
            metadata.insert(SCHEMA_KEY.to_owned(), json(&self.schema)?);
        }
        if let Some(evaluation) = &self.evaluation {
            metadata.insert(EVALUATION_KEY.to_owned(), json(evaluation)?);
        }
        Ok(metadata)
    }

    /// Weights, architecture and moving statistics as the bytes of a safetensors file.
    ///
    /// # Errors
    /// If a layer's settings do not serialise.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serialized(&self.entered(), self.metadata()?)
    }

    /// Writes weights, architecture and moving statistics to a safetensors file, in one go.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::write_atomically(path.as_ref(), &self.to_bytes()?)
    }

    /// Reads a model, from a model file or a checkpoint.
    ///
    /// # Errors
    /// If the file is not there, not whole, or not of this crate.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(path, Own::default())
    }

    /// Reads a model with layers of your own beside the crate's: a slice of entries, or an [`Own`].
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with<'a>(path: impl AsRef<Path>, own: impl Into<Own<'a>>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| Error::reading(path, error))?;
        Self::from_bytes(&bytes, &crate::shown(path).to_string(), own)
    }

    /// Reads a model from the bytes of a file; `name` is for messages.
    ///
    /// # Errors
    /// If they are not whole, or not of this crate.
    pub fn from_bytes<'a>(bytes: &[u8], name: &str, own: impl Into<Own<'a>>) -> Result<Self> {
        FileReader::open(bytes, name)?.model(own.into())
    }
}

/// An open file: its tensors and its metadata.
pub(crate) struct FileReader<'a> {
    name: &'a str,
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

impl<'a> FileReader<'a> {
    /// Reads the header; `name` is for messages.
    pub(crate) fn open(bytes: &'a [u8], name: &'a str) -> Result<Self> {
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

    /// An error of this file.
    pub(crate) fn refuse(&self, problem: &str, help: &str) -> Error {
        Error::checkpoint(format!("`{}`", self.name), problem, help)
    }

    /// The value of a key of the metadata, or what is wrong with it.
    pub(crate) fn metadata<T: serde::de::DeserializeOwned>(&self, key: &str) -> std::result::Result<T, String> {
        let text = self.metadata.get(key).ok_or_else(|| format!("needs metadata `{key}`, but has none"))?;
        serde_json::from_str(text).map_err(|error| format!("has metadata `{key}` that can't be read: {error}"))
    }

    /// The model, with its weights.
    pub(crate) fn model(&self, own: Own<'_>) -> Result<Model> {
        let config: ModelConfig = self.metadata(MODEL_KEY).map_err(|problem| {
            self.refuse(&problem, "only files that manyhands wrote hold an architecture; nothing of it was loaded")
        })?;
        let mut model = config.build_with(own.layers, 0)?;
        let weights = self.weights(&model, "")?;
        self.check_no_more(&model)?;
        model.weights = weights;
        if self.metadata.contains_key(SCHEMA_KEY) {
            let help = "the file is damaged or was edited; nothing of it was loaded";
            model.schema = self.metadata(SCHEMA_KEY).map_err(|problem| self.refuse(&problem, help))?;
        }
        if self.metadata.contains_key(EVALUATION_KEY) {
            let help = "the file is damaged or was edited; nothing of it was loaded";
            let read: EvaluationRead = self.metadata(EVALUATION_KEY).map_err(|problem| self.refuse(&problem, help))?;
            let name = self.name;
            // A loss of another program's own hinders no prediction.
            let unknown = |problem| log::info!("`{name}` was trained with a loss that can't be read: {problem}");
            model.evaluation = read.evaluation(own).map_err(unknown).ok();
        }
        Ok(model)
    }

    /// Names of all tensors.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.tensors.names()
    }

    /// Parameters and statistics under a prefix.
    pub(crate) fn weights(&self, model: &Model, prefix: &str) -> Result<Weights> {
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

    /// The values of one tensor.
    pub(crate) fn read(&self, name: &str, placed: &Placed, values: &mut [f32]) -> Result<()> {
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
        // Files of earlier versions hold the weights of layers that no output needs.
        let left_out: HashSet<&str> = model.left_out().map(|layer| layer.name.as_str()).collect();
        let is_known = |name: &str| {
            layout.parameter(name).or(layout.statistic(name)).is_some()
                || name
                    .split_once('/')
                    .is_some_and(|(prefix, _)| [OPTIMIZER, BEST].contains(&prefix) || left_out.contains(prefix))
        };
        match self.names().iter().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(Error::checkpoint(
                format!("`{}`, tensor `{name}`,", self.name),
                "belongs to no layer of the file's own architecture",
                "the file is damaged or was edited; nothing of it was loaded",
            )),
        }
    }
}
