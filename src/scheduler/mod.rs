//! The scheduler: splits each batch over the adapters, combines what they give, and commits once all are in.
//!
//! Nothing in a step depends on which adapter finishes first: values are combined in the order of the rows.

mod alone;
mod calibration;
mod diagnosis;
mod fewer;
mod membership;
mod opening;
mod presence;
mod reduce;
mod round;
mod shards;
pub mod split;
mod statistics;
pub mod timeline;
mod update;

use std::collections::VecDeque;
use std::sync::Arc;

use async_channel::{Receiver, Sender};

use crate::adapters::{Combining, Event, Fault, Handle, Info, Message, Opener, Request, Timing};
use crate::data::Batch;
use crate::error::Result;
use crate::kernels::rounding::single;
use crate::model::Weights;
use crate::optimizers::Optimizer;
use crate::plan::{Layout, Pass, Plan, Role, Scalars};
use crate::runtime::Runtime;

use self::alone::Begun;
use self::fewer::Fewer;
pub use self::membership::Standing;
use self::split::{SplitMode, Splitter};
use self::timeline::{Lane, Span, Timeline, What};

/// What a rig is made of.
#[derive(Clone)]
pub struct RigSettings {
    /// The adapters; one may stand twice, and is then opened twice.
    pub adapters: Vec<Info>,
    /// How rows are split.
    pub split: SplitMode,
    /// Largest number of rows of a run.
    pub capacity: u32,
    /// Go on with the CPU adapter when every adapter is lost?
    pub cpu_fallback: CpuFallback,
    /// Parts in which each adapter computes its rows, one after the other: gradient accumulation. At least 1.
    pub accumulation_steps: u32,
}

/// Whether the CPU adapter takes over when all others are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuFallback {
    /// It does.
    #[default]
    Allowed,
    /// Losing all adapters ends the run.
    Refused,
}

/// Weights, statistics and optimizer state: all that training moves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingState {
    /// Parameters and moving statistics.
    pub weights: Weights,
    /// Optimizer state: kind, then segment, each of the parameters' layout.
    pub optimizer: Vec<Vec<Vec<f32>>>,
}

impl TrainingState {
    /// The state before the first step of an optimizer.
    pub fn new(weights: Weights, optimizer: &Optimizer) -> Self {
        let zeros: Vec<Vec<f32>> = weights.parameters.iter().map(|segment| vec![0.0; segment.len()]).collect();
        Self { weights, optimizer: vec![zeros; optimizer.state_names().len()] }
    }
}

/// One adapter in use.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) handle: Handle,
    /// Number of the actor that plays this member: another each time it is opened, so that late words of a lost one
    /// are not taken for those of the next.
    pub(crate) actor: usize,
    pub(crate) capacity: u32,
    pub(crate) presence: Presence,
    /// Bytes that the plan takes on it.
    pub(crate) bytes: u64,
    /// When it was last heard of, or given work.
    pub(crate) heard_ms: f64,
    /// Times it was lost.
    pub(crate) losses: u32,
    /// Does it lack the newest weights? It gets them before its next run.
    pub(crate) is_stale: bool,
    /// How many times as long it is to take.
    pub(crate) throttle: f64,
    /// Has it a slot of its own in a split that is not learned? Who took over for others has none.
    pub(crate) has_seat: bool,
    /// May it get rows?
    pub(crate) is_fielded: bool,
}

/// Whether a member takes part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Presence {
    /// It does.
    There,
    /// It was lost, and is opened again at that time.
    Lost { again_ms: f64 },
    /// It is opened again, and loads the plan.
    Returning,
    /// It loaded the plan again, and takes part from the next step on.
    Back,
    /// It was taken out, and is not opened again.
    Left,
}

impl Member {
    pub(crate) fn is_alive(&self) -> bool {
        self.presence == Presence::There
    }
}

/// The numbers of one training step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Counted from 0.
    pub step: u64,
    /// Seed of the run.
    pub seed: u32,
    /// Learning rate.
    pub learning_rate: f32,
    /// Factor of each output's loss: its weight over the whole batch's count.
    pub loss_scales: Vec<f32>,
}

/// What one adapter did in a step.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ShardReport {
    /// Position among the adapters in use.
    pub adapter_idx: usize,
    /// Rows it computed.
    pub rows: u32,
    /// Where its time went.
    pub timing: Timing,
}

/// What a step gave.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// Per-row weighted loss and score of each output, in the order of the batch's rows.
    pub reports: Vec<Vec<f32>>,
    /// Global norm of the gradients, before clipping.
    pub gradient_norm: f32,
    /// False if a gradient was not finite: nothing was updated.
    pub is_applied: bool,
    /// What each adapter did.
    pub shards: Vec<ShardReport>,
    /// Adding gradients on the host.
    pub reduce_ms: f64,
    /// Updating parameters on the host and handing them out.
    pub update_ms: f64,
}

/// Where parameters are updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On the host, once, for all adapters.
    Host,
    /// On the only adapter.
    Device,
}

/// The adapters of a run, and the state that they train.
pub struct Scheduler {
    pub(crate) runtime: Arc<dyn Runtime>,
    opener: Opener,
    plan: Arc<Plan>,
    layout: Layout,
    optimizer: Option<Optimizer>,
    clip_norm: f32,
    place: Place,
    cpu_fallback: CpuFallback,
    pub(crate) members: Vec<Member>,
    n_actors: usize,
    accumulation_steps: u32,
    events: Receiver<Message>,
    events_in: Sender<Message>,
    /// Learns from training steps.
    pub(crate) splitter: Splitter,
    /// Which adapters rest.
    fewer: Fewer,
    /// May adapters rest?
    may_rest: bool,
    /// The splitter as it was before a trial with fewer adapters, or more.
    splitter_before: Option<Splitter>,
    /// Adapters of which it was said that training is faster without them.
    reported: Vec<usize>,
    pub(crate) timeline: Timeline,
    attempt: u32,
    is_calibrated: bool,
    /// Training steps that have begun, and when the last one ended.
    begun: VecDeque<Begun>,
    ended_ms: f64,
    /// Parameters, statistics and optimizer state. With the update on the device: as of the last [`Self::sync`].
    state: TrainingState,
    /// Has the only adapter trained since?
    is_behind: bool,
    gradients: Vec<Vec<f32>>,
}

impl Scheduler {
    /// The member that an actor plays; `None` for one that was lost.
    fn played_by(&self, actor: usize) -> Option<usize> {
        self.members.iter().position(|member| member.actor == actor)
    }

    /// An adapter as messages name it: ``adapter 1 `NVIDIA GeForce RTX 3060` ``.
    pub(crate) fn who(&self, adapter_idx: usize) -> String {
        format!("adapter {adapter_idx} `{}`", self.members[adapter_idx].handle.info.name)
    }

    /// The adapters in use, in order.
    pub fn adapters(&self) -> impl Iterator<Item = &Info> {
        self.members.iter().map(|member| &member.handle.info)
    }

    /// Bytes that the plan takes on each adapter.
    pub fn bytes(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.bytes).collect()
    }

    /// Sends a request to an adapter; one that is gone is found by its silence.
    pub(crate) fn send(&self, adapter_idx: usize, request: Request) {
        if self.members[adapter_idx].handle.requests.try_send(request).is_err() {
            log::debug!("{} takes no more requests", self.who(adapter_idx));
        }
    }

    /// The next event of any adapter, or `None` when the time is up.
    pub(crate) async fn event_within(&self, limit_ms: f64) -> Option<Message> {
        let next = async { self.events.recv().await.ok() };
        let limit = self.runtime.sleep(limit_ms);
        futures_lite::future::or(next, async {
            limit.await;
            None
        })
        .await
    }

    /// Writes parameters, statistics and, with the update on the device, optimizer state to an adapter.
    fn hand_out_state(&mut self, adapter_idx: usize) {
        self.members[adapter_idx].is_stale = false;
        self.hand_out_weights(adapter_idx, &self.shared_weights());
        if self.place == Place::Device {
            for (kind, segments) in (0..).zip(&self.state.optimizer) {
                for (segment, values) in (0..).zip(segments) {
                    let data = Arc::from(values.as_slice());
                    self.send(adapter_idx, Request::Write { role: Role::State(kind, segment), offset: 0, data });
                }
            }
        }
    }

    /// Parameters and statistics, once, for all adapters.
    fn shared_weights(&self) -> Vec<(Role, Arc<[f32]>)> {
        let parameters = (0..).zip(&self.state.weights.parameters);
        let parameters = parameters.map(|(segment, values)| (Role::Parameters(segment), Arc::from(values.as_slice())));
        parameters.chain(self.shared_statistics()).collect()
    }

    fn shared_statistics(&self) -> Option<(Role, Arc<[f32]>)> {
        let statistics = &self.state.weights.statistics;
        (!statistics.is_empty()).then(|| (Role::Statistics, Arc::from(statistics.as_slice())))
    }

    fn hand_out_weights(&self, adapter_idx: usize, weights: &[(Role, Arc<[f32]>)]) {
        for (role, data) in weights {
            self.send(adapter_idx, Request::Write { role: *role, offset: 0, data: data.clone() });
        }
    }

    /// Takes in what the host did since `start_ms`, and gives the present time.
    pub(crate) fn record(&mut self, what: What, start_ms: f64, step: Option<u64>, rows: u32) -> f64 {
        let now_ms = self.runtime.now_ms();
        self.timeline.record(Span { lane: Lane::Host, what, start_ms, ms: now_ms - start_ms, step, rows });
        now_ms
    }

    /// What ran where and when.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// What ran where and when, to start it anew or to add to it.
    pub fn timeline_mut(&mut self) -> &mut Timeline {
        &mut self.timeline
    }

    #[allow(clippy::cast_possible_truncation, reason = "the key of random numbers takes the low bits of the step")]
    fn scalars(&self, batch: &Batch, step: &Step) -> Scalars {
        let hyper = self.optimizer.as_ref().map_or_else(Vec::new, |it| it.hyper(step.learning_rate, step.step + 1));
        Scalars {
            rows: shards::count(batch.rows),
            batch_rows: shards::count(batch.rows),
            first_row: 0,
            seed: step.seed,
            step: step.step as u32,
            loss_scales: step.loss_scales.clone(),
            hyper,
        }
    }

    async fn train_on_host(&mut self, batch: &Batch, step: u64, scalars: Scalars) -> Result<StepReport> {
        self.welcome_returned();
        self.ensure_survivor().await?;
        self.calibrate(batch, &scalars).await?;
        let start_ms = self.runtime.now_ms();
        let (shares, shards) = self.step_shards(step, scalars.rows);
        let answers = self.round(Pass::Train, batch, &scalars, shards, Combining::Host).await?;
        let begin_ms = self.runtime.now_ms();
        let totals = self.reduce(&answers);
        let reduced_ms = self.record(What::Reduce, begin_ms, Some(step), 0);
        if totals.is_finite {
            self.update_on_host(totals.norm, &scalars, &answers);
            let updated_ms = self.runtime.now_ms();
            self.follow_statistics(&answers);
            let followed_ms = self.record(What::Update, updated_ms, Some(step), 0);
            self.hand_out_statistics();
            self.record(What::HandOut, followed_ms, Some(step), 0);
        }
        let reports = shards::reports(&answers);
        for report in &reports {
            self.splitter.learn(report.adapter_idx, report.rows, report.timing.busy_ms());
            self.splitter.learn_weights(report.adapter_idx, report.timing.weights.ms);
        }
        let end_ms = self.runtime.now_ms();
        let tuning_ms = reports.iter().map(|report| report.timing.tuning_ms).fold(0.0, f64::max);
        self.consider_fewer((end_ms - start_ms - tuning_ms).max(0.0), scalars.rows, &shares);
        Ok(StepReport {
            reports: shards::concatenated(&answers, |answer| &answer.reports),
            gradient_norm: single(totals.norm),
            is_applied: totals.is_finite,
            shards: reports,
            reduce_ms: reduced_ms - begin_ms,
            update_ms: end_ms - reduced_ms,
        })
    }

    /// Gives new moving statistics to the adapters that have the newest weights.
    fn hand_out_statistics(&self) {
        let statistics = self.shared_statistics();
        for adapter_idx in (0..self.members.len()).filter(|idx| !self.members[*idx].is_stale) {
            self.hand_out_weights(adapter_idx, statistics.as_slice());
        }
    }

    /// Per-row losses and scores of each output at inference, in the order of the rows.
    ///
    /// # Errors
    /// If no adapter is left to run it.
    pub async fn evaluate(&mut self, batch: &Batch, loss_scales: Vec<f32>) -> Result<Vec<Vec<f32>>> {
        let answers = self.infer(Pass::Evaluate, batch, loss_scales).await?;
        Ok(shards::concatenated(&answers, |answer| &answer.reports))
    }

    /// The outputs, in the order of the rows.
    ///
    /// # Errors
    /// If no adapter is left to run it.
    pub async fn predict(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let answers = self.infer(Pass::Predict, batch, Vec::new()).await?;
        Ok(shards::concatenated(&answers, |answer| &answer.outputs))
    }

    async fn infer(&mut self, pass: Pass, batch: &Batch, loss_scales: Vec<f32>) -> Result<Vec<round::Answer>> {
        self.settle().await?;
        self.ensure_survivor().await?;
        let step = Step { step: 0, seed: 0, learning_rate: 0.0, loss_scales };
        let scalars = self.scalars(batch, &step);
        let shards = self.shards(scalars.rows);
        let answers = self.round(pass, batch, &scalars, shards, Combining::Host).await?;
        // Speeds of training are another matter: they are left as training knows them.
        if self.optimizer.is_none() {
            for report in shards::reports(&answers) {
                self.splitter.learn(report.adapter_idx, report.rows, report.timing.busy_ms());
            }
        }
        Ok(answers)
    }

    /// The state as it is now, read from the device if it is updated there.
    ///
    /// # Errors
    /// If the adapter was lost.
    pub async fn sync(&mut self) -> Result<&TrainingState> {
        self.settle().await?;
        self.read_state().await
    }

    /// The same while no step is under way.
    async fn read_state(&mut self) -> Result<&TrainingState> {
        if self.is_behind {
            for segment in 0..shards::count(self.layout.segments.len()) {
                self.state.weights.parameters[segment as usize] = self.read(0, Role::Parameters(segment)).await?;
                for kind in 0..self.state.optimizer.len() {
                    let role = Role::State(shards::count(kind), segment);
                    self.state.optimizer[kind][segment as usize] = self.read(0, role).await?;
                }
            }
            if !self.state.weights.statistics.is_empty() {
                self.state.weights.statistics = self.read(0, Role::Statistics).await?;
            }
            self.is_behind = false;
        }
        Ok(&self.state)
    }

    /// Replaces the state, on all adapters.
    pub fn restore(&mut self, state: TrainingState) {
        (self.state, self.is_behind) = (state, false);
        for adapter_idx in 0..self.members.len() {
            self.hand_out_state(adapter_idx);
        }
    }

    /// Do parameters live on the only adapter?
    pub fn is_on_device(&self) -> bool {
        self.place == Place::Device
    }

    /// Is any adapter left?
    pub fn has_survivor(&self) -> bool {
        self.members.iter().any(Member::is_alive)
    }

    /// The state as of the last step, with the update on the host, or of the last [`Self::sync`].
    pub fn state(&self) -> &TrainingState {
        &self.state
    }

    /// Reads a buffer back from an adapter.
    ///
    /// # Errors
    /// If it was lost or is silent, which is as much as lost.
    pub async fn read(&mut self, adapter_idx: usize, role: Role) -> Result<Vec<f32>> {
        if !self.members[adapter_idx].is_alive() {
            return Err(self.refused(adapter_idx, &Fault::Lost("with what it held".into())));
        }
        if self.members[adapter_idx].is_stale {
            self.hand_out_state(adapter_idx);
        }
        self.send(adapter_idx, Request::Read(role));
        let error = loop {
            match self.wait_for(adapter_idx).await {
                Ok(Event::Contents { role: answered, data }) if answered == role => return Ok(data),
                Ok(Event::Failed { fault, .. }) => break self.refused(adapter_idx, &fault),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        self.lose_member(adapter_idx, "it could not be read");
        Err(error)
    }

    /// Makes an adapter `factor` times as slow, also when it is lost and comes back.
    pub fn throttle(&mut self, adapter_idx: usize, factor: f64) {
        self.members[adapter_idx].throttle = factor;
        self.send(adapter_idx, Request::Throttle(factor));
    }

    /// How many times as slow an adapter is made.
    pub fn throttle_of(&self, adapter_idx: usize) -> f64 {
        self.members[adapter_idx].throttle
    }

    /// Destroys an adapter's device, as a driver reset would.
    pub fn lose(&self, adapter_idx: usize) {
        self.send(adapter_idx, Request::Lose);
    }
}

/// Longest wait for the adapters to close their devices at the end.
const CLOSE_LIMIT_MS: f64 = 5_000.0;

impl Drop for Scheduler {
    /// Waits until the adapters have closed their devices: a process that ends while a driver still works can crash.
    fn drop(&mut self) {
        for member in &self.members {
            member.handle.requests.close();
        }
        self.events_in = async_channel::unbounded().0;
        let (events, limit) = (self.events.clone(), self.runtime.sleep(CLOSE_LIMIT_MS));
        let closed = async move { while events.recv().await.is_ok() {} };
        self.runtime.settle(Box::pin(futures_lite::future::or(closed, limit)));
    }
}
