//! Finds the origin of a value that is not finite: re-runs the step on the CPU, command by command.

use std::sync::Arc;

use crate::data::Batch;
use crate::error::{Error, Result};
use crate::plan::{Command, Layout, Pass, PlacedTensor, Places, Plan, Scalars};
use manyhands_engine::adapters::cpu::Interpreter;

use super::state::State;
use super::{Part, Scheduler, Step, StepReport, shards};

impl Scheduler {
    /// The error for a step that was not applied: it names step, adapter and the first node with such a value.
    ///
    /// # Errors
    /// If the weights can't be read from the device.
    pub async fn non_finite(&mut self, batch: &Batch, step: &Step, report: &StepReport) -> Result<Error> {
        self.sync().await?;
        let found = self.origin(batch, step, report)?;
        let found = self.rig.processes.first(found).await?;
        let somewhere = "the sum of gradients, though each adapter's own are finite";
        Ok(found.unwrap_or_else(|| non_finite(step, "all adapters", somewhere)))
    }

    /// The error that names one of this process' adapters, and the first node.
    fn origin(&self, batch: &Batch, step: &Step, report: &StepReport) -> Result<Option<Error>> {
        let rows = shards::rows_of(batch)?;
        let before = report.processes.iter().take(self.rig.processes.rank()).map(|process| process.rows).sum();
        let all = report.processes.iter().map(|process| process.rows).sum::<u32>();
        let part =
            if report.processes.is_empty() { Part::whole(rows) } else { Part { first_row: before, batch_rows: all } };
        let whole = self.state.scalars(rows, part, step);
        let mut first = 0;
        for shard in &report.shards {
            let part = batch.shard(first as usize..(first + shard.rows) as usize);
            let scalars = Scalars { rows: shard.rows, first_row: whole.first_row + first, ..whole.clone() };
            first += shard.rows;
            if let Some(what) = first_non_finite(self.rig.plan(), &self.state, &part, &scalars) {
                return Ok(Some(non_finite(step, &self.rig.name(shard.adapter_idx), &what)));
            }
        }
        Ok(None)
    }
}

fn first_non_finite(plan: &Arc<Plan>, state: &State, part: &Batch, scalars: &Scalars) -> Option<String> {
    let mut interpreter = Interpreter::new(plan.clone(), scalars.rows);
    let parameters = &state.training().weights.parameters;
    if let Some(spoilt) = spoilt_parameter(&state.layout, parameters) {
        return Some(format!("the parameter `{}`", spoilt.name));
    }
    fill(&mut interpreter, state, part);
    for command in plan.commands(Pass::Train) {
        let Command::Dispatch(dispatch) = command else { continue };
        interpreter.dispatch(dispatch, scalars);
        if dispatch.outputs.iter().any(|view| !are_finite(interpreter.view(*view, scalars.rows))) {
            let kernel = dispatch.kernel.name();
            return Some(format!("`{}` (in its {kernel})", dispatch.node));
        }
    }
    None
}

/// Gives the CPU what a training pass over some rows reads: the weights of now, and the rows.
pub(super) fn fill(interpreter: &mut Interpreter, state: &State, part: &Batch) {
    for (role, offset, data) in state.weights(&Places::whole(&state.layout)) {
        interpreter.write(role, offset, &data);
    }
    for (role, data) in shards::feeds(&interpreter.plan(), Pass::Train, part) {
        interpreter.write(role, 0, &data);
    }
}

/// The first parameter with a value that is not finite. Packed ones have words, of which any may look so.
fn spoilt_parameter<'a>(layout: &'a Layout, segments: &[Vec<f32>]) -> Option<&'a PlacedTensor> {
    let mut floats = layout.parameters.iter().filter(|placed| placed.packing.is_none());
    floats.find(|placed| !are_finite(&segments[placed.segment as usize][placed.range()]))
}

fn are_finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
}

fn non_finite(step: &Step, who: &str, what: &str) -> Error {
    Error::non_finite(
        format!("training step {} on {who}", step.step + 1),
        format!("needs finite values, but the first other one is in {what}; the step was not applied"),
        "lower the learning rate, clip gradients (`clip_norm`), or check the data's scale; `non_finite = \"skip\"` continues without the step",
    )
}
