//! Stochastic gradient descent with momentum.

use super::cases::{Case, InputFill};
use super::family::family;
use super::real::Real;
use super::update::{INPUTS, apply, cases_of, real, update_params};
use super::{Call, Kernel};

update_params! {
    /// Momentum; 0 for none.
    momentum: f32,
    /// Part of the parameter that is added to its gradient; 0 for none.
    l2_decay: f32,
}

family!("sgd", [Grid, Update]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// An update with the state `velocity`, which is bound and written without momentum, too.
///
/// The constant `NESTEROV` is 0 or 1. Source: Keras 3 `SGD`.
pub static UPDATE: Kernel = kernel(
    "update",
    [INPUTS, &["parameter", "velocity"], &["NESTEROV"]],
    (update::<f64>, update::<f32>),
    // Half a dozen roundings.
    2e-6,
    cases,
);

fn update<F: Real>(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [parameter, velocity] = outputs else { return };
    let [rate, momentum, l2_decay] = [params.learning_rate, params.momentum, params.l2_decay].map(real);
    let nesterov = call.constant("NESTEROV", 0.0) > 0.5;
    apply::<F, _>(call, parameter, [velocity], |it, [v]| {
        let change = rate * it.with_l2(l2_decay);
        let v = (momentum * v - change).normal();
        (it.w + if nesterov { momentum * v - change } else { v }, [v])
    });
}

fn cases() -> Vec<Case> {
    let cases = cases_of(&[InputFill::Normal], |row| {
        let (l2_decay, momentum) = (0.5 * row.weight_decay, [0.9, 0.0, 0.9, 0.9, 0.0, 0.9, 0.95][row.nth]);
        Params { len: row.len, learning_rate: 0.1, weight_decay: row.weight_decay, momentum, l2_decay }.words()
    });
    let nesterov = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
    cases.into_iter().zip(nesterov).map(|(case, nesterov)| case.constant("NESTEROV", nesterov)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::update::by_hand;
    use super::*;

    #[test]
    fn steps_by_hand() {
        let step = |l2_decay: f32, nesterov: f64, [scale, applies]: [f32; 2]| {
            let params = Params { len: 1, learning_rate: 0.5, weight_decay: 0.25, momentum: 0.5, l2_decay };
            by_hand(&UPDATE, &params.words(), &[("NESTEROV", nesterov)], [4.0, scale, applies], &[8.0, 2.0])
        };
        // w = 8 - 8 * 0.25 * 0.5 = 7; v = 0.5 * 2 - 0.5 * 4 = -1
        assert_eq!(step(0.0, 0.0, [1.0, 1.0]), [[6.0, -1.0]; 2]);
        // The Nesterov form adds 0.5 * -1 - 2 instead of -1.
        assert_eq!(step(0.0, 1.0, [1.0, 1.0]), [[4.5, -1.0]; 2]);
        // Half the gradient: v = 1 - 1.
        assert_eq!(step(0.0, 0.0, [0.5, 1.0]), [[7.0, 0.0]; 2]);
        // The gradient is 4 + 0.5 * 8: v = 1 - 0.5 * 8.
        assert_eq!(step(0.5, 0.0, [1.0, 1.0]), [[4.0, -3.0]; 2]);
        assert_eq!(step(0.0, 0.0, [1.0, 0.0]), [[8.0, 2.0]; 2]);
    }
}
