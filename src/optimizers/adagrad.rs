//! Adagrad.

use super::rule::optimizer;
use crate::kernels::adagrad as kernel;

optimizer! {
    /// Steps divided by the root of the sum of all squared gradients. Source: Duchi, Hazan, Singer 2011, JMLR 12.
    Adagrad {
        /// Step size.
        learning_rate: f32 = 1e-3 in AtLeastZero,
        /// Sum of squared gradients before the first step.
        initial_accumulator_value: f32 = 0.1 in AtLeastZero,
        /// Added under the root.
        epsilon: f32 = 1e-7 in AboveZero,
        /// Decoupled weight decay.
        weight_decay: f32 = 0.0 in AtLeastZero,
    }
    "Adagrad", kernel, ["accumulator"],
    params(rule) { epsilon, weight_decay }

    fn initial_state(&self, _name: &str) -> f32 {
        self.initial_accumulator_value
    }
}
