//! Part of the targets' variance that the outputs explain.

use serde::{Deserialize, Serialize};

use super::function::{MetricFunction, Position, ratio};
use crate::kind::Settings;

/// One number of the scores of several columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassAggregation {
    /// Mean of the columns' scores.
    #[default]
    UniformAverage,
    /// Mean of the columns' scores by the variance of their targets.
    VarianceWeightedAverage,
}

/// `1 - Σ (target - output)² / Σ (target - mean target)²`, of each column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct R2Score {
    /// One number of the scores of the columns: `uniform_average` or `variance_weighted_average`.
    pub class_aggregation: ClassAggregation,
}

impl MetricFunction for R2Score {
    fn kind(&self) -> &'static str {
        "r2_score"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    /// Of each column: positions, mean of the targets, squared deviations from it, squared errors.
    fn n_sums(&self, columns: usize) -> usize {
        4 * columns
    }

    fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
        for ((y, t), sums) in position.pairs().zip(sums.chunks_exact_mut(4)) {
            // Welford 1962: the difference of two large sums would leave few digits.
            let deviation = t - sums[1];
            sums[0] += 1.0;
            sums[1] += deviation / sums[0];
            sums[2] += deviation * (t - sums[1]);
            sums[3] += (t - y) * (t - y);
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "columns are few")]
    fn result(&self, sums: &[f64]) -> f64 {
        let score = |sums: &[f64]| {
            let raw = 1.0 - sums[3] / sums[2];
            if raw.is_infinite() { 0.0 } else { raw }
        };
        let columns = || sums.chunks_exact(4);
        match self.class_aggregation {
            ClassAggregation::UniformAverage => columns().map(score).sum::<f64>() / columns().len().max(1) as f64,
            ClassAggregation::VarianceWeightedAverage => {
                let total: f64 = columns().map(|sums| sums[2]).sum();
                ratio(columns().map(|sums| sums[2] * score(sums)).sum(), total)
            }
        }
    }
}
