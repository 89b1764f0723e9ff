//! Speeds of adapters as inputs of the simulator, measured in a short run.

use super::rig::{BenchRig, Data, Opening, RigAdapter, Sample, Source, Turn};
use super::workloads::Workload;
use manyhands::scheduler::ShardReport;
use manyhands::scheduler::split::SplitMode;
use manyhands::simulator::{AdapterSpec, HostSpec, RigConfig};
use manyhands_engine::adapters::Kind;
use manyhands_engine::error::Result;
use manyhands_engine::plan::{BatchStatistics, Role};
use manyhands_engine::timing::median;

/// Training steps for learning speeds, and steps that are timed afterwards.
const LEARNING: u32 = 12;
const COUNTED: u32 = 12;

/// Results of a run on real adapters.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredSpeeds {
    /// The adapters as a rig: lines of time over rows, bandwidths of weights and host.
    pub rig: RigConfig,
    /// Milliseconds of a training step of all of them together: the median of some steps, between the two times at which
    /// speeds were taken.
    pub step_ms: f64,
}

/// Trains a model on adapters for a few steps and measures their speeds: a rig for
/// [`simulate`](manyhands::simulator::simulate).
///
/// `per_row_ms` and `fixed_ms` are the splitter's estimates, transfers of rows and gradients included; `upload_gb_s` is
/// that of new weights, for the CPU as it copies them within steps; `copy_gb_s` follows from the time of the host's sums and
/// updates.
///
/// # Errors
/// If an adapter can't be opened, or fails.
pub async fn measure(opening: &Opening, workload: &Workload, members: &[RigAdapter]) -> Result<MeasuredSpeeds> {
    let batch_size = workload.batch_size;
    let mut source = Source::new(workload, Data::Synthetic, batch_size)?;
    let mut rig = opening.rig(workload, members, SplitMode::Learned, batch_size).await?;
    rig.turn(&mut source, Turn::new(0, LEARNING)).await?;
    let host = host(&rig.samples);
    let weights_ms: Vec<Option<f64>> = members.iter().enumerate().map(|it| weights_ms(it, &rig.samples)).collect();
    let before = specs(&mut rig, &weights_ms).await?;
    rig.samples.clear();
    rig.turn(&mut source, Turn::new(0, COUNTED)).await?;
    let step_ms = median(rig.samples.iter().map(|sample| sample.step_ms));
    let after = specs(&mut rig, &weights_ms).await?;
    let rig = RigConfig {
        batch_size,
        preset: None,
        optimizer: Some(workload.optimizer.clone()),
        batch_statistics: BatchStatistics::default(),
        host,
        adapters: before.iter().zip(&after).map(|(before, after)| between(before, after)).collect(),
        model: Some(workload.model.config()),
        ..RigConfig::default()
    };
    Ok(MeasuredSpeeds { rig, step_ms })
}

fn host(samples: &[Sample]) -> HostSpec {
    let host_ms: f64 = samples.iter().map(|sample| sample.reduce_ms + sample.update_ms + sample.broadcast_ms).sum();
    let bytes: u64 = samples.iter().map(|sample| sample.host_bytes).sum();
    if host_ms > 0.0 { HostSpec { copy_gb_s: gb_s(bytes, host_ms) } } else { HostSpec::default() }
}

/// Milliseconds in which the CPU takes new weights over in a step: alone, without other work of the host, it does so faster. `None`
/// for cards, which are not asked for that time in a step.
fn weights_ms((adapter_idx, member): (usize, &RigAdapter), samples: &[Sample]) -> Option<f64> {
    let shards = samples.iter().flat_map(|sample| &sample.shards);
    let of = |shard: &ShardReport| (shard.adapter_idx == adapter_idx).then_some(shard.timing.weights.ms);
    let all_ms: Vec<f64> = shards.filter_map(of).collect();
    (member.info.kind == Kind::Cpu && !all_ms.is_empty()).then(|| median(all_ms))
}

/// The adapters with the splitter's model of their speeds. `weights_ms` has the times of new weights where they are known.
async fn specs(rig: &mut BenchRig, weights_ms: &[Option<f64>]) -> Result<Vec<AdapterSpec>> {
    let names: Vec<String> = rig.scheduler.adapters().map(|info| info.name.clone()).collect();
    let fed = rig.scheduler.plan().fed_bytes_per_row();
    let state = rig.scheduler.sync().await?.clone();
    let bytes: u64 = state.weights.parameters.iter().map(|segment| size_of_val(segment.as_slice()) as u64).sum();
    let mut specs = Vec::new();
    for (adapter_idx, name) in names.into_iter().enumerate() {
        let Some(line) = rig.scheduler.estimate(adapter_idx).map(|estimate| estimate.line()) else { continue };
        rig.scheduler.read(adapter_idx, Role::Parameters(0)).await?;
        let begin_ms = rig.now_ms();
        rig.scheduler.read(adapter_idx, Role::Parameters(0)).await?;
        let read_ms = rig.now_ms() - begin_ms;
        // To all at once, as in a step.
        let begin_ms = rig.now_ms();
        rig.scheduler.restore(state.clone());
        rig.scheduler.read(adapter_idx, Role::Parameters(0)).await?;
        let write_ms = weights_ms[adapter_idx].unwrap_or(rig.now_ms() - begin_ms - read_ms);
        let upload_gb_s = (write_ms > 0.0).then(|| gb_s(bytes, write_ms));
        // The line includes the upload of rows, which the simulation adds itself.
        let upload_ms = upload_gb_s.map_or(0.0, |rate| f64::from(u32::try_from(fed).unwrap_or(0)) / (rate * 1e6));
        let per_row_ms = Some((line.per_row_ms - upload_ms).max(line.per_row_ms / 2.0));
        specs.push(AdapterSpec { name, fixed_ms: line.fixed_ms, per_row_ms, upload_gb_s, ..AdapterSpec::default() });
    }
    Ok(specs)
}

/// The mean of the speeds before and after the timed steps, so that a machine that grows slower or faster
/// meanwhile does so for both.
fn between(before: &AdapterSpec, after: &AdapterSpec) -> AdapterSpec {
    let mean = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| f64::midpoint(a, b));
    AdapterSpec {
        name: before.name.clone(),
        fixed_ms: f64::midpoint(before.fixed_ms, after.fixed_ms),
        per_row_ms: mean(before.per_row_ms, after.per_row_ms),
        upload_gb_s: mean(before.upload_gb_s, after.upload_gb_s),
        ..AdapterSpec::default()
    }
}

/// Rate in 10⁹ bytes per second.
#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn gb_s(bytes: u64, ms: f64) -> f64 {
    bytes as f64 / ms / 1e6
}
