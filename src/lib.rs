//! Train one network on every GPU in the machine, whatever its vendor, without CUDA.

pub mod adapters;
pub mod bench;
pub mod data;
pub mod error;
pub mod files;
#[cfg_attr(
    target_arch = "wasm32",
    allow(dead_code, unused_variables, reason = "the cases of kernels are no part of a page")
)]
pub mod kernels;
pub mod kind;
pub mod layers;
pub mod losses;
pub mod misread;
pub mod model;
pub mod names;
pub mod optimizers;
pub mod plan;
pub mod runtime;
pub mod scheduler;
pub mod schema;
mod shape;
mod shown;
pub mod simulator;
pub mod size;
pub mod table;
pub mod trainer;

pub use error::{Error, Result};
pub use losses::{Loss, Metric, Reduction};
pub use model::{Model, ModelBuilder, ModelConfig, Sequential};
pub use optimizers::{Optimizer, Schedule};
pub use plan::{BatchStatistics, GradientCompression};
pub use schema::Schema;
pub use shape::Shape;
pub use shown::{Shown, shown, thousands};
pub use trainer::{Checkpoint, Compile, Fit, History, Predictor, Trainer};

/// The code of the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
