//! Where a value that is not finite came from: the step is run again on the CPU, command by command.

use crate::adapters::cpu::Machine;
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::plan::{Command, Pass, Scalars};

use super::shards::{self, count};
use super::{Scheduler, Step, StepReport};

impl Scheduler {
    /// The error for a step that was not applied: it names step, adapter and the first node with such a value.
    ///
    /// # Errors
    /// If the weights can't be read from the device.
    pub async fn non_finite(&mut self, batch: &Batch, step: &Step, report: &StepReport) -> Result<Error> {
        self.sync().await?;
        let mut first = 0;
        for shard in &report.shards {
            let rows = shard.rows as usize;
            let part = batch.shard(first..first + rows);
            let scalars = Scalars { rows: shard.rows, first_row: count(first), ..self.scalars(batch, step) };
            first += rows;
            if let Some(what) = self.first_non_finite(&part, &scalars) {
                return Ok(non_finite(step, &self.who(shard.adapter_idx), &what));
            }
        }
        let somewhere = "the sum of gradients, though each adapter's own are finite";
        Ok(non_finite(step, "all adapters", somewhere))
    }

    fn first_non_finite(&self, part: &Batch, scalars: &Scalars) -> Option<String> {
        let mut machine = Machine::new(self.plan.clone(), scalars.rows);
        for (role, data) in self.shared_weights() {
            machine.write(role, 0, &data);
        }
        if let Some((segment, _)) = (0..).zip(&self.state.weights.parameters).find(|(_, values)| !are_finite(values)) {
            return Some(self.spoilt_parameter(segment));
        }
        for (role, data) in shards::feeds(&self.plan, Pass::Train, part) {
            machine.write(role, 0, &data);
        }
        for command in self.plan.commands(Pass::Train) {
            let Command::Dispatch(dispatch) = command else { continue };
            machine.dispatch(dispatch, scalars);
            if dispatch.outputs.iter().any(|view| !are_finite(machine.view(*view, scalars.rows))) {
                let kernel = dispatch.kernel.name();
                return Some(format!("`{}` (in its {kernel})", dispatch.node));
            }
        }
        None
    }

    fn spoilt_parameter(&self, segment: u32) -> String {
        let values = &self.state.weights.parameters[segment as usize];
        let in_segment = self.layout.parameters.iter().filter(|placed| placed.segment == segment);
        let spoilt = in_segment.into_iter().find(|placed| !are_finite(&values[placed.range()]));
        format!("the parameter `{}`", spoilt.map_or("?", |placed| placed.name.as_str()))
    }
}

fn are_finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
}

fn non_finite(step: &Step, who: &str, what: &str) -> Error {
    Error::non_finite(
        format!("training step {} on {who}", step.step + 1),
        format!("needs finite values, but the first that is not is in {what}; the step was not applied"),
        "lower the learning rate, clip gradients (`clip_norm`), or check the data's scale; `non_finite = \"skip\"` goes on",
    )
}
