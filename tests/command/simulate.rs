//! Does `simulate` tell whether a second card would help, by the names of cards?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;

use serde_json::Value;

use crate::command::{refused, run, succeed};

#[test]
fn two_cards_by_name_are_told_alone_together_and_in_equal_parts() {
    let folder = tempfile::tempdir().unwrap();
    let line = "simulate --cards rtx4070,gtx1060 --model cnn6 --batch-size 512";
    let shown = succeed(&folder, line);
    for part in [
        "Model: cnn6 for [batch, 32, 32, 3]: 307,946 parameters, 512 rows a step.",
        "GeForce RTX 4070  modelled  691.7 MB  12.00 GB",
        "On the one card measured so far, steps took up to twice as long.",
        "times the GeForce RTX 4070 alone.",
        "In equal parts, as most programs split: 29.0 ms a step, 0.51 times the GeForce RTX 4070 alone.",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let report: Value = serde_json::from_str(&succeed(&folder, &format!("{line} --json"))).unwrap();
    let ms = |part: &Value| part["step_ms"].as_f64().unwrap();
    assert_eq!(ms(&report["alone"][0]), ms(&report["strong"][0]), "one number for one thing");
    assert!(ms(&report["strong"][1]) < ms(&report["strong"][0]) && ms(&report["even"]) > ms(&report["strong"][0]));
    let even: Value = serde_json::from_str(&succeed(&folder, &format!("{line} --split even --json"))).unwrap();
    assert_eq!(even["strong"][1], report["even"]);
    assert!(even["even"].is_null(), "{even}");
}

#[test]
fn a_card_that_slows_steps_down_is_left_out_and_one_without_memory_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let slow = succeed(&folder, "simulate --cards RTX4090,GTX1050Ti --model mlp");
    assert!(slow.contains("Together: no faster than the GeForce RTX 4090 alone."), "{slow}");
    assert!(slow.contains("Left out: GeForce GTX 1050 Ti. With all adapters a step takes"), "{slow}");
    let rig = "preset = \"mlp\"\nbatch_size = 64\nadapters = [{ card = \"RTX 3060\" }, { card = \"RX 580\", memory_gb = 0.01 }]";
    fs::write(folder.path().join("rig.toml"), rig).unwrap();
    let small = succeed(&folder, "simulate rig.toml");
    assert!(small.contains("A copy of the model does not fit on Radeon RX 580"), "{small}");
}

#[test]
fn a_preset_has_the_size_of_the_bench() {
    let folder = tempfile::tempdir().unwrap();
    let shown = succeed(&folder, "simulate --cards A770 --model resnet18");
    assert!(shown.contains("resnet18 for [batch, 32, 32, 3]: 11,173,962 parameters, 64 rows a step"), "{shown}");
}

#[test]
fn a_settings_file_gives_model_and_batch() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.toml"), include_str!("../../cli/src/digits.toml")).unwrap();
    let settings: toml::Table = include_str!("../../cli/src/digits.toml").parse().unwrap();
    let rows = &settings["training"]["batch_size"];
    let shown = succeed(&folder, "simulate run.toml --cards M1,RX6600");
    assert!(shown.contains("Model: the model for [batch, 8, 8, 1]: "), "{shown}");
    assert!(shown.contains(&format!("parameters, {rows} rows a step.")), "{shown}");
    let error = refused(&folder, "simulate run.toml");
    assert!(
        error.contains("`run.toml` is a settings file of `train`: it has a model, but no speeds of adapters"),
        "{error}"
    );
}

#[test]
fn mistakes_are_told_with_what_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(&folder, "simulate --cards RTX360 --model mlp");
    assert!(error.contains("`--cards` needs a card of the table, but got `RTX360`"), "{error}");
    assert!(error.contains("did you mean `RTX 3060`"), "{error}");
    let error = refused(&folder, "simulate --cards RTX3060 --model resnet19");
    assert!(error.contains("did you mean `resnet18`?"), "{error}");
    let error = refused(&folder, "simulate --cards RTX3060 --model mlp --split 3:1");
    assert!(error.contains("`--split` needs `learned` or `even`, but is `3:1`"), "{error}");
    assert_eq!(run(&folder, "simulate").status.code(), Some(2));
    assert_eq!(run(&folder, "simulate --model mlp").status.code(), Some(2));
    let cards = succeed(&folder, "simulate --list-cards");
    assert!(cards.contains("RX 9070 XT") && cards.contains("https://www.amd.com/"), "{cards}");
}
