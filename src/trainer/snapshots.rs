//! Copies of the state on the host, to which training goes back when the only adapter is lost.

use super::Trainer;
use crate::error::Result;

/// Steps after which the state of a single adapter is copied to the host: the most that are repeated after its loss.
pub(super) const SNAPSHOT_STEPS: u64 = 100;

impl Trainer {
    /// Copies state and model from the adapters.
    pub(super) async fn sync(&mut self) -> Result<()> {
        self.sync_state().await?;
        self.model.weights.clone_from(&self.adapters.state().weights);
        Ok(())
    }

    /// Copies the state from the adapters. If the only one is lost it is that of the last snapshot.
    pub(super) async fn sync_state(&mut self) -> Result<()> {
        if self.adapters.if_open().is_none() {
            return Ok(());
        }
        self.adapters.sync().await?;
        let is_on_device = self.adapters.is_on_device();
        self.follow_rewind();
        self.snapshot = is_on_device.then(|| self.progress.clone());
        Ok(())
    }

    /// Copies the state to the host if it is on a single adapter and the last copy is `steps` steps old.
    pub(super) async fn take_snapshot(&mut self, steps: u64) -> Result<()> {
        let age = self.snapshot.as_ref().map_or(u64::MAX, |progress| self.progress.step - progress.step);
        if age >= steps && self.adapters.is_on_device() { self.sync_state().await } else { Ok(()) }
    }

    /// Rewinds with the scheduler, if it did: see [`rewind`](Self::rewind). Returns whether it did.
    pub(super) fn follow_rewind(&mut self) -> bool {
        let is_rewound = self.adapters.take_rewound();
        if is_rewound {
            self.rewind();
        }
        is_rewound
    }

    /// Sets the position to that of the snapshot after the loss of the only adapter; the CPU adapter trains.
    ///
    /// Steps since the snapshot are trained again, and reported again.
    pub(super) fn rewind(&mut self) {
        if let Some(progress) = self.snapshot.clone() {
            log::warn!("resuming after step {}, {} steps back", progress.step, self.progress.step - progress.step);
            self.progress = progress;
        }
        // They belonged to the lost adapter.
        self.adapters.throttles.clear();
        self.adapters.note();
    }
}
