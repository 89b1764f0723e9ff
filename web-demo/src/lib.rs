//! The engine as the worker of a page: it receives requests, drives the crate's own trainer, and sends events.
//!
//! There is no engine logic here. `messages.rs` defines the messages between page and worker.

pub mod logs;
pub mod messages;
pub mod models;
pub mod settings;
pub mod simulation;
pub mod stages;
pub mod tasks;
#[cfg(test)]
mod types;
#[cfg(test)]
mod typescript;
pub mod writing;

#[cfg(all(target_arch = "wasm32", feature = "bench"))]
#[path = "../bench/bench.rs"]
mod bench;
#[cfg(target_arch = "wasm32")]
mod cpu;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(target_arch = "wasm32")]
mod rig;
#[cfg(target_arch = "wasm32")]
mod training;
#[cfg(target_arch = "wasm32")]
mod worker;
