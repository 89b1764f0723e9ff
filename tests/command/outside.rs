//! Does the front page's program for a table build and run in a package of its own, with one `use`?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The program below a heading of the documentation of the crate, with the lines that its page hides.
fn program_below(heading: &str) -> String {
    let front = fs::read_to_string(Path::new(ROOT).join("src/lib.rs")).unwrap();
    let below = front.split(&format!("//! # {heading}\n")).nth(1).unwrap();
    let code = below.split("//! ```").nth(1).unwrap();
    let lines = code.lines().map(|line| line.strip_prefix("//!").unwrap_or(line).trim_start_matches(" #").trim_start());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
#[ignore = "builds the library anew"]
fn a_package_outside_builds_the_front_page() {
    let folder = tempfile::tempdir().unwrap();
    let program = program_below("A table");
    assert_eq!(program.matches("use manyhands").count(), 1, "{program}");
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/main.rs"), program).unwrap();
    // Without GPUs, which the program does not name, it builds in a minute.
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies.manyhands]\npath = {ROOT:?}\n\
         default-features = false\nfeatures = [\"files\"]\n\n[workspace]\n"
    );
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    // The versions that all other tests have.
    fs::copy(Path::new(ROOT).join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    std::os::unix::fs::symlink(Path::new(ROOT).join("examples"), folder.path().join("examples")).unwrap();
    let mut cargo = Command::new("cargo");
    let done = cargo
        .args(["run", "--quiet"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.path().join("target"))
        .output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
