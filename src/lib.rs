//! Train one network on every GPU in the machine, whatever its vendor, without CUDA.

pub mod adapters;
pub mod data;
pub mod error;
pub mod kernels;
pub mod plan;
pub mod runtime;
mod shape;

pub use error::{Error, Result};
pub use shape::Shape;
