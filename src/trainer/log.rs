//! Reports of training: each step, each epoch, and the history of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::scheduler::timeline::TimeSummary;

/// Named numbers in a fixed order: the loss, then the metrics; then those of validation, in the same order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Values(serde_json::Map<String, serde_json::Value>);

impl Values {
    /// Sets a number.
    pub fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.into(), value.into());
    }

    /// Serialises NaN and infinity, which JSON lacks.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).map(|value| value.as_f64().unwrap_or(f64::NAN))
    }

    /// All numbers with their names, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        let mut numbers: Vec<_> = self.0.iter().collect();
        numbers.sort_by_key(|(name, _)| {
            let plain = name.strip_prefix("val_");
            (plain.is_some(), plain.unwrap_or(name) != "loss")
        });
        numbers.into_iter().map(|(name, value)| (name.as_str(), value.as_f64().unwrap_or(f64::NAN)))
    }

    /// A copy whose names have a prefix: `val_`.
    #[must_use]
    pub fn prefixed(&self, prefix: &str) -> Self {
        Self(self.0.iter().map(|(name, value)| (format!("{prefix}{name}"), value.clone())).collect())
    }

    /// Adds all numbers of another.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl fmt::Display for Values {
    /// `loss 0.0731, accuracy 0.9778`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.iter().map(|(name, value)| format!("{name} {}", number(value))).collect();
        f.write_str(&texts.join(", "))
    }
}

/// Four digits after the point, or four significant ones for a smaller value; fewer after the point of a large one.
fn number(value: f64) -> String {
    match value.abs() {
        small if small != 0.0 && small < 1e-3 => format!("{value:.3e}"),
        large if large >= 1e5 => format!("{value:.0}"),
        large if large >= 1e3 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// One adapter's part in a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdapterLog {
    /// Position among the adapters in use.
    pub adapter: usize,
    /// Its name.
    pub name: String,
    /// Rows it computed.
    pub rows: u32,
    /// Milliseconds it was busy: upload, compute, readback.
    pub ms: f64,
    /// Milliseconds of `ms` in which it got its inputs.
    pub upload_ms: f64,
    /// Milliseconds of `ms` in which it computed.
    pub compute_ms: f64,
    /// Milliseconds of `ms` in which gradients, reports and outputs were read back.
    pub readback_ms: f64,
    /// Milliseconds it waited for others at exchanges.
    pub wait_ms: f64,
    /// Milliseconds from its end to that of the slowest.
    pub end_wait_ms: f64,
}

/// One process' part in a step, where several processes train together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessLog {
    /// Its rank, counted from 0.
    pub process: usize,
    /// Rows it computed.
    pub rows: u32,
    /// Milliseconds that its slowest adapter was busy.
    pub ms: f64,
    /// Its adapters.
    pub adapters: Vec<SharedAdapterLog>,
}

/// An adapter of any of several processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharedAdapterLog {
    /// Its name.
    pub name: String,
    /// Rows it computed.
    pub rows: u32,
    /// Milliseconds it was busy.
    pub ms: f64,
}

/// Log of one training step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepLog {
    /// Counted from 1 over all epochs.
    pub step: u64,
    /// Counted from 1.
    pub epoch: u64,
    /// Counted from 1 within the epoch.
    pub batch: usize,
    /// Batches of an epoch.
    pub batches: usize,
    /// Rows of the batch.
    pub rows: usize,
    /// Loss and metrics of this batch.
    #[serde(flatten)]
    pub values: Values,
    /// Loss and metrics of the epoch so far.
    #[serde(skip)]
    pub running: Values,
    /// Learning rate.
    pub learning_rate: f32,
    /// Global norm of the gradients.
    pub gradient_norm: f32,
    /// False if a value was not finite and nothing was updated.
    pub is_applied: bool,
    /// The loss scale of this step, under mixed precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f32>,
    /// Milliseconds of the step, waiting for data included.
    pub ms: f64,
    /// Milliseconds of `ms` that it waited for data.
    pub data_ms: f64,
    /// Milliseconds of `ms` that the host added gradients.
    pub reduce_ms: f64,
    /// Milliseconds of `ms` that the host updated weights.
    pub update_ms: f64,
    /// Milliseconds of `ms` that it waited for other processes and exchanged with them.
    #[serde(skip_serializing_if = "is_zero")]
    pub processes_ms: f64,
    /// Rows per second.
    pub samples_per_s: f64,
    /// Each adapter that had rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<AdapterLog>,
    /// Each process, where several train together; `adapters` are then those of the process that writes the log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessLog>,
}

/// A training step as one of several adapters computed it alone, from the same weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoneStep {
    /// Position of the adapter.
    pub adapter: usize,
    /// Loss and metrics.
    pub values: Values,
    /// Global norm of the gradients.
    pub gradient_norm: f32,
}

/// Whether a time is left out: that of what did not happen.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(ms: &f64) -> bool {
    *ms == 0.0
}

/// Log of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochLog {
    /// Counted from 1.
    pub epoch: u64,
    /// Training steps so far.
    pub step: u64,
    /// Loss and metrics over the epoch's batches, and with the prefix `val_` over the validation data.
    #[serde(flatten)]
    pub values: Values,
    /// Learning rate at the end.
    pub learning_rate: f32,
    /// Seconds of the epoch, validation included.
    pub seconds: f64,
    /// Rows each second of training.
    pub samples_per_s: f64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct History {
    /// Each epoch.
    pub epochs: Vec<EpochLog>,
    /// Whether it was interrupted before its last epoch.
    pub is_interrupted: bool,
    /// Training steps of the state in the checkpoint's file. Fewer than were done if the last were not finite.
    pub saved_step: Option<u64>,
    /// Totals of the time, and advice for a faster run.
    pub time: TimeSummary,
}

impl History {
    /// A number over the epochs: `history.of("val_accuracy")`.
    pub fn of(&self, name: &str) -> Vec<f64> {
        self.epochs.iter().filter_map(|epoch| epoch.values.get(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_in_order() {
        let mut values = Values::default();
        for (name, value) in [("val_loss", 1.5e-5), ("accuracy", 0.98), ("val_accuracy", f64::NAN), ("loss", 0.0)] {
            values.set(name, value);
        }
        assert_eq!(values.to_string(), "loss 0.0000, accuracy 0.9800, val_loss 1.500e-5, val_accuracy NaN");
        assert_eq!([-123_456.7, 1234.5678, 999.98765].map(number), ["-123457", "1234.57", "999.9877"]);
        assert!(values.get("val_accuracy").unwrap().is_nan() && values.get("val_mae").is_none());
    }
}
