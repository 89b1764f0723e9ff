//! Judges a trained model by rows with targets, output by output.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::classes::{Names, largest, softmax};
use manyhands::data::{Batch, BatchMut, Dataset, Field, Schema, Subset};
use manyhands::losses::Head;
use manyhands::{Loss, Result, Shape, Trainer};
use ndarray::ArrayD;
use serde::{Deserialize, Serialize};

use super::counts::{YesNoCounts, number};
use super::sample::{RowPreview, samples};
use super::threshold::Thresholds;
use super::tokens::{Collected, Tokens};

/// Numbers of outputs that are held at a time.
const MOST_NUMBERS: usize = 1 << 24;
/// Wrong predictions that are shown.
const MISTAKES: usize = 24;
/// Numbers of an output that are judged one by one.
const MOST_COLUMNS: usize = 16;
/// Classes that are counted.
const MOST_CLASSES: usize = 4096;
/// Points of a picture of predictions.
const POINTS: usize = 400;
/// Bars of a histogram.
const BARS: usize = 31;

/// The judgement of an output.
#[derive(Debug, Serialize, Deserialize)]
pub struct Judgement {
    pub output: String,
    pub of: Of,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// One of several classes.
    Classes(Classes),
    /// Several yes or no, with their names.
    Labels(Vec<(String, YesNoCounts)>),
    /// Numbers, with their names.
    Values(Vec<(String, Residuals)>),
    /// The tokens of texts.
    Tokens(Tokens),
    /// Not judged row by row: why not.
    Nothing(String),
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Classes {
    pub names: Vec<String>,
    /// Rows of a true class that were predicted as a class: `(true, predicted, rows)`.
    pub counts: Vec<(usize, usize, u64)>,
    /// The most confident mistakes.
    pub mistakes: Vec<Mistake>,
    /// Of two classes, what other thresholds would give.
    #[serde(default)]
    pub thresholds: Option<Thresholds>,
}

/// A row that was taken for another class.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Mistake {
    pub row: usize,
    pub truth: usize,
    pub predicted: usize,
    /// Probability of the predicted class.
    pub probability: f32,
    /// Probability of the true class.
    pub of_truth: f32,
    #[serde(default)]
    pub sample: Option<RowPreview>,
    /// Origin of the row: file and line.
    #[serde(default)]
    pub source: Option<String>,
}

/// Numbers and their predictions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Residuals {
    pub rows: usize,
    pub mean_absolute_error: f64,
    pub root_mean_squared_error: f64,
    /// `None` where all targets are alike.
    pub r2: Option<f64>,
    /// Mean of prediction less target.
    pub bias: f64,
    /// Half the width of a prediction interval of 90 %; `None` for fewer than nine rows.
    #[serde(default)]
    pub interval: Option<f64>,
    /// Some rows: target, prediction.
    pub points: Vec<(f32, f32)>,
    /// Start of the first bar, end of the last; residuals beyond are in these.
    pub range: (f64, f64),
    /// Rows by residual.
    pub bars: Vec<u64>,
    /// The largest errors.
    pub worst: Vec<Worst>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Worst {
    pub row: usize,
    pub target: f32,
    pub prediction: f32,
    #[serde(default)]
    pub sample: Option<RowPreview>,
    /// Origin of the row: file and line.
    #[serde(default)]
    pub source: Option<String>,
}

impl Classes {
    /// Classes with rows that are never predicted, and their rows.
    pub fn never_predicted(&self) -> Vec<(usize, u64)> {
        let never =
            |counts: &YesNoCounts| counts.rows() > 0 && counts.true_positives == 0 && counts.false_positives == 0;
        let by_class = self.by_class().into_iter().enumerate();
        by_class.filter(|(_, counts)| never(counts)).map(|(class, counts)| (class, counts.rows())).collect()
    }

    /// Answers for each class against all others.
    pub fn by_class(&self) -> Vec<YesNoCounts> {
        let mut counts = vec![YesNoCounts::default(); self.names.len()];
        let mut all = 0_u64;
        for &(truth, predicted, rows) in &self.counts {
            all = all.saturating_add(rows);
            let mut add = |class: usize, of: fn(&mut YesNoCounts) -> &mut u64| {
                if let Some(counts) = counts.get_mut(class) {
                    let sum = of(counts);
                    *sum = sum.saturating_add(rows);
                }
            };
            if truth == predicted {
                add(truth, |counts| &mut counts.true_positives);
            } else {
                add(truth, |counts| &mut counts.false_negatives);
                add(predicted, |counts| &mut counts.false_positives);
            }
        }
        for counts in &mut counts {
            let others = counts.rows().saturating_add(counts.false_positives);
            counts.true_negatives = all.saturating_sub(others);
        }
        counts
    }
}

/// A data set without its inputs: so that targets are read without decoding images.
pub struct TargetsOnly(pub Arc<dyn Dataset>);

impl Dataset for TargetsOnly {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        Vec::new()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.0.target_shapes()
    }

    fn has_sample_weights(&self) -> bool {
        self.0.has_sample_weights()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        self.0.fetch(rows, batch)
    }
}

/// Judges a trainer's model by rows with targets, all outputs at once.
pub fn judge(
    trainer: &mut Trainer,
    losses: &[Loss],
    dataset: &Arc<dyn Dataset>,
    batch_size: usize,
) -> Result<Vec<Judgement>> {
    let schema = trainer.model().schema().clone();
    let outputs = trainer.model().outputs();
    let outputs: Vec<(String, Shape)> =
        outputs.into_iter().map(|(name, shape)| (name.to_owned(), shape.clone())).collect();
    let mut judges: Vec<Judge> = outputs
        .iter()
        .zip(losses)
        .enumerate()
        .map(|(at, ((_, shape), loss))| Judge::new(loss, shape, schema.targets.get(at), dataset.len()))
        .collect();
    let width: usize = outputs.iter().map(|(_, shape)| shape.len()).sum();
    if judges.iter().any(Judge::is_judging) {
        let rows_at_once = (MOST_NUMBERS / width.max(1)).max(1);
        let targets = TargetsOnly(dataset.clone());
        for first in (0..dataset.len()).step_by(rows_at_once) {
            let rows: Vec<usize> = (first..dataset.len().min(first + rows_at_once)).collect();
            let predicted = trainer.predict(Subset::new(dataset.clone(), rows.clone())?, batch_size)?;
            let truth = Batch::fetch(&targets, &rows)?;
            for ((judge, predicted), truth) in judges.iter_mut().zip(&predicted).zip(&truth.targets) {
                judge.take(first, rows.len(), predicted, truth);
            }
        }
    }
    let finish =
        |(judge, (output, _)): (Judge, (String, Shape))| Ok(Judgement { output, of: judge.finish(dataset, &schema)? });
    judges.into_iter().zip(outputs).map(finish).collect()
}

/// Collects the rows of an output.
struct Judge {
    width: usize,
    names: Names,
    kind: CollectedRows,
    /// The class whose rows do not count.
    ignored: Option<f32>,
    /// Of two classes, the probability of the second for each row, and whether it is the row's own.
    scores: Vec<(f32, bool)>,
}

enum CollectedRows {
    Classes {
        counts: BTreeMap<(usize, usize), u64>,
        mistakes: Vec<Mistake>,
    },
    Binary {
        counts: BTreeMap<(usize, usize), u64>,
        mistakes: Vec<Mistake>,
    },
    Labels(Vec<YesNoCounts>),
    /// Targets and predictions of each column.
    Values(Vec<Vec<(f32, f32)>>),
    Tokens(Collected),
    Nothing(String),
}

impl CollectedRows {
    /// Nothing collected yet, of an output that is no text.
    fn of(head: Head, shape: &Shape) -> Self {
        let width = shape.len();
        match head {
            Head::Softmax if shape.positions() > 1 => {
                Self::Nothing("A row has a class at each of many positions: loss and metrics judge them.".into())
            }
            Head::Softmax if width > MOST_CLASSES => {
                Self::Nothing(format!("It has {width} classes, too many to count one by one."))
            }
            Head::Softmax => Self::Classes { counts: BTreeMap::new(), mistakes: Vec::new() },
            Head::Sigmoid if width == 1 => Self::Binary { counts: BTreeMap::new(), mistakes: Vec::new() },
            Head::Sigmoid | Head::Values if width > MOST_COLUMNS => Self::Nothing(format!(
                "It has {width} numbers, too many to judge one by one: loss and metrics judge them."
            )),
            Head::Sigmoid => Self::Labels(vec![YesNoCounts::default(); width]),
            Head::Values => Self::Values(vec![Vec::new(); width]),
        }
    }

    /// Of two classes, the probability of the second for a row, and whether it is the row's own.
    fn score(&self, values: &[f32], truth: &[f32]) -> Option<(f32, bool)> {
        match (self, values, truth) {
            (Self::Classes { .. }, [_, _], _) => Some((softmax(values)[1], class_of(truth) == 1)),
            (Self::Binary { .. }, [value], [truth, ..]) => Some((1.0 / (1.0 + (-value).exp()), *truth > 0.5)),
            _ => None,
        }
    }
}

impl Judge {
    /// A judge of an output that has so many rows in all.
    fn new(loss: &Loss, shape: &Shape, target: Option<&Field>, rows: usize) -> Self {
        let (head, width) = (loss.head(), shape.len());
        let names = Names::of(head, width, target);
        let text = target.and_then(|field| field.text.as_ref());
        let text = text.filter(|text| text.output_sequence_length == shape.positions());
        let kind = match (head, text) {
            (Head::Softmax, Some(text)) => CollectedRows::Tokens(Collected::new(text.clone(), rows)),
            _ => CollectedRows::of(head, shape),
        };
        Self { width, names, kind, ignored: loss.ignored_class(), scores: Vec::new() }
    }

    fn is_judging(&self) -> bool {
        !matches!(self.kind, CollectedRows::Nothing(_))
    }

    /// Takes the outputs and targets of some rows.
    fn take(&mut self, first: usize, rows: usize, predicted: &ArrayD<f32>, truth: &[f32]) {
        let values = predicted.as_slice().unwrap_or_default();
        if !values.iter().all(|value| value.is_finite()) {
            self.kind = CollectedRows::Nothing("Its outputs are not finite: training has diverged.".into());
            return;
        }
        let truth_width = truth.len() / rows.max(1);
        for row in 0..rows {
            let values = &values[row * self.width..(row + 1) * self.width];
            let truth = &truth[row * truth_width..(row + 1) * truth_width];
            if truth_width == 1 && self.ignored == Some(truth[0]) {
                continue;
            }
            self.scores.extend(self.kind.score(values, truth));
            match &mut self.kind {
                CollectedRows::Classes { counts, mistakes } => {
                    let truth = class_of(truth);
                    let predicted = largest(values);
                    *counts.entry((truth, predicted)).or_default() += 1;
                    if truth != predicted {
                        let probabilities = softmax(values);
                        let of_truth = probabilities.get(truth).copied().unwrap_or(0.0);
                        let probability = probabilities[predicted];
                        keep(
                            mistakes,
                            Mistake { row: first + row, truth, predicted, probability, of_truth, ..Mistake::default() },
                        );
                    }
                }
                CollectedRows::Binary { counts, mistakes } => {
                    let (truth, predicted) = (usize::from(truth[0] > 0.5), usize::from(values[0] > 0.0));
                    *counts.entry((truth, predicted)).or_default() += 1;
                    if truth != predicted {
                        // The larger of the two probabilities is that of what was predicted.
                        let probability = 1.0 / (1.0 + (-values[0].abs()).exp());
                        let of_truth = 1.0 - probability;
                        let row = first + row;
                        keep(mistakes, Mistake { row, truth, predicted, probability, of_truth, ..Mistake::default() });
                    }
                }
                CollectedRows::Labels(counts) => {
                    for ((counts, value), truth) in counts.iter_mut().zip(values).zip(truth) {
                        counts.count(*truth > 0.5, *value > 0.0);
                    }
                }
                CollectedRows::Values(columns) => {
                    for ((column, value), truth) in columns.iter_mut().zip(values).zip(truth) {
                        column.push((*truth, *value));
                    }
                }
                CollectedRows::Tokens(tokens) => {
                    let counted = |&token: &f32| (self.ignored != Some(token)).then(|| label(token));
                    tokens.take(first + row, values, &truth.iter().map(counted).collect::<Vec<_>>());
                }
                CollectedRows::Nothing(_) => {}
            }
        }
    }

    fn finish(self, dataset: &Arc<dyn Dataset>, schema: &Schema) -> Result<Of> {
        let Self { names, kind, scores, .. } = self;
        Ok(match kind {
            CollectedRows::Classes { counts, mistakes } | CollectedRows::Binary { counts, mistakes } => {
                let rows: Vec<usize> = mistakes.iter().map(|mistake| mistake.row).collect();
                let samples = samples(dataset, &schema.inputs, &rows)?;
                let mistakes = mistakes.into_iter().zip(samples);
                Of::Classes(Classes {
                    names: names.classes,
                    counts: counts.into_iter().map(|((truth, predicted), rows)| (truth, predicted, rows)).collect(),
                    mistakes: mistakes
                        .map(|(it, (sample, source))| Mistake { sample: Some(sample), source, ..it })
                        .collect(),
                    thresholds: Thresholds::of(scores),
                })
            }
            CollectedRows::Labels(counts) => Of::Labels(names.columns.into_iter().zip(counts).collect()),
            CollectedRows::Values(columns) => {
                let judged = columns.iter().map(|column| residuals(column, dataset, &schema.inputs));
                Of::Values(names.columns.into_iter().zip(judged.collect::<Result<Vec<_>>>()?).collect())
            }
            CollectedRows::Tokens(tokens) => Of::Tokens(tokens.finish()),
            CollectedRows::Nothing(why) => Of::Nothing(why),
        })
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "labels were checked before training")]
fn label(value: f32) -> usize {
    value as usize
}

/// The class of a row: its label, or the largest of a number for each.
fn class_of(truth: &[f32]) -> usize {
    if let [one] = truth { label(*one) } else { largest(truth) }
}

/// Keeps a mistake if it is among the most confident ones.
fn keep(mistakes: &mut Vec<Mistake>, mistake: Mistake) {
    let at = mistakes.partition_point(|other| other.probability >= mistake.probability);
    if at < MISTAKES {
        mistakes.insert(at, mistake);
        mistakes.truncate(MISTAKES);
    }
}

fn residuals(column: &[(f32, f32)], dataset: &Arc<dyn Dataset>, inputs: &[Field]) -> Result<Residuals> {
    let n = column.len();
    let count = number(n as u64).max(1.0);
    let errors: Vec<f64> = column.iter().map(|(truth, predicted)| f64::from(*predicted) - f64::from(*truth)).collect();
    let sum = |of: &dyn Fn(f64) -> f64| errors.iter().map(|error| of(*error)).sum::<f64>();
    let squares = sum(&|error| error * error);
    let mean = column.iter().map(|(truth, _)| f64::from(*truth)).sum::<f64>() / count;
    let spread: f64 = column.iter().map(|(truth, _)| (f64::from(*truth) - mean).powi(2)).sum();
    let mut sorted = errors.clone();
    sorted.sort_by(f64::total_cmp);
    // A few wild rows would press all others into one bar.
    let range = match sorted.as_slice() {
        [] => (0.0, 1.0),
        sorted => (sorted[n / 100], sorted[n - 1 - n / 100]),
    };
    let mut by_size: Vec<usize> = (0..n).collect();
    by_size.sort_by(|a, b| errors[*b].abs().total_cmp(&errors[*a].abs()));
    by_size.truncate(MISTAKES / 2);
    let shown = samples(dataset, inputs, &by_size)?;
    let worst = by_size.into_iter().zip(shown).map(|(row, (sample, source))| Worst {
        row,
        target: column[row].0,
        prediction: column[row].1,
        sample: Some(sample),
        source,
    });
    Ok(Residuals {
        rows: n,
        mean_absolute_error: sum(&f64::abs) / count,
        root_mean_squared_error: (squares / count).sqrt(),
        r2: (spread > 0.0).then(|| 1.0 - squares / spread),
        bias: sum(&|error| error) / count,
        interval: interval(&errors),
        points: column.iter().step_by(n.div_ceil(POINTS).max(1)).copied().collect(),
        range,
        bars: histogram(&errors, range),
        worst: worst.collect(),
    })
}

/// Distance from the prediction within which nine of ten new targets lie: of n rows by their errors' sizes, that of row 0.9 (n + 1), rounded
/// up (split conformal prediction: Lei et al. 2018, arXiv:1604.04173).
fn interval(errors: &[f64]) -> Option<f64> {
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.get((9 * (sizes.len() + 1)).div_ceil(10) - 1).copied()
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few bars")]
fn histogram(values: &[f64], (start, end): (f64, f64)) -> Vec<u64> {
    let mut bars = vec![0; BARS];
    let width = ((end - start) / BARS as f64).max(f64::MIN_POSITIVE);
    for value in values {
        bars[(((value - start) / width).max(0.0) as usize).min(BARS - 1)] += 1;
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_their_definitions() {
        // Of three a, two are right; one b is taken for a; no row is c.
        let counts = vec![(0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 1, 4)];
        let classes = Classes { names: ["a", "b", "c"].map(String::from).to_vec(), counts, ..Classes::default() };
        let scores = |class: usize| classes.by_class()[class].scores();
        assert_eq!(scores(0), [Some(2.0 / 3.0), Some(2.0 / 3.0), Some(2.0 / 3.0)]);
        assert_eq!(scores(1), [Some(0.8), Some(0.8), Some(0.8)]);
        assert_eq!(scores(2), [None, None, None]);
        assert_eq!(classes.by_class()[0].true_negatives, 4);
    }

    #[test]
    fn many_classes_are_counted_in_one_pass() {
        let number = 200_000;
        let counts = (0..number).map(|class| (class, (class + class % 2) % number, 3)).collect();
        let classes = Classes { names: vec![String::new(); number], counts, ..Classes::default() };
        let never = classes.never_predicted();
        assert_eq!((never.len(), never[0]), (number / 2, (1, 3)));
    }

    #[test]
    fn the_most_confident_mistakes_are_kept() {
        let mut kept = Vec::new();
        for row in 0..100 {
            #[allow(clippy::cast_precision_loss, reason = "small")]
            let probability = (row * 37 % 100) as f32 / 100.0;
            keep(&mut kept, Mistake { row, truth: 0, predicted: 1, probability, of_truth: 0.0, ..Mistake::default() });
        }
        let kept: Vec<f32> = kept.iter().map(|mistake| mistake.probability).collect();
        let expected: Vec<f32> =
            (100 - MISTAKES..100).rev().map(|it| f32::from(u8::try_from(it).unwrap()) / 100.0).collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn an_interval_takes_nine_rows_and_leaves_a_tenth_out() {
        let errors: Vec<f64> = (1..=99).map(|at| f64::from(at) * if at % 2 == 0 { 1.0 } else { -1.0 }).collect();
        assert_eq!([99, 20, 9].map(|rows| interval(&errors[..rows])), [Some(90.0), Some(19.0), Some(9.0)]);
        assert_eq!([8, 0].map(|rows| interval(&errors[..rows])), [None, None]);
    }

    #[test]
    fn each_residual_is_in_one_bar() {
        let bars = histogram(&[-5.0, 0.0, 0.5, 1.0, 7.0], (0.0, 1.0));
        assert_eq!((bars[0], bars[15], bars[BARS - 1], bars.iter().sum::<u64>()), (2, 1, 2, 5));
        assert_eq!(histogram(&[3.0, 3.0], (3.0, 3.0)).iter().sum::<u64>(), 2);
    }
}
