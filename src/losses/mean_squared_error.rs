//! Mean squared error.

use serde::{Deserialize, Serialize};

use super::function::{Domain, Head, LossFunction, Score, Target};
use super::recording::Recording;
use crate::error::Problem;
use crate::kernels::mean_squared_error::{FORWARD, Record};
use crate::kind::Settings;
use crate::plan::Recorder;
use crate::shape::Shape;

/// `(output - target)²`, mean over the last axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeanSquaredError {}

impl LossFunction for MeanSquaredError {
    fn kind(&self) -> &'static str {
        "MeanSquaredError"
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
        Target { shape: output.clone(), domain: Domain::Numbers }
    }

    fn score(&self) -> Score {
        Score::AbsoluteError
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        let Recording { rows, cols, positions, scale, .. } = *it;
        it.dispatch(rec, &FORWARD, Record { rows, cols, positions, scale });
    }
}
