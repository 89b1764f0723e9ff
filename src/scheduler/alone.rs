//! A training step's loss and gradients as one adapter alone computes them: what those of the split step are compared with.

use super::open_runs::{Among, Job};
use super::shards::{self, Shard, rows_of};
use super::{Part, Scheduler, Step, StepReport};
use crate::data::Batch;
use crate::error::Result;
use crate::kernels::rounding::single;
use crate::plan::Pass;
use manyhands_engine::adapters::Combining;

impl Scheduler {
    /// Computes a training step's loss and gradients by the first adapter alone, with all rows and the weights of now. Nothing changes,
    /// and the step itself may follow.
    ///
    /// `None` if no two adapters share the step, if the adapter does not hold all rows at once, and if other processes or stages take
    /// part.
    ///
    /// # Errors
    /// If no adapter is left to run it.
    pub async fn compute_alone(&mut self, batch: &Batch, step: &Step) -> Result<Option<StepReport>> {
        let rows = rows_of(batch)?;
        let active = self.active();
        let holds = |idx: &usize| active[*idx] && self.rig.members[*idx].capacity >= rows;
        let is_shared = active.iter().filter(|is_active| **is_active).count() > 1;
        let is_lone_process = self.rig.processes.is_alone();
        let Some(first) = (0..active.len()).find(holds).filter(|_| is_shared && is_lone_process && !self.is_staged())
        else {
            return Ok(None);
        };
        self.settle().await?;
        let scalars = self.state.scalars(rows, Part::whole(rows), step);
        let job =
            Job { pass: Pass::Train, batch, scalars: &scalars, combining: Combining::Host, among: Among::Adapters };
        let answers = self.round(job).run(vec![Shard::whole(first, 0, rows)]).await?;
        // The sums of the step itself take their place.
        let totals = self.state.reduce(&mut self.rig, &answers, &scalars).await?;
        Ok(Some(StepReport {
            reports: shards::concatenated(&self.rig.stages, Pass::Train, &answers, |answer| &answer.reports),
            gradient_norm: single(totals.norm),
            is_applied: false,
            penalty: totals.penalty,
            shards: shards::reports(&answers),
            ..StepReport::default()
        }))
    }
}
