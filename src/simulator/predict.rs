//! Throughput and efficiency of 1 to N adapters, and of stages, predicted by running the scheduler in virtual time.

use std::sync::Arc;

use super::budget::Budget;
#[cfg(feature = "processes")]
use super::machines;
use super::report::{AdapterAlone, Point, Report, StagePoint, Staged};
use super::rig::RigConfig;
use super::spec::AdapterSpec;
use super::trial::{Steps, Trial};
#[cfg(not(feature = "processes"))]
use crate::error::Error;
use crate::error::{ErrorKind, Result};
use crate::model::Model;
use crate::plan::Plan;
use crate::scheduler::split::SplitMode;
use crate::scheduler::timeline::Span;
use crate::scheduler::{Placement, StepReport};
use manyhands_engine::adapters::{Kind, memory};

/// Micro-batches of a placement that does not set them.
pub(crate) const MICRO_BATCHES: u32 = 4;

/// Predicts the speed of the fastest 1 to N adapters of a rig, with a constant batch and with a growing one; and that of all
/// of them with the layers in stages, if the rig has a placement. For a rig of several machines it predicts that of 1, 2, 4 and so
/// on of them.
///
/// The scheduler's own code runs in virtual time, over adapters that take time without computing. Not counted: reading
/// data, and, for `per_row_ms` without `memory_gb_s`, the update of a lone adapter, which runs on it. Adapters with less
/// memory than a copy of the model takes are left out of the first two, and named.
///
/// # Errors
/// If the model can't be built, or the placement does not go with it.
pub fn simulate(rig: &RigConfig) -> Result<Report> {
    simulate_model(rig, &rig.build_model()?)
}

/// Predicts for this model, in place of that of the rig: see [`simulate`].
///
/// # Errors
/// If a number of the rig makes no sense, or the placement does not go with the model.
pub fn simulate_model(rig: &RigConfig, model: &Model) -> Result<Report> {
    Ok(simulate_steps(rig, model)?.0)
}

/// A simulated training step of all adapters of a report together, in its order.
#[derive(Clone, Debug)]
pub struct SimulatedStep {
    /// Milliseconds of virtual time.
    pub ms: f64,
    /// Whether the report's last line of strong scaling is made of it: the split is learned in those before.
    pub is_counted: bool,
    /// Parts of the step.
    pub report: StepReport,
}

/// A prediction as that of [`simulate_model`], with the steps of all adapters together.
///
/// # Errors
/// As [`simulate_model`].
pub fn simulate_steps(rig: &RigConfig, model: &Model) -> Result<(Report, Vec<SimulatedStep>)> {
    rig.check()?;
    if !rig.machine.is_empty() {
        return Ok((predict_machines(rig, model)?, Vec::new()));
    }
    let copies = Trial::new(model, &rig.objective(model), None, 1, rig.host.copy_gb_s)?.split(rig.split.clone());
    let (mut alone, mut lacking, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for adapter in &rig.adapters {
        let mut seen = AdapterAlone::new(adapter, copies.copy_bytes(adapter, rig.batch_size)?);
        match run(&copies, std::slice::from_ref(adapter), rig.batch_size) {
            Ok((budget, _)) => {
                let rows_per_s = f64::from(rig.batch_size) / budget.step_ms * 1e3;
                (seen.step_ms, seen.rows_per_s) = (Some(budget.step_ms), Some(rows_per_s));
                alone.push((rows_per_s, adapter.clone(), seen));
            }
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                notes.push(format!("A copy of the model does not fit on {}: it {}.", adapter.name, error.problem()));
                lacking.push(seen);
            }
            Err(error) => return Err(error),
        }
    }
    alone.sort_by(|a, b| b.0.total_cmp(&a.0));
    let seen = alone.iter().map(|(_, _, seen)| seen.clone()).chain(lacking).collect();
    let alone: Vec<(f64, AdapterSpec)> = alone.into_iter().map(|(speed, adapter, _)| (speed, adapter)).collect();
    let adapters = alone.iter().map(|(_, adapter)| adapter.name.clone()).collect();
    let (mut strong, mut weak, mut together) = (Vec::new(), Vec::new(), Vec::new());
    for (grown, n_adapters) in (1..).zip(1..=alone.len()) {
        let (line, steps) = point(&copies, &alone[..n_adapters], rig.batch_size)?;
        strong.push(line);
        weak.push(point(&copies, &alone[..n_adapters], rig.batch_size.saturating_mul(grown))?.0);
        let step = |is_counted| move |(ms, report)| SimulatedStep { ms, is_counted, report };
        together =
            steps.warm_up.into_iter().map(step(false)).chain(steps.counted.into_iter().map(step(true))).collect();
    }
    let is_compared = alone.len() > 1 && rig.split == SplitMode::Learned;
    let even = match is_compared.then(|| point(&copies.clone().split(SplitMode::Even), &alone, rig.batch_size)) {
        Some(even) => Some(even?.0),
        None => None,
    };
    let (staged, batch_size) = (staged(rig, model)?, rig.batch_size);
    let model = rig.in_words(model);
    let report = Report { model, batch_size, alone: seen, adapters, strong, weak, even, staged, notes, machines: None };
    Ok((report, together))
}

#[cfg(feature = "processes")]
fn predict_machines(rig: &RigConfig, model: &Model) -> Result<Report> {
    machines::predict(rig, model)
}

#[cfg(not(feature = "processes"))]
fn predict_machines(_rig: &RigConfig, _model: &Model) -> Result<Report> {
    Err(Error::new(
        ErrorKind::Unsupported,
        "the machines of a rig",
        "can't be simulated: this program was built without the feature `processes`",
        "leave them out, or build it with that feature",
    ))
}

/// Predicted milliseconds of a training step of a rig, all adapters and machines together, in the stages of its placement if it has
/// one.
///
/// # Errors
/// If the model can't be built.
pub fn step_ms(rig: &RigConfig) -> Result<f64> {
    let model = rig.build_model()?;
    if !rig.machine.is_empty() {
        let machines = simulate_model(rig, &model)?.machines;
        return Ok(machines.and_then(|it| Some(it.strong.last()?.step_ms)).unwrap_or_default());
    }
    match staged(rig, &model)? {
        Some(staged) => Ok(staged.step_ms),
        None => {
            let copies = Trial::new(&model, &rig.objective(&model), None, 1, rig.host.copy_gb_s)?;
            let copies = copies.split(rig.split.clone());
            Ok(run(&copies, &rig.adapters, rig.batch_size)?.0.step_ms)
        }
    }
}

/// The prediction for a rig whose placement names stages; `None` for one of copies.
///
/// # Errors
/// If the placement does not go with the model, or an adapter has too little memory.
pub(crate) fn staged(rig: &RigConfig, model: &Model) -> Result<Option<Staged>> {
    Ok(staged_step(rig, model)?.map(|(staged, _)| staged))
}

/// A training step of a model in stages.
#[derive(Clone, Debug)]
pub struct StagedStep {
    /// Milliseconds of virtual time.
    pub ms: f64,
    /// All work in it, from its start on.
    pub spans: Vec<Span>,
}

/// The prediction for a rig whose placement names stages, with its last step; `None` for a rig of copies.
///
/// # Errors
/// If the placement does not go with the model, or an adapter has too little memory.
pub(crate) fn staged_step(rig: &RigConfig, model: &Model) -> Result<Option<(Staged, StagedStep)>> {
    if rig.placement == Placement::Replicas {
        return Ok(None);
    }
    let Some(division) = rig.placement.division(model, rig.adapters.len())? else { return Ok(None) };
    let micro_batches = rig.micro_batches.unwrap_or(MICRO_BATCHES);
    let objective = rig.objective(model);
    let trial = Trial::new(model, &objective, Some(division.clone()), micro_batches, rig.host.copy_gb_s)?.traced();
    let Steps { counted: seen, spans, .. } = trial.steps(&rig.adapters, rig.batch_size)?;
    let (budget, shares) = Budget::of(rig.adapters.len(), &seen);
    let (ms, last) = seen.last().map(|(ms, report)| (*ms, report.shards.clone())).unwrap_or_default();
    let busy_ms = |idx: usize| last.iter().find(|it| it.adapter_idx == idx).map_or(0.0, |it| it.timing.busy_ms());
    let rows = rig.batch_size.div_ceil(micro_batches.max(1));
    let stage = |(stage, plan): (usize, &Arc<Plan>)| {
        let members: Vec<usize> =
            (0..rig.adapters.len()).filter(|idx| division.adapters[*idx] == Some(stage)).collect();
        StagePoint {
            layers: model.range_of(&division.nodes, stage),
            adapters: members.iter().map(|idx| rig.adapters[*idx].name.clone()).collect(),
            bytes: memory::bytes(plan, rows, Kind::DiscreteGpu),
            rows: members.iter().map(|idx| shares[*idx]).collect(),
            busy_ms: members.iter().map(|idx| busy_ms(*idx)).collect(),
        }
    };
    let staged = Staged {
        micro_batches,
        step_ms: budget.step_ms,
        rows_per_s: f64::from(rig.batch_size) / budget.step_ms * 1e3,
        stages: trial.plans().iter().enumerate().map(stage).collect(),
    };
    Ok(Some((staged, StagedStep { ms, spans })))
}

fn run(trial: &Trial, adapters: &[AdapterSpec], rows: u32) -> Result<(Budget, Vec<u32>)> {
    Ok(Budget::of(adapters.len(), &trial.run(adapters, rows)?))
}

/// Predicted throughput of these adapters; `alone` holds each one's rows/s on its own.
fn point(copies: &Trial, alone: &[(f64, AdapterSpec)], rows: u32) -> Result<(Point, Steps)> {
    let adapters: Vec<AdapterSpec> = alone.iter().map(|(_, adapter)| adapter.clone()).collect();
    let steps = copies.steps(&adapters, rows)?;
    let (budget, shares) = Budget::of(adapters.len(), &steps.counted);
    let rows_per_s = f64::from(rows) / budget.step_ms * 1e3;
    let line = Point {
        n_adapters: adapters.len(),
        batch_size: rows,
        shares,
        step_ms: budget.step_ms,
        rows_per_s,
        efficiency: rows_per_s / alone.iter().map(|(speed, _)| speed).sum::<f64>(),
        limit: budget.limit(&adapters, None),
    };
    Ok((line, steps))
}
