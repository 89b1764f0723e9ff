//! Are metrics that are counted from outputs and targets those of Keras, for any batch and any split?
//!
//! The outputs are the kernel of a `Dense` layer that reads rows with one 1 each. Needs the CPU alone.

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use std::sync::Arc;

use manyhands::callbacks::{EarlyStopping, Mode, ModelCheckpoint, Monitor};
use manyhands::data::{Batch, InMemory};
use manyhands::metrics::METRICS;
use manyhands::metrics::{AUC, F1Score, Precision};
use manyhands::{Compile, Fit, Loss, Metric, Optimizer, SplitMode, Trainer};
use manyhands_engine::adapters::cpu;
use ndarray::{Array1, ArrayD, IxDyn};
use serde_json::json;

use crate::golden::{Golden, Tensor};
use crate::largest_error::{LargestError, Merges};
use crate::table;

const SPLITS: [&[f64]; 3] = [&[1.0], &[1.0, 2.0], &[2.0, 0.0, 1.0]];

/// A model that gives these outputs, row by row, and data with these targets.
fn given(outputs: &Tensor, targets: &Tensor, weights: Option<Vec<f32>>) -> (manyhands::Model, Arc<InMemory>) {
    let rows = outputs.shape[0];
    let mut model = table::config(&[], &[outputs.shape[1..].to_vec()], rows).build(0).unwrap();
    model.tensor_mut("in0/kernel").unwrap().copy_from_slice(&outputs.values);
    let inputs = ArrayD::from_shape_vec(IxDyn(&[rows; 2]), table::rows(rows).to_vec()).unwrap();
    let targets = ArrayD::from_shape_vec(IxDyn(&targets.shape), targets.values.clone()).unwrap();
    let data = InMemory::new(inputs, targets).unwrap();
    let data = match weights {
        Some(weights) => data.with_sample_weights(Array1::from(weights)).unwrap(),
        None => data,
    };
    (model, Arc::new(data))
}

fn trainer(model: manyhands::Model, loss: Loss, metrics: Vec<Metric>, split: &[f64]) -> Trainer {
    let compile = Compile::new(Optimizer::sgd(0.0, 0.0), loss).metrics(metrics);
    let trainer = Trainer::new(model, compile).unwrap().on(vec![cpu::info(); split.len()]);
    trainer.split(SplitMode::Fixed(split.to_vec()))
}

#[test]
fn metrics_of_a_dataset_are_golden_for_any_batch_and_split() {
    let mut seen = Vec::new();
    for case in Golden::open("counted_metrics").cases() {
        let kind = case.facts["metric"].as_str().unwrap();
        seen.push(kind.to_owned());
        let metric: Metric = serde_json::from_value(json!({ kind: case.facts["config"].clone() })).unwrap();
        let loss: Loss = serde_json::from_value(json!({ "type": case.facts["loss"] })).unwrap();
        let needed = f64::from(case.values("result")[0]);
        for (split, batch) in SPLITS.into_iter().zip([40, 7, 16]) {
            let (model, data) = given(case.tensor("outputs"), case.tensor("targets"), None);
            let mut trainer = trainer(model, loss.clone(), vec![metric.clone()], split);
            let evaluated = trainer.evaluate(data.clone(), batch).unwrap();
            // At a rate of 0 each batch sees the same weights.
            let history = trainer.fit(data, &Fit::new(1).batch_size(batch).in_order()).unwrap();
            for got in [evaluated.get(&metric.name()).unwrap(), history.of(&metric.name())[0]] {
                let what = format!("golden case `{}`, split {split:?}, batches of {batch}", case.name);
                assert!((got - needed).abs() < 2e-6 * (1.0 + needed.abs()), "{what}: {got}, needs {needed}");
            }
        }
    }
    for entry in METRICS {
        assert!(seen.iter().any(|kind| kind == entry.kind), "no golden case of `{}`", entry.kind);
    }
}

/// `exp` of the mean cross-entropy over all rows, not the mean of the batches' own; rows count by their weights.
#[test]
fn perplexity_is_that_of_the_dataset() {
    let case = Golden::open("losses").case("sparse_categorical_crossentropy");
    let losses = case.values("values");
    let weights = vec![1.0, 0.5, 0.0, 2.0, 1.0, 0.25];
    let mean = |weights: &[f32]| {
        let sum: f64 = losses.iter().zip(weights).map(|(loss, weight)| f64::from(*loss) * f64::from(*weight)).sum();
        (sum / weights.iter().map(|weight| f64::from(*weight)).sum::<f64>()).exp()
    };
    for (weights, needed) in [(None, mean(&[1.0; 6])), (Some(weights.clone()), mean(&weights))] {
        for split in SPLITS {
            let (model, data) = given(case.tensor("logits"), case.tensor("targets"), weights.clone());
            let loss = Loss::SPARSE_CATEGORICAL_CROSSENTROPY;
            let values = trainer(model, loss, vec![Metric::Perplexity], split).evaluate(data, 4).unwrap();
            let got = values.get("perplexity").unwrap();
            assert!((got - needed).abs() < 1e-5 * needed, "{split:?}: {got}, needs {needed}");
        }
    }
}

/// Class indices count as a 1 for the class.
#[test]
fn classes_by_index_are_those_of_one_hot_targets() {
    let case = Golden::open("counted_metrics").case("precision_top_k");
    let one_hot = case.tensor("targets");
    let labels = one_hot.values.chunks(4).map(|row| row.iter().position(|value| *value == 1.0).unwrap());
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let labels = Tensor { shape: vec![40], values: labels.map(|label| label as f32).collect() };
    let metric: Metric = Precision { top_k: Some(2), ..Precision::default() }.into();
    let (model, data) = given(case.tensor("outputs"), &labels, None);
    let loss = Loss::SPARSE_CATEGORICAL_CROSSENTROPY;
    let values = trainer(model, loss, vec![metric], &[1.0]).evaluate(data, 7).unwrap();
    assert!((values.get("top_2_precision").unwrap() - f64::from(case.values("result")[0])).abs() < 1e-6);
}

/// Batches that the caller brings count together until they are forgotten, in training and at inference.
#[test]
fn metrics_of_the_callers_batches_are_those_of_all_of_them() {
    let case = Golden::open("counted_metrics").case("auc");
    let needed = f64::from(case.values("result")[0]);
    let (model, data) = given(case.tensor("outputs"), case.tensor("targets"), None);
    let metric = vec![AUC::default().into()];
    let mut trainer = trainer(model, Loss::BINARY_CROSSENTROPY, metric, &[1.0, 1.0]);
    let batch = |rows: std::ops::Range<usize>| Batch::fetch(data.as_ref(), &rows.collect::<Vec<_>>()).unwrap();
    let is_golden = |value: Option<f64>| value.is_some_and(|value| (value - needed).abs() < 1e-6);
    for _ in 0..2 {
        trainer.reset_metrics();
        let first = trainer.train_on_batch(batch(0..9)).unwrap();
        assert_eq!(first.running.get("auc"), first.values.get("auc"));
        assert!(!is_golden(first.running.get("auc")));
        let second = trainer.train_on_batch(batch(9..40)).unwrap();
        assert!(!is_golden(second.values.get("auc")) && is_golden(second.running.get("auc")));
        assert_eq!(trainer.metrics_on_batch(), second.running);
    }
    // An epoch begins with none of them.
    let history = trainer.fit(data.clone(), &Fit::new(1).batch_size(16)).unwrap();
    assert!(is_golden(Some(history.of("auc")[0])));
}

#[test]
fn a_metric_of_your_own_stands_beside_those_of_the_crate() {
    let outputs = Tensor { shape: vec![3, 1], values: vec![1.0, 2.0, -4.0] };
    let targets = Tensor { shape: vec![3, 1], values: vec![1.5, 2.0, -1.0] };
    for split in SPLITS {
        let (model, data) = given(&outputs, &targets, None);
        let metrics =
            vec![Metric::MeanAbsoluteError, LargestError { merges: Merges::Largest }.into(), AUC::default().into()];
        let values = trainer(model, Loss::MEAN_SQUARED_ERROR, metrics, split).evaluate(data, 2).unwrap();
        assert_eq!(values.get("largest_error"), Some(3.0));
        assert!((values.get("mean_absolute_error").unwrap() - 3.5 / 3.0).abs() < 1e-6);
    }
}

#[test]
fn metrics_stand_in_files_by_name_or_as_a_table() {
    let read = |text: &str| serde_json::from_str::<Metric>(text);
    for entry in METRICS {
        let metric = read(&format!("\"{}\"", entry.kind)).unwrap();
        let text = serde_json::to_string(&metric).unwrap();
        assert_eq!(read(&text).unwrap(), metric, "{text}");
    }
    let auc = Metric::from(AUC { num_thresholds: 50, ..AUC::default() });
    let text = serde_json::to_string(&auc).unwrap();
    assert_eq!(text, r#"{"auc":{"num_thresholds":50,"curve":"ROC","summation_method":"interpolation"}}"#);
    assert_eq!(read(r#"{"auc": {"num_thresholds": 50}}"#).unwrap(), auc);
    assert_ne!(auc, AUC::default().into());
    assert_eq!(serde_json::to_string(&Metric::from(Precision::default())).unwrap(), "\"precision\"");
    assert_eq!(serde_json::to_string(&Metric::Perplexity).unwrap(), "\"perplexity\"");
    assert_eq!(read("\"perplexity\"").unwrap(), Metric::Perplexity);
    let refused = |text: &str| read(text).unwrap_err().to_string();
    assert!(refused("\"precission\"").starts_with("unknown variant `precission`, expected one of `accuracy`, "));
    assert!(refused(r#"{"auc": {"curves": 1}}"#).starts_with("unknown field `curves`"));
    assert!(
        refused(r#"{"auc": {}, "recall": {}}"#).contains("needs one metric in a table, but has `auc` and `recall`")
    );
    assert!(refused(r#"{"accuracy": {}}"#).contains("`accuracy` has no settings"));
}

#[test]
fn settings_of_metrics_have_ranges() {
    let refused = |loss: Loss, metric: Metric| {
        let outputs = Tensor { shape: vec![1, 2], values: vec![0.0; 2] };
        let (model, _) = given(&outputs, &outputs, None);
        let compile = Compile::new(Optimizer::adam(0.1), loss).metrics([metric]);
        Trainer::new(model, compile).err().unwrap().to_string()
    };
    let mse = || Loss::MEAN_SQUARED_ERROR;
    let precision = Precision { class_id: Some(2), ..Precision::default() };
    assert_eq!(
        refused(mse(), precision.into()),
        "metric `class_2_precision` of output 0 needs a `class_id` below 2, but got 2\n  help: count the classes from 0"
    );
    let f1 = F1Score { threshold: Some(0.0), ..F1Score::default() };
    assert!(refused(mse(), f1.into()).contains("needs a `threshold` above 0 and up to 1, but got 0"));
    let auc = AUC { num_thresholds: 1, ..AUC::default() };
    assert!(refused(mse(), auc.into()).contains("needs `num_thresholds` from 2 to 65536, but got 1"));
    let added = refused(mse(), LargestError { merges: Merges::AsSums }.into());
    assert_eq!(
        added,
        "metric `largest_error` of output 0 needs a `merge` that gives the sums of all positions from those of two parts, but \
         sums that are added do not\n  help: write `MetricFunction::merge` for it: batches and processes are counted apart"
    );
    let perplexity = refused(mse(), Metric::Perplexity);
    assert!(perplexity.contains("metric `perplexity` of output 0 can't be computed from the loss `MeanSquaredError`"));
}

/// Source: `_direction` of each metric of Keras 3.15, `up` or `down`.
const DIRECTIONS: [(&str, Mode); 16] = [
    ("precision", Mode::Max),
    ("recall", Mode::Max),
    ("f1_score", Mode::Max),
    ("auc", Mode::Max),
    ("binary_accuracy", Mode::Max),
    ("categorical_accuracy", Mode::Max),
    ("mean_squared_error", Mode::Min),
    ("root_mean_squared_error", Mode::Min),
    ("r2_score", Mode::Max),
    ("logcosh", Mode::Min),
    ("poisson", Mode::Min),
    ("kl_divergence", Mode::Min),
    ("hinge", Mode::Min),
    ("squared_hinge", Mode::Min),
    ("categorical_hinge", Mode::Min),
    ("cosine_similarity", Mode::Max),
];

#[test]
fn every_metric_says_in_which_direction_it_improves() {
    for entry in METRICS {
        let metric: Metric = serde_json::from_value(json!(entry.kind)).unwrap();
        let (_, needed) = DIRECTIONS.iter().find(|(kind, _)| *kind == entry.kind).unwrap();
        assert_eq!(metric.mode(), Some(*needed), "{}", entry.kind);
    }
    let of_rows = [Metric::Accuracy, Metric::TopKCategoricalAccuracy { k: 2 }, Metric::MeanAbsoluteError];
    assert_eq!(of_rows.map(|metric| metric.mode()), [Some(Mode::Max), Some(Mode::Max), Some(Mode::Min)]);
    assert_eq!(Metric::Perplexity.mode(), Some(Mode::Min));
    assert_eq!(Metric::Own("margin".into()).mode(), None);
}

const ROWS: usize = 12;

/// Rows of two classes in turn, or of the other class each.
fn two_classes(other: usize) -> Tensor {
    let values =
        (0..ROWS).flat_map(|row| [0, 1].map(|class| f32::from(u8::from((row + class + other).is_multiple_of(2)))));
    Tensor { shape: vec![ROWS, 2], values: values.collect() }
}

/// A model that takes each row for the other class, by margins that differ, so that steps set row after row right. It trains on
/// the rows and is validated on them; or, `backwards`, it begins with every row right and is trained to get them wrong.
fn changing(loss: Loss, metrics: Vec<Metric>, backwards: usize) -> (Trainer, [Arc<InMemory>; 2]) {
    let taken_for = two_classes(1 - backwards);
    let margin = |at: usize| 0.2 * f32::from(u8::try_from(at / 2 + 1).unwrap());
    let values = taken_for.values.iter().enumerate().map(|(at, is_class)| is_class * margin(at)).collect();
    let (model, train) = given(&Tensor { shape: vec![ROWS, 2], values }, &two_classes(backwards), None);
    let (_, validation) = given(&taken_for, &two_classes(0), None);
    let compile = Compile::new(Optimizer::sgd(4.8, 0.0), loss).metrics(metrics);
    (Trainer::new(model, compile).unwrap().on(vec![cpu::info()]), [train, validation])
}

#[test]
fn early_stopping_and_the_best_model_follow_each_metric_in_its_own_direction() {
    let folder = tempfile::tempdir().unwrap();
    let more = [("accuracy", Mode::Max), ("mean_absolute_error", Mode::Min), ("perplexity", Mode::Min)];
    for (kind, _) in DIRECTIONS.into_iter().chain(more) {
        let metric: Metric = serde_json::from_value(json!(kind)).unwrap();
        let loss =
            if kind == "mean_absolute_error" { Loss::MEAN_SQUARED_ERROR } else { Loss::CATEGORICAL_CROSSENTROPY };
        for (backwards, best_epoch) in [(0, 4), (1, 1)] {
            let (mut trainer, [train, validation]) = changing(loss.clone(), vec![metric.clone()], backwards);
            let monitor = || Monitor::new(format!("val_{}", metric.name()));
            let mut stopping = EarlyStopping::new(monitor(), 10);
            let mut best = ModelCheckpoint::new(folder.path().join(format!("{kind}{best_epoch}")), monitor());
            let fit = Fit::new(4).batch_size(ROWS).in_order().validation(validation.clone());
            let history = trainer.fit_with(train, &fit, &mut [&mut stopping, &mut best]).unwrap();
            let values = history.of(&format!("val_{}", metric.name()));
            assert!(values[0] != values[3], "{kind}: {values:?}");
            let needed = values[best_epoch - 1];
            assert_eq!(stopping.best_value(), Some(needed), "{kind}, best epoch {best_epoch}: {values:?}");
            assert_eq!(best.best_value(), Some(needed), "{kind}, best epoch {best_epoch}: {values:?}");
            let evaluated = trainer.evaluate(validation, ROWS).unwrap().get(&metric.name()).unwrap();
            assert!((evaluated - needed).abs() < 1e-6, "{kind}: the model has {evaluated}, of {values:?}");
        }
    }
}

/// Accuracy falls from epoch to epoch. Source of the epochs: Keras 3, `EarlyStopping.on_epoch_end`.
#[test]
fn early_stopping_starts_from_an_epoch() {
    let ends_after = |start_from_epoch: u64, patience: u32| {
        let (mut trainer, [train, validation]) = changing(Loss::CATEGORICAL_CROSSENTROPY, vec![Metric::Accuracy], 1);
        let monitor = Monitor::new("val_accuracy");
        let mut stopping = EarlyStopping::new(monitor, patience).start_from_epoch(start_from_epoch);
        let fit = Fit::new(6).batch_size(ROWS).in_order().validation(validation);
        let history = trainer.fit_with(train, &fit, &mut [&mut stopping]).unwrap();
        let values = history.of("val_accuracy");
        let best = stopping.best_value().map(|best| values.iter().position(|value| *value == best).unwrap() + 1);
        (values.len(), best)
    };
    assert_eq!(ends_after(0, 2), (3, Some(1)));
    assert_eq!(ends_after(1, 2), (4, Some(2)));
    assert_eq!(ends_after(6, 1), (6, None));
}

#[test]
fn a_metric_without_a_direction_needs_a_mode() {
    let own = |mode: Option<Mode>| {
        let metric: Metric = LargestError { merges: Merges::Largest }.into();
        let (mut trainer, [train, _]) = changing(Loss::MEAN_SQUARED_ERROR, vec![metric], 0);
        let monitor = Monitor { mode, ..Monitor::new("largest_error") };
        let mut stopping = EarlyStopping::new(monitor, 10);
        trainer.fit_with(train, &Fit::new(3).batch_size(ROWS), &mut [&mut stopping]).map(|_| stopping.best_value())
    };
    let error = own(None).unwrap_err().to_string();
    assert!(error.starts_with("monitor `largest_error` needs a `mode`, but has none"), "{error}");
    let (smallest, largest) = (own(Some(Mode::Min)).unwrap(), own(Some(Mode::Max)).unwrap());
    assert!(smallest < largest, "{smallest:?} {largest:?}");
}
