//! Gradient descent with momentum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{LEARNING_RATE, Range, UpdateRule, is_zero};
use crate::kernels::{Kernel, sgd as kernel};
use crate::kind::Settings;
use crate::plan::Word;

/// Gradient descent with momentum. Source: Sutskever et al. 2013 for Nesterov's form.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sgd {
    /// Step size.
    pub learning_rate: f32,
    /// Part of the last step that is taken again.
    pub momentum: f32,
    /// Whether to use Nesterov momentum.
    pub nesterov: bool,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Part of the parameter that is added to its gradient: `weight_decay` of PyTorch's `SGD`. 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub l2_decay: f32,
}

impl Default for Sgd {
    fn default() -> Self {
        Self { learning_rate: 0.01, momentum: 0.0, nesterov: false, weight_decay: 0.0, l2_decay: 0.0 }
    }
}

impl UpdateRule for Sgd {
    fn kind(&self) -> &'static str {
        "SGD"
    }

    fn config(&self) -> Settings {
        Settings::of(self)
    }

    fn ranges(&self) -> Vec<(&'static str, f32, Range)> {
        vec![
            ("learning_rate", self.learning_rate, Range::AtLeastZero),
            ("momentum", self.momentum, Range::BelowOne),
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
        &["momentum"]
    }

    fn kernel(&self) -> &'static Kernel {
        &kernel::UPDATE
    }

    fn params(&self, len: u32) -> Vec<Word> {
        kernel::Record {
            len: len.into(),
            learning_rate: LEARNING_RATE,
            momentum: self.momentum.into(),
            weight_decay: self.weight_decay.into(),
            l2_decay: self.l2_decay.into(),
        }
        .into()
    }

    fn constants(&self) -> Vec<(&'static str, f64)> {
        if self.nesterov { vec![("NESTEROV", 1.0)] } else { Vec::new() }
    }
}
