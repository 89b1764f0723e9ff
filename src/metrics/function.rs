//! The trait of metrics that need outputs and targets themselves.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::error::Problem;
use crate::kind::{self, Settings};
use crate::losses::Target;
use crate::shape::Shape;

/// Metric that is counted over a whole dataset, from outputs and targets: settings, sums and their result. Plain data.
///
/// The host adds up each position of each row, in the order of the rows, in f64. So a metric does not depend on batches, nor on
/// how they are split over adapters. A metric of your own is a struct with this trait: [`Metric::from`](crate::Metric) takes it.
///
/// ```
/// use manyhands::metrics::{MetricFunction, Position, Settings};
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
    Entry { kind, from_config: |config| Ok(Arc::new(serde_json::from_value::<M>(config)?)) }
}

/// A quotient, or 0 where the divisor is 0, as Keras' `divide_no_nan`.
pub(super) fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor == 0.0 { 0.0 } else { dividend / divisor }
}
