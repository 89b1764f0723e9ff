//! Adadelta.

use super::rule::optimizer;
use crate::kernels::adadelta as kernel;

optimizer! {
    /// Steps in the unit of the parameters, by means of squared gradients and squared steps. Source: Zeiler 2012, arXiv:1212.5701.
    Adadelta {
        /// Factor of the steps; 1 in the paper.
        learning_rate: f32 = 1e-3 in AtLeastZero,
        /// Decay of both means.
        rho: f32 = 0.95 in BelowOne,
        /// Added under both roots.
        epsilon: f32 = 1e-7 in AboveZero,
        /// Decoupled weight decay.
        weight_decay: f32 = 0.0 in AtLeastZero,
    }
    "Adadelta", kernel, ["accumulated_grad", "accumulated_delta_var"],
    params(rule) { rho, epsilon, weight_decay }
}
