//! Adadelta: steps in the unit of the parameters.

use super::cases::{Case, InputFill};
use super::family::family;
use super::real::Real;
use super::update::{INPUTS, UpdateCase, apply, cases_of, real, update_params};
use super::{Call, Kernel};

update_params! {
    /// Decay of the means; 0.95 as a rule.
    rho: f32,
    /// Added to both means, under the roots; 1e-7 as a rule.
    epsilon: f32,
}

family!("adadelta", [Grid, Update]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// An update with the states `accumulated_grad` and `accumulated_delta_var`.
///
/// Source: Zeiler 2012, arXiv:1212.5701, as Keras 3 `Adadelta` writes it.
pub static UPDATE: Kernel = kernel(
    "update",
    [INPUTS, &["parameter", "accumulated_grad", "accumulated_delta_var"], &[]],
    (update::<f64>, update::<f32>),
    // WGSL grants both roots and the division 2.5 units each.
    5e-6,
    cases,
);

fn update<F: Real>(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [parameter, accumulated_grad, accumulated_delta_var] = outputs else { return };
    let [rate, rho, epsilon] = [params.learning_rate, params.rho, params.epsilon].map(real::<F>);
    let rest = F::of(1.0) - rho;
    apply::<F, _>(call, parameter, [accumulated_grad, accumulated_delta_var], |it, [square, change]| {
        let square = rho * square + rest * (it.g * it.g);
        let delta = it.g * (change + epsilon).sqrt() / (square + epsilon).sqrt();
        (it.w - rate * delta, [square, rho * change + rest * (delta * delta)])
    });
}

fn cases() -> Vec<Case> {
    let uniform = |len| InputFill::Uniform(len, 0.5, 2.0);
    cases_of(&[uniform, uniform], |row| {
        let UpdateCase { len, weight_decay, .. } = row;
        Params { len, learning_rate: 0.01, weight_decay, rho: 0.875, epsilon: 1e-7 }.words()
    })
}

#[cfg(test)]
mod tests {
    use super::super::update::by_hand;
    use super::*;

    /// The squares are 1/2 * 4 + 1/2 * 8² = 34, and 34 + 2 has the root 6; the step is 8 * √(7 + 2) / 6 = 4.
    #[test]
    fn step_by_hand() {
        let params = Params { len: 1, learning_rate: 0.125, weight_decay: 0.0, rho: 0.5, epsilon: 2.0 };
        let after = by_hand(&UPDATE, &params.words(), &[], [16.0, 0.5, 1.0], &[2.0, 4.0, 7.0]);
        assert_eq!(after, [[1.5, 34.0, 11.5]; 2]);
    }
}
