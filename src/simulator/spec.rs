//! Specification of a simulated adapter: its speed, its links, and its faults.

use serde::{Deserialize, Serialize};

use super::crowd::Crowding;
use crate::plan::Work;
use manyhands_engine::adapters::Kind;

/// A simulated adapter.
///
/// A training run of `rows` takes `fixed_ms + per_row_ms * rows` of computing, or, where no `per_row_ms` is given, the
/// time that the plan's arithmetic takes at `gflops` and `memory_gb_s`. Runs that only go forward take a third per row. A
/// stage takes `fixed_ms`, and its part of the model's work of `per_row_ms`. A run is fed while the one before computes, and
/// what it gives travels while the next one does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterSpec {
    /// Its name.
    pub name: String,
    /// Milliseconds of a run whatever its rows: submitting, launching, waiting for the device.
    #[serde(default)]
    pub fixed_ms: f64,
    /// Milliseconds for each row of a training run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_row_ms: Option<f64>,
    /// Arithmetic of products and convolutions that it reaches (not its peak), in 10⁹ operations a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gflops: Option<f64>,
    /// Bytes that other kernels read and write, in 10⁹ a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb_s: Option<f64>,
    /// Bandwidth from host to adapter, in 10⁹ bytes a second; without it, writing takes no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_gb_s: Option<f64>,
    /// Bandwidth from adapter to host, in 10⁹ bytes a second; without it, reading takes no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_gb_s: Option<f64>,
    /// Milliseconds of each transfer whatever its bytes.
    #[serde(default)]
    pub latency_ms: f64,
    /// Each run takes up to this part longer or shorter, at random.
    #[serde(default)]
    pub jitter: f64,
    /// Memory that a model may take on it, in 10⁹ bytes; without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<f64>,
    /// Its kind, by which memory is counted; without it, that of a card.
    #[serde(skip)]
    #[doc(hidden)]
    pub kind: Option<Kind>,
    /// Its slowdown while others compute, which share cores or memory with it; none by default.
    #[serde(skip)]
    #[doc(hidden)]
    pub crowding: Option<Crowding>,
    /// Rows for which it has memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u32>,
    /// Times at which it is slower.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowdowns: Vec<Slowdown>,
    /// Injected faults, each once.
    #[serde(skip)]
    #[doc(hidden)]
    pub faults: Vec<InjectedFault>,
}

impl AdapterSpec {
    /// An adapter without links, jitter or faults.
    pub fn new(name: impl Into<String>, fixed_ms: f64, per_row_ms: f64) -> Self {
        Self { name: name.into(), fixed_ms, per_row_ms: Some(per_row_ms), ..Self::default() }
    }

    /// Milliseconds of work at its rates; those that are not known count nothing.
    pub(crate) fn work_ms(&self, work: &Work) -> f64 {
        let of = |amount: f64, rate: Option<f64>| rate.map_or(0.0, |rate| amount / (rate * 1e6));
        of(work.flops, self.gflops) + of(work.bytes, self.memory_gb_s)
    }

    /// Bytes that a model may take on it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be above 0")]
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.memory_gb.map(|gb| (gb * 1e9) as u64)
    }
}

/// A time in which an adapter computes more slowly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slowdown {
    /// Start.
    pub from_ms: f64,
    /// End.
    pub to_ms: f64,
    /// Factor on the time of computing.
    pub factor: f64,
}

/// A fault that is injected once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InjectedFault {
    /// Trigger of the fault.
    pub at: Trigger,
    /// Kind of the fault.
    pub what: FaultKind,
}

/// Trigger of a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// A time, whatever the adapter does then.
    Time {
        /// Virtual milliseconds.
        ms: f64,
    },
    /// A load of a plan, counted from 0 over all openings.
    Load {
        /// Number of the load.
        number: u64,
    },
    /// A run, counted from 0 over all openings.
    Run {
        /// Number of the run.
        number: u64,
        /// Part of its commands that have run: 0 to 1.
        progress: f64,
    },
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The device is lost, and reports it.
    Lost,
    /// The device hangs: it is lost without a report.
    Hang,
    /// The adapter pauses, and then continues.
    Pause {
        /// Length.
        ms: f64,
    },
    /// The adapter has too little memory for its work, but is not lost.
    OutOfMemory,
}
