//! Is each file or message with errors in it read, or refused with an error, without a panic or a hang? The command's own tests try
//! settings files, the library's tables of tiles.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes, by the clock of the system")]

mod commands;
#[path = "../common/fuzz.rs"]
mod fuzz;
mod targets;

use targets::TARGETS;

#[test]
fn mutated_inputs_are_read_or_refused() {
    fuzz::watch_all(TARGETS, module_path!(), fuzz::QUICK);
}

#[test]
#[ignore = "a million inputs take many minutes"]
fn a_million_mutated_inputs_are_read_or_refused() {
    fuzz::watch_all(TARGETS, module_path!(), fuzz::FULL);
}

/// The process that is watched.
#[test]
fn child() {
    fuzz::child(TARGETS);
}
