//! Do the texts for other programs cover every command: completions, manual pages, schemas?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;

use serde_json::Value;

use crate::command::{refused, run, succeed};

const COMMANDS: [&str; 8] = ["adapters", "bench", "evaluate", "predict", "report", "simulate", "summary", "train"];

#[test]
fn completions_know_every_command_and_flag() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = succeed(&folder, &format!("completions {shell}"));
        for word in COMMANDS.into_iter().chain(["manyhands", "dry-run", "tensorboard"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(&folder, "completions tcsh").status.code(), Some(2));
    // Where it is there, the shell itself reads its script.
    if let Ok(bash) = std::process::Command::new("bash").arg("--version").output()
        && bash.status.success()
    {
        fs::write(folder.path().join("script"), succeed(&folder, "completions bash")).unwrap();
        let complete = "source ./script; COMP_WORDS=(manyhands tra); COMP_CWORD=1; _manyhands manyhands tra manyhands; echo \"${COMPREPLY[@]}\"";
        let done = std::process::Command::new("bash").args(["-c", complete]).current_dir(&folder).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "train", "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = succeed(&folder, "man");
    assert!(page.contains(".TH manyhands 1") && page.contains("Exit status: 0 success"), "{page}");
    for _ in 0..2 {
        succeed(&folder, "man pages");
    }
    for command in COMMANDS {
        let page = fs::read_to_string(folder.path().join(format!("pages/manyhands-{command}.1"))).unwrap();
        assert!(page.contains(&format!(".TH manyhands-{command} 1")), "{page}");
    }
    fs::write(folder.path().join("pages/manyhands-train.1"), "mine").unwrap();
    assert!(refused(&folder, "man pages").contains("needs to be a manual page of manyhands or a new file"));
}

#[test]
fn schemas_are_json() {
    let folder = tempfile::tempdir().unwrap();
    let schema = |of: &str| serde_json::from_str::<Value>(&succeed(&folder, &format!("schema {of}"))).unwrap();
    assert!(schema("")["properties"]["training"]["properties"]["epochs"]["description"].is_string());
    assert_eq!(schema("settings"), schema(""));
    assert_eq!(schema("log")["anyOf"][0]["title"], "step");
}

#[test]
fn the_version_is_that_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(succeed(&folder, "--version"), concat!("manyhands ", env!("CARGO_PKG_VERSION"), "\n"));
}
