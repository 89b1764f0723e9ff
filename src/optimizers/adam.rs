//! Adam, and with decoupled weight decay `AdamW`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{LEARNING_RATE, Range, UpdateRule, is_zero};
use crate::kernels::{Kernel, adam as kernel};
use crate::kind::Settings;
use crate::plan::Word;

/// Steps by moments of the gradients. Source: Kingma & Ba 2014, arXiv:1412.6980.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// Step size.
    pub learning_rate: f32,
    /// Decay of the mean of gradients.
    pub beta_1: f32,
    /// Decay of the mean of squared gradients.
    pub beta_2: f32,
    /// Added to the root of the mean square.
    pub epsilon: f32,
    /// Whether `epsilon` is added to the root after its bias is corrected, as in the paper and PyTorch, instead of before, as in Keras.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outer_epsilon: bool,
    /// Part of the parameter that is added to its gradient: `weight_decay` of PyTorch's `Adam`. 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub l2_decay: f32,
}

impl Default for Adam {
    fn default() -> Self {
        Self { learning_rate: 1e-3, beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, outer_epsilon: false, l2_decay: 0.0 }
    }
}

/// Adam with decoupled weight decay. Source: Loshchilov & Hutter 2017, arXiv:1711.05101.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamW {
    /// Step size.
    pub learning_rate: f32,
    /// Decay of the mean of gradients.
    pub beta_1: f32,
    /// Decay of the mean of squared gradients.
    pub beta_2: f32,
    /// Added to the root of the mean square.
    pub epsilon: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Whether `epsilon` is added to the root after its bias is corrected, as in the paper and PyTorch, instead of before, as in Keras.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outer_epsilon: bool,
}

impl Default for AdamW {
    fn default() -> Self {
        let Adam { learning_rate, beta_1, beta_2, epsilon, outer_epsilon, .. } = Adam::default();
        Self { learning_rate, beta_1, beta_2, epsilon, weight_decay: 4e-3, outer_epsilon }
    }
}

const STATE: &[&str] = &["momentum", "velocity"];

impl Adam {
    fn common_ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("beta_1", self.beta_1, Range::BelowOne),
            ("beta_2", self.beta_2, Range::BelowOne),
            ("epsilon", self.epsilon, Range::AboveZero),
        ]
    }

    /// `1 - beta^step` of both, and the epsilon of the step.
    #[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose; steps beyond 2^31 give 1 anyway")]
    fn numbers_of(&self, step: u64) -> Vec<f32> {
        let power = i32::try_from(step).unwrap_or(i32::MAX);
        let [first, second] = [self.beta_1, self.beta_2].map(|beta| 1.0 - f64::from(beta).powi(power));
        // The kernel corrects the quotient as a whole, and so an epsilon that belongs to the corrected root has to be smaller.
        let part = if self.outer_epsilon { second.sqrt() } else { 1.0 };
        vec![first as f32, second as f32, (f64::from(self.epsilon) * part) as f32]
    }

    fn record(&self, len: u32, weight_decay: f32) -> Vec<Word> {
        kernel::Record {
            len: len.into(),
            learning_rate: LEARNING_RATE,
            beta_1: self.beta_1.into(),
            beta_2: self.beta_2.into(),
            epsilon: Word::Hyper(3),
            correction_1: Word::Hyper(1),
            correction_2: Word::Hyper(2),
            weight_decay: weight_decay.into(),
            l2_decay: self.l2_decay.into(),
        }
        .into()
    }
}

impl AdamW {
    /// The Adam that it is without decay.
    fn adam(&self) -> Adam {
        let Self { learning_rate, beta_1, beta_2, epsilon, outer_epsilon, .. } = *self;
        Adam { learning_rate, beta_1, beta_2, epsilon, outer_epsilon, l2_decay: 0.0 }
    }
}

impl UpdateRule for Adam {
    fn kind(&self) -> &'static str {
        "Adam"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        let mut ranges = self.common_ranges();
        ranges.push(("l2_decay", self.l2_decay, Range::AtLeastZero));
        ranges
    }

    fn learning_rate(&self) -> f32 {
        self.learning_rate
    }

    fn with_learning_rate(&self, rate: f32) -> Arc<dyn UpdateRule> {
        Arc::new(Self { learning_rate: rate, ..*self })
    }

    fn state_names(&self) -> &'static [&'static str] {
        STATE
    }

    fn step_numbers(&self, step: u64) -> Vec<f32> {
        self.numbers_of(step)
    }

    fn kernel(&self) -> &'static Kernel {
        &kernel::UPDATE
    }

    fn params(&self, len: u32) -> Vec<Word> {
        self.record(len, 0.0)
    }
}

impl UpdateRule for AdamW {
    fn kind(&self) -> &'static str {
        "AdamW"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        let mut ranges = self.adam().common_ranges();
        ranges.push(("weight_decay", self.weight_decay, Range::AtLeastZero));
        ranges
    }

    fn learning_rate(&self) -> f32 {
        self.learning_rate
    }

    fn with_learning_rate(&self, rate: f32) -> Arc<dyn UpdateRule> {
        Arc::new(Self { learning_rate: rate, ..*self })
    }

    fn state_names(&self) -> &'static [&'static str] {
        STATE
    }

    fn step_numbers(&self, step: u64) -> Vec<f32> {
        self.adam().numbers_of(step)
    }

    fn kernel(&self) -> &'static Kernel {
        &kernel::UPDATE
    }

    fn params(&self, len: u32) -> Vec<Word> {
        self.adam().record(len, self.weight_decay)
    }
}
