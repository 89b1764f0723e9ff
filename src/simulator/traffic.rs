//! Bytes that a plan transfers, as costs beside its kernels.

use crate::plan::{Command, Pass, Plan};
use crate::size::F32_BYTES;

/// Bytes that are sent between host and adapter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    /// Inputs, targets and sample weights of a row.
    pub fed_per_row: u64,
    /// Each exchange of the training pass, by command: whatever the rows, and for each row.
    pub exchanged: Vec<(u64, u64)>,
    /// Bytes of the parameters for each byte that is written: more than 1 if a skeleton replaces the plan.
    pub scale: f64,
}

impl Traffic {
    /// Transfers of a plan.
    pub fn of(plan: &Plan) -> Self {
        let exchanged = plan.commands(Pass::Train).iter().map(|command| match command {
            Command::Exchange(exchange) => {
                let sent = exchange.sent().len;
                (sent.fixed * F32_BYTES, sent.per_row * F32_BYTES)
            }
            Command::Dispatch(_) => (0, 0),
        });
        Self { fed_per_row: plan.fed_bytes_per_row(), exchanged: exchanged.collect(), scale: 1.0 }
    }

    /// Bytes of an exchange.
    pub fn exchange(&self, command: usize, rows: u32) -> u64 {
        self.exchanged.get(command).map_or(0, |(fixed, per_row)| fixed + per_row * u64::from(rows))
    }
}
