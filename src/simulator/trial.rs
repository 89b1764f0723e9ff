//! A few training steps of the scheduler's own code in virtual time, on skeletons of a model's plans.

use std::sync::Arc;

use super::arithmetic::Arithmetic;
use super::cost::Times;
use super::skeleton::Skeleton;
use super::spec::AdapterSpec;
use super::world::{Settings, World};
use crate::adapters::Kind;
use crate::adapters::memory::{self, Needed};
use crate::data::Batch;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Model, Objective, Weights};
use crate::plan::{Pass, Plan, Role};
use crate::scheduler::{CpuFallback, Division, Scheduler, Step, StepReport, TrainingState};
use crate::shown::bytes;

/// Training steps in which the split is learned, and those that count.
const WARM_UP: u64 = 20;
const COUNTED: u64 = 10;
/// Steps of stages, whose teams learn in fewer.
const STAGED_WARM_UP: u64 = 6;
const STAGED_COUNTED: u64 = 4;

/// Virtual time that a prediction may take: ten thousand hours.
const LIMIT_MS: f64 = 36e9;

/// A model and how it is trained on simulated adapters: as copies, or in the stages of a division.
#[derive(Clone)]
pub(crate) struct Trial {
    skeleton: Skeleton,
    objective: Objective,
    division: Option<Division>,
    micro_batches: u32,
    host_gb_s: f64,
    /// The plans that are replaced: of each stage, or of the whole.
    plans: Vec<Arc<Plan>>,
    /// For copies in one piece: the same where the rows do not fit at once.
    in_pieces: Option<Box<(Skeleton, Arc<Plan>)>>,
}

/// A step: its milliseconds, and what it reported.
pub(crate) type Timed = (f64, StepReport);

/// Steps of a trial.
pub(crate) struct Steps {
    /// Steps in which the split is learned.
    pub warm_up: Vec<Timed>,
    /// Steps that count.
    pub counted: Vec<Timed>,
}

impl Trial {
    /// Training of copies, or of a division's stages, on a host that goes over `host_gb_s` · 10⁹ bytes a second.
    ///
    /// # Errors
    /// If the model can't be planned, or divided so.
    pub fn new(
        model: &Model,
        objective: &Objective,
        division: Option<Division>,
        micro_batches: u32,
        host_gb_s: f64,
    ) -> Result<Self> {
        let is_divided = division.as_ref().is_some_and(|division| division.n_stages() > 1);
        let in_pieces = if is_divided || micro_batches > 1 {
            None
        } else {
            let plan = model.plan(&objective.clone().for_micro_batches(2))?;
            Some(Box::new((Skeleton::of(&plan, model.layout()), Arc::new(plan))))
        };
        let objective = objective.clone().for_micro_batches(micro_batches);
        let plan = model.plan(&objective)?;
        let (skeleton, plans) = match division.as_ref().filter(|division| division.n_stages() > 1) {
            None => (Skeleton::of(&plan, model.layout()), vec![Arc::new(plan)]),
            Some(division) => {
                let stages = model.stages(Some(&objective), &division.nodes)?;
                let skeleton = Skeleton::of_stages(&plan, model.layout(), &stages);
                (skeleton, stages.into_iter().map(|stage| stage.plan).collect())
            }
        };
        Ok(Self { skeleton, objective, division, micro_batches, host_gb_s, plans, in_pieces })
    }

    /// With known times of each plan, by stage and adapter.
    #[must_use]
    pub fn timed(mut self, times: Vec<Vec<Times>>) -> Self {
        let skeletons = self.in_pieces.iter_mut().map(|it| &mut it.0).chain([&mut self.skeleton]);
        for (cost, times) in skeletons.flat_map(|skeleton| skeleton.costs.iter_mut().zip(&times)) {
            cost.times.clone_from(times);
        }
        self
    }

    /// The plans that are simulated: of each stage, or of the whole.
    pub fn plans(&self) -> &[Arc<Plan>] {
        &self.plans
    }

    /// Rows of a run on each adapter: those of a piece, or as few as its memory holds.
    ///
    /// # Errors
    /// If an adapter has not enough memory for one row.
    fn capacities(&self, adapters: &[AdapterSpec], rows: u32) -> Result<Vec<u32>> {
        let most = rows.div_ceil(self.micro_batches.max(1));
        let of = |(idx, spec): (usize, &AdapterSpec)| {
            let stage = self.division.as_ref().map_or(Some(0), |division| division.adapters[idx]);
            let (Some(stage), Some(limit)) = (stage, spec.memory_bytes()) else { return Ok(most) };
            match self.need(stage, most, spec.kind.unwrap_or(Kind::DiscreteGpu), limit)? {
                Ok(need) => Ok(need.rows),
                Err(missing) => Err(Error::new(
                    ErrorKind::OutOfMemory,
                    format!("adapter {idx} `{}`", spec.name),
                    format!("has too little memory for one row: it needs {} more", bytes(missing)),
                    "place the layers in stages (`placement`), or give it more memory (`memory_gb`)",
                )),
            }
        };
        adapters.iter().enumerate().map(of).collect()
    }

    /// Memory of a stage, or of a copy, for up to `most` rows at once.
    fn need(&self, stage: usize, most: u32, kind: Kind, limit: u64) -> Result<Needed> {
        let Some(in_pieces) = &self.in_pieces else { return Ok(memory::need(&self.plans[stage], most, kind, limit)) };
        let plan = |pieces| Ok(if pieces > 1 { in_pieces.1.clone() } else { self.plans[0].clone() });
        memory::need_of_copy(plan, self.micro_batches, most, kind, limit)
    }

    /// The skeleton for copies with room for so many rows in all: where a batch does not fit at once, gradients are added on the
    /// adapters, as a trainer does it.
    fn skeleton(&self, capacities: &[u32], rows: u32) -> Skeleton {
        let room = capacities.iter().fold(0_u32, |room, rows| room.saturating_add(*rows));
        match self.in_pieces.as_ref().filter(|in_pieces| room < rows && !in_pieces.1.is_coupled(Pass::Train)) {
            Some(in_pieces) => in_pieces.0.clone(),
            None => self.skeleton.clone(),
        }
    }

    /// Runs some steps of `rows` rows; gives those that count.
    ///
    /// # Errors
    /// If an adapter has not enough memory, or fails.
    pub fn run(&self, adapters: &[AdapterSpec], rows: u32) -> Result<Vec<Timed>> {
        Ok(self.steps(adapters, rows)?.counted)
    }

    /// Runs some steps of `rows` rows.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn steps(&self, adapters: &[AdapterSpec], rows: u32) -> Result<Steps> {
        let capacities = self.capacities(adapters, rows)?;
        let Skeleton { plan, layout, stages, costs, scale } = self.skeleton(&capacities, rows);
        // The host goes over the skeleton's few values: it is slower by as much as they are fewer.
        let settings = Settings {
            arithmetic: Arithmetic::TimeOnly,
            costs: costs.into(),
            host_bytes_per_ms: self.host_gb_s * 1e6 / scale,
            seed: 0,
        };
        let is_staged = !stages.is_empty();
        let (warm_up, counted) = if is_staged { (STAGED_WARM_UP, STAGED_COUNTED) } else { (WARM_UP, COUNTED) };
        let mut world = World::with(adapters.to_vec(), &settings);
        let (opener, runtime) = (world.opener(), world.runtime());
        let simulated = world.adapters();
        let batch = self.batch(rows);
        let state = self.state();
        let all = async {
            let mut scheduler = Scheduler::for_plan(plan, stages, layout, &self.objective)
                .adapters(simulated)
                .opener(opener)
                .runtime(Arc::clone(&runtime))
                .divided(self.division.clone())
                .micro_batches(self.micro_batches)
                .capacity(rows.div_ceil(self.micro_batches.max(1)))
                .capacities(capacities)
                .cpu_fallback(CpuFallback::Refused)
                .state(state)
                .open()
                .await?;
            // Each number of adapters has its own line in the report: no trials with fewer.
            scheduler.keep_all();
            let mut steps = Steps { warm_up: Vec::new(), counted: Vec::new() };
            for step in 0..warm_up + counted {
                let start_ms = runtime.now_ms();
                let numbers = Step { step, seed: 0, learning_rate: 1e-3, loss_scales: Vec::new() };
                let report = scheduler.train(&batch, &numbers).await?;
                let seen = if step < warm_up { &mut steps.warm_up } else { &mut steps.counted };
                seen.push((runtime.now_ms() - start_ms, report));
            }
            Result::<Steps>::Ok(steps)
        };
        world.run(LIMIT_MS, all)?
    }

    /// Mean milliseconds of a step.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn step_ms(&self, adapters: &[AdapterSpec], rows: u32) -> Result<f64> {
        let seen = self.run(adapters, rows)?;
        Ok(seen.iter().map(|(ms, _)| ms).sum::<f64>() / seen.iter().fold(0.0, |count, _| count + 1.0))
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
