//! Opening the adapters, and loading the plan on them: with fewer rows where memory does not suffice.

use std::collections::VecDeque;
use std::sync::Arc;

use super::fewer::Fewer;
use super::split::Splitter;
use super::timeline::Timeline;
use super::{Member, Place, Presence, RigSettings, Scheduler, TrainingState};
use crate::adapters::{self, Event, Fault, Handle, Info, Opener, Request};
use crate::error::{Error, Result};
use crate::model::Objective;
use crate::plan::{Command, Layout, Pass, Plan, When};
use crate::runtime::Runtime;

/// Longest wait for an adapter that loads a plan: some drivers compile for a minute.
const LOAD_LIMIT_MS: f64 = 300_000.0;

impl Scheduler {
    /// Opens the adapters and loads the plan and the state on each.
    ///
    /// # Errors
    /// If no adapter can be opened, or one can't run the plan.
    pub async fn open(
        runtime: Arc<dyn Runtime>,
        settings: RigSettings,
        plan: Plan,
        layout: Layout,
        objective: Option<&Objective>,
        state: TrainingState,
    ) -> Result<Self> {
        Self::open_with(Arc::new(adapters::open), runtime, settings, plan, layout, objective, state).await
    }

    /// The same with adapters that are opened in another way: those of a simulation.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(
        opener: Opener,
        runtime: Arc<dyn Runtime>,
        settings: RigSettings,
        plan: Plan,
        layout: Layout,
        objective: Option<&Objective>,
        state: TrainingState,
    ) -> Result<Self> {
        let (events_in, events) = async_channel::unbounded();
        let splitter = Splitter::new(settings.split, settings.adapters.len(), min_rows(&plan))?;
        let is_alone = settings.adapters.len() == 1 && settings.accumulation_steps <= 1;
        let place = if is_alone { Place::Device } else { Place::Host };
        let gradients = layout.segments.iter().map(|len| vec![0.0; usize::try_from(*len).unwrap_or(0)]).collect();
        let mut scheduler = Self {
            runtime,
            opener,
            plan: Arc::new(plan),
            layout,
            optimizer: objective.map(|objective| objective.optimizer.clone()),
            clip_norm: objective.map_or(0.0, |objective| objective.clip_norm),
            place,
            cpu_fallback: settings.cpu_fallback,
            members: Vec::new(),
            n_actors: 0,
            accumulation_steps: settings.accumulation_steps.max(1),
            events,
            events_in,
            splitter,
            fewer: Fewer::new(settings.adapters.len()),
            may_rest: true,
            splitter_before: None,
            reported: Vec::new(),
            timeline: Timeline::default(),
            attempt: 0,
            is_calibrated: false,
            begun: VecDeque::new(),
            ended_ms: 0.0,
            state,
            is_behind: false,
            gradients,
        };
        for info in &settings.adapters {
            scheduler.add_member(info, settings.capacity)?;
        }
        scheduler.load_all().await?;
        Ok(scheduler)
    }

    pub(super) fn add_member(&mut self, info: &Info, capacity: u32) -> Result<()> {
        let (handle, actor) = self.open_actor(info)?;
        let heard_ms = self.runtime.now_ms();
        let presence = Presence::There;
        self.timeline.name_adapter(self.members.len(), &info.name);
        self.members.push(Member {
            handle,
            actor,
            capacity,
            presence,
            bytes: 0,
            heard_ms,
            losses: 0,
            is_stale: false,
            throttle: 1.0,
            has_seat: true,
            is_fielded: true,
        });
        Ok(())
    }

    pub(super) fn open_actor(&mut self, info: &Info) -> Result<(Handle, usize)> {
        let actor = self.n_actors;
        self.n_actors += 1;
        Ok(((self.opener)(info, actor, self.runtime.clone(), self.events_in.clone())?, actor))
    }

    async fn load_all(&mut self) -> Result<()> {
        for adapter_idx in 0..self.members.len() {
            let capacity = self.members[adapter_idx].capacity;
            self.send(adapter_idx, Request::Load { plan: self.plan.clone(), capacity });
        }
        for adapter_idx in 0..self.members.len() {
            self.finish_load(adapter_idx).await?;
        }
        Ok(())
    }

    /// Waits until an adapter has loaded the plan, with fewer rows if it must, and gives it the state.
    ///
    /// # Errors
    /// If it can't: it was lost then, unless it refused the plan.
    pub(super) async fn finish_load(&mut self, adapter_idx: usize) -> Result<()> {
        loop {
            let event = match self.wait_for(adapter_idx).await {
                Ok(event) => event,
                Err(error) => {
                    self.lose_member(adapter_idx, "it is silent");
                    return Err(error);
                }
            };
            match event {
                Event::Loaded { bytes } => {
                    self.members[adapter_idx].bytes = bytes;
                    self.hand_out_state(adapter_idx);
                    return Ok(());
                }
                Event::Failed { ticket: None, fault: Fault::OutOfMemory(text) }
                    if self.members[adapter_idx].capacity > 1 =>
                {
                    let capacity = self.members[adapter_idx].capacity.div_ceil(2);
                    self.members[adapter_idx].capacity = capacity;
                    // A batch that runs in pieces adds its gradients on the host.
                    self.place = Place::Host;
                    log::warn!(
                        "{} has too little memory ({text}); it now takes {capacity} rows at once",
                        self.who(adapter_idx)
                    );
                    self.send(adapter_idx, Request::Load { plan: self.plan.clone(), capacity });
                }
                // Runs that stood before the request fail of what has been dealt with already.
                Event::Failed { ticket: Some(_), fault: Fault::OutOfMemory(_) | Fault::Unsupported(_) } => {}
                Event::Failed { fault, .. } => {
                    let error = self.refused(adapter_idx, &fault);
                    match fault {
                        Fault::Lost(text) | Fault::OutOfMemory(text) => self.lose_member(adapter_idx, &text),
                        Fault::Unsupported(_) => {}
                    }
                    return Err(error);
                }
                _ => {}
            }
        }
    }

    /// The same where others may go on without it.
    ///
    /// # Errors
    /// If it refused the plan.
    pub(super) async fn finish_load_or_lose(&mut self, adapter_idx: usize) -> Result<()> {
        let loaded = self.finish_load(adapter_idx).await;
        if self.members[adapter_idx].is_alive() { loaded } else { Ok(()) }
    }

    pub(super) fn refused(&self, adapter_idx: usize, fault: &Fault) -> Error {
        let (problem, help) = match fault {
            Fault::Lost(text) => (format!("was lost: {text}"), "try again, or choose other adapters"),
            Fault::OutOfMemory(text) => {
                (format!("has too little memory for one row: {text}"), "make the model smaller")
            }
            Fault::Unsupported(text) => (format!("can't run this model: {text}"), "choose other adapters"),
        };
        Error::adapter(self.who(adapter_idx), problem, help)
    }

    /// The next event of one adapter, with a limit; the step's events of others can't come at this time.
    pub(super) async fn wait_for(&mut self, adapter_idx: usize) -> Result<Event> {
        let mut others = Vec::new();
        let event = loop {
            match self.event_within(LOAD_LIMIT_MS).await {
                Some(message) if self.played_by(message.adapter_idx) == Some(adapter_idx) => break Some(message.event),
                Some(message) => others.push(message),
                None => break None,
            }
        };
        for message in others {
            // The channel is unbounded and its receiver is held here.
            drop(self.events_in.try_send(message));
        }
        event.ok_or_else(|| {
            Error::adapter(
                self.who(adapter_idx),
                format!("needs to answer within {} s, but is silent", LOAD_LIMIT_MS / 1e3),
                "its driver may hang: choose other adapters, or restart the machine",
            )
        })
    }
}

/// Fewest rows of a shard: 8 where batch statistics are those of the shard.
pub(super) fn min_rows(plan: &Plan) -> u32 {
    let of_shard = plan.commands(Pass::Train).iter().any(|command| {
        matches!(command, Command::Exchange(exchange)
            if exchange.when == When::Update && matches!(exchange.combine, crate::plan::Combine::Moments { .. }))
    });
    if of_shard { 8 } else { 1 }
}
