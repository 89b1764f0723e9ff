//! Do losses and metrics give the golden values, through the trainer, on one adapter and on several?
//!
//! The logits are the kernel of a `Dense` layer that reads rows with one 1 each: its gradient is that of the logits, to
//! be read from a step of gradient descent at rate 1. Needs the CPU alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stands outside the engine: it panics")]

use std::sync::Arc;

use manyhands::data::InMemory;
use manyhands::layers::{BatchNormalization, Dense};
use manyhands::losses::LOSSES;
use manyhands::losses::{self, CategoricalCrossentropy, SparseCategoricalCrossentropy};
use manyhands::{Compile, Fit, Loss, Metric, Model, ModelBuilder, Optimizer, Reduction, Shape, SplitMode, Trainer};
use manyhands_engine::adapters::cpu;
use ndarray::{Array1, Array2, ArrayD, IxDyn};
use serde_json::json;

use crate::bench;
use crate::close::assert_close;
use crate::golden::{Case, Golden};
use crate::table;

/// A problem of a loss: logits, targets and weights.
#[derive(Clone)]
struct Problem {
    loss: Loss,
    reduction: Reduction,
    /// Shape of the logits, with the batch axis.
    shape: Vec<usize>,
    logits: Vec<f32>,
    targets: ArrayD<f32>,
    weights: Option<Vec<f32>>,
}

/// What one step gives.
struct Outcome {
    loss: f64,
    gradient: Vec<f32>,
    /// The loss and metrics at inference.
    evaluated: manyhands::logs::Values,
}

impl Problem {
    fn golden(case: &Case) -> Self {
        let mut loss = case.facts["config"].as_object().unwrap().clone();
        loss.retain(|name, _| !["reduction", "from_logits"].contains(&name.as_str()));
        loss.insert("type".into(), case.facts["loss"].clone());
        let array = |role: &str| {
            let tensor = case.tensor(role);
            ArrayD::from_shape_vec(IxDyn(&tensor.shape), tensor.values.clone()).unwrap()
        };
        Self {
            loss: serde_json::from_value(loss.into()).unwrap(),
            reduction: serde_json::from_value(case.config("reduction").clone()).unwrap(),
            shape: case.tensor("logits").shape.clone(),
            logits: case.values("logits").to_vec(),
            targets: array("targets"),
            weights: case.tensors.get("sample_weight").map(|tensor| tensor.values.clone()),
        }
    }

    fn rows(&self) -> usize {
        self.shape[0]
    }

    fn model(&self) -> Model {
        // Nothing follows the table.
        let mut model = table::config(&[], &[self.shape[1..].to_vec()], self.rows()).build(0).unwrap();
        model.tensor_mut("in0/kernel").unwrap().copy_from_slice(&self.logits);
        model
    }

    fn data(&self) -> Arc<InMemory> {
        let inputs = ArrayD::from_shape_vec(IxDyn(&[self.rows(); 2]), table::rows(self.rows()).to_vec()).unwrap();
        let data = InMemory::new(inputs, self.targets.clone()).unwrap();
        match &self.weights {
            Some(weights) => Arc::new(data.with_sample_weights(Array1::from(weights.clone())).unwrap()),
            None => Arc::new(data),
        }
    }

    fn trainer(&self, metrics: Vec<Metric>, split: &[f64]) -> Trainer {
        let mut compile = Compile::new(Optimizer::sgd(1.0, 0.0), self.loss.clone());
        compile.reduction = self.reduction;
        if !metrics.is_empty() {
            compile.metrics = vec![metrics];
        }
        let trainer = Trainer::new(self.model(), compile).unwrap().on(vec![cpu::info(); split.len()]);
        trainer.split(SplitMode::Fixed(split.to_vec()))
    }

    fn solve(&self, metrics: Vec<Metric>, split: &[f64]) -> Outcome {
        let mut trainer = self.trainer(metrics, split);
        let evaluated = trainer.evaluate(self.data(), self.rows()).unwrap();
        let fit = Fit::new(1).batch_size(self.rows()).in_order();
        let history = trainer.fit(self.data(), &fit).unwrap();
        let moved = trainer.model().tensor("in0/kernel").unwrap();
        let gradient = self.logits.iter().zip(moved).map(|(old, new)| old - new).collect();
        Outcome { loss: history.of("loss")[0], gradient, evaluated }
    }
}

const SPLITS: [&[f64]; 4] = [&[1.0], &[1.0, 1.0], &[2.0, 0.0, 1.0], &[0.0, 1.0]];

/// The step of the logits rounds to half a unit in their last place: what is 100 moves in steps of 4e-6.
fn gradient_tolerance(logits: &[f32]) -> f32 {
    let largest = logits.iter().fold(0.0, |largest: f32, logit| largest.max(logit.abs()));
    1e-6 + largest * f32::EPSILON
}

#[test]
fn losses_and_gradients_are_golden_for_any_split() {
    for case in Golden::open("losses").cases() {
        let problem = Problem::golden(&case);
        for split in SPLITS {
            let what = format!("golden case `{}`, split {split:?}", case.name);
            let outcome = problem.solve(Vec::new(), split);
            let needed = f64::from(case.values("loss")[0]);
            for (when, loss) in
                [("in training", outcome.loss), ("at inference", outcome.evaluated.get("loss").unwrap())]
            {
                let is_close = (loss - needed).abs() <= 1e-5 * (1.0 + needed.abs());
                assert!(is_close, "{what}: loss {when} is {loss}, needs {needed}");
            }
            let tolerance = gradient_tolerance(&problem.logits);
            assert_close(&format!("{what}: gradient"), &outcome.gradient, case.values("logits_gradient"), tolerance);
        }
    }
}

/// Integer labels with smoothing are dense labels with smoothing; Keras has no such loss.
#[test]
fn smoothed_labels_are_those_of_dense_targets() {
    let golden = Golden::open("losses");
    let dense = golden.case("categorical_crossentropy_smoothed");
    let labels = golden.case("sparse_categorical_crossentropy");
    let one_hot: Vec<f32> = labels
        .values("targets")
        .iter()
        .flat_map(|label| [0.0, 1.0, 2.0, 3.0, 4.0].map(|class| if class == *label { 1.0 } else { 0.0 }))
        .collect();
    assert_eq!(
        (dense.values("targets"), dense.values("logits")),
        (&one_hot[..], labels.values("logits")),
        "shared data"
    );
    let loss = SparseCategoricalCrossentropy { label_smoothing: 0.1, ..Default::default() }.into();
    let outcome = Problem { loss, ..Problem::golden(&labels) }.solve(Vec::new(), &[1.0, 1.0]);
    assert!((outcome.loss - f64::from(dense.values("loss")[0])).abs() < 1e-5, "{}", outcome.loss);
    assert_close("gradient", &outcome.gradient, dense.values("logits_gradient"), 1e-6);
}

/// `Sum` is the mean times what it divides by; no golden value divides by nothing.
#[test]
fn the_sum_is_the_mean_times_the_count() {
    for name in ["categorical_crossentropy_rank_3_weighted", "mean_squared_error_weighted"] {
        let case = Golden::open("losses").case(name);
        let problem = Problem { reduction: Reduction::Sum, ..Problem::golden(&case) };
        #[allow(clippy::cast_precision_loss, reason = "a dozen values")]
        let count = case.values("values").len() as f32;
        for split in SPLITS {
            let outcome = problem.solve(Vec::new(), split);
            let needed = case.values("loss")[0] * count;
            assert!((outcome.loss - f64::from(needed)).abs() < 1e-5 * f64::from(needed), "{name}: {}", outcome.loss);
            let gradient: Vec<f32> = case.values("logits_gradient").iter().map(|value| value * count).collect();
            assert_close(name, &outcome.gradient, &gradient, 2e-6);
        }
    }
}

/// A batch whose weights are all 0 has no loss and no gradient, and no value that is not finite.
#[test]
fn weights_of_zero_give_zero() {
    let case = Golden::open("losses").case("sparse_categorical_crossentropy_weighted_mean");
    let weights = Some(vec![0.0; 6]);
    for reduction in [Reduction::SumOverBatchSize, Reduction::MeanWithSampleWeight, Reduction::Sum] {
        let problem = Problem { weights: weights.clone(), reduction, ..Problem::golden(&case) };
        let outcome = problem.solve(Vec::new(), &[1.0, 1.0]);
        assert_eq!((outcome.loss, outcome.gradient), (0.0, vec![0.0; 30]), "{reduction:?}");
    }
}

/// The batches of an epoch may be of different sizes: each is a mean over its own rows, the epoch one over all rows.
#[test]
fn a_short_last_batch_counts_by_its_rows() {
    let case = Golden::open("losses").case("sparse_categorical_crossentropy");
    let problem = Problem::golden(&case);
    for split in SPLITS {
        let loss = problem.trainer(Vec::new(), split).evaluate(problem.data(), 4).unwrap().get("loss").unwrap();
        assert!((loss - f64::from(case.values("loss")[0])).abs() < 1e-5, "{split:?}: {loss}");
    }
}

fn problem(loss: Loss, shape: &[usize], logits: &[f32], target_shape: &[usize], targets: &[f32]) -> Problem {
    let targets = ArrayD::from_shape_vec(IxDyn(target_shape), targets.to_vec()).unwrap();
    let (shape, logits) = (shape.to_vec(), logits.to_vec());
    Problem { loss, reduction: Reduction::default(), shape, logits, targets, weights: None }
}

/// A problem, metrics of it, and the values that one counts by hand.
type Counted = (&'static str, Problem, Vec<Metric>, &'static [(&'static str, f64)]);

#[test]
fn metrics_are_what_one_counts() {
    let accuracy = || vec![Metric::Accuracy, Metric::TopKCategoricalAccuracy { k: 2 }];
    // The true class comes first, second, third, second and, in a tie of two, among the first two.
    let logits = [3.0, 1.0, 0.0, 1.0, 3.0, 0.0, 1.0, 0.0, -1.0, 0.0, 2.0, 1.0, 0.0, 1.0, -1.0];
    let labels = [0.0, 0.0, 2.0, 2.0, 1.0];
    let one_hot: Vec<f32> =
        labels.iter().flat_map(|label| [0.0, 1.0, 2.0].map(|class| if class == *label { 1.0 } else { 0.0 })).collect();
    let sparse = problem(Loss::SPARSE_CATEGORICAL_CROSSENTROPY, &[5, 3], &logits, &[5], &labels);
    let dense = problem(Loss::CATEGORICAL_CROSSENTROPY, &[5, 3], &logits, &[5, 3], &one_hot);
    let rank_3 = problem(Loss::SPARSE_CATEGORICAL_CROSSENTROPY, &[1, 5, 3], &logits, &[1, 5], &labels);
    let binary = problem(
        Loss::BINARY_CROSSENTROPY,
        &[2, 3],
        &[1.0, -2.0, 3.0, -1.0, 5.0, 0.5],
        &[2, 3],
        &[1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
    );
    let squared = problem(Loss::MEAN_SQUARED_ERROR, &[2, 2], &[1.0, 2.0, 3.0, 4.0], &[2, 2], &[0.0, 4.0, 3.5, 4.0]);
    let told: [Counted; 5] = [
        ("sparse", sparse, accuracy(), &[("accuracy", 0.4), ("top_2_accuracy", 0.8)]),
        ("dense", dense, accuracy(), &[("accuracy", 0.4), ("top_2_accuracy", 0.8)]),
        ("rank 3", rank_3, accuracy(), &[("accuracy", 0.4), ("top_2_accuracy", 0.8)]),
        ("binary", binary, vec![Metric::Accuracy], &[("accuracy", 4.0 / 6.0)]),
        (
            "squared",
            squared,
            vec![Metric::MeanAbsoluteError],
            &[("mean_absolute_error", 3.5 / 4.0), ("loss", 5.25 / 4.0)],
        ),
    ];
    for (name, problem, metrics, needed) in told {
        for split in SPLITS {
            let values = problem.trainer(metrics.clone(), split).evaluate(problem.data(), problem.rows()).unwrap();
            for (metric, needed) in needed {
                let got = values.get(metric).unwrap();
                assert!((got - needed).abs() < 1e-6, "{name}, split {split:?}: {metric} is {got}, needs {needed}");
            }
        }
    }
}

/// Ties count in the top k, and for the first of them in the accuracy: as in Keras.
#[test]
fn metrics_are_golden_with_ties_too() {
    for case in Golden::open("metrics").cases() {
        let (shape, labels) = (&case.tensor("logits").shape, case.values("labels"));
        let classes = shape[1];
        let one_hot: Vec<f32> = labels
            .iter()
            .flat_map(|label| (0_u16..).take(classes).map(|class| f32::from(u8::from(f32::from(class) == *label))))
            .collect();
        let top_k = (1..).take(classes).map(|k| Metric::TopKCategoricalAccuracy { k });
        let metrics: Vec<Metric> = [Metric::Accuracy].into_iter().chain(top_k).collect();
        let needed: Vec<f32> = [case.values("accuracy"), case.values("top_k")].concat();
        let sparse = problem(Loss::SPARSE_CATEGORICAL_CROSSENTROPY, shape, case.values("logits"), &shape[..1], labels);
        let dense = problem(Loss::CATEGORICAL_CROSSENTROPY, shape, case.values("logits"), shape, &one_hot);
        for (problem, split) in [(&sparse, SPLITS[0]), (&dense, SPLITS[0]), (&sparse, SPLITS[2]), (&dense, SPLITS[2])] {
            let values = problem.trainer(metrics.clone(), split).evaluate(problem.data(), problem.rows()).unwrap();
            for (metric, needed) in metrics.iter().zip(&needed) {
                let got = values.get(&metric.name()).unwrap();
                let what = format!("golden case `{}`, {}: {}", case.name, problem.loss.name(), metric.name());
                assert!((got - f64::from(*needed)).abs() < 1e-6, "{what} is {got}, needs {needed}");
            }
        }
    }
}

#[test]
fn metrics_that_a_loss_does_not_tell_are_refused() {
    let problem = problem(Loss::MEAN_SQUARED_ERROR, &[1, 2], &[0.0; 2], &[1, 2], &[0.0; 2]);
    let mut compile = Compile::new(Optimizer::adam(0.1), problem.loss.clone());
    compile.metrics = vec![vec![Metric::Accuracy]];
    let error = Trainer::new(problem.model(), compile).err().unwrap();
    assert_eq!(
        error.to_string(),
        "metric `accuracy` of output 0 can't be computed from the loss `MeanSquaredError`\n  help: accuracy goes with \
         cross-entropies and hinges"
    );
}

#[test]
fn no_digit_is_read_right_by_a_model_that_says_nan() {
    let problem = problem(Loss::SPARSE_CATEGORICAL_CROSSENTROPY, &[2, 3], &[f32::NAN; 6], &[2], &[0.0, 2.0]);
    let metrics = vec![Metric::Accuracy, Metric::TopKCategoricalAccuracy { k: 2 }];
    let report = problem.trainer(metrics, &[1.0]).evaluate(problem.data(), problem.rows()).unwrap();
    assert!(report.get("loss").unwrap().is_nan());
    assert_eq!((report.get("accuracy"), report.get("top_2_accuracy")), (Some(0.0), Some(0.0)));
    let mut compile = Compile::new(Optimizer::adam(0.1), problem.loss.clone());
    compile.metrics = vec![vec![Metric::TopKCategoricalAccuracy { k: 0 }]];
    let error = Trainer::new(problem.model(), compile).err().unwrap().to_string();
    assert!(error.contains("needs `k` of at least 1, but is 0"), "{error}");
}

/// A softmax before a loss that applies its own trains badly without a word: it is refused.
#[test]
fn a_softmax_before_the_loss_is_refused() {
    use manyhands::Sequential;
    use manyhands::layers::{Activation, Sigmoid, Softmax};
    let refused = |model: Sequential, loss: Loss| {
        let compile = Compile::new(Optimizer::adam(0.1), loss);
        Trainer::new(model.build(0).unwrap(), compile).err().map(|error| error.to_string())
    };
    let dense = || Sequential::new([3]).add(Dense::new(2));
    let sparse = Loss::SPARSE_CATEGORICAL_CROSSENTROPY;
    let binary = Loss::BINARY_CROSSENTROPY;
    let needed = "layer 1 `softmax` (Softmax) needs to give logits, since the loss `SparseCategoricalCrossentropy` applies \
                  its own softmax, but it ends in softmax\n  help: remove the softmax; apply it to the predictions where \
                  you need probabilities";
    assert_eq!(refused(dense().add(Softmax::default()), sparse.clone()).as_deref(), Some(needed));
    let fused = Sequential::new([3]).add(Dense::new(2).activation(Activation::Softmax));
    assert!(refused(fused, sparse).unwrap().contains("ends in softmax"));
    assert!(refused(dense().add(Sigmoid::default()), binary).unwrap().contains("ends in sigmoid"));
    assert_eq!(refused(dense().add(Softmax::default()), Loss::MEAN_SQUARED_ERROR), None);
}

#[test]
fn label_smoothing_has_a_range() {
    let problem =
        problem(CategoricalCrossentropy { label_smoothing: 1.0 }.into(), &[1, 2], &[0.0; 2], &[1, 2], &[0.0, 1.0]);
    let error = Trainer::new(problem.model(), Compile::new(Optimizer::adam(0.1), problem.loss.clone())).err().unwrap();
    assert_eq!(
        error.to_string(),
        "loss `CategoricalCrossentropy` needs a label smoothing of at least 0 and below 1, but got 1\n  help: 0 switches it \
         off; 0.1 is usual"
    );
    let shape = Shape::new([2, 5]);
    assert_eq!(Loss::SPARSE_CATEGORICAL_CROSSENTROPY.target_shape(&shape), Shape::new([2]));
    assert_eq!(Loss::MEAN_SQUARED_ERROR.target_shape(&shape), shape);
}

#[test]
fn losses_and_metrics_stand_in_files_as_ever() {
    for entry in LOSSES {
        let loss: Loss = serde_json::from_value(json!({ "type": entry.kind })).unwrap();
        assert_eq!(loss.name(), entry.kind);
        let text = serde_json::to_string(&loss).unwrap();
        let settings = match entry.kind {
            "CategoricalFocalCrossentropy" => ",\"alpha\":0.25,\"gamma\":2.0,\"label_smoothing\":0.0",
            "BinaryFocalCrossentropy" => {
                ",\"apply_class_balancing\":false,\"alpha\":0.25,\"gamma\":2.0,\"label_smoothing\":0.0"
            }
            "Huber" => ",\"delta\":1.0",
            "CosineSimilarity" => ",\"axis\":-1",
            kind if kind.ends_with("Crossentropy") => ",\"label_smoothing\":0.0",
            _ => "",
        };
        assert_eq!(text, format!("{{\"type\":\"{}\"{settings}}}", entry.kind));
        assert_eq!(serde_json::from_str::<Loss>(&text).unwrap(), loss);
    }
    let smoothed: Loss = CategoricalCrossentropy { label_smoothing: 0.1 }.into();
    let text = serde_json::to_string(&smoothed).unwrap();
    assert_eq!(text, r#"{"type":"CategoricalCrossentropy","label_smoothing":0.1}"#);
    let metrics = vec![Metric::Accuracy, Metric::TopKCategoricalAccuracy { k: 5 }, Metric::MeanAbsoluteError];
    let text = serde_json::to_string(&metrics).unwrap();
    assert_eq!(text, r#"["accuracy",{"top_k_categorical_accuracy":{"k":5}},"mean_absolute_error"]"#);
    let short = serde_json::from_str::<Loss>(r#"{"type": "mse"}"#).unwrap();
    assert_eq!(short.name(), "MeanSquaredError");
    let unknown = serde_json::from_str::<Loss>(r#"{"type": "Huper"}"#).unwrap_err().to_string();
    assert!(
        unknown.starts_with("unknown variant `Huper`, expected one of `SparseCategoricalCrossentropy`, "),
        "{unknown}"
    );
}

/// A number outside of 0 to 1 makes a cross-entropy that has no least value: it is found before anything is updated.
#[test]
fn targets_that_are_no_probabilities_are_refused() {
    let refused = |loss: &Loss, logits: &[f32], targets: &[f32]| {
        let problem = problem(loss.clone(), &[3, logits.len() / 3], logits, &[3, targets.len() / 3], targets);
        let mut trainer = problem.trainer(Vec::new(), &[1.0]);
        let fit = Fit::new(1).batch_size(3).in_order();
        let error = trainer.fit(problem.data(), &fit).unwrap_err().to_string();
        assert_eq!(trainer.evaluate(problem.data(), 3).unwrap_err().to_string(), error);
        assert_eq!(trainer.model().tensor("in0/kernel").unwrap(), logits, "nothing is updated");
        error
    };
    // Three classes, one unit: a loss far below 0 before.
    let binary = Loss::BINARY_CROSSENTROPY;
    assert_eq!(
        refused(&binary, &[0.5, 1.5, 2.5], &[0.0, 1.0, 2.0]),
        "target 0 needs numbers from 0 to 1, but row 2 holds 2\n  help: one number tells two classes apart, 0 and 1; for \
         more, give the last layer a unit for each class and use `SparseCategoricalCrossentropy`"
    );
    let scale = "a cross-entropy takes probabilities; for other numbers use `MeanSquaredError`, or scale them";
    assert_eq!(
        refused(&binary, &[0.5, 1.5, 2.5], &[0.0, -0.25, 2.0]),
        format!("target 0 needs numbers from 0 to 1, but row 1 holds -0.25\n  help: {scale}")
    );
    let dense = Loss::CATEGORICAL_CROSSENTROPY;
    let error = refused(&dense, &[0.0; 6], &[0.0, 1.0, 1.5, 0.0, 0.0, 1.0]);
    assert_eq!(error, format!("target 0 needs numbers from 0 to 1, but row 1 holds 1.5\n  help: {scale}"));
}

/// What hinges and counts can't be: found before anything is updated, in a whole dataset and in a batch.
#[test]
fn targets_out_of_the_range_of_a_loss_are_refused() {
    let refused = |loss: Loss, targets: &[f32; 3]| {
        let problem = problem(loss, &[3, 1], &[0.5; 3], &[3, 1], targets);
        let mut trainer = problem.trainer(Vec::new(), &[1.0]);
        let batch = manyhands::data::Batch::fetch(problem.data().as_ref(), &[0, 1, 2]).unwrap();
        let of_batch = trainer.train_on_batch(batch).err().map(|error| error.to_string());
        let error = trainer.fit(problem.data(), &Fit::new(1).batch_size(3)).err().map(|error| error.to_string());
        assert_eq!(error, of_batch);
        error
    };
    let signs = "a hinge tells two classes apart; for other numbers use `MeanSquaredError`";
    let needed = |what: &str| Some(format!("target 0 needs -1 and 1, or 0 and 1, but row {what}\n  help: {signs}"));
    assert_eq!(refused(losses::Hinge {}.into(), &[1.0, 0.5, -1.0]), needed("1 holds 0.5"));
    assert_eq!(refused(losses::SquaredHinge {}.into(), &[1.0, 0.0, -1.0]), needed("2 holds -1"));
    assert_eq!(refused(losses::Hinge {}.into(), &[1.0, 0.0, 0.0]), None);
    assert_eq!(refused(losses::Hinge {}.into(), &[1.0, -1.0, -1.0]), None);
    let counts = "target 0 needs numbers of at least 0, but row 2 holds -2\n  help: `Poisson` takes counts; for other \
                  numbers use `MeanSquaredError`";
    assert_eq!(refused(losses::Poisson {}.into(), &[0.0, 3.0, -2.0]).as_deref(), Some(counts));
    assert!(refused(losses::KLDivergence {}.into(), &[0.0, 1.0, 1.5]).unwrap().contains("row 2 holds 1.5"));
}

#[test]
fn settings_of_losses_have_ranges() {
    let refused = |loss: Loss| loss.check().unwrap_err().to_string();
    let huber = losses::Huber { delta: 0.0 }.into();
    assert_eq!(refused(huber), "loss `Huber` needs a `delta` above 0, but got 0\n  help: 1 is usual");
    let focal = losses::BinaryFocalCrossentropy { alpha: 1.5, ..Default::default() }.into();
    let needed = "loss `BinaryFocalCrossentropy` needs an `alpha` from 0 to 1, but got 1.5\n  help: 0.25 is usual";
    assert_eq!(refused(focal), needed);
    let focal = losses::CategoricalFocalCrossentropy { gamma: -1.0, ..Default::default() }.into();
    assert!(refused(focal).contains("needs a `gamma` of at least 0, but got -1"));
    let smoothed = losses::CategoricalFocalCrossentropy { label_smoothing: 1.0, ..Default::default() }.into();
    assert!(refused(smoothed).contains("label smoothing"));
    let cosine = losses::CosineSimilarity { axis: 1 }.into();
    assert!(refused(cosine).contains("needs `axis` -1, the last, but got 1"));
}

/// Two outputs that read one input.
fn two_outputs(names: [&str; 2]) -> Model {
    let mut graph = ModelBuilder::new();
    let input = graph.input("x", [3]);
    let outputs = names.map(|name| graph.add_named(name, Dense::new(2), &[input]));
    graph.build(&outputs, 5).unwrap()
}

fn two_losses(loss_weights: Vec<f32>) -> Compile {
    let losses = vec![Loss::MEAN_SQUARED_ERROR, Loss::SPARSE_CATEGORICAL_CROSSENTROPY];
    Compile::with_losses(Optimizer::sgd(0.1, 0.0), losses).loss_weights(loss_weights)
}

/// Keras' `CompileLoss` records the losses of outputs before it multiplies them by their weights.
#[test]
fn losses_of_outputs_are_reported_without_their_weights() {
    let inputs = Array2::from_shape_fn((6, 3), |(row, col)| bench::normal(18, 1)[3 * row + col]);
    let values = Array2::from_shape_fn((6, 2), |(row, col)| bench::normal(12, 2)[2 * row + col]);
    let labels = Array1::from_iter([0.0, 1.0, 1.0, 0.0, 1.0, 0.0]);
    let data = Arc::new(InMemory::new(inputs, values).unwrap().with_target(labels).unwrap());
    let values = |loss_weights: Vec<f32>, split: &[f64]| {
        let trainer = Trainer::new(two_outputs(["a", "b"]), two_losses(loss_weights)).unwrap();
        let mut trainer = trainer.on(vec![cpu::info(); split.len()]).split(SplitMode::Fixed(split.to_vec()));
        let evaluated = trainer.evaluate(data.clone(), 4).unwrap();
        let history = trainer.fit(data.clone(), &Fit::new(1).batch_size(6).in_order()).unwrap();
        let trained = ["loss", "a_loss", "b_loss"].map(|name| history.of(name)[0]);
        [["loss", "a_loss", "b_loss"].map(|name| evaluated.get(name).unwrap()), trained]
    };
    for split in SPLITS {
        let even = values(Vec::new(), split);
        for ([total, a, b], [_, even_a, even_b]) in values(vec![0.25, 3.0], split).into_iter().zip(even) {
            assert_eq!((a, b), (even_a, even_b), "{split:?}");
            assert!((total - (0.25 * a + 3.0 * b)).abs() < 1e-6, "{split:?}: {total} of {a} and {b}");
        }
        let [[total, a, b], _] = values(vec![1.0, 0.0], split);
        assert!((total - a).abs() < 1e-7 && b > 0.1, "{split:?}: {total} of {a} and {b}");
    }
}

#[test]
fn a_name_in_the_log_is_that_of_one_number() {
    let refused = |names: [&str; 2], metrics: Vec<Vec<Metric>>| {
        let compile = two_losses(Vec::new()).metrics_by_output(metrics);
        Trainer::new(two_outputs(names), compile).err().map(|error| error.to_string())
    };
    assert_eq!(
        refused(["val", "b"], Vec::new()).as_deref(),
        Some(
            "output `val` needs a name that does not begin like a number of validation, but `val_loss` would\n  help: give \
             the layer another `name`: `val_loss` is the loss on validation data"
        )
    );
    assert!(refused(["b", "val_b"], Vec::new()).unwrap().starts_with("output `val_b` needs a name"));
    assert_eq!(refused(["value", "validity"], Vec::new()), None);
    let accuracy = || vec![Metric::Accuracy, Metric::Accuracy];
    assert_eq!(
        refused(["a", "b"], vec![Vec::new(), accuracy()]).as_deref(),
        Some(
            "`b_accuracy` needs to name one number in the log, but names two\n  help: name each metric of an \
             output once, and give outputs names that do not end in a metric's or another's"
        )
    );
    let flat = refused(["a", "b"], vec![vec![Metric::Accuracy]]).unwrap();
    assert!(flat.contains("need a list for each of 2 outputs, but got 1"), "{flat}");
    // One output has no prefix.
    let one = |name: &str| manyhands::Sequential::new([3]).add_named(name, Dense::new(2)).build(0).unwrap();
    assert!(Trainer::new(one("val"), Compile::new(Optimizer::adam(0.1), Loss::MEAN_SQUARED_ERROR)).is_ok());
}

/// Statistics of the whole batch and micro-batches exclude each other: the message names both settings.
#[test]
fn micro_batches_of_a_synchronized_model_are_refused() {
    let norm = |synchronized| BatchNormalization { synchronized, ..BatchNormalization::new() };
    let model = |synchronized| {
        let layers = manyhands::Sequential::new([6]).add(Dense::new(4)).add(norm(synchronized));
        layers.add(Dense::new(3)).build(0).unwrap()
    };
    let (inputs, labels) = (Array2::<f32>::eye(6), Array1::from_iter([0.0, 1.0, 2.0, 0.0, 1.0, 2.0]));
    let data = Arc::new(InMemory::new(inputs, labels).unwrap());
    let fit = Fit::new(1).batch_size(6).micro_batches(2);
    let run = |synchronized| {
        let compile = Compile::new(Optimizer::adam(0.1), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        let trainer = Trainer::new(model(synchronized), compile).unwrap();
        trainer.on(vec![cpu::info(); 2]).fit(data.clone(), &fit).map_err(|error| error.to_string())
    };
    assert!(run(false).is_ok());
    assert_eq!(
        run(true).unwrap_err(),
        "micro_batches needs to be 1 where batch-norm is `synchronized`, whose statistics are those of the whole batch, but \
         is 2\n  help: leave it out, or set `synchronized = false`: then statistics are those of a micro-batch"
    );
}
