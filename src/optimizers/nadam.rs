//! Nadam: Adam with Nesterov momentum.

use super::rule::{correction, optimizer};
use crate::kernels::nadam as kernel;
use crate::kernels::rounding::single;
use crate::plan::Word;

optimizer! {
    /// Adam with Nesterov momentum. Source: Dozat 2016, "Incorporating Nesterov momentum into Adam".
    Nadam {
        /// Step size.
        learning_rate: f32 = 1e-3 in AtLeastZero,
        /// Decay of the mean of gradients.
        beta_1: f32 = 0.9 in BelowOne,
        /// Decay of the mean of squared gradients.
        beta_2: f32 = 0.999 in BelowOne,
        /// Added to the root of the mean square.
        epsilon: f32 = 1e-7 in AboveZero,
        /// Decoupled weight decay.
        weight_decay: f32 = 0.0 in AtLeastZero,
    }
    "Nadam", kernel, ["momentum", "velocity"],
    params(rule) {
        beta_1, beta_2, epsilon, weight_decay,
        momentum_factor: Word::Hyper(1), gradient_factor: Word::Hyper(2), correction_2: Word::Hyper(3)
    }

    /// Factors of momentum and gradient, and `1 - beta_2^step`.
    fn step_numbers(&self, step: u64) -> Vec<f32> {
        let correction = correction(self.beta_2, step);
        let step = i32::try_from(step).unwrap_or(i32::MAX - 1).min(i32::MAX - 1);
        let (now, next, product) = (self.momentum(step), self.momentum(step + 1), self.product(step));
        [next / (1.0 - product * next), (1.0 - now) / (1.0 - product), correction].map(single).into()
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
