//! Commands whose results nobody reads: they are no part of a finished pass.

use super::{Command, Plan};

/// Drops the dispatches of a pass that write nothing but activations which no later command reads, and exchanges of such
/// activations: the parameters' gradients of frozen layers, and what only these need.
pub(super) fn drop_unread(plan: &Plan, commands: &mut Vec<Command>) {
    let mut is_read: Vec<bool> = plan.buffers.iter().map(|buffer| !buffer.role.is_pooled()).collect();
    let mut keeps: Vec<bool> = commands.iter().rev().map(|command| is_needed(command, &mut is_read)).collect();
    keeps.reverse();
    let mut keeps = keeps.into_iter();
    commands.retain(|_| keeps.next().unwrap_or(true));
}

/// Whether a command is needed by later commands. If so, all buffers that it names are read from here on: a buffer that is
/// written in parts, or in place, needs all of its writers.
fn is_needed(command: &Command, is_read: &mut [bool]) -> bool {
    let at = |buffer: super::BufferId| buffer.0 as usize;
    match command {
        Command::Exchange(exchange) => {
            let sent = exchange.sent();
            let is_needed = !exchange.is_awaited() || is_read[at(exchange.view.buffer)];
            is_read[at(sent.buffer)] |= is_needed;
            is_needed
        }
        Command::Dispatch(dispatch) => {
            let is_needed = dispatch.outputs.iter().any(|view| is_read[at(view.buffer)]);
            if is_needed {
                let views = dispatch.inputs.iter().chain(&dispatch.outputs);
                views.for_each(|view| is_read[at(view.buffer)] = true);
            }
            is_needed
        }
    }
}
