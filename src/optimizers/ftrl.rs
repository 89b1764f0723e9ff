//! Ftrl.

use super::rule::optimizer;
use crate::kernels::ftrl as kernel;

optimizer! {
    /// "Follow the regularized leader", for sparse features: L1 regularization keeps weights at 0. The first step forgets
    /// most of the initial weights, as in Keras. Source: McMahan et al. 2013, "Ad click prediction: a view from the trenches".
    Ftrl {
        /// Step size.
        learning_rate: f32 = 1e-3 in AtLeastZero,
        /// Power by which the step falls with the sum of squared gradients; 0 for a fixed step.
        learning_rate_power: f32 = -0.5 in AtMostZero,
        /// Sum of squared gradients before the first step.
        initial_accumulator_value: f32 = 0.1 in AtLeastZero,
        /// L1 regularization, which makes weights 0.
        l1_regularization_strength: f32 = 0.0 in AtLeastZero,
        /// L2 regularization.
        l2_regularization_strength: f32 = 0.0 in AtLeastZero,
        /// L2 regularization as if the loss had it.
        l2_shrinkage_regularization_strength: f32 = 0.0 in AtLeastZero,
        /// Added to the root of the sum of squared gradients.
        beta: f32 = 0.0 in AtLeastZero,
        /// Decoupled weight decay.
        weight_decay: f32 = 0.0 in AtLeastZero,
    }
    "Ftrl", kernel, ["accumulator", "linear"],
    params(rule) {
        learning_rate_power,
        l1: rule.l1_regularization_strength,
        l2: rule.l2_regularization_strength,
        l2_shrinkage: rule.l2_shrinkage_regularization_strength,
        beta,
        weight_decay,
    }

    fn initial_state(&self, name: &str) -> f32 {
        if name == "accumulator" { self.initial_accumulator_value } else { 0.0 }
    }
}
