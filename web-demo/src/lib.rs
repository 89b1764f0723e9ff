//! The engine as the worker of a page: it listens to the page, drives the crate's own trainer, and tells what happens.
//!
//! There is no engine logic here. `www/messages.js` says what page and worker tell each other.

pub mod messages;
pub mod models;

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
