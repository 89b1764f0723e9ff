//! Losses of whole rows of outputs and targets.

use serde::{Deserialize, Serialize};

use super::function::{Domain, Head, LossFunction, Score, Target, check_smoothing};
use super::pointwise::check_focal;
use super::recording::Recording;
use crate::error::Problem;
use crate::kernels::Kernel;
use crate::kernels::row_loss::{FORWARD_COSINE, FORWARD_FOCAL, FORWARD_HINGE, Record};
use crate::kind::Settings;
use crate::plan::Recorder;
use crate::shape::Shape;

/// The negative cosine of the angle between output and target along the last axis: -1 where they point the same way.
///
/// An output of length 0 has no gradient. Keras' setting `axis` is always -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CosineSimilarity {
    /// Axis of the vectors: -1, the last.
    pub axis: i32,
}

impl Default for CosineSimilarity {
    fn default() -> Self {
        Self { axis: -1 }
    }
}

/// `max(neg - pos + 1, 0)` with `pos = Σ target · output` and `neg` the largest `(1 - target) · output` along the last axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CategoricalHinge {}

/// `-alpha · Σ target · (1 - p)^gamma · ln p` with `p = softmax(logits)`: classes that are right already count less.
///
/// As in Keras, probabilities are between 1e-7 and 1 - 1e-7, and `alpha` is one number for all classes. Source: Lin et al.
/// 2017, arXiv:1708.02002.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CategoricalFocalCrossentropy {
    /// Factor of the loss.
    pub alpha: f32,
    /// Focus on what is not yet right; 0 is the plain cross-entropy times `alpha`.
    pub gamma: f32,
    /// Part of the target that is spread evenly over all classes.
    pub label_smoothing: f32,
}

impl Default for CategoricalFocalCrossentropy {
    fn default() -> Self {
        Self { alpha: 0.25, gamma: 2.0, label_smoothing: 0.0 }
    }
}

fn record(rec: &mut Recorder<'_>, it: &Recording, kernel: &'static Kernel, [smoothing, alpha, gamma]: [f32; 3]) {
    let Recording { rows, cols, positions, scale, .. } = *it;
    let (smoothing, alpha, gamma) = (smoothing.into(), alpha.into(), gamma.into());
    it.dispatch(rec, kernel, Record { rows, cols, positions, scale, smoothing, alpha, gamma });
}

impl LossFunction for CosineSimilarity {
    fn kind(&self) -> &'static str {
        "CosineSimilarity"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        if self.axis == -1 {
            return Ok(());
        }
        let help = "leave it out; `Permute` brings another axis there";
        Err(Problem::new(format!("needs `axis` -1, the last, but got {}", self.axis), help))
    }

    fn head(&self) -> Head {
        Head::Values
    }

    fn target(&self, output: &Shape) -> Target {
        Target { shape: output.clone(), domain: Domain::Numbers }
    }

    fn score(&self) -> Score {
        Score::AbsoluteError
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        record(rec, it, &FORWARD_COSINE, [0.0; 3]);
    }
}

impl LossFunction for CategoricalHinge {
    fn kind(&self) -> &'static str {
        "CategoricalHinge"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }

    fn head(&self) -> Head {
        Head::Values
    }

    fn target(&self, output: &Shape) -> Target {
        Target { shape: output.clone(), domain: Domain::Probabilities }
    }

    fn score(&self) -> Score {
        Score::Rank
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        record(rec, it, &FORWARD_HINGE, [0.0; 3]);
    }
}

impl LossFunction for CategoricalFocalCrossentropy {
    fn kind(&self) -> &'static str {
        "CategoricalFocalCrossentropy"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        check_smoothing(self.label_smoothing)?;
        check_focal(self.alpha, f32::MAX, self.gamma)
    }

    fn head(&self) -> Head {
        Head::Softmax
    }

    fn target(&self, output: &Shape) -> Target {
        Target { shape: output.clone(), domain: Domain::Probabilities }
    }

    fn score(&self) -> Score {
        Score::Rank
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        record(rec, it, &FORWARD_FOCAL, [self.label_smoothing, self.alpha, self.gamma]);
    }
}
