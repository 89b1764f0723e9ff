//! Lost adapters: their record, their reopening, and the CPU adapter in their place.

use super::{Member, Presence, Rig};
use crate::error::{Error, Result};
use crate::scheduler::CpuFallback;
use crate::scheduler::timeline::{Activity, Lane, Span};
use manyhands_engine::adapters::{self, ActorId, Event};

/// Time after which a lost adapter is opened again; doubled with each further loss.
const BACK_OFF_MS: f64 = 5_000.0;
/// Losses after which an adapter is not opened again, nor replaced.
const MOST_LOSSES: u32 = 5;

impl Rig {
    /// Removes a lost adapter from the run; its rows go to the others.
    pub fn lose(&mut self, adapter_idx: usize, text: &str) {
        let has_others = (0..self.members.len()).any(|idx| idx != adapter_idx && self.members[idx].is_active());
        let rows = if has_others { "; its rows go to the others" } else { "" };
        self.last_loss = format!("{} was lost ({text})", self.name(adapter_idx));
        log::warn!("{}{rows}", self.last_loss);
        let now_ms = self.runtime.now_ms();
        let start_ms = self.members[adapter_idx].last_seen_ms;
        let (lane, ms) = (Lane::Adapter(adapter_idx), now_ms - start_ms);
        self.timeline.record(Span { lane, what: Activity::Lost, start_ms, ms, step: None, task: None, rows: 0 });
        let member = &mut self.members[adapter_idx];
        member.last_seen_ms = now_ms;
        member.losses += 1;
        let again_ms = if member.losses > MOST_LOSSES {
            f64::INFINITY
        } else {
            now_ms + BACK_OFF_MS * f64::from(1_u32 << (member.losses - 1))
        };
        member.dismiss(Presence::Lost { again_ms });
    }

    /// Loses an adapter for the rest of the run.
    pub fn distrust(&mut self, adapter_idx: usize, text: &str) {
        self.members[adapter_idx].losses = MOST_LOSSES;
        self.lose(adapter_idx, text);
    }

    /// Reopens lost adapters whose time has come; adapters that are ready take part from now on.
    pub fn readmit_recovered(&mut self) {
        let now_ms = self.runtime.now_ms();
        for adapter_idx in 0..self.members.len() {
            match self.members[adapter_idx].presence {
                Presence::Lost { again_ms } if again_ms <= now_ms => self.reopen(adapter_idx),
                Presence::Ready => {
                    let member = &mut self.members[adapter_idx];
                    (member.presence, member.last_seen_ms) = (Presence::Active, now_ms);
                    log::warn!("{} is back", self.name(adapter_idx));
                }
                _ => {}
            }
        }
    }

    fn reopen(&mut self, adapter_idx: usize) {
        self.open_again(adapter_idx);
        if self.members[adapter_idx].is_active() {
            self.load_returning(adapter_idx);
        }
    }

    /// Opens an adapter again that was lost or closed; it has no plan yet. Where it can't be opened it counts as lost.
    pub(super) fn open_again(&mut self, adapter_idx: usize) {
        let info = self.members[adapter_idx].handle.info.clone();
        let actor = ActorId { adapter_idx, reopened: self.members[adapter_idx].openings };
        self.members[adapter_idx].openings += 1;
        match self.open(&info, actor) {
            Ok(handle) => {
                let now_ms = self.runtime.now_ms();
                let member = &mut self.members[adapter_idx];
                (member.handle, member.actor) = (handle, Some(actor));
                (member.presence, member.last_seen_ms) = (Presence::Active, now_ms);
            }
            // Unplugged: it may be there again later.
            Err(error) => self.lose(adapter_idx, &error.to_string()),
        }
    }

    /// Handles an event of an adapter that is being reopened.
    pub(super) fn on_recovery_event(&mut self, adapter_idx: usize, event: &Event) {
        match event {
            Event::Loaded { bytes } => {
                self.members[adapter_idx].bytes = *bytes;
                self.members[adapter_idx].presence = Presence::Ready;
            }
            Event::Failed { fault, .. } => self.lose(adapter_idx, &format!("{fault:?}")),
            _ => {}
        }
    }

    /// Opens the adapters that a placement has left out, since all others are lost; those that can't hold the plan count as lost.
    /// Gives whether one takes part now.
    ///
    /// # Errors
    /// If one refuses the plan.
    pub async fn recall_spares(&mut self) -> Result<bool> {
        let is_spare = |idx: &usize| self.members[*idx].presence == Presence::Spare;
        let spares: Vec<usize> = (0..self.members.len()).filter(is_spare).collect();
        for adapter_idx in spares.iter().copied() {
            log::warn!("{} takes part now, since all others are lost", self.name(adapter_idx));
            self.open_again(adapter_idx);
            if self.members[adapter_idx].is_active() {
                self.load(adapter_idx);
            }
        }
        for adapter_idx in spares {
            if self.members[adapter_idx].is_active() {
                self.finish_load_or_lose(adapter_idx).await?;
            }
        }
        Ok(self.has_active())
    }

    /// Adds the CPU adapter to a stage if all its others are lost; they take part again when they are reopened. Returns its
    /// position: that of an earlier one, if that was lost, too.
    ///
    /// # Errors
    /// If the run must not continue on the CPU adapter, or that fails, too.
    pub async fn add_cpu(&mut self, stage: usize) -> Result<usize> {
        self.check_fallback()?;
        let losses =
            self.members.iter().filter(|member| member.is_replacement).map(|member| member.losses).sum::<u32>();
        if losses > MOST_LOSSES {
            return Err(Error::adapter_lost(
                "all adapters",
                format!("were lost, and so was the CPU adapter that replaced them, {losses} times"),
                "resume from the last checkpoint",
            ));
        }
        let is_lost = |member: &Member| member.is_replacement && matches!(member.presence, Presence::Lost { .. });
        let adapter_idx = match self.members.iter().position(is_lost) {
            Some(adapter_idx) => {
                self.members[adapter_idx].stage = stage;
                self.open_cpu_at(adapter_idx)?;
                adapter_idx
            }
            None => self.add(&adapters::cpu::info(), stage, self.largest_capacity())?,
        };
        let member = &mut self.members[adapter_idx];
        (member.has_slot, member.is_replacement) = (false, true);
        self.load(adapter_idx);
        self.finish_load(adapter_idx).await?;
        Ok(adapter_idx)
    }

    /// Replaces a lost adapter that is not reopened by the CPU adapter.
    ///
    /// # Errors
    /// If the run must not continue on the CPU adapter, or that fails, too.
    pub async fn replace_by_cpu(&mut self, adapter_idx: usize) -> Result<()> {
        self.check_fallback()?;
        let losses = self.members[adapter_idx].losses;
        if losses > MOST_LOSSES {
            let problem = format!("was lost {losses} times, each time with what it had trained");
            return Err(Error::adapter_lost(self.name(adapter_idx), problem, "resume from the last checkpoint"));
        }
        self.open_cpu_at(adapter_idx)?;
        self.load(adapter_idx);
        self.finish_load(adapter_idx).await
    }

    /// Opens the CPU adapter at the position of a lost one; it has no plan yet.
    fn open_cpu_at(&mut self, adapter_idx: usize) -> Result<()> {
        let Member { openings, losses, stage, capacity, .. } = self.members[adapter_idx];
        let (info, actor) = (adapters::cpu::info(), ActorId { adapter_idx, reopened: openings });
        let member = Member::new(self.open(&info, actor)?, actor, stage, capacity, self.runtime.now_ms());
        self.timeline.name_adapter(adapter_idx, &info.name);
        self.members[adapter_idx] = Member { openings: openings + 1, losses, ..member };
        Ok(())
    }

    /// Whether the run may continue on the CPU adapter when all others are lost.
    pub fn may_use_cpu(&self) -> bool {
        self.cpu_fallback == CpuFallback::Allowed
    }

    fn check_fallback(&self) -> Result<()> {
        if !self.may_use_cpu() {
            return Err(Error::adapter_lost(
                "all adapters",
                format!("were lost: {}, and none is left to continue on", self.last_loss),
                "resume from the last checkpoint; allow the CPU adapter to take over, or name it beside the others",
            ));
        }
        log::warn!("every adapter was lost: continuing on the CPU adapter");
        Ok(())
    }
}
