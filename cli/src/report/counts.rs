//! Answers to a yes or no, counted.

use serde::{Deserialize, Serialize};

/// Answers to a yes or no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct YesNoCounts {
    pub true_positives: u64,
    pub false_positives: u64,
    pub false_negatives: u64,
    pub true_negatives: u64,
}

impl YesNoCounts {
    /// Counts a row.
    pub fn count(&mut self, truth: bool, predicted: bool) {
        *match (truth, predicted) {
            (true, true) => &mut self.true_positives,
            (false, true) => &mut self.false_positives,
            (true, false) => &mut self.false_negatives,
            (false, false) => &mut self.true_negatives,
        } += 1;
    }

    /// Rows of the class.
    pub fn rows(self) -> u64 {
        self.true_positives.saturating_add(self.false_negatives)
    }

    /// Precision, recall and F1; `None` where it would be 0 / 0.
    pub fn scores(self) -> [Option<f64>; 3] {
        let Self { true_positives: right, false_positives, false_negatives, .. } = self;
        let [right, false_positives, false_negatives] = [right, false_positives, false_negatives].map(number);
        let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        [
            ratio(right, right + false_positives),
            ratio(right, right + false_negatives),
            ratio(2.0 * right, 2.0 * right + false_positives + false_negatives),
        ]
    }
}

/// A count as a number to compute with.
#[allow(clippy::cast_precision_loss, reason = "counts of rows")]
pub fn number(count: u64) -> f64 {
    count as f64
}
