//! Loss and metrics, from the reports of single rows.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Compile, Values};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::losses::{Domain, Head, Reduction};
use crate::metrics::{Metric, Mode, Position, Reported};
use crate::model::Model;
use crate::plan::PositionMask;
use crate::shape::Shape;

/// Sums over the batches of an epoch, saved in a checkpoint so that a resumed epoch reports the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    rows: f64,
    /// Sum over batches of rows times value, in the order of [`names`].
    #[serde(deserialize_with = "numbers_or_null")]
    sums: Vec<f64>,
    /// Rows behind each of the sums, where a mask makes them fewer for some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counts: Vec<f64>,
    /// Sums of each metric that is not a mean of batches, in the order of [`names`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counted: Vec<Counted>,
}

/// Sums of a metric over all positions so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Counted(#[serde(deserialize_with = "numbers_or_null")] Vec<f64>);

/// JSON has no number that is not finite, and writes null.
fn numbers_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

/// The reported numbers, in order. Losses are minimized.
pub(super) fn reported(compile: &Compile, outputs: &[(&str, &Shape)]) -> Vec<Reported> {
    let several = outputs.len() > 1;
    let loss = |name: String| Reported { name, mode: Some(Mode::Min) };
    let mut numbers = vec![loss("loss".to_owned())];
    for (output, (name, _)) in outputs.iter().enumerate() {
        if several {
            numbers.push(loss(format!("{name}_loss")));
        }
        let prefix = if several { format!("{name}_") } else { String::new() };
        let metric = |metric: &Metric| Reported { name: format!("{prefix}{}", metric.name()), mode: metric.mode() };
        numbers.extend(compile.metrics_of(output).iter().map(metric));
    }
    numbers
}

/// Their names.
pub(super) fn names(compile: &Compile, outputs: &[(&str, &Shape)]) -> Vec<String> {
    reported(compile, outputs).into_iter().map(|number| number.name).collect()
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

/// The whole batch, of which a process may have a part only.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    /// Its rows.
    pub(super) rows: usize,
    /// Count of each output by which its loss is divided: rows, their weights, or positions that a mask leaves.
    pub(super) counts: Vec<f64>,
}

impl Whole {
    /// A batch that this process has.
    pub(super) fn of(compile: &Compile, model: &Model, batch: &Batch) -> Self {
        Self { rows: batch.rows, counts: counts(compile, model, batch, batch.rows) }
    }
}

/// Whether counts follow from the number of rows; else they are sums over the rows.
pub(super) fn counts_follow_rows(compile: &Compile, model: &Model, batch: &Batch) -> bool {
    let has_weights = batch.sample_weights.is_some() && compile.reduction == Reduction::MeanWithSampleWeight;
    compile.reduction == Reduction::Sum
        || !has_weights && model.position_masks(&compile.losses).iter().all(Option::is_none)
}

/// Count of each output by which its loss is divided, where without weights and masks a batch has so many `rows`.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn counts(compile: &Compile, model: &Model, batch: &Batch, rows: usize) -> Vec<f64> {
    let sum = |weights: &[f32]| weights.iter().map(|weight| f64::from(*weight)).sum::<f64>();
    let (weights, rows) = (batch.sample_weights.as_deref(), rows as f64);
    let masks = model.position_masks(&compile.losses);
    let of = |mask: &PositionMask, output: usize| mask.of(&batch.inputs, &batch.targets[output], batch.rows);
    let count = |(output, (_, shape)): (usize, (&str, &Shape))| match (compile.reduction, &masks[output]) {
        (Reduction::Sum, _) => 1.0,
        (Reduction::SumOverBatchSize, None) => rows * shape.positions() as f64,
        (Reduction::SumOverBatchSize, Some(mask)) => sum(&of(mask, output)),
        (Reduction::MeanWithSampleWeight, None) => weights.map_or(rows, sum) * shape.positions() as f64,
        (Reduction::MeanWithSampleWeight, Some(mask)) => {
            sum(&mask.weights(&batch.inputs, &batch.targets[output], batch.rows, weights))
        }
    };
    model.outputs().into_iter().enumerate().map(count).collect()
}

/// The factor of each output's loss in the total: its weight over the whole batch's count.
pub(super) fn loss_scales(compile: &Compile, whole: &Whole) -> Vec<f32> {
    scales(whole, |output| compile.loss_weight(output))
}

/// The factor of each output's loss: `weight` of the output over the whole batch's count.
#[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
fn scales(whole: &Whole, weight: impl Fn(usize) -> f32) -> Vec<f32> {
    let scale = |(output, count): (usize, &f64)| {
        // A batch of weight 0 has no loss and no gradient; not 0 / 0.
        if *count > 0.0 { (f64::from(weight(output)) / count) as f32 } else { 0.0 }
    };
    whole.counts.iter().enumerate().map(scale).collect()
}

/// Reports of adapters about a batch.
pub(super) struct Reports<'a> {
    /// Loss and score of each row by output; outputs that metrics need; and then the penalty of each row, if there is one.
    pub rows: &'a [Vec<f32>],
    /// Penalties of the parameters.
    pub penalty: f64,
}

/// A batch with the reports of its rows.
struct ReportedBatch<'a> {
    compile: &'a Compile,
    model: &'a Model,
    reports: &'a Reports<'a>,
    batch: &'a Batch,
    whole: &'a Whole,
}

/// A number of a batch, or of a part of one.
enum Number {
    /// A loss, and its rows.
    Loss([f64; 2]),
    /// A sum, the positions in it, and the rows that they count as.
    Mean([f64; 3]),
    /// Sums of a metric that is no mean of batches.
    Counted(Metric, Vec<f64>),
}

impl Number {
    fn fields(&self) -> &[f64] {
        match self {
            Self::Loss(fields) => fields,
            Self::Mean(fields) => fields,
            Self::Counted(_, fields) => fields,
        }
    }

    /// Merges the fields of another part of the batch.
    fn merge(&mut self, part: &[f64]) {
        let fields: &mut [f64] = match self {
            Self::Loss(fields) => fields,
            Self::Mean(fields) => fields,
            Self::Counted(metric, fields) => return metric.merge(part, fields),
        };
        fields.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }

    /// Makes it that of no rows.
    fn clear(&mut self) {
        match self {
            Self::Loss(fields) => fields.fill(0.0),
            Self::Mean(fields) => fields.fill(0.0),
            Self::Counted(_, fields) => fields.fill(0.0),
        }
    }
}

/// The numbers of a batch.
pub(super) struct Tally(Vec<Number>);

impl Tally {
    /// Loss and metrics of a batch, or of a part of it, from its rows' reports.
    pub(super) fn of(compile: &Compile, model: &Model, reports: &Reports<'_>, batch: &Batch, whole: &Whole) -> Self {
        Self(ReportedBatch { compile, model, reports, batch, whole }.numbers())
    }

    /// All numbers, one after the other.
    pub(super) fn fields(&self) -> Vec<f64> {
        self.0.iter().flat_map(Number::fields).copied().collect()
    }

    /// Takes the numbers of the whole batch from the [`fields`](Self::fields) of all its parts, in their order.
    pub(super) fn set_parts<'a>(&mut self, parts: impl Iterator<Item = &'a [f64]>) {
        self.0.iter_mut().for_each(Number::clear);
        for mut part in parts {
            for number in &mut self.0 {
                let (own, rest) = part.split_at(number.fields().len().min(part.len()));
                number.merge(own);
                part = rest;
            }
        }
    }
}

/// Weight of each position of an output that has a mask: 1, or 0 for one that is left out.
type Mask = Option<Vec<f32>>;

impl ReportedBatch<'_> {
    fn mask(&self, output: usize) -> Mask {
        let mask = self.model.position_masks(&self.compile.losses)[output]?;
        Some(mask.of(&self.batch.inputs, &self.batch.targets[output], self.batch.rows))
    }

    /// Loss and metrics of a batch from its rows' reports. Sums go over the rows in order, whatever the split was. Penalties
    /// are part of the total.
    ///
    /// The total counts each output's loss by its weight; the loss of an output is reported without it, as in Keras.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn numbers(&self) -> Vec<Number> {
        let Self { compile, model, reports, batch, whole } = *self;
        let (rows, whole_rows, outputs) = (batch.rows as f64, whole.rows as f64, model.outputs());
        let in_total = loss_scales(compile, whole);
        let own = scales(whole, |_| 1.0);
        // Penalties of the layers' outputs stand behind the losses' rows and the outputs.
        let of_rows = |report: &[f32]| report.iter().step_by(2).map(|penalty| f64::from(*penalty)).sum::<f64>();
        let n_reports = outputs.len() + compile.reported_outputs().len();
        let activity: f64 = reports.rows.iter().skip(n_reports).map(|report| of_rows(report)).sum();
        let mut total = reports.penalty + activity / whole_rows.max(1.0);
        let mut numbers = Vec::new();
        for output in 0..outputs.len() {
            let weighted = of_rows(&reports.rows[output]);
            total += weighted * f64::from(in_total[output]);
            if outputs.len() > 1 {
                numbers.push(Number::Loss([weighted * f64::from(own[output]), rows]));
            }
            let mask = self.mask(output);
            numbers.extend(compile.metrics_of(output).iter().map(|metric| self.number(output, metric, &mask)));
        }
        numbers.insert(0, Number::Loss([total, rows]));
        numbers
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn number(&self, output: usize, metric: &Metric, mask: &Mask) -> Number {
        if metric.is_counted() {
            return Number::Counted(metric.clone(), self.count(output, metric));
        }
        let (report, score) = (&self.reports.rows[output], self.compile.losses[output].score());
        let rows = self.batch.rows as f64;
        let counts = |at: usize| mask.as_ref().is_none_or(|mask| mask[at] != 0.0);
        // No number is larger than NaN, so its rank would be the best.
        let scores = report.chunks_exact(2).map(|row| if row[0].is_nan() { f32::NAN } else { row[1] });
        let scores = scores.enumerate().filter(|(at, _)| counts(*at));
        let sum: f64 = scores.filter_map(|(_, value)| metric.value(score, value)).sum();
        let positions = (report.len() / 2) as f64;
        let left = mask.as_ref().map_or(positions, |mask| mask.iter().map(|counts| f64::from(*counts)).sum());
        Number::Mean([sum, left, if mask.is_some() { rows * left / positions.max(1.0) } else { rows }])
    }

    /// Sums over the batch's positions for a metric of an output.
    fn count(&self, output: usize, metric: &Metric) -> Vec<f64> {
        let Some(function) = metric.counted() else { return self.count_losses(output) };
        let (_, shape) = self.model.outputs()[output];
        let (cols, loss) = (shape.last(), &self.compile.losses[output]);
        let mut sums = vec![0.0; function.n_sums(cols)];
        let reported = self.compile.reported_outputs();
        let Some(place) = reported.iter().position(|reported| *reported == output) else { return sums };
        let values = &self.reports.rows[self.model.outputs().len() + place];
        let (mask, domain) = (self.mask(output), loss.target(shape).domain);
        let targets = &self.batch.targets[output];
        let (mut outputs, mut expected) = (vec![0.0; cols], vec![0.0; cols]);
        for (at, row) in values.chunks_exact(cols).enumerate() {
            if mask.as_ref().is_some_and(|mask| mask[at] == 0.0) {
                continue;
            }
            probabilities(loss.head(), row, &mut outputs);
            if let Domain::Classes(_) = domain {
                let class = f64::from(targets[at]);
                (0_u32..)
                    .zip(&mut expected)
                    .for_each(|(col, target)| *target = f64::from(u8::from(f64::from(col) == class)));
            } else {
                let row = &targets[at * cols..(at + 1) * cols];
                expected.iter_mut().zip(row).for_each(|(target, value)| *target = f64::from(*value));
            }
            function.add(&Position { outputs: &outputs, targets: &expected }, &mut sums);
        }
        sums
    }

    /// Losses and weights of the positions, for the mean cross-entropy.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn count_losses(&self, output: usize) -> Vec<f64> {
        let (report, batch) = (&self.reports.rows[output], self.batch);
        let masks = self.model.position_masks(&self.compile.losses);
        let weights = match (masks[output], &batch.sample_weights) {
            (Some(mask), weights) => {
                let weights = mask.weights(&batch.inputs, &batch.targets[output], batch.rows, weights.as_deref());
                weights.iter().map(|weight| f64::from(*weight)).sum()
            }
            (None, None) => (report.len() / 2) as f64,
            (None, Some(weights)) => {
                let positions = report.len() / 2 / batch.rows.max(1);
                weights.iter().map(|weight| f64::from(*weight)).sum::<f64>() * positions as f64
            }
        };
        vec![report.iter().step_by(2).map(|loss| f64::from(*loss)).sum::<f64>(), weights]
    }
}

/// Writes the numbers of a row that a loss compares with its target: probabilities, where it takes logits.
fn probabilities(head: Head, row: &[f32], out: &mut [f64]) {
    out.iter_mut().zip(row).for_each(|(out, value)| *out = f64::from(*value));
    match head {
        Head::Values => {}
        Head::Sigmoid => out.iter_mut().for_each(|value| *value = 1.0 / (1.0 + (-*value).exp())),
        Head::Softmax => {
            let largest = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            out.iter_mut().for_each(|value| *value = (*value - largest).exp());
            let sum: f64 = out.iter().sum();
            out.iter_mut().for_each(|value| *value /= sum);
        }
    }
}

/// The metric that sums give.
fn result(metric: &Metric, sums: &[f64]) -> f64 {
    match (metric.counted(), sums) {
        (Some(function), sums) => function.result(sums),
        // Perplexity.
        (None, [losses, weights]) if *weights > 0.0 => (losses / weights).exp(),
        (None, _) => f64::NAN,
    }
}

impl Meter {
    /// Adds a batch of so many rows; returns its own loss and metrics.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(super) fn add(&mut self, compile: &Compile, model: &Model, tally: &Tally, rows: usize) -> Values {
        let (numbers, rows) = (&tally.0, rows as f64);
        let is_masked = |number: &Number| matches!(number, Number::Mean([.., count]) if *count != rows);
        if self.counts.is_empty() && numbers.iter().any(is_masked) {
            self.counts = vec![self.rows; numbers.len()];
        }
        self.rows += rows;
        self.sums.resize(numbers.len(), 0.0);
        let n_counted = numbers.iter().filter(|number| matches!(number, Number::Counted(..))).count();
        self.counted.resize(n_counted, Counted::default());
        let mut counted = self.counted.iter_mut();
        let mut values = Vec::new();
        for (at, number) in numbers.iter().enumerate() {
            let (value, count) = match number {
                Number::Counted(metric, own) => {
                    let Some(Counted(sums)) = counted.next() else { continue };
                    sums.resize(own.len(), 0.0);
                    metric.merge(own, sums);
                    values.push(result(metric, own));
                    continue;
                }
                Number::Loss([value, count]) => (*value, *count),
                Number::Mean([sum, left, count]) => (if *left > 0.0 { sum / left } else { 0.0 }, *count),
            };
            self.sums[at] += value * count;
            if let Some(sum) = self.counts.get_mut(at) {
                *sum += count;
            }
            values.push(value);
        }
        named(compile, &model.outputs(), &values)
    }

    /// Loss and metrics so far: each batch counts by its rows.
    pub(super) fn values(&self, compile: &Compile, model: &Model) -> Values {
        let outputs = model.outputs();
        if self.sums.is_empty() {
            // No rows: each value is NaN.
            return named(compile, &outputs, &vec![f64::NAN; names(compile, &outputs).len()]);
        }
        let mean = |at: usize| match self.counts.get(at) {
            None => self.sums[at] / self.rows.max(1.0),
            Some(count) if *count > 0.0 => self.sums[at] / count,
            Some(_) => 0.0,
        };
        let mut counted = self.counted.iter();
        let mut values = vec![mean(0)];
        for output in 0..outputs.len() {
            if outputs.len() > 1 {
                values.push(mean(values.len()));
            }
            for metric in compile.metrics_of(output) {
                let value = match counted.as_slice().first() {
                    Some(Counted(sums)) if metric.is_counted() => {
                        counted.next();
                        result(&metric, sums)
                    }
                    _ => mean(values.len()),
                };
                values.push(value);
            }
        }
        named(compile, &outputs, &values)
    }
}

fn named(compile: &Compile, outputs: &[(&str, &Shape)], numbers: &[f64]) -> Values {
    let mut values = Values::default();
    names(compile, outputs).iter().zip(numbers).for_each(|(name, value)| values.set(name, *value));
    values
}
