//! Signals that end the command, and what goes on after them.

use std::process::{Child, Command};
use std::time::Instant;

use super::*;
use crate::command::{pause, wait, wait_for};

/// The exit status of a program that Ctrl-C ended.
#[cfg(unix)]
const BY_CTRL_C: i32 = 130;
/// `STATUS_CONTROL_C_EXIT`.
#[cfg(windows)]
const BY_CTRL_C: i32 = 0xC000_013A_u32.cast_signed();

/// Sends Ctrl-C to a command that [`interruptible`] made.
#[cfg(unix)]
fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Sends Ctrl-Break, which Windows can send to one group of processes, to a command that [`interruptible`] made.
#[cfg(windows)]
#[allow(unsafe_code, reason = "the standard library can't send it; the call takes two numbers")]
fn interrupt(child: &Child) {
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GenerateConsoleCtrlEvent(event: u32, group: u32) -> i32;
    }
    const CTRL_BREAK_EVENT: u32 = 1;
    // SAFETY: no memory is passed.
    let is_sent = unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, child.id()) };
    assert!(is_sent != 0, "{}", std::io::Error::last_os_error());
}

fn interruptible(folder: &TempDir, line: &str) -> Command {
    #[allow(unused_mut, reason = "it is changed on Windows")]
    let mut command = command(folder, line);
    #[cfg(windows)]
    {
        const CREATE_NEW_PROCESS_GROUP: u32 = 0x200;
        std::os::windows::process::CommandExt::creation_flags(&mut command, CREATE_NEW_PROCESS_GROUP);
    }
    command
}

fn wait_for_text(folder: &TempDir, name: &str, text: &str) {
    let file = folder.path().join(name);
    let is_there = || fs::read_to_string(&file).is_ok_and(|log| log.contains(text));
    wait_for(&format!("`{text}` in `{name}`"), is_there);
}

#[test]
fn ctrl_c_finishes_the_step_saves_and_goes_on_later() {
    let folder = tempfile::tempdir().unwrap();
    succeed(&folder, "train --quiet --epochs 2 --save whole.safetensors");
    let start = "train --epochs 2 --throttle 0=5 --json a.jsonl --save a.safetensors";
    let mut child = interruptible(&folder, start).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_text(&folder, "a.jsonl", "\"step\":30,");
    interrupt(&child);
    assert_eq!(wait(&mut child).code(), Some(BY_CTRL_C));
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("finishing this step, then saving; Ctrl-C again ends at once"));
    assert!(text(&output.stdout).contains("; saved to `a.safetensors`; continue with `--resume`"));
    let step = Checkpoint::load(&folder.path().join("a.safetensors")).unwrap().progress.step;
    assert!((30..46).contains(&step), "{step}");
    let resumed = succeed(&folder, "train --epochs 2 --resume a.safetensors --json a.jsonl");
    assert!(resumed.contains(&format!("resuming after step {step}, with 1 of 2 epochs done")), "{resumed}");
    check_same(&folder, 46);
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = interruptible(&folder, "train --throttle 0=100000 --save a.safetensors")
        .stdout(fs::File::create(folder.path().join("stdout")).unwrap())
        .stderr(fs::File::create(folder.path().join("stderr")).unwrap())
        .spawn()
        .unwrap();
    // The table of adapters comes when Ctrl-C is caught and the first step begins, which does not end.
    wait_for_text(&folder, "stdout", "memory");
    interrupt(&child);
    wait_for_text(&folder, "stderr", "Ctrl-C again");
    interrupt(&child);
    assert_eq!(wait(&mut child).code(), Some(BY_CTRL_C));
    assert!(!folder.path().join("a.safetensors").exists());
}

/// A run that is under way, and that a signal ends after the step at hand.
#[cfg(unix)]
fn run_under_way(folder: &TempDir, command: &mut Command) -> Child {
    let file = |name: &str| fs::File::create(folder.path().join(name)).unwrap();
    let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap();
    wait_for_text(folder, "a.jsonl", "\"step\":3,");
    child
}

#[cfg(unix)]
fn send(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[cfg(unix)]
const LONG: &str = "train --epochs 50 --throttle 0=3 --json a.jsonl --save a.safetensors";

#[cfg(unix)]
#[test]
fn each_signal_has_its_exit_status() {
    for (signal, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = run_under_way(&folder, &mut command(&folder, LONG));
        send(&child, signal);
        assert_eq!(wait(&mut child).code(), Some(status), "{signal}");
        assert!(Checkpoint::load(&folder.path().join("a.safetensors")).unwrap().progress.step >= 3, "{signal}");
    }
}

/// `nohup` starts a program with the signal ignored.
#[cfg(unix)]
#[test]
fn a_hang_up_that_is_to_be_ignored_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut nohup = program(&folder, "/bin/sh");
    nohup.args(["-c", &format!("trap '' HUP; exec {} {LONG}", env!("CARGO_BIN_EXE_manyhands"))]);
    let mut child = run_under_way(&folder, &mut nohup);
    send(&child, "-HUP");
    let log = fs::read_to_string(folder.path().join("a.jsonl")).unwrap();
    let steps = log.matches("\"kind\":\"step\"").count();
    wait_for_text(&folder, "a.jsonl", &format!("\"step\":{},", steps + 10));
    assert!(child.try_wait().unwrap().is_none());
    send(&child, "-TERM");
    assert_eq!(wait(&mut child).code(), Some(143));
}

/// The run `a` has the bits of `whole`, and its log has each step and epoch once.
fn check_same(folder: &TempDir, steps: u64) {
    let file = |name: &str| folder.path().join(name);
    let (whole, resumed) = (tensors(&file("whole.safetensors")), tensors(&file("a.safetensors")));
    assert_eq!(whole.keys().collect::<Vec<_>>(), resumed.keys().collect::<Vec<_>>());
    for (name, values) in &whole {
        assert!(values == &resumed[name], "`{name}` differs");
    }
    let log = json_lines(folder, "a.jsonl");
    let of = |kind: &str, key: &str| -> Vec<u64> {
        log.iter().filter(|line| line["kind"] == kind).map(|line| line[key].as_u64().unwrap()).collect()
    };
    assert_eq!(of("step", "step"), (1..=steps).collect::<Vec<_>>());
    assert_eq!(of("epoch", "epoch"), (1..=steps / 23).collect::<Vec<_>>());
}

/// Ends runs at `ends` moments, resumes each, and compares with the run that nobody ended.
#[allow(clippy::disallowed_methods, reason = "a test stands outside the engine: it has a clock")]
fn end_and_resume(ends: u32, save_every: u32, end: fn(&mut Child)) {
    let folder = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    succeed(&folder, "train --quiet --epochs 3 --save whole.safetensors");
    let whole_ms = u64::try_from(begin.elapsed().as_millis()).unwrap();
    let file = folder.path().join("a.safetensors");
    let common = format!("train --quiet --epochs 3 --json a.jsonl --save a.safetensors --save-every {save_every}");
    let (mut ended, mut random) = (0, 12345_u64 + u64::from(save_every));
    while ended < ends {
        let line = if file.exists() { format!("{common} --resume") } else { format!("{common} --overwrite") };
        let mut child = command(&folder, &line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        pause(20 + (random >> 33) % whole_ms);
        end(&mut child);
        let output = child.wait_with_output().unwrap();
        let errors = text(&output.stderr);
        assert!(errors.is_empty() || errors.contains("finishing this step, then saving"), "{errors}");
        if output.status.success() {
            // It was faster than the signal: the result counts, and a new run begins.
            check_same(&folder, 69);
            fs::remove_file(&file).unwrap();
            continue;
        }
        ended += 1;
        if file.exists() {
            Checkpoint::load(&file).unwrap();
            Model::load(&file).unwrap();
        }
    }
    let line = if file.exists() { format!("{common} --resume") } else { format!("{common} --overwrite") };
    succeed(&folder, &line);
    check_same(&folder, 69);
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
}

#[test]
fn a_killed_run_resumes_to_the_same_bits() {
    end_and_resume(3, 1, kill);
    end_and_resume(3, 2, kill);
    end_and_resume(2, 3, kill);
}

#[test]
#[ignore = "takes minutes"]
fn a_run_killed_two_hundred_times_resumes_to_the_same_bits() {
    end_and_resume(70, 1, kill);
    end_and_resume(70, 2, kill);
    end_and_resume(60, 3, kill);
}

#[cfg(unix)]
#[test]
#[ignore = "takes minutes"]
fn a_run_interrupted_a_hundred_times_resumes_to_the_same_bits() {
    let interrupt = |child: &mut Child| {
        // It may have come to its end.
        Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    };
    end_and_resume(40, 1, interrupt);
    end_and_resume(40, 2, interrupt);
    end_and_resume(20, 3, interrupt);
}
