//! Loss and metrics, from the reports of single rows.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Compile, Values};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::losses::Reduction;
use crate::shape::Shape;

/// Sums over the batches of an epoch, saved in a checkpoint so that a resumed epoch reports the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    rows: f64,
    /// Sum over batches of rows times value, in the order of [`names`].
    #[serde(deserialize_with = "numbers_or_null")]
    sums: Vec<f64>,
}

/// JSON has no number that is not finite, and writes null.
fn numbers_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

/// Names of the reported numbers, in order.
pub(super) fn names(compile: &Compile, outputs: &[(&str, &Shape)]) -> Vec<String> {
    let several = outputs.len() > 1;
    let mut names = vec!["loss".to_owned()];
    for (output, (name, _)) in outputs.iter().enumerate() {
        if several {
            names.push(format!("{name}_loss"));
        }
        let prefix = if several { format!("{name}_") } else { String::new() };
        names.extend(compile.metrics_of(output).iter().map(|metric| format!("{prefix}{}", metric.name())));
    }
    names
}

/// Checks that each name of a log is that of one number, those of validation included.
pub(super) fn check_names(compile: &Compile, outputs: &[(&str, &Shape)]) -> Result<()> {
    if let Some((name, _)) = outputs.iter().find(|(name, _)| outputs.len() > 1 && is_validation(name)) {
        return Err(Error::setting(
            format!("output `{name}`"),
            format!("needs a name that does not begin like a number of validation, but `{name}_loss` would"),
            "give the layer another `name`: `val_loss` is the loss on validation data",
        ));
    }
    let names = names(compile, outputs);
    match (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        None => Ok(()),
        Some(at) => Err(Error::setting(
            format!("`{}`", names[at]),
            "needs to name one number in the log, but names two",
            "name each metric of an output once, and give outputs names that do not end in a metric's or another's",
        )),
    }
}

fn is_validation(output: &str) -> bool {
    output == "val" || output.starts_with("val_")
}

/// The factor of each output's loss in the total: its weight over the whole batch's count.
pub(super) fn loss_scales(compile: &Compile, outputs: &[(&str, &Shape)], batch: &Batch) -> Vec<f32> {
    scales(compile, outputs, batch, |output| compile.loss_weight(output))
}

/// The factor of each output's loss: `weight` of the output over the whole batch's count.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
#[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
fn scales(compile: &Compile, outputs: &[(&str, &Shape)], batch: &Batch, weight: impl Fn(usize) -> f32) -> Vec<f32> {
    let weight_sum = || batch.sample_weights.as_ref().map(|weights| weights.iter().map(|w| f64::from(*w)).sum::<f64>());
    let rows = match compile.reduction {
        Reduction::SumOverBatchSize => batch.rows as f64,
        Reduction::MeanWithSampleWeight => weight_sum().unwrap_or(batch.rows as f64),
        Reduction::Sum => 1.0,
    };
    let scale = |(output, (_, shape)): (usize, &(&str, &Shape))| {
        let positions = if compile.reduction == Reduction::Sum { 1.0 } else { shape.positions() as f64 };
        let weight = f64::from(weight(output));
        // A batch of weight 0 has no loss and no gradient; not 0 / 0.
        if rows > 0.0 { (weight / (rows * positions)) as f32 } else { 0.0 }
    };
    outputs.iter().enumerate().map(scale).collect()
}

/// Reports of adapters about a batch.
pub(super) struct Reports<'a> {
    /// Loss and score of each row by output, and then the penalty of each row, if there is one.
    pub rows: &'a [Vec<f32>],
    /// Penalties of the parameters.
    pub penalty: f64,
}

/// Loss and metrics of a batch from its rows' reports. Sums go over the rows in order, whatever the split was. Penalties
/// are part of the total.
///
/// The total counts each output's loss by its weight; the loss of an output is reported without it, as in Keras.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn numbers(compile: &Compile, outputs: &[(&str, &Shape)], reports: &Reports<'_>, batch: &Batch) -> Vec<f64> {
    let in_total = loss_scales(compile, outputs, batch);
    let own = scales(compile, outputs, batch, |_| 1.0);
    // Penalties of the layers' outputs stand behind the losses' rows.
    let of_rows = |report: &[f32]| report.iter().step_by(2).map(|penalty| f64::from(*penalty)).sum::<f64>();
    let activity: f64 = reports.rows.iter().skip(outputs.len()).map(|report| of_rows(report)).sum();
    let mut numbers = vec![reports.penalty + activity / batch.rows.max(1) as f64];
    for output in 0..outputs.len() {
        let (report, score) = (&reports.rows[output], compile.losses[output].score());
        let weighted: f64 = report.iter().step_by(2).map(|loss| f64::from(*loss)).sum();
        numbers[0] += weighted * f64::from(in_total[output]);
        if outputs.len() > 1 {
            numbers.push(weighted * f64::from(own[output]));
        }
        for metric in compile.metrics_of(output) {
            // No number is larger than NaN, so its rank would be the best.
            let scores = report.chunks_exact(2).map(|row| if row[0].is_nan() { f32::NAN } else { row[1] });
            let sum: f64 = scores.filter_map(|value| metric.value(score, value)).sum();
            numbers.push(sum / (report.len() / 2).max(1) as f64);
        }
    }
    numbers
}

impl Meter {
    /// Adds a batch; returns its own loss and metrics.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(super) fn add(
        &mut self,
        compile: &Compile,
        outputs: &[(&str, &Shape)],
        reports: &Reports<'_>,
        batch: &Batch,
    ) -> Values {
        let numbers = numbers(compile, outputs, reports, batch);
        let rows = batch.rows as f64;
        self.rows += rows;
        self.sums.resize(numbers.len(), 0.0);
        self.sums.iter_mut().zip(&numbers).for_each(|(sum, value)| *sum += value * rows);
        named(compile, outputs, &numbers)
    }

    /// Loss and metrics so far: each batch counts by its rows.
    pub(super) fn values(&self, compile: &Compile, outputs: &[(&str, &Shape)]) -> Values {
        if self.sums.is_empty() {
            // No rows: each value is NaN.
            return named(compile, outputs, &vec![f64::NAN; names(compile, outputs).len()]);
        }
        let means: Vec<f64> = self.sums.iter().map(|sum| sum / self.rows.max(1.0)).collect();
        named(compile, outputs, &means)
    }
}

fn named(compile: &Compile, outputs: &[(&str, &Shape)], numbers: &[f64]) -> Values {
    let mut values = Values::default();
    names(compile, outputs).iter().zip(numbers).for_each(|(name, value)| values.set(name, *value));
    values
}
