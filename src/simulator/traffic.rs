//! Bytes that a plan transfers, as costs beside its kernels.

use litemap::LiteMap;

use crate::plan::{Command, Pass, Plan, Role};
use crate::size::F32_BYTES;

/// Bytes that are sent between host and adapter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    /// Bytes of a row of the inputs, and of what earlier stages hand over.
    read_per_row: u64,
    /// Bytes of a row of targets and sample weights.
    targets_per_row: u64,
    /// Bytes of a row of the gradients that later stages hand over.
    gradients_per_row: u64,
    /// Each exchange of a pass, by command: whatever the rows, and for each row.
    exchanged: LiteMap<Pass, Vec<(u64, u64)>>,
    /// Bytes of the parameters for each byte that is written: more than 1 if a skeleton replaces the plan.
    pub scale: f64,
}

impl Traffic {
    /// Transfers of a plan.
    pub fn of(plan: &Plan) -> Self {
        let exchanged = |commands: &Vec<Command>| {
            let bytes = commands.iter().map(|command| match command {
                Command::Exchange(exchange) => {
                    let sent = exchange.sent().len;
                    (sent.fixed * F32_BYTES, sent.per_row * F32_BYTES)
                }
                Command::Dispatch(_) => (0, 0),
            });
            bytes.collect()
        };
        let per_row = |is_wanted: fn(Role) -> bool| {
            let wanted = plan.buffers.iter().filter(|buffer| is_wanted(buffer.role));
            wanted.map(|buffer| buffer.len.per_row * F32_BYTES).sum()
        };
        Self {
            read_per_row: per_row(|role| matches!(role, Role::Input(_) | Role::Received(_))),
            targets_per_row: per_row(|role| matches!(role, Role::Target(_) | Role::SampleWeight(_))),
            gradients_per_row: per_row(|role| matches!(role, Role::ReceivedGradient(_))),
            exchanged: plan.passes.iter().map(|(pass, commands)| (*pass, exchanged(commands))).collect(),
            scale: 1.0,
        }
    }

    /// Bytes that are written before a run of a pass.
    pub fn fed(&self, pass: Pass, rows: u32) -> u64 {
        let targets = if matches!(pass, Pass::Predict | Pass::Forward) { 0 } else { self.targets_per_row };
        let gradients = if pass == Pass::Train { self.gradients_per_row } else { 0 };
        (self.read_per_row + targets + gradients) * u64::from(rows)
    }

    /// Bytes of an exchange of a pass.
    pub fn exchange(&self, pass: Pass, command: usize, rows: u32) -> u64 {
        let exchange = self.exchanged.get(&pass).and_then(|exchanges| exchanges.get(command));
        exchange.map_or(0, |(fixed, per_row)| fixed + per_row * u64::from(rows))
    }
}
