//! A rig and its work in a file.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::spec::AdapterSpec;
use crate::error::{Error, Result};
use crate::losses::Loss;
use crate::misread;
use crate::model::{Model, ModelConfig, Objective};
use crate::optimizers::Optimizer;
use crate::plan::BatchStatistics;
use crate::presets::{self, PRESETS};
use crate::scheduler::Placement;

/// Input of [`simulate`](super::simulate).
///
/// ```
/// use manyhands::simulator::{RigConfig, simulate};
/// # fn main() -> manyhands::Result<()> {
/// let rig = RigConfig::parse(r#"
///     preset = "mlp"
///     batch_size = 256
///
///     [host]
///     copy_gb_s = 100.0
///
///     [[adapters]]
///     name = "fast"
///     fixed_ms = 1.0
///     per_row_ms = 0.1
///
///     [[adapters]]
///     name = "slow"
///     fixed_ms = 1.0
///     per_row_ms = 0.3
/// "#)?;
/// let report = simulate(&rig)?;
/// // 192 rows and 64 rows take 20.2 ms; sums and update go over twelve times 7.6 MB, which takes 0.9 ms.
/// assert!((report.strong[1].step_ms - 21.1).abs() < 0.2, "{report}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RigConfig {
    /// Rows of a batch.
    pub batch_size: u32,
    /// Name of one of the crate's [`presets`], in place of `model`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_preset")]
    pub preset: Option<String>,
    /// Optimizer; the host's work depends on it. Default: Adam.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<Optimizer>,
    /// Rows over which batch normalization takes its statistics: each adapter's, or the whole batch.
    #[serde(default)]
    pub batch_statistics: BatchStatistics,
    /// The host.
    #[serde(default)]
    pub host: HostSpec,
    /// Place of each layer's computation: `"replicas"`, `"auto"` for the command, or stages: see [`Placement`].
    #[serde(default, skip_serializing_if = "is_replicas")]
    pub placement: Placement,
    /// Pieces of a batch that go through the stages of a placement. Default: 4; with `"auto"`, as many as are fastest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batches: Option<u32>,
    /// The adapters, in any order.
    pub adapters: Vec<AdapterSpec>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelConfig>,
}

fn is_replicas(placement: &Placement) -> bool {
    *placement == Placement::Replicas
}

/// The host of a simulated rig.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Bytes that it reads and writes when it adds gradients and updates parameters, in 10⁹ a second, all threads
    /// together.
    pub copy_gb_s: f64,
}

impl Default for HostSpec {
    /// 10 GB/s: two channels of DDR4 at about a third of their peak.
    fn default() -> Self {
        Self { copy_gb_s: 10.0 }
    }
}

impl RigConfig {
    /// Reads a rig from TOML.
    ///
    /// # Errors
    /// If it is no TOML, or a name or number in it makes no sense.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_file(text, "the rig")
    }

    fn parse_file(text: &str, file: &str) -> Result<Self> {
        let rig: Self = misread::read(text, file, "see `examples/rigs/` for whole ones")?;
        rig.check()?;
        Ok(rig)
    }

    /// Reads a rig from a TOML file.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), or if the file can't be read.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::reading(path, source))?;
        Self::parse_file(&text, &path.display().to_string())
    }

    /// The rig as TOML, as [`parse`](Self::parse) reads it.
    ///
    /// # Errors
    /// If the model has a setting that TOML can't say.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| {
            Error::setting(
                "the rig",
                format!("can't be written as TOML: {error}"),
                "use a preset in place of the model",
            )
        })
    }

    /// The objective of a model's training: mean squared errors of its outputs.
    pub(crate) fn objective(&self, model: &Model) -> Objective {
        let optimizer = self.optimizer.clone().unwrap_or_else(|| Optimizer::adam(1e-3));
        let losses = vec![Loss::MEAN_SQUARED_ERROR; model.outputs().len()];
        Objective { batch_statistics: self.batch_statistics, ..Objective::new(losses, optimizer) }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.adapters.is_empty() {
            return Err(Error::setting("`adapters`", "needs one or more, but there are none", "add `[[adapters]]`"));
        }
        if self.batch_size == 0 {
            return Err(Error::setting("`batch_size`", "needs to be 1 or more, but is 0", "256 is usual"));
        }
        if self.micro_batches == Some(0) {
            return Err(Error::setting("`micro_batches`", "needs to be 1 or more, but is 0", "4 is usual for stages"));
        }
        self.adapters.iter().enumerate().try_for_each(|(idx, adapter)| check_adapter(idx, adapter))?;
        check_above_zero("`host`", &[("copy_gb_s", Some(self.host.copy_gb_s))])
    }

    pub(crate) fn build_model(&self) -> Result<Model> {
        match (&self.model, &self.preset) {
            (Some(model), None) => model.build(0),
            (None, Some(preset)) => presets::find(preset)?.build(0),
            (both, _) => Err(Error::setting(
                "the rig",
                format!("needs `model` or `preset`, but has {}", if both.is_some() { "both" } else { "neither" }),
                "write `preset = \"cnn6\"`, or a `[model]`",
            )),
        }
    }
}

/// The name of a preset; an unknown one is an error with its line.
fn read_preset<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(deserializer)?;
    match presets::find(&name) {
        Ok(preset) => Ok(Some(preset.name.to_owned())),
        Err(_) => {
            let known: Vec<String> = PRESETS.iter().map(|preset| format!("`{}`", preset.name)).collect();
            Err(de::Error::custom(format!("unknown variant `{name}`, expected one of {}", known.join(", "))))
        }
    }
}

fn check_adapter(idx: usize, adapter: &AdapterSpec) -> Result<()> {
    let who = format!("adapter {idx} `{}`", adapter.name);
    if adapter.per_row_ms.is_none() && adapter.gflops.is_none() {
        return Err(Error::setting(who, "needs a speed, but has none", "give `per_row_ms`, or `gflops`"));
    }
    if [adapter.fixed_ms, adapter.latency_ms, adapter.jitter].iter().any(|ms| !(ms.is_finite() && *ms >= 0.0)) {
        let problem = "needs `fixed_ms`, `latency_ms` and `jitter` from 0 up";
        return Err(Error::setting(who, problem, "leave out what is not known"));
    }
    let rates = [
        ("per_row_ms", adapter.per_row_ms),
        ("gflops", adapter.gflops),
        ("memory_gb_s", adapter.memory_gb_s),
        ("upload_gb_s", adapter.upload_gb_s),
        ("download_gb_s", adapter.download_gb_s),
        ("memory_gb", adapter.memory_gb),
    ];
    check_above_zero(&who, &rates)
}

fn check_above_zero(who: &str, rates: &[(&str, Option<f64>)]) -> Result<()> {
    let wrong = rates.iter().find(|(_, rate)| rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)));
    wrong.map_or(Ok(()), |(name, rate)| {
        let problem = format!("needs `{name}` above 0, but it is {}", rate.unwrap_or_default());
        Err(Error::setting(who, problem, "leave out what is not known"))
    })
}
