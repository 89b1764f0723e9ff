//! Loads the plan on adapters, with fewer rows if memory does not suffice.

use std::sync::Arc;

use super::member::Loading;
use super::{Presence, Rig};
use crate::error::{ErrorKind, Result};
use crate::model::stages::Stage;
use crate::plan::Plan;
use manyhands_engine::adapters::{Event, Fault, Kind, Request};

/// Longest wait for an adapter that loads a plan: some drivers compile for a minute.
pub(super) const LIMIT_MS: f64 = 300_000.0;

impl Rig {
    /// Requests an adapter to load the plan for as many rows as it takes; [`finish_load`](Self::finish_load) waits for
    /// it.
    pub fn load(&mut self, adapter_idx: usize) {
        let member = &mut self.members[adapter_idx];
        (member.loading, member.is_stale) = (Loading::InProgress, true);
        let (plan, capacity) = (self.stages[member.stage].plan.clone(), member.capacity);
        self.send(adapter_idx, Request::Load { plan, capacity });
    }

    /// Loads the plan on all adapters at once.
    ///
    /// # Errors
    /// If one can't run it.
    pub async fn load_all(&mut self) -> Result<()> {
        let active: Vec<usize> = (0..self.members.len()).filter(|idx| self.members[*idx].is_active()).collect();
        active.iter().for_each(|adapter_idx| self.load(*adapter_idx));
        for adapter_idx in active {
            self.finish_load(adapter_idx).await?;
        }
        Ok(())
    }

    /// Divides the model over other stages, between two passes: each adapter loads the plan of its new stage. Those without
    /// one are closed until a later division needs them.
    ///
    /// # Errors
    /// If an adapter refuses its plan.
    pub async fn place(&mut self, stages: Vec<Stage>, stage_of: &[Option<usize>], capacity: u32) -> Result<()> {
        self.stages = stages;
        for adapter_idx in 0..self.members.len() {
            let wanted = stage_of.get(adapter_idx).copied().flatten();
            let member = &mut self.members[adapter_idx];
            // A lost adapter that comes back without a stage helps the first one.
            member.stage = wanted.unwrap_or(0);
            (member.capacity, member.is_reduced) = (capacity, false);
            match (member.presence, wanted) {
                (Presence::Active, Some(_)) => self.load(adapter_idx),
                (Presence::Active, None) => member.dismiss(Presence::Spare),
                (Presence::Spare, Some(_)) => {
                    self.open_again(adapter_idx);
                    if self.members[adapter_idx].is_active() {
                        self.load(adapter_idx);
                    }
                }
                (Presence::Returning | Presence::Ready, _) => self.load_returning(adapter_idx),
                (Presence::Spare, None) | (Presence::Lost { .. } | Presence::Left, _) => {}
            }
        }
        for adapter_idx in 0..self.members.len() {
            if self.members[adapter_idx].is_active() {
                self.finish_load_or_lose(adapter_idx).await?;
            }
        }
        Ok(())
    }

    /// Makes an adapter load the plan again for half the rows.
    pub fn load_fewer_rows(&mut self, adapter_idx: usize, text: &str) {
        let capacity = self.members[adapter_idx].capacity.div_ceil(2);
        let rows = if capacity == 1 { "row" } else { "rows" };
        log::warn!("{} has too little memory ({text}); it now takes {capacity} {rows} at once", self.name(adapter_idx));
        (self.members[adapter_idx].capacity, self.members[adapter_idx].is_reduced) = (capacity, true);
        self.load(adapter_idx);
    }

    /// Waits until an adapter has loaded the plan, with fewer rows if it must.
    ///
    /// # Errors
    /// If it can't: it was lost then, unless it refused the plan.
    pub async fn finish_load(&mut self, adapter_idx: usize) -> Result<()> {
        while self.members[adapter_idx].is_loading() {
            let Some((from, event)) = self.event_within(LIMIT_MS).await else {
                self.lose(adapter_idx, "it does not answer");
                return Err(self.silent(adapter_idx));
            };
            self.on_load_event(from, event);
        }
        match std::mem::take(&mut self.members[adapter_idx].loading) {
            Loading::Failed(error) => Err(error),
            Loading::Done | Loading::InProgress => Ok(()),
        }
    }

    /// Waits like [`finish_load`](Self::finish_load), when others may continue without this adapter.
    ///
    /// # Errors
    /// If it refused the plan.
    pub async fn finish_load_or_lose(&mut self, adapter_idx: usize) -> Result<()> {
        let loaded = self.finish_load(adapter_idx).await;
        if self.members[adapter_idx].is_active() { loaded } else { Ok(()) }
    }

    /// Handles an event that comes while some adapter loads. Answers to runs are useless then.
    fn on_load_event(&mut self, adapter_idx: usize, event: Event) {
        let (is_loading, capacity) = (self.members[adapter_idx].is_loading(), self.members[adapter_idx].capacity);
        match event {
            Event::Loaded { bytes } if is_loading => {
                (self.members[adapter_idx].loading, self.members[adapter_idx].bytes) = (Loading::Done, bytes);
            }
            Event::Failed { ticket: None, fault: Fault::OutOfMemory(text) } if is_loading && capacity > 1 => {
                self.load_fewer_rows(adapter_idx, &text);
            }
            // Failures of runs before the request: their round is restarted, or has ended.
            Event::Failed { ticket: Some(_), fault: Fault::OutOfMemory(_) | Fault::Unsupported(_) } => {}
            Event::Failed { fault, .. } => {
                let error = self.refused(adapter_idx, &fault);
                if let Fault::Lost(text) | Fault::OutOfMemory(text) = &fault {
                    self.lose(adapter_idx, text);
                }
                if is_loading {
                    self.members[adapter_idx].loading = Loading::Failed(error);
                }
            }
            _ => {}
        }
    }

    /// Loads another plan of the only stage over the same weights, for runs of up to `capacity` rows. Devices stay open.
    ///
    /// # Errors
    /// If an adapter can't run it.
    pub async fn reload(&mut self, plan: Plan, capacity: u32) -> Result<()> {
        self.plan = Arc::new(plan);
        self.stages[0].plan = self.plan.clone();
        for adapter_idx in 0..self.members.len() {
            let member = &mut self.members[adapter_idx];
            (member.capacity, member.is_reduced) = (capacity, false);
            match member.presence {
                Presence::Active => self.load(adapter_idx),
                Presence::Returning | Presence::Ready => self.load_returning(adapter_idx),
                Presence::Lost { .. } | Presence::Left | Presence::Spare => {}
            }
        }
        let mut refused = None;
        for adapter_idx in 0..self.members.len() {
            if !self.members[adapter_idx].is_active() {
                continue;
            }
            let Err(error) = self.finish_load(adapter_idx).await else { continue };
            let member = &self.members[adapter_idx];
            if member.is_active() {
                return Err(error);
            }
            // The CPU adapter would be replaced by itself, which has no more memory.
            let is_final = error.kind() == ErrorKind::OutOfMemory && member.handle.info.kind == Kind::Cpu;
            refused = refused.or(is_final.then_some(error));
        }
        refused.filter(|_| !self.has_active()).map_or(Ok(()), Err)
    }

    /// Requests an adapter that was opened again to load the plan, while the others work.
    pub(super) fn load_returning(&mut self, adapter_idx: usize) {
        self.load(adapter_idx);
        (self.members[adapter_idx].loading, self.members[adapter_idx].presence) = (Loading::Done, Presence::Returning);
    }
}
