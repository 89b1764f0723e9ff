//! Lion: steps of one length.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{LEARNING_RATE, Range, UpdateRule};
use crate::kernels::{Kernel, lion as kernel};
use crate::kind::Settings;
use crate::plan::Word;

/// Steps of one length, in the direction of a mean of gradients. Source: Chen et al. 2023, arXiv:2302.06675.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lion {
    /// Length of a step; a third to a tenth of that of Adam.
    pub learning_rate: f32,
    /// Part of the old mean in the direction.
    pub beta_1: f32,
    /// Decay of the mean of gradients.
    pub beta_2: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
}

impl Default for Lion {
    fn default() -> Self {
        Self { learning_rate: 1e-3, beta_1: 0.9, beta_2: 0.99, weight_decay: 0.0 }
    }
}

impl UpdateRule for Lion {
    fn kind(&self) -> &'static str {
        "Lion"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("beta_1", self.beta_1, Range::BelowOne),
            ("beta_2", self.beta_2, Range::BelowOne),
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
        &["momentum"]
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
            weight_decay: self.weight_decay.into(),
        }
        .into()
    }
}
