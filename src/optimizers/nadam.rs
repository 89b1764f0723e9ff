//! Nadam: Adam with Nesterov momentum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rule::{LEARNING_RATE, Range, UpdateRule};
use crate::kernels::{Kernel, nadam as kernel};
use crate::kind::Settings;
use crate::plan::Word;

/// Adam with Nesterov momentum. Source: Dozat 2016, "Incorporating Nesterov momentum into Adam".
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nadam {
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
}

impl Default for Nadam {
    fn default() -> Self {
        Self { learning_rate: 1e-3, beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, weight_decay: 0.0 }
    }
}

/// Steps after which `1 - 0.96^step / 2` is 1 in 64 bits.
const WARM_UP: i32 = 1000;

impl Nadam {
    /// `u_t`, the momentum of step `t`.
    fn momentum(&self, step: i32) -> f64 {
        f64::from(self.beta_1) * (1.0 - 0.5 * 0.96_f64.powi(step))
    }

    /// The product of the momentums of the steps from 1 to `step`.
    fn product(&self, step: i32) -> f64 {
        let warm: f64 = (1..=step.min(WARM_UP)).map(|step| self.momentum(step)).product();
        warm * f64::from(self.beta_1).powi((step - WARM_UP).max(0))
    }
}

impl UpdateRule for Nadam {
    fn kind(&self) -> &'static str {
        "Nadam"
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
        &["momentum", "velocity"]
    }

    /// Factors of momentum and gradient, and `1 - beta_2^step`.
    #[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
    fn step_numbers(&self, step: u64) -> Vec<f32> {
        let step = i32::try_from(step).unwrap_or(i32::MAX - 1).min(i32::MAX - 1);
        let (now, next, product) = (self.momentum(step), self.momentum(step + 1), self.product(step));
        let correction = 1.0 - f64::from(self.beta_2).powi(step);
        [next / (1.0 - product * next), (1.0 - now) / (1.0 - product), correction].map(|number| number as f32).into()
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
            momentum_factor: Word::Hyper(1),
            gradient_factor: Word::Hyper(2),
            correction_2: Word::Hyper(3),
            weight_decay: self.weight_decay.into(),
        }
        .into()
    }
}
