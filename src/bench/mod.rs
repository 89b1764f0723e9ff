//! What is measured of this crate, and how: `manyhands bench` shows it.
//!
//! What is compared takes turns, so that other work on the machine hits all alike, and medians count.
//!
//! | question | module |
//! | --- | --- |
//! | how near is each kernel to what the adapter can do? | [`kernels`], with the peaks of [`machine`] |
//! | where does the time of a training step go? | [`steps`] |
//! | what do 1 to N adapters do together? | [`scaling`], drawn by [`plot`] |

#[cfg(not(target_arch = "wasm32"))]
pub mod kernels;
#[cfg(not(target_arch = "wasm32"))]
pub mod machine;
pub mod models;
#[cfg(all(not(target_arch = "wasm32"), feature = "cli"))]
pub mod plot;
#[cfg(not(target_arch = "wasm32"))]
pub mod report;
#[cfg(not(target_arch = "wasm32"))]
pub mod rig;
#[cfg(not(target_arch = "wasm32"))]
pub mod scaling;
#[cfg(not(target_arch = "wasm32"))]
pub mod steps;

#[cfg(not(target_arch = "wasm32"))]
pub use native::{Settings, median};

/// What goes for every measurement of training steps.
#[cfg(not(target_arch = "wasm32"))]
mod native {
    use super::models::{self, Workload};
    use super::rig::{Data, Seat, Turn};
    use crate::error::Result;
    use crate::plan::{BatchStatistics, GradientCompression};
    use crate::scheduler::split::SplitMode;

    /// What is trained on what, and how often.
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// The adapters, in the order in which they join.
        pub seats: Vec<Seat>,
        /// Names of models.
        pub models: Vec<String>,
        /// How often each rig has its turn.
        pub rounds: u32,
        /// Training steps of a turn that count.
        pub steps: u32,
        /// Rows of a batch; the model's own if nothing is said.
        pub batch_size: Option<u32>,
        /// Where rows come from.
        pub data: Data,
        /// How several adapters share a batch.
        pub split: SplitMode,
        /// What gradients are on their way, in a rig beside the one where they are whole.
        pub gradient_compression: GradientCompression,
        /// Whose batch statistics several adapters take, in a rig beside the one with their defaults.
        pub batch_statistics: BatchStatistics,
    }

    impl Settings {
        /// Each model, one after the other, with the batch size that is to be used.
        ///
        /// # Errors
        /// Before the first, if a name is none of [`models::names`].
        pub fn workloads(&self) -> Result<impl Iterator<Item = Result<Workload>>> {
            for name in &self.models {
                models::check(name)?;
            }
            Ok(self.models.iter().map(|name| {
                let workload = models::by_name(name)?;
                let batch_size = self.batch_size.unwrap_or(workload.batch_size);
                Ok(Workload { batch_size, ..workload })
            }))
        }

        /// The turn of a rig. In the first, shares and kernels are still chosen.
        pub(super) fn turn(&self, round: u32) -> Turn {
            Turn { warm_up: if round == 0 { FIRST_WARM_UP } else { WARM_UP }, counted: self.steps }
        }

        /// The adapters without those that are the same as one before.
        pub(super) fn distinct(&self) -> Vec<Seat> {
            let mut distinct: Vec<Seat> = Vec::new();
            for seat in &self.seats {
                if !distinct.contains(seat) {
                    distinct.push(seat.clone());
                }
            }
            distinct
        }
    }

    /// Training steps of a turn before those that count.
    const WARM_UP: u32 = 2;
    const FIRST_WARM_UP: u32 = 6;

    /// The middle of some numbers, the upper one of two; 0 of none.
    pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }
}
