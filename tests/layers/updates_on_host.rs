//! Do updates that the host alone computes, and groups of parameters, give what formulas and other optimizers give? Needs the CPU alone.

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use std::sync::Arc;

use manyhands::data::Batch;
use manyhands::optimizers::WholeTensor;
use manyhands::{Compile, Loss, Model, ModelConfig, Optimizer, Trainer};
use manyhands_engine::adapters::cpu;
use serde_json::{Value, json};

use crate::bench::normal;
use crate::close::assert_close;

/// PyTorch's formula, as its documentation writes it: the largest mean square is not corrected, and epsilon stands outside.
#[test]
fn amsgrad_in_the_form_of_pytorch_is_its_formula() {
    let settings = json!({
        "type": "Adam", "beta_2": 0.5, "epsilon": 0.1, "outer_epsilon": true, "l2_decay": 0.1, "amsgrad": true,
    });
    let optimizer = read(&settings);
    assert_eq!(optimizer.state_names(), ["momentum", "velocity", "velocity_hat"]);
    let mut parameter = [0.5_f32, -2.0];
    let mut needed = parameter.map(|w| [f64::from(w), 0.0, 0.0, 0.0]);
    let mut states = [[0.0_f32; 2]; 3];
    for step in 1..6 {
        // The third is large: from then on its square is the largest.
        let gradient = [1e-2, if step == 3 { 3.0 } else { 0.25 }];
        let numbers = optimizer.hyper(0.05, u64::try_from(step).unwrap());
        optimizer.rule().update_tensor(WholeTensor {
            name: "dense/kernel",
            shape: &[2, 1],
            gradient: &gradient,
            parameter: &mut parameter,
            states: states.iter_mut().map(<[f32; 2]>::as_mut_slice).collect(),
            numbers: &numbers,
        });
        for (([w, mean, square, largest], gradient), got) in needed.iter_mut().zip(gradient).zip(parameter) {
            let g = f64::from(gradient) + 0.1 * *w;
            *mean = 0.9 * *mean + 0.1 * g;
            *square = 0.5 * *square + 0.5 * g * g;
            *largest = largest.max(*square);
            let root = largest.sqrt() / (1.0 - 0.5f64.powi(step)).sqrt() + 0.1;
            *w -= 0.05 / (1.0 - 0.9f64.powi(step)) * *mean / root;
            assert!((f64::from(got) - *w).abs() < 2e-6, "step {step}: {got}, but PyTorch has {w}");
        }
    }
}

fn read(settings: &Value) -> Optimizer {
    serde_json::from_value(settings.clone()).unwrap()
}

fn model() -> Model {
    let config = json!({
        "inputs": [{ "name": "x", "shape": [3] }],
        "layers": [
            { "name": "first", "type": "Dense", "units": 4, "activation": "tanh", "inputs": ["x"] },
            { "name": "second", "type": "Dense", "units": 2, "inputs": ["first"] },
        ],
        "outputs": ["second"],
    });
    serde_json::from_value::<ModelConfig>(config).unwrap().build(3).unwrap()
}

const NAMES: [&str; 4] = ["first/kernel", "first/bias", "second/kernel", "second/bias"];

/// Rows `first` and on of a batch of random numbers.
fn rows(first: usize, count: usize) -> Batch {
    let of = |columns: usize, seed: u64| -> Arc<[f32]> {
        normal(12 * columns, seed)[first * columns..(first + count) * columns].into()
    };
    Batch { rows: count, inputs: vec![of(3, 1)], targets: vec![of(2, 2)], sample_weights: None }
}

/// The parameters after each of these batches.
fn trained(settings: &Value, clip_norm: Option<f32>, n_adapters: usize, batches: &[Batch]) -> Vec<[Vec<f32>; 4]> {
    let compile = Compile::new(read(settings), Loss::MEAN_SQUARED_ERROR);
    let compile = clip_norm.map_or(compile.clone(), |norm| compile.clip_norm(norm));
    let mut trainer = Trainer::new(model(), compile).unwrap().on(vec![cpu::info(); n_adapters]);
    let step = |batch: &Batch| {
        trainer.train_on_batch(batch.clone()).unwrap();
        trainer.current_model().unwrap();
        NAMES.map(|name| trainer.model().tensor(name).unwrap().to_vec())
    };
    batches.iter().map(step).collect()
}

/// Each parameter after the first step is as of an optimizer that has the settings of its group for all.
#[test]
fn groups_are_optimizers_of_their_own() {
    for (kind, own, other) in [
        ("SGD", json!({ "momentum": 0.5, "nesterov": true }), json!({ "momentum": 0.9, "weight_decay": 0.5 })),
        ("Adam", json!({ "amsgrad": true }), json!({ "beta_1": 0.5, "beta_2": 0.6, "l2_decay": 0.1 })),
        ("Nadam", json!({ "use_ema": true, "ema_overwrite_frequency": 2 }), json!({ "beta_1": 0.5 })),
    ] {
        let with = |more: &[&Value], rate: f32| {
            let mut settings = json!({ "type": kind, "learning_rate": rate });
            for (name, value) in more.iter().flat_map(|more| more.as_object().unwrap()) {
                settings[name] = value.clone();
            }
            settings
        };
        let group =
            with(&[&other, &json!({ "parameters": ["first/kernel", "bias"], "learning_rate_factor": 0.5 })], 0.0);
        let mut group = group.as_object().unwrap().clone();
        group.retain(|name, _| !["type", "learning_rate"].contains(&name.as_str()));
        let [whole, part] = [with(&[&own], 0.25), with(&[&own, &other], 0.125)];
        let grouped = with(&[&own, &json!({ "groups": [group] })], 0.25);
        for n_adapters in [1, 2] {
            let run = |settings: &Value| trained(settings, None, n_adapters, &[rows(0, 6)]).remove(0);
            let (got, of_whole, of_group) = (run(&grouped), run(&whole), run(&part));
            for (at, name) in NAMES.into_iter().enumerate() {
                let needed = if name == "second/kernel" { &of_whole[at] } else { &of_group[at] };
                assert_eq!(&got[at], needed, "`{name}` with {kind} on {n_adapters} adapters");
            }
            assert_ne!(of_whole[0], of_group[0]);
        }
        assert_eq!(read(&serde_json::to_value(read(&grouped)).unwrap()), read(&grouped));
    }
}

#[test]
fn groups_that_say_nothing_are_refused() {
    let refused = |settings: Value| serde_json::from_value::<Optimizer>(settings).unwrap_err().to_string();
    let group = |more: Value| json!({ "type": "Adam", "groups": [more] });
    let told = refused(group(json!({ "parameters": ["bias"], "learning_rate": 0.1 })));
    assert!(told.contains("needs `learning_rate_factor` in `groups`, but got `learning_rate`"), "{told}");
    let told = refused(group(json!({ "parameters": ["bias"], "amsgrad": true })));
    assert!(told.contains("needs the same state for all `groups`"), "{told}");
    let told = refused(group(json!({ "parameters": ["bias"], "momentum": 0.1 })));
    assert!(told.contains("unknown field `momentum`"), "{told}");
    let told = refused(group(json!({ "beta_1": 0.1 })));
    assert!(told.contains("needs a list of tables with `parameters` as `groups`"), "{told}");
    let both = json!({
        "type": "SGD", "exclude_from_weight_decay": ["bias"], "groups": [{ "parameters": ["bias"], "momentum": 0.1 }],
    });
    assert!(refused(both).contains("needs `exclude_from_weight_decay` or `groups`, but has both"));
    let negative = group(json!({ "parameters": ["bias"], "learning_rate_factor": -1.0 }));
    let told = read(&negative).check().unwrap_err().to_string();
    assert!(told.starts_with("optimizer `Adam` needs `learning_rate_factor` of at least 0, but got -1"), "{told}");
}

/// The mean gradient of three batches of four rows is that of their twelve rows.
#[test]
fn gradients_of_several_steps_make_the_update_of_their_rows() {
    for (settings, clip_norm) in [
        (json!({ "type": "SGD", "learning_rate": 0.5, "momentum": 0.9, "weight_decay": 0.1 }), Some(0.05)),
        (json!({ "type": "Adam", "learning_rate": 0.1, "clipnorm": 0.02 }), None),
    ] {
        let mut several = settings.clone();
        several["gradient_accumulation_steps"] = json!(3);
        for n_adapters in [1, 2] {
            let needed = trained(&settings, clip_norm, n_adapters, &[rows(0, 12), rows(0, 12)]);
            let parts = [0, 4, 8].map(|first| rows(first, 4));
            let got = trained(&several, clip_norm, n_adapters, &[parts.clone(), parts].concat());
            let before = NAMES.map(|name| model().tensor(name).unwrap().to_vec());
            assert_eq!((&got[0], &got[1]), (&before, &before), "no update before the third step");
            assert_eq!((&got[3], &got[4]), (&got[2], &got[2]));
            for (got, needed) in [&got[2], &got[5]].into_iter().zip(&needed) {
                for (at, name) in NAMES.into_iter().enumerate() {
                    assert_close(&format!("`{name}` on {n_adapters}"), &got[at], &needed[at], 1e-5);
                }
            }
        }
    }
    let alone = read(&json!({ "type": "SGD", "gradient_accumulation_steps": 1 })).check().unwrap_err().to_string();
    assert!(
        alone.starts_with("optimizer `SGD` needs `gradient_accumulation_steps` of at least 2, but got 1"),
        "{alone}"
    );
}
