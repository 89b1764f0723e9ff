//! The scheduler: splits each batch over the adapters, combines their results, and commits once all are in.
//!
//! **Unstable**: for the packages of this repository. Names and behaviour change with any version.
//!
//! Nothing in a step depends on which adapter finishes first: values are combined in the order of the rows.
//!
//! `driver.rs` is the loop of training, `step.rs` one of its steps from top to bottom. Its parts: `rig/` (the adapters),
//! `partition.rs` with `split/` and `selection.rs` (rows of each adapter), `round.rs` (a pass over all shards), `open_runs.rs`
//! (silence, failure and abandoned runs of any pass), `state/` (weights, update, broadcast), `in_flight.rs` (steps in flight),
//! `recovery.rs` (when no adapter is left).

// Other files: `builder.rs` opens a scheduler; `alone.rs`: a step by one adapter, to compare; `sample.rs`: rows
// that another adapter computes again; `calibration.rs`, `shards.rs`: the first
// split, and the rows of one; `placement.rs`, `pipeline.rs`, `teams.rs`: layers in stages; `combine.rs`: values that shards wait for;
// `processes.rs`, `all_reduce.rs`: exchange with other processes; `diagnosis.rs`: the origin of a NaN; `timeline/`: times of all work.

mod all_reduce;
mod alone;
mod builder;
mod calibration;
mod combine;
mod diagnosis;
mod driver;
mod in_flight;
mod open_runs;
mod partition;
mod pipeline;
mod placement;
mod processes;
mod recovery;
mod rig;
mod round;
mod sample;
mod selection;
mod shards;
pub mod split;
mod state;
mod step;
mod teams;
pub mod timeline;

use std::sync::Arc;

use crate::data::Batch;
use crate::error::{Error, Result};
use crate::plan::{Layout, Pass, Plan, Role};
use crate::runtime::Boxed;
use manyhands_engine::adapters::{Combining, Handle, Info, Timing};

use self::in_flight::InFlight;
use self::open_runs::{Among, Job, OpenRuns};
use self::partition::Partition;
use self::pipeline::Pipeline;
use self::recovery::ensure_active;
use self::rig::Rig;
use self::round::Round;
use self::sample::Samples;
use self::shards::{Answer, rows_of};
use self::split::{Estimate, SplitMode};
use self::state::State;
use self::teams::Teams;
use self::timeline::{Activity, Timeline};

pub(crate) use self::all_reduce::PIECE;
pub use self::all_reduce::{AllReduce, pieces};
pub use self::builder::Builder;
pub use self::driver::{NextStep, StepSource};
pub use self::in_flight::{DataWait, Finished, FinishedStep};
pub(crate) use self::partition::min_rows as fewest_rows;
pub(crate) use self::placement::{Division, Placed, Placer};
pub use self::placement::{Placement, StageSpec};
pub use self::rig::AdapterStatus;
pub(crate) use self::selection::settling_steps;
pub use self::state::TrainingState;

/// Whether the CPU adapter takes over when all others are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuFallback {
    /// Training continues on the CPU adapter.
    #[default]
    Allowed,
    /// Losing all adapters ends the run.
    Refused,
}

/// The numbers of one training step.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Number of the step, counted from 0.
    pub step: u64,
    /// Seed of the run.
    pub seed: u32,
    /// Learning rate.
    pub learning_rate: f32,
    /// Factor of each output's loss: its weight over the whole batch's count.
    pub loss_scales: Vec<f32>,
    /// Scaling of the gradients, under mixed precision.
    pub scaling: Option<Scaling>,
}

/// Scaling of a step's gradients. A step that is not applied is followed by one with a smaller factor, and is no step of the optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// The factor is 2 to this power.
    pub exponent: i32,
    /// Updates that were applied before.
    pub updates: u64,
}

/// The rows of a batch that a process computes, if several share it: they follow those of the processes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of its first row in the whole batch.
    pub first_row: u32,
    /// Rows of the whole batch.
    pub batch_rows: u32,
}

impl Part {
    /// All rows.
    pub fn whole(rows: u32) -> Self {
        Self { first_row: 0, batch_rows: rows }
    }
}

/// One process' part of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessReport {
    /// Rows that its adapters computed.
    pub rows: u32,
    /// Milliseconds that its slowest adapter was busy with them.
    pub ms: f64,
    /// Rows of each of its adapters, and the milliseconds that it was busy.
    pub adapters: Vec<(u32, f64)>,
}

/// One adapter's part of a step.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ShardReport {
    /// Position among the adapters in use.
    pub adapter_idx: usize,
    /// Rows it computed.
    pub rows: u32,
    /// Times of the adapter's run.
    pub timing: Timing,
}

/// Results of a step.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// Per-row weighted loss and score of each output, in the order of the batch's rows; behind them, where outputs of
    /// layers are penalized, these penalties of each row.
    pub reports: Vec<Vec<f32>>,
    /// Global norm of the gradients, before clipping.
    pub gradient_norm: f32,
    /// False if a gradient was not finite: nothing was updated.
    pub is_applied: bool,
    /// Whether nothing was updated because the step began before it was known that the one before it was not applied.
    pub(super) is_void: bool,
    /// Penalties of the parameters before the step.
    pub penalty: f64,
    /// Each adapter's part.
    pub shards: Vec<ShardReport>,
    /// Each process' part, by rank; empty for a lone process.
    pub processes: Vec<ProcessReport>,
    /// Adding gradients on the host.
    pub reduce_ms: f64,
    /// Waiting for other processes, and exchanging gradients with them.
    pub processes_ms: f64,
    /// Updating parameters on the host and broadcasting them.
    pub update_ms: f64,
}

/// The adapters of a run, and the state that they train.
pub struct Scheduler {
    rig: Rig,
    state: State,
    partition: Partition,
    teams: Teams,
    in_flight: InFlight,
    samples: Samples,
}

impl Scheduler {
    /// A pass over all adapters.
    fn round<'a>(&'a mut self, job: Job<'a>) -> Round<'a> {
        Round::new(OpenRuns::new(&mut self.rig, &mut self.state, job), &mut self.partition)
    }

    /// A pass over all stages of a model that is divided.
    fn pipeline<'a>(&'a mut self, job: Job<'a>) -> Pipeline<'a> {
        Pipeline::new(OpenRuns::new(&mut self.rig, &mut self.state, job), &mut self.teams)
    }

    async fn ensure_active(&mut self) -> Result<()> {
        ensure_active(&mut self.rig, &mut self.state, &mut self.partition).await
    }

    /// Per-row losses and scores of each output at inference, in the order of the rows.
    ///
    /// # Errors
    /// If no adapter is left to run it.
    pub async fn evaluate(&mut self, batch: &Batch, loss_scales: Vec<f32>) -> Result<Vec<Vec<f32>>> {
        let answers = self.infer(Pass::Evaluate, batch, loss_scales).await?;
        Ok(shards::concatenated(&self.rig.stages, Pass::Evaluate, &answers, |answer| &answer.reports))
    }

    /// Penalties of the parameters as they are now.
    ///
    /// # Errors
    /// If they live on an adapter that was lost.
    pub async fn penalty(&mut self) -> Result<f64> {
        if self.plan().penalties.is_empty() {
            return Ok(0.0);
        }
        self.sync().await?;
        Ok(self.state.penalty(&self.rig))
    }

    /// The outputs, in the order of the rows.
    ///
    /// # Errors
    /// If no adapter is left to run it.
    pub async fn predict(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let answers = self.infer(Pass::Predict, batch, Vec::new()).await?;
        Ok(shards::concatenated(&self.rig.stages, Pass::Predict, &answers, |answer| &answer.outputs))
    }

    /// The outputs as the step of these numbers computes them, with its dropout and its batch statistics. That step then has the
    /// same split.
    ///
    /// # Errors
    /// If the model is divided over stages, or no adapter is left to run it.
    pub async fn forward(&mut self, batch: &Batch, step: &Step) -> Result<Vec<Vec<f32>>> {
        if self.is_staged() {
            let problem = "can't be computed outside of the adapters while the layers are placed in stages";
            return Err(Error::setting(
                "the loss",
                problem,
                "place the layers as replicas, or use a loss that the engine has",
            ));
        }
        self.settle().await?;
        let rows = rows_of(batch)?;
        let scalars = self.state.scalars(rows, Part::whole(rows), step);
        self.ensure_active().await?;
        let shards = match self.is_on_device() {
            true => self.partition.pieces_of_only(&self.rig, rows),
            false => self.partition.kept_shards(&self.rig, step.step, rows),
        };
        let (pass, combining, among) = (Pass::Forward, Combining::Host, Among::Adapters);
        let answers = self.round(Job { pass, batch, scalars: &scalars, combining, among }).run(shards).await?;
        Ok(shards::concatenated(&self.rig.stages, pass, &answers, |answer| &answer.outputs))
    }

    fn infer<'a>(&'a mut self, pass: Pass, batch: &'a Batch, loss_scales: Vec<f32>) -> Boxed<'a, Result<Vec<Answer>>> {
        Box::pin(self.infer_anew(pass, batch, loss_scales))
    }

    /// Runs a pass on all rows, again where what it ran on was lost.
    async fn infer_anew(&mut self, pass: Pass, batch: &Batch, loss_scales: Vec<f32>) -> Result<Vec<Answer>> {
        let rows = rows_of(batch)?;
        let step = Step { loss_scales, ..Step::default() };
        let scalars = self.state.scalars(rows, Part::whole(rows), &step);
        loop {
            self.settle().await?;
            let job = Job { pass, batch, scalars: &scalars, combining: Combining::Host, among: Among::Adapters };
            if self.rig.is_staged() {
                return self.pipeline(job).run().await;
            }
            self.ensure_active().await?;
            let was_behind = self.state.is_behind();
            let shards = self.partition.shards(&self.rig, pass, rows);
            let answers = self.round(job).run(shards).await?;
            if was_behind && self.state.is_rewound() {
                // Some rows may be predicted by weights that are lost.
                continue;
            }
            // Speeds of training differ: their models don't learn from inference.
            if self.state.is_fixed() {
                for report in shards::reports(&answers) {
                    self.partition.splitter_mut().learn(report.adapter_idx, report.rows, report.timing.busy_ms());
                }
            }
            return Ok(answers);
        }
    }

    /// The current state, read from the device if it is updated there. If the device is lost, the state is that of the
    /// last copy: see [`take_rewound`](Self::take_rewound).
    ///
    /// # Errors
    /// If the adapter was lost, and the CPU adapter must not take over.
    pub async fn sync(&mut self) -> Result<&TrainingState> {
        self.settle().await?;
        if let Err(error) = self.state.read_back(&mut self.rig).await {
            if self.rig.has_active() || !self.rig.may_use_cpu() {
                return Err(error);
            }
            self.ensure_active().await?;
        }
        Ok(self.state.training())
    }

    /// Replaces the state, on all adapters.
    pub fn restore(&mut self, state: TrainingState) {
        self.state.restore(&mut self.rig, state);
    }

    /// State of the last step, with the update on the host, or of the last [`Self::sync`].
    pub fn state(&self) -> &TrainingState {
        self.state.training()
    }

    /// [`state`](Self::state) for a caller that keeps it unchanged while training continues.
    pub fn share_state(&self) -> Arc<TrainingState> {
        self.state.share_training()
    }

    /// Ends the run; returns its last state as [`state`](Self::state) does.
    pub fn into_state(self) -> TrainingState {
        self.state.into_training()
    }

    /// Whether steps were lost with the only adapter since the last call. If so, the state is that of the
    /// last [`sync`](Self::sync), and training resumes from there.
    pub fn take_rewound(&mut self) -> bool {
        self.state.take_rewound()
    }

    /// Whether the model is divided over stages.
    pub fn is_staged(&self) -> bool {
        self.rig.is_staged()
    }

    /// Whether the plan has a pass.
    pub fn has(&self, pass: Pass) -> bool {
        self.plan().passes.contains_key(&pass)
    }

    /// Whether parameters are kept on the only adapter.
    pub fn is_on_device(&self) -> bool {
        self.state.is_on_device()
    }

    /// Reads a buffer back from an adapter.
    ///
    /// # Errors
    /// If the plan has no such buffer; or if the adapter was lost or is silent, which is as much as lost.
    pub async fn read(&mut self, adapter_idx: usize, role: Role) -> Result<Vec<f32>> {
        if self.rig.members[adapter_idx].is_active() {
            self.state.freshen(&mut self.rig, adapter_idx);
        }
        self.rig.read(adapter_idx, role).await
    }

    /// Opens another adapter, which takes part from the next step on; returns its position.
    ///
    /// # Errors
    /// If it can't be opened, or can't run the plan. Then nothing has changed.
    pub async fn join(&mut self, info: &Info) -> Result<usize> {
        self.sync().await?;
        self.state.move_to_host();
        let joined = self.rig.join(info).await;
        self.partition.grow_to(self.rig.members.len());
        joined
    }

    /// Removes an adapter, between two steps. Its position stays empty.
    ///
    /// # Errors
    /// If it is the only one that takes part.
    pub fn leave(&mut self, adapter_idx: usize) -> Result<()> {
        self.rig.leave(adapter_idx)
    }

    /// Loads another plan over the same weights, for runs of up to `capacity` rows, on all adapters. Devices stay open.
    ///
    /// # Errors
    /// If an adapter can't run it, or the model is divided over stages.
    pub async fn reload(&mut self, plan: Plan, capacity: u32) -> Result<()> {
        if self.is_staged() {
            let problem = "can't change while the layers are placed in stages";
            return Err(Error::setting("the plan", problem, "close the adapters, or place the layers as replicas"));
        }
        self.sync().await?;
        self.partition.set_plan(&plan);
        self.rig.reload(plan, capacity).await?;
        self.host_if_needed();
        self.ensure_active().await
    }

    /// Divides the model over other stages, between two steps: `stage_of` gives that of each adapter, `None` for one without layers.
    /// Weights and optimizer state are on the host, so nothing of them changes.
    ///
    /// # Errors
    /// If an adapter can't run its stage.
    pub(crate) async fn place(&mut self, placed: Placed, capacity: u32) -> Result<()> {
        self.sync().await?;
        let Placed { stages, stage_of } = placed;
        let stages = if stages.is_empty() { self.rig.whole(&self.state.layout) } else { stages };
        self.rig.place(stages, &stage_of, capacity).await?;
        self.teams.forget_all();
        Ok(())
    }

    /// Sets what divides the model anew over the adapters that are left, where a stage has lost all of its.
    pub(crate) fn set_placer(&mut self, placer: Placer) {
        self.rig.placer = Some(placer);
    }

    /// The stage of each adapter; `None` for those that take no part.
    pub fn stage_of(&self) -> Vec<Option<usize>> {
        self.rig.members.iter().map(|member| member.is_active().then_some(member.stage)).collect()
    }

    /// Milliseconds for which each adapter is busy for a row of a training step in stages, once measured.
    pub(crate) fn row_ms(&self) -> &[Option<f64>] {
        self.teams.row_ms()
    }

    /// Updates on the host where a batch runs in pieces that the adapter can't combine.
    fn host_if_needed(&mut self) {
        if self.partition.needs_host(&self.rig) {
            self.state.move_to_host();
        }
    }

    /// Sets another split from the next step on.
    ///
    /// # Errors
    /// If the split does not go with the adapters. Then nothing has changed.
    pub fn set_split(&mut self, mode: SplitMode) -> Result<()> {
        self.partition.splitter_mut().set_mode(mode)
    }

    /// Keeps all adapters active, even if training is faster with fewer.
    pub fn keep_all(&mut self) {
        self.partition.keep_all(self.rig.members.len());
    }

    /// Limits the rows to the first `n_adapters`, to measure fewer adapters.
    pub fn limit_active(&mut self, n_adapters: usize) {
        self.rig.limit_active(n_adapters);
    }

    /// The adapters, in order.
    pub fn adapters(&self) -> impl Iterator<Item = &Info> {
        self.rig.members.iter().map(|member| &member.handle.info)
    }

    /// Status of each adapter, in order; removed ones keep their positions.
    pub fn statuses(&self) -> Vec<AdapterStatus> {
        self.rig.statuses(|adapter_idx| self.partition.is_excluded(adapter_idx))
    }

    /// Adapters that take part: neither lost nor being reopened.
    pub fn active(&self) -> Vec<bool> {
        self.rig.active()
    }

    /// Bytes of the plan on each adapter.
    pub fn bytes(&self) -> Vec<u64> {
        self.rig.members.iter().map(|member| member.bytes).collect()
    }

    /// The model of an adapter's speed, once it was measured.
    pub fn estimate(&self, adapter_idx: usize) -> Option<&Estimate> {
        self.partition.splitter().estimate(adapter_idx)
    }

    /// The handle of an adapter, to send it requests while a step runs: in tests and demonstrations.
    pub fn handle(&self, adapter_idx: usize) -> &Handle {
        &self.rig.members[adapter_idx].handle
    }

    /// Destroys an adapter's device, as a driver reset would.
    pub fn lose(&self, adapter_idx: usize) {
        self.rig.send(adapter_idx, manyhands_engine::adapters::Request::Lose);
    }

    /// The plan that runs.
    pub fn plan(&self) -> &Plan {
        self.rig.plan()
    }

    /// Position of each parameter.
    pub fn layout(&self) -> &Layout {
        &self.state.layout
    }

    /// Whether shards of a step wait for each other.
    pub fn is_coupled(&self) -> bool {
        self.rig.plan().is_coupled(Pass::Train)
    }

    /// Times of all work.
    pub fn timeline(&self) -> &Timeline {
        &self.rig.timeline
    }

    /// Times of all work, to be reset or added to.
    pub fn timeline_mut(&mut self) -> &mut Timeline {
        &mut self.rig.timeline
    }

    /// Records the host's work since `start_ms`, and gives the present time.
    pub(crate) fn record(&mut self, what: Activity, start_ms: f64, step: Option<u64>, rows: u32) -> f64 {
        self.rig.record(what, start_ms, step, rows)
    }
}
