//! The adapters of the machine: GPUs, the CPU, and drivers that compute on the CPU.
//!
//! An adapter runs training steps and predictions, and does not depend on other adapters. [`list()`] lists them,
//! and [`choose`] picks some by index, kind or name, as the environment variable `MANYHANDS_ADAPTERS` and
//! [`Trainer::adapters`](crate::Trainer::adapters) do:
//!
//! | text | adapters |
//! | --- | --- |
//! | empty | every GPU, or the CPU where there is none |
//! | `all` | every GPU, or the CPU where there is none |
//! | `gpu` | every GPU |
//! | `discrete`, `integrated` | the GPUs of a kind |
//! | `cpu` | this crate's CPU adapter, which is always there |
//! | `software` | drivers that compute on the CPU: lavapipe, SwiftShader, WARP |
//! | `0`, `1` | by index in [`list()`] |
//! | `nvidia`, `radeon` | all whose name contains it |
//!
//! Commas separate several; an adapter named twice is opened twice. [`Trainer::on`](crate::Trainer::on) takes a list of
//! your own.
//!
//! ```
//! use manyhands::adapters;
//! # fn main() -> manyhands::Result<()> {
//! let chosen = adapters::choose(&adapters::list(), "cpu,cpu")?;
//! assert_eq!(chosen.len(), 2);
//! # Ok(())
//! # }
//! ```

#[cfg(not(target_arch = "wasm32"))]
pub use manyhands_engine::adapters::list;
pub use manyhands_engine::adapters::{ADAPTERS_VARIABLE, Info, Kind, MemoryLimits, choose, list_async};
