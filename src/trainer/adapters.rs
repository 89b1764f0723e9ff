//! The adapters of a trainer: which to open and how, the open ones, and the state of training while none are open.

use std::path::Path;
use std::sync::Arc;

use super::Compile;
use super::advice::advice;
use super::auto::Auto;
use super::process_split::within_process;
use super::rig::Rig;
use crate::data::LoaderSettings;
use crate::error::{Error, Result};
use crate::model::{Model, Objective};
use crate::placer::{ChosenPlacement, Probed};
use crate::plan::{Layout, Pass, Plan};
use crate::processes::{Group, Joined};
use crate::runtime::{self, Runtime};
use crate::scheduler::split::SplitMode;
use crate::scheduler::timeline::{Activity, Lane, Span, TimeSummary, Timeline, Tracing};
use crate::scheduler::{AdapterStatus, CpuFallback, Placement, Scheduler, TrainingState};
use manyhands_engine::adapters::{self, Info, MemoryLimits, Opener, Throttles};

/// An adapter that a trainer has opened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OpenAdapter {
    /// Description of the adapter.
    pub info: Info,
    /// Whether it takes part.
    pub status: AdapterStatus,
    /// Bytes of memory that the model takes on it.
    pub bytes: u64,
    /// Factor by which it is slowed down.
    pub throttle: f64,
}

/// The adapters to train on, and their scheduler while they are open.
pub(super) struct Adapters {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) opener: Opener,
    pub(super) cpu_fallback: CpuFallback,
    pub(super) throttles: Throttles,
    pub(super) limits: MemoryLimits,
    /// The adapters to open; `None` for those of the environment.
    chosen: Option<Vec<Info>>,
    /// The processes of the run, each with adapters of its own.
    pub(super) group: Group,
    split: SplitMode,
    /// Whether each adapter is kept, even if training is faster without it.
    pub(super) keeps_all: bool,
    /// Whether outputs are predicted, so that a plan has room for them.
    pub(super) predicts: bool,
    placement: Placement,
    /// The placement that was chosen by measurement, while adapters are open for it.
    auto: Option<Auto>,
    /// Speeds for the next choice, as long as adapters and model are the same.
    probed: Option<Probed>,
    opened: Option<Opened>,
    /// State for opening adapters; while they are open, the scheduler owns it.
    state: TrainingState,
    /// Times of the last adapters, kept while others are opened.
    timeline: Option<Timeline>,
}

/// Open adapters, for batches of up to `capacity` rows.
struct Opened {
    scheduler: Scheduler,
    capacity: usize,
    micro_batches: u32,
}

impl Adapters {
    /// Adapters to be opened with a state.
    pub(super) fn new(state: TrainingState) -> Self {
        Self {
            runtime: runtime::system(),
            opener: Arc::new(adapters::open),
            cpu_fallback: CpuFallback::default(),
            throttles: Throttles::default(),
            limits: MemoryLimits::default(),
            chosen: None,
            group: Group::alone(),
            split: SplitMode::default(),
            keeps_all: false,
            predicts: false,
            placement: Placement::default(),
            auto: None,
            probed: None,
            opened: None,
            state,
            timeline: None,
        }
    }

    /// Chooses other adapters; closes the open ones.
    pub(super) fn choose(&mut self, adapters: Vec<Info>) {
        self.close();
        self.forget_speeds();
        self.chosen = Some(adapters);
    }

    /// Trains together with other processes; closes the open adapters.
    pub(super) fn join(&mut self, group: Group) {
        self.close();
        self.group = group;
    }

    /// The split over the adapters, of all processes.
    pub(super) fn split(&self) -> &SplitMode {
        &self.split
    }

    /// Chooses another split; closes the open adapters.
    pub(super) fn choose_split(&mut self, split: SplitMode) {
        self.close();
        self.split = split;
    }

    /// The stage of each node of a model; `None` without stages, or before they are chosen.
    pub(super) fn nodes(&self, model: &Model) -> Result<Option<Vec<usize>>> {
        let chosen = self.chosen_placement().filter(ChosenPlacement::is_staged);
        match chosen.and_then(|chosen| chosen.division) {
            Some(division) => Ok(Some(division.nodes)),
            None => self.placement.nodes(model),
        }
    }

    /// The placement that was chosen by measurement.
    pub(super) fn chosen_placement(&self) -> Option<ChosenPlacement> {
        self.auto.as_ref().map(Auto::now)
    }

    /// Predicted milliseconds of a step of another placement over some of the adapters, by the speeds that were measured for the
    /// choice.
    pub(super) fn predicted_ms(&self, placement: &Placement, on: &[usize], micro_batches: u32) -> Result<Option<f64>> {
        self.auto.as_ref().map_or(Ok(None), |auto| auto.site().predicted_ms(placement, on, micro_batches))
    }

    /// Measures adapters again before the next choice.
    pub(super) fn forget_speeds(&mut self) {
        self.probed = None;
    }

    /// Chooses where layers are computed; closes the open adapters.
    pub(super) fn choose_placement(&mut self, placement: Placement) {
        self.close();
        self.placement = placement;
    }

    /// Chooses another split, which open adapters take from the next step on.
    ///
    /// # Errors
    /// If the split does not go with the adapters. Then nothing has changed.
    pub(super) fn set_split(&mut self, split: SplitMode) -> Result<()> {
        if let Some(opened) = &mut self.opened {
            opened.scheduler.set_split(split.clone())?;
        }
        self.split = split;
        Ok(())
    }

    /// Whether open adapters can run batches of so many rows in so many micro-batches.
    pub(super) fn can_run(&self, batch_size: usize, micro_batches: u32) -> bool {
        let fits = |opened: &Opened| opened.capacity >= batch_size;
        self.opened.as_ref().is_some_and(fits) && self.keeps_open(micro_batches)
    }

    /// Whether open adapters are open for so many micro-batches, and for prediction if that is asked for.
    pub(super) fn keeps_open(&self, micro_batches: u32) -> bool {
        let is_such = |opened: &Opened| {
            opened.micro_batches == micro_batches && (!self.predicts || opened.scheduler.has(Pass::Predict))
        };
        self.opened.as_ref().is_some_and(is_such)
    }

    /// Micro-batches that the adapters are open for; `None` if they are closed.
    pub(super) fn micro_batches(&self) -> Option<u32> {
        self.opened.as_ref().map(|opened| opened.micro_batches)
    }

    /// Opens the adapters for batches of up to so many rows, or makes room for them on open adapters that run as many
    /// micro-batches.
    ///
    /// # Errors
    /// If no adapter can be opened, or one can't run the model.
    pub(super) async fn open(
        &mut self,
        model: &Model,
        compile: &Compile,
        batch_size: usize,
        micro_batches: u32,
    ) -> Result<()> {
        let capacity = capacity_of(batch_size, micro_batches)?;
        let keeps_open = self.keeps_open(micro_batches);
        if let Some(opened) = self.opened.as_mut().filter(|opened| keeps_open && !opened.scheduler.is_staged()) {
            let plan = opened.scheduler.plan().clone();
            opened.scheduler.reload(plan, capacity).await?;
            opened.capacity = batch_size;
            return Ok(());
        }
        self.close();
        let chosen = chosen(self.chosen.as_deref()).await?;
        self.limits.check(&chosen)?;
        let split = self.own_split(chosen.len()).await?;
        let opener = self.limits.wrap(self.throttles.wrap(self.opener.clone()), &chosen);
        let objective = Objective { predicts: self.predicts, ..compile.objective() };
        self.auto = self.place(model, &objective, &chosen, &opener, (batch_size, micro_batches)).await?;
        let placed = self.chosen_placement();
        let pieces = placed.as_ref().map_or(micro_batches, |placed| placed.micro_batches);
        let capacity = capacity_of(batch_size, pieces)?;
        let placement = if self.placement == Placement::Auto { Placement::Replicas } else { self.placement.clone() };
        let mut scheduler = Scheduler::builder(model, &objective)
            .adapters(chosen)
            .opener(opener)
            .runtime(self.runtime.clone())
            .split(split)
            .processes(self.group.clone())
            .placement(placement)
            .divided(placed.and_then(|placed| placed.division))
            .capacity(capacity)
            .cpu_fallback(self.cpu_fallback)
            .micro_batches(pieces)
            .state(self.state.clone())
            .sampled()
            .open()
            .await?;
        if self.keeps_all {
            scheduler.keep_all();
        }
        if let Some(auto) = &self.auto {
            scheduler.set_placer(auto.placer());
        }
        if let Some(timeline) = self.timeline.take() {
            scheduler.timeline_mut().go_on(timeline);
        }
        self.state = TrainingState::default();
        self.opened = Some(Opened { scheduler, capacity: batch_size, micro_batches });
        Ok(())
    }

    /// The split over this process' adapters.
    ///
    /// # Errors
    /// If the split does not go with the adapters of all processes, or these don't go with a placement.
    async fn own_split(&self, n_adapters: usize) -> Result<SplitMode> {
        let Some(joined) = self.group.joined() else { return Ok(self.split.clone()) };
        if self.placement != Placement::Replicas {
            self.group.refuse("placement in stages", "leave out the placement, or start one process")?;
        }
        let n_adapters = counts_of_adapters(joined, n_adapters).await?;
        within_process(&self.split, &n_adapters, joined.rank())
    }

    /// Chooses a placement by measurement if that is asked for, and there is a choice.
    async fn place(
        &mut self,
        model: &Model,
        objective: &Objective,
        adapters: &[Info],
        opener: &Opener,
        (batch_size, micro_batches): (usize, u32),
    ) -> Result<Option<Auto>> {
        let is_split_given = matches!(self.split, SplitMode::Fixed(_) | SplitMode::Recorded(_));
        if self.placement != Placement::Auto || adapters.len() < 2 || is_split_given {
            return Ok(None);
        }
        let rig = Rig {
            model,
            objective,
            adapters,
            limits: adapters.iter().enumerate().map(|(idx, info)| self.limits.of(idx, info, adapters)).collect(),
            opener,
            runtime: &self.runtime,
            batch_size: capacity_of(batch_size, 1)?,
            micro_batches,
        };
        Auto::measure(&rig, &mut self.probed).await.map(Some)
    }

    /// Moves the layers of a chosen placement where measurements since then show that others are faster. Between steps.
    ///
    /// # Errors
    /// If an adapter can't run its stage.
    pub(super) async fn follow_speeds(&mut self) -> Result<()> {
        let (Some(auto), Some(opened)) = (&mut self.auto, &mut self.opened) else { return Ok(()) };
        let scheduler = &mut opened.scheduler;
        if !auto.is_due() || !scheduler.is_staged() {
            return Ok(());
        }
        let there = scheduler.statuses().into_iter().map(|status| matches!(status, AdapterStatus::Active { .. }));
        let Some((chosen, placed)) = auto.reconsider(&there.collect::<Vec<_>>(), scheduler.row_ms())? else {
            return Ok(());
        };
        let capacity = capacity_of(opened.capacity, chosen.micro_batches)?;
        log::warn!("stages move, since measured speeds are others than before the first step: {}", chosen.line());
        scheduler.place(placed, capacity).await?;
        auto.set(chosen);
        Ok(())
    }

    /// Loads another plan on the open adapters, of a model with the same tensors.
    ///
    /// # Errors
    /// If an adapter can't run it.
    pub(super) async fn reload(&mut self, plan: Plan) -> Result<()> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let capacity = capacity_of(opened.capacity, opened.micro_batches)?;
        opened.scheduler.reload(plan, capacity).await
    }

    /// Closes the adapters, if they are open. Their state stays.
    pub(super) fn close(&mut self) {
        if let Some(mut opened) = self.opened.take() {
            self.timeline = Some(std::mem::take(opened.scheduler.timeline_mut()));
            self.state = opened.scheduler.into_state();
            self.auto = None;
        }
    }

    /// The scheduler of the open adapters.
    ///
    /// # Errors
    /// If they are closed.
    pub(super) fn scheduler(&mut self) -> Result<&mut Scheduler> {
        match &mut self.opened {
            Some(opened) => Ok(&mut opened.scheduler),
            None => Err(Error::adapter(
                "the trainer",
                "needs open adapters, but has none",
                "call `fit` or `evaluate` first",
            )),
        }
    }

    /// The scheduler, if the adapters are open.
    pub(super) fn if_open(&self) -> Option<&Scheduler> {
        self.opened.as_ref().map(|opened| &opened.scheduler)
    }

    /// Copies the state from the adapters. If the only one is lost it is that of the last copy.
    pub(super) async fn sync(&mut self) -> Result<()> {
        if let Some(opened) = &mut self.opened {
            opened.scheduler.sync().await?;
        }
        Ok(())
    }

    /// Weights, statistics and optimizer state as of the last [`sync`](Self::sync).
    pub(super) fn state(&self) -> &TrainingState {
        self.if_open().map_or(&self.state, Scheduler::state)
    }

    /// [`state`](Self::state) for a caller that keeps it unchanged while training continues.
    pub(super) fn share_state(&self) -> Arc<TrainingState> {
        self.if_open().map_or_else(|| Arc::new(self.state.clone()), Scheduler::share_state)
    }

    /// Replaces the state, on open adapters, too.
    pub(super) fn restore(&mut self, state: TrainingState) {
        match &mut self.opened {
            Some(opened) => opened.scheduler.restore(state),
            None => self.state = state,
        }
    }

    /// Gives all adapters the weights of a model.
    pub(super) fn take_weights(&mut self, model: &Model) {
        let (weights, optimizer) = (model.weights.clone(), self.state().optimizer.clone());
        self.restore(TrainingState { weights, optimizer });
    }

    /// Whether the newest state is on a single adapter.
    pub(super) fn is_on_device(&self) -> bool {
        self.if_open().is_some_and(Scheduler::is_on_device)
    }

    /// Whether no step is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.if_open().is_none_or(Scheduler::is_idle)
    }

    /// Whether the state went back to the last copy since the last call, after the loss of the only adapter.
    pub(super) fn take_rewound(&mut self) -> bool {
        self.opened.as_mut().is_some_and(|opened| opened.scheduler.take_rewound())
    }

    /// Whether the open adapters train the tensors of this layout.
    pub(super) fn train(&self, layout: &Layout) -> bool {
        self.if_open().is_none_or(|scheduler| scheduler.layout() == layout)
    }

    /// Keeps the list of open adapters for the next opening.
    pub(super) fn note(&mut self) {
        if let Some(opened) = &self.opened {
            let stays = |(info, status): (&Info, _)| (status != AdapterStatus::Left).then(|| info.clone());
            let statuses = opened.scheduler.statuses();
            self.chosen = Some(opened.scheduler.adapters().zip(statuses).filter_map(stays).collect());
        }
    }

    /// The open adapters, by position. Removed ones keep their positions.
    pub(super) fn list(&self) -> Vec<OpenAdapter> {
        let Some(scheduler) = self.if_open() else { return Vec::new() };
        let open = scheduler.adapters().zip(scheduler.statuses()).zip(scheduler.bytes()).enumerate();
        open.map(|(adapter_idx, ((info, status), bytes))| {
            let throttle = self.throttles.of(adapter_idx);
            OpenAdapter { info: info.clone(), status, bytes, throttle }
        })
        .collect()
    }

    /// Names of the open adapters, by position.
    pub(super) fn names(&self) -> Vec<String> {
        self.if_open().map_or_else(Vec::new, |scheduler| scheduler.adapters().map(|info| info.name.clone()).collect())
    }

    /// Number of open adapters that share each batch's rows; 1 where they have other layers, or were chosen by measurement.
    pub(super) fn sharing(&self) -> usize {
        if self.placement == Placement::Replicas { self.names().len() } else { 1 }
    }

    /// Begins the timeline of a run.
    ///
    /// # Errors
    /// If the adapters are closed.
    pub(super) fn start_timeline(&mut self, tracing: Tracing) -> Result<()> {
        let now_ms = self.runtime.now_ms();
        self.scheduler()?.timeline_mut().start(now_ms, tracing);
        Ok(())
    }

    /// Records the host's work since `start_ms`.
    pub(super) fn record(&mut self, what: Activity, start_ms: f64) {
        if let Some(opened) = &mut self.opened {
            opened.scheduler.record(what, start_ms, None, 0);
        }
    }

    /// Records a time in the trace alone: in the summary it is part of something else.
    pub(super) fn trace(&mut self, what: Activity, start_ms: f64) {
        let ms = self.runtime.now_ms() - start_ms;
        if let Some(opened) = &mut self.opened {
            opened.scheduler.timeline_mut().trace(Span {
                lane: Lane::Host,
                what,
                start_ms,
                ms,
                step: None,
                task: None,
                rows: 0,
            });
        }
    }

    /// Writes the trace of a run, for Perfetto.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn write_trace(&self, path: &Path) -> Result<()> {
        self.if_open().map_or(Ok(()), |scheduler| scheduler.timeline().write_trace(path))
    }

    /// Summary of the time of a run, with advice for a run with these settings of its loader.
    ///
    /// # Errors
    /// If the adapters are closed.
    pub(super) fn time_summary(&mut self, loader: &LoaderSettings) -> Result<TimeSummary> {
        let now_ms = self.runtime.now_ms();
        let summary = self.scheduler()?.timeline().summary(now_ms);
        Ok(TimeSummary { advice: advice(&summary, loader, &self.split), ..summary })
    }
}

/// The number of adapters of each process, by rank.
async fn counts_of_adapters(joined: &Joined, n_adapters: usize) -> Result<Vec<usize>> {
    let all = joined.all_gather((n_adapters as u64).to_le_bytes().to_vec()).await?;
    let count =
        |bytes: Vec<u8>| bytes.try_into().ok().and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok());
    Ok(all.into_iter().map(|bytes| count(bytes).unwrap_or_default()).collect())
}

/// Rows that an adapter must be able to run at once.
///
/// # Errors
/// If there are more than can be counted.
pub(super) fn capacity_of(batch_size: usize, micro_batches: u32) -> Result<u32> {
    let rows = batch_size.div_ceil(micro_batches.max(1) as usize);
    u32::try_from(rows).map_err(|_| {
        Error::setting("batch_size", format!("needs less than 2^32 rows for an adapter, but got {rows}"), "32 is usual")
    })
}

/// The chosen adapters, else those of the environment, else the default.
pub(super) async fn chosen(adapters: Option<&[Info]>) -> Result<Vec<Info>> {
    match adapters {
        Some(adapters) => Ok(adapters.to_vec()),
        None => {
            let wanted = std::env::var(adapters::ADAPTERS_VARIABLE).unwrap_or_default();
            adapters::choose(&adapters::list_async().await, &wanted)
        }
    }
}
