//! Measurements of manyhands on real adapters, for `manyhands bench`, the page and the benches.
//!
//! Compared runs alternate, so that other work on the machine affects all of them, and results are medians.
//!
//! | question | module |
//! | --- | --- |
//! | how near is each kernel to the adapter's peak? | [`kernels`], with the peaks of [`machine`] |
//! | where does the time of a training step go? | [`steps`] |
//! | how fast are 1 to N adapters together? | [`scaling`] |
//! | what are the simulator's inputs for each adapter? | [`speeds`] |

// Other files: `workloads.rs`: models and their training, for every bench and the compared programs; `rig.rs`: adapters whose steps are
// timed; `peak.wgsl`: chains of multiply-adds; `report.rs`: tables and JSON.

#[cfg(not(target_arch = "wasm32"))]
pub mod kernels;
#[cfg(not(target_arch = "wasm32"))]
pub mod machine;
pub mod report;
pub mod rig;
pub mod scaling;
pub mod speeds;
#[cfg(not(target_arch = "wasm32"))]
pub mod steps;
pub mod workloads;

use self::rig::{Data, RigAdapter, Turn};
use self::workloads::Workload;
use manyhands::scheduler::split::SplitMode;
use manyhands_engine::error::Result;
use manyhands_engine::plan::{BatchStatistics, GradientCompression, Precision};

/// Settings of a measurement: models, adapters, number of runs.
#[derive(Clone, Debug)]
pub struct BenchSettings {
    /// The adapters, in the order in which they join.
    pub members: Vec<RigAdapter>,
    /// Names of models.
    pub models: Vec<String>,
    /// Number of measurements of each rig.
    pub rounds: u32,
    /// Training steps of a turn that count.
    pub steps: u32,
    /// Rows of a batch; the model's own by default.
    pub batch_size: Option<u32>,
    /// Source of the rows.
    pub data: Data,
    /// Division of a batch over several adapters.
    pub split: SplitMode,
    /// Format of gradients in a second rig, beside the one that sends 32-bit floats.
    pub gradient_compression: GradientCompression,
    /// Batch statistics of a second rig of several adapters, beside the one with their defaults.
    pub batch_statistics: BatchStatistics,
    /// Micro-batches of second rigs, beside those that compute their rows at once; 1 for none.
    pub micro_batches: u32,
    /// Floats that products multiply in second rigs, beside those that multiply 32-bit floats.
    pub precision: Precision,
}

impl BenchSettings {
    /// Each model, one after the other, with its batch size.
    ///
    /// # Errors
    /// Before the first, if a name is none of [`workloads::names`].
    pub fn workloads(&self) -> Result<impl Iterator<Item = Result<Workload>>> {
        for name in &self.models {
            workloads::check(name)?;
        }
        Ok(self.models.iter().map(|name| {
            let workload = workloads::by_name(name)?;
            let batch_size = self.batch_size.unwrap_or(workload.batch_size);
            Ok(Workload { batch_size, ..workload })
        }))
    }

    /// The turns of a rig, one a round. In the first, shares and kernels are still chosen.
    fn turns(&self) -> impl Iterator<Item = Turn> {
        let warm_up = |round| if round == 0 { FIRST_WARM_UP } else { WARM_UP };
        (0..self.rounds).map(move |round| Turn::new(warm_up(round), self.steps).lasting(LEAST_MS))
    }
}

/// Warm-up steps of a turn, which do not count.
const WARM_UP: u32 = 2;
const FIRST_WARM_UP: u32 = 6;
/// Milliseconds of a warm-up, and of the steps that count, at least.
const LEAST_MS: f64 = 100.0;
