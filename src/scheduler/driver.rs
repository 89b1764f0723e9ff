//! The loop that keeps adapters busy: begins as many steps as they want, then ends the oldest.
//!
//! All that trains goes through it: `fit`, sessions, a caller's batches, and benches.

use super::in_flight::{DataWait, Finished};
use super::shards::rows_of;
use super::{Part, Scheduler, Step};
use crate::data::Batch;
use crate::error::Result;

/// Steps in flight on a single adapter: one that computes, and the next, so that it never waits for the host.
const MOST_IN_FLIGHT: usize = 2;

/// A training step to begin.
#[derive(Clone, Debug)]
pub struct NextStep {
    /// Its batch, or the rows of it that this process computes.
    pub batch: Batch,
    /// Their place in the whole batch.
    pub part: Part,
    /// The step's numbers.
    pub step: Step,
    /// The wait for the batch.
    pub data: DataWait,
}

impl NextStep {
    /// A step on a batch that no other process has a part of.
    ///
    /// # Errors
    /// If there are more rows than can be counted.
    pub fn whole(batch: Batch, step: Step, data: DataWait) -> Result<Self> {
        Ok(Self { part: Part::whole(rows_of(&batch)?), batch, step, data })
    }
}

/// Source of training steps.
pub trait StepSource {
    /// The next step, behind `ahead` others that are in flight: none of those is known to be applied. `None` if there is no other
    /// step, or it must begin after the end of those.
    ///
    /// A step that is not applied, or was lost with its adapter, comes again: a source follows the number of steps that ended.
    ///
    /// # Errors
    /// If its batch can't be read. Behind others in flight it is asked for again after their end.
    fn next(&mut self, ahead: usize) -> impl Future<Output = Result<Option<NextStep>>>;
}

impl Scheduler {
    /// Begins steps as long as the adapters want more, then ends the oldest. `None` if there is none.
    ///
    /// # Errors
    /// If a batch can't be read, or no adapter is left. Then no step is in flight.
    pub async fn advance(&mut self, steps: &mut impl StepSource) -> Result<Option<Finished>> {
        self.begin(steps).await?;
        self.finish().await
    }

    /// Begins steps as long as the adapters want more.
    ///
    /// # Errors
    /// If the batch of the next step can't be read, and none is in flight.
    pub async fn begin(&mut self, steps: &mut impl StepSource) -> Result<()> {
        while self.wants_step() {
            let ahead = self.in_flight.steps.len();
            match steps.next(ahead).await {
                Ok(Some(next)) => self.begin_step(next)?,
                Err(error) if ahead == 0 => return Err(error),
                // The error belongs to a step behind those in flight, which end first.
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }

    /// Whether no step is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.steps.is_empty()
    }

    /// Whether another step may begin before those in flight have ended.
    fn wants_step(&self) -> bool {
        self.is_idle() || self.is_on_device() && self.in_flight.steps.len() < MOST_IN_FLIGHT
    }
}
