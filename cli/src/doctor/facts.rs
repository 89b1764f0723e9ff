//! Facts that `doctor` finds out, without a judgement.

use manyhands::ErrorKind;
use manyhands::adapters::Info;
use manyhands_engine::adapters::list::Dxc;
use serde::Serialize;

/// A machine and its adapters.
#[derive(Clone, Debug, Serialize)]
pub struct MachineFacts {
    /// Version of manyhands.
    pub version: &'static str,
    /// Operating system and processor.
    pub system: String,
    /// Threads that the machine runs at once.
    pub threads: usize,
    /// Bytes of main memory, and those that are free; `None` where the system does not say.
    pub memory: Option<u64>,
    pub memory_free: Option<u64>,
    /// Limits after which the system resets a driver.
    pub resets: Vec<Reset>,
    /// The new compiler of DX12, where the old one builds an adapter's shaders.
    pub dxc: Dxc,
    /// GPUs of the machine, tried or not.
    pub gpus: usize,
    pub adapters: Vec<Examined>,
}

impl MachineFacts {
    /// Name of the adapter with an index; empty if there is none.
    pub fn name(&self, index: usize) -> &str {
        self.adapters.iter().find(|adapter| adapter.info.index == index).map_or("", |adapter| &adapter.info.name)
    }
}

/// A limit of the system for the work of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reset {
    /// The setting: a key of the registry, a parameter of a driver.
    pub name: String,
    /// Seconds after which the driver is reset; `None` if it never is.
    pub seconds: Option<f64>,
}

/// An adapter that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Examined {
    #[serde(flatten)]
    pub info: Info,
    /// Bytes of memory of its own, where the system says.
    pub memory: Option<u64>,
    /// Speed of transfers.
    pub link: Option<LinkSpeed>,
    pub kernels: KernelVerdicts,
    #[serde(flatten)]
    pub outcome: StepOutcome,
}

/// Verdicts on the kernels that the training step needs, each with its tile and constants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelVerdicts {
    /// Number of those that compute their cases as their definitions do.
    pub right: usize,
    /// Names of those that do not.
    pub wrong: Vec<String>,
    /// Names of those without a case.
    pub untried: Vec<String>,
}

/// Speed of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkSpeed {
    /// Of 8 MB, in 10⁹ bytes a second.
    pub upload_gb_s: f64,
    pub readback_gb_s: f64,
    /// Milliseconds until 2 kB that were asked for are there.
    pub round_trip_ms: f64,
}

/// The result of a training step.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    Trained(ComparedStep),
    Failed(Failed),
}

/// A training step that was not done.
#[derive(Clone, Debug, Serialize)]
pub struct Failed {
    #[serde(serialize_with = "name")]
    pub kind: ErrorKind,
    pub text: String,
}

fn name<S: serde::Serializer>(kind: &ErrorKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{kind:?}"))
}

/// A training step beside that of the CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ComparedStep {
    /// Milliseconds until the adapter was open, kernels compiled; then of the first step.
    pub open_ms: f64,
    pub step_ms: f64,
    pub loss: f64,
    /// The loss on the CPU.
    pub expected_loss: f64,
    /// Whether the step changed any weight.
    pub has_changed: bool,
    /// Tensors and outputs that are not those of the CPU.
    pub differences: Vec<Difference>,
    /// Kernels whose results are not those of their definitions, where they were tried one by one.
    pub wrong_kernels: Vec<String>,
}

/// A tensor or output that is not that of the CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its name, that of its layer first.
    pub name: String,
    /// Largest difference, in parts of the largest value.
    pub part: f64,
}
