//! Placement of a model's layers on adapters: copies of all of it, or stages.

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::model::stages::Stage;
use crate::names;

/// The adapters that compute each layer of a model.
///
/// ```
/// use manyhands::data::digits;
/// use manyhands::layers::{Activation, Dense, Flatten};
/// use manyhands::{Compile, Fit, Loss, Optimizer, Placement, Sequential, Trainer};
/// # fn main() -> manyhands::Result<()> {
/// let model = Sequential::new([8, 8, 1])
///     .add(Flatten::default())
///     .add_named("hidden", Dense::new(32).activation(Activation::Relu))
///     .add_named("scores", Dense::new(10))
///     .build(0)?;
/// let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
/// let placement = Placement::stages([(["..hidden"], [0]), (["scores"], [1])]);
/// let mut trainer = Trainer::new(model, compile)?.adapters("cpu,cpu")?.placement(placement);
/// trainer.fit(digits::train()?, &Fit::new(2).micro_batches(4))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(schema_with = "described"))]
pub enum Placement {
    /// Each adapter computes all layers, for its rows of the batch.
    #[default]
    Replicas,
    /// Chosen by measurement before the first step: replicas, or the stages that are predicted to be faster by 5 % or
    /// more, or that fit where replicas do not. Adapters without which a step is predicted to be faster by 5 % or more are left out, until
    /// all others are lost. Stages move where measurements show later that others are faster.
    Auto,
    /// Each stage computes some layers, for all rows: a batch goes through them in micro-batches. An adapter holds the
    /// weights of its stage alone.
    ///
    /// Batch normalization takes mean and variance of each micro-batch.
    Stages(Vec<StageSpec>),
}

/// A name, or a list of stages.
#[cfg(feature = "schema")]
fn described(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let stages = generator.subschema_for::<Vec<StageSpec>>();
    schemars::json_schema!({ "anyOf": [{ "enum": ["replicas", "auto"] }, stages] })
}

/// The layers of a stage, and the adapters that compute it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StageSpec {
    /// Names of layers, and ranges of them: `first..last` with both ends, `..last`, `first..`. A further use of a shared
    /// layer has a name of its own, such as `tower:1`; `manyhands summary` lists all.
    pub layers: Vec<String>,
    /// Positions of the adapters among those of the run. Several share the micro-batches by their speed.
    pub adapters: Vec<usize>,
}

/// The stage of each node of a model, and of each adapter; `None` for adapters without layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    pub nodes: Vec<usize>,
    pub adapters: Vec<Option<usize>>,
}

impl Division {
    /// Number of stages.
    pub fn n_stages(&self) -> usize {
        self.nodes.iter().max().map_or(0, |last| last + 1)
    }
}

/// Stages with their plans, none for a model that is not divided, and the stage of each adapter.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub stages: Vec<Stage>,
    pub stage_of: Vec<Option<usize>>,
}

/// Places a model on those adapters that are active; `None` if it can't.
pub(crate) type Placer = Arc<dyn Fn(&[bool]) -> Option<Placed> + Send + Sync>;

impl Placement {
    /// Stages in order: the layers of each, and its adapters.
    pub fn stages<L, A>(stages: impl IntoIterator<Item = (L, A)>) -> Self
    where
        L: IntoIterator<Item: Into<String>>,
        A: IntoIterator<Item = usize>,
    {
        let stage = |(layers, adapters): (L, A)| StageSpec {
            layers: layers.into_iter().map(Into::into).collect(),
            adapters: adapters.into_iter().collect(),
        };
        Self::Stages(stages.into_iter().map(stage).collect())
    }

    /// The stage of each node and adapter; `None` if each adapter computes all layers.
    ///
    /// # Errors
    /// If a name is unknown, or a layer or an adapter has no stage or several.
    pub(crate) fn division(&self, model: &Model, n_adapters: usize) -> Result<Option<Division>> {
        let stages = match self {
            Self::Replicas => return Ok(None),
            Self::Auto => {
                let problem = "needs measurements to be `auto`, but there are none here";
                return Err(Error::setting("placement", problem, "let a `Trainer` open the adapters, or name stages"));
            }
            Self::Stages(stages) => stages,
        };
        let nodes = nodes_of_stages(model, stages)?;
        let adapters = adapters_of_stages(stages, n_adapters)?.into_iter().map(Some).collect();
        Ok(Some(Division { nodes, adapters }))
    }

    /// The stage of each node; `None` if each adapter computes all layers, or that is not known yet.
    ///
    /// # Errors
    /// If a name is unknown, or a layer has no stage or several.
    pub(crate) fn nodes(&self, model: &Model) -> Result<Option<Vec<usize>>> {
        match self {
            Self::Replicas | Self::Auto => Ok(None),
            Self::Stages(stages) => nodes_of_stages(model, stages).map(Some),
        }
    }
}

fn nodes_of_stages(model: &Model, stages: &[StageSpec]) -> Result<Vec<usize>> {
    let mut nodes = vec![None; model.nodes.len()];
    for (stage, StageSpec { layers, .. }) in stages.iter().enumerate() {
        for node in layers.iter().map(|layers| nodes_of(model, layers)).collect::<Result<Vec<_>>>()?.concat() {
            if let Some(other) = nodes[node].replace(stage).filter(|other| *other != stage) {
                let name = &model.nodes[node].name;
                return Err(refused(format!("needs each layer once, but `{name}` is in stages {other} and {stage}")));
            }
        }
    }
    place_masks(model, &mut nodes);
    let missing = |idx: usize| {
        let name = &model.nodes[idx].name;
        refused(format!("needs a stage for each layer, but `{name}` has none"))
    };
    nodes.iter().enumerate().map(|(idx, stage)| stage.ok_or_else(|| missing(idx))).collect()
}

fn adapters_of_stages(stages: &[StageSpec], n_adapters: usize) -> Result<Vec<usize>> {
    let mut adapters = vec![None; n_adapters];
    for (stage, StageSpec { adapters: members, .. }) in stages.iter().enumerate() {
        for adapter_idx in members {
            let problem = match adapters.get_mut(*adapter_idx).map(|place| place.replace(stage)) {
                Some(None) => continue,
                Some(Some(other)) => {
                    format!("needs each adapter once, but {adapter_idx} is in stages {other} and {stage}")
                }
                None => format!("needs adapters below {n_adapters}, the number in the run, but has {adapter_idx}"),
            };
            return Err(refused(problem));
        }
    }
    let idle = |idx: usize| refused(format!("needs a stage for each adapter of the run, but adapter {idx} has none"));
    adapters.iter().enumerate().map(|(idx, stage)| stage.ok_or_else(|| idle(idx))).collect()
}

fn refused(problem: String) -> Error {
    Error::setting("placement", problem, "a model's summary has the names and the order of the layers")
}

/// Masks that were found for layers are computed with the first layer that reads them, unless they are named.
fn place_masks(model: &Model, stages: &mut [Option<usize>]) {
    let first = model.inputs.len();
    for idx in (0..stages.len()).rev() {
        let is_mask = model.layers[model.nodes[idx].layer_idx].layer.kind() == "ComputeMask";
        if stages[idx].is_none() && is_mask {
            let readers =
                model.nodes.iter().zip(stages.iter()).filter(|(node, _)| node.inputs.contains(&(first + idx)));
            stages[idx] = readers.filter_map(|(_, stage)| *stage).min();
        }
    }
}

/// The nodes that a name or a range of names means.
fn nodes_of(model: &Model, layers: &str) -> Result<Vec<usize>> {
    let find = |name: &str| {
        let known = || model.nodes.iter().map(|node| node.name.as_str());
        known().position(|node| node == name.trim()).ok_or_else(|| {
            let near = names::nearest(name.trim(), &known().collect::<Vec<_>>())
                .map_or_else(String::new, |near| format!("; `{near}` is there"));
            refused(format!("needs layers of the model, but `{}` is none{near}", name.trim()))
        })
    };
    let Some((first, last)) = layers.split_once("..") else { return Ok(vec![find(layers)?]) };
    let first = if first.trim().is_empty() { 0 } else { find(first)? };
    let last = if last.trim().is_empty() { model.nodes.len().saturating_sub(1) } else { find(last)? };
    if first > last {
        return Err(refused(format!("needs ranges in the order of the layers, but has `{layers}`")));
    }
    Ok((first..=last).collect())
}

/// Writes what is read below.
impl Serialize for Placement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Replicas => serializer.serialize_str("replicas"),
            Self::Auto => serializer.serialize_str("auto"),
            Self::Stages(stages) => stages.serialize(serializer),
        }
    }
}

/// Reads `"replicas"`, `"auto"`, or a list of stages.
impl<'de> Deserialize<'de> for Placement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Placement;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "\"replicas\", \"auto\", or a list of stages such as `[{ layers = [\"..conv3\"], adapters = [0] }, …]`",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Placement, E> {
                match text {
                    "replicas" => Ok(Placement::Replicas),
                    "auto" => Ok(Placement::Auto),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Placement, A::Error> {
                let mut stages = Vec::new();
                while let Some(stage) = seq.next_element()? {
                    stages.push(stage);
                }
                Ok(Placement::Stages(stages))
            }
        }

        deserializer.deserialize_any(Read)
    }
}
