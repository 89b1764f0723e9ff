//! The training steps in flight: begun, but not yet reported.

use std::collections::VecDeque;

use super::shards::Shard;
use super::{Part, Step, StepReport};
use crate::data::Batch;
use manyhands_engine::adapters::Ticket;

/// Wait for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DataWait {
    /// Start of the wait, by the runtime's clock.
    pub start_ms: f64,
    /// Length of the wait.
    pub ms: f64,
    /// Whether the adapter was busy with the step before all the time, so that the wait cost nothing.
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
    pub part: Part,
    pub begin_ms: f64,
    pub data: DataWait,
    pub runs: Option<Runs>,
    /// The step's report, if it had to be read before it was requested.
    pub report: Option<StepReport>,
}

/// Runs of a step on the only adapter.
#[derive(Clone)]
pub(super) struct Runs {
    /// Its pieces, in order.
    pub trains: Vec<(Shard, Ticket)>,
    pub update: Ticket,
    /// Number of the update: see [`InFlight::update`].
    pub number: u32,
}

/// The training steps in flight, oldest first.
#[derive(Default)]
pub(super) struct InFlight {
    pub steps: VecDeque<StepInFlight>,
    /// Number of the last update that may make the next one void. One is left out behind each that was not applied.
    pub update: u32,
    /// End of the last step; the time of a step that began earlier counts from then on.
    pub ended_ms: f64,
    /// Time at which the last step was reported.
    pub told_ms: f64,
}

/// A training step that has ended.
#[derive(Clone, Debug)]
pub struct FinishedStep {
    /// Its batch.
    pub batch: Batch,
    /// Number, seed and learning rate of the step.
    pub step: Step,
    /// Report of the step.
    pub report: StepReport,
    /// The wait for its batch.
    pub data: DataWait,
    /// Time of the step with the wait for its batch, from the end of the step before.
    pub ms: f64,
}

/// Outcome of the oldest step in flight.
#[derive(Clone, Debug)]
pub enum Finished {
    /// The step has ended.
    Step(Box<FinishedStep>),
    /// The only adapter was lost, and with it the steps since the host's last copy of the state: training resumes from
    /// there. No step is in flight any more.
    Rewound,
}
