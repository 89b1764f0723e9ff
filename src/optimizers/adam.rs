//! Adam, and with decoupled weight decay `AdamW`.

use super::rule::{correction, is_zero, optimizer};
use crate::kernels::adam as kernel;
use crate::kernels::rounding::single;
use crate::plan::Word;

use super::tensor::WholeTensor;

optimizer! {
    /// Steps by moments of the gradients. Source: Kingma & Ba 2014, arXiv:1412.6980.
    Adam {
        /// Step size.
        learning_rate: f32 = 1e-3 in AtLeastZero,
        /// Decay of the mean of gradients.
        beta_1: f32 = 0.9 in BelowOne,
        /// Decay of the mean of squared gradients.
        beta_2: f32 = 0.999 in BelowOne,
        /// Added to the root of the mean square.
        epsilon: f32 = 1e-7 in AboveZero,
        /// Whether `epsilon` is added to the root after its bias is corrected, as in the paper and PyTorch, instead of before, as in Keras.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        outer_epsilon: bool = false,
        /// Part of the parameter that is added to its gradient: `weight_decay` of PyTorch's `Adam`. 0 for none.
        #[serde(skip_serializing_if = "is_zero")]
        l2_decay: f32 = 0.0 in AtLeastZero,
        /// Whether to divide by the largest mean square so far, as `amsgrad` of Keras and PyTorch. The host then updates, also for one adapter.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        amsgrad: bool = false,
    }
    "Adam", kernel, ["momentum", "velocity"],
    on_host(amsgrad) ["momentum", "velocity", "velocity_hat"],
    params(rule) {
        beta_1, beta_2, weight_decay: 0.0, l2_decay,
        correction_1: Word::Hyper(1), correction_2: Word::Hyper(2), epsilon: Word::Hyper(3)
    }

    fn step_numbers(&self, step: u64) -> Vec<f32> {
        numbers([self.beta_1, self.beta_2], (self.epsilon, self.outer_epsilon), step)
    }

    fn update_tensor(&self, tensor: WholeTensor<'_>) {
        update_by_largest([self.beta_1, self.beta_2], [0.0, self.l2_decay], tensor);
    }
}

optimizer! {
    /// Adam with decoupled weight decay. Source: Loshchilov & Hutter 2017, arXiv:1711.05101.
    AdamW {
        /// Step size.
        learning_rate: f32 = 1e-3 in AtLeastZero,
        /// Decay of the mean of gradients.
        beta_1: f32 = 0.9 in BelowOne,
        /// Decay of the mean of squared gradients.
        beta_2: f32 = 0.999 in BelowOne,
        /// Added to the root of the mean square.
        epsilon: f32 = 1e-7 in AboveZero,
        /// Decoupled weight decay.
        weight_decay: f32 = 4e-3 in AtLeastZero,
        /// Whether `epsilon` is added to the root after its bias is corrected, as in the paper and PyTorch, instead of before, as in Keras.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        outer_epsilon: bool = false,
        /// Whether to divide by the largest mean square so far, as `amsgrad` of Keras and PyTorch. The host then updates, also for one adapter.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        amsgrad: bool = false,
    }
    "AdamW", kernel, ["momentum", "velocity"],
    on_host(amsgrad) ["momentum", "velocity", "velocity_hat"],
    params(rule) {
        beta_1, beta_2, weight_decay, l2_decay: 0.0,
        correction_1: Word::Hyper(1), correction_2: Word::Hyper(2), epsilon: Word::Hyper(3)
    }

    fn step_numbers(&self, step: u64) -> Vec<f32> {
        numbers([self.beta_1, self.beta_2], (self.epsilon, self.outer_epsilon), step)
    }

    fn update_tensor(&self, tensor: WholeTensor<'_>) {
        update_by_largest([self.beta_1, self.beta_2], [self.weight_decay, 0.0], tensor);
    }
}

/// `1 - beta^step` of both, and the epsilon of the step.
fn numbers(betas: [f32; 2], (epsilon, is_outer): (f32, bool), step: u64) -> Vec<f32> {
    let [first, second] = betas.map(|beta| correction(beta, step));
    // The kernel corrects the quotient as a whole, and so an epsilon that belongs to the corrected root has to be smaller.
    let part = if is_outer { second.sqrt() } else { 1.0 };
    [first, second, f64::from(epsilon) * part].map(single).into()
}

/// The kernel's formula with the largest `velocity` so far, of each element. Source: Reddi, Kale, Kumar 2018, arXiv:1904.09237, without the
/// correction of biases in the largest, as in Keras and PyTorch.
fn update_by_largest([beta_1, beta_2]: [f32; 2], [weight_decay, l2_decay]: [f32; 2], tensor: WholeTensor<'_>) {
    let WholeTensor { gradient, parameter, states, numbers, .. } = tensor;
    let &[rate, correction_1, correction_2, epsilon] = numbers else { return };
    let Ok([momentum, velocity, largest]) = <[&mut [f32]; 3]>::try_from(states) else { return };
    let (alpha, decay) = (rate * correction_2.sqrt() / correction_1, weight_decay * rate);
    let states = momentum.iter_mut().zip(velocity).zip(largest);
    for ((w, gradient), ((m, v), largest)) in parameter.iter_mut().zip(gradient).zip(states) {
        let g = gradient + l2_decay * *w;
        *m += (g - *m) * (1.0 - beta_1);
        *v += (g * g - *v) * (1.0 - beta_2);
        *largest = largest.max(*v);
        *w -= *w * decay + alpha * *m / (largest.sqrt() + epsilon);
    }
}
