//! Files and messages with errors in them: each is read or refused with an error. None panics, aborts, hangs, or takes
//! more than 1 GB.
//!
//! Every target runs in a process of its own, which the test watches. A failure names the target and the input's number;
//! `MANYHANDS_FUZZ_FIRST=<number>` begins there, and the input itself is left in `target/fuzz/`. What failed once stands
//! in `tests/fuzz/<target>/` and is tried first.

#![cfg(feature = "files")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes, by the clock of the system")]

#[path = "common/mutate.rs"]
mod mutate;
#[path = "fuzz/targets.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use targets::{TARGETS, Target};

/// Inputs of each target in the quick tier.
const QUICK: u64 = 2_000;
/// Inputs of each target in the full tier: more than a million of all.
const FULL: u64 = 100_000;
/// A process that tries no new input for so long hangs.
const HANG: Duration = Duration::from_secs(30);
const MOST_KB: u64 = 1_000_000;

/// Which target the child runs, how many inputs, and where it writes how far it has come.
const CHILD: &str = "MANYHANDS_FUZZ_CHILD";
const FIRST: &str = "MANYHANDS_FUZZ_FIRST";

#[test]
fn mutated_inputs_are_read_or_refused() {
    watch_all(QUICK);
}

#[test]
#[ignore = "a million inputs take many minutes"]
fn a_million_mutated_inputs_are_read_or_refused() {
    watch_all(FULL);
}

/// The process that [`watch`] starts: on its own it does nothing.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let (name, count) = task.split_once(' ').unwrap();
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let folder = folder(name);
    let mut seeds = (target.seeds)();
    for (number, input) in (0..).zip(known(name)) {
        try_input(target, &folder, &format!("known {number}"), &input);
    }
    seeds.extend(known(name));
    for (number, seed) in (0..).zip(&seeds) {
        try_input(target, &folder, &format!("seed {number}"), seed);
    }
    let first = std::env::var(FIRST).map_or(0, |first| first.parse().unwrap());
    for number in first..first + count.parse::<u64>().unwrap() {
        try_input(target, &folder, &number.to_string(), &mutate::mutated(&seeds, number));
    }
    fs::write(folder.join("number"), "done").unwrap();
}

/// Leaves the input where the watching process finds it, then tries it.
fn try_input(target: &Target, folder: &Path, number: &str, input: &[u8]) {
    fs::write(folder.join("input"), input).unwrap();
    fs::write(folder.join("number"), number).unwrap();
    (target.run)(input, folder);
}

fn folder(target: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join(target);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Inputs that failed once.
fn known(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz").join(target);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs all targets, so that one that fails hides none.
fn watch_all(count: u64) {
    let problems: Vec<String> = TARGETS.iter().filter_map(|target| watch(target, count)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// Runs a target in a process of its own; what is wrong, if that process does not come to its end as it should.
fn watch(target: &Target, count: u64) -> Option<String> {
    let folder = folder(target.name);
    fs::write(folder.join("number"), "start").unwrap();
    let log = fs::File::create(folder.join("log")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads", "1"])
        .env(CHILD, format!("{} {count}", target.name))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let problem = wait(&mut child, &folder);
    let number = fs::read_to_string(folder.join("number")).unwrap();
    if problem.is_none() && number == "done" {
        return None;
    }
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let log: Vec<&str> = log.lines().rev().take(12).collect();
    Some(format!(
        "`{}`, input {number} (in `{}`): {}\n{}",
        target.name,
        folder.join("input").display(),
        problem.unwrap_or_else(|| "the process ended".into()),
        log.into_iter().rev().collect::<Vec<_>>().join("\n")
    ))
}

/// What is wrong with the process, once it has ended or was ended.
fn wait(child: &mut Child, folder: &Path) -> Option<String> {
    let mut last = (String::new(), Instant::now());
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (!status.success()).then(|| format!("the process ended with {status}"));
        }
        let number = fs::read_to_string(folder.join("number")).unwrap_or_default();
        let problem = if number != last.0 {
            last = (number, Instant::now());
            None
        } else {
            (last.1.elapsed() > HANG).then(|| format!("nothing came of it for {} s", HANG.as_secs()))
        };
        let problem = problem.or_else(|| {
            let kb = peak_kb(child.id())?;
            (kb > MOST_KB).then(|| format!("the process took {} MB", kb / 1000))
        });
        if problem.is_some() {
            child.kill().unwrap();
            child.wait().unwrap();
            return problem;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Most memory that a process ever took, where the system tells.
fn peak_kb(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
