//! Losses and the metrics that come with them, under Keras' names.
//!
//! The gradient that a loss records is that of the *whole* batch's loss: it is scaled by the global count (or sum of
//! sample weights), never by the shard's. So plain addition over shards gives the gradient of one loss.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kernels::{binary_cross_entropy, mean_squared_error, rows_grid, softmax_cross_entropy, whole};
use crate::plan::{Length, Recorder, Role, View, Word, length_word};
use crate::shape::Shape;

/// What training makes small, for one output. Cross-entropies take logits (Keras' `from_logits=True`).
///
/// | loss | output | target |
/// | --- | --- | --- |
/// | `SparseCategoricalCrossentropy` | `[batch, ..., classes]` | `[batch, ...]`, class indices |
/// | `CategoricalCrossentropy` | `[batch, ..., classes]` | the same shape, probabilities |
/// | `BinaryCrossentropy` | `[batch, ...]` | the same shape, 0 to 1 |
/// | `MeanSquaredError` | `[batch, ...]` | the same shape |
///
/// **Across adapters** nothing changes: the sum over rows is divided by the whole batch's count. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Loss {
    /// `-log softmax(logits)[label]`.
    SparseCategoricalCrossentropy {
        /// Part of the target that is spread evenly over all classes.
        #[serde(default)]
        label_smoothing: f32,
    },
    /// `-Σ target · log softmax(logits)`.
    CategoricalCrossentropy {
        /// Part of the target that is spread evenly over all classes.
        #[serde(default)]
        label_smoothing: f32,
    },
    /// `-target · log σ(logit) - (1 - target) · log(1 - σ(logit))`, mean over the last axis.
    BinaryCrossentropy {
        /// Part of the target that is moved to ½.
        #[serde(default)]
        label_smoothing: f32,
    },
    /// `(output - target)²`, mean over the last axis.
    MeanSquaredError,
}

/// How the rows' losses become one, as Keras' `reduction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// `Σ weight · loss / count`: Keras' default.
    #[default]
    SumOverBatchSize,
    /// `Σ weight · loss / Σ weight`.
    MeanWithSampleWeight,
    /// `Σ weight · loss`.
    Sum,
}

impl Loss {
    /// Cross-entropy with class indices, without smoothing.
    pub const SPARSE_CATEGORICAL_CROSSENTROPY: Self = Self::SparseCategoricalCrossentropy { label_smoothing: 0.0 };

    /// Cross-entropy with probabilities as targets, without smoothing.
    pub const CATEGORICAL_CROSSENTROPY: Self = Self::CategoricalCrossentropy { label_smoothing: 0.0 };

    /// Binary cross-entropy without smoothing.
    pub const BINARY_CROSSENTROPY: Self = Self::BinaryCrossentropy { label_smoothing: 0.0 };

    /// Its name in Keras.
    pub fn name(self) -> &'static str {
        match self {
            Self::SparseCategoricalCrossentropy { .. } => "SparseCategoricalCrossentropy",
            Self::CategoricalCrossentropy { .. } => "CategoricalCrossentropy",
            Self::BinaryCrossentropy { .. } => "BinaryCrossentropy",
            Self::MeanSquaredError => "MeanSquaredError",
        }
    }

    /// Shape of the target of an output.
    pub fn target_shape(self, output: &Shape) -> Shape {
        match (self, output.axes().split_last()) {
            (Self::SparseCategoricalCrossentropy { .. }, Some((_, outer))) => Shape::new(outer.to_vec()),
            _ => output.clone(),
        }
    }

    /// Number of classes, where targets are class indices.
    pub fn label_classes(self, output: &Shape) -> Option<usize> {
        matches!(self, Self::SparseCategoricalCrossentropy { .. }).then(|| output.last())
    }

    /// What the score in a report is.
    pub fn score(self) -> Score {
        match self {
            Self::SparseCategoricalCrossentropy { .. } | Self::CategoricalCrossentropy { .. } => Score::Rank,
            Self::BinaryCrossentropy { .. } => Score::Hits,
            Self::MeanSquaredError => Score::AbsoluteError,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// If the smoothing is not in `[0, 1)`.
    pub fn check(self) -> Result<()> {
        let smoothing = self.label_smoothing();
        if (0.0..1.0).contains(&smoothing) {
            return Ok(());
        }
        Err(Error::setting(
            format!("loss `{}`", self.name()),
            format!("needs a label smoothing of at least 0 and below 1, but got {smoothing}"),
            "0 switches it off; 0.1 is usual",
        ))
    }

    fn label_smoothing(self) -> f32 {
        match self {
            Self::SparseCategoricalCrossentropy { label_smoothing }
            | Self::CategoricalCrossentropy { label_smoothing }
            | Self::BinaryCrossentropy { label_smoothing } => label_smoothing,
            Self::MeanSquaredError => 0.0,
        }
    }

    /// Records report and gradient of output `output_idx`, whose values are `y`. Returns the gradient.
    pub(crate) fn record(self, rec: &mut Recorder<'_>, output_idx: u32, shape: &Shape, y: View) -> View {
        let name = format!("loss{output_idx}");
        let target = self.target_shape(shape);
        let targets = rec.plan().find_or_add(&name, Role::Target(output_idx), Length::per_row(target.len()));
        let weights = rec.plan().find_or_add(&name, Role::SampleWeight(output_idx), Length::per_row(1));
        let report = Length::per_row(2 * shape.positions());
        let report = rec.plan().find_or_add(&name, Role::Report(output_idx), report);
        let gradient = rec.scratch("gradient", y.len);
        let inputs = [y, targets, weights];
        let outputs = [report, gradient];
        let rows = length_word(Length::per_row(shape.positions()));
        let (cols, positions) = (whole(shape.last()), whole(shape.positions()));
        let (scale, smoothing) = (Word::LossScale(output_idx), Word::F32(self.label_smoothing()));
        let (grid, lanes) = rows_grid(shape.positions(), shape.last());
        let dispatch = match self {
            Self::SparseCategoricalCrossentropy { .. } | Self::CategoricalCrossentropy { .. } => {
                use softmax_cross_entropy::{FORWARD, FORWARD_DENSE, Record};
                let sparse = matches!(self, Self::SparseCategoricalCrossentropy { .. });
                let kernel = if sparse { &FORWARD } else { &FORWARD_DENSE };
                rec.dispatch(kernel, Record { rows, cols, positions, scale, smoothing }, inputs, outputs, grid)
            }
            Self::BinaryCrossentropy { .. } => {
                use binary_cross_entropy::{FORWARD, Record};
                rec.dispatch(&FORWARD, Record { rows, cols, positions, scale, smoothing }, inputs, outputs, grid)
            }
            Self::MeanSquaredError => {
                use mean_squared_error::{FORWARD, Record};
                rec.dispatch(&FORWARD, Record { rows, cols, positions, scale }, inputs, outputs, grid)
            }
        };
        dispatch.constants.push(lanes);
        gradient
    }
}

/// What the second number of a row's report is; the first is its weighted loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Number of classes that the model finds likelier than the true one: below `k`, it is in the top `k`.
    Rank,
    /// Part of the columns on the right side of 0.
    Hits,
    /// Mean absolute error.
    AbsoluteError,
}

/// What is reported beside the loss, by its Keras name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Metric {
    /// Part of the rows whose likeliest class is the true one (binary: part of the columns on the right side).
    Accuracy,
    /// Part of the rows whose true class is among the likeliest `k`.
    TopKCategoricalAccuracy {
        /// How many classes count.
        k: u32,
    },
    /// Mean of `|output - target|`.
    MeanAbsoluteError,
}

impl Metric {
    /// Its name in a log.
    pub fn name(self) -> String {
        match self {
            Self::Accuracy => "accuracy".into(),
            Self::TopKCategoricalAccuracy { k } => format!("top_{k}_accuracy"),
            Self::MeanAbsoluteError => "mean_absolute_error".into(),
        }
    }

    /// The value of one position, from its score; `None` if the loss does not tell.
    #[allow(clippy::cast_precision_loss, reason = "k is a small number")]
    pub fn value(self, score: Score, value: f32) -> Option<f64> {
        match (self, score) {
            (Self::Accuracy, Score::Rank) => Some(f64::from(u8::from(value < 0.5))),
            (Self::Accuracy, Score::Hits) | (Self::MeanAbsoluteError, Score::AbsoluteError) => Some(f64::from(value)),
            (Self::TopKCategoricalAccuracy { k }, Score::Rank) => Some(f64::from(u8::from(value < k as f32 - 0.5))),
            _ => None,
        }
    }

    /// The metric that goes with a loss where none is named.
    pub fn default_of(loss: Loss) -> Self {
        match loss.score() {
            Score::Rank | Score::Hits => Self::Accuracy,
            Score::AbsoluteError => Self::MeanAbsoluteError,
        }
    }
}
