//! Adamax.

use super::rule::{correction, optimizer};
use crate::kernels::adamax as kernel;
use crate::kernels::rounding::single;
use crate::plan::Word;

optimizer! {
    /// Adam by the largest of the decaying sizes of gradients. Source: Kingma & Ba 2014, arXiv:1412.6980, section 7.1.
    Adamax {
        /// Step size.
        learning_rate: f32 = 1e-3 in AtLeastZero,
        /// Decay of the mean of gradients.
        beta_1: f32 = 0.9 in BelowOne,
        /// Decay of the largest size.
        beta_2: f32 = 0.999 in BelowOne,
        /// Added to the largest size.
        epsilon: f32 = 1e-7 in AboveZero,
        /// Decoupled weight decay.
        weight_decay: f32 = 0.0 in AtLeastZero,
    }
    "Adamax", kernel, ["momentum", "norm"],
    params(rule) { beta_1, beta_2, epsilon, correction_1: Word::Hyper(1), weight_decay }

    fn step_numbers(&self, step: u64) -> Vec<f32> {
        vec![single(correction(self.beta_1, step))]
    }
}
