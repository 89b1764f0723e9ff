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
        /// Speed at which the momentum warms up: `momentum_decay` of PyTorch's `NAdam`, which is 1 in Keras.
        #[serde(skip_serializing_if = "is_one")]
        momentum_decay: f32 = 1.0 in AboveZero,
    }
    "Nadam", kernel, ["momentum", "velocity"],
    params(rule) {
        beta_1, beta_2, epsilon, weight_decay,
        momentum_factor: Word::Hyper(1), gradient_factor: Word::Hyper(2), correction_2: Word::Hyper(3)
    }

    /// Factors of momentum and gradient, and `1 - beta_2^step`.
    fn step_numbers(&self, step: u64) -> Vec<f32> {
        let correction = correction(self.beta_2, step);
        let (now, next, product) = (self.momentum(step), self.momentum(step + 1), self.product(step));
        [next / (1.0 - product * next), (1.0 - now) / (1.0 - product), correction].map(single).into()
    }
}

/// Whether the setting is that of Keras, which files leave out.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(value: &f32) -> bool {
    *value == 1.0
}

/// Terms of a sum that halves from one to the next: more change nothing in 64 bits.
const TERMS: i32 = 60;

impl Nadam {
    /// Part of the momentum's warm-up that is left after a step: `0.96^momentum_decay`.
    fn left(&self) -> f64 {
        0.96_f64.powf(f64::from(self.momentum_decay))
    }

    /// `u_t`, the momentum of step `t`.
    fn momentum(&self, step: u64) -> f64 {
        f64::from(self.beta_1) * (1.0 - 0.5 * power(self.left(), step))
    }

    /// The product of the momentums of the steps from 1 to `step`.
    ///
    /// With `a` for what is left, its logarithm is `step ln(beta_1) + Σ_i ln(1 - a^i / 2)`. The second sum is that of the series of the
    /// logarithms, added over the steps first: `-Σ_k a^k (1 - a^(k step)) / (1 - a^k) / (k 2^k)`.
    fn product(&self, step: u64) -> f64 {
        let left = self.left();
        let terms = (1..=TERMS).map(|k| {
            let part = left.powi(k);
            part * (1.0 - power(part, step)) / (1.0 - part) * 0.5_f64.powi(k) / f64::from(k)
        });
        power(f64::from(self.beta_1), step) * (-terms.sum::<f64>()).exp()
    }
}

fn power(base: f64, step: u64) -> f64 {
    base.powi(i32::try_from(step).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product of the closed form is that of the factors, also where the warm-up is as slow as PyTorch's.
    #[test]
    fn products_are_those_of_the_momentums() {
        for momentum_decay in [1.0, 0.004, 0.1] {
            let rule = Nadam { momentum_decay, beta_1: 0.999, ..Nadam::default() };
            let mut product = 1.0;
            for step in 1..3000 {
                product *= rule.momentum(step);
                let found = rule.product(step);
                // Beside 1, from which it is subtracted.
                assert!((found - product).abs() < 1e-12, "{momentum_decay} {step}: {found} {product}");
            }
        }
    }
}
