//! The harmonic mean of precision and recall.

use serde::{Deserialize, Serialize};

use super::function::{MetricFunction, Position};
use super::mode::Mode;
use crate::error::Problem;
use crate::kind::Settings;
use crate::losses::Target;
use crate::shape::Shape;

/// Keras' `epsilon`.
const EPSILON: f64 = 1e-7;

/// One number of the scores of several classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Average {
    /// Mean of the scores of the classes.
    #[default]
    Macro,
    /// Score of all classes counted together.
    Micro,
    /// Mean of the scores of the classes, each by the part of the targets that are of the class.
    Weighted,
}

/// The harmonic mean of precision and recall, `2 · precision · recall / (precision + recall)`, of each column.
///
/// Keras' default gives a number for each class; here classes become one by `average`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct F1Score {
    /// One number of the scores of the classes: `macro`, `micro` or `weighted`.
    pub average: Average,
    /// Number above which an output says yes; where none is given, the largest of a row does.
    pub threshold: Option<f32>,
}

/// Score of true positives, false positives and false negatives.
fn score([tp, fp, fn_]: [f64; 3]) -> f64 {
    let (precision, recall) = (tp / (tp + fp + EPSILON), tp / (tp + fn_ + EPSILON));
    2.0 * precision * recall / (precision + recall + EPSILON)
}

impl MetricFunction for F1Score {
    fn kind(&self) -> &'static str {
        "f1_score"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn mode(&self) -> Option<Mode> {
        Some(Mode::Max)
    }

    fn check(&self, _output: &Shape, _target: &Target) -> Result<(), Problem> {
        match self.threshold {
            Some(threshold) if !(threshold > 0.0 && threshold <= 1.0) => Err(Problem::new(
                format!("needs a `threshold` above 0 and up to 1, but got {threshold}"),
                "0.5 is usual",
            )),
            _ => Ok(()),
        }
    }

    fn n_sums(&self, columns: usize) -> usize {
        3 * columns
    }

    fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
        let largest = position.outputs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let says_yes = |y: f64| match self.threshold {
            Some(threshold) => y > f64::from(threshold),
            None => y >= largest && y.abs() > 1e-9,
        };
        for ((y, t), sums) in position.pairs().zip(sums.chunks_exact_mut(3)) {
            let yes = f64::from(u8::from(says_yes(y)));
            sums[0] += yes * t;
            sums[1] += yes * (1.0 - t);
            sums[2] += (1.0 - yes) * t;
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "classes are few")]
    fn result(&self, sums: &[f64]) -> f64 {
        let classes = || sums.chunks_exact(3).map(|sums| [sums[0], sums[1], sums[2]]);
        match self.average {
            Average::Macro => classes().map(score).sum::<f64>() / classes().len().max(1) as f64,
            Average::Micro => score(classes().fold([0.0; 3], |all, one| [0, 1, 2].map(|at| all[at] + one[at]))),
            Average::Weighted => {
                let of_class = |sums: [f64; 3]| sums[0] + sums[2];
                let all: f64 = classes().map(of_class).sum();
                classes().map(|sums| score(sums) * of_class(sums) / (all + EPSILON)).sum()
            }
        }
    }
}
