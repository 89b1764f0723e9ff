//! Adagrad: steps divided by the root of the sum of all squared gradients.

use super::cases::{Case, InputFill};
use super::family::family;
use super::real::Real;
use super::update::{INPUTS, apply, cases_of, real, update_params};
use super::{Call, Kernel};

update_params! {
    /// Added to the sum, under the root; 1e-7 as a rule.
    epsilon: f32,
}

family!("adagrad", [Grid, Update]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// An update with the state `accumulator`.
///
/// Source: Duchi, Hazan, Singer 2011, JMLR 12, as Keras 3 `Adagrad` writes it.
pub static UPDATE: Kernel = kernel(
    "update",
    [INPUTS, &["parameter", "accumulator"], &[]],
    (update::<f64>, update::<f32>),
    // WGSL grants sqrt and division 2.5 units each.
    5e-6,
    cases,
);

fn update<F: Real>(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [parameter, accumulator] = outputs else { return };
    let [rate, epsilon] = [params.learning_rate, params.epsilon].map(real::<F>);
    apply::<F, _>(call, parameter, [accumulator], |it, [sum]| {
        let sum = sum + it.g * it.g;
        (it.w - rate * it.g / (sum + epsilon).sqrt(), [sum])
    });
}

fn cases() -> Vec<Case> {
    cases_of(&[|len| InputFill::Uniform(len, 0.1, 2.0)], |row| {
        Params { len: row.len, learning_rate: 0.01, weight_decay: row.weight_decay, epsilon: 1e-7 }.words()
    })
}

#[cfg(test)]
mod tests {
    use super::super::update::by_hand;
    use super::*;

    /// The sum is 3 + 2² = 7, and the root of 7 + 2 is 3.
    #[test]
    fn step_by_hand() {
        let params = Params { len: 1, learning_rate: 0.75, weight_decay: 0.0, epsilon: 2.0 };
        let after = by_hand(&UPDATE, &params.words(), &[], [4.0, 0.5, 1.0], &[2.0, 3.0]);
        assert_eq!(after, [[1.5, 7.0]; 2]);
    }
}
