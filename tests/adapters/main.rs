//! Adapters: their list, their contract, their choice of tiles, drivers that do wrong. Tests that count what the process creates stand here,
//! and run one at a time ([`alone::alone`]).

#[cfg(feature = "gpu")]
#[path = "../common/alone.rs"]
mod alone;
#[cfg(feature = "gpu")]
#[path = "../common/close.rs"]
mod close;
#[cfg(all(feature = "gpu", target_os = "linux"))]
#[path = "../common/command.rs"]
mod command;
#[cfg(feature = "gpu")]
#[path = "../common/needed.rs"]
mod needed;

mod contract;
mod drivers;
mod list;
mod profile;
mod split_sums;
mod tuning;
