//! Callbacks with which tests watch a run, and end it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manyhands::Result;
use manyhands::callbacks::Callback;
use manyhands::logs::StepLog;

/// Notes all steps.
#[derive(Default)]
pub struct Steps(pub Vec<StepLog>);

impl Callback for Steps {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        self.0.push(log.clone());
        Ok(())
    }
}

/// Asks a run to stop after a step; notes all steps.
#[derive(Default)]
pub struct StopAt {
    /// The step.
    pub at: u64,
    /// What the run looks at.
    pub stop: Arc<AtomicBool>,
    /// The steps until then.
    pub steps: Steps,
}

impl StopAt {
    /// After the step of this number.
    pub fn step(at: u64) -> Self {
        Self { at, ..Self::default() }
    }
}

impl Callback for StopAt {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        self.stop.fetch_or(log.step == self.at, Ordering::Relaxed);
        self.steps.on_step(log)
    }
}
