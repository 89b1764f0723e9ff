//! Nadam: Adam with Nesterov momentum.

use super::cases::{Case, InputFill};
use super::family::family;
use super::real::Real;
use super::update::{INPUTS, apply, cases_of, real, update_params};
use super::{Call, Kernel};

update_params! {
    /// Decay of the first moment; 0.9 as a rule.
    beta_1: f32,
    /// Decay of the second moment; 0.999 as a rule.
    beta_2: f32,
    /// Added to the root of the second moment; 1e-7 as a rule.
    epsilon: f32,
    /// `u_(t+1) / (1 - U_(t+1))` for step `t`, from 1: the part of the first moment in a step.
    momentum_factor: f32,
    /// `(1 - u_t) / (1 - U_t)`: the part of the gradient.
    gradient_factor: f32,
    /// `1 - beta_2^t`.
    correction_2: f32,
}

family!("nadam", [Grid, Update]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// An update with the states `momentum` and `velocity`.
///
/// Source: Dozat 2016, as Keras 3 `Nadam` writes it.
pub static UPDATE: Kernel = kernel(
    "update",
    [INPUTS, &["parameter", "momentum", "velocity"], &[]],
    (update::<f64>, update::<f32>),
    // WGSL grants sqrt and division 2.5 units each.
    5e-6,
    cases,
);

fn update<F: Real>(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [parameter, momentum, velocity] = outputs else { return };
    let [rest_1, rest_2] = [params.beta_1, params.beta_2].map(|beta| F::of(1.0) - real(beta));
    let factors = [params.momentum_factor, params.gradient_factor];
    let [of_m, of_g] = factors.map(|factor| real::<F>(params.learning_rate) * real(factor));
    let [correction, epsilon] = [params.correction_2, params.epsilon].map(real::<F>);
    apply::<F, _>(call, parameter, [momentum, velocity], |it, [m, v]| {
        let m = (m + (it.g - m) * rest_1).normal();
        let v = (v + (it.g * it.g - v) * rest_2).normal();
        (it.w - (of_m * m + of_g * it.g) / ((v / correction).sqrt() + epsilon), [m, v])
    });
}

fn cases() -> Vec<Case> {
    cases_of(&[InputFill::Normal, |len| InputFill::Uniform(len, 0.0, 2.0)], |row| {
        Params {
            len: row.len,
            learning_rate: 0.01,
            weight_decay: row.weight_decay,
            beta_1: 0.9,
            beta_2: 0.999,
            epsilon: 1e-7,
            momentum_factor: 0.7,
            gradient_factor: 0.6,
            correction_2: 0.25,
        }
        .words()
    })
}

#[cfg(test)]
mod tests {
    use super::super::update::by_hand;
    use super::*;

    /// The moments are 1 + (3 - 1) / 2 = 2 and 7 + (9 - 7) / 2 = 8; the step is 1/4 * (1/2 * 2 + 3) / √(8 / (1/2)).
    #[test]
    fn step_by_hand() {
        let params = Params {
            len: 1,
            learning_rate: 0.25,
            weight_decay: 0.5,
            beta_1: 0.5,
            beta_2: 0.5,
            epsilon: 0.0,
            momentum_factor: 0.5,
            gradient_factor: 1.0,
            correction_2: 0.5,
        };
        let after = by_hand(&UPDATE, &params.words(), &[], [6.0, 0.5, 1.0], &[2.0, 1.0, 7.0]);
        assert_eq!(after, [[1.5, 2.0, 8.0]; 2]);
    }
}
