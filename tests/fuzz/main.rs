//! Files and messages with errors in them: each is read or refused with an error. Settings files are tried by the command's
//! own tests, tables of tiles by the library's.

#![cfg(feature = "files")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes, by the clock of the system")]

#[cfg(feature = "cli")]
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
