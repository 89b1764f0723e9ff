//! Adamax.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{LEARNING_RATE, Range, UpdateRule};
use crate::kernels::{Kernel, adamax as kernel};
use crate::kind::Settings;
use crate::plan::Word;

/// Adam by the largest of the decaying sizes of gradients. Source: Kingma & Ba 2014, arXiv:1412.6980, section 7.1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Adamax {
    /// Step size.
    pub learning_rate: f32,
    /// Decay of the mean of gradients.
    pub beta_1: f32,
    /// Decay of the largest size.
    pub beta_2: f32,
    /// Added to the largest size.
    pub epsilon: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
}

impl Default for Adamax {
    fn default() -> Self {
        Self { learning_rate: 1e-3, beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, weight_decay: 0.0 }
    }
}

impl UpdateRule for Adamax {
    fn kind(&self) -> &'static str {
        "Adamax"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("beta_1", self.beta_1, Range::BelowOne),
            ("beta_2", self.beta_2, Range::BelowOne),
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
        &["momentum", "norm"]
    }

    /// `1 - beta_1^step`.
    #[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose; steps beyond 2^31 give 1 anyway")]
    fn step_numbers(&self, step: u64) -> Vec<f32> {
        let power = i32::try_from(step).unwrap_or(i32::MAX);
        vec![(1.0 - f64::from(self.beta_1).powi(power)) as f32]
    }

    fn kernel(&self) -> &'static Kernel {
        &kernel::UPDATE
    }

    fn params(&self, len: u32) -> Vec<Word> {
        kernel::Record {
            len: len.into(),
            learning_rate: LEARNING_RATE,
            beta_1: self.beta_1.into(),
            beta_2: self.beta_2.into(),
            epsilon: self.epsilon.into(),
            correction_1: Word::Hyper(1),
            weight_decay: self.weight_decay.into(),
        }
        .into()
    }
}
