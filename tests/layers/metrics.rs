//! Are metrics that are counted from outputs and targets those of Keras, for any batch and any split?
//!
//! The outputs are the kernel of a `Dense` layer that reads rows with one 1 each. Needs the CPU alone.

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use std::sync::Arc;

use manyhands::data::{Batch, InMemory};
use manyhands::internals::adapters::cpu;
use manyhands::internals::metrics::METRICS;
use manyhands::metrics::{AUC, F1Score, Precision};
use manyhands::{Compile, Fit, Loss, Metric, Optimizer, SplitMode, Trainer};
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
    let compile = Compile::new(Optimizer::sgd(0.0, 0.0), loss).metrics([metrics]);
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
        let compile = Compile::new(Optimizer::adam(0.1), loss).metrics([vec![metric]]);
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
