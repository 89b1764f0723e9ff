//! Lion: steps of one length.

use super::cases::{Case, InputFill};
use super::family::family;
use super::real::Real;
use super::update::{INPUTS, UpdateCase, apply, cases_of, real, update_params};
use super::{Call, Kernel};

update_params! {
    /// Part of the old mean in the direction; 0.9 as a rule.
    beta_1: f32,
    /// Decay of the mean; 0.99 as a rule.
    beta_2: f32,
}

family!("lion", [Grid, Update]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// An update with the state `momentum`.
///
/// Source: Chen et al. 2023, arXiv:2302.06675, as Keras 3 `Lion` writes it.
pub static UPDATE: Kernel = kernel(
    "update",
    [INPUTS, &["parameter", "momentum"], &[]],
    (update::<f64>, update::<f32>),
    // Half a dozen roundings; directions that are 0 but for rounding are in no case.
    2e-6,
    cases,
);

fn update<F: Real>(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [parameter, momentum] = outputs else { return };
    let [rate, beta_1, beta_2] = [params.learning_rate, params.beta_1, params.beta_2].map(real::<F>);
    let (rest_1, rest_2, zero) = (F::of(1.0) - beta_1, F::of(1.0) - beta_2, F::of(0.0));
    apply::<F, _>(call, parameter, [momentum], |it, [m]| {
        let direction = beta_1 * m + rest_1 * it.g;
        let length = if direction > zero {
            rate
        } else if direction < zero {
            -rate
        } else {
            zero
        };
        (it.w - length, [beta_2 * m + rest_2 * it.g])
    });
}

fn cases() -> Vec<Case> {
    cases_of(&[InputFill::Normal], |row| {
        let UpdateCase { len, weight_decay, .. } = row;
        Params { len, learning_rate: 0.01, weight_decay, beta_1: 0.9, beta_2: 0.99 }.words()
    })
}

#[cfg(test)]
mod tests {
    use super::super::update::by_hand;
    use super::*;

    /// w = 2, less 1/2 * 1/4 of itself; 3/4 * 4 - 1/4 * 4 = 2 is above 0; the mean is 1/2 * 4 - 1/2 * 4.
    #[test]
    fn step_by_hand() {
        let params = Params { len: 1, learning_rate: 0.25, weight_decay: 0.5, beta_1: 0.75, beta_2: 0.5 };
        let after = by_hand(&UPDATE, &params.words(), &[], [-8.0, 0.5, 1.0], &[2.0, 4.0]);
        assert_eq!(after, [[1.5, 0.0]; 2]);
    }
}
