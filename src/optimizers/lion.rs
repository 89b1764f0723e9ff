//! Lion: steps of one length.

use super::rule::optimizer;
use crate::kernels::lion as kernel;

optimizer! {
    /// Steps of one length, in the direction of a mean of gradients. Source: Chen et al. 2023, arXiv:2302.06675.
    Lion {
        /// Length of a step; a third to a tenth of that of Adam.
        learning_rate: f32 = 1e-3 in AtLeastZero,
        /// Part of the old mean in the direction.
        beta_1: f32 = 0.9 in BelowOne,
        /// Decay of the mean of gradients.
        beta_2: f32 = 0.99 in BelowOne,
        /// Decoupled weight decay.
        weight_decay: f32 = 0.0 in AtLeastZero,
    }
    "Lion", kernel, ["momentum"],
    params(rule) { beta_1, beta_2, weight_decay }
}
