//! Adamax: Adam by the largest of the decaying sizes of gradients. The fast version is the host's update.

use super::cases::{Case, Fill};
use super::family::family;
use super::rounding::{index, normal, single};
use super::{Call, Kernel};

crate::params! {
    /// Number of elements.
    len: u32,
    /// Learning rate of this step.
    learning_rate: f32,
    /// Decay of the mean; 0.9 as a rule.
    beta_1: f32,
    /// Decay of the largest size; 0.999 as a rule.
    beta_2: f32,
    /// Added to the largest size; 1e-7 as a rule.
    epsilon: f32,
    /// `1 - beta_1^t` for step `t`, from 1.
    correction_1: f32,
    /// Decoupled weight decay, a part of the parameter for each unit of the learning rate; 0 for none.
    weight_decay: f32,
}

family!("adamax", [Grid]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// `gradient [len]`, `control [4]` → `parameter`, `momentum`, `norm` `[len]`, in place.
///
/// `control` is `[scale, apply, norm, 0]`, as `clip.combine` writes it; with `apply` 0 nothing changes.
/// Grid: `Elements(ceil(len / 4))`. Source: Kingma, Ba 2014, arXiv:1412.6980, section 7.1, as in Keras 3.
pub static UPDATE: Kernel = kernel(
    "update",
    [&["gradient", "control"], &["parameter", "momentum", "norm"], &[]],
    (update_twin, update_fast),
    // WGSL grants the division 2.5 units.
    5e-6,
    cases,
);

fn update_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (gradient, control) = (call.inputs[0], call.inputs[1]);
    let [rate, decay] = [params.learning_rate, params.weight_decay].map(f64::from);
    let [beta_1, beta_2, epsilon] = [params.beta_1, params.beta_2, params.epsilon].map(f64::from);
    let correction = f64::from(params.correction_1);
    if control[1] == 0.0 {
        return;
    }
    for (i, gradient) in gradient.iter().enumerate().take(index(params.len)) {
        let g = f64::from(*gradient) * f64::from(control[0]);
        let [w, m, norm] = [0, 1, 2].map(|output: usize| f64::from(outputs[output][i]));
        let m = m + (g - m) * (1.0 - beta_1);
        let norm = (beta_2 * norm).max(g.abs());
        outputs[0][i] = single(w - w * decay * rate - rate * m / (correction * (norm + epsilon)));
        outputs[1][i] = single(m);
        outputs[2][i] = single(norm);
    }
}

fn update_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (len, control) = (index(params.len), call.inputs[1]);
    let [parameter, momentum, norm] = outputs else { return };
    if control[1] == 0.0 {
        return;
    }
    let (scale, kept) = (control[0], params.weight_decay * params.learning_rate);
    let (rest, beta_2, epsilon) = (1.0 - params.beta_1, params.beta_2, params.epsilon);
    let rate = params.learning_rate / params.correction_1;
    let states = momentum[..len].iter_mut().zip(&mut norm[..len]);
    let state = parameter[..len].iter_mut().zip(states).zip(&call.inputs[0][..len]);
    state.for_each(|((w, (m, norm)), g)| {
        let g = g * scale;
        *m = normal(*m + (g - *m) * rest);
        *norm = normal((beta_2 * *norm).max(g.abs()));
        *w = (*w - *w * kept) - rate * *m / (*norm + epsilon);
    });
}

fn cases() -> Vec<Case> {
    let case = |len: u32, weight_decay: f32, control: [f32; 4]| {
        let params = Params {
            len,
            learning_rate: 0.01,
            beta_1: 0.9,
            beta_2: 0.75,
            epsilon: 1e-7,
            correction_1: 0.25,
            weight_decay,
        };
        Case::elements(format!("{len}, decay {weight_decay}, {control:?}"), params.words(), len.div_ceil(4))
            .input(Fill::Normal(index(len)))
            .input(Fill::Values(control.into()))
            .in_place(Fill::Normal(index(len)))
            .in_place(Fill::Normal(index(len)))
            .in_place(Fill::Uniform(index(len), 0.0, 2.0))
    };
    let mut first = case(65, 0.0, [1.0, 1.0, 0.0, 0.0]).labelled("first step, some gradients 0");
    first.inputs[0] = Fill::Values((0..65u16).map(|i| f32::from(i % 3) - 1.0).collect());
    first.outputs[1] = Fill::Values(vec![0.0; 65]);
    first.outputs[2] = Fill::Values(vec![0.0; 65]);
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

    /// The mean is 1 - (3 + 1) / 2 = -1, the size the larger of 1/2 * 8 and 3; decay takes 1/2, and the step gives it back.
    #[test]
    fn step_by_hand() {
        let params = Params {
            len: 1,
            learning_rate: 0.5,
            beta_1: 0.5,
            beta_2: 0.5,
            epsilon: 0.0,
            correction_1: 0.25,
            weight_decay: 0.5,
        };
        for run in [update_twin, update_fast] {
            let (mut w, mut s0, mut s1) = ([2.0], [1.0], [8.0]);
            let call = Call { params: &params.words(), constants: &[], inputs: &[&[-6.0], &[0.5, 1.0, 0.0, 0.0]] };
            run(&call, &mut [&mut w, &mut s0, &mut s1]);
            assert!((w[0] - 2.0).abs() < 1e-5, "{w:?}");
            assert!((s0[0] - -1.0).abs() < 1e-5, "{s0:?}");
            assert!((s1[0] - 4.0).abs() < 1e-5, "{s1:?}");
        }
    }
}
