//! Settings of a run, and of a rig that is predicted.

use manyhands::presets::{self, Size, digits};
use manyhands::simulator::{AdapterSpec, HostSpec, Incident, RigConfig};
use manyhands::{Error, Model, Result, SplitMode};
use serde::{Deserialize, Serialize};

use crate::models;
use crate::tasks::LearnedData;
#[cfg(test)]
use crate::types;

/// Rows over which batch normalization takes its statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum BatchNorm {
    /// The rows of each shard.
    PerShard,
    /// The whole batch.
    WholeBatch,
}

/// Split of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "Split"))]
#[serde(rename_all = "snake_case")]
pub enum RowSplit {
    /// By measured speed.
    #[default]
    Learned,
    /// As many rows for each adapter.
    Even,
}

impl From<RowSplit> for SplitMode {
    fn from(split: RowSplit) -> Self {
        match split {
            RowSplit::Learned => Self::Learned,
            RowSplit::Even => Self::Even,
        }
    }
}

/// Most adapters of a rig; each of the CPU's is a worker.
pub const MOST_ADAPTERS: usize = 16;

/// Checks the number of adapters of a rig.
///
/// # Errors
/// If there are none, or too many.
pub fn check_adapters(n_adapters: usize) -> Result<()> {
    let problem = match n_adapters {
        0 => "needs at least one, but is empty".into(),
        1..=MOST_ADAPTERS => return Ok(()),
        _ => format!("has {MOST_ADAPTERS} at most, but {n_adapters} were asked for"),
    };
    let help = if n_adapters == 0 { "add the CPU adapter" } else { "remove one before another is added" };
    Err(Error::setting("the rig", problem, help))
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "Settings"))]
pub struct RunSettings {
    /// The data to learn from.
    #[serde(default)]
    pub data: LearnedData,
    /// Id of the network.
    pub model: String,
    /// Indices of the adapters in the list, in order; one may be there twice. At least one.
    pub adapters: Vec<usize>,
    /// Factor by which each is slowed down; missing ones are 1.
    pub throttles: Vec<f64>,
    /// Rows of a training step over all adapters: 1 to 512, may be below the number of adapters.
    pub batch_size: usize,
    /// Split of batches.
    pub split: RowSplit,
    /// Rows over which batch normalization takes its statistics.
    pub batch_norm: BatchNorm,
    /// Learning rate of Adam.
    pub learning_rate: f32,
    /// Seed of weights, order and dropout: a whole number from 0 to 4294967295.
    pub seed: u64,
    /// Epochs after which training ends, and that `resume` adds; 0 for no end.
    pub epochs: u64,
    /// The first epoch, counted from 1, whose pictures are varied; 0 for none.
    #[serde(default)]
    pub varied_from: u64,
    /// Temperature of text that is written: low ones keep to what is likely.
    #[serde(default = "temperature")]
    pub temperature: f32,
}

fn temperature() -> f32 {
    0.6
}

/// Settings that change during a run; missing ones stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(optional_fields))]
pub struct Change {
    /// Rows of a training step.
    pub batch_size: Option<usize>,
    /// Split of batches.
    pub split: Option<RowSplit>,
    /// Rows over which batch normalization takes its statistics.
    pub batch_norm: Option<BatchNorm>,
    /// Learning rate of Adam.
    pub learning_rate: Option<f32>,
    /// Temperature of text that is written.
    pub temperature: Option<f32>,
}

/// The networks for which the page predicts: its own, and only these of the crate's presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "Preset"))]
#[serde(rename_all = "snake_case")]
pub enum PredictedModel {
    /// A network that the page trains, which `here` names.
    Here,
    /// Dense layers.
    Mlp,
    /// Six convolutions.
    Cnn6,
    /// Thirteen convolutions.
    Vgg,
    /// The page's first network.
    DigitsCnn,
}

impl PredictedModel {
    /// Name of the preset; none for the network of the run.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Here => None,
            Self::Mlp => Some("mlp"),
            Self::Cnn6 => Some("cnn6"),
            Self::Vgg => Some("vgg"),
            Self::DigitsCnn => Some("digits_cnn"),
        }
    }

    /// The model, in the preset's own size, or a network of the page.
    ///
    /// # Errors
    /// If no network of the page is named, or there is none of that name.
    pub fn build(self, here: Option<&PageNetwork>) -> Result<Model> {
        let size = |input: [usize; 3], outputs| Size { input: input.into(), outputs, seed: 0 };
        match self {
            Self::Here => {
                let missing =
                    || Error::setting("`here`", "needs to name a network, but is not there", "name data and model");
                let PageNetwork { data, model, outputs } = here.ok_or_else(missing)?;
                models::of(*data, *outputs, model, BatchNorm::PerShard, 0)
            }
            Self::Mlp => presets::mlp(&size([28, 28, 1], 10)),
            Self::Cnn6 => presets::cnn6(&size([32, 32, 3], 10)),
            Self::Vgg => presets::vgg(&size([224, 224, 3], 1000)),
            Self::DigitsCnn => {
                digits::cnn(&Size { input: digits::SHAPE.into(), outputs: digits::CLASSES, seed: 0 }, digits::norm())
            }
        }
    }
}

/// A network that the page trains.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "PageNetwork"))]
pub struct PageNetwork {
    /// The data that it learns.
    pub data: LearnedData,
    /// Its id.
    pub model: String,
    /// Width of its output: `outputs` of the data.
    pub outputs: usize,
}

/// A rig to predict, with a preset of the crate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "RigConfig"))]
pub struct Described {
    /// Rows of a batch.
    pub batch_size: u32,
    /// The model.
    pub preset: PredictedModel,
    /// The page's network, if the model is that one.
    #[serde(default)]
    #[cfg_attr(test, ts(optional))]
    pub here: Option<PageNetwork>,
    /// The host.
    #[cfg_attr(test, ts(as = "types::HostSpec"))]
    pub host: HostSpec,
    /// The adapters.
    #[cfg_attr(test, ts(as = "Vec<types::AdapterSpec>"))]
    pub adapters: Vec<AdapterSpec>,
    /// Split of each batch. Default: by speed.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<RowSplit>", optional))]
    pub split: RowSplit,
    /// Events in the run, by step: adapters become slower or are lost.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<Vec<types::Incident>>", optional))]
    pub events: Vec<Incident>,
}

impl From<Described> for RigConfig {
    fn from(rig: Described) -> Self {
        let Described { batch_size, preset, host, adapters, split, .. } = rig;
        let preset = preset.name().map(str::to_owned);
        Self { batch_size, preset, host, adapters, split: split.into(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rig_has_one_adapter_at_least_and_no_more_than_the_most() {
        assert!(check_adapters(1).is_ok() && check_adapters(MOST_ADAPTERS).is_ok());
        let refused = |n_adapters| check_adapters(n_adapters).unwrap_err().to_string();
        assert!(refused(0).contains("needs at least one"));
        assert!(refused(MOST_ADAPTERS + 1).contains("has 16 at most, but 17 were asked for"));
    }

    #[test]
    fn networks_of_predictions_are_presets_in_their_own_size() {
        for name in ["mlp", "cnn6", "vgg", "digits_cnn"] {
            let preset: PredictedModel = serde_json::from_value(name.into()).unwrap();
            assert_eq!(preset.name(), Some(name));
            let built = preset.build(None).unwrap();
            assert_eq!(built.config(), presets::find(name).unwrap().build(0).unwrap().config());
        }
        assert!(PredictedModel::Here.build(None).is_err());
        let here = PageNetwork { data: LearnedData::Digits, model: "cnn".into(), outputs: 10 };
        assert_eq!(PredictedModel::Here.build(Some(&here)).unwrap().n_parameters(), 33_658);
    }
}
