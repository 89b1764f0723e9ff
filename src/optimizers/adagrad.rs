//! Adagrad.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{LEARNING_RATE, Range, UpdateRule};
use crate::kernels::{Kernel, adagrad as kernel};
use crate::kind::Settings;
use crate::plan::Word;

/// Steps divided by the root of the sum of all squared gradients. Source: Duchi, Hazan, Singer 2011, JMLR 12.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Adagrad {
    /// Step size.
    pub learning_rate: f32,
    /// Sum of squared gradients before the first step.
    pub initial_accumulator_value: f32,
    /// Added under the root.
    pub epsilon: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
}

impl Default for Adagrad {
    fn default() -> Self {
        Self { learning_rate: 1e-3, initial_accumulator_value: 0.1, epsilon: 1e-7, weight_decay: 0.0 }
    }
}

impl UpdateRule for Adagrad {
    fn kind(&self) -> &'static str {
        "Adagrad"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("initial_accumulator_value", self.initial_accumulator_value, Range::AtLeastZero),
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
        &["accumulator"]
    }

    fn initial_state(&self, _name: &str) -> f32 {
        self.initial_accumulator_value
    }

    fn kernel(&self) -> &'static Kernel {
        &kernel::UPDATE
    }

    fn params(&self, len: u32) -> Vec<Word> {
        kernel::Record {
            len: len.into(),
            learning_rate: LEARNING_RATE,
            epsilon: self.epsilon.into(),
            weight_decay: self.weight_decay.into(),
        }
        .into()
    }
}
