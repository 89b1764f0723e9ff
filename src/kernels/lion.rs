//! Lion: steps of one length. The fast version is the host's update.

use super::cases::{Case, Fill};
use super::family::family;
use super::rounding::{index, single};
use super::{Call, Kernel};

crate::params! {
    /// Number of elements.
    len: u32,
    /// Learning rate of this step.
    learning_rate: f32,
    /// Part of the old mean in the direction; 0.9 as a rule.
    beta_1: f32,
    /// Decay of the mean; 0.99 as a rule.
    beta_2: f32,
    /// Decoupled weight decay, a part of the parameter for each unit of the learning rate; 0 for none.
    weight_decay: f32,
}

family!("lion", [Grid]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// `gradient [len]`, `control [4]` → `parameter`, `momentum` `[len]`, in place.
///
/// `control` is `[scale, apply, norm, 0]`, as `clip.combine` writes it; with `apply` 0 nothing changes.
/// Grid: `Elements(ceil(len / 4))`. Source: Chen et al. 2023, arXiv:2302.06675, as Keras 3 `Lion` writes it.
pub static UPDATE: Kernel = kernel(
    "update",
    [&["gradient", "control"], &["parameter", "momentum"], &[]],
    (update_twin, update_fast),
    // Half a dozen roundings; directions that are 0 but for rounding are in no case.
    2e-6,
    cases,
);

fn update_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (gradient, control) = (call.inputs[0], call.inputs[1]);
    let [rate, decay] = [params.learning_rate, params.weight_decay].map(f64::from);
    let [beta_1, beta_2] = [params.beta_1, params.beta_2].map(f64::from);
    if control[1] == 0.0 {
        return;
    }
    for (i, gradient) in gradient.iter().enumerate().take(index(params.len)) {
        let g = f64::from(*gradient) * f64::from(control[0]);
        let [w, m] = [0, 1].map(|output: usize| f64::from(outputs[output][i]));
        let direction = beta_1 * m + (1.0 - beta_1) * g;
        outputs[0][i] = single(w - w * decay * rate - rate * sign(direction));
        outputs[1][i] = single(beta_2 * m + (1.0 - beta_2) * g);
    }
}

/// 1, -1, or 0 for 0, as in WGSL.
fn sign(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value.signum() }
}

fn update_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (len, control) = (index(params.len), call.inputs[1]);
    let [parameter, momentum] = outputs else { return };
    if control[1] == 0.0 {
        return;
    }
    let (scale, kept) = (control[0], params.weight_decay * params.learning_rate);
    let (rate, beta_1, beta_2) = (params.learning_rate, params.beta_1, params.beta_2);
    let (rest_1, rest_2) = (1.0 - beta_1, 1.0 - beta_2);
    let state = parameter[..len].iter_mut().zip(&mut momentum[..len]).zip(&call.inputs[0][..len]);
    state.for_each(|((w, m), g)| {
        let g = g * scale;
        let direction = beta_1 * *m + rest_1 * g;
        let length = if direction > 0.0 {
            rate
        } else if direction < 0.0 {
            -rate
        } else {
            0.0
        };
        *w = (*w - *w * kept) - length;
        *m = beta_2 * *m + rest_2 * g;
    });
}

fn cases() -> Vec<Case> {
    let case = |len: u32, weight_decay: f32, control: [f32; 4]| {
        let params = Params { len, learning_rate: 0.01, beta_1: 0.9, beta_2: 0.99, weight_decay };
        Case::elements(format!("{len}, decay {weight_decay}, {control:?}"), params.words(), len.div_ceil(4))
            .input(Fill::Normal(index(len)))
            .input(Fill::Values(control.into()))
            .in_place(Fill::Normal(index(len)))
            .in_place(Fill::Normal(index(len)))
    };
    let mut first = case(65, 0.0, [1.0, 1.0, 0.0, 0.0]).labelled("first step, some gradients 0");
    first.inputs[0] = Fill::Values((0..65u16).map(|i| f32::from(i % 3) - 1.0).collect());
    first.outputs[1] = Fill::Values(vec![0.0; 65]);
    vec![
        case(1, 0.0, [1.0, 1.0, 0.0, 0.0]),
        case(63, 0.1, [0.5, 1.0, 2.0, 0.0]),
        case(64, 0.0, [0.25, 1.0, 4.0, 0.0]),
        first,
        case(257, 0.1, [1.0, 0.0, 0.0, 0.0]),
        case(70_001, 0.004, [1.0, 1.0, 0.0, 0.0]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// w = 2, less 1/2 * 1/4 of itself; 3/4 * 4 - 1/4 * 4 = 2 is above 0; the mean is 1/2 * 4 - 1/2 * 4.
    #[test]
    fn step_by_hand() {
        let params = Params { len: 1, learning_rate: 0.25, beta_1: 0.75, beta_2: 0.5, weight_decay: 0.5 };
        for run in [update_twin, update_fast] {
            let (mut w, mut s0) = ([2.0], [4.0]);
            let call = Call { params: &params.words(), constants: &[], inputs: &[&[-8.0], &[0.5, 1.0, 0.0, 0.0]] };
            run(&call, &mut [&mut w, &mut s0]);
            assert!((w[0] - 1.5).abs() < 1e-5, "{w:?}");
            assert!((s0[0] - 0.0).abs() < 1e-5, "{s0:?}");
        }
    }
}
