//! `RMSprop`, plain and centered.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{LEARNING_RATE, Range, UpdateRule, is_zero};
use crate::kernels::{Kernel, rmsprop as kernel};
use crate::kind::Settings;
use crate::plan::Word;

/// Steps divided by the root of the mean square of gradients.
///
/// Source: Tieleman & Hinton 2012, lecture 6e; `centered` after Graves 2013, arXiv:1308.0850.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RmsProp {
    /// Step size.
    pub learning_rate: f32,
    /// Decay of the mean of squared gradients.
    pub rho: f32,
    /// Part of the last step that is taken again.
    pub momentum: f32,
    /// Added under the root, or to it.
    pub epsilon: f32,
    /// Whether to divide by the variance instead of the mean square.
    pub centered: bool,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Whether `epsilon` is added to the root, as in PyTorch, instead of under it, as in Keras.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outer_epsilon: bool,
    /// Part of the parameter that is added to its gradient: `weight_decay` of PyTorch's `RMSprop`. 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub l2_decay: f32,
}

impl Default for RmsProp {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            rho: 0.9,
            momentum: 0.0,
            epsilon: 1e-7,
            centered: false,
            weight_decay: 0.0,
            outer_epsilon: false,
            l2_decay: 0.0,
        }
    }
}

impl UpdateRule for RmsProp {
    fn kind(&self) -> &'static str {
        "RMSprop"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("rho", self.rho, Range::BelowOne),
            ("momentum", self.momentum, Range::BelowOne),
            ("epsilon", self.epsilon, Range::AboveZero),
            ("weight_decay", self.weight_decay, Range::AtLeastZero),
            ("l2_decay", self.l2_decay, Range::AtLeastZero),
        ]
    }

    fn learning_rate(&self) -> f32 {
        self.learning_rate
    }

    fn with_learning_rate(&self, rate: f32) -> Arc<dyn UpdateRule> {
        Arc::new(Self { learning_rate: rate, ..*self })
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["velocity", "momentum", "average_gradient"]
    }

    fn kernel(&self) -> &'static Kernel {
        &kernel::UPDATE
    }

    fn params(&self, len: u32) -> Vec<Word> {
        let (inner, outer) = if self.outer_epsilon { (0.0, self.epsilon) } else { (self.epsilon, 0.0) };
        kernel::Record {
            len: len.into(),
            learning_rate: LEARNING_RATE,
            rho: self.rho.into(),
            momentum: self.momentum.into(),
            epsilon: inner.into(),
            weight_decay: self.weight_decay.into(),
            outer_epsilon: outer.into(),
            l2_decay: self.l2_decay.into(),
        }
        .into()
    }

    fn constants(&self) -> Vec<(&'static str, f64)> {
        if self.centered { vec![("CENTERED", 1.0)] } else { Vec::new() }
    }
}
