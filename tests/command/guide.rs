//! Do the commands of the guide run as they stand there, and do the documents' links lead somewhere?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use crate::command::{outputs_of, program};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Paths and texts of the documents in a folder, in order.
fn documents(folder: &str) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension() == Some("md".as_ref())).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The blocks of code of a language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// The variable `PATH` with the folder of the command before all others.
fn path_with_the_command() -> OsString {
    let command = Path::new(env!("CARGO_BIN_EXE_manyhands")).parent().unwrap().to_owned();
    let others = env::var_os("PATH").unwrap_or_default();
    env::join_paths(std::iter::once(command).chain(env::split_paths(&others))).unwrap()
}

/// Each page in a folder of its own, with the repository's examples at hand.
#[test]
#[cfg(unix)]
fn the_commands_of_the_guide_run() {
    let mut ran = 0;
    for (page, text) in documents("docs/guide") {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root().join("examples"), folder.path().join("examples")).unwrap();
        for block in blocks(&text, "sh") {
            ran += 1;
            let (stdout, stderr) =
                outputs_of(program(&folder, "sh").env("PATH", path_with_the_command()).args(["-ec", block]));
            assert!(!stdout.is_empty() || !stderr.is_empty(), "{}: {block}", page.display());
        }
        if page.ends_with("how-a-step-works.md") {
            let [one, three] = ["one.jsonl", "three.jsonl"].map(|log| losses(&folder.path().join(log)));
            assert!(one.len() > 5 && one.len() == three.len());
            assert!(one.iter().zip(&three).all(|(one, three)| (one - three).abs() < 1e-4 * one.max(1.0)));
        }
    }
    assert!(ran >= 7, "{ran} blocks");
}

/// What stands for the lines of README that build: the command that is built, and these tests themselves.
const BUILT: [(&str, &str); 2] =
    [("cargo run --release -- train", "manyhands train"), ("scripts/test", "manyhands --version")];

/// README as a new user follows it, on a machine without a GPU. Its program in Rust is a doc test, `include_str!` in `src/lib.rs`, its
/// program in Python a test of `python/tests/test_docs.py`.
#[test]
#[cfg(unix)]
fn the_commands_of_the_readme_run_without_a_gpu() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(fs::read_to_string(root().join("src/lib.rs")).unwrap().contains("#[doc = include_str!(\"../README.md\")]"));
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), folder.path().join("examples")).unwrap();
    let run = |line: &str| {
        let mut shell = program(&folder, "sh");
        shell.env("PATH", path_with_the_command()).env_remove(manyhands::adapters::ADAPTERS_VARIABLE);
        // No driver of Vulkan or OpenGL is found.
        for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"] {
            shell.env(variable, "/nonexistent");
        }
        outputs_of(shell.args(["-ec", line])).0
    };
    let listed: Vec<serde_json::Value> = serde_json::from_str(&run("manyhands adapters --json")).unwrap();
    assert!(listed.iter().all(|adapter| adapter["kind"] == "cpu" || adapter["kind"] == "software"), "{listed:?}");
    let lines: Vec<&str> =
        blocks(&readme, "sh").into_iter().flat_map(str::lines).filter(|line| !line.is_empty()).collect();
    assert!(lines.len() >= 5 && BUILT.iter().all(|(line, _)| lines.contains(line)), "{lines:?}");
    for line in lines {
        let built = BUILT.iter().find(|(built, _)| *built == line).map_or(line, |(_, command)| command);
        assert!(!built.contains("cargo"), "`{built}` builds: name what stands for it");
        assert!(!run(built).is_empty(), "{line}");
    }
    assert!(run("manyhands train --adapters all --epochs 1 --save all.safetensors").contains("CPU"));
}

fn losses(log: &Path) -> Vec<f64> {
    let text = fs::read_to_string(log).unwrap();
    text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].as_f64()).collect()
}

/// The name that a heading has in a link: small letters, hyphens for spaces, no other signs.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|sign| sign.is_alphanumeric() || "-_".contains(*sign)).collect()
}

#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    let mut checked = 0;
    for (page, text) in ["", "docs", "docs/guide", "docs/design", "python"].into_iter().flat_map(documents) {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.contains(' ') || target.contains('`') {
                continue;
            }
            checked += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(path.exists(), "{}: `{target}` is not there", page.display());
            let is_there = |text: String| {
                text.lines().any(|line| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading)
            };
            assert!(
                heading.is_empty() || is_there(fs::read_to_string(&path).unwrap()),
                "{}: `{target}` names no heading",
                page.display()
            );
        }
    }
    assert!(checked > 50, "{checked} links");
}
