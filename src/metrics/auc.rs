//! Area under a curve over all thresholds.

use serde::{Deserialize, Serialize};

use super::function::{MetricFunction, Position, ratio};
use super::mode::Mode;
use crate::error::Problem;
use crate::kind::Settings;
use crate::losses::Target;
use crate::shape::Shape;

/// Curve whose area is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Curve {
    /// Part of what is true that is found, over the part of what is not.
    #[default]
    #[serde(rename = "ROC")]
    Roc,
    /// Precision over recall.
    #[serde(rename = "PR")]
    Pr,
}

/// Sum that stands for an area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SummationMethod {
    /// Trapezoids; between two points of precision and recall as Davis and Goadrich 2006 interpolate.
    #[default]
    Interpolation,
    /// Rectangles of the lower of two heights.
    Minoring,
    /// Rectangles of the higher of two heights.
    Majoring,
}

/// Area under a curve of an output, a probability, against true and false targets, at thresholds in equal distances.
///
/// Columns are counted alike. A target above 0 is true. Source: Keras 3 `AUC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct AUC {
    /// Number of thresholds, from 0 to 1.
    pub num_thresholds: u32,
    /// `ROC` (reported as `auc`), or `PR` for precision and recall (reported as `pr_auc`).
    pub curve: Curve,
    /// `interpolation`, `minoring` or `majoring`.
    pub summation_method: SummationMethod,
}

impl Default for AUC {
    fn default() -> Self {
        Self { num_thresholds: 200, curve: Curve::default(), summation_method: SummationMethod::default() }
    }
}

/// Positives and negatives above a threshold, and below it.
#[derive(Clone, Copy)]
struct Counts {
    tp: f64,
    fp: f64,
    fn_: f64,
    tn: f64,
}

impl AUC {
    /// Counts at each threshold, from the number of true and false targets in each interval between them.
    fn counts(&self, sums: &[f64]) -> Vec<Counts> {
        let (yes, no) = sums.split_at(sums.len() / 2);
        let (all_yes, all_no): (f64, f64) = (yes.iter().sum(), no.iter().sum());
        let (mut tp, mut fp) = (0.0, 0.0);
        let mut counts: Vec<Counts> = yes
            .iter()
            .zip(no)
            .rev()
            .map(|(yes, no)| {
                tp += yes;
                fp += no;
                Counts { tp, fp, fn_: all_yes - tp, tn: all_no - fp }
            })
            .collect();
        counts.reverse();
        counts
    }

    fn interpolated_pr(counts: &[Counts]) -> f64 {
        let part = |pair: &[Counts]| {
            let [a, b] = [pair[0], pair[1]];
            let (d_tp, p_a, p_b) = (a.tp - b.tp, a.tp + a.fp, b.tp + b.fp);
            let slope = ratio(d_tp, (p_a - p_b).max(0.0));
            let intercept = b.tp - slope * p_b;
            let safe = if p_a > 0.0 && p_b > 0.0 { p_a / p_b } else { 1.0 };
            ratio(slope * (d_tp + intercept * safe.ln()), (b.tp + b.fn_).max(0.0))
        };
        counts.windows(2).map(part).sum()
    }
}

impl MetricFunction for AUC {
    fn kind(&self) -> &'static str {
        "auc"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn mode(&self) -> Option<Mode> {
        Some(Mode::Max)
    }

    fn name(&self) -> String {
        match self.curve {
            Curve::Roc => "auc".into(),
            Curve::Pr => "pr_auc".into(),
        }
    }

    fn check(&self, _output: &Shape, _target: &Target) -> Result<(), Problem> {
        if (2..=1 << 16).contains(&self.num_thresholds) {
            return Ok(());
        }
        let problem = format!("needs `num_thresholds` from 2 to 65536, but got {}", self.num_thresholds);
        Err(Problem::new(problem, "200 is usual"))
    }

    fn n_sums(&self, _columns: usize) -> usize {
        2 * self.num_thresholds as usize
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the number of thresholds"
    )]
    fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
        let (yes, no) = sums.split_at_mut(self.num_thresholds as usize);
        for (y, t) in position.pairs() {
            // The last threshold that is below it; the first one is below 0.
            let at = (y.clamp(0.0, 1.0) * f64::from(self.num_thresholds - 1)).ceil() as usize;
            let interval = if t > 0.0 { &mut *yes } else { &mut *no };
            interval[at.saturating_sub(1)] += 1.0;
        }
    }

    fn result(&self, sums: &[f64]) -> f64 {
        let counts = self.counts(sums);
        if (self.curve, self.summation_method) == (Curve::Pr, SummationMethod::Interpolation) {
            return Self::interpolated_pr(&counts);
        }
        let point = |it: &Counts| {
            let recall = ratio(it.tp, it.tp + it.fn_);
            match self.curve {
                Curve::Roc => [ratio(it.fp, it.fp + it.tn), recall],
                Curve::Pr => [recall, ratio(it.tp, it.tp + it.fp)],
            }
        };
        let points: Vec<[f64; 2]> = counts.iter().map(point).collect();
        let area = |pair: &[[f64; 2]]| {
            let [[x_a, a], [x_b, b]] = [pair[0], pair[1]];
            let height = match self.summation_method {
                SummationMethod::Interpolation => (a + b) / 2.0,
                SummationMethod::Minoring => a.min(b),
                SummationMethod::Majoring => a.max(b),
            };
            (x_a - x_b) * height
        };
        points.windows(2).map(area).sum()
    }
}
