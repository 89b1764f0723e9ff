//! Training steps that have begun and are not reported yet: their one owner.

use std::collections::VecDeque;

use super::shards::Shard;
use super::{Step, StepReport};
use crate::adapters::Ticket;
use crate::data::Batch;

/// When a batch was waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DataWait {
    /// When the wait began, by the runtime's clock.
    pub start_ms: f64,
    /// How long it took.
    pub ms: f64,
    /// Was the adapter busy with the step before all the time, so that nothing was lost?
    pub is_hidden: bool,
}

impl DataWait {
    /// Since `start_ms`, until now.
    pub fn since(start_ms: f64, now_ms: f64) -> Self {
        Self { start_ms, ms: now_ms - start_ms, is_hidden: false }
    }

    /// Milliseconds in which adapters waited, too.
    pub fn exposed_ms(&self) -> f64 {
        if self.is_hidden { 0.0 } else { self.ms }
    }
}

/// A training step that has begun.
pub(super) struct StepInFlight {
    pub batch: Batch,
    pub step: Step,
    pub rows: u32,
    pub begin_ms: f64,
    pub data: DataWait,
    pub runs: Option<Runs>,
    /// What it gave, if that had to be known before anybody asked.
    pub report: Option<StepReport>,
}

/// What the only adapter was asked for a step.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    pub shard: Shard,
    pub train: Ticket,
    pub update: Ticket,
}

/// The training steps in flight, oldest first.
#[derive(Default)]
pub(super) struct InFlight {
    pub steps: VecDeque<StepInFlight>,
    /// When the last step ended: one that has begun before counts from then on.
    pub ended_ms: f64,
    /// When the last step was reported.
    pub told_ms: f64,
}

/// A training step that has ended.
#[derive(Clone, Debug)]
pub struct FinishedStep {
    /// Its batch.
    pub batch: Batch,
    /// Its numbers.
    pub step: Step,
    /// What it gave.
    pub report: StepReport,
    /// The wait for its batch.
    pub data: DataWait,
    /// How long it took, with the wait for its batch, from the end of the step before.
    pub ms: f64,
}

/// What came of the oldest step in flight.
#[derive(Clone, Debug)]
pub enum Finished {
    /// It has ended.
    Step(Box<FinishedStep>),
    /// The only adapter was lost, and with it the steps since the host's last copy of the state: training resumes from there.
    /// No step is in flight any more.
    Rewound,
}
