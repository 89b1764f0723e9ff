//! Does `manyhands doctor` say what is wrong with this machine, to people and to programs? Planted faults are tried beside
//! its code, in `cli/src/doctor/probe.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use manyhands::adapters::ADAPTERS_VARIABLE;
use serde_json::Value;

use crate::command::{command, outputs, outputs_of, refused, run, text};
use crate::needed;

#[test]
fn a_good_adapter_is_called_good() {
    let folder = tempfile::tempdir().unwrap();
    let (shown, noted) = outputs(&folder, "doctor --adapters cpu");
    assert!(noted.starts_with("trying adapter 0 `CPU"), "{noted}");
    assert!(shown.contains("verdict") && shown.lines().any(|line| line.ends_with("good")), "{shown}");
    let (shown, noted) = outputs(&folder, "doctor --adapters cpu --json --quiet");
    assert_eq!(noted, "");
    let told: Value = serde_json::from_str(&shown).unwrap();
    let step = &told["adapters"][0]["trained"];
    assert!(step["has_changed"] == true && step["differences"] == Value::Array(Vec::new()), "{told}");
    assert!(step["loss"].as_f64().unwrap() > 0.1 && told["adapters"][0]["link"]["upload_gb_s"].as_f64().unwrap() > 0.0);
    assert!(told["findings"].as_array().unwrap().iter().all(|it| it["level"] == "advice"), "{told}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
}

#[test]
fn a_wrong_adapter_fails_the_command_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder, "doctor --adapters cpu --memory cpu=2kB");
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{shown}{error}");
    assert!(shown.contains("WRONG") && shown.contains("it has too little memory for a small network"), "{shown}");
    assert!(shown.contains("  help: end other programs that use its memory"), "{shown}");
    assert!(
        error.contains("error: this machine needs all adapters to compute right, but has 1 that do not"),
        "{error}"
    );
    let told: Value =
        serde_json::from_str(&text(&run(&folder, "doctor --adapters cpu --memory cpu=2kB --json").stdout)).unwrap();
    assert_eq!(
        (&told["findings"][0]["level"], &told["adapters"][0]["failed"]["kind"]),
        (&Value::from("wrong"), &Value::from("OutOfMemory"))
    );
    assert!(refused(&folder, "doctor --adapters nonsense").contains("nonsense"));
}

#[test]
fn every_adapter_of_this_machine_is_tried() {
    let gpus = needed::gpus();
    let folder = tempfile::tempdir().unwrap();
    let (shown, _) = outputs_of(command(&folder, "doctor --json").env_remove(ADAPTERS_VARIABLE));
    let told: Value = serde_json::from_str(&shown).unwrap();
    let tried = told["adapters"].as_array().unwrap();
    assert_eq!(tried.len(), gpus.len() + 1, "{told}");
    for adapter in tried {
        assert_eq!(adapter["trained"]["differences"], Value::Array(Vec::new()), "{adapter}");
    }
}
