//! Totals of the time of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Activity, Timeline, Totals};
use crate::table::{Table, percent};
use crate::timing::{per_second, ratio};

/// Totals of the time of a run, and advice for a faster run. Times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSummary {
    /// Time from start to end.
    pub ms: f64,
    /// Number of training steps.
    pub steps: u64,
    /// Rows that were trained on.
    pub rows: u64,
    /// The host's time.
    pub host: HostTime,
    /// Each adapter's time.
    pub adapters: Vec<AdapterTime>,
    /// Causes of a slow run and their remedies, given by the trainer; empty if none stands out.
    pub advice: Vec<String>,
}

/// Time of the host; the parts sum to the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostTime {
    /// Waiting for batches to train on.
    pub data_ms: f64,
    /// Waiting for adapters.
    pub adapters_ms: f64,
    /// Adding gradients.
    pub reduce_ms: f64,
    /// Waiting for other processes, and exchanging with them.
    #[serde(default)]
    pub processes_ms: f64,
    /// Updating parameters.
    pub update_ms: f64,
    /// Broadcasting weights.
    pub broadcast_ms: f64,
    /// Evaluating on validation data.
    pub evaluate_ms: f64,
    /// Writing checkpoints.
    pub save_ms: f64,
    /// All else: callbacks, metrics.
    pub other_ms: f64,
}

/// Time of an adapter; the parts but the last sum to the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdapterTime {
    /// Its name.
    pub name: String,
    /// Rows that it trained on.
    pub rows: u64,
    /// Rows each second in the time that it was busy with them.
    pub rows_per_busy_s: f64,
    /// Computing.
    pub compute_ms: f64,
    /// Writing weights and inputs, reading gradients and results back.
    pub transfer_ms: f64,
    /// Waiting for the other adapters.
    pub others_ms: f64,
    /// Waiting for data.
    pub data_ms: f64,
    /// Other time: it was lost, it had no rows, or it waited for the host.
    pub idle_ms: f64,
    /// Time that the other adapters waited for this one.
    pub held_up_ms: f64,
}

impl Timeline {
    /// Totals from the start until `now_ms`.
    pub fn summary(&self, now_ms: f64) -> TimeSummary {
        let ms = now_ms - self.begin_ms;
        let adapters =
            self.names.iter().zip(&self.adapters).map(|(name, totals)| self.adapter_time(name, totals, ms)).collect();
        TimeSummary {
            ms,
            steps: self.steps,
            rows: self.host.rows,
            host: self.host_time(ms),
            adapters,
            advice: Vec::new(),
        }
    }

    fn host_time(&self, ms: f64) -> HostTime {
        let of = |what| self.host.of(what);
        let within_step_ms =
            of(Activity::Reduce) + of(Activity::Processes) + of(Activity::Update) + of(Activity::Broadcast);
        let told_ms = of(Activity::Data) + of(Activity::Step) + of(Activity::Evaluate) + of(Activity::Save);
        HostTime {
            data_ms: of(Activity::Data),
            adapters_ms: (of(Activity::Step) - within_step_ms).max(0.0),
            reduce_ms: of(Activity::Reduce),
            processes_ms: of(Activity::Processes),
            update_ms: of(Activity::Update),
            broadcast_ms: of(Activity::Broadcast),
            evaluate_ms: of(Activity::Evaluate),
            save_ms: of(Activity::Save),
            other_ms: (ms - told_ms).max(0.0),
        }
    }

    fn adapter_time(&self, name: &str, totals: &Totals, ms: f64) -> AdapterTime {
        let compute_ms = totals.of(Activity::Compute) + totals.of(Activity::Update);
        let transfer_ms = totals.of(Activity::Weights) + totals.of(Activity::Upload) + totals.of(Activity::Readback);
        let others_ms = totals.of(Activity::Wait);
        // Weights may be written while the host waits for data: then the adapter does not wait.
        let left_ms = (ms - compute_ms - transfer_ms - others_ms - totals.of(Activity::Lost)).max(0.0);
        let data_ms = self.host.of(Activity::Data).min(left_ms);
        AdapterTime {
            name: name.into(),
            rows: totals.rows,
            rows_per_busy_s: per_second(totals.rows, totals.trained_ms),
            compute_ms,
            transfer_ms,
            others_ms,
            data_ms,
            idle_ms: (ms - compute_ms - transfer_ms - others_ms - data_ms).max(0.0),
            held_up_ms: totals.held_up_ms,
        }
    }
}

impl TimeSummary {
    /// Training steps each second, over the whole time.
    pub fn steps_per_s(&self) -> f64 {
        per_second(self.steps, self.ms)
    }

    /// Rows each second, over the whole time.
    pub fn rows_per_s(&self) -> f64 {
        per_second(self.rows, self.ms)
    }

    /// Part of the whole time that some milliseconds are.
    pub fn part(&self, ms: f64) -> f64 {
        ms / self.ms.max(1e-3)
    }

    /// The host's activities, each with its part of the whole time; parts below half a percent are left out.
    pub fn host_parts(&self) -> Vec<(&'static str, f64)> {
        let host = &self.host;
        let parts = [
            ("waiting for adapters", host.adapters_ms),
            ("waiting for data", host.data_ms),
            ("adding gradients", host.reduce_ms),
            ("exchanging with other processes", host.processes_ms),
            ("updating", host.update_ms),
            ("broadcasting weights", host.broadcast_ms),
            ("evaluating", host.evaluate_ms),
            ("saving", host.save_ms),
            ("other", host.other_ms),
        ];
        let parts = parts.into_iter().map(|(what, ms)| (what, self.part(ms)));
        parts.filter(|(_, part)| *part >= 0.005).collect()
    }

    fn table(&self) -> Table {
        let header = [
            "adapter",
            "rows",
            "share",
            "rows/s\nwhen busy",
            "computing",
            "transfers",
            "waiting\nfor others",
            "waiting\nfor data",
            "idle",
        ];
        let mut table = Table::new(header).numbers(1..9);
        for (idx, adapter) in self.adapters.iter().enumerate() {
            let times = [adapter.compute_ms, adapter.transfer_ms, adapter.others_ms, adapter.data_ms, adapter.idle_ms];
            let cells = [
                format!("{idx} {}", adapter.name),
                adapter.rows.to_string(),
                percent(ratio(adapter.rows, self.rows)),
                format!("{:.0}", adapter.rows_per_busy_s),
            ];
            table.row(cells.into_iter().chain(times.map(|ms| percent(self.part(ms)))));
        }
        table
    }
}

impl fmt::Display for TimeSummary {
    /// Speed, a table of the adapters, a line for the host, and advice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} steps in {:.1} s: {:.1} steps/s, {:.0} rows/s",
            self.steps,
            self.ms / 1e3,
            self.steps_per_s(),
            self.rows_per_s()
        )?;
        self.table().fmt(f)?;
        let parts = self.host_parts().into_iter();
        let parts: Vec<String> = parts.map(|(what, part)| format!("{what} {}", percent(part))).collect();
        write!(f, "\nhost: {}", parts.join(", "))?;
        self.advice.iter().try_for_each(|advice| write!(f, "\n{advice}"))
    }
}
