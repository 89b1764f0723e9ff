//! Runs the `manyhands` command as a user runs it.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use manyhands::adapters::ADAPTERS_VARIABLE;

fn run(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manyhands"));
    command.current_dir(folder).env(ADAPTERS_VARIABLE, "cpu").env_remove("RUST_LOG").env("XDG_RUNTIME_DIR", folder);
    let output = command.args(line.split_whitespace()).stdin(Stdio::null()).output().unwrap();
    assert!(!text(&output.stderr).contains("panicked"), "{line}: {}", text(&output.stderr));
    output
}

/// Runs a command that must succeed; gives its stdout and stderr.
pub fn outputs(folder: &Path, line: &str) -> (String, String) {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// Runs a command that must succeed; gives its stdout.
pub fn succeed(folder: &Path, line: &str) -> String {
    outputs(folder, line).0
}

/// Runs a command that must fail with an error; gives its stderr.
pub fn refused(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert_eq!(output.status.code(), Some(1), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
