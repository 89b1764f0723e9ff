//! Cross-entropies of the softmax of logits.

use serde::{Deserialize, Serialize};

use super::function::{Domain, Head, LossFunction, Score, Target, check_smoothing};
use super::recording::Recording;
use crate::error::Problem;
use crate::kernels::{Kernel, softmax_cross_entropy as kernel};
use crate::kind::Settings;
use crate::plan::Recorder;
use crate::shape::Shape;

/// `-log softmax(logits)[label]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SparseCategoricalCrossentropy {
    /// Part of the target that is spread evenly over all classes.
    pub label_smoothing: f32,
    /// Class whose positions count in no loss and no metric, such as that of padding: one of the classes, or another number, as -100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_class: Option<i32>,
}

/// `-Σ target · log softmax(logits)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CategoricalCrossentropy {
    /// Part of the target that is spread evenly over all classes.
    pub label_smoothing: f32,
}

fn record(rec: &mut Recorder<'_>, it: &Recording, kernel: &'static Kernel, smoothing: f32) {
    let Recording { rows, cols, positions, scale, .. } = *it;
    it.dispatch(rec, kernel, kernel::Record { rows, cols, positions, scale, smoothing: smoothing.into() });
}

impl LossFunction for SparseCategoricalCrossentropy {
    fn kind(&self) -> &'static str {
        "SparseCategoricalCrossentropy"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        check_smoothing(self.label_smoothing)
    }

    fn head(&self) -> Head {
        Head::Softmax
    }

    fn target(&self, output: &Shape) -> Target {
        let (classes, outer) = output.axes().split_last().map_or((1, &[][..]), |(classes, outer)| (*classes, outer));
        Target { shape: Shape::new(outer.to_vec()), domain: Domain::Classes(classes) }
    }

    fn ignored_class(&self) -> Option<i32> {
        self.ignore_class
    }

    fn is_by_position(&self) -> bool {
        true
    }

    fn score(&self) -> Score {
        Score::Rank
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        record(rec, it, &kernel::FORWARD, self.label_smoothing);
    }
}

impl LossFunction for CategoricalCrossentropy {
    fn kind(&self) -> &'static str {
        "CategoricalCrossentropy"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        check_smoothing(self.label_smoothing)
    }

    fn head(&self) -> Head {
        Head::Softmax
    }

    fn target(&self, output: &Shape) -> Target {
        Target { shape: output.clone(), domain: Domain::Probabilities }
    }

    fn is_by_position(&self) -> bool {
        true
    }

    fn score(&self) -> Score {
        Score::Rank
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        record(rec, it, &kernel::FORWARD_DENSE, self.label_smoothing);
    }
}
