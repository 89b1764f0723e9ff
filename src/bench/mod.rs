//! What is measured of this crate, and how: `manyhands bench` shows it.
//!
//! Rigs that are compared take turns, so that other work on the machine hits all alike, and medians count.

pub mod models;
