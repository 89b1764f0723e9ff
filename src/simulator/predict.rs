//! Throughput and efficiency of 1 to N adapters, predicted by running the scheduler in virtual time.

use std::sync::Arc;

use super::arithmetic::Arithmetic;
use super::report::{Point, Report};
use super::rig::RigConfig;
use super::skeleton::Skeleton;
use super::spec::AdapterSpec;
use super::world::{Settings, World};
use crate::data::Batch;
use crate::error::Result;
use crate::losses::Loss;
use crate::model::{Model, Objective, Weights};
use crate::optimizers::Optimizer;
use crate::plan::Role;
use crate::scheduler::{CpuFallback, Scheduler, ShardReport, Step, StepReport, TrainingState};

/// Training steps in which the split is learned, and those that count.
const WARM_UP: u64 = 20;
const COUNTED: u64 = 10;

/// Virtual time that a prediction may take: ten thousand hours.
const LIMIT_MS: f64 = 36e9;

/// Settings of a simulation, without the adapters.
struct Job {
    skeleton: Skeleton,
    objective: Objective,
    host_bytes_per_ms: f64,
}

/// Times of a step's parts, in milliseconds; the adapter is the one that ends last.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    step_ms: f64,
    slowest: usize,
    transfer_ms: f64,
    compute_ms: f64,
    host_ms: f64,
}

/// Predicts the speed of the fastest 1 to N adapters of a rig, with a constant batch and with a growing one.
///
/// The scheduler's own code runs in virtual time, over adapters that take time without computing. Not counted: reading
/// data, and, for `per_row_ms` without `memory_gb_s`, the update of a lone adapter, which runs on it.
///
/// # Errors
/// If the model can't be built.
pub fn simulate(rig: &RigConfig) -> Result<Report> {
    simulate_model(rig, &rig.build_model()?)
}

/// Predicts for this model, in place of that of the rig: see [`simulate`].
///
/// # Errors
/// If a number of the rig makes no sense.
pub fn simulate_model(rig: &RigConfig, model: &Model) -> Result<Report> {
    rig.check()?;
    let job = Job::of(rig, model)?;
    let mut alone = Vec::new();
    for adapter in &rig.adapters {
        let (budget, _) = job.run(std::slice::from_ref(adapter), rig.batch_size)?;
        alone.push((f64::from(rig.batch_size) / budget.step_ms * 1e3, adapter.clone()));
    }
    alone.sort_by(|a, b| b.0.total_cmp(&a.0));
    let adapters = alone.iter().map(|(_, adapter)| adapter.name.clone()).collect();
    let (mut strong, mut weak) = (Vec::new(), Vec::new());
    for (grown, n_adapters) in (1..).zip(1..=alone.len()) {
        strong.push(point(&job, &alone[..n_adapters], rig.batch_size)?);
        weak.push(point(&job, &alone[..n_adapters], rig.batch_size * grown)?);
    }
    Ok(Report { batch_size: rig.batch_size, adapters, strong, weak })
}

/// Predicted milliseconds of a training step of a rig, all adapters together.
///
/// # Errors
/// If the model can't be built.
pub fn step_ms(rig: &RigConfig) -> Result<f64> {
    Ok(Job::of(rig, &rig.build_model()?)?.run(&rig.adapters, rig.batch_size)?.0.step_ms)
}

/// Predicted throughput of these adapters; `alone` holds each one's rows/s on its own.
fn point(job: &Job, alone: &[(f64, AdapterSpec)], rows: u32) -> Result<Point> {
    let adapters: Vec<AdapterSpec> = alone.iter().map(|(_, adapter)| adapter.clone()).collect();
    let (budget, shares) = job.run(&adapters, rows)?;
    let rows_per_s = f64::from(rows) / budget.step_ms * 1e3;
    Ok(Point {
        n_adapters: adapters.len(),
        batch_size: rows,
        shares,
        step_ms: budget.step_ms,
        rows_per_s,
        efficiency: rows_per_s / alone.iter().map(|(speed, _)| speed).sum::<f64>(),
        limit: budget.limit(&adapters),
    })
}

impl Budget {
    /// Largest part of a step. Time that is neither computing, nor a run's transfers, nor the host, is the broadcast to
    /// the adapters.
    fn limit(&self, adapters: &[AdapterSpec]) -> String {
        let adapter = &adapters[self.slowest];
        let fixed_ms = adapter.fixed_ms.min(self.compute_ms);
        let broadcast_ms = self.step_ms - self.compute_ms - self.transfer_ms - self.host_ms;
        let parts = [
            (self.compute_ms - fixed_ms, format!("computing on {}", adapter.name)),
            (fixed_ms, format!("fixed costs of {}", adapter.name)),
            (self.transfer_ms, format!("transfers of rows and gradients of {}", adapter.name)),
            (self.host_ms, "the host's sums and update".to_owned()),
            (broadcast_ms, format!("transfers of new weights to {}", adapter.name)),
        ];
        let largest = parts.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        largest.map_or_else(String::new, |(ms, what)| format!("{what} ({:.0} %)", 100.0 * ms / self.step_ms))
    }
}

impl Job {
    fn of(rig: &RigConfig, model: &Model) -> Result<Self> {
        let optimizer = rig.optimizer.clone().unwrap_or_else(|| Optimizer::adam(1e-3));
        let losses = vec![Loss::MEAN_SQUARED_ERROR; model.outputs().len()];
        let objective = Objective { batch_statistics: rig.batch_statistics, ..Objective::new(losses, optimizer) };
        let skeleton = Skeleton::of(&model.plan(&objective)?, model.layout());
        Ok(Self { skeleton, objective, host_bytes_per_ms: rig.host.copy_gb_s * 1e6 })
    }

    /// Runs some steps: where their time goes, and the rows of each adapter.
    fn run(&self, adapters: &[AdapterSpec], rows: u32) -> Result<(Budget, Vec<u32>)> {
        let Skeleton { plan, layout, traffic } = &self.skeleton;
        // The host goes over the skeleton's few values: it is slower by as much as they are fewer.
        let settings = Settings {
            arithmetic: Arithmetic::TimeOnly,
            traffic: Some(traffic.clone()),
            host_bytes_per_ms: self.host_bytes_per_ms / traffic.scale,
            seed: 0,
        };
        let mut world = World::with(adapters.to_vec(), &settings);
        let (opener, runtime) = (world.opener(), world.runtime());
        let simulated = world.adapters();
        let batch = self.batch(rows);
        let state = self.state();
        let (plan, layout) = (plan.clone(), layout.clone());
        let all = async {
            let mut scheduler = Scheduler::for_plan(plan, layout, &self.objective)
                .adapters(simulated)
                .opener(opener)
                .runtime(Arc::clone(&runtime))
                .capacity(rows)
                .cpu_fallback(CpuFallback::Refused)
                .state(state)
                .open()
                .await?;
            // Each number of adapters has its own line in the report: no trials with fewer.
            scheduler.keep_all();
            let mut seen = Vec::new();
            for step in 0..WARM_UP + COUNTED {
                let start_ms = runtime.now_ms();
                let numbers = Step { step, seed: 0, learning_rate: 1e-3, loss_scales: Vec::new() };
                let report = scheduler.train(&batch, &numbers).await?;
                if step >= WARM_UP {
                    seen.push((runtime.now_ms() - start_ms, report));
                }
            }
            Result::<Vec<_>>::Ok(seen)
        };
        let seen: Vec<(f64, StepReport)> = world.run(LIMIT_MS, all)??;
        Ok(budget(adapters.len(), &seen))
    }

    fn batch(&self, rows: u32) -> Batch {
        let rows = rows as usize;
        let of = |wanted: fn(Role) -> bool| {
            let buffers = self.skeleton.plan.buffers.iter().filter(|buffer| wanted(buffer.role));
            buffers.map(|_| Arc::from(vec![0.0; rows])).collect()
        };
        Batch {
            rows,
            inputs: of(|role| matches!(role, Role::Input(_))),
            targets: of(|role| matches!(role, Role::Target(_))),
            sample_weights: None,
        }
    }

    fn state(&self) -> TrainingState {
        let layout = &self.skeleton.layout;
        let zeros = |len: u64| vec![0.0; usize::try_from(len).unwrap_or(0)];
        let parameters = layout.segments.iter().map(|len| zeros(*len)).collect();
        let weights = Weights { parameters, statistics: zeros(layout.statistics_len) };
        TrainingState::new(weights, layout, &self.objective.optimizer)
    }
}

/// The mean over some steps. Waiting for others within a run counts as computing: the slowest waits least.
fn budget(n_adapters: usize, seen: &[(f64, StepReport)]) -> (Budget, Vec<u32>) {
    let mut budget = Budget::default();
    let mut shares = vec![0; n_adapters];
    let part = 1.0 / f64::from(u32::try_from(seen.len()).unwrap_or(1));
    for (step_ms, report) in seen {
        let taken_ms = |shard: &&ShardReport| shard.timing.busy_ms() + shard.timing.weights.ms;
        let slowest = report.shards.iter().max_by(|a, b| taken_ms(a).total_cmp(&taken_ms(b)));
        let Some(shard) = slowest else { continue };
        budget.slowest = shard.adapter_idx;
        budget.step_ms += part * step_ms;
        budget.compute_ms += part * shard.timing.compute_ms;
        budget.transfer_ms += part * (shard.timing.upload_ms + shard.timing.readback_ms);
        budget.host_ms += part * (report.reduce_ms + report.update_ms);
        // The rows of the last step: an adapter may get none in some.
        shares.fill(0);
        report.shards.iter().for_each(|shard| shares[shard.adapter_idx] = shard.rows);
    }
    (budget, shares)
}
