//! Metrics: what is reported beside the loss, from the scores of rows.

use serde::{Deserialize, Serialize};

use super::function::{LossFunction, Score};
use crate::error::Problem;

/// A metric that is reported beside the loss, by its Keras name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Metric {
    /// Part of the rows whose likeliest class, the first of several, is the true one (binary: part of the columns on
    /// the right side).
    Accuracy,
    /// Part of the rows for which fewer than `k` classes are likelier than the true one: ties count, as in Keras.
    TopKCategoricalAccuracy {
        /// Number of classes that count.
        k: u32,
    },
    /// Mean of `|output - target|`.
    MeanAbsoluteError,
    /// Mean of the score that a loss of your own reports under this name.
    Own(String),
}

impl Metric {
    /// Name in a log.
    pub fn name(&self) -> String {
        match self {
            Self::Accuracy => "accuracy".into(),
            Self::TopKCategoricalAccuracy { k } => format!("top_{k}_accuracy"),
            Self::MeanAbsoluteError => "mean_absolute_error".into(),
            Self::Own(name) => name.clone(),
        }
    }

    /// Checks the settings, and that the loss tells the metric.
    ///
    /// # Errors
    /// If not.
    #[doc(hidden)]
    pub fn check(&self, loss: &dyn LossFunction) -> Result<(), Problem> {
        if *self == (Self::TopKCategoricalAccuracy { k: 0 }) {
            return Err(Problem::new("needs `k` of at least 1, but is 0", "5 is usual"));
        }
        if self.value(loss.score(), 0.0).is_some() {
            return Ok(());
        }
        Err(Problem::new(
            format!("can't be computed from the loss `{}`", loss.kind()),
            "accuracy goes with cross-entropies and hinges, mean absolute error with other losses",
        ))
    }

    /// The value of one position, from its score; `None` if the loss does not tell.
    #[allow(clippy::cast_precision_loss, reason = "k is a small number")]
    #[doc(hidden)]
    pub fn value(&self, score: Score, value: f32) -> Option<f64> {
        match (self, score) {
            (Self::Accuracy, Score::Rank) => Some(f64::from(u8::from(value < 0.25))),
            (Self::Accuracy, Score::Hits) | (Self::MeanAbsoluteError, Score::AbsoluteError) => Some(f64::from(value)),
            (Self::TopKCategoricalAccuracy { k }, Score::Rank) => Some(f64::from(u8::from(value < *k as f32))),
            (Self::Own(name), Score::Own(own)) if name == own => Some(f64::from(value)),
            _ => None,
        }
    }

    /// The metric that goes with a loss where none is named.
    #[doc(hidden)]
    pub fn default_of(loss: &dyn LossFunction) -> Self {
        match loss.score() {
            Score::Rank | Score::Hits => Self::Accuracy,
            Score::AbsoluteError => Self::MeanAbsoluteError,
            Score::Own(name) => Self::Own(name.into()),
        }
    }
}
