//! Losses under Keras' names.
//!
//! [`Loss`] holds one of the structs below, or a [`LossFunction`] of your own: see [`extend`](crate::extend).
//! Cross-entropies take logits, as with Keras' `from_logits=True`, so the last layer of a model has no activation.
//!
//! The gradient of a loss is that of the *whole* batch's: it is scaled by the global count (or sum of sample weights),
//! never by the shard's. So plain addition over adapters gives the gradient of one loss.

// Files: `table.rs`: `LOSSES`, the one table; `function.rs`: the trait; `pointwise.rs`: losses of one number and its target; `row.rs`,
// `softmax_cross_entropy.rs`: losses of whole rows; `recording.rs`: inputs and outputs of a loss;
// `positions.rs`: some of the positions of a row.

mod function;
mod pointwise;
pub(crate) mod positions;
mod recording;
mod row;
mod softmax_cross_entropy;
pub(crate) mod table;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Problem, Result};
use crate::kind::{Named, SharedOrStatic};
use crate::plan::{Recorder, View};
use crate::reading::ReadError;
use crate::shape::Shape;
use positions::Positions;

pub use crate::kind::Settings;
pub use function::{Domain, Entry, Head, LossFunction, Score, Target, entry};
pub use pointwise::{
    BinaryCrossentropy, BinaryFocalCrossentropy, Hinge, Huber, KLDivergence, LogCosh, MeanAbsoluteError,
    MeanSquaredError, Poisson, SquaredHinge,
};
pub use recording::Recording;
pub use row::{CategoricalFocalCrossentropy, CategoricalHinge, CosineSimilarity};
pub use softmax_cross_entropy::{CategoricalCrossentropy, SparseCategoricalCrossentropy};
pub use table::LOSSES;

/// Objective that training minimizes, for one output: one of [`losses`](self), or a [`LossFunction`] of your own.
/// Clones share it.
///
/// Cross-entropies take logits (Keras' `from_logits=True`).
///
/// | loss | output | target |
/// | --- | --- | --- |
/// | `SparseCategoricalCrossentropy` | `[batch, ..., classes]` | `[batch, ...]`, class indices |
/// | `CategoricalCrossentropy`, `CategoricalFocalCrossentropy` | `[batch, ..., classes]` | the same shape, probabilities |
/// | `BinaryCrossentropy`, `BinaryFocalCrossentropy` | `[batch, ...]` | the same shape, 0 to 1 |
/// | `MeanSquaredError`, `MeanAbsoluteError`, `Huber`, `LogCosh`, `CosineSimilarity` | `[batch, ...]` | the same shape |
/// | `Poisson` | `[batch, ...]`, above 0 | the same shape, at least 0 |
/// | `KLDivergence` | `[batch, ..., classes]`, probabilities | the same shape, probabilities |
/// | `Hinge`, `SquaredHinge` | `[batch, ...]` | the same shape, -1 and 1, or 0 and 1 |
/// | `CategoricalHinge` | `[batch, ..., classes]` | the same shape, probabilities |
///
/// **Across adapters** nothing changes: the sum over rows is divided by the whole batch's count. Golden values: Keras 3.
///
/// ```
/// use manyhands::Loss;
/// use manyhands::losses::CategoricalCrossentropy;
///
/// let smoothed: Loss = CategoricalCrossentropy { label_smoothing: 0.1 }.into();
/// assert_eq!(smoothed.name(), Loss::CATEGORICAL_CROSSENTROPY.name());
/// assert_ne!(smoothed, Loss::CATEGORICAL_CROSSENTROPY);
/// ```
#[derive(Clone)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(schema_with = "described"))]
pub struct Loss(SharedOrStatic<dyn LossFunction>);

impl<L: LossFunction + 'static> From<L> for Loss {
    fn from(loss: L) -> Self {
        Self(SharedOrStatic::Shared(Arc::new(loss)))
    }
}

/// The losses of the table.
#[cfg(feature = "schema")]
fn described(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    manyhands_engine::described::kinds(generator, table::DESCRIBED, &[])
}

impl Loss {
    /// Cross-entropy with class indices, without smoothing.
    pub const SPARSE_CATEGORICAL_CROSSENTROPY: Self =
        Self(SharedOrStatic::Static(&SparseCategoricalCrossentropy { label_smoothing: 0.0, ignore_class: None }));

    /// Cross-entropy with probabilities as targets, without smoothing.
    pub const CATEGORICAL_CROSSENTROPY: Self =
        Self(SharedOrStatic::Static(&CategoricalCrossentropy { label_smoothing: 0.0 }));

    /// Binary cross-entropy without smoothing.
    pub const BINARY_CROSSENTROPY: Self = Self(SharedOrStatic::Static(&BinaryCrossentropy { label_smoothing: 0.0 }));

    /// Mean squared error.
    pub const MEAN_SQUARED_ERROR: Self = Self(SharedOrStatic::Static(&MeanSquaredError {}));

    /// One of a file, where losses of your own may stand, too.
    ///
    /// # Errors
    /// If the kind is unknown, or its settings can't be read.
    pub fn read(named: Named, own: &[Entry]) -> Result<Self, ReadError> {
        named.make(own, LOSSES, table::KINDS).map(|loss| Self(SharedOrStatic::Shared(loss)))
    }

    /// The function behind it.
    #[doc(hidden)]
    pub fn function(&self) -> &dyn LossFunction {
        &*self.0
    }

    /// Name in Keras.
    pub fn name(&self) -> &'static str {
        self.0.kind()
    }

    /// Shape and values of the target of an output.
    #[doc(hidden)]
    pub fn target(&self, output: &Shape) -> Target {
        self.0.target(output)
    }

    /// Shape of the target of an output.
    #[doc(hidden)]
    pub fn target_shape(&self, output: &Shape) -> Shape {
        self.target(output).shape
    }

    /// Meaning of the output's numbers.
    pub fn head(&self) -> Head {
        self.0.head()
    }

    /// Class of targets that count in no loss and no metric.
    #[doc(hidden)]
    #[allow(clippy::cast_precision_loss, reason = "labels are f32 in the engine")]
    pub fn ignored_class(&self) -> Option<f32> {
        self.0.ignored_class().map(|class| class as f32)
    }

    /// Whether targets are made of the outputs, as training computes them.
    pub(crate) fn needs_outputs(&self) -> bool {
        self.0.needs_outputs()
    }

    /// Meaning of the score in a report.
    #[doc(hidden)]
    pub fn score(&self) -> Score {
        self.0.score()
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// If one is out of its range.
    pub fn check(&self) -> Result<()> {
        self.0
            .check()
            .map_err(|Problem { problem, help }| Error::setting(format!("loss `{}`", self.name()), problem, help))
    }

    /// Records report and gradient of output `output_idx`, whose values at these positions are `y`. Returns the gradient.
    pub(crate) fn record(
        &self,
        rec: &mut Recorder<'_>,
        output_idx: u32,
        shape: &Shape,
        positions: &Positions,
        y: View,
    ) -> View {
        let it = Recording::new(rec, output_idx, [shape, &self.target_shape(shape)], positions, y);
        self.0.record(rec, &it);
        it.finish(rec, output_idx, positions);
        it.gradient
    }

    fn named(&self) -> Named {
        Named { kind: self.name().into(), settings: self.0.config() }
    }
}

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Losses are equal if kind and settings are.
impl PartialEq for Loss {
    fn eq(&self, other: &Self) -> bool {
        self.named() == other.named()
    }
}

impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.named().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(Named::deserialize(deserializer)?, &[]).map_err(ReadError::raise)
    }
}

/// Reduction of the rows' losses to one, as Keras' `reduction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
