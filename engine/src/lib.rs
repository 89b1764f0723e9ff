//! The engine of manyhands: kernels with their shaders and twins, plans, and the adapters that run them.
//!
//! **Unstable.** These are the parts that the library, the command, the page and this repository's tests share. Names and
//! behaviour change with any version, without a line in the changelog. Programs use the crate `manyhands`, which promises
//! its API; authors of layers find what they need in its module `extend`.

// Files: `adapters/`: what runs plans; `kernels/`: each kernel's bindings, twin, fast version and cases; `plan.rs`, `plan/`: all work as
// data; `runtime/`: clock, threads and timers, where native and browser differ; `files/`: the one place that writes files; `error.rs`:
// the error of all packages; `reading/`: values of settings files; `kind.rs`, `names.rs`: kinds by name; `described.rs`: their schemas;
// `packed.rs`: weights in few bits; `shape.rs`, `size.rs`: shapes and sizes; `shown.rs`, `table.rs`: texts and tables for people; `timing.rs`: medians and ratios.

pub mod adapters;
#[cfg(feature = "schema")]
pub mod described;
pub mod error;
pub mod files;
#[cfg_attr(
    target_arch = "wasm32",
    allow(dead_code, unused_variables, reason = "the cases of kernels are no part of a page")
)]
pub mod kernels;
pub mod kind;
pub mod names;
pub mod packed;
pub mod plan;
pub mod reading;
pub mod runtime;
pub mod shape;
pub mod shown;
pub mod size;
pub mod table;
pub mod timing;

pub use error::{Error, ErrorKind, Result};
pub use shape::Shape;
pub use shown::{shown, thousands};
