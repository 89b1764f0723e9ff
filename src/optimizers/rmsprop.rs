//! `RMSprop`, plain and centered.

use super::rule::{is_zero, optimizer};
use crate::kernels::rmsprop as kernel;

optimizer! {
    /// Steps divided by the root of the mean square of gradients.
    ///
    /// Source: Tieleman & Hinton 2012, lecture 6e; `centered` after Graves 2013, arXiv:1308.0850.
    RmsProp {
        /// Step size.
        learning_rate: f32 = 1e-3 in AtLeastZero,
        /// Decay of the mean of squared gradients.
        rho: f32 = 0.9 in BelowOne,
        /// Part of the last step that is taken again.
        momentum: f32 = 0.0 in BelowOne,
        /// Added under the root, or to it.
        epsilon: f32 = 1e-7 in AboveZero,
        /// Whether to divide by the variance instead of the mean square.
        centered: bool = false,
        /// Decoupled weight decay.
        weight_decay: f32 = 0.0 in AtLeastZero,
        /// Whether `epsilon` is added to the root, as in PyTorch, instead of under it, as in Keras.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        outer_epsilon: bool = false,
        /// Part of the parameter that is added to its gradient: `weight_decay` of PyTorch's `RMSprop`. 0 for none.
        #[serde(skip_serializing_if = "is_zero")]
        l2_decay: f32 = 0.0 in AtLeastZero,
    }
    "RMSprop", kernel, ["velocity", "momentum", "average_gradient"],
    params(rule) {
        rho, momentum, weight_decay, l2_decay,
        epsilon: if rule.outer_epsilon { 0.0 } else { rule.epsilon },
        outer_epsilon: if rule.outer_epsilon { rule.epsilon } else { 0.0 }
    }

    fn constants(&self) -> Vec<(&'static str, f64)> {
        if self.centered { vec![("CENTERED", 1.0)] } else { Vec::new() }
    }
}
