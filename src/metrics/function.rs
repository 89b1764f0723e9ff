//! The trait of metrics that need outputs and targets themselves.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::mode::Mode;
use crate::error::Problem;
use crate::kind::{self, Settings};
use crate::losses::Target;
use crate::reading;
use crate::shape::Shape;

/// Metric that is counted over a whole dataset, from outputs and targets: settings, sums and their result. Plain data.
///
/// The host counts each position of each row in f64, in the order of the rows, and merges the sums of batches, and of several
/// processes. So but for rounding a metric does not depend on batches, nor on how they are split. A metric of your own is a struct
/// with this trait: [`Metric::from`](crate::Metric) takes it.
///
/// ```
/// use manyhands::metrics::{MetricFunction, Mode, Position, Settings};
/// use manyhands::{Metric, Shape};
///
/// /// The largest error of all.
/// #[derive(Debug)]
/// struct LargestError;
///
/// impl MetricFunction for LargestError {
///     fn kind(&self) -> &'static str {
///         "largest_error"
///     }
///
///     fn config(&self) -> Settings {
///         Settings::default()
///     }
///
///     fn mode(&self) -> Option<Mode> {
///         Some(Mode::Min)
///     }
///
///     fn n_sums(&self, _columns: usize) -> usize {
///         1
///     }
///
///     fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
///         for (output, target) in position.outputs.iter().zip(position.targets) {
///             sums[0] = sums[0].max((output - target).abs());
///         }
///     }
///
///     // Sums of parts do not add up here.
///     fn merge(&self, part: &[f64], sums: &mut [f64]) {
///         sums[0] = sums[0].max(part[0]);
///     }
///
///     fn result(&self, sums: &[f64]) -> f64 {
///         sums[0]
///     }
/// }
///
/// let metric: Metric = LargestError.into();
/// assert_eq!(metric.name(), "largest_error");
/// ```
pub trait MetricFunction: fmt::Debug + Send + Sync {
    /// Name of the kind in files: `root_mean_squared_error`.
    fn kind(&self) -> &'static str;

    /// The settings, as they stand in a file: [`Settings::of`] a struct that serialises.
    fn config(&self) -> Settings;

    /// Name in logs.
    fn name(&self) -> String {
        self.kind().into()
    }

    /// Direction in which it improves. Callbacks that watch a metric without one need a mode of their own.
    fn mode(&self) -> Option<Mode> {
        None
    }

    /// Checks the settings, and that they fit an output and its target.
    ///
    /// # Errors
    /// If not.
    fn check(&self, _output: &Shape, _target: &Target) -> Result<(), Problem> {
        Ok(())
    }

    /// Number of sums for an output whose last axis has so many columns. All are 0 at first.
    fn n_sums(&self, columns: usize) -> usize;

    /// Adds one position of one row.
    fn add(&self, position: &Position<'_>, sums: &mut [f64]);

    /// Merges the sums of other positions, `part`, into `sums`; either may be those of none, all 0. Adds them by default.
    ///
    /// A metric whose sums do not add up, such as a maximum, needs its own: the trainer refuses one that merges parts wrongly.
    fn merge(&self, part: &[f64], sums: &mut [f64]) {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }

    /// The metric, from the sums of all positions.
    fn result(&self, sums: &[f64]) -> f64;
}

/// One position of one row of an output: all along its last axis.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a> {
    /// The output's numbers; probabilities, where the loss takes logits.
    pub outputs: &'a [f64],
    /// The target's numbers; where they are classes, 1 for the class and 0 for others.
    pub targets: &'a [f64],
}

impl Position<'_> {
    /// Mean over the columns of a function of output and target.
    #[allow(clippy::cast_precision_loss, reason = "columns are few")]
    pub fn mean(&self, f: impl Fn(f64, f64) -> f64) -> f64 {
        self.pairs().map(|(y, t)| f(y, t)).sum::<f64>() / self.outputs.len().max(1) as f64
    }

    /// Output and target of each column.
    pub fn pairs(&self) -> impl Iterator<Item = (f64, f64)> {
        self.outputs.iter().copied().zip(self.targets.iter().copied())
    }
}

/// A kind of metric that can be read from a file.
pub type Entry = kind::Entry<dyn MetricFunction>;

/// The entry of a metric that derives `Deserialize`.
pub const fn entry<M: MetricFunction + DeserializeOwned + 'static>(kind: &'static str) -> Entry {
    Entry { kind, from_config: |config| Ok(Arc::new(reading::read::<M>(&config.into())?)) }
}

/// Outputs of the positions of a check, between 0 and 1.
const PROBE: [f64; 5] = [0.625, 0.125, 0.9375, 0.3125, 0.75];

/// Difference of two sums, in parts of the larger, up to which they count as the same.
const ROUNDING: f64 = 1e-9;

/// Checks by four positions that the sums of two parts, merged, are those of all.
///
/// # Errors
/// If not: then the sums do not add up, and the metric has no `merge` of its own.
pub(super) fn check_merge(metric: &dyn MetricFunction, columns: usize) -> Result<(), Problem> {
    let count = |positions: std::ops::Range<usize>| {
        let mut sums = vec![0.0; metric.n_sums(columns)];
        for position in positions {
            let outputs: Vec<f64> = (0..columns).map(|col| PROBE[(position + col) % PROBE.len()]).collect();
            let targets: Vec<f64> = (0..columns).map(|col| f64::from(u8::from((position + col) % 2 == 0))).collect();
            metric.add(&Position { outputs: &outputs, targets: &targets }, &mut sums);
        }
        sums
    };
    let (mut merged, all) = (count(0..2), count(0..4));
    metric.merge(&count(2..4), &mut merged);
    let is_same =
        |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= ROUNDING * a.abs().max(b.abs());
    if merged.iter().zip(&all).all(is_same) {
        return Ok(());
    }
    let problem =
        "needs a `merge` that gives the sums of all positions from those of two parts, but sums that are added do not";
    Err(Problem::new(problem, "write `MetricFunction::merge` for it: batches and processes are counted apart"))
}

/// A quotient, or 0 where the divisor is 0, as Keras' `divide_no_nan`.
pub(super) fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor == 0.0 { 0.0 } else { dividend / divisor }
}
