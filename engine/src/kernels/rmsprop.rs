//! `RMSprop`, plain or centered, with momentum.

use super::cases::{Case, InputFill};
use super::family::family;
use super::real::Real;
use super::update::{INPUTS, UpdatedParameter, apply, cases_of, real, update_params};
use super::{Call, Kernel};

update_params! {
    /// Decay of the means; 0.9 as a rule.
    rho: f32,
    /// Momentum; 0 for none.
    momentum: f32,
    /// Added to the variance, under the root; 1e-7 as a rule.
    epsilon: f32,
    /// Added to the root; 0 for none.
    outer_epsilon: f32,
    /// Part of the parameter that is added to its gradient; 0 for none.
    l2_decay: f32,
}

family!("rmsprop", [Grid, Update]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// An update with the states `mean_square`, `momentum_buffer`, `mean_gradient`.
///
/// The constant `CENTERED` is 0 or 1. `momentum_buffer` is only written with momentum, `mean_gradient` only if centered:
/// what is bound there otherwise must still be of one element at least and no part of another binding.
/// Source: Keras 3 `RMSprop`; the centered variance is kept from going below 0.
pub static UPDATE: Kernel = kernel(
    "update",
    [INPUTS, &["parameter", "mean_square", "momentum_buffer", "mean_gradient"], &["CENTERED"]],
    (update::<f64>, update::<f32>),
    // WGSL grants sqrt and division 2.5 units each; the centered variance loses a digit to cancellation.
    1e-5,
    cases,
);

fn update<F: Real>(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [parameter, square, pushed, mean] = outputs else { return };
    let [rate, rho, momentum] = [params.learning_rate, params.rho, params.momentum].map(real::<F>);
    let [epsilon, outer_epsilon, l2_decay] = [params.epsilon, params.outer_epsilon, params.l2_decay].map(real::<F>);
    let (rest, zero) = (F::of(1.0) - rho, F::of(0.0));
    let slope = |it: UpdatedParameter<F>| it.with_l2(l2_decay);
    let follow = |mean: F, value: F| (rho * mean + rest * value).normal();
    let change =
        |g: F, square: F, mean: F| rate * g / (((square - mean * mean).max(zero) + epsilon).sqrt() + outer_epsilon);
    let push = |pushed: F, change: F| (momentum * pushed + change).normal();
    // A loop for each form, so that each touches only the state it needs.
    match (call.constant("CENTERED", 0.0) > 0.5, params.momentum > 0.0) {
        (false, false) => apply(call, parameter, [square], |it, [square]| {
            let square = follow(square, slope(it) * slope(it));
            (it.w - change(slope(it), square, zero), [square])
        }),
        (false, true) => apply(call, parameter, [square, pushed], |it, [square, pushed]| {
            let square = follow(square, slope(it) * slope(it));
            let pushed = push(pushed, change(slope(it), square, zero));
            (it.w - pushed, [square, pushed])
        }),
        (true, false) => apply(call, parameter, [square, mean], |it, [square, mean]| {
            let (square, mean) = (follow(square, slope(it) * slope(it)), follow(mean, slope(it)));
            (it.w - change(slope(it), square, mean), [square, mean])
        }),
        (true, true) => apply(call, parameter, [square, pushed, mean], |it, [square, pushed, mean]| {
            let (square, mean) = (follow(square, slope(it) * slope(it)), follow(mean, slope(it)));
            let pushed = push(pushed, change(slope(it), square, mean));
            (it.w - pushed, [square, pushed, mean])
        }),
    }
}

fn cases() -> Vec<Case> {
    let (middle, above_one) = (|len| InputFill::Uniform(len, -0.5, 0.5), |len| InputFill::Uniform(len, 1.0, 2.0));
    let cases = cases_of(&[above_one, InputFill::Normal, middle], |row| {
        let momentum = [0.0, 0.9, 0.0, 0.9, 0.9, 0.9, 0.0][row.nth];
        Params {
            len: row.len,
            learning_rate: 0.01,
            weight_decay: row.weight_decay,
            rho: 0.875,
            momentum,
            epsilon: 1e-7,
            outer_epsilon: momentum * 0.01,
            l2_decay: momentum * 0.2,
        }
        .words()
    });
    let centered = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0];
    cases.into_iter().zip(centered).map(|(case, centered)| case.constant("CENTERED", centered)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::update::by_hand;
    use super::*;

    /// g = 2, rho = 1/2, lr = 1/4: square 1/2 * 4 + 1/2 * 4 = 4, so the plain step is 1/4 * 2 / 2 = 1/4. Centered
    /// with a mean of 1/2 * (2√3 - 2) + 1/2 * 2 = √3, the variance is 1 and the step 1/2; momentum adds 1/2 * 3.
    #[test]
    fn steps_by_hand() {
        for (momentum, centered, expected) in [(0.0, 0.0, 9.75), (0.0, 1.0, 9.5), (0.5, 0.0, 8.25), (0.5, 1.0, 8.0)] {
            let params = Params {
                len: 1,
                learning_rate: 0.25,
                weight_decay: 0.0,
                rho: 0.5,
                momentum,
                epsilon: 0.0,
                outer_epsilon: 0.0,
                l2_decay: 0.0,
            };
            let before = [10.0, 4.0, 3.0, 2.0 * 3f32.sqrt() - 2.0];
            for after in by_hand(&UPDATE, &params.words(), &[("CENTERED", centered)], [4.0, 0.5, 1.0], &before) {
                assert_eq!(after[1], 4.0);
                assert!((after[0] - expected).abs() < 1e-5, "{after:?} {expected}");
            }
        }
    }
}
