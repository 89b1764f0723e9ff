//! Part of the targets' variance that the outputs explain.

use serde::{Deserialize, Serialize};

use super::function::{MetricFunction, Position, ratio};
use super::mode::Mode;
use crate::kind::Settings;

/// One number of the scores of several columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

    fn mode(&self) -> Option<Mode> {
        Some(Mode::Max)
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

    fn merge(&self, part: &[f64], sums: &mut [f64]) {
        for (part, sums) in part.chunks_exact(4).zip(sums.chunks_exact_mut(4)).filter(|(part, _)| part[0] > 0.0) {
            // Chan, Golub and LeVeque 1979, as for the moments of batch normalization.
            let (before, count, difference) = (sums[0], sums[0] + part[0], part[1] - sums[1]);
            sums[0] = count;
            sums[1] += difference * (part[0] / count);
            sums[2] += part[2] + difference * difference * (before * part[0] / count);
            sums[3] += part[3];
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of targets, which are far from 0 in the second column, and of outputs that are a little beside them.
    fn count(targets: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; 8];
        for t in targets {
            R2Score::default()
                .add(&Position { outputs: &[t + 0.25, 1e9 + t - 0.5], targets: &[*t, 1e9 + t] }, &mut sums);
        }
        sums
    }

    #[test]
    fn merged_parts_are_those_of_all_positions_also_far_from_zero() {
        let targets = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0];
        // The variance of the targets times their number; errors are 1/4 and 1/2.
        let needed = |error: f64| {
            let mean = targets.iter().sum::<f64>() / 7.0;
            1.0 - 7.0 * error * error / targets.iter().map(|t| (t - mean) * (t - mean)).sum::<f64>()
        };
        let needed = (needed(0.25) + needed(0.5)) / 2.0;
        for cuts in [[0, 0, 7], [0, 3, 7], [1, 1, 6], [2, 4, 7], [7, 7, 7]] {
            let mut sums = count(&targets[..cuts[0]]);
            for part in [&targets[cuts[0]..cuts[1]], &targets[cuts[1]..cuts[2]], &targets[cuts[2]..]] {
                R2Score::default().merge(&count(part), &mut sums);
            }
            let got = R2Score::default().result(&sums);
            assert!((got - needed).abs() < 1e-6, "{cuts:?}: {got} is not {needed}");
        }
    }

    #[test]
    fn no_positions_merge_into_none() {
        let mut sums = vec![0.0; 8];
        R2Score::default().merge(&[0.0; 8], &mut sums);
        assert_eq!(sums, [0.0; 8]);
    }
}
