//! Metrics of yes and no: precision, recall, accuracy at a threshold.

use serde::{Deserialize, Serialize};

use super::function::{MetricFunction, Position, ratio};
use super::mode::Mode;
use crate::error::Problem;
use crate::kind::Settings;
use crate::losses::Target;
use crate::shape::Shape;

/// Part of what the model says yes to that is true: `tp / (tp + fp)`.
///
/// Columns are counted alike. A target above 0 is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Precision {
    /// Number above which an output says yes; 0.5, or with `top_k` any.
    pub thresholds: Option<f32>,
    /// Number of columns with the largest outputs that alone may say yes.
    pub top_k: Option<u32>,
    /// The column that counts; all where none is given.
    pub class_id: Option<u32>,
}

/// Part of what is true that the model says yes to: `tp / (tp + fn)`.
///
/// Columns are counted alike. A target above 0 is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Recall {
    /// Number above which an output says yes; 0.5, or with `top_k` any.
    pub thresholds: Option<f32>,
    /// Number of columns with the largest outputs that alone may say yes.
    pub top_k: Option<u32>,
    /// The column that counts; all where none is given.
    pub class_id: Option<u32>,
}

/// Part of the columns that are above the threshold just as their target is 1, and not above it as their target is 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BinaryAccuracy {
    /// Number above which an output says yes.
    pub threshold: f32,
}

impl Default for BinaryAccuracy {
    fn default() -> Self {
        Self { threshold: 0.5 }
    }
}

/// Rule by which an output says yes, and the columns that count.
#[derive(Clone, Copy)]
struct YesRule {
    threshold: Option<f32>,
    top_k: Option<u32>,
    class_id: Option<u32>,
}

impl YesRule {
    fn name(self, kind: &str) -> String {
        let class = self.class_id.map_or(String::new(), |class| format!("class_{class}_"));
        let top = self.top_k.map_or(String::new(), |k| format!("top_{k}_"));
        format!("{class}{top}{kind}")
    }

    fn check(self, output: &Shape) -> Result<(), Problem> {
        if let Some(threshold) = self.threshold.filter(|threshold| !(0.0..=1.0).contains(threshold)) {
            return Err(Problem::new(format!("needs `thresholds` from 0 to 1, but got {threshold}"), "0.5 is usual"));
        }
        if self.top_k == Some(0) {
            return Err(Problem::new("needs `top_k` of at least 1, but is 0", "5 is usual"));
        }
        match self.class_id {
            Some(class) if class as usize >= output.last() => Err(Problem::new(
                format!("needs a `class_id` below {}, but got {class}", output.last()),
                "count the classes from 0",
            )),
            _ => Ok(()),
        }
    }

    /// Whether a column is among the `top_k` largest; of equal ones, the first are.
    fn is_top(self, outputs: &[f64], col: usize) -> bool {
        let is_before =
            |(other, value): (usize, &f64)| *value > outputs[col] || (*value == outputs[col] && other < col);
        let before = || outputs.iter().enumerate().filter(|it| is_before(*it)).count();
        self.top_k.is_none_or(|k| before() < k as usize)
    }

    /// Adds true positives, false positives and false negatives.
    fn add(self, position: &Position<'_>, sums: &mut [f64]) {
        let lowest = if self.top_k.is_some() { f64::NEG_INFINITY } else { 0.5 };
        let threshold = self.threshold.map_or(lowest, f64::from);
        for (col, (y, t)) in position.pairs().enumerate() {
            if self.class_id.is_some_and(|class| class as usize != col) {
                continue;
            }
            let says_yes = y > threshold && self.is_top(position.outputs, col);
            match (says_yes, t > 0.0) {
                (true, true) => sums[0] += 1.0,
                (true, false) => sums[1] += 1.0,
                (false, true) => sums[2] += 1.0,
                (false, false) => {}
            }
        }
    }
}

impl From<Precision> for YesRule {
    fn from(Precision { thresholds: threshold, top_k, class_id }: Precision) -> Self {
        Self { threshold, top_k, class_id }
    }
}

impl From<Recall> for YesRule {
    fn from(Recall { thresholds: threshold, top_k, class_id }: Recall) -> Self {
        Self { threshold, top_k, class_id }
    }
}

impl MetricFunction for Precision {
    fn kind(&self) -> &'static str {
        "precision"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn mode(&self) -> Option<Mode> {
        Some(Mode::Max)
    }

    fn name(&self) -> String {
        YesRule::from(*self).name(self.kind())
    }

    fn check(&self, output: &Shape, _target: &Target) -> Result<(), Problem> {
        YesRule::from(*self).check(output)
    }

    fn n_sums(&self, _columns: usize) -> usize {
        3
    }

    fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
        YesRule::from(*self).add(position, sums);
    }

    fn result(&self, sums: &[f64]) -> f64 {
        ratio(sums[0], sums[0] + sums[1])
    }
}

impl MetricFunction for Recall {
    fn kind(&self) -> &'static str {
        "recall"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn mode(&self) -> Option<Mode> {
        Some(Mode::Max)
    }

    fn name(&self) -> String {
        YesRule::from(*self).name(self.kind())
    }

    fn check(&self, output: &Shape, _target: &Target) -> Result<(), Problem> {
        YesRule::from(*self).check(output)
    }

    fn n_sums(&self, _columns: usize) -> usize {
        3
    }

    fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
        YesRule::from(*self).add(position, sums);
    }

    fn result(&self, sums: &[f64]) -> f64 {
        ratio(sums[0], sums[0] + sums[2])
    }
}

impl MetricFunction for BinaryAccuracy {
    fn kind(&self) -> &'static str {
        "binary_accuracy"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn mode(&self) -> Option<Mode> {
        Some(Mode::Max)
    }

    fn check(&self, _output: &Shape, _target: &Target) -> Result<(), Problem> {
        if self.threshold.is_finite() {
            return Ok(());
        }
        Err(Problem::new(format!("needs a finite `threshold`, but got {}", self.threshold), "0.5 is usual"))
    }

    fn n_sums(&self, _columns: usize) -> usize {
        2
    }

    fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
        let threshold = f64::from(self.threshold);
        sums[0] += position.mean(|y, t| f64::from(u8::from(f64::from(u8::from(y > threshold)) == t)));
        sums[1] += 1.0;
    }

    fn result(&self, sums: &[f64]) -> f64 {
        ratio(sums[0], sums[1])
    }
}
