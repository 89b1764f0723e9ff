//! The engine's types of messages as the page reads and sends them, with what it uses of them: the engine's own say nothing of TypeScript.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ts_rs::TS;

/// Kind of an adapter. A GPU of unknown kind is a `virtual_gpu`; `software` computes on the processor (SwiftShader).
#[derive(Serialize, Deserialize, TS)]
#[ts(rename = "Kind")]
#[serde(rename_all = "snake_case")]
enum AdapterKind {
    DiscreteGpu,
    IntegratedGpu,
    VirtualGpu,
    Cpu,
    Software,
}

/// An adapter that can be added to the rig; once, or several times as several devices.
#[derive(Serialize, Deserialize, TS)]
pub struct Info {
    /// Position in the list of adapters: 0 and up.
    index: usize,
    /// As the browser describes it, or the crate's name of the CPU adapter.
    name: String,
    /// Kind of the adapter.
    kind: AdapterKind,
    /// `webgpu`, or `host` for the CPU adapter.
    backend: String,
    /// Vendor and architecture, if the browser gives them; may be empty.
    driver: String,
    /// 0: browsers do not give it.
    vendor: u32,
    /// 0.
    device: u32,
    /// Empty.
    bus_id: String,
    /// Requests for which it was given: `high-performance`, `low-power`, `fallback`. Several where the browser gives the same adapter for
    /// them. Empty for the CPU adapter.
    requested_as: Vec<String>,
}

/// Reason why WebGPU gives no adapter here. `no_webgpu`: the browser has none. `insecure_origin`: it has, but for secure origins only. `no_adapter`:
/// it has, but `requestAdapter` gives null.
#[derive(Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    #[serde(rename = "no_webgpu")]
    NoWebGpu,
    InsecureOrigin,
    NoAdapter,
}

/// One training step.
#[derive(Serialize, Deserialize, TS)]
pub struct StepLog {
    /// Counted from 1 over all epochs.
    step: u64,
    /// Counted from 1.
    epoch: u64,
    /// Counted from 1 within the epoch.
    batch: usize,
    /// Batches of an epoch.
    batches: usize,
    /// Rows of the batch.
    rows: usize,
    /// Mean loss of this batch.
    loss: f64,
    /// Part of the rows of this batch that were classified right.
    accuracy: f64,
    /// Learning rate.
    learning_rate: f32,
    /// Global norm of the gradients.
    gradient_norm: f32,
    /// False if a value was not finite and nothing was updated.
    is_applied: bool,
    /// The whole step, waiting for data included.
    ms: f64,
    /// Milliseconds of `ms` that it waited for data.
    data_ms: f64,
    /// Milliseconds of `ms` that the host added gradients.
    reduce_ms: f64,
    /// Milliseconds of `ms` that the host updated and sent weights.
    update_ms: f64,
    /// Samples a second within the step, without what the worker did between steps.
    samples_per_s: f64,
    /// From the end of the step before to the end of this one: with the ends of epochs, predictions of the test digits, and whatever else
    /// the worker did meanwhile. The first step after a pause counts alone.
    clock_ms: f64,
    /// Parts of the adapters that had rows.
    #[ts(type = "AdapterLog[]")]
    adapters: Vec<Value>,
    /// This step, computed again by one adapter alone from the same weights; now and then, where several share a step.
    alone: Option<Alone>,
}

/// A step by one adapter alone.
#[derive(Serialize, Deserialize, TS)]
#[ts(rename = "ComputedAlone")]
struct Alone {
    /// Index into the members.
    adapter: usize,
    /// Mean loss of the batch.
    loss: f64,
    /// Global norm of the gradients.
    gradient_norm: f32,
}

/// One epoch.
#[derive(Serialize, Deserialize, TS)]
pub struct EpochLog {
    /// Counted from 1.
    epoch: u64,
    /// Training steps so far.
    step: u64,
    /// Over the epoch's batches.
    loss: f64,
    /// Over the epoch's batches.
    accuracy: f64,
    /// Over the test part, after the epoch.
    val_loss: f64,
    /// Over the test part, after the epoch.
    val_accuracy: f64,
    /// Learning rate at the end.
    learning_rate: f32,
    /// Validation included.
    seconds: f64,
    /// Rows each second of training.
    samples_per_s: f64,
}

/// A number of adapters, and what they do together.
#[derive(Serialize, Deserialize, TS)]
#[ts(rename = "Point")]
struct ReportPoint {
    /// Number of adapters.
    n_adapters: usize,
    /// Rows of a batch.
    batch_size: u32,
    /// Rows of each adapter.
    shares: Vec<u32>,
    /// Of a measurement: the median.
    step_ms: f64,
    /// Rows a second.
    rows_per_s: f64,
    /// Rows a second over the sum of what the same adapters do alone with the batch of one, so that `rows_per_s / efficiency` is the ideal
    /// line.
    efficiency: f64,
    /// Largest part of a step, in words; empty for a measurement.
    limit: String,
}

/// Throughput of 1 to N adapters, measured or predicted.
#[derive(Serialize, Deserialize, TS)]
pub struct Report {
    /// Rows of a batch.
    batch_size: u32,
    /// Names in the order in which they join: of a prediction, the fastest first.
    adapters: Vec<String>,
    /// Points with the same batch for any number of adapters.
    strong: Vec<ReportPoint>,
    /// Points with as many times the batch as there are adapters.
    weak: Vec<ReportPoint>,
}

/// An adapter by itself.
#[derive(Serialize, Deserialize, TS)]
#[ts(rename = "AdapterAlone")]
struct Lone {
    /// Its name.
    name: String,
    /// Whether its speed is modelled from a card's data sheet, and not given by the rig.
    is_modelled: bool,
    /// Bytes that a copy of the model takes: for the whole batch at once, for as many rows as fit, or for one row if none fits.
    needed_bytes: u64,
    /// Bytes that it has, if they are known.
    has_bytes: Option<u64>,
    /// Milliseconds of a training step; `null` if no copy fits.
    step_ms: Option<f64>,
    /// Rows a second.
    rows_per_s: Option<f64>,
}

/// A predicted throughput, with what only a prediction has.
#[derive(Serialize, Deserialize, TS)]
#[ts(rename = "Prediction")]
pub struct Predicted {
    /// All that a measurement has, too.
    #[serde(flatten)]
    #[ts(flatten)]
    report: Report,
    /// Each adapter by itself, the fastest first; at the end those on which no copy of the model fits.
    alone: Vec<Lone>,
    /// All adapters with equal parts of the batch, as most programs split it; `null` for one adapter, and where `strong` has such parts.
    even: Option<ReportPoint>,
    /// Sentences about adapters that are left out of the numbers.
    notes: Vec<String>,
}

/// Event in a simulated run.
#[derive(Serialize, Deserialize, TS)]
pub struct Incident {
    /// Number of the step, counted from 0.
    pub step: u64,
    /// Position of the adapter in the rig.
    pub adapter: usize,
    /// Kind of the event.
    pub what: IncidentKind,
}

/// Kind of an event in a simulated run: computing takes so many times as long from that step on, or the adapter is lost in the middle of it.
#[derive(Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    Slowed(f64),
    Lost,
}

/// Kind of a measurement's part.
#[derive(Serialize, Deserialize, TS)]
#[ts(rename = "Scaling")]
#[serde(rename_all = "snake_case")]
enum PartKind {
    Alone,
    Strong,
    Weak,
}

/// Progress of a measurement.
#[derive(Serialize, Deserialize, TS)]
pub struct Part {
    /// Whether the batch is constant or grows.
    scaling: PartKind,
    /// Number of adapters; for adapters alone, the index.
    n_adapters: usize,
    /// Number of finished parts.
    done: usize,
    /// Number of all parts.
    total: usize,
}

/// The host of a rig to predict.
#[derive(Serialize, Deserialize, TS)]
pub struct HostSpec {
    /// Bytes that it reads and writes when it adds gradients and updates parameters, in 10⁹ a second.
    pub copy_gb_s: f64,
}

/// An adapter of a rig to predict, as `manyhands simulate` reads it. Left out: what is not known.
#[derive(Default, Serialize, Deserialize, TS)]
#[ts(optional_fields)]
pub struct AdapterSpec {
    /// Its name. Default: the card's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A card of `manyhands simulate --list-cards`, of which all numbers are taken that are not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// Milliseconds of a run whatever its rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_ms: Option<f64>,
    /// Milliseconds for each row of a training run, in place of `gflops`.
    pub per_row_ms: Option<f64>,
    /// Arithmetic that it reaches, in 10⁹ operations a second.
    pub gflops: Option<f64>,
    /// Bytes that other kernels read and write, in 10⁹ a second.
    pub memory_gb_s: Option<f64>,
    /// Bandwidth from host to adapter, in 10⁹ bytes a second.
    pub upload_gb_s: Option<f64>,
    /// Bandwidth from adapter to host, in 10⁹ bytes a second.
    pub download_gb_s: Option<f64>,
    /// Milliseconds of each transfer whatever its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Memory that a model may take on it, in 10⁹ bytes; without it, any.
    pub memory_gb: Option<f64>,
    /// Times at which computing takes longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdowns: Option<Vec<Slowdown>>,
}

/// Time in which an adapter computes more slowly.
#[derive(Serialize, Deserialize, TS)]
pub struct Slowdown {
    /// Start.
    pub from_ms: f64,
    /// End.
    pub to_ms: f64,
    /// Factor on the time of computing.
    pub factor: f64,
}

/// The layers of a stage, and the positions of its adapters.
#[derive(Serialize, Deserialize, TS)]
pub struct StageSpec {
    /// Names of layers, and ranges of them.
    layers: Vec<String>,
    /// Positions of its adapters.
    adapters: Vec<usize>,
}

/// A stage of a network.
#[derive(Serialize, Deserialize, TS)]
#[ts(rename = "StagePoint")]
struct NetworkStage {
    /// Its first and last layer.
    layers: String,
    /// Names of its adapters.
    adapters: Vec<String>,
    /// Bytes that it takes on each of them.
    bytes: u64,
    /// Rows of a step on each of them.
    rows: Vec<u32>,
    /// Milliseconds of a step in which each of them is busy.
    busy_ms: Vec<f64>,
}

/// The predicted speed of a network in stages, as `manyhands simulate` reports it.
#[derive(Serialize, Deserialize, TS)]
pub struct StagedReport {
    /// Pieces of a batch.
    micro_batches: u32,
    /// Milliseconds of a training step.
    step_ms: f64,
    /// Rows a second.
    rows_per_s: f64,
    /// The stages, in order.
    stages: Vec<NetworkStage>,
}

/// Kind of work in a simulated step.
#[derive(Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    Weights,
    Upload,
    Compute,
    Readback,
    Reduce,
    Update,
    Broadcast,
}
