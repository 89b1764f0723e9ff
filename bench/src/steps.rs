//! Training steps: their times, by phase.

use std::fmt;

use serde::Serialize;

use super::BenchSettings;
use super::machine::HostCopy;
use super::report::{BenchReport, Conditions, ms, table};
use super::rig::{BenchRig, Data, DeviceCounts, Sample, Source, distinct};
use super::workloads::Workload;
use manyhands::scheduler::ShardReport;
use manyhands::scheduler::split::SplitMode;
use manyhands_engine::error::Result;
use manyhands_engine::plan::GradientCompression;
use manyhands_engine::table::percent;
use manyhands_engine::timing::{median, per_second};

/// Training steps of some models.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredSteps {
    /// Source of the rows.
    pub data: Data,
    /// Bandwidth of copies in the host's memory, read and written bytes, all threads.
    pub host_copy_gb_s: f64,
    /// Each model on each rig.
    pub rigs: Vec<RigSteps>,
}

/// Training steps of a model on a rig. Times are medians, taken for each phase separately.
#[derive(Clone, Debug, Serialize)]
pub struct RigSteps {
    /// The model's name.
    pub model: &'static str,
    /// The model in words.
    pub about: &'static str,
    /// Parameters of the model.
    pub parameters: usize,
    /// Names of the adapters.
    pub rig: String,
    /// Rows of a batch.
    pub batch_size: u32,
    /// Steps that were counted.
    pub counted: usize,
    /// Milliseconds of a step, the wait for data included.
    pub step_ms: f64,
    /// Time of the fastest step.
    pub least_ms: f64,
    /// Time of the slowest step.
    pub most_ms: f64,
    /// Rows a second.
    pub samples_per_s: f64,
    /// Multiplications and additions of a step's products and convolutions, in 10⁹.
    pub gflop: f64,
    /// `gflop` a second.
    pub gflop_per_s: f64,
    /// Kernels that an adapter runs in a step.
    pub dispatches: usize,
    /// Requests to all devices in a step; a steady step creates no object.
    #[serde(flatten)]
    pub requests: DeviceCounts,
    /// Host: waiting for the batch.
    pub data_ms: f64,
    /// Host: adding gradients.
    pub reduce_ms: f64,
    /// Host: updating the parameters.
    pub update_ms: f64,
    /// Host: giving the new ones out.
    pub broadcast_ms: f64,
    /// Bytes that the host reads and writes for these three, over their time; `None` where the device does it.
    pub host_gb_s: Option<f64>,
    /// Each adapter with rows.
    pub adapters: Vec<AdapterSteps>,
}

/// An adapter's part of a step, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct AdapterSteps {
    /// Position among the adapters of the rig.
    pub adapter_idx: usize,
    /// Its name.
    pub name: String,
    /// Its rows in the last step.
    pub rows: u32,
    /// Bytes that the model takes on it.
    pub bytes: u64,
    /// Upload of new weights, before its part.
    pub weights_ms: f64,
    /// Writing inputs.
    pub upload_ms: f64,
    /// Computing.
    pub compute_ms: f64,
    /// Giving gradients and losses back.
    pub readback_ms: f64,
    /// Waiting for others at an exchange.
    pub wait_ms: f64,
    /// Updating the parameters on the only adapter.
    pub update_ms: f64,
}

/// Measures the models on each adapter alone and, if there are several, on all together. The rigs alternate.
///
/// `progress` is called at the start of each part.
///
/// # Errors
/// If a model is unknown, or an adapter fails.
pub async fn measure(settings: &BenchSettings, mut progress: impl FnMut(&str)) -> Result<BenchReport<MeasuredSteps>> {
    let (mut rigs, mut host) = (Vec::new(), HostCopy::default());
    for workload in settings.workloads()? {
        rigs.extend(measure_model(settings, &workload?, &mut host, &mut progress).await?);
    }
    let host_copy_gb_s = host.gb_s();
    let about = Conditions::new("steps", &settings.members, settings.rounds);
    Ok(BenchReport { about, measured: MeasuredSteps { data: settings.data, host_copy_gb_s, rigs } })
}

async fn measure_model(
    settings: &BenchSettings,
    workload: &Workload,
    host: &mut HostCopy,
    progress: &mut impl FnMut(&str),
) -> Result<Vec<RigSteps>> {
    let (rows, split) = (workload.batch_size, &settings.split);
    let mut rigs = Vec::new();
    let (micro_batches, precision) = (settings.micro_batches, settings.precision);
    let pieces = (micro_batches > 1).then(|| Workload { micro_batches, ..workload.clone() });
    let halves = (precision != workload.precision).then(|| Workload { precision, ..workload.clone() });
    let others = || pieces.iter().chain(&halves);
    for member in distinct(&settings.members) {
        // A single adapter gets all rows, whatever the split is.
        for workload in std::iter::once(workload).chain(others()) {
            rigs.push(BenchRig::open(workload, std::slice::from_ref(&member), SplitMode::Learned, rows).await?);
        }
    }
    if settings.members.len() > 1 {
        for workload in std::iter::once(workload).chain(others()) {
            rigs.push(BenchRig::open(workload, &settings.members, split.clone(), rows).await?);
        }
        if settings.gradient_compression != GradientCompression::None {
            let workload = Workload { gradient_compression: settings.gradient_compression, ..workload.clone() };
            rigs.push(BenchRig::open(&workload, &settings.members, split.clone(), rows).await?);
        }
        if settings.batch_statistics != workload.batch_statistics {
            let workload = Workload { batch_statistics: settings.batch_statistics, ..workload.clone() };
            rigs.push(BenchRig::open(&workload, &settings.members, split.clone(), rows).await?);
        }
    }
    let mut source = Source::new(workload, settings.data, rows)?;
    for (round, turn) in (1..).zip(settings.turns()) {
        for rig in &mut rigs {
            progress(&format!("{}: round {} of {}, {}", workload.name, round, settings.rounds, rig.name));
            rig.turn(&mut source, turn).await?;
        }
        host.turn();
    }
    Ok(rigs.iter().map(|rig| RigSteps::new(workload, rig)).collect())
}

impl RigSteps {
    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    fn new(workload: &Workload, rig: &BenchRig) -> Self {
        let of = |time: fn(&Sample) -> f64| median(rig.samples.iter().map(time));
        let times = || rig.samples.iter().map(|sample| sample.step_ms);
        let (step_ms, work) = (of(|sample| sample.step_ms), rig.work(workload.batch_size));
        let host_ms = of(|sample| sample.reduce_ms + sample.update_ms + sample.broadcast_ms);
        let host_bytes = of(|sample| sample.host_bytes as f64);
        Self {
            model: workload.name,
            about: workload.about,
            parameters: workload.model.n_parameters(),
            rig: rig.name.clone(),
            batch_size: workload.batch_size,
            counted: rig.samples.len(),
            step_ms,
            least_ms: times().fold(f64::INFINITY, f64::min),
            most_ms: times().fold(0.0, f64::max),
            samples_per_s: per_second(u64::from(workload.batch_size), step_ms),
            gflop: work.flops / 1e9,
            gflop_per_s: work.flops / step_ms / 1e6,
            dispatches: work.dispatches,
            requests: DeviceCounts {
                submissions: middle(rig, |requests| requests.submissions),
                round_trips: middle(rig, |requests| requests.round_trips),
                objects: middle(rig, |requests| requests.objects),
            },
            data_ms: of(|sample| sample.data_ms),
            reduce_ms: of(|sample| sample.reduce_ms),
            update_ms: of(|sample| sample.update_ms),
            broadcast_ms: of(|sample| sample.broadcast_ms),
            host_gb_s: (host_bytes > 0.0).then(|| host_bytes / host_ms / 1e6),
            adapters: adapters(rig),
        }
    }
}

/// The median of a count.
fn middle(rig: &BenchRig, count: fn(&DeviceCounts) -> usize) -> usize {
    let mut counts: Vec<usize> = rig.samples.iter().map(|sample| count(&sample.requests)).collect();
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or(0)
}

fn adapters(rig: &BenchRig) -> Vec<AdapterSteps> {
    let (bytes, shares) = (rig.scheduler.bytes(), rig.shares());
    let each = rig.scheduler.adapters().zip(bytes).enumerate().map(|(adapter_idx, (info, bytes))| {
        let shards = || {
            rig.samples.iter().flat_map(|sample| &sample.shards).filter(move |shard| shard.adapter_idx == adapter_idx)
        };
        let of = |time: fn(&ShardReport) -> f64| median(shards().map(time));
        AdapterSteps {
            adapter_idx,
            name: info.name.clone(),
            rows: shares.get(adapter_idx).copied().unwrap_or(0),
            bytes,
            weights_ms: of(|shard| shard.timing.weights.ms),
            upload_ms: of(|shard| shard.timing.upload_ms),
            compute_ms: of(|shard| shard.timing.compute_ms),
            readback_ms: of(|shard| shard.timing.readback_ms),
            wait_ms: of(|shard| shard.timing.wait_ms),
            update_ms: median(rig.samples.iter().map(|sample| sample.device_update_ms)),
        }
    });
    each.collect()
}

impl fmt::Display for MeasuredSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = match self.data {
            Data::Synthetic => "one batch, made before the first step",
            Data::Loaded => "batches that a loader's threads make",
        };
        let header = ["model", "rig", "batch", "step ms", "least", "most", "samples/s", "GFLOP", "GFLOP/s"];
        writeln!(f, "\nTraining steps, {rows}; medians:\n")?;
        table(&header, 2, self.rigs.iter().map(RigSteps::whole)).fmt(f)?;
        let header = ["model", "rig", "dispatches", "submissions", "round trips", "new objects"];
        let requests = self.rigs.iter().map(RigSteps::requests);
        writeln!(f, "\n\nKernels of an adapter in each step, and requests to all devices:\n")?;
        table(&header, 2, requests).fmt(f)?;
        let header = ["model", "rig", "wait for data", "reduce", "update", "broadcast", "GB/s", "of a copy"];
        let host = self.rigs.iter().map(|rig| rig.host(self.host_copy_gb_s));
        writeln!(f, "\n\nOf each step on the host, in ms:\n")?;
        table(&header, 2, host).fmt(f)?;
        let header = ["model", "adapter", "rows", "weights", "upload", "compute", "readback", "wait", "update", "MiB"];
        let adapters = self.rigs.iter().flat_map(|rig| rig.adapters.iter().map(|adapter| adapter.row(rig.model)));
        writeln!(f, "\n\nOf each step on an adapter, in ms:\n")?;
        table(&header, 2, adapters).fmt(f)?;
        write!(
            f,
            "\n\nGFLOP: those of products and convolutions. GB/s: bytes of reduce, update and broadcast over their time; a copy on \
             the host reads and writes {:.1} GB/s.",
            self.host_copy_gb_s
        )
    }
}

impl RigSteps {
    fn whole(&self) -> Vec<String> {
        vec![
            self.model.into(),
            self.rig.clone(),
            self.batch_size.to_string(),
            ms(self.step_ms),
            ms(self.least_ms),
            ms(self.most_ms),
            format!("{:.1}", self.samples_per_s),
            format!("{:.2}", self.gflop),
            format!("{:.1}", self.gflop_per_s),
        ]
    }

    fn requests(&self) -> Vec<String> {
        let DeviceCounts { submissions, round_trips, objects } = self.requests;
        let counts = [self.dispatches, submissions, round_trips, objects].map(|count| count.to_string());
        [self.model.to_owned(), self.rig.clone()].into_iter().chain(counts).collect()
    }

    fn host(&self, copy_gb_s: f64) -> Vec<String> {
        let times = [self.data_ms, self.reduce_ms, self.update_ms, self.broadcast_ms].map(ms);
        let bandwidth = self
            .host_gb_s
            .map_or(["–".into(), "–".into()], |gb_s| [format!("{gb_s:.1}"), percent(gb_s / copy_gb_s)]);
        [self.model.to_owned(), self.rig.clone()].into_iter().chain(times).chain(bandwidth).collect()
    }
}

impl AdapterSteps {
    fn row(&self, model: &str) -> Vec<String> {
        let times =
            [self.weights_ms, self.upload_ms, self.compute_ms, self.readback_ms, self.wait_ms, self.update_ms].map(ms);
        let names = [model.to_owned(), self.name.clone(), self.rows.to_string()];
        names.into_iter().chain(times).chain([mib(self.bytes)]).collect()
    }
}

/// Bytes in MiB.
#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}
