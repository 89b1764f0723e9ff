//! The trait of losses: settings, target, and the recording of a kernel.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::recording::Recording;
use crate::error::Problem;
use crate::kernels::rounding::MOST_WHOLE;
use crate::kind::{self, Settings};
use crate::plan::Recorder;
use crate::reading;
use crate::shape::Shape;

/// Objective that training minimizes, for one output: settings, and the recording of a kernel. Plain data.
///
/// `examples/05_custom_loss_and_optimizer.rs` has one of its own.
pub trait LossFunction: fmt::Debug + Send + Sync {
    /// Name of the kind, as in Keras: `MeanSquaredError`.
    fn kind(&self) -> &'static str;

    /// The settings, as they stand in a file: [`Settings::of`] a struct that serialises.
    fn config(&self) -> Settings;

    /// Checks the settings.
    ///
    /// # Errors
    /// If one is out of its range.
    fn check(&self) -> Result<(), Problem>;

    /// Meaning of the output's numbers.
    fn head(&self) -> Head;

    /// Shape and values of the target of an output.
    fn target(&self, output: &Shape) -> Target;

    /// Class of targets that count in no loss and no metric; it may be none of the output's.
    fn ignored_class(&self) -> Option<i32> {
        None
    }

    /// Whether targets are made of the outputs, as training computes them: then
    /// [`forward_on_batch`](crate::AsyncTrainer::forward_on_batch) gives these.
    fn needs_outputs(&self) -> bool {
        false
    }

    /// Whether report and gradient of a position need nothing of other positions, so that they may be recorded for some positions
    /// after the others: then logits of a vocabulary never exist at once.
    fn is_by_position(&self) -> bool {
        false
    }

    /// Meaning of the score in a report.
    fn score(&self) -> Score;

    /// Records report and gradient.
    fn record(&self, rec: &mut Recorder<'_>, it: &Recording);
}

/// Meaning of an output's numbers to its loss, which decides how to read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Logits of one class of several, along the last axis: the loss applies softmax.
    Softmax,
    /// Logits of a yes or no for each number: the loss applies the sigmoid.
    Sigmoid,
    /// The numbers themselves.
    Values,
}

/// Shape and values of the target of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Shape of a row.
    pub shape: Shape,
    /// Allowed values.
    pub domain: Domain,
}

/// Allowed values of a target. The whole dataset is checked before the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Domain {
    /// Class indices: whole numbers from 0 up, below the number of classes.
    Classes(usize),
    /// Probabilities: numbers from 0 to 1.
    Probabilities,
    /// One of two classes: -1 and 1, or 0 and 1.
    Signs,
    /// Numbers of at least 0.
    Counts,
    /// Any finite number.
    Numbers,
}

impl Domain {
    /// Refuses so many classes that f32 would take labels for their neighbours.
    pub(crate) fn check(self) -> Result<(), Problem> {
        match self {
            Self::Classes(classes) if classes > MOST_WHOLE => Err(Problem::new(
                format!(
                    "needs at most {MOST_WHOLE} classes, but has {classes}: 32-bit floats hold no more labels exactly"
                ),
                "merge rare classes into one",
            )),
            _ => Ok(()),
        }
    }
}

/// A kind of loss that can be read from a file.
pub type Entry = kind::Entry<dyn LossFunction>;

/// The entry of a loss that derives `Deserialize`.
pub const fn entry<L: LossFunction + DeserializeOwned + 'static>(kind: &'static str) -> Entry {
    Entry { kind, from_config: |config| Ok(Arc::new(reading::read::<L>(&config.into())?)) }
}

/// Meaning of the second number of a row's report; the first is its weighted loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Number of classes that the model finds likelier than the true one, and a half if one before it is as likely: 0
    /// for the first of the likeliest, and below `k` in the top `k`.
    Rank,
    /// Part of the columns on the right side of 0.
    Hits,
    /// Mean absolute error.
    AbsoluteError,
    /// A number of your own loss: its mean is reported under this name.
    Own(&'static str),
}

/// Label smoothing must leave a part of the label.
pub(super) fn check_smoothing(smoothing: f32) -> Result<(), Problem> {
    if (0.0..1.0).contains(&smoothing) {
        return Ok(());
    }
    Err(Problem::new(
        format!("needs a label smoothing of at least 0 and below 1, but got {smoothing}"),
        "0 switches it off; 0.1 is usual",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::SparseCategoricalCrossentropy;

    #[test]
    fn no_label_is_taken_for_its_neighbour() {
        let target = |units: usize| SparseCategoricalCrossentropy::default().target(&Shape::new([units]));
        assert!(target(1 << 24).domain.check().is_ok());
        let Problem { problem, .. } = target((1 << 24) + 1).domain.check().unwrap_err();
        let needed = "needs at most 16777216 classes, but has 16777217: 32-bit floats hold no more labels exactly";
        assert_eq!(problem, needed);
    }
}
