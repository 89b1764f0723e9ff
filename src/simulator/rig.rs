//! A rig and its work in a file.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use super::spec::AdapterSpec;
use crate::error::{Error, Result};
use crate::files;
use crate::losses::Loss;
use crate::misread;
use crate::model::{Model, ModelConfig, Objective};
use crate::optimizers::Optimizer;
use crate::plan::{BatchStatistics, GradientCompression};
use crate::presets::{self, PRESETS};
use crate::scheduler::Placement;
use crate::scheduler::split::SplitMode;

/// Machines of a rig: beyond them the messages of all processes to each other take too much memory.
const MOST_MACHINES: u64 = 4096;
/// Most rows of a batch: each has a place in the simulated reports.
const MOST_ROWS: u32 = 1 << 20;

/// Problem of a split that is not simulated.
const OTHER_SPLIT: &str = "needs `learned` or `even`";

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
    /// Name of one of the crate's [`presets`], in place of `model`, in the size that `manyhands bench` measures.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_preset")]
    pub preset: Option<String>,
    /// Optimizer; the host's work depends on it. Default: Adam.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<Optimizer>,
    /// Rows over which batch normalization takes its statistics: each adapter's, or the whole batch.
    #[serde(default)]
    pub batch_statistics: BatchStatistics,
    /// Format of gradients on their way to the host, and between machines: `"none"` or `"fp16"`.
    #[serde(default, skip_serializing_if = "is_whole")]
    pub gradient_compression: GradientCompression,
    /// The host.
    #[serde(default)]
    pub host: HostSpec,
    /// Place of each layer's computation: `"replicas"`, `"auto"` for the command, or stages: see [`Placement`].
    #[serde(default, skip_serializing_if = "is_replicas")]
    pub placement: Placement,
    /// Pieces of a batch that go through the stages of a placement. Default: 4; with `"auto"`, as many as are fastest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batches: Option<u32>,
    /// Split of each batch among copies: `"learned"` from speed, or `"even"`, as most programs do.
    #[serde(
        default,
        skip_serializing_if = "is_learned",
        serialize_with = "write_split",
        deserialize_with = "read_split"
    )]
    pub split: SplitMode,
    /// The adapters, in any order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<AdapterSpec>,
    /// Machines that train together through MPI, in any order, in place of `host` and `adapters`: a process on each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<MachineSpec>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelConfig>,
}

fn is_whole(compression: &GradientCompression) -> bool {
    *compression == GradientCompression::None
}

fn is_replicas(placement: &Placement) -> bool {
    *placement == Placement::Replicas
}

fn is_learned(split: &SplitMode) -> bool {
    *split == SplitMode::Learned
}

fn write_split<S: Serializer>(split: &SplitMode, serializer: S) -> Result<S::Ok, S::Error> {
    match split {
        SplitMode::Learned => serializer.serialize_str("learned"),
        SplitMode::Even => serializer.serialize_str("even"),
        SplitMode::Fixed(_) | SplitMode::Recorded(_) => Err(ser::Error::custom(OTHER_SPLIT)),
    }
}

fn read_split<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SplitMode, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "learned" => Ok(SplitMode::Learned),
        "even" => Ok(SplitMode::Even),
        other => Err(de::Error::custom(format!("{OTHER_SPLIT}, but got `{}`", crate::shown(other)))),
    }
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

/// A machine of a simulated rig, or several of one kind.
///
/// Machines of a kind compute as many rows, up to one, and are simulated as one: `jitter` of their adapters is the same in all.
///
/// ```
/// use manyhands::simulator::{RigConfig, simulate};
/// # fn main() -> manyhands::Result<()> {
/// let rig = RigConfig::parse(r#"
///     preset = "mlp"
///     batch_size = 4096
///
///     [[machine]]
///     name = "node"
///     count = 2
///     network_gb_s = 1.17
///     host = { copy_gb_s = 1000.0 }
///     adapters = [{ name = "card", per_row_ms = 0.1 }]
/// "#)?;
/// let machines = simulate(&rig)?.machines.expect("the rig has machines");
/// // 2048 rows on each take 204.8 ms, and the sums of 7.46 MB of gradients 6.4 ms.
/// assert!((machines.strong[1].step_ms - 211.3).abs() < 1.0, "{machines:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Its name.
    pub name: String,
    /// Number of such machines. Default: 1.
    #[serde(default = "one")]
    pub count: u32,
    /// Bytes that it sends and receives over the network at once, in 10⁹ a second each way; several machines need it. 1 Gbit/s carries
    /// 0.117.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_gb_s: Option<f64>,
    /// Milliseconds of a message to another machine whatever its bytes: 0.05 on a small Ethernet, 0.002 on InfiniBand.
    #[serde(default)]
    pub network_latency_ms: f64,
    /// Its host.
    #[serde(default)]
    pub host: HostSpec,
    /// Its adapters, in any order.
    pub adapters: Vec<AdapterSpec>,
}

fn one() -> u32 {
    1
}

impl MachineSpec {
    /// Number of machines of this kind.
    pub(super) fn n_machines(&self) -> usize {
        self.count as usize
    }

    /// Its name, with the number of machines if there are several.
    pub(super) fn shown_name(&self) -> String {
        if self.count > 1 { format!("{} × {}", self.name, self.count) } else { self.name.clone() }
    }

    fn check(&self, idx: usize, n_machines: u64) -> Result<()> {
        let who = format!("machine {idx} `{}`", self.name);
        if self.count == 0 {
            return Err(Error::setting(who, "needs a `count` of 1 or more, but it is 0", "leave out the machine"));
        }
        if self.adapters.is_empty() {
            let help = "add `[[machine.adapters]]` below its `[[machine]]`";
            return Err(Error::setting(who, "needs `adapters`, one or more, but has none", help));
        }
        if self.network_gb_s.is_none() && n_machines > 1 {
            let help = "give the speed of its network: 1 Gbit/s carries 0.117, 10 Gbit/s 1.17";
            return Err(Error::setting(who, "needs `network_gb_s` beside other machines, but has none", help));
        }
        if !(self.network_latency_ms.is_finite() && self.network_latency_ms >= 0.0) {
            let problem = format!("needs `network_latency_ms` from 0 up, but it is {}", self.network_latency_ms);
            return Err(Error::setting(who, problem, "0.05 is usual on a small Ethernet"));
        }
        let rates = [("network_gb_s", self.network_gb_s), ("copy_gb_s", Some(self.host.copy_gb_s))];
        check_above_zero(&who, &rates)?;
        let of_machine = |(position, adapter)| check_adapter(&format!("{who}, adapter {position}"), adapter);
        self.adapters.iter().enumerate().try_for_each(of_machine)
    }
}

impl RigConfig {
    /// A rig without adapters and model, whose host reads and writes so many bytes, in 10⁹ a second.
    pub fn on_host(copy_gb_s: f64) -> Self {
        Self { host: HostSpec { copy_gb_s }, ..Self::default() }
    }

    /// Takes the model of a name, in place of its own.
    ///
    /// # Errors
    /// If no preset has the name.
    pub fn set_preset(&mut self, name: &str) -> Result<()> {
        self.preset = Some(presets::find(name)?.name.to_owned());
        self.model = None;
        Ok(())
    }

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
        let text = files::read_text(path)?;
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
        Objective {
            batch_statistics: self.batch_statistics,
            gradient_compression: self.gradient_compression,
            ..Objective::new(losses, optimizer)
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.adapters.is_empty() && self.machine.is_empty() {
            return Err(Error::setting("`adapters`", "needs one or more, but there are none", "add `[[adapters]]`"));
        }
        if !(1..=MOST_ROWS).contains(&self.batch_size) {
            let problem = format!("needs to be 1 to {MOST_ROWS}, but is {}", self.batch_size);
            return Err(Error::setting("`batch_size`", problem, "256 is usual"));
        }
        if matches!(self.split, SplitMode::Fixed(_) | SplitMode::Recorded(_)) {
            let problem = format!("{OTHER_SPLIT}, but is another");
            return Err(Error::setting("`split`", problem, "leave it out: shares by speed are predicted"));
        }
        if self.micro_batches == Some(0) {
            return Err(Error::setting("`micro_batches`", "needs to be 1 or more, but is 0", "4 is usual for stages"));
        }
        let of_rig = |(idx, adapter)| check_adapter(&format!("adapter {idx}"), adapter);
        self.adapters.iter().enumerate().try_for_each(of_rig)?;
        self.check_machines()?;
        check_above_zero("`host`", &[("copy_gb_s", Some(self.host.copy_gb_s))])
    }

    fn check_machines(&self) -> Result<()> {
        if self.machine.is_empty() {
            return Ok(());
        }
        let refuse = |who: &str, problem: &str, help: &str| Err(Error::setting(who, problem, help));
        if !self.adapters.is_empty() {
            let problem = "needs a machine, where the rig has `[[machine]]`, but stands outside of them";
            return refuse("`adapters`", problem, "write `[[machine.adapters]]` below the adapter's `[[machine]]`");
        }
        if self.host != HostSpec::default() {
            let problem = "needs a machine, where the rig has `[[machine]]`, but stands outside of them";
            return refuse("`host`", problem, "write `host = { copy_gb_s = … }` in each `[[machine]]`");
        }
        if self.placement != Placement::Replicas {
            let problem =
                "needs to be `\"replicas\"` where the rig has `[[machine]]`: no stages go over several processes";
            return refuse("`placement`", problem, "leave it out, or describe one machine by `adapters`");
        }
        let n_machines = self.machine.iter().map(|machine| u64::from(machine.count)).sum();
        if n_machines > MOST_MACHINES {
            let problem = format!("needs up to {MOST_MACHINES} machines, but has {n_machines}");
            return refuse("the rig", &problem, "set a smaller `count`");
        }
        self.machine.iter().enumerate().try_for_each(|(idx, machine)| machine.check(idx, n_machines))
    }

    /// The model's name, shapes and size, for a report.
    pub(super) fn in_words(&self, model: &Model) -> String {
        let name = self.preset.as_deref().unwrap_or("the model");
        let shapes: Vec<String> = model.inputs().iter().map(|input| input.shape.to_string()).collect();
        format!("{name} for {}: {} parameters", shapes.join(" and "), crate::thousands(model.n_parameters()))
    }

    /// The model that the rig names.
    ///
    /// # Errors
    /// If it names none or two, or the model's layers don't fit.
    pub fn build_model(&self) -> Result<Model> {
        match (&self.model, &self.preset) {
            (Some(model), None) => model.build(0),
            (None, Some(preset)) => presets::find(preset)?.build_measured(0),
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

/// Checks an adapter at a position.
fn check_adapter(position: &str, adapter: &AdapterSpec) -> Result<()> {
    let who = format!("{position} `{}`", adapter.name);
    if adapter.per_row_ms.is_none() && adapter.gflops.is_none() {
        return Err(Error::setting(who, "needs a speed, but has none", "give `card`, `per_row_ms`, or `gflops`"));
    }
    let costs = [adapter.fixed_ms, adapter.dispatch_us, adapter.latency_ms, adapter.jitter];
    if costs.iter().any(|cost| !(cost.is_finite() && *cost >= 0.0)) {
        let problem = "needs `fixed_ms`, `dispatch_us`, `latency_ms` and `jitter` from 0 up";
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
