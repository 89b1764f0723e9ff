//! Runs the `manyhands` command as a user runs it: on the CPU adapter, without a terminal.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes, by the clock of the system")]

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use manyhands::adapters::ADAPTERS_VARIABLE;

/// The command, where the package that it belongs to builds the tests.
const COMMAND: Option<&str> = option_env!("CARGO_BIN_EXE_manyhands");

/// How long a test waits for a process.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs another program in a folder, with the environment of [`command`].
pub fn program(folder: impl AsRef<Path>, program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&folder).env(ADAPTERS_VARIABLE, "cpu").env_remove("RUST_LOG").stdin(Stdio::null());
    // Without it, libraries under the GPU drivers write to stderr themselves.
    command.env("XDG_RUNTIME_DIR", folder.as_ref());
    command
}

/// The command in a folder, with the arguments of a line; spaces separate them.
pub fn command(folder: impl AsRef<Path>, line: &str) -> Command {
    let mut command = program(folder, COMMAND.unwrap());
    command.args(line.split_whitespace());
    command
}

/// Runs a command to its end. It may fail, but not panic.
pub fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(!text(&output.stderr).contains("panicked"), "{command:?}: {}", text(&output.stderr));
    output
}

/// Runs a line that may fail.
pub fn run(folder: impl AsRef<Path>, line: &str) -> Output {
    output(&mut command(folder, line))
}

/// Runs a command that must succeed; gives its stdout and stderr.
pub fn outputs_of(command: &mut Command) -> (String, String) {
    let output = output(command);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {stdout}{stderr}");
    (stdout, stderr)
}

/// Runs a line that must succeed; gives its stdout and stderr.
pub fn outputs(folder: impl AsRef<Path>, line: &str) -> (String, String) {
    outputs_of(&mut command(folder, line))
}

/// Runs a line that must succeed; gives its stdout.
pub fn succeed(folder: impl AsRef<Path>, line: &str) -> String {
    outputs(folder, line).0
}

/// Runs a command that must fail with one message of the crate's form, an error and a help; gives its stderr.
pub fn refused_of(command: &mut Command) -> String {
    let output = output(command);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{command:?}: {}{error}", text(&output.stdout));
    for start in ["error: ", "  help: "] {
        let lines = error.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(lines, 1, "{command:?} has {lines} lines that start with `{start}`: {error}");
    }
    error
}

/// Runs a line that must fail with one message of the crate's form; gives its stderr.
pub fn refused(folder: impl AsRef<Path>, line: &str) -> String {
    refused_of(&mut command(folder, line))
}

/// What a program printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until something is so, with a limit.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what} never comes");
        pause(5);
    }
}

/// Waits for a process to end, with a limit.
pub fn wait(child: &mut Child) -> ExitStatus {
    let mut ended = None;
    wait_for("the end of the command", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap()
}

/// Waits for so many milliseconds.
pub fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
