//! Cross-entropy of the sigmoid of logits.

use serde::{Deserialize, Serialize};

use super::function::{Domain, Head, LossFunction, Score, Target, check_smoothing};
use super::recording::Recording;
use crate::error::Problem;
use crate::kernels::binary_cross_entropy::{FORWARD, Record};
use crate::kind::Settings;
use crate::plan::Recorder;
use crate::shape::Shape;

/// `-target · log σ(logit) - (1 - target) · log(1 - σ(logit))`, mean over the last axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BinaryCrossentropy {
    /// Part of the target that is moved to ½.
    pub label_smoothing: f32,
}

impl LossFunction for BinaryCrossentropy {
    fn kind(&self) -> &'static str {
        "BinaryCrossentropy"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        check_smoothing(self.label_smoothing)
    }

    fn head(&self) -> Head {
        Head::Sigmoid
    }

    fn target(&self, output: &Shape) -> Target {
        Target { shape: output.clone(), domain: Domain::Probabilities }
    }

    fn score(&self) -> Score {
        Score::Hits
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        let Recording { rows, cols, positions, scale, .. } = *it;
        let smoothing = self.label_smoothing.into();
        it.dispatch(rec, &FORWARD, Record { rows, cols, positions, scale, smoothing });
    }
}
