//! Do masks that reach an output leave its positions out of loss, gradient and metrics, as in Keras, for any split?
//!
//! Needs the CPU alone.

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use std::sync::Arc;

use manyhands::data::InMemory;
use manyhands::layers::{Dense, Embedding, Lstm, Masking};
use manyhands::losses::SparseCategoricalCrossentropy;
use manyhands::metrics::Recall;
use manyhands::{Compile, Fit, Loss, Metric, Model, ModelBuilder, Optimizer, Reduction, SplitMode, Trainer};
use manyhands_engine::adapters::cpu;
use ndarray::{Array1, ArrayD, IxDyn};

use crate::close::assert_close;
use crate::golden::{Case, Golden, Tensor};

const SPLITS: [&[f64]; 4] = [&[1.0], &[1.0, 1.0], &[2.0, 0.0, 1.0], &[0.0, 1.0]];

fn array(tensor: &Tensor) -> ArrayD<f32> {
    ArrayD::from_shape_vec(IxDyn(&tensor.shape), tensor.values.clone()).unwrap()
}

fn model(case: &Case) -> Model {
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [4, 3]);
    let masked = graph.add(Masking::default(), &[x]);
    let logits = graph.add_named("dense", Dense::new(6), &[masked]);
    let mut model = graph.build(&[logits], 0).unwrap();
    for name in ["kernel", "bias"] {
        model.tensor_mut(&format!("dense/{name}")).unwrap().copy_from_slice(case.values(name));
    }
    model
}

fn data(case: &Case) -> Arc<InMemory> {
    let data = InMemory::new(array(case.tensor("x")), array(case.tensor("labels"))).unwrap();
    match case.tensors.get("sample_weight") {
        Some(weights) => Arc::new(data.with_sample_weights(Array1::from(weights.values.clone())).unwrap()),
        None => Arc::new(data),
    }
}

fn trainer(case: &Case, metrics: Vec<Metric>, split: &[f64]) -> Trainer {
    let mut compile = Compile::new(Optimizer::sgd(0.5, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    compile.reduction = serde_json::from_value(case.config("reduction").clone()).unwrap();
    compile.metrics = vec![metrics];
    let trainer = Trainer::new(model(case), compile).unwrap().on(vec![cpu::info(); split.len()]);
    trainer.split(SplitMode::Fixed(split.to_vec()))
}

#[test]
fn masked_positions_count_in_no_loss_gradient_or_metric() {
    for case in Golden::open("masked").cases() {
        for split in SPLITS {
            let what = format!("golden case `{}`, split {split:?}", case.name);
            let metrics =
                vec![Metric::Accuracy, Metric::Perplexity, Recall { class_id: Some(2), ..Recall::default() }.into()];
            let mut trainer = trainer(&case, metrics, split);
            let history = trainer.fit(data(&case), &Fit::new(5).batch_size(5).in_order()).unwrap();
            for (got, needed) in history.of("loss").iter().zip(case.values("losses")) {
                assert!((got - f64::from(*needed)).abs() < 1e-5 * (1.0 + got.abs()), "{what}: {got}, needs {needed}");
            }
            for (name, needed) in [("dense/kernel", "updated_kernel"), ("dense/bias", "updated_bias")] {
                assert_close(&what, trainer.model().tensor(name).unwrap(), case.values(needed), 2e-5);
            }
            // Batches of other sizes leave out other numbers of positions.
            let (whole, parts) = (trainer.evaluate(data(&case), 5).unwrap(), trainer.evaluate(data(&case), 2).unwrap());
            for values in [&whole, &parts] {
                let accuracy = values.get("accuracy").unwrap();
                assert!((accuracy - f64::from(case.values("accuracy")[0])).abs() < 1e-6, "{what}: {accuracy}");
            }
            for name in ["perplexity", "class_2_recall"] {
                let (whole, parts) = (whole.get(name).unwrap(), parts.get(name).unwrap());
                assert!(whole.is_finite() && (whole - parts).abs() < 1e-6 * (1.0 + whole), "{what}: {name}");
            }
        }
    }
}

/// Rows of an ignored class leave loss, accuracy and weights as they are without these rows, whatever the split.
#[test]
fn rows_of_an_ignored_class_count_as_if_they_were_not_there() {
    let case = Golden::open("masked").case("plain");
    let (x, labels) = (case.values("x"), [1.0, -100.0, 4.0, -100.0, 0.0]);
    let run = |rows: &[usize], split: &[f64]| {
        let picked: Vec<f32> = rows.iter().flat_map(|row| x[12 * row..12 * row + 3].to_vec()).collect();
        let classes: Vec<f32> = rows.iter().map(|row| labels[*row]).collect();
        let of = |values, shape: &[usize]| ArrayD::from_shape_vec(IxDyn(shape), values).unwrap();
        let data = Arc::new(InMemory::new(of(picked, &[rows.len(), 3]), of(classes, &[rows.len()])).unwrap());
        let mut graph = ModelBuilder::new();
        let input = graph.input("x", [3]);
        let logits = graph.add_named("dense", Dense::new(6), &[input]);
        let mut model = graph.build(&[logits], 0).unwrap();
        model.tensor_mut("dense/kernel").unwrap().copy_from_slice(case.values("kernel"));
        let loss = SparseCategoricalCrossentropy { ignore_class: Some(-100), ..Default::default() };
        let mut compile = Compile::new(Optimizer::sgd(0.5, 0.0), loss);
        compile.metrics = vec![vec![Metric::Accuracy]];
        let trainer = Trainer::new(model, compile).unwrap().on(vec![cpu::info(); split.len()]);
        let mut trainer = trainer.split(SplitMode::Fixed(split.to_vec()));
        let history = trainer.fit(data, &Fit::new(3).batch_size(5).in_order()).unwrap();
        (
            history.of("loss").to_vec(),
            history.of("accuracy").to_vec(),
            trainer.model().tensor("dense/kernel").unwrap().to_vec(),
        )
    };
    let (losses, accuracies, kernel) = run(&[0, 2, 4], &[1.0]);
    for split in SPLITS {
        let (got, accurate, weights) = run(&[0, 1, 2, 3, 4], split);
        assert!(got.iter().zip(&losses).all(|(got, needed)| (got - needed).abs() < 1e-6), "{got:?}, needs {losses:?}");
        assert_eq!(accurate, accuracies, "{split:?}");
        assert_close("kernel", &weights, &kernel, 1e-6);
    }
}

/// A batch of padding has no loss and no gradient, and no value that is not finite.
#[test]
fn a_batch_of_padding_gives_zero() {
    let case = Golden::open("masked").case("plain");
    let padding = Arc::new(InMemory::new(ArrayD::zeros(IxDyn(&[5, 4, 3])), array(case.tensor("labels"))).unwrap());
    for reduction in [Reduction::SumOverBatchSize, Reduction::MeanWithSampleWeight, Reduction::Sum] {
        let mut trainer = trainer(&case, vec![Metric::Accuracy], &[1.0, 1.0]);
        assert_eq!(trainer.evaluate(padding.clone(), 5).unwrap().get("loss"), Some(0.0), "{reduction:?}");
        let history = trainer.fit(padding.clone(), &Fit::new(1).batch_size(5)).unwrap();
        assert_eq!((history.of("loss")[0], history.of("accuracy")[0]), (0.0, 0.0));
        assert_eq!(trainer.model().tensor("dense/kernel").unwrap(), case.values("kernel"));
    }
}

/// Masks pass through recurrent layers, and stay with a model that is saved: padding behind a sequence changes nothing.
#[test]
fn padding_changes_neither_loss_nor_metrics_of_sequences() {
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [4]);
    let vectors = graph.add(Embedding { mask_zero: true, ..Embedding::new(5, 3) }, &[x]);
    let hidden = graph.add(Lstm::new(4).return_sequences(), &[vectors]);
    let logits = graph.add(Dense::new(3), &[hidden]);
    let model = graph.build(&[logits], 1).unwrap();
    let saved = model.config().build(1).unwrap();
    let rows = [1.0, 3.0, 0.0, 0.0, 4.0, 2.0, 1.0, 0.0];
    let labels = |padding: f32| vec![0.0, 2.0, padding, padding, 1.0, 1.0, 2.0, padding];
    let values = |model: &Model, padding: f32| {
        let inputs = ArrayD::from_shape_vec(IxDyn(&[2, 4]), rows.to_vec()).unwrap();
        let targets = ArrayD::from_shape_vec(IxDyn(&[2, 4]), labels(padding)).unwrap();
        let compile = Compile::new(Optimizer::adam(0.1), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        let mut trainer = Trainer::new(model.clone(), compile).unwrap().on(vec![cpu::info()]);
        let values = trainer.evaluate(Arc::new(InMemory::new(inputs, targets).unwrap()), 2).unwrap();
        [values.get("loss").unwrap(), values.get("accuracy").unwrap()]
    };
    assert_eq!(values(&model, 0.0), values(&model, 2.0));
    assert_eq!(values(&model, 0.0), values(&saved, 1.0));
}

#[test]
fn a_mask_that_layers_compute_is_refused_by_the_loss() {
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [4, 3]);
    let computed = graph.add(Dense::new(3), &[x]);
    let masked = graph.add(Masking::default(), &[computed]);
    let logits = graph.add_named("logits", Dense::new(2), &[masked]);
    let compile = Compile::new(Optimizer::adam(0.1), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let error = Trainer::new(graph.build(&[logits], 0).unwrap(), compile).err().unwrap();
    assert_eq!(
        error.to_string(),
        "output `logits` needs a mask that an input alone decides, but its mask depends on what a layer computes\n  help: let \
         `Masking` or `Embedding` read an input, or give the mask as an input of its own"
    );
}
