//! Changes to a rig between steps: adapters that join and leave, and the status of each.

use super::{AdapterStatus, Presence, Rig};
use crate::error::{Error, Result};
use manyhands_engine::adapters::Info;

impl Rig {
    /// Opens another adapter and loads the plan on it; returns its position.
    ///
    /// # Errors
    /// If it can't be opened, or can't run the plan. Its position stays empty then.
    pub async fn join(&mut self, info: &Info) -> Result<usize> {
        let adapter_idx = self.add(info, 0, self.largest_capacity())?;
        self.load(adapter_idx);
        match self.finish_load(adapter_idx).await {
            Ok(()) => Ok(adapter_idx),
            Err(error) => {
                self.remove(adapter_idx);
                Err(error)
            }
        }
    }

    /// Removes an adapter, between two steps. Its position stays empty.
    ///
    /// # Errors
    /// If it is the only one that takes part.
    pub fn leave(&mut self, adapter_idx: usize) -> Result<()> {
        let others = (0..self.members.len()).any(|idx| idx != adapter_idx && self.members[idx].is_active());
        if !others {
            return Err(Error::adapter(
                self.name(adapter_idx),
                "needs to stay: no other takes part",
                "add another adapter first",
            ));
        }
        self.remove(adapter_idx);
        Ok(())
    }

    fn remove(&mut self, adapter_idx: usize) {
        let member = &mut self.members[adapter_idx];
        member.dismiss(Presence::Left);
        (member.has_slot, member.is_enabled) = (false, false);
    }

    /// Limits the rows to the first `n_adapters`, to measure fewer adapters.
    pub fn limit_active(&mut self, n_adapters: usize) {
        for (idx, member) in self.members.iter_mut().enumerate() {
            member.is_enabled = idx < n_adapters && member.presence != Presence::Left;
        }
    }

    /// Status of each adapter by position; `is_excluded` marks active adapters without rows.
    pub fn statuses(&self, is_excluded: impl Fn(usize) -> bool) -> Vec<AdapterStatus> {
        let now_ms = self.runtime.now_ms();
        let status = |idx: usize| match self.members[idx].presence {
            Presence::Active => AdapterStatus::Active { is_excluded: is_excluded(idx) },
            Presence::Lost { again_ms } => {
                AdapterStatus::Lost { again_ms: again_ms.is_finite().then(|| (again_ms - now_ms).max(0.0)) }
            }
            Presence::Returning | Presence::Ready => AdapterStatus::Returning,
            Presence::Left => AdapterStatus::Left,
            Presence::Spare => AdapterStatus::Active { is_excluded: true },
        };
        (0..self.members.len()).map(status).collect()
    }
}
