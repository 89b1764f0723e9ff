//! The setting `model`: a model file, or the table `[model]`.

use std::path::PathBuf;

use manyhands::model::{InputConfig, LayerConfig};
use manyhands::schema::Pixels;
use manyhands::{ModelConfig, Result, Shape};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

#[cfg(test)]
use super::described;
use super::language::LanguageTable;

/// `model = "file.safetensors"`, or the table `[model]`.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "described::PathOrTable"))]
pub enum ModelSource {
    File(PathBuf),
    Layers(ModelConfig),
    /// Layers behind those of a model file, of which `until` is the last.
    Start {
        start: PathBuf,
        until: Option<String>,
        pixels: Option<Pixels>,
        config: ModelConfig,
    },
    /// A language model of others, with factors to train.
    Language(LanguageTable),
}

/// The table `[model]`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ModelTable {
    /// A model file, whose layers with their weights stand before the new ones.
    start: Option<PathBuf>,
    /// The last layer of `start` that is used; all are, if it is left out.
    until: Option<String>,
    /// Pixels that `start` expects, if its file does not tell: a frozen layer in front makes them of pixels from 0 to 1.
    pixels: Option<Pixels>,
    /// Shape of a row of the one input, which is then called `input`. Without inputs, they are those of the data.
    input: Option<Shape>,
    /// Several inputs.
    #[serde(default)]
    inputs: Vec<InputConfig>,
    /// The layers in order.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<described::AnyLayer>"))]
    layers: Option<Vec<LayerConfig>>,
    /// Names of the outputs.
    #[serde(default)]
    outputs: Vec<String>,
    /// A language model of others in place of all else.
    language: Option<LanguageTable>,
}

impl ModelTable {
    /// The source that the table tells, or what is wrong with it.
    fn source(self) -> Result<ModelSource, &'static str> {
        let Self { start, until, pixels, input, inputs, layers, outputs, language } = self;
        let has_inputs = input.is_some() || !inputs.is_empty();
        if let Some(language) = language {
            let is_alone = start.is_none()
                && until.is_none()
                && pixels.is_none()
                && !has_inputs
                && layers.is_none()
                && outputs.is_empty();
            return if is_alone { Ok(ModelSource::Language(language)) } else { Err("needs nothing beside `language`") };
        }
        if start.is_none() && until.is_some() {
            return Err("needs `start`, a model file, beside `until`");
        }
        if start.is_none() && pixels.is_some() {
            return Err("needs `start`, a model file, beside `pixels`: a new model learns from pixels from 0 to 1");
        }
        let Some(layers) = layers else { return Err("needs `layers`") };
        let config = ModelConfig { input, inputs, layers, outputs };
        match (start, until) {
            (Some(_), _) if has_inputs => Err("needs no inputs beside `start`, whose model has them"),
            (Some(start), until) => Ok(ModelSource::Start { start, until, pixels, config }),
            (None, _) => Ok(ModelSource::Layers(config)),
        }
    }
}

impl<'de> Deserialize<'de> for ModelSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source;
        impl<'de> Visitor<'de> for Source {
            type Value = ModelSource;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table of layers, or the path of a model file")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<ModelSource, E> {
                Ok(ModelSource::File(path.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelSource, A::Error> {
                let table = ModelTable::deserialize(MapAccessDeserializer::new(map))?;
                table.source().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Source)
    }
}
