//! Adam, and with weight decay `AdamW`.

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
    /// `1 - beta_1^t` for step `t`, from 1.
    correction_1: f32,
    /// `1 - beta_2^t` for step `t`, from 1.
    correction_2: f32,
    /// Part of the parameter that is added to its gradient; 0 for none.
    l2_decay: f32,
}

family!("adam", [Grid, Update]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// An update with the states `momentum` and `velocity`.
///
/// Source: Kingma, Ba 2014, arXiv:1412.6980, as Keras 3 `Adam` and `AdamW` write it.
pub static UPDATE: Kernel = kernel(
    "update",
    [INPUTS, &["parameter", "momentum", "velocity"], &[]],
    (update::<f64>, update::<f32>),
    // WGSL grants sqrt and division 2.5 units each; 1 - beta_2 is exact.
    5e-6,
    cases,
);

fn update<F: Real>(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [parameter, momentum, velocity] = outputs else { return };
    let [rest_1, rest_2] = [params.beta_1, params.beta_2].map(|beta| F::of(1.0) - real(beta));
    let [rate, epsilon, l2_decay] = [params.learning_rate, params.epsilon, params.l2_decay].map(real::<F>);
    let alpha = rate * real::<F>(params.correction_2).sqrt() / real(params.correction_1);
    apply::<F, _>(call, parameter, [momentum, velocity], |it, [m, v]| {
        let g = it.with_l2(l2_decay);
        let m = (m + (g - m) * rest_1).normal();
        let v = (v + (g * g - v) * rest_2).normal();
        (it.w - alpha * m / (v.sqrt() + epsilon), [m, v])
    });
}

fn cases() -> Vec<Case> {
    cases_of(&[InputFill::Normal, |len| InputFill::Uniform(len, 0.0, 2.0)], |row| {
        let step = [3, 10, 1000, 10, 1, 10, 10][row.nth];
        Params {
            len: row.len,
            learning_rate: 0.01,
            weight_decay: row.weight_decay,
            beta_1: 0.9,
            beta_2: 0.999,
            epsilon: 1e-7,
            correction_1: 1.0 - 0.9f32.powi(step),
            correction_2: 1.0 - 0.999f32.powi(step),
            l2_decay: 2.0 * row.weight_decay,
        }
        .words()
    })
}

#[cfg(test)]
mod tests {
    use super::super::update::by_hand;
    use super::*;

    const PARAMS: Params = Params {
        len: 1,
        learning_rate: 0.125,
        weight_decay: 0.0,
        beta_1: 0.9,
        beta_2: 0.999,
        epsilon: 1e-7,
        correction_1: 1.0,
        correction_2: 1.0,
        l2_decay: 0.0,
    };

    /// Moments of a weight that has no gradient any more end at 0, where they cost no time.
    #[test]
    fn moments_without_gradient_become_zero() {
        let least = f32::MIN_POSITIVE;
        let [_, fast] = by_hand(&UPDATE, &PARAMS.words(), &[], [0.0, 1.0, 1.0], &[16.0, least, least]);
        assert_eq!(fast, [16.0, 0.0, 0.0]);
    }

    /// The first step moves each parameter by the learning rate against its gradient, whatever its size.
    #[test]
    fn first_step_is_the_sign() {
        let params = Params { weight_decay: 0.5, correction_1: 1.0 - 0.9, correction_2: 1.0 - 0.999, ..PARAMS };
        // Decay takes 16 * 0.5 * 0.125 = 1.
        for (gradient, expected) in [(100.0, 14.875), (-0.01, 15.125), (3.0, 14.875), (0.0, 15.0)] {
            for after in by_hand(&UPDATE, &params.words(), &[], [gradient, 1.0, 1.0], &[16.0, 0.0, 0.0]) {
                assert!((after[0] - expected).abs() < 1e-4, "{after:?} {expected}");
            }
        }
    }
}
