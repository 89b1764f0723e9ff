//! A few training steps of the scheduler's own code in virtual time, on skeletons of a model's plans.

use std::ops::Range;
use std::sync::Arc;

use super::arithmetic::Arithmetic;
use super::cost::Times;
use super::network::{Links, Network};
use super::skeleton::Skeleton;
use super::spec::AdapterSpec;
use super::virtual_time::Virtual;
use super::world::{Machine, World};
use crate::data::Batch;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Model, Objective, Weights};
use crate::plan::{Pass, Plan, Role};
use crate::processes::Group;
use crate::runtime::{Runtime, all};
use crate::scheduler::split::{SplitMode, Splitter};
use crate::scheduler::timeline::{Span, Tracing};
use crate::scheduler::{
    CpuFallback, Division, Part, Scheduler, Step, StepReport, TrainingState, fewest_rows, settling_steps,
};
use crate::shown::bytes;
use crate::timing::median;
use manyhands_engine::adapters::memory::{self, NeedOrLack};
use manyhands_engine::adapters::{Info, Kind, Opener};

/// Training steps in which the split is learned, and those that count.
const WARM_UP: u64 = 20;
const COUNTED: u64 = 10;
/// Steps of stages, whose teams learn in fewer.
const STAGED_WARM_UP: u64 = 6;
const STAGED_COUNTED: u64 = 4;

/// Numbers that processes tell each other at the end of a step: loss, counts, a metric.
const TOLD: usize = 6;

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
    split: SplitMode,
    exclusion: SlowAdapters,
    tracing: Tracing,
}

/// Whether the scheduler excludes adapters that slow steps down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlowAdapters {
    /// All take part in every step that counts.
    Refused,
    /// Steps count after its last trial.
    Settled,
}

/// A step: its milliseconds, and what it reported.
pub(crate) type TimedStep = (f64, StepReport);

/// Steps of a trial.
#[derive(Default)]
pub(crate) struct Steps {
    /// Steps in which the split is learned.
    pub warm_up: Vec<TimedStep>,
    /// Steps that count.
    pub counted: Vec<TimedStep>,
    /// Start of the first step.
    pub start_ms: f64,
    /// Of a trial that is traced: all work in the last step, from its start on.
    pub spans: Vec<Span>,
}

/// A kind of machine: its adapters, its host, and how many there are.
pub(super) struct TrialMachine {
    pub adapters: Vec<AdapterSpec>,
    pub host_gb_s: f64,
    pub count: usize,
}

/// Steps on several machines.
pub(super) struct Ran {
    /// The steps of each kind of machine.
    pub kinds: Vec<Steps>,
    /// Milliseconds of a step in which the network is in use.
    pub network_ms: f64,
}

/// A kind of machine, as it is simulated.
struct PreparedMachine {
    machine: Machine,
    capacities: Vec<u32>,
    skeleton: Skeleton,
}

/// A kind of machine in its world.
struct Seat {
    prepared: PreparedMachine,
    adapters: Vec<Info>,
    opener: Opener,
    clock: Virtual,
    group: Group,
    /// The ranks of the machines of this kind.
    ranks: Range<usize>,
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
        let (exclusion, tracing) = (SlowAdapters::Refused, Tracing::Off);
        let split = SplitMode::Learned;
        Ok(Self {
            skeleton,
            objective,
            division,
            micro_batches,
            host_gb_s,
            plans,
            in_pieces,
            split,
            exclusion,
            tracing,
        })
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

    /// Steps count from when the scheduler has excluded the adapters that slow them down.
    #[must_use]
    pub fn settled(self) -> Self {
        Self { exclusion: SlowAdapters::Settled, ..self }
    }

    /// Batches are split so among copies.
    #[must_use]
    pub fn split(self, split: SplitMode) -> Self {
        Self { split, ..self }
    }

    /// Notes all work of the last step.
    #[must_use]
    pub fn traced(self) -> Self {
        Self { tracing: Tracing::On, ..self }
    }

    /// The plans that are simulated: of each stage, or of the whole.
    pub fn plans(&self) -> &[Arc<Plan>] {
        &self.plans
    }

    /// Rows of a run on each adapter: those of a piece, or as few as its memory holds.
    ///
    /// # Errors
    /// If an adapter has not enough memory for one row.
    pub(super) fn capacities(&self, adapters: &[AdapterSpec], rows: u32) -> Result<Vec<u32>> {
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

    /// Memory of a copy that computes a batch of so many rows, or as many of them at once as the adapter holds; of a single row if it
    /// holds none.
    ///
    /// # Errors
    /// If the model can't be planned.
    pub fn copy_bytes(&self, spec: &AdapterSpec, rows: u32) -> Result<u64> {
        let (kind, limit) = (spec.kind.unwrap_or(Kind::DiscreteGpu), spec.memory_bytes().unwrap_or(u64::MAX));
        let need = self.need(0, rows, kind, limit)?;
        Ok(need.map_or_else(|missing| limit.saturating_add(missing), |need| need.bytes))
    }

    /// Memory of a stage, or of a copy, for up to `most` rows at once.
    fn need(&self, stage: usize, most: u32, kind: Kind, limit: u64) -> Result<NeedOrLack> {
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
    pub fn run(&self, adapters: &[AdapterSpec], rows: u32) -> Result<Vec<TimedStep>> {
        Ok(self.steps(adapters, rows)?.counted)
    }

    /// Runs some steps of `rows` rows.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn steps(&self, adapters: &[AdapterSpec], rows: u32) -> Result<Steps> {
        let machine = TrialMachine { adapters: adapters.to_vec(), host_gb_s: self.host_gb_s, count: 1 };
        let mut kinds = self.run_on(&[machine], None, rows)?.kinds;
        Ok(kinds.pop().unwrap_or_default())
    }

    /// Runs some steps of `rows` rows on machines that are joined by links. One machine stands for all of its
    /// kind, with the most rows of them.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(super) fn run_on(&self, machines: &[TrialMachine], links: Option<Links>, rows: u32) -> Result<Ran> {
        let prepared = machines.iter().map(|machine| self.prepared(machine, rows)).collect::<Result<Vec<_>>>()?;
        let worlds = prepared.iter().map(|it| it.machine.clone()).collect();
        let mut world = World::of_machines(worlds, Arithmetic::TimeOnly, 0);
        let counts = machines.iter().map(|machine| machine.count).collect();
        let network = links.map(|links| Network::new(links, counts));
        let seats = (0..).zip(prepared).map(|(kind, prepared)| {
            let clock = world.runtime_of(kind);
            let group = match &network {
                Some(network) => network.join(kind, clock.clone(), prepared.skeleton.scale),
                None => Group::alone(),
            };
            let ranks = machines[..kind].iter().map(|machine| machine.count).sum();
            let ranks = ranks..ranks + machines[kind].count;
            Seat { prepared, adapters: world.adapters_of(kind), opener: world.opener(), clock, group, ranks }
        });
        let network_ms = || network.as_ref().map_or(0.0, |network| network.total_ms());
        let all = all(seats.map(|seat| self.train(seat, &network_ms, rows)).collect());
        let steps: Vec<(Steps, f64)> = world.run(LIMIT_MS, all)??;
        let network_ms = steps.first().map_or(0.0, |(_, network_ms)| *network_ms);
        Ok(Ran { kinds: steps.into_iter().map(|(steps, _)| steps).collect(), network_ms })
    }

    fn prepared(&self, machine: &TrialMachine, rows: u32) -> Result<PreparedMachine> {
        let capacities = self.capacities(&machine.adapters, rows)?;
        let skeleton = self.skeleton(&capacities, rows);
        let machine = Machine {
            adapters: machine.adapters.clone(),
            costs: skeleton.costs.clone().into(),
            // The host goes over the skeleton's few values: it is slower by as much as they are fewer.
            bytes_per_ms: machine.host_gb_s * 1e6 / skeleton.scale,
        };
        Ok(PreparedMachine { machine, capacities, skeleton })
    }

    /// The steps of one machine, and the network's milliseconds in each of them. It has as many rows as the one of its kind that
    /// has most.
    async fn train(&self, seat: Seat, network_ms: &dyn Fn() -> f64, rows: u32) -> Result<(Steps, f64)> {
        let Seat { prepared: PreparedMachine { capacities, skeleton, .. }, adapters, opener, clock, group, ranks } =
            seat;
        let Skeleton { plan, layout, stages, .. } = skeleton;
        let is_staged = !stages.is_empty();
        let (warm_up, counted) = match self.exclusion {
            _ if is_staged => (STAGED_WARM_UP, STAGED_COUNTED),
            SlowAdapters::Refused => (WARM_UP, COUNTED),
            SlowAdapters::Settled => (settling_steps(adapters.len()), COUNTED),
        };
        let mut splitter = Splitter::new(SplitMode::Learned, group.size(), fewest_rows(&plan))?;
        let mut scheduler = Scheduler::for_plan(plan, stages, layout, &self.objective)
            .adapters(adapters)
            .opener(opener)
            .runtime(Arc::new(clock.clone()))
            .divided(self.division.clone())
            .micro_batches(self.micro_batches)
            .capacity(rows.div_ceil(self.micro_batches.max(1)))
            .capacities(capacities)
            .cpu_fallback(CpuFallback::Refused)
            .split(self.split.clone())
            .state(self.state())
            .processes(group.clone())
            .open()
            .await?;
        if self.exclusion == SlowAdapters::Refused {
            scheduler.keep_all();
        }
        let (mut steps, mut before_ms) = (Steps { start_ms: clock.now_ms(), ..Steps::default() }, 0.0);
        for step in 0..warm_up + counted {
            let shares = splitter.step_shares(step, rows, &vec![true; group.size()]);
            let rank = ranks.clone().max_by_key(|rank| shares[*rank]).unwrap_or_default();
            let part = Part { first_row: shares[..rank].iter().sum(), batch_rows: rows };
            let start_ms = clock.now_ms();
            if step == warm_up {
                before_ms = network_ms();
            }
            let is_traced = self.tracing == Tracing::On && step + 1 == warm_up + counted;
            if is_traced {
                scheduler.timeline_mut().start(start_ms, Tracing::On);
            }
            let numbers = Step { step, seed: 0, learning_rate: 1e-3, loss_scales: Vec::new(), ..Step::default() };
            let report = scheduler.train_part(&self.batch(shares[rank]), part, &numbers).await?;
            // As a trainer does, the processes end the step together.
            if let Some(joined) = group.joined() {
                joined.sum(&[0.0; TOLD]).await?;
            }
            for (rank, process) in report.processes.iter().enumerate() {
                splitter.learn(rank, process.rows, process.ms);
            }
            let seen = if step < warm_up { &mut steps.warm_up } else { &mut steps.counted };
            seen.push((clock.now_ms() - start_ms, report));
            if is_traced {
                let since_start = |span: &Span| Span { start_ms: span.start_ms - start_ms, ..*span };
                steps.spans = scheduler.timeline().spans().map(since_start).collect();
            }
        }
        let part = steps.counted.iter().fold(0.0, |count, _| count + 1.0);
        Ok((steps, (network_ms() - before_ms) / part))
    }

    /// Median milliseconds of a step: one in which an idle adapter is tried again does not count.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn step_ms(&self, adapters: &[AdapterSpec], rows: u32) -> Result<f64> {
        Ok(median(self.run(adapters, rows)?.into_iter().map(|(ms, _)| ms)))
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
