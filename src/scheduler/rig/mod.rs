//! The adapters of a run: opening, requests and events, status, and reading buffers back.
//!
//! `loading.rs` loads plans, with fewer rows if memory does not suffice; `recovery.rs` handles lost adapters;
//! `membership.rs` handles adapters that join and leave.

mod loading;
mod member;
mod membership;
mod recovery;

use std::sync::Arc;

use async_channel::{Receiver, Sender};

use super::CpuFallback;
use super::placement::Placer;
use super::timeline::{Activity, Lane, Span, Timeline};
use crate::error::{Error, ErrorKind, Result};
use crate::model::stages::Stage;
use crate::plan::{Layout, Pass, Plan, Role};
use crate::processes::Group;
use crate::runtime::Runtime;
use manyhands_engine::adapters::{
    ActorId, Event, Fault, Handle, Info, Message, Opener, Request, Ticket, WRONG_RESULTS,
};

pub use member::AdapterStatus;
pub(super) use member::{Member, Presence};

/// The adapters of a run.
pub(super) struct Rig {
    pub runtime: Arc<dyn Runtime>,
    /// The processes of the run, each with a rig of its own.
    pub processes: Group,
    opener: Opener,
    plan: Arc<Plan>,
    /// The parts of the model that adapters compute, each with its plan: one, or the stages of a placement.
    pub stages: Vec<Stage>,
    pub members: Vec<Member>,
    /// The adapter that was lost last, and the reason.
    last_loss: String,
    cpu_fallback: CpuFallback,
    /// Divides the model over the adapters that are left, where a stage has lost all of its.
    pub placer: Option<Placer>,
    events: Receiver<Message>,
    events_in: Sender<Message>,
    /// Number of runs sent so far: numbers attempts, so that late answers of earlier ones are recognised.
    attempts: u32,
    pub timeline: Timeline,
}

impl Rig {
    /// A rig without adapters, for a plan and the stages in which it is computed.
    pub fn new(
        runtime: Arc<dyn Runtime>,
        opener: Opener,
        plan: Arc<Plan>,
        stages: Vec<Stage>,
        cpu_fallback: CpuFallback,
    ) -> Self {
        let (events_in, events) = async_channel::unbounded();
        Self {
            runtime,
            processes: Group::alone(),
            opener,
            plan,
            stages,
            members: Vec::new(),
            last_loss: String::new(),
            cpu_fallback,
            placer: None,
            events,
            events_in,
            attempts: 0,
            timeline: Timeline::default(),
        }
    }

    /// Opens another adapter for a stage; returns its position. It has no plan yet.
    pub fn add(&mut self, info: &Info, stage: usize, capacity: u32) -> Result<usize> {
        let adapter_idx = self.members.len();
        let actor = ActorId { adapter_idx, reopened: 0 };
        let handle = self.open(info, actor)?;
        self.timeline.name_adapter(adapter_idx, &info.name);
        self.members.push(Member::new(handle, actor, stage, capacity, self.runtime.now_ms()));
        Ok(adapter_idx)
    }

    fn open(&self, info: &Info, actor: ActorId) -> Result<Handle> {
        (self.opener)(info, actor, self.runtime.clone(), self.events_in.clone())
    }

    /// The stage of an adapter.
    pub fn stage(&self, adapter_idx: usize) -> &Stage {
        &self.stages[self.members[adapter_idx].stage]
    }

    /// Whether the model is divided over stages.
    pub fn is_staged(&self) -> bool {
        self.stages.len() > 1
    }

    /// The only stage of a model that is not divided.
    pub fn whole(&self, layout: &Layout) -> Vec<Stage> {
        vec![Stage::whole(self.plan.clone(), layout)]
    }

    /// Gives an adapter no stage: it is closed until a division needs it.
    pub fn spare(&mut self, adapter_idx: usize) {
        self.members[adapter_idx].dismiss(Presence::Spare);
    }

    /// The plan of the whole model.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Name of an adapter in messages: ``adapter 1 `NVIDIA GeForce RTX 3060` ``.
    pub fn name(&self, adapter_idx: usize) -> String {
        format!("adapter {adapter_idx} `{}`", self.members[adapter_idx].handle.info.name)
    }

    /// Adapters that take part: neither lost nor being reopened.
    pub fn active(&self) -> Vec<bool> {
        self.members.iter().map(Member::is_active).collect()
    }

    /// Whether any adapter takes part.
    pub fn has_active(&self) -> bool {
        self.members.iter().any(Member::is_active)
    }

    /// The only adapter that computes, where parameters are kept on it: the first to which the placement gives work.
    pub fn only(&self) -> usize {
        self.members.iter().position(|member| member.presence != Presence::Spare).unwrap_or(0)
    }

    /// Whether any adapter takes fewer rows than requested.
    pub fn has_reduced(&self) -> bool {
        self.members.iter().any(|member| member.is_reduced)
    }

    /// Whether no split lets so many rows run at once, since memory did not suffice for the plan, which allows pieces.
    pub fn lacks_room(&self, rows: u32) -> bool {
        let active = self.members.iter().filter(|member| member.is_active());
        let room = active.fold(0_u32, |room, member| room.saturating_add(member.capacity));
        self.has_reduced() && room < rows && !self.plan.is_coupled(Pass::Train)
    }

    /// The largest capacity of an adapter, in rows.
    fn largest_capacity(&self) -> u32 {
        self.members.iter().map(|member| member.capacity).max().unwrap_or(1)
    }

    /// A ticket for the next run.
    pub fn ticket(&mut self, step: u32, slot: u32) -> Ticket {
        self.attempts = self.attempts.wrapping_add(1);
        Ticket { step: u64::from(step), attempt: self.attempts, slot }
    }

    /// Sends a request to an adapter; a lost one is detected by its silence.
    pub fn send(&self, adapter_idx: usize, request: Request) {
        if self.members[adapter_idx].handle.requests.try_send(request).is_err() {
            log::debug!("{} takes no more requests", self.name(adapter_idx));
        }
    }

    /// The next event of an adapter that takes part, or `None` when the time is up.
    ///
    /// Late events of lost adapters are dropped; those of adapters that are being reopened are handled here.
    pub async fn event_within(&mut self, limit_ms: f64) -> Option<(usize, Event)> {
        let until_ms = self.runtime.now_ms() + limit_ms;
        loop {
            let Message { actor, event } = self.message_within(until_ms - self.runtime.now_ms()).await?;
            let Some(adapter_idx) = self.position_of(actor) else { continue };
            if self.members[adapter_idx].is_active() {
                self.members[adapter_idx].last_seen_ms = self.runtime.now_ms();
                return Some((adapter_idx, event));
            }
            self.on_recovery_event(adapter_idx, &event);
        }
    }

    async fn message_within(&self, limit_ms: f64) -> Option<Message> {
        let limit = self.runtime.sleep(limit_ms.max(0.0));
        futures_lite::future::or(async { self.events.recv().await.ok() }, async {
            limit.await;
            None
        })
        .await
    }

    /// The adapter of an actor; `None` if the adapter was lost.
    fn position_of(&self, actor: ActorId) -> Option<usize> {
        let member = self.members.get(actor.adapter_idx)?;
        (member.actor == Some(actor)).then_some(actor.adapter_idx)
    }

    /// Reads a buffer back from an adapter.
    ///
    /// # Errors
    /// If its plan has no such buffer; or if it was lost or is silent, which is as much as lost.
    pub async fn read(&mut self, adapter_idx: usize, role: Role) -> Result<Vec<f32>> {
        if !self.members[adapter_idx].is_active() {
            return Err(self.refused(adapter_idx, &Fault::Lost("with what it held".into())));
        }
        self.send(adapter_idx, Request::Read(role));
        while self.members[adapter_idx].is_active() {
            let Some((from, event)) = self.event_within(loading::LIMIT_MS).await else {
                self.lose(adapter_idx, "it does not answer");
                return Err(self.silent(adapter_idx));
            };
            match event {
                Event::Contents { role: answered, data } if (from, answered) == (adapter_idx, role) => return Ok(data),
                Event::Failed { fault, .. } if from == adapter_idx => {
                    let error = self.refused(from, &fault);
                    if !matches!(fault, Fault::Unsupported(_)) {
                        self.lose(from, "it could not be read");
                    }
                    return Err(error);
                }
                Event::Failed { fault: Fault::Lost(text), .. } => self.lose(from, &text),
                _ => {}
            }
        }
        Err(self.refused(adapter_idx, &Fault::Lost("with what it held".into())))
    }

    /// Records the host's work since `start_ms`, and gives the present time.
    pub fn record(&mut self, what: Activity, start_ms: f64, step: Option<u64>, rows: u32) -> f64 {
        let now_ms = self.runtime.now_ms();
        self.timeline.record(Span { lane: Lane::Host, what, start_ms, ms: now_ms - start_ms, step, task: None, rows });
        now_ms
    }

    /// The error for a request that an adapter can't serve.
    pub fn refused(&self, adapter_idx: usize, fault: &Fault) -> Error {
        let (kind, problem, help) = match fault {
            Fault::Lost(text) if text.starts_with(WRONG_RESULTS) => (
                ErrorKind::AdapterLost,
                format!("can't be trusted: {text}"),
                "install another version of its driver, or leave it out by `--adapters`; `manyhands doctor` tells more",
            ),
            Fault::Lost(text) => {
                (ErrorKind::AdapterLost, format!("was lost: {text}"), "try again, or choose other adapters")
            }
            Fault::OutOfMemory(text) => {
                let problem = format!("has too little memory for one row: {text}");
                (
                    ErrorKind::OutOfMemory,
                    problem,
                    "compute values again (`recompute`), place its layers on several adapters (`placement`), or allow more memory",
                )
            }
            Fault::Unsupported(text) => {
                (ErrorKind::Unsupported, format!("can't run this model: {text}"), "choose other adapters")
            }
        };
        Error::new(kind, self.name(adapter_idx), problem, help)
    }

    fn silent(&self, adapter_idx: usize) -> Error {
        Error::adapter_lost(
            self.name(adapter_idx),
            format!("needs to answer within {} s, but does not", loading::LIMIT_MS / 1e3),
            "its driver may hang: choose other adapters, or restart the machine",
        )
    }
}

/// Longest wait for the adapters to close their devices at the end.
const CLOSE_LIMIT_MS: f64 = 5_000.0;

impl Drop for Rig {
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
