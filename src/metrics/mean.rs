//! Means over all positions of a number that each has.

use serde::{Deserialize, Serialize};

use super::function::{MetricFunction, Position, ratio};
use super::mode::Mode;
use crate::kernels::pointwise_loss::{PointwiseFunction, PointwiseSettings};
use crate::kind::Settings;

/// A mean without settings: its kind, its mode, the number of a position, and what becomes of the mean.
macro_rules! mean {
    ($(#[$doc:meta])* $name:ident {}, $kind:literal, $mode:ident, $value:expr $(, $result:expr)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields)]
        pub struct $name {}

        impl MetricFunction for $name {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn config(&self) -> Settings {
                Settings::of(self)
            }

            fn mode(&self) -> Option<Mode> {
                Some(Mode::$mode)
            }

            fn n_sums(&self, _columns: usize) -> usize {
                2
            }

            fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
                let value: fn(&Position<'_>) -> f64 = $value;
                sums[0] += value(position);
                sums[1] += 1.0;
            }

            fn result(&self, sums: &[f64]) -> f64 {
                let mean = ratio(sums[0], sums[1]);
                $(
                    let result: fn(f64) -> f64 = $result;
                    let mean = result(mean);
                )?
                mean
            }
        }
    };
}

/// Mean over the columns of a function of the losses.
fn of_columns(position: &Position<'_>, function: PointwiseFunction) -> f64 {
    position.mean(|y, t| function.at(&PointwiseSettings::default(), y, t)[0])
}

fn cosine(position: &Position<'_>) -> f64 {
    let sum = |f: fn(f64, f64) -> f64| position.pairs().map(|(y, t)| f(y, t)).sum::<f64>();
    let [y, t] = [sum(|y, _| y * y), sum(|_, t| t * t)].map(|square| square.sqrt().max(1e-7));
    sum(|y, t| y * t) / y / t
}

/// The first column with the largest number.
fn largest(numbers: &[f64]) -> usize {
    (1..numbers.len()).fold(0, |best, col| if numbers[col] > numbers[best] { col } else { best })
}

fn categorical_hinge(position: &Position<'_>) -> f64 {
    let product: f64 = position.pairs().map(|(y, t)| y * t).sum();
    let others = position.pairs().map(|(y, t)| (1.0 - t) * y).fold(f64::NEG_INFINITY, f64::max);
    (others - product + 1.0).max(0.0)
}

mean! {
    /// Mean of `(output - target)²`.
    MeanSquaredError {}, "mean_squared_error", Min, |position| of_columns(position, PointwiseFunction::SquaredError)
}

mean! {
    /// Mean of `|output - target|`, beside a loss that does not tell it: else it is [`Metric::MeanAbsoluteError`](super::Metric).
    MeanAbsoluteErrorOf {}, "mean_absolute_error", Min, |position| of_columns(position, PointwiseFunction::AbsoluteError)
}

mean! {
    /// Square root of the mean of `(output - target)²`.
    RootMeanSquaredError {}, "root_mean_squared_error", Min,
    |position| of_columns(position, PointwiseFunction::SquaredError), f64::sqrt
}

mean! {
    /// Mean of `ln cosh(output - target)`; the name is that of Keras.
    LogCoshError {}, "logcosh", Min, |position| of_columns(position, PointwiseFunction::LogCosh)
}

mean! {
    /// Mean of `output - target · ln(output + 1e-7)`.
    Poisson {}, "poisson", Min, |position| of_columns(position, PointwiseFunction::Poisson)
}

mean! {
    /// Mean of `Σ target · ln(target / output)`, of numbers between 1e-7 and 1.
    KLDivergence {}, "kl_divergence", Min,
    |position| {
        let settings = PointwiseSettings::default();
        position.pairs().map(|(y, t)| PointwiseFunction::KlDivergence.at(&settings, y, t)[0]).sum()
    }
}

mean! {
    /// Mean of `max(1 - target · output, 0)`; a target of 0 counts as -1.
    Hinge {}, "hinge", Min, |position| of_columns(position, PointwiseFunction::Hinge)
}

mean! {
    /// Mean of `max(1 - target · output, 0)²`; a target of 0 counts as -1.
    SquaredHinge {}, "squared_hinge", Min, |position| of_columns(position, PointwiseFunction::SquaredHinge)
}

mean! {
    /// Mean of `max(neg - pos + 1, 0)`, with `pos` the output of the true class and `neg` the largest of the others.
    CategoricalHinge {}, "categorical_hinge", Min, categorical_hinge
}

mean! {
    /// Part of the positions whose largest output is in the column of the largest target; of equal ones, the first counts.
    CategoricalAccuracy {}, "categorical_accuracy", Max,
    |position| f64::from(u8::from(largest(position.outputs) == largest(position.targets)))
}

mean! {
    /// Mean of the cosine of the angle between output and target: 1 where they point the same way.
    CosineSimilarity {}, "cosine_similarity", Max, cosine
}
