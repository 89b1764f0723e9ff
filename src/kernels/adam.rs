//! Adam, and with weight decay `AdamW`. The fast version is the host's update.

use super::cases::{Case, Fill};
use super::rounding::{index, normal, single};
use super::text::wgsl;
use super::vectors::widest;
use super::{Call, Kernel, Library};

crate::params! {
    /// Number of elements.
    len: u32,
    /// Learning rate of this step.
    learning_rate: f32,
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
    /// Decoupled weight decay, a part of the parameter for each unit of the learning rate; 0 for none.
    weight_decay: f32,
    /// Part of the parameter that is added to its gradient; 0 for none.
    l2_decay: f32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// `gradient [len]`, `control [4]` → `parameter`, `momentum`, `velocity` `[len]`, all in place.
///
/// `control` is `[scale, apply, norm, 0]`, as `clip.combine` writes it; with `apply` 0 nothing changes.
/// Grid: `Elements(ceil(len / 4))`. Source: Kingma, Ba 2014, arXiv:1412.6980, as Keras 3 `Adam` and `AdamW` write it.
pub static UPDATE: Kernel = Kernel {
    stem: "adam",
    entry: "update",
    source: wgsl!("adam"),
    uses: &[Library::Grid],
    params: Params::FIELDS,
    inputs: &["gradient", "control"],
    outputs: &["parameter", "momentum", "velocity"],
    workgroup: 64,
    constants: &[],
    twin: update_twin,
    fast: Some(update_fast),
    // WGSL grants sqrt and division 2.5 units each; 1 - beta_2 is exact.
    tolerance: 5e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

fn update_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (gradient, control) = (call.inputs[0], call.inputs[1]);
    let [rate, epsilon] = [params.learning_rate, params.epsilon].map(f64::from);
    let [decay, l2_decay] = [params.weight_decay, params.l2_decay].map(f64::from);
    let [beta_1, beta_2] = [params.beta_1, params.beta_2].map(f64::from);
    let alpha = rate * f64::from(params.correction_2).sqrt() / f64::from(params.correction_1);
    if control[1] == 0.0 {
        return;
    }
    for (i, gradient) in gradient.iter().enumerate().take(index(params.len)) {
        let [w, m, v] = [0, 1, 2].map(|output: usize| f64::from(outputs[output][i]));
        let g = f64::from(*gradient) * f64::from(control[0]) + l2_decay * w;
        let m = m + (g - m) * (1.0 - beta_1);
        let v = v + (g * g - v) * (1.0 - beta_2);
        outputs[0][i] = single(w - w * decay * rate - alpha * m / (v.sqrt() + epsilon));
        outputs[1][i] = single(m);
        outputs[2][i] = single(v);
    }
}

fn update_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (len, control) = (index(params.len), call.inputs[1]);
    let [parameter, momentum, velocity] = outputs else { return };
    if control[1] == 0.0 {
        return;
    }
    let (scale, kept, epsilon) = (control[0], params.weight_decay * params.learning_rate, params.epsilon);
    let l2_decay = params.l2_decay;
    let (rest_1, rest_2) = (1.0 - params.beta_1, 1.0 - params.beta_2);
    let alpha = params.learning_rate * params.correction_2.sqrt() / params.correction_1;
    let numbers = Numbers { scale, l2_decay, rest_1, rest_2, kept, alpha, epsilon };
    let state = [&mut parameter[..len], &mut momentum[..len], &mut velocity[..len]];
    update_all(state, &call.inputs[0][..len], numbers);
}

/// Numbers of a step: the same ones for all parameters.
#[derive(Clone, Copy)]
struct Numbers {
    scale: f32,
    l2_decay: f32,
    rest_1: f32,
    rest_2: f32,
    kept: f32,
    alpha: f32,
    epsilon: f32,
}

widest! {
    fn update_all(state: [&mut [f32]; 3], gradient: &[f32], n: Numbers) {
        let [parameter, momentum, velocity] = state;
        for ((w, (m, v)), g) in parameter.iter_mut().zip(momentum.iter_mut().zip(velocity)).zip(gradient) {
            let g = g * n.scale + n.l2_decay * *w;
            *m = normal(*m + (g - *m) * n.rest_1);
            *v = normal(*v + (g * g - *v) * n.rest_2);
            *w = (*w - *w * n.kept) - n.alpha * *m / (v.sqrt() + n.epsilon);
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |len: u32, weight_decay: f32, step: i32, control: [f32; 4]| {
        let params = Params {
            len,
            learning_rate: 0.01,
            beta_1: 0.9,
            beta_2: 0.999,
            epsilon: 1e-7,
            correction_1: 1.0 - 0.9f32.powi(step),
            correction_2: 1.0 - 0.999f32.powi(step),
            weight_decay,
            l2_decay: 2.0 * weight_decay,
        };
        Case::elements(
            format!("{len}, step {step}, decay {weight_decay}, {control:?}"),
            params.words(),
            len.div_ceil(4),
        )
        .input(Fill::Normal(index(len)))
        .input(Fill::Values(control.into()))
        .in_place(Fill::Normal(index(len)))
        .in_place(Fill::Normal(index(len)))
        .in_place(Fill::Uniform(index(len), 0.0, 2.0))
    };
    let mut first = case(65, 0.0, 1, [1.0, 1.0, 0.0, 0.0]);
    first.label = "65, first step, some gradients 0".into();
    first.inputs[0] = Fill::Values((0..65u16).map(|i| f32::from(i % 3) - 1.0).collect());
    first.outputs[1] = Fill::Values(vec![0.0; 65]);
    first.outputs[2] = Fill::Values(vec![0.0; 65]);
    vec![
        case(1, 0.0, 3, [1.0, 1.0, 0.0, 0.0]),
        case(63, 0.1, 10, [0.5, 1.0, 2.0, 0.0]),
        case(64, 0.0, 1000, [0.25, 1.0, 4.0, 0.0]),
        first,
        case(257, 0.1, 10, [1.0, 0.0, 0.0, 0.0]),
        case(70_001, 0.004, 10, [1.0, 1.0, 0.0, 0.0]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments of a weight that has no gradient any more end at 0, where they cost no time.
    #[test]
    fn moments_without_gradient_become_zero() {
        let params = Params {
            len: 1,
            learning_rate: 0.125,
            beta_1: 0.9,
            beta_2: 0.999,
            epsilon: 1e-7,
            correction_1: 1.0,
            correction_2: 1.0,
            weight_decay: 0.0,
            l2_decay: 0.0,
        };
        let (mut w, mut m, mut v) = ([16.0], [f32::MIN_POSITIVE], [f32::MIN_POSITIVE]);
        let call = Call { params: &params.words(), constants: &[], inputs: &[&[0.0], &[1.0, 1.0, 0.0, 0.0]] };
        update_fast(&call, &mut [&mut w, &mut m, &mut v]);
        assert_eq!([w, m, v], [[16.0], [0.0], [0.0]]);
    }

    /// The first step moves each parameter by the learning rate against its gradient, whatever its size.
    #[test]
    fn first_step_is_the_sign() {
        let params = Params {
            len: 4,
            learning_rate: 0.125,
            beta_1: 0.9,
            beta_2: 0.999,
            epsilon: 1e-7,
            correction_1: 1.0 - 0.9,
            correction_2: 1.0 - 0.999,
            weight_decay: 0.5,
            l2_decay: 0.0,
        };
        for run in [update_twin, update_fast] {
            let (mut w, mut m, mut v) = ([16.0; 4], [0.0; 4], [0.0; 4]);
            let gradient = [100.0, -0.01, 3.0, 0.0];
            let call = Call { params: &params.words(), constants: &[], inputs: &[&gradient, &[1.0, 1.0, 0.0, 0.0]] };
            run(&call, &mut [&mut w, &mut m, &mut v]);
            // Decay takes 16 * 0.5 * 0.125 = 1.
            for (w, expected) in w.iter().zip([14.875, 15.125, 14.875, 15.0]) {
                assert!((w - expected).abs() < 1e-4, "{w} {expected}");
            }
        }
    }
}
