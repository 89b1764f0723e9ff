//! Adadelta.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{LEARNING_RATE, Range, UpdateRule};
use crate::kernels::{Kernel, adadelta as kernel};
use crate::kind::Settings;
use crate::plan::Word;

/// Steps in the unit of the parameters, by means of squared gradients and squared steps. Source: Zeiler 2012, arXiv:1212.5701.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Adadelta {
    /// Factor of the steps; 1 in the paper.
    pub learning_rate: f32,
    /// Decay of both means.
    pub rho: f32,
    /// Added under both roots.
    pub epsilon: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
}

impl Default for Adadelta {
    fn default() -> Self {
        Self { learning_rate: 1e-3, rho: 0.95, epsilon: 1e-7, weight_decay: 0.0 }
    }
}

impl UpdateRule for Adadelta {
    fn kind(&self) -> &'static str {
        "Adadelta"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("rho", self.rho, Range::BelowOne),
            ("epsilon", self.epsilon, Range::AboveZero),
            ("weight_decay", self.weight_decay, Range::AtLeastZero),
        ]
    }

    fn learning_rate(&self) -> f32 {
        self.learning_rate
    }

    fn with_learning_rate(&self, rate: f32) -> Arc<dyn UpdateRule> {
        Arc::new(Self { learning_rate: rate, ..*self })
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["accumulated_grad", "accumulated_delta_var"]
    }

    fn kernel(&self) -> &'static Kernel {
        &kernel::UPDATE
    }

    fn params(&self, len: u32) -> Vec<Word> {
        kernel::Record {
            len: len.into(),
            learning_rate: LEARNING_RATE,
            rho: self.rho.into(),
            epsilon: self.epsilon.into(),
            weight_decay: self.weight_decay.into(),
        }
        .into()
    }
}
