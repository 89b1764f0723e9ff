//! A model as data: the form in a model file and in TOML.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::build::Direction;
use super::{Model, ModelBuilder};
use crate::error::{Error, Result};
use crate::kind::known_names;
use crate::layers::table::KINDS;
use crate::layers::{Configured, Entry, LAYERS, Layer, Regularizer, Regularizers, to_config};
use crate::misread::{self, Misread};
use crate::names;
use crate::packed::PackedFormat;
use crate::reading::{self, ReadReason};
use crate::shape::Shape;
use crate::shown;

/// The one setting that a further use of a layer can have.
const REVERSE: &str = "reverse";

/// A graph of layers in a file.
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
/// again; with `reverse = true`, a `ReversibleEmbedding` the other way. Without `outputs`, the last layer is the output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Shape of a row of the one input, which is then called `input`. In a settings file without inputs, they are those of the
    /// data.
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

/// An input in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InputConfig {
    /// Its name.
    pub name: String,
    /// Shape of a row.
    pub shape: Shape,
}

/// A layer, or a further use of one, in a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Names of its inputs; by default the layer before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<String>>,
    /// Whether training may change it; by default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainable: Option<bool>,
    /// Formats of frozen parameters that are kept packed, by their names: `{ kernel = "q8_0" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub packed: BTreeMap<String, PackedFormat>,
    /// The layer's own settings.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// The schema of a layer in a file: one of the crate's, or a further use of one.
#[cfg(feature = "schema")]
pub fn described_layers(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    use crate::layers::table::DESCRIBED;
    use manyhands_engine::described::{kinds, properties_of};
    let regularizer = generator.subschema_for::<Regularizer>();
    let mut shared = <LayerConfig as schemars::JsonSchema>::json_schema(generator);
    let mut taken = properties_of(&shared).cloned().unwrap_or_default();
    taken.remove("type");
    let mut of_reuse = taken.clone();
    let reverse = "Whether a `ReversibleEmbedding` is used in reverse.";
    of_reuse.insert(REVERSE.into(), serde_json::json!({ "type": "boolean", "description": reverse }));
    let reuse = schemars::json_schema!({
        "title": "reuse", "type": "object", "properties": of_reuse, "required": ["reuse"], "additionalProperties": false,
    });
    taken.remove("reuse");
    shared.insert("properties".into(), taken.into());
    let mut all = kinds(generator, DESCRIBED, &[shared]);
    if let Some(each) = all.get_mut("oneOf").and_then(Value::as_array_mut) {
        let regularizers = serde_json::json!({ "_regularizer$": regularizer });
        each.iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(|it| drop(it.insert("patternProperties".into(), regularizers.clone())));
        each.push(reuse.to_value());
    }
    all
}

impl ModelConfig {
    /// Names of the inputs that an `Embedding` reads.
    pub fn embedded(&self) -> Vec<String> {
        let first = self.inputs.first().map_or("input", |input| &input.name);
        let is_embedding = |(_, layer): &(usize, &LayerConfig)| {
            layer.kind.as_deref() == Some("Embedding")
                || layer.kind.as_deref() == Some("ReversibleEmbedding") && !layer.settings.contains_key(REVERSE)
        };
        let inputs = |(idx, layer): (usize, &LayerConfig)| match &layer.inputs {
            Some(names) => names.clone(),
            None if idx == 0 => vec![first.to_owned()],
            None => Vec::new(),
        };
        self.layers.iter().enumerate().filter(is_embedding).flat_map(inputs).collect()
    }

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
        self.finish(own, Some(seed))
    }

    /// Builds the model with parameters of 0, which costs less than drawing them: for weights that come from elsewhere.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_zeros(&self) -> Result<Model> {
        self.finish(&[], None)
    }

    /// [`build_with`](Self::build_with); without a seed, parameters are 0.
    pub(super) fn finish(&self, own: &[Entry], seed: Option<u64>) -> Result<Model> {
        if let Some((idx, misread)) = self.misread(own) {
            let key = misread.key().map_or(String::new(), |key| format!(", key `{}`,", shown(key)));
            let help = misread.help.unwrap_or_else(|| "let it be as in Keras".into());
            return Err(Error::model(format!("{}{key}", self.layers[idx].who(idx)), misread.problem, help));
        }
        let mut reader =
            ConfigReader { graph: ModelBuilder::new(), tensors: HashMap::new(), layers: HashMap::new(), last: None };
        reader.inputs(self)?;
        for (idx, layer) in self.layers.iter().enumerate() {
            reader.layer(idx, layer, own)?;
        }
        let outputs = match (self.outputs.is_empty(), reader.last.clone()) {
            (false, _) => self.outputs.clone(),
            (true, Some(last)) => vec![last],
            (true, None) => Vec::new(),
        };
        let outputs =
            outputs.iter().map(|name| reader.tensor("the list of outputs", name)).collect::<Result<Vec<_>>>()?;
        reader.graph.finish(&outputs, seed)
    }

    /// Whether two configurations differ only in their trainable layers.
    pub(crate) fn trains_others(&self, other: &Self) -> bool {
        let all_trainable = |config: &Self| {
            let mut config = config.clone();
            config.layers.iter_mut().for_each(|layer| layer.trainable = None);
            config
        };
        self != other && all_trainable(self) == all_trainable(other)
    }

    /// Index and error of the first layer whose type or settings can't be read: of a model from a
    /// file, to say in which line that is.
    #[doc(hidden)]
    pub fn misread(&self, own: &[Entry]) -> Option<(usize, Misread)> {
        self.layers.iter().enumerate().find_map(|(idx, layer)| {
            let read = if layer.reuse.is_some() { Ok(()) } else { layer.read(own).map(drop) };
            read.err().map(|misread| (idx, misread))
        })
    }
}

impl LayerConfig {
    /// Whether a further use of a layer is in reverse; the value if it says neither.
    fn is_reversed(&self) -> Result<bool, &Value> {
        match self.settings.get(REVERSE).filter(|_| self.reuse.is_some()) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or(value),
        }
    }

    fn who(&self, idx: usize) -> String {
        let label = self.name.as_deref().or(self.kind.as_deref()).or(self.reuse.as_deref()).unwrap_or("?");
        format!("layer {idx} `{}`", shown(label))
    }

    /// The layer with what every layer can have.
    fn read(&self, own: &[Entry]) -> Result<Configured, Misread> {
        let (mut plain, mut regularizers) = (self.clone(), Regularizers::default());
        let keys = self.settings.keys().filter(|key| Regularizers::has_key(key));
        for (key, value) in keys.filter_map(|key| plain.settings.remove_entry(key)) {
            let read = reading::read::<Option<Regularizer>>(&value.into());
            let read = read.map_err(|error| {
                let Misread { problem, help, .. } = misread::explain(&error);
                let problem = match &error.reason {
                    ReadReason::UnknownField { name, .. } => format!("needs `l1` or `l2`, but has `{}`", shown(name)),
                    _ => problem,
                };
                Misread { path: vec![key.as_str().into()], problem, help }
            })?;
            read.into_iter().for_each(|regularizer| regularizers.set(key.clone(), regularizer));
        }
        let layer = plain.read_plain(own)?;
        let (is_trainable, packed) = (self.trainable != Some(false), self.packed.clone());
        Ok(Configured { is_trainable, regularizers, packed, ..Configured::new(layer) })
    }

    fn read_plain(&self, own: &[Entry]) -> Result<Arc<dyn Layer>, Misread> {
        let entries = || own.iter().chain(LAYERS);
        let kinds = known_names(own, KINDS);
        let Some(kind) = self.kind.as_deref() else {
            let help = "write `type = \"Dense\"`, or `reuse = \"name\"` to use a layer again".to_owned();
            return Err(Misread { path: Vec::new(), problem: "needs a `type`, but has none".into(), help: Some(help) });
        };
        let entry = names::known(kind, &kinds).and_then(|kind| entries().find(|entry| entry.kind == kind));
        let Some(entry) = entry else {
            let problem = format!("needs a known type, but got `{}`", shown(kind));
            return Err(Misread {
                path: vec!["type".into()],
                problem,
                help: Some(names::help(kind, "the types are", &kinds)),
            });
        };
        (entry.from_config)(Value::Object(self.settings.clone())).map_err(|error| misread::explain(&error))
    }
}

struct ConfigReader {
    graph: ModelBuilder,
    tensors: HashMap<String, super::TensorRef>,
    layers: HashMap<String, super::LayerRef>,
    last: Option<String>,
}

impl ConfigReader {
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
            let mut names: Vec<&str> = self.tensors.keys().map(String::as_str).collect();
            names.sort_unstable();
            let uses = name.split_once(':').is_some() || names.iter().any(|name| name.contains(':'));
            let more = if uses { "; the second use of a layer `name` is `name:1`, its third `name:2`" } else { "" };
            Error::model(
                who,
                format!("names `{}`, but neither an input nor a layer before it has that name", shown(name)),
                format!("{}{more}", names_help(name, &names)),
            )
        })
    }

    fn layer(&mut self, idx: usize, config: &LayerConfig, own: &[Entry]) -> Result<()> {
        let who = config.who(idx);
        let layer = self.find_layer(&who, config, own)?;
        let inputs = match (&config.inputs, &self.last) {
            (Some(names), _) => names.clone(),
            (None, Some(last)) => vec![last.clone()],
            (None, None) => Vec::new(),
        };
        let inputs = inputs.iter().map(|name| self.tensor(&who, name)).collect::<Result<Vec<_>>>()?;
        let is_reversed = config.is_reversed().map_err(|value| {
            Error::model(&who, format!("needs `reverse` true or false, but got {value}"), "leave it out for false")
        })?;
        let direction = if is_reversed { Direction::Reverse } else { Direction::Forward };
        let tensor = self.graph.call_node(layer, &inputs, direction);
        let name = self.graph.node_name(tensor);
        self.tensors.insert(name.clone(), tensor);
        self.last = Some(name);
        Ok(())
    }

    fn find_layer(&mut self, who: &str, config: &LayerConfig, own: &[Entry]) -> Result<super::LayerRef> {
        if let Some(name) = &config.reuse {
            let other = config.kind.as_ref().map(|_| "type").or(config.name.as_ref().map(|_| "name"));
            let other = other.or(config.trainable.map(|_| "trainable"));
            let other = other.or((!config.packed.is_empty()).then_some("packed"));
            let mut settings = config.settings.keys().map(String::as_str).filter(|key| *key != REVERSE);
            if let Some(key) = other.or(settings.next()) {
                return Err(Error::model(
                    who,
                    format!("reuses `{name}` and can have only `inputs` and `reverse`, but also has `{key}`"),
                    "leave it out: a reused layer keeps its settings",
                ));
            }
            return self.layers.get(name).copied().ok_or_else(|| {
                let mut names: Vec<&str> = self.layers.keys().map(String::as_str).collect();
                names.sort_unstable();
                Error::model(
                    who,
                    format!("reuses `{}`, but no layer before it has that name", shown(name)),
                    names_help(name, &names),
                )
            });
        }
        let layer = config.read(own).map_err(|misread| {
            Error::model(who, misread.problem, misread.help.unwrap_or_else(|| "let it be as in Keras".into()))
        })?;
        let layer = self.graph.shared_layer(config.name.as_deref(), layer);
        self.layers.insert(self.graph.layer_name(layer), layer);
        Ok(layer)
    }
}

/// Help that lists the known names, a handful at most.
pub(super) fn names_help(name: &str, names: &[&str]) -> String {
    const MOST: usize = 6;
    let near = names::nearest(name, names).map(|near| format!("did you mean `{}`? ", shown(near)));
    let some: Vec<String> = names.iter().take(MOST).map(|name| format!("`{}`", shown(name))).collect();
    let more = if names.len() > MOST { " and others" } else { "" };
    let some = if some.is_empty() { "none".into() } else { some.join(", ") };
    format!("{}the names are: {some}{more}", near.unwrap_or_default())
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
                let reverse = node.is_reversed.then(|| (REVERSE.to_owned(), Value::Bool(true)));
                let (reuse, settings) = (Some(named.name.clone()), reverse.into_iter().collect());
                return LayerConfig { reuse, inputs, settings, ..LayerConfig::default() };
            }
            let mut settings = match named.layer.config() {
                Value::Object(settings) => settings,
                _ => Map::new(),
            };
            settings.extend(named.regularizers.iter().map(|(key, it)| (key.to_owned(), to_config(&it))));
            let (name, kind) = (Some(named.name.clone()), Some(named.layer.kind().to_owned()));
            let trainable = (!named.is_trainable).then_some(false);
            let packed = named.packed.clone();
            LayerConfig { name, kind, inputs, settings, trainable, packed, reuse: None }
        });
        ModelConfig {
            input: None,
            inputs: inputs.collect(),
            layers: layers.collect(),
            outputs: self.outputs.iter().map(|tensor| self.tensor_name(*tensor).to_owned()).collect(),
        }
    }
}
