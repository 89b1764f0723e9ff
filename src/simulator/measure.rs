//! The adapters of this machine as a rig to simulate: what a short run on them tells.

use std::sync::Arc;

use super::rig::{HostSpec, RigConfig};
use super::spec::AdapterSpec;
use super::traffic::Traffic;
use crate::adapters::Info;
use crate::data::Batch;
use crate::error::Result;
use crate::losses::Loss;
use crate::model::{Model, Objective};
use crate::optimizers::Optimizer;
use crate::plan::{BatchStatistics, Plan, Role};
use crate::runtime::{Metered, Runtime};
use crate::scheduler::{CpuFallback, Scheduler, Step};

/// Training steps from which speeds are learned, and those whose time is then taken.
const LEARNING: u64 = 12;
const COUNTED: u64 = 12;

/// What a run on real adapters told.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The adapters as a rig: lines of time over rows, bandwidths of weights and host.
    pub rig: RigConfig,
    /// Milliseconds of a training step of all of them together: the median of some steps, between the two times at which
    /// speeds were taken.
    pub step_ms: f64,
}

/// Trains a model on adapters for a few steps of noise, and tells how fast they are: a rig for
/// [`simulate`](super::simulate).
///
/// `per_row_ms` and `fixed_ms` are the splitter's estimates, transfers of rows and gradients included; `upload_gb_s` is that
/// of new weights; `copy_gb_s` follows from the time of the host's sums and updates.
///
/// # Errors
/// If an adapter can't be opened, or fails.
pub async fn measure(
    runtime: Arc<dyn Runtime>,
    adapters: Vec<Info>,
    model: &Model,
    optimizer: Optimizer,
    batch_size: u32,
) -> Result<Measured> {
    let losses = vec![Loss::MEAN_SQUARED_ERROR; model.outputs().len()];
    let objective = Objective::new(losses, optimizer.clone());
    let plan = model.plan(&objective)?;
    let traffic = Traffic::of(&plan);
    let batch = noise(&plan, batch_size);
    let metered = Arc::new(Metered::new(runtime));
    let mut scheduler = Scheduler::builder(model, &objective)
        .adapters(adapters)
        .runtime(metered.clone())
        .capacity(batch_size)
        .cpu_fallback(CpuFallback::Refused)
        .open()
        .await?;
    scheduler.keep_all();
    let mut host_ms = 0.0;
    for step in 0..LEARNING {
        let report = scheduler.train(&batch, &numbers(step)).await?;
        host_ms += report.reduce_ms + report.update_ms;
    }
    let charged = metered.bytes();
    let before = specs(&mut scheduler, &*metered, &traffic).await?;
    let host = if host_ms > 0.0 { HostSpec { copy_gb_s: gb_s(charged, host_ms) } } else { HostSpec::default() };
    let mut step_ms = Vec::new();
    for step in LEARNING..LEARNING + COUNTED {
        let begin_ms = metered.now_ms();
        scheduler.train(&batch, &numbers(step)).await?;
        step_ms.push(metered.now_ms() - begin_ms);
    }
    step_ms.sort_by(f64::total_cmp);
    let after = specs(&mut scheduler, &*metered, &traffic).await?;
    let specs = before.iter().zip(&after).map(|(before, after)| between(before, after)).collect();
    let model = Some(model.config());
    let rig = RigConfig {
        batch_size,
        preset: None,
        optimizer: Some(optimizer),
        batch_statistics: BatchStatistics::default(),
        host,
        adapters: specs,
        model,
    };
    Ok(Measured { rig, step_ms: step_ms[step_ms.len() / 2] })
}

/// The adapters by what the splitter knows of them.
async fn specs(scheduler: &mut Scheduler, clock: &dyn Runtime, traffic: &Traffic) -> Result<Vec<AdapterSpec>> {
    let names: Vec<String> = scheduler.adapters().map(|info| info.name.clone()).collect();
    let state = scheduler.sync().await?.clone();
    let bytes: u64 = state.weights.parameters.iter().map(|segment| size_of_val(segment.as_slice()) as u64).sum();
    let mut specs = Vec::new();
    for (adapter_idx, name) in names.into_iter().enumerate() {
        let Some(line) = scheduler.estimate(adapter_idx).map(|estimate| estimate.line()) else { continue };
        scheduler.read(adapter_idx, Role::Parameters(0)).await?;
        let begin_ms = clock.now_ms();
        scheduler.read(adapter_idx, Role::Parameters(0)).await?;
        let read_ms = clock.now_ms() - begin_ms;
        // To all at once, as in a step.
        let begin_ms = clock.now_ms();
        scheduler.restore(state.clone());
        scheduler.read(adapter_idx, Role::Parameters(0)).await?;
        let write_ms = clock.now_ms() - begin_ms - read_ms;
        let upload_gb_s = (write_ms > 0.0).then(|| gb_s(bytes, write_ms));
        // The line has the rows' upload in it, which the simulation adds by itself.
        let upload_ms =
            upload_gb_s.map_or(0.0, |rate| f64::from(u32::try_from(traffic.fed_per_row).unwrap_or(0)) / (rate * 1e6));
        let per_row_ms = Some((line.per_row_ms - upload_ms).max(line.per_row_ms / 2.0));
        specs.push(AdapterSpec { name, fixed_ms: line.fixed_ms, per_row_ms, upload_gb_s, ..AdapterSpec::default() });
    }
    Ok(specs)
}

/// The mean of what was learned before and after the steps that count, so that a machine that grows slower or faster
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

/// 10⁹ bytes a second.
#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn gb_s(bytes: u64, ms: f64) -> f64 {
    bytes as f64 / ms / 1e6
}

pub(super) fn numbers(step: u64) -> Step {
    Step { step, seed: 0, learning_rate: 1e-6, loss_scales: vec![1e-3; 8] }
}

/// Inputs and targets without a pattern, between -0.5 and 0.5: times do not depend on them.
pub(super) fn noise(plan: &Plan, rows: u32) -> Batch {
    let of = |wanted: fn(Role) -> bool| {
        let buffers = plan.buffers.iter().filter(|buffer| wanted(buffer.role));
        let values =
            |len: u64| (0..len).map(|idx| f32::from(u8::try_from(idx * 7919 % 251).unwrap_or(0)) / 250.0 - 0.5);
        buffers.map(|buffer| values(buffer.len.at(rows)).collect()).collect()
    };
    Batch {
        rows: rows as usize,
        inputs: of(|role| matches!(role, Role::Input(_))),
        targets: of(|role| matches!(role, Role::Target(_))),
        sample_weights: None,
    }
}
