//! Adamax: Adam by the largest of the decaying sizes of gradients.

use super::cases::{Case, InputFill};
use super::family::family;
use super::real::Real;
use super::update::{INPUTS, apply, cases_of, real, update_params};
use super::{Call, Kernel};

update_params! {
    /// Decay of the mean; 0.9 as a rule.
    beta_1: f32,
    /// Decay of the largest size; 0.999 as a rule.
    beta_2: f32,
    /// Added to the largest size; 1e-7 as a rule.
    epsilon: f32,
    /// `1 - beta_1^t` for step `t`, from 1.
    correction_1: f32,
}

family!("adamax", [Grid, Update]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// An update with the states `momentum` and `norm`.
///
/// Source: Kingma, Ba 2014, arXiv:1412.6980, section 7.1, as in Keras 3.
pub static UPDATE: Kernel = kernel(
    "update",
    [INPUTS, &["parameter", "momentum", "norm"], &[]],
    (update::<f64>, update::<f32>),
    // WGSL grants the division 2.5 units.
    5e-6,
    cases,
);

fn update<F: Real>(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [parameter, momentum, norm] = outputs else { return };
    let [beta_1, beta_2, epsilon] = [params.beta_1, params.beta_2, params.epsilon].map(real::<F>);
    let (rest, rate) = (F::of(1.0) - beta_1, real::<F>(params.learning_rate) / real(params.correction_1));
    apply::<F, _>(call, parameter, [momentum, norm], |it, [m, norm]| {
        let m = (m + (it.g - m) * rest).normal();
        let norm = (beta_2 * norm).max(it.g.abs()).normal();
        (it.w - rate * m / (norm + epsilon), [m, norm])
    });
}

fn cases() -> Vec<Case> {
    cases_of(&[InputFill::Normal, |len| InputFill::Uniform(len, 0.0, 2.0)], |row| {
        Params {
            len: row.len,
            learning_rate: 0.01,
            weight_decay: row.weight_decay,
            beta_1: 0.9,
            beta_2: 0.75,
            epsilon: 1e-7,
            correction_1: 0.25,
        }
        .words()
    })
}

#[cfg(test)]
mod tests {
    use super::super::update::by_hand;
    use super::*;

    /// The mean is 1 - (3 + 1) / 2 = -1, the size the larger of 1/2 * 8 and 3; decay takes 1/2, and the step gives it back.
    #[test]
    fn step_by_hand() {
        let params = Params {
            len: 1,
            learning_rate: 0.5,
            weight_decay: 0.5,
            beta_1: 0.5,
            beta_2: 0.5,
            epsilon: 0.0,
            correction_1: 0.25,
        };
        let after = by_hand(&UPDATE, &params.words(), &[], [-6.0, 0.5, 1.0], &[2.0, 1.0, 8.0]);
        assert_eq!(after, [[2.0, -1.0, 4.0]; 2]);
    }
}
