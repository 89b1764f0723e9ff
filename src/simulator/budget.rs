//! The parts of a simulated step, and the largest of them.

use super::spec::AdapterSpec;
use super::trial::TimedStep;
use crate::scheduler::ShardReport;
use crate::timing::median;

/// Times of a step's parts, in milliseconds; the adapter is the one that ends last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    pub step_ms: f64,
    pub slowest: usize,
    pub transfer_ms: f64,
    pub compute_ms: f64,
    pub host_ms: f64,
    /// Sums and messages between machines.
    pub network_ms: f64,
}

impl Budget {
    /// Milliseconds in which the adapter and the host work.
    pub fn busy_ms(&self) -> f64 {
        self.compute_ms + self.transfer_ms + self.host_ms
    }

    /// Largest part of a step, on one of several machines if it has a name. Time that is neither computing, nor a run's transfers,
    /// nor the host, nor the network, is the broadcast to the adapters.
    pub fn limit(&self, adapters: &[AdapterSpec], machine: Option<&String>) -> String {
        let adapter = &adapters[self.slowest];
        let name = machine.map_or_else(|| adapter.name.clone(), |machine| format!("{} of {machine}", adapter.name));
        let fixed_ms = adapter.fixed_ms.min(self.compute_ms);
        let broadcast_ms = self.step_ms - self.busy_ms() - self.network_ms;
        let parts = [
            (self.compute_ms - fixed_ms, format!("computing on {name}")),
            (fixed_ms, format!("fixed costs of {name}")),
            (self.transfer_ms, format!("transfers of rows and gradients of {name}")),
            (self.host_ms, "the host's sums and update".to_owned()),
            (self.network_ms, "the network's sums of gradients".to_owned()),
            (broadcast_ms, format!("transfers of new weights to {name}")),
        ];
        let largest = parts.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        largest.map_or_else(String::new, |(ms, what)| format!("{what} ({:.0} %)", 100.0 * ms / self.step_ms))
    }

    /// The median milliseconds of some steps, the means of their parts, and the rows of each adapter. A step in which an idle adapter is
    /// tried again does not count. Waiting for others within a run counts as computing: the slowest waits least.
    pub fn of(n_adapters: usize, seen: &[TimedStep]) -> (Self, Vec<u32>) {
        let step_ms = median(seen.iter().map(|(ms, _)| *ms));
        let mut budget = Self { step_ms, ..Self::default() };
        let mut shares = vec![0; n_adapters];
        let part = 1.0 / f64::from(u32::try_from(seen.len()).unwrap_or(1));
        for (_, report) in seen {
            budget.host_ms += part * (report.reduce_ms + report.update_ms);
            let taken_ms = |shard: &&ShardReport| shard.timing.busy_ms() + shard.timing.weights.ms;
            let slowest = report.shards.iter().max_by(|a, b| taken_ms(a).total_cmp(&taken_ms(b)));
            let Some(shard) = slowest else { continue };
            budget.slowest = shard.adapter_idx;
            budget.compute_ms += part * shard.timing.compute_ms;
            budget.transfer_ms += part * (shard.timing.upload_ms + shard.timing.readback_ms);
            // The rows of the last step: an adapter may get none in some.
            shares.fill(0);
            report.shards.iter().for_each(|shard| shares[shard.adapter_idx] = shard.rows);
        }
        (budget, shares)
    }
}
