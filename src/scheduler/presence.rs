//! Adapters that were lost, and their return after a while.

use crate::adapters::{Event, Request};

use super::timeline::{Lane, Span, What};
use super::{Presence, Scheduler};

/// Time after which a lost adapter is opened again; doubled with each further loss.
const BACK_OFF_MS: f64 = 5_000.0;
/// Losses after which an adapter is not opened again.
const MOST_LOSSES: u32 = 5;

impl Scheduler {
    /// Takes an adapter out of the run; its rows go to the others.
    pub(super) fn lose_member(&mut self, adapter_idx: usize, text: &str) {
        log::warn!("{} was lost ({text}); its rows go to the others", self.who(adapter_idx));
        let now_ms = self.runtime.now_ms();
        let start_ms = self.members[adapter_idx].heard_ms;
        let (lane, ms) = (Lane::Adapter(adapter_idx), now_ms - start_ms);
        self.timeline.record(Span { lane, what: What::Lost, start_ms, ms, step: None, rows: 0 });
        let member = &mut self.members[adapter_idx];
        member.heard_ms = now_ms;
        member.losses += 1;
        let again_ms = if member.losses > MOST_LOSSES {
            f64::INFINITY
        } else {
            now_ms + BACK_OFF_MS * f64::from(1_u32 << (member.losses - 1))
        };
        member.presence = Presence::Lost { again_ms };
        // A thread that hangs finds no more work should it wake up, and nobody listens to it.
        member.handle.requests.close();
        member.actor = usize::MAX;
    }

    /// Opens lost adapters again whose time has come, and lets those that are ready take part, with current weights.
    pub(super) fn welcome_returned(&mut self) {
        let now_ms = self.runtime.now_ms();
        for adapter_idx in 0..self.members.len() {
            match self.members[adapter_idx].presence {
                Presence::Lost { again_ms } if again_ms <= now_ms => self.reopen(adapter_idx),
                Presence::Back => {
                    self.members[adapter_idx].presence = Presence::There;
                    self.members[adapter_idx].heard_ms = now_ms;
                    self.hand_out_state(adapter_idx);
                    log::warn!("{} is back", self.who(adapter_idx));
                }
                _ => {}
            }
        }
    }

    fn reopen(&mut self, adapter_idx: usize) {
        let info = self.members[adapter_idx].handle.info.clone();
        let (handle, actor) = match self.open_actor(&info) {
            Ok(opened) => opened,
            // Unplugged: it may be there again later.
            Err(error) => return self.lose_member(adapter_idx, &error.to_string()),
        };
        let member = &mut self.members[adapter_idx];
        (member.handle, member.actor, member.presence) = (handle, actor, Presence::Returning);
        let (capacity, throttle) = (member.capacity, member.throttle);
        if throttle > 1.0 {
            self.send(adapter_idx, Request::Throttle(throttle));
        }
        self.send(adapter_idx, Request::Load { plan: self.plan.clone(), capacity });
    }

    /// What an adapter says while it comes back.
    pub(super) fn hear_returning(&mut self, adapter_idx: usize, event: &Event) {
        match event {
            Event::Loaded { bytes } => {
                self.members[adapter_idx].bytes = *bytes;
                self.members[adapter_idx].presence = Presence::Back;
            }
            Event::Failed { fault, .. } => self.lose_member(adapter_idx, &format!("{fault:?}")),
            _ => {}
        }
    }
}
