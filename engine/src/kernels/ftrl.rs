//! Ftrl: "follow the regularized leader", which keeps weights at 0 by L1 regularization.

use super::cases::{Case, InputFill};
use super::family::family;
use super::real::Real;
use super::update::{INPUTS, UpdateCase, apply, cases_of, real, update_params};
use super::{Call, Kernel};

update_params! {
    /// Power by which the rate falls with the sum of squares, at most 0; -0.5 as a rule.
    learning_rate_power: f32,
    /// L1 regularization, which makes weights 0.
    l1: f32,
    /// L2 regularization of the formula.
    l2: f32,
    /// L2 regularization of the gradient.
    l2_shrinkage: f32,
    /// Added to the power of the sum; 0 as a rule.
    beta: f32,
}

family!("ftrl", [Grid, Update]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// An update with the states `accumulator` and `linear`.
///
/// Source: McMahan et al. 2013, "Ad click prediction", algorithm 1, as Keras 3 `Ftrl` writes it.
pub static UPDATE: Kernel = kernel(
    "update",
    [INPUTS, &["parameter", "accumulator", "linear"], &[]],
    (update::<f64>, update::<f32>),
    // The difference of the powers is divided by the rate, 1/4 in the cases, and WGSL's `pow` is within some 2e-6.
    1e-5,
    cases,
);

fn update<F: Real>(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [parameter, accumulator, linear] = outputs else { return };
    if params.learning_rate == 0.0 {
        return;
    }
    let Params { learning_rate_power, l1, l2, l2_shrinkage, beta, .. } = params;
    let [rate, two_l2, two_shrinkage] = [params.learning_rate, 2.0 * l2, 2.0 * l2_shrinkage].map(real::<F>);
    let [exponent, beta] = [-learning_rate_power, beta].map(real::<F>);
    let power = |n: F| if learning_rate_power == -0.5 { n.sqrt() } else { n.powf(exponent) };
    apply::<F, _>(call, parameter, [accumulator, linear], |it, [old_n, old_z]| {
        let n = old_n + it.g * it.g;
        let power_n = power(n);
        let z = old_z + it.g + two_shrinkage * it.w - (power_n - power(old_n)) / rate * it.w;
        let divisor = (power_n + beta) / rate + two_l2;
        let new_w = if divisor == F::of(0.0) { it.w } else { (z.clamp((-l1).into(), l1.into()) - z) / divisor };
        (new_w, [n, z])
    });
}

fn cases() -> Vec<Case> {
    let squares = |len| InputFill::Uniform(len, 0.1, 2.0);
    cases_of(&[squares, InputFill::Normal], |row| {
        let UpdateCase { nth, len, weight_decay, .. } = row;
        // Case 4 is a first step with states of 0: without beta and l2 a gradient of 0 leaves the parameter.
        let [learning_rate_power, l1, l2, l2_shrinkage, beta] = match nth % 4 {
            0 => [-0.5, 0.0, 0.0, 0.0, 0.0],
            1 => [-0.5, 0.5, 0.25, 0.125, 1.0],
            2 => [-0.75, 0.5, 0.0, 0.125, 0.0],
            _ => [0.0, 0.0, 0.25, 0.0, 0.5],
        };
        Params { len, learning_rate: 0.25, weight_decay, learning_rate_power, l1, l2, l2_shrinkage, beta }.words()
    })
}

#[cfg(test)]
mod tests {
    use super::super::update::by_hand;
    use super::*;

    const PARAMS: Params = Params {
        len: 1,
        learning_rate: 0.5,
        weight_decay: 0.0,
        learning_rate_power: -0.5,
        l1: 1.0,
        l2: 0.5,
        l2_shrinkage: 0.25,
        beta: 1.5,
    };

    /// The sum is 9 + 4² = 25; linear is -13 + 4 + 1/2 * 2 - (5 - 3) / (1/2) * 2 = -16, of which l1 takes 1, and 15 is
    /// divided by (5 + 3/2) / (1/2) + 2 * 1/2 = 14.
    #[test]
    fn step_by_hand() {
        let after = by_hand(&UPDATE, &PARAMS.words(), &[], [8.0, 0.5, 1.0], &[2.0, 9.0, -13.0]);
        assert_eq!(after, [[15.0 / 14.0, 25.0, -16.0]; 2]);
        let zeroed = by_hand(&UPDATE, &PARAMS.words(), &[], [8.0, 0.5, 1.0], &[2.0, 9.0, 4.0]);
        assert_eq!(zeroed, [[0.0, 25.0, 1.0]; 2]);
    }

    /// Keras divides by 0: a rate of 0 changes nothing, and a parameter that no gradient has reached stays.
    #[test]
    fn nothing_is_divided_by_0() {
        let still = Params { learning_rate: 0.0, ..PARAMS };
        let after = by_hand(&UPDATE, &still.words(), &[], [8.0, 0.5, 1.0], &[2.0, 9.0, -13.0]);
        assert_eq!(after, [[2.0, 9.0, -13.0]; 2]);
        for learning_rate_power in [-0.5, -0.75] {
            let unreached = Params { learning_rate_power, l2: 0.0, beta: 0.0, ..PARAMS };
            let after = by_hand(&UPDATE, &unreached.words(), &[], [0.0, 0.5, 1.0], &[2.0, 0.0, 0.0]);
            assert_eq!(after, [[2.0, 0.0, 1.0]; 2]);
        }
    }
}
