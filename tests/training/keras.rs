//! Do ten steps give the losses and weights of Keras, on any adapters?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;

use manyhands::adapters::{self, Info};
use manyhands::data::{Batch, ClassWeighted, Dataset, InMemory};
use manyhands::layers::{Activation, Configure, Dense, Flatten, Regularizer};
use manyhands::model::{InputConfig, LayerConfig, ModelConfig};
use manyhands::{BatchStatistics, Compile, Fit, Loss, Model, Optimizer, Sequential, Shape, SplitMode, Trainer};
use ndarray::{Array, IxDyn};
use serde_json::{Value, json};

use crate::close::{assert_close, assert_relative};
use crate::golden::{Case, Golden};
use crate::needed;

/// Rigs of one and of three adapters. A second GPU computes beside the first alone: software adapters compile for longer than they train.
pub fn rigs() -> Vec<String> {
    let mut rigs = vec!["cpu".to_owned(), "cpu,cpu,cpu".to_owned()];
    match needed::gpu_indices().as_slice() {
        [] => {}
        [one] => rigs.extend([one.clone(), format!("{one},{one},cpu")]),
        [one, two, ..] => rigs.extend([one.clone(), format!("{two},{one},cpu")]),
    }
    rigs
}

/// The CPU, and all adapters together: each kernel runs on each.
pub fn one_and_all() -> Vec<String> {
    let rigs = rigs();
    [rigs.first(), rigs.last()].into_iter().flatten().cloned().collect()
}

pub fn on(rig: &str) -> Vec<Info> {
    pollster::block_on(async { adapters::choose(&adapters::list_async().await, rig).unwrap() })
}

/// The network of a golden file with its initial weights, and its frozen layers frozen.
pub fn network(file: &Golden) -> Model {
    let initial = file.case("initial");
    let names = |key: &str| initial.facts[key].as_array().cloned().unwrap_or_default();
    let frozen = names("frozen");
    let layer = |node: Value| LayerConfig {
        name: node["name"].as_str().map(String::from),
        kind: node["layer"].as_str().map(String::from),
        inputs: serde_json::from_value(node["inputs"].clone()).unwrap(),
        settings: node["config"].as_object().unwrap().clone(),
        trainable: frozen.contains(&node["name"]).then_some(false),
        ..LayerConfig::default()
    };
    let inputs = vec![InputConfig { name: "input".into(), shape: rows_of(file).input_shapes().remove(0) }];
    let layers = names("nodes").into_iter().map(layer).collect();
    let mut model = ModelConfig { inputs, layers, ..ModelConfig::default() }.build(0).unwrap();
    for (name, tensor) in &initial.tensors {
        model.tensor_mut(&name.replace('.', "/")).unwrap().copy_from_slice(&tensor.values);
    }
    model
}

/// Rows and labels of the golden networks of pictures.
pub fn rows() -> InMemory {
    rows_of(&Golden::open("training"))
}

/// Rows and labels of a golden file; those of `training` where it has none.
pub fn rows_of(file: &Golden) -> InMemory {
    let own = file.cases().into_iter().find(|case| case.name == "data");
    let data = own.unwrap_or_else(|| Golden::open("training").case("data"));
    let array = |role: &str| {
        let tensor = data.tensor(role);
        Array::from_shape_vec(IxDyn(&tensor.shape), tensor.values.clone()).unwrap()
    };
    InMemory::new(array("inputs"), array("labels")).unwrap()
}

/// Losses of the ten steps of a case, and the trained model.
fn train(model: Model, data: InMemory, case: &Case, rig: &str) -> (Vec<f64>, Trainer) {
    let mut optimizer = case.facts["config"].as_object().unwrap().clone();
    optimizer.insert("type".into(), case.facts["optimizer"].clone());
    let global = optimizer.remove("global_clipnorm").and_then(|norm| norm.as_f64());
    let optimizer: Optimizer = serde_json::from_value(Value::Object(optimizer)).unwrap();
    let compile = Compile::new(optimizer, Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let mut compile = compile.batch_statistics(BatchStatistics::Batch);
    #[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
    let global = global.map(|norm| norm as f32);
    compile.clip_norm = global;
    let mut trainer = Trainer::new(model, compile).unwrap().on(on(rig)).split(SplitMode::Even);
    let mut session = trainer.session(data, Fit::new(1).batch_size(32).in_order()).unwrap();
    let mut losses = Vec::new();
    while let Some(log) = session.step(&mut trainer).unwrap() {
        losses.push(log.values.get("loss").unwrap());
    }
    session.end_epoch(&mut trainer).unwrap();
    (losses, trainer)
}

/// Ten steps of the golden networks: losses, the loss at inference, weights and statistics.
pub fn check_golden(stem: &str) {
    let file = Golden::open(stem);
    let initial = file.case("initial");
    for case in file.cases().iter().filter(|case| case.facts["optimizer"].is_string()) {
        for rig in rigs() {
            let what = |role: &str| format!("{stem}, {}, adapters {rig}: {role}", case.name);
            let (losses, mut trainer) = train(network(&file), rows_of(&file), case, &rig);
            let needed: Vec<f64> = case.values("losses").iter().map(|loss| f64::from(*loss)).collect();
            assert_relative(&what("losses"), &losses, &needed, 1e-4);
            let after = trainer.evaluate(rows_of(&file), 320).unwrap().get("loss").unwrap();
            assert_relative(&what("at inference"), &[after], &[f64::from(case.values("loss_at_inference")[0])], 1e-3);
            for (name, needed) in case.with_prefix("final") {
                let (layer, name) = name.split_once('.').unwrap();
                let got = trainer.model().tensor(&format!("{layer}/{name}")).unwrap();
                // Adam's step hardly depends on a gradient's size: where that is near 0, rounding tells its sign.
                assert_close(&what(&format!("{layer}/{name}")), got, &needed.values, 4e-3);
                if trainer.model().is_trainable(layer) == Some(false) {
                    assert_eq!(got, initial.values(&format!("{layer}.{name}")), "{}", what(layer));
                }
            }
        }
    }
}

#[test]
fn ten_steps_are_those_of_keras() {
    check_golden("training");
}

#[test]
fn ten_steps_with_frozen_layers_are_those_of_keras_and_frozen_bits_stay() {
    check_golden("frozen");
}

#[test]
fn ten_steps_with_penalties_and_clipping_are_those_of_keras() {
    check_golden("regularizers");
}

pub fn penalized() -> Model {
    let hidden = Dense::new(8).activation(Activation::Tanh).kernel_regularizer(Regularizer::l1_l2(0.01, 0.02));
    let hidden = hidden.activity_regularizer(Regularizer::l2(0.05));
    let head = Dense::new(10).bias_regularizer(Regularizer::l1(0.03)).regularizer("kernel", Regularizer::l2(0.01));
    Sequential::new([8, 8, 1]).add(Flatten::default()).add(hidden).add(head).build(1).unwrap()
}

/// Penalties of weights count once, those of outputs by the whole batch: for any split, and for parts of a batch.
#[test]
fn penalties_do_not_depend_on_adapters_and_parts() {
    let run = |rig: &str, parts: u32, split: SplitMode| {
        let compile = Compile::new(Optimizer::sgd(0.1, 0.9), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        let mut trainer = Trainer::new(penalized(), compile).unwrap().on(on(rig)).split(split);
        let fit = Fit::new(1).batch_size(50).in_order().micro_batches(parts);
        let mut session = trainer.session(rows(), fit).unwrap();
        let mut losses = Vec::new();
        while let Some(log) = session.step(&mut trainer).unwrap() {
            losses.push(log.values.get("loss").unwrap());
        }
        session.end_epoch(&mut trainer).unwrap();
        losses.push(trainer.evaluate(rows(), 64).unwrap().get("loss").unwrap());
        losses
    };
    let needed = run("cpu", 1, SplitMode::Even);
    for (rig, parts, split) in [
        ("cpu", 3, SplitMode::Even),
        ("cpu,cpu,cpu", 1, SplitMode::Fixed(vec![5.0, 0.0, 1.0])),
        ("cpu,cpu,cpu", 2, SplitMode::Even),
    ] {
        assert_relative(&format!("{rig}, {parts} parts"), &run(rig, parts, split), &needed, 1e-5);
    }
}

/// The loss at inference less that without penalties is the sum of the penalties, worked out here.
#[test]
fn the_loss_includes_the_penalties() {
    let model = penalized();
    let compile = || Compile::new(Optimizer::sgd(0.1, 0.9), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let loss = |model: Model| {
        let mut trainer = Trainer::new(model, compile()).unwrap().on(on("cpu"));
        trainer.evaluate(rows(), 320).unwrap().get("loss").unwrap()
    };
    let mut config = model.config();
    for layer in &mut config.layers {
        layer.settings.retain(|key, _| !key.ends_with("_regularizer"));
    }
    let mut bare = config.build(1).unwrap();
    bare.weights = model.weights.clone();
    let of = |values: &[f32], l1: f64, l2: f64| -> f64 {
        values.iter().map(|value| f64::from(*value)).map(|value| l1 * value.abs() + l2 * value * value).sum()
    };
    let mut hidden = config.clone();
    hidden.layers.pop();
    hidden.outputs = Vec::new();
    let mut hidden = hidden.build(1).unwrap();
    let names: Vec<String> = hidden.tensors().map(|(name, ..)| name.to_owned()).collect();
    for name in names {
        let values = model.tensor(&name).unwrap().to_vec();
        hidden.tensor_mut(&name).unwrap().copy_from_slice(&values);
    }
    let mean_squared = Compile::new(Optimizer::sgd(0.1, 0.0), Loss::MEAN_SQUARED_ERROR);
    let mut predictor = Trainer::new(hidden, mean_squared).unwrap().on(on("cpu"));
    let outputs = predictor.predict(rows(), 320).unwrap().remove(0);
    let activity = of(outputs.as_slice().unwrap(), 0.0, 0.05) / 320.0;
    let tensor = |name: &str| model.tensor(name).unwrap();
    let weights = of(tensor("dense/kernel"), 0.01, 0.02)
        + of(tensor("dense_1/bias"), 0.03, 0.0)
        + of(tensor("dense_1/kernel"), 0.0, 0.01);
    let needed = loss(bare) + weights + activity;
    assert_relative("loss", &[loss(model.clone())], &[needed], 1e-5);
    assert!(activity > 0.01 && weights > 0.1, "{activity} {weights}");
}

#[test]
fn penalties_are_kept_in_files_and_wrong_ones_are_refused() {
    let model = penalized();
    let read = Model::from_bytes(&model.to_bytes().unwrap(), "file", &[]).unwrap();
    assert_eq!(read.config(), model.config());
    let hidden = &read.config().layers[1].settings;
    assert_eq!(hidden["kernel_regularizer"], json!({"l1": 0.01, "l2": 0.02}));
    assert_eq!(hidden["activity_regularizer"], json!({"l2": 0.05}));
    let build = |kind: &str, settings: Value| {
        let settings = settings.as_object().unwrap().clone();
        let layer = LayerConfig { kind: Some(kind.into()), settings, ..LayerConfig::default() };
        let inputs = vec![InputConfig { name: "input".into(), shape: Shape::new([8, 8, 1]) }];
        let built = ModelConfig { inputs, layers: vec![layer], ..ModelConfig::default() }.build(0);
        built.map_or_else(|error| error.to_string(), |_| "built".into())
    };
    assert_eq!(build("Dense", json!({"units": 2, "kernel_regularizer": null, "bias_regularizer": "L1"})), "built");
    assert_eq!(build("DepthwiseConv2D", json!({"kernel_size": 2, "depthwise_regularizer": "l2"})), "built");
    assert_eq!(build("Flatten", json!({"activity_regularizer": {"L1": 0.5}})), "built");
    for (kind, settings, needed) in [
        ("Flatten", json!({"kernel_regularizer": "l2"}), "has a `kernel_regularizer`, but its parameters are: none"),
        (
            "Dense",
            json!({"units": 2, "kernel_regularizer": "l3"}),
            "key `kernel_regularizer`, needs a known name, but got `l3`",
        ),
        ("Dense", json!({"units": 2, "kernel_regularizer": {"l2": -1.0}}), "needs factors of at least 0"),
        ("Dense", json!({"units": 2, "kernel_regularizer": {"l5": 1.0}}), "needs `l1` or `l2`, but has `l5`"),
    ] {
        let error = build(kind, settings);
        assert!(error.contains(needed), "{error}");
    }
}

#[test]
fn only_one_way_of_clipping_is_taken() {
    let refused = |compile: Compile| Trainer::new(penalized(), compile).err().unwrap().to_string();
    let compile = |optimizer: Optimizer| Compile::new(optimizer, Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let both = refused(compile(Optimizer::adam(0.1).clipvalue(0.5)).clip_norm(1.0));
    assert!(both.contains("needs to be the only clipping"), "{both}");
    let zero = refused(compile(Optimizer::adam(0.1).clipnorm(0.0)));
    assert!(zero.contains("optimizer `Adam` needs `clipnorm` above 0, but got 0"), "{zero}");
    let read = |json: &str| serde_json::from_str::<Optimizer>(json).map_err(|error| error.to_string());
    let adam = Optimizer::adam(0.001).clipvalue(0.5);
    assert_eq!(read(&serde_json::to_string(&adam).unwrap()), Ok(adam.clone()));
    assert_eq!(read(r#"{"type": "Adam", "clipvalue": 0.5}"#), Ok(adam.with_learning_rate(0.001)));
    let both = read(r#"{"type": "Adam", "clipvalue": 0.5, "clipnorm": 1}"#).unwrap_err();
    assert!(both.contains("needs `clipnorm` or `clipvalue`, but has both"), "{both}");
}

/// Rows weigh what Keras' `class_weight` makes of their targets.
#[test]
fn rows_weigh_what_their_class_does() {
    for case in Golden::open("class_weight").cases() {
        let targets = case.tensor("targets");
        let rows = targets.shape[0];
        let inputs = Array::zeros(IxDyn(&[rows, 1]));
        let targets = Array::from_shape_vec(IxDyn(&targets.shape), targets.values.clone()).unwrap();
        let table = case.facts["config"].as_object().unwrap();
        #[allow(clippy::cast_possible_truncation, reason = "the weights are exact")]
        let weights = table.iter().map(|(class, weight)| (class.parse().unwrap(), weight.as_f64().unwrap() as f32));
        let data = ClassWeighted::new(Arc::new(InMemory::new(inputs, targets).unwrap()), weights).unwrap();
        let batch = Batch::fetch(&data, &(0..rows).collect::<Vec<_>>()).unwrap();
        assert_eq!(batch.sample_weights.unwrap().to_vec(), case.values("weights"), "{}", case.name);
    }
}

/// A run with weights of classes is that with the weights of rows; validation counts each row once.
#[test]
fn weights_of_classes_are_weights_of_rows() {
    let plain = rows();
    let labels = Golden::open("training").case("data").values("labels").to_vec();
    let weights: Vec<f32> = labels.iter().map(|label| if *label == 3.0 { 4.0 } else { 1.0 }).collect();
    let weighted = rows().with_sample_weights(Array::from(weights)).unwrap();
    let run = |data: InMemory, fit: Fit, rig: &str| {
        let compile = Compile::new(Optimizer::sgd(0.1, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        let mut trainer = Trainer::new(penalized(), compile).unwrap().on(on(rig)).split(SplitMode::Even);
        let history = trainer.fit(data, &fit.batch_size(64).in_order().validation(rows())).unwrap();
        let of = |name: &str| history.epochs[0].values.get(name).unwrap();
        ([of("loss"), of("val_loss")], trainer.into_model().weights)
    };
    let (needed, weights) = run(weighted, Fit::new(1), "cpu");
    let (got, got_weights) = run(plain, Fit::new(1).class_weight([(3, 4.0)]), "cpu");
    assert!(got == needed && got_weights == weights, "{got:?} {needed:?}");
    let (got, _) = run(rows(), Fit::new(1).class_weight([(3, 4.0)]), "cpu,cpu,cpu");
    assert_relative("three adapters", &got, &needed, 1e-5);
    let (without, _) = run(rows(), Fit::new(1), "cpu");
    assert!(without[0] < got[0], "{without:?} {got:?}");
}

#[test]
fn weights_of_classes_that_make_no_sense_are_refused() {
    let compile = Compile::new(Optimizer::sgd(0.1, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let mut trainer = Trainer::new(penalized(), compile).unwrap().on(on("cpu"));
    let mut refused = |data: InMemory, weights: &[(usize, f32)]| {
        let fit = Fit::new(1).class_weight(weights.iter().copied());
        trainer.fit(data, &fit).unwrap_err().to_string()
    };
    let error = refused(rows(), &[(10, 1.0)]);
    assert!(error.contains("`class_weight` needs classes from 0 to 9, but names 10"), "{error}");
    let error = refused(rows(), &[(1, -1.0)]);
    assert!(error.contains("needs finite numbers from 0 up, but class 1 has -1"), "{error}");
    let weighted = rows().with_sample_weights(Array::ones(320)).unwrap();
    let error = refused(weighted, &[(1, 2.0)]);
    assert!(error.contains("needs rows without weights, but the data have sample weights"), "{error}");
}
