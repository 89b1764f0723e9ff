//! Losses that are a mean over the last axis of a function of output and target.

use serde::{Deserialize, Serialize};

use super::function::{Domain, Head, LossFunction, Score, Target, check_smoothing};
use super::recording::Recording;
use crate::error::Problem;
use crate::kernels::pointwise_loss::{FORWARD, PointwiseFunction, Record};
use crate::kind::Settings;
use crate::plan::Recorder;
use crate::shape::Shape;

/// Factors of [`BinaryFocalCrossentropy`] for targets that are 1 and 0.
#[derive(Clone, Copy)]
struct Balance {
    positive: f32,
    negative: f32,
}

const EVEN: Balance = Balance { positive: 1.0, negative: 1.0 };

/// Records a function with its label smoothing, delta, gamma and balance.
fn record(
    rec: &mut Recorder<'_>,
    it: &Recording,
    function: PointwiseFunction,
    [smoothing, delta, gamma]: [f32; 3],
    balance: Balance,
) {
    let Recording { rows, cols, positions, scale, .. } = *it;
    let Balance { positive, negative } = balance;
    let params = Record {
        rows,
        cols,
        positions,
        scale,
        smoothing: smoothing.into(),
        delta: delta.into(),
        gamma: gamma.into(),
        positive: positive.into(),
        negative: negative.into(),
    };
    it.dispatch(rec, &FORWARD, params).constants.push(("LOSS", function.code()));
}

fn same_shape(output: &Shape, domain: Domain) -> Target {
    Target { shape: output.clone(), domain }
}

/// A loss of the output's own numbers without settings: its function, and the allowed values of its target.
macro_rules! plain_loss {
    ($(#[$doc:meta])* $name:ident {}, $kind:literal, $function:expr, $domain:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields)]
        pub struct $name {}

        impl LossFunction for $name {
            fn kind(&self) -> &'static str {
                $kind
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
                same_shape(output, $domain)
            }

            fn score(&self) -> Score {
                if $function.counts_hits() { Score::Hits } else { Score::AbsoluteError }
            }

            fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
                record(rec, it, $function, [0.0; 3], EVEN);
            }
        }
    };
}

plain_loss! {
    /// `(output - target)²`, mean over the last axis.
    MeanSquaredError {}, "MeanSquaredError", PointwiseFunction::SquaredError, Domain::Numbers
}

plain_loss! {
    /// `|output - target|`, mean over the last axis.
    MeanAbsoluteError {}, "MeanAbsoluteError", PointwiseFunction::AbsoluteError, Domain::Numbers
}

plain_loss! {
    /// `ln cosh(output - target)`, mean over the last axis: half of the square near 0, the distance less `ln 2` far from it.
    LogCosh {}, "LogCosh", PointwiseFunction::LogCosh, Domain::Numbers
}

plain_loss! {
    /// `output - target · ln(output + 1e-7)`, mean over the last axis. The output is an expected count, above 0; targets are
    /// counts, at least 0.
    Poisson {}, "Poisson", PointwiseFunction::Poisson, Domain::Counts
}

plain_loss! {
    /// `Σ target · ln(target / output)` over the last axis, of two distributions: numbers below 1e-7 count as that, numbers
    /// above 1 as 1. The output holds probabilities, as a softmax gives them.
    KLDivergence {}, "KLDivergence", PointwiseFunction::KlDivergence, Domain::Probabilities
}

plain_loss! {
    /// `max(1 - target · output, 0)`, mean over the last axis. Targets are -1 and 1, or 0 and 1, which count as those.
    Hinge {}, "Hinge", PointwiseFunction::Hinge, Domain::Signs
}

plain_loss! {
    /// `max(1 - target · output, 0)²`, mean over the last axis. Targets are -1 and 1, or 0 and 1, which count as those.
    SquaredHinge {}, "SquaredHinge", PointwiseFunction::SquaredHinge, Domain::Signs
}

/// `error² / 2` where `|error| ≤ delta`, else `delta · (|error| - delta / 2)`, mean over the last axis, with
/// `error = output - target`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Huber {
    /// Error above which the loss grows in proportion to it, and no longer to its square.
    pub delta: f32,
}

impl Default for Huber {
    fn default() -> Self {
        Self { delta: 1.0 }
    }
}

impl LossFunction for Huber {
    fn kind(&self) -> &'static str {
        "Huber"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        if self.delta > 0.0 && self.delta.is_finite() {
            return Ok(());
        }
        Err(Problem::new(format!("needs a `delta` above 0, but got {}", self.delta), "1 is usual"))
    }

    fn head(&self) -> Head {
        Head::Values
    }

    fn target(&self, output: &Shape) -> Target {
        same_shape(output, Domain::Numbers)
    }

    fn score(&self) -> Score {
        Score::AbsoluteError
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        record(rec, it, PointwiseFunction::Huber, [0.0, self.delta, 0.0], EVEN);
    }
}

/// `-target · log σ(logit) - (1 - target) · log(1 - σ(logit))`, mean over the last axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        same_shape(output, Domain::Probabilities)
    }

    fn score(&self) -> Score {
        Score::Hits
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        record(rec, it, PointwiseFunction::BinaryCrossentropy, [self.label_smoothing, 0.0, 0.0], EVEN);
    }
}

/// Binary cross-entropy times `(1 - p)^gamma`, mean over the last axis: `p` is the probability of what is true, so that what
/// is right already counts less.
///
/// As in Keras, the cross-entropy is that of probabilities between 1e-7 and 1 - 1e-7. Source: Lin et al. 2017,
/// arXiv:1708.02002.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BinaryFocalCrossentropy {
    /// Whether targets of 1 are weighted by `alpha`, and targets of 0 by `1 - alpha`.
    pub apply_class_balancing: bool,
    /// Weight of targets of 1, where classes are balanced.
    pub alpha: f32,
    /// Focus on what is not yet right; 0 is the plain cross-entropy.
    pub gamma: f32,
    /// Part of the target that is moved to ½.
    pub label_smoothing: f32,
}

impl Default for BinaryFocalCrossentropy {
    fn default() -> Self {
        Self { apply_class_balancing: false, alpha: 0.25, gamma: 2.0, label_smoothing: 0.0 }
    }
}

/// Alpha and gamma of a focal loss must leave it a loss.
pub(super) fn check_focal(alpha: f32, most_alpha: f32, gamma: f32) -> Result<(), Problem> {
    if !(alpha >= 0.0 && alpha <= most_alpha) {
        let range = if most_alpha == 1.0 { "from 0 to 1" } else { "of at least 0" };
        return Err(Problem::new(format!("needs an `alpha` {range}, but got {alpha}"), "0.25 is usual"));
    }
    if !(gamma >= 0.0 && gamma.is_finite()) {
        return Err(Problem::new(format!("needs a `gamma` of at least 0, but got {gamma}"), "2 is usual"));
    }
    Ok(())
}

impl LossFunction for BinaryFocalCrossentropy {
    fn kind(&self) -> &'static str {
        "BinaryFocalCrossentropy"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn check(&self) -> Result<(), Problem> {
        check_smoothing(self.label_smoothing)?;
        check_focal(self.alpha, 1.0, self.gamma)
    }

    fn head(&self) -> Head {
        Head::Sigmoid
    }

    fn target(&self, output: &Shape) -> Target {
        same_shape(output, Domain::Probabilities)
    }

    fn score(&self) -> Score {
        Score::Hits
    }

    fn record(&self, rec: &mut Recorder<'_>, it: &Recording) {
        let balanced = Balance { positive: self.alpha, negative: 1.0 - self.alpha };
        let balance = if self.apply_class_balancing { balanced } else { EVEN };
        record(rec, it, PointwiseFunction::BinaryFocalCrossentropy, [self.label_smoothing, 0.0, self.gamma], balance);
    }
}
