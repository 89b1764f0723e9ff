//! Gradient descent with momentum.

use super::rule::{is_zero, optimizer};
use crate::kernels::sgd as kernel;

optimizer! {
    /// Gradient descent with momentum. Source: Sutskever et al. 2013 for Nesterov's form.
    Sgd {
        /// Step size.
        learning_rate: f32 = 0.01 in AtLeastZero,
        /// Part of the last step that is taken again.
        momentum: f32 = 0.0 in BelowOne,
        /// Whether to use Nesterov momentum.
        nesterov: bool = false,
        /// Decoupled weight decay.
        weight_decay: f32 = 0.0 in AtLeastZero,
        /// Part of the parameter that is added to its gradient: `weight_decay` of PyTorch's `SGD`. 0 for none.
        #[serde(skip_serializing_if = "is_zero")]
        l2_decay: f32 = 0.0 in AtLeastZero,
    }
    "SGD", kernel, ["momentum"],
    params(rule) { momentum, weight_decay, l2_decay }

    fn constants(&self) -> Vec<(&'static str, f64)> {
        if self.nesterov { vec![("NESTEROV", 1.0)] } else { Vec::new() }
    }
}
