//! Builder that opens a rig: a model and an objective, with defaults for all else.

use std::sync::Arc;

use super::in_flight::InFlight;
use super::partition::{Partition, min_rows};
use super::placement::{Division, Placement};
use super::rig::Rig;
use super::sample::Samples;
use super::split::SplitMode;
use super::state::{State, UpdateOn};
use super::teams::Teams;
use super::{CpuFallback, Scheduler, TrainingState};
use crate::error::{Error, Result};
use crate::model::stages::Stage;
use crate::model::{Model, Objective, Weights};
use crate::plan::{Layout, Pass, Plan};
use crate::processes::Group;
use crate::runtime::{self, Runtime};
use manyhands_engine::adapters::{self, Info, Opener};

/// Rows of a run, by default.
const CAPACITY: u32 = 32;

/// Settings of a rig to be opened: its work and its adapters.
///
/// ```
/// use manyhands::adapters::Info;
/// use manyhands::model::Objective;
/// use manyhands::scheduler::Scheduler;
/// use manyhands::layers::Dense;
/// use manyhands::{Loss, Optimizer, Sequential, SplitMode};
/// # fn main() -> manyhands::Result<()> {
/// let model = Sequential::new([4]).add(Dense::new(3)).build(0)?;
/// let objective = Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::sgd(0.1, 0.0));
/// let builder = Scheduler::builder(&model, &objective).adapters(vec![Info::cpu(); 2]);
/// let scheduler = pollster::block_on(builder.split(SplitMode::Even).capacity(8).open())?;
/// assert_eq!(scheduler.active(), [true, true]);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is open before `open`"]
pub struct Builder<'a> {
    work: Work<'a>,
    objective: Option<&'a Objective>,
    adapters: Vec<Info>,
    opener: Opener,
    runtime: Arc<dyn Runtime>,
    split: SplitMode,
    capacity: u32,
    capacities: Vec<u32>,
    cpu_fallback: CpuFallback,
    micro_batches: u32,
    placement: Placement,
    division: Option<Division>,
    state: Option<TrainingState>,
    processes: Group,
    samples: Samples,
}

/// Kind of work of a rig.
enum Work<'a> {
    Model(&'a Model),
    Plan(Box<(Plan, Vec<Stage>, Layout)>),
}

impl Scheduler {
    /// A rig that trains a model.
    pub fn builder<'a>(model: &'a Model, objective: &'a Objective) -> Builder<'a> {
        Builder::new(Work::Model(model), Some(objective))
    }

    /// A rig that predicts with a model, and does not train it.
    pub fn for_inference(model: &Model) -> Builder<'_> {
        Builder::new(Work::Model(model), None)
    }

    /// A rig that trains by a plan without a model, or by those of its stages: its state has to be given.
    pub(crate) fn for_plan(plan: Plan, stages: Vec<Stage>, layout: Layout, objective: &Objective) -> Builder<'_> {
        Builder::new(Work::Plan(Box::new((plan, stages, layout))), Some(objective))
    }
}

impl<'a> Builder<'a> {
    fn new(work: Work<'a>, objective: Option<&'a Objective>) -> Self {
        Self {
            work,
            objective,
            adapters: vec![adapters::cpu::info()],
            opener: Arc::new(adapters::open),
            runtime: runtime::system(),
            split: SplitMode::default(),
            capacity: CAPACITY,
            capacities: Vec::new(),
            cpu_fallback: CpuFallback::default(),
            micro_batches: 1,
            placement: Placement::default(),
            division: None,
            state: None,
            processes: Group::alone(),
            samples: Samples::default(),
        }
    }

    /// The adapters; by default the CPU adapter. An adapter may be listed twice, and is then opened twice.
    pub fn adapters(self, adapters: Vec<Info>) -> Self {
        Self { adapters, ..self }
    }

    /// Sets the function that opens adapters; the default is [`adapters::open`].
    pub fn opener(self, opener: Opener) -> Self {
        Self { opener, ..self }
    }

    /// Clock, timer and spawn; by default those of the system.
    pub fn runtime(self, runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, ..self }
    }

    /// Sets the division of rows; by default it is learned from measured speeds.
    pub fn split(self, split: SplitMode) -> Self {
        Self { split, ..self }
    }

    /// Most rows of a run on one adapter; 32 by default. A larger share runs in pieces.
    pub fn capacity(self, rows: u32) -> Self {
        Self { capacity: rows, ..self }
    }

    /// Sets whether the CPU adapter takes over when all others are lost; by default it does.
    pub fn cpu_fallback(self, cpu_fallback: CpuFallback) -> Self {
        Self { cpu_fallback, ..self }
    }

    /// Micro-batches in which each adapter computes its rows, one after the other, before the one update. 1 by default.
    pub fn micro_batches(self, micro_batches: u32) -> Self {
        Self { micro_batches, ..self }
    }

    /// Sets where layers are computed; by default each adapter computes all of them.
    pub fn placement(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    /// Divides the model over stages by numbers, in place of names: the stage of each node, in the model's order, and that
    /// of each adapter.
    pub fn stages(self, nodes: Vec<usize>, adapters: Vec<usize>) -> Self {
        let adapters = adapters.into_iter().map(Some).collect();
        self.divided(Some(Division { nodes, adapters }))
    }

    /// Divides the model as [`stages`](Self::stages) does; adapters without a stage are closed.
    pub(crate) fn divided(self, division: Option<Division>) -> Self {
        Self { division, ..self }
    }

    /// Most rows of a run on each adapter, in place of one number for all.
    pub(crate) fn capacities(self, rows: Vec<u32>) -> Self {
        Self { capacities: rows, ..self }
    }

    /// The state to begin with; by default the model's weights before the first step.
    pub fn state(self, state: TrainingState) -> Self {
        Self { state: Some(state), ..self }
    }

    /// Trains together with other processes, each of which has a scheduler of the same model; by default alone.
    pub fn processes(self, processes: Group) -> Self {
        Self { processes, ..self }
    }

    /// Now and then, in at most a hundredth of the time, has one adapter's rows computed again by another, and leaves out an adapter that
    /// computes wrong numbers.
    pub fn sampled(mut self) -> Self {
        self.samples.begin();
        self
    }

    /// Opens the adapters, and loads the model's plan on each.
    ///
    /// # Errors
    /// If the split does not go with the adapters, one can't be opened, or one can't run the model.
    pub async fn open(self) -> Result<Scheduler> {
        let objective = self.objective;
        let trained = match &self.work {
            Work::Model(model) => objective.map(|objective| (*model, objective)),
            Work::Plan(_) => None,
        };
        let Planned { plan, stages, stage_of, layout, weights } =
            self.work.planned(objective, self.micro_batches, self.division, &self.placement, self.adapters.len())?;
        let is_cut = self.micro_batches > 1 || stages.len() > 1;
        if is_cut && plan.is_coupled(Pass::Train) {
            return Err(synchronized(self.micro_batches, stages.len()));
        }
        check_teams(&stage_of, self.adapters.len(), stages.len())?;
        if stages.len() > 1 {
            self.processes.refuse("placement in stages", "leave out the placement, or start one process")?;
        }
        if let Some(rule) =
            objective.map(|objective| objective.optimizer.rule()).filter(|rule| !rule.is_same_everywhere())
        {
            let who = format!("optimizer `{}`, whose products of matrices round by the machine,", rule.kind());
            self.processes.refuse(&who, "start one process, or take another optimizer")?;
        }
        if stages.len() > 1 && matches!(self.split, SplitMode::Fixed(_) | SplitMode::Recorded(_)) {
            let problem =
                "needs to be learned where layers are placed in stages: each adapter gets all rows of its stage";
            return Err(Error::setting("split", problem, "leave out the split, or the placement"));
        }
        let state = self.state.unwrap_or_else(|| match objective {
            Some(objective) => TrainingState::new(weights, &layout, &objective.optimizer),
            None => TrainingState { weights, optimizer: Vec::new() },
        });
        let n_adapters = self.adapters.len();
        let teams = Teams::new(self.micro_batches, min_rows(&plan));
        let partition = Partition::new(self.split, n_adapters, &plan, self.micro_batches)?;
        let is_alone = stage_of.iter().flatten().count() == 1 && stages.len() == 1 && self.processes.is_alone();
        let needs_host = objective.is_some_and(|objective| objective.optimizer.needs_host());
        let update_on = if is_alone && !needs_host { UpdateOn::Device } else { UpdateOn::Host };
        let state = State::new(state, layout, objective, update_on);
        let mut rig = Rig::new(self.runtime, self.opener, plan, stages, self.cpu_fallback);
        rig.processes = self.processes;
        for (idx, (info, stage)) in self.adapters.iter().zip(stage_of).enumerate() {
            let capacity = self.capacities.get(idx).copied().unwrap_or(self.capacity);
            rig.add(info, stage.unwrap_or(0), capacity)?;
            rig.members[idx].is_reduced = capacity < self.capacity;
            if stage.is_none() {
                rig.spare(idx);
            }
        }
        rig.load_all().await?;
        if let Some((model, objective)) = trained.filter(|_| rig.lacks_room(self.capacity) && !rig.is_staged()) {
            // The rows will go in pieces in every step: their gradients are better added on the adapters.
            let plan = model.plan(&objective.clone().for_micro_batches(2))?;
            rig.reload(plan, self.capacity).await?;
        }
        let mut scheduler =
            Scheduler { rig, state, partition, teams, in_flight: InFlight::default(), samples: self.samples };
        scheduler.host_if_needed();
        Ok(scheduler)
    }
}

/// Plans of a rig's work, and the stage of each adapter.
struct Planned {
    plan: Arc<Plan>,
    /// One, or those of a division.
    stages: Vec<Stage>,
    stage_of: Vec<Option<usize>>,
    layout: Layout,
    weights: Weights,
}

impl Work<'_> {
    fn planned(
        self,
        objective: Option<&Objective>,
        micro_batches: u32,
        division: Option<Division>,
        placement: &Placement,
        n_adapters: usize,
    ) -> Result<Planned> {
        let (plan, stages, stage_of, layout, weights) = match self {
            Work::Model(model) => {
                let objective = objective.map(|objective| objective.clone().for_micro_batches(micro_batches));
                let plan = objective.as_ref().map_or_else(|| Ok(model.inference_plan()), |it| model.plan(it))?;
                let division = match division {
                    None => placement.division(model, n_adapters)?,
                    some => some,
                };
                if let Some(division) = &division {
                    model.check_division(&division.nodes)?;
                }
                let stages = match division.as_ref().filter(|division| division.n_stages() > 1) {
                    None => Vec::new(),
                    Some(division) => model.stages(objective.as_ref(), &division.nodes)?,
                };
                let stage_of = division.map(|division| division.adapters);
                (plan, stages, stage_of, model.layout().clone(), model.weights.clone())
            }
            Work::Plan(work) => {
                let (plan, stages, layout) = *work;
                (plan, stages, division.map(|division| division.adapters), layout, Weights::default())
            }
        };
        let plan = Arc::new(plan);
        let stages = if stages.is_empty() { vec![Stage::whole(plan.clone(), &layout)] } else { stages };
        let stage_of = stage_of.unwrap_or_else(|| vec![Some(0); n_adapters]);
        Ok(Planned { plan, stages, stage_of, layout, weights })
    }
}

/// The error for batch normalization over the whole batch where a batch is cut into pieces.
fn synchronized(micro_batches: u32, n_stages: usize) -> Error {
    let (setting, needed, got) = if n_stages > 1 {
        ("placement", "needs one stage", format!("has {n_stages}"))
    } else {
        ("micro_batches", "needs to be 1", format!("is {micro_batches}"))
    };
    Error::setting(
        setting,
        format!(
            "{needed} where batch-norm is `synchronized`, whose statistics are those of the whole batch, but {got}"
        ),
        "leave it out, or set `synchronized = false`: then statistics are those of a micro-batch",
    )
}

/// Checks that each adapter has a stage, and each stage an adapter.
fn check_teams(stage_of: &[Option<usize>], n_adapters: usize, n_stages: usize) -> Result<()> {
    let problem = if stage_of.len() != n_adapters {
        format!("needs a stage for each of {n_adapters} adapters, but has {}", stage_of.len())
    } else if let Some(stage) = (0..n_stages).find(|stage| !stage_of.contains(&Some(*stage))) {
        format!("needs an adapter for each of {n_stages} stages, but stage {stage} has none")
    } else if let Some(stage) = stage_of.iter().flatten().find(|stage| **stage >= n_stages) {
        format!("has {n_stages} stages, but an adapter is to compute stage {stage}")
    } else {
        return Ok(());
    };
    Err(Error::setting("placement", problem, "name adapters for each stage"))
}
