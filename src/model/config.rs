//! A model as data: the form in a model file and in TOML.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Model, ModelBuilder};
use crate::error::{Error, Result};
use crate::layers::{Entry, LAYERS};
use crate::shape::Shape;

/// A graph of layers as it stands in a file.
///
/// ```toml
/// input = [8, 8, 1]
/// layers = [
///   { type = "Conv2D", filters = 16, kernel_size = [3, 3], activation = "relu" },
///   { type = "Flatten" },
///   { type = "Dense", units = 10 },
/// ]
/// ```
///
/// A layer reads the one before it, unless it names its `inputs`. `reuse = "name"` in place of `type` uses a layer
/// again. Without `outputs`, the last layer is the output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Shape of a row of the one input, which is then called `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Shape>,
    /// Several inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputConfig>,
    /// The layers in order.
    pub layers: Vec<LayerConfig>,
    /// Names of the outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
}

/// An input as it stands in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputConfig {
    /// Its name.
    pub name: String,
    /// Shape of a row.
    pub shape: Shape,
}

/// A layer, or a further use of one, as it stands in a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerConfig {
    /// Its name; made from its type if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its kind, as in Keras.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The layer that is used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<String>,
    /// What it reads; the one before it if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<String>>,
    /// The layer's own settings.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

impl ModelConfig {
    /// Builds the model with the crate's layers.
    ///
    /// # Errors
    /// If a layer is unknown, its settings are wrong, or it can't take its inputs.
    pub fn build(&self, seed: u64) -> Result<Model> {
        self.build_with(&[], seed)
    }

    /// Builds the model with layers of your own beside the crate's.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with(&self, own: &[Entry], seed: u64) -> Result<Model> {
        let mut reader =
            Reader { graph: ModelBuilder::new(), tensors: HashMap::new(), layers: HashMap::new(), last: None };
        reader.inputs(self)?;
        for (idx, layer) in self.layers.iter().enumerate() {
            reader.layer(idx, layer, own)?;
        }
        let outputs = match (self.outputs.is_empty(), reader.last.clone()) {
            (false, _) => self.outputs.clone(),
            (true, Some(last)) => vec![last],
            (true, None) => Vec::new(),
        };
        let outputs = outputs.iter().map(|name| reader.tensor("output", name)).collect::<Result<Vec<_>>>()?;
        reader.graph.build(&outputs, seed)
    }
}

struct Reader {
    graph: ModelBuilder,
    tensors: HashMap<String, super::TensorRef>,
    layers: HashMap<String, super::LayerRef>,
    last: Option<String>,
}

impl Reader {
    fn inputs(&mut self, config: &ModelConfig) -> Result<()> {
        let one = config.input.iter().map(|shape| InputConfig { name: "input".into(), shape: shape.clone() });
        for input in one.chain(config.inputs.iter().cloned()) {
            let tensor = self.graph.input(&input.name, input.shape);
            self.tensors.insert(input.name.clone(), tensor);
            self.last = Some(input.name);
        }
        if self.tensors.is_empty() {
            return Err(Error::model(
                "model",
                "needs an input, but names none",
                "add `input = [8, 8, 1]`, the shape of a row",
            ));
        }
        Ok(())
    }

    fn tensor(&self, who: &str, name: &str) -> Result<super::TensorRef> {
        self.tensors.get(name).copied().ok_or_else(|| {
            Error::model(
                who,
                format!("needs a tensor `{name}`, but nothing before it has that name"),
                "name an input, or a layer that stands before it",
            )
        })
    }

    fn layer(&mut self, idx: usize, config: &LayerConfig, own: &[Entry]) -> Result<()> {
        let label = config.name.as_deref().or(config.kind.as_deref()).or(config.reuse.as_deref()).unwrap_or("?");
        let who = format!("layer {idx} `{label}`");
        let layer = self.find_layer(&who, config, own)?;
        let inputs = match (&config.inputs, &self.last) {
            (Some(names), _) => names.clone(),
            (None, Some(last)) => vec![last.clone()],
            (None, None) => Vec::new(),
        };
        let inputs = inputs.iter().map(|name| self.tensor(&who, name)).collect::<Result<Vec<_>>>()?;
        let tensor = self.graph.call(layer, &inputs);
        let name = self.graph.node_name(tensor);
        self.tensors.insert(name.clone(), tensor);
        self.last = Some(name);
        Ok(())
    }

    fn find_layer(&mut self, who: &str, config: &LayerConfig, own: &[Entry]) -> Result<super::LayerRef> {
        if let Some(name) = &config.reuse {
            let other = config.kind.as_ref().map(|_| "type").or(config.name.as_ref().map(|_| "name"));
            if let Some(key) = other.or(config.settings.keys().next().map(String::as_str)) {
                return Err(Error::model(
                    who,
                    format!("reuses `{name}`, and so can have `inputs` alone, but has `{key}`, too"),
                    "leave it out: a layer that is used again has the settings that it was made with",
                ));
            }
            return self.layers.get(name).copied().ok_or_else(|| {
                Error::model(
                    who,
                    format!("reuses `{name}`, but no layer before it has that name"),
                    "reuse a layer by its `name`",
                )
            });
        }
        let kind = config.kind.as_deref().unwrap_or_default();
        let entry = own.iter().chain(LAYERS).find(|entry| entry.kind == kind).ok_or_else(|| {
            let known = LAYERS.iter().map(|entry| entry.kind).collect::<Vec<_>>().join(", ");
            Error::model(who, format!("needs a known `type`, but got `{kind}`"), format!("the types are: {known}"))
        })?;
        let layer = (entry.from_config)(Value::Object(config.settings.clone())).map_err(|error| {
            Error::model(
                format!("{who} ({kind})"),
                format!("has settings that can't be read: {error}"),
                format!("see the documentation of `{kind}`"),
            )
        })?;
        let layer = self.graph.shared_layer(config.name.as_deref(), layer);
        self.layers.insert(self.graph.layer_name(layer), layer);
        Ok(layer)
    }
}

impl Model {
    /// The model without its weights, as data.
    pub fn config(&self) -> ModelConfig {
        let inputs =
            self.inputs.iter().map(|input| InputConfig { name: input.name.clone(), shape: input.shape.clone() });
        let mut used = vec![false; self.layers.len()];
        let layers = self.nodes.iter().map(|node| {
            let named = &self.layers[node.layer_idx];
            let inputs = Some(node.inputs.iter().map(|tensor| self.tensor_name(*tensor).to_owned()).collect());
            if std::mem::replace(&mut used[node.layer_idx], true) {
                return LayerConfig { reuse: Some(named.name.clone()), inputs, ..LayerConfig::default() };
            }
            let settings = match named.layer.config() {
                Value::Object(settings) => settings,
                _ => Map::new(),
            };
            let (name, kind) = (Some(named.name.clone()), Some(named.layer.kind().to_owned()));
            LayerConfig { name, kind, inputs, settings, reuse: None }
        });
        ModelConfig {
            input: None,
            inputs: inputs.collect(),
            layers: layers.collect(),
            outputs: self.outputs.iter().map(|tensor| self.tensor_name(*tensor).to_owned()).collect(),
        }
    }
}
