//! The scheduler on simulated adapters, in virtual time. Needs no adapter.

#[path = "../common/close.rs"]
mod close;
#[path = "../common/simulated.rs"]
mod simulated;

mod cards;
mod crowded;
mod faults;
mod fewer;
mod machines;
mod placement;
mod properties;
mod samples;
mod simulator;
mod split;
