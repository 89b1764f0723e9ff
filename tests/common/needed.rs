//! What a test needs of the machine: it is there, or the test fails. `MANYHANDS_ALLOW_SKIP=1` lets it be skipped.

#![allow(dead_code, clippy::expect_used, reason = "each test takes what it needs, and panics")]

use std::io::Write;

use manyhands::adapters::{Info, Kind, list};

/// Fails for want of something, unless `MANYHANDS_ALLOW_SKIP` is 1: then it says what does not run.
pub fn missing(what: &str) {
    let is_allowed = std::env::var("MANYHANDS_ALLOW_SKIP").is_ok_and(|value| value == "1");
    assert!(is_allowed, "{what}\n  help: install it, or set MANYHANDS_ALLOW_SKIP=1 to leave out what needs it");
    // Not `eprintln!`, which the test harness hides when a test passes.
    writeln!(std::io::stderr(), "NOT RUN: {what}").expect("the error output can be written");
}

/// The GPUs and software adapters of this machine: at least one, and each whose name has a part that
/// `MANYHANDS_EXPECT_ADAPTERS` lists.
pub fn gpus() -> Vec<Info> {
    let gpus: Vec<Info> = list().into_iter().filter(|info| info.kind != Kind::Cpu).collect();
    let expected = std::env::var("MANYHANDS_EXPECT_ADAPTERS").unwrap_or_default();
    for part in expected.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if !gpus.iter().any(|info| info.name.to_lowercase().contains(&part.to_lowercase())) {
            missing(&format!("the adapter `{part}` is expected, but not there"));
        }
    }
    if gpus.is_empty() {
        missing("no GPU or software adapter here: `scripts/setup-adapters` installs two");
    }
    gpus
}

/// The indices of [`gpus`], as a choice of adapters names them.
pub fn gpu_indices() -> Vec<String> {
    gpus().iter().map(|info| info.index.to_string()).collect()
}
