//! Reading what has errors in it: each input is read or refused with an error. None panics, aborts, hangs, or takes more
//! than 1 GB.
//!
//! Every target runs in a process of its own, which the test watches. A failure names the target and the input's number;
//! `MANYHANDS_FUZZ_FIRST=<number>` begins there, and the input itself is left in `target/tmp/fuzz/`. What failed once
//! stands in `tests/fuzz/<target>/` and is tried first.

#[path = "mutate.rs"]
mod mutate;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Inputs of each target in the quick tier.
pub const QUICK: u64 = 2_000;
/// Inputs of each target in the full tier: more than a million of all.
pub const FULL: u64 = 100_000;
/// A process that tries no new input for so long hangs.
const HANG: Duration = Duration::from_secs(30);
const MOST_KB: u64 = 1_000_000;

/// Which target the child runs, how many inputs, and where it begins.
const CHILD: &str = "MANYHANDS_FUZZ_CHILD";
const FIRST: &str = "MANYHANDS_FUZZ_FIRST";

/// Something that reads what may have errors in it.
pub struct Target {
    pub name: &'static str,
    /// Whole inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads an input, with a folder for files.
    pub run: fn(&[u8], &Path),
}

/// What the test `child` of each file with targets calls. On its own it does nothing: [`watch_all`] starts it.
pub fn child(targets: &[Target]) {
    let Ok(task) = std::env::var(CHILD) else { return };
    let (name, count) = task.split_once(' ').unwrap();
    let target = targets.iter().find(|target| target.name == name).unwrap();
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
    write(&folder.join("number"), b"done");
}

/// Writes a file over what it held. `fs::write` empties it first, and some systems then wait for the disk.
pub fn write(path: &Path, bytes: &[u8]) {
    let mut file = fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(u64::try_from(bytes.len()).unwrap()).unwrap();
}

/// Leaves the input where the watching process finds it, then tries it.
fn try_input(target: &Target, folder: &Path, number: &str, input: &[u8]) {
    write(&folder.join("input"), input);
    write(&folder.join("number"), number.as_bytes());
    (target.run)(input, folder);
}

/// The folder of the target that this process runs.
#[allow(dead_code, reason = "not every program's targets keep files from one input to the next")]
pub fn own_folder() -> PathBuf {
    let task = std::env::var(CHILD).unwrap();
    folder(task.split_once(' ').unwrap().0)
}

fn folder(target: &str) -> PathBuf {
    // The program stands in `target/debug/deps`.
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(3).unwrap().join("tmp/fuzz").join(target);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Inputs that failed once.
fn known(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/fuzz").join(target);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs all targets, as many at a time as there are cores. One that fails hides no other. `module` is the caller's `module_path!()`, with the test `child`.
pub fn watch_all(targets: &[Target], module: &str, count: u64) {
    let child = module.split_once("::").map_or("child".to_owned(), |(_, module)| format!("{module}::child"));
    let (next, problems) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let watch_some = || {
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let problem = watch(target, &child, count);
            problems.lock().unwrap().extend(problem);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores.min(targets.len())).for_each(|_| drop(scope.spawn(watch_some))));
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// Runs a target in a process of its own; what is wrong, if that process does not come to its end as it should.
fn watch(target: &Target, child: &str, count: u64) -> Option<String> {
    let folder = folder(target.name);
    write(&folder.join("number"), b"start");
    let log = fs::File::create(folder.join("log")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture", "--test-threads", "1"])
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
