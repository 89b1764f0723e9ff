//! The adapters of a trainer with their current status.

use super::Trainer;
use crate::adapters::{Handle, Info};
use crate::scheduler::AdapterStatus;
use crate::scheduler::timeline::Timeline;

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

impl Trainer {
    /// The open adapters, by position; none before the first run. Removed ones keep their positions.
    pub fn open_adapters(&self) -> Vec<OpenAdapter> {
        let Some(opened) = &self.scheduler else { return Vec::new() };
        let (statuses, bytes) = (opened.scheduler.statuses(), opened.scheduler.bytes());
        let open = opened.scheduler.adapters().zip(statuses).zip(bytes).enumerate();
        open.map(|(adapter_idx, ((info, status), bytes))| {
            let throttle = self.throttles.of(adapter_idx);
            OpenAdapter { info: info.clone(), status, bytes, throttle }
        })
        .collect()
    }

    /// The handle of an open adapter: requests sent there take effect while a step runs.
    #[doc(hidden)]
    pub fn handle(&self, adapter_idx: usize) -> Option<&Handle> {
        let opened = self.scheduler.as_ref()?;
        (adapter_idx < opened.scheduler.adapters().count()).then(|| opened.scheduler.handle(adapter_idx))
    }

    /// Times of all work of the last run.
    #[doc(hidden)]
    pub fn timeline(&self) -> Option<&Timeline> {
        self.scheduler.as_ref().map(|opened| opened.scheduler.timeline())
    }
}
