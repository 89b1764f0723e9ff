//! Stochastic gradient descent with momentum. The fast version is the host's update.

use super::cases::{Case, Fill};
use super::rounding::{index, normal, single};
use super::text::wgsl;
use super::{Call, Kernel, Library};

crate::params! {
    /// Number of elements.
    len: u32,
    /// Learning rate of this step.
    learning_rate: f32,
    /// Momentum; 0 for none.
    momentum: f32,
    /// Decoupled weight decay, a part of the parameter for each unit of the learning rate; 0 for none.
    weight_decay: f32,
    /// Part of the parameter that is added to its gradient; 0 for none.
    l2_decay: f32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// `gradient [len]`, `control [4]` → `parameter [len]`, `velocity [len]`, both in place.
///
/// `control` is `[scale, apply, norm, 0]`, as `clip.combine` writes it; with `apply` 0 nothing changes.
/// The constant `NESTEROV` is 0 or 1. `velocity` is bound and written without momentum, too.
/// Grid: `Elements(ceil(len / 4))`. Source: Keras 3 `SGD`.
pub static UPDATE: Kernel = Kernel {
    stem: "sgd",
    entry: "update",
    source: wgsl!("sgd"),
    uses: &[Library::Grid],
    params: Params::FIELDS,
    inputs: &["gradient", "control"],
    outputs: &["parameter", "velocity"],
    workgroup: 64,
    constants: &["NESTEROV"],
    twin: update_twin,
    fast: Some(update_fast),
    // Half a dozen roundings.
    tolerance: 2e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

fn update_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (gradient, control) = (call.inputs[0], call.inputs[1]);
    let nesterov = call.constant("NESTEROV", 0.0) > 0.5;
    let [learning_rate, momentum, weight_decay, l2_decay] =
        [params.learning_rate, params.momentum, params.weight_decay, params.l2_decay].map(f64::from);
    if control[1] == 0.0 {
        return;
    }
    for i in 0..index(params.len) {
        let (w, v) = (f64::from(outputs[0][i]), f64::from(outputs[1][i]));
        let g = f64::from(gradient[i]) * f64::from(control[0]) + l2_decay * w;
        let w = w - w * weight_decay * learning_rate;
        let v = momentum * v - learning_rate * g;
        outputs[0][i] = single(if nesterov { w + momentum * v - learning_rate * g } else { w + v });
        outputs[1][i] = single(v);
    }
}

fn update_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, learning_rate, momentum, weight_decay, l2_decay } = call.params();
    let (len, control) = (index(len), call.inputs[1]);
    let [parameter, velocity] = outputs else { return };
    if control[1] == 0.0 {
        return;
    }
    let (scale, kept) = (control[0], weight_decay * learning_rate);
    let state = parameter[..len].iter_mut().zip(&mut velocity[..len]).zip(&call.inputs[0][..len]);
    if call.constant("NESTEROV", 0.0) > 0.5 {
        state.for_each(|((w, v), g)| {
            let step = learning_rate * (g * scale + l2_decay * *w);
            *v = normal(momentum * *v - step);
            *w = (*w - *w * kept) + (momentum * *v - step);
        });
    } else {
        state.for_each(|((w, v), g)| {
            *v = normal(momentum * *v - learning_rate * (g * scale + l2_decay * *w));
            *w = (*w - *w * kept) + *v;
        });
    }
}

fn cases() -> Vec<Case> {
    let case = |len: u32, [momentum, weight_decay, nesterov]: [f32; 3], control: [f32; 4]| {
        let params = Params { len, learning_rate: 0.1, momentum, weight_decay, l2_decay: 0.5 * weight_decay };
        let label = format!("{len}, momentum {momentum}, decay {weight_decay}, NESTEROV {nesterov}, {control:?}");
        Case::elements(label, params.words(), len.div_ceil(4))
            .constant("NESTEROV", f64::from(nesterov))
            .input(Fill::Normal(index(len)))
            .input(Fill::Values(control.into()))
            .in_place(Fill::Normal(index(len)))
            .in_place(Fill::Normal(index(len)))
    };
    vec![
        case(1, [0.9, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]),
        case(63, [0.0, 0.0, 0.0], [0.5, 1.0, 2.0, 0.0]),
        case(64, [0.9, 0.01, 1.0], [0.25, 1.0, 4.0, 0.0]),
        case(65, [0.9, 0.01, 0.0], [1.0, 0.0, 0.0, 0.0]),
        case(257, [0.0, 0.1, 1.0], [1.0, 1.0, 0.0, 0.0]),
        case(70_001, [0.95, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(constants: &[(&'static str, f64)], control: [f32; 4], state: &mut [f32; 2]) {
        step_with(0.0, constants, control, state);
    }

    fn step_with(l2_decay: f32, constants: &[(&'static str, f64)], control: [f32; 4], state: &mut [f32; 2]) {
        let params = Params { len: 1, learning_rate: 0.5, momentum: 0.5, weight_decay: 0.25, l2_decay }.words();
        let [w, v] = state;
        let call = Call { params: &params, constants, inputs: &[&[4.0], &control] };
        update_twin(&call, &mut [std::slice::from_mut(w), std::slice::from_mut(v)]);
    }

    #[test]
    fn steps_by_hand() {
        // w = 8 - 8 * 0.25 * 0.5 = 7; v = 0.5 * 2 - 0.5 * 4 = -1
        let mut state = [8.0, 2.0];
        step(&[], [1.0, 1.0, 0.0, 0.0], &mut state);
        assert_eq!(state, [6.0, -1.0]);
        // The Nesterov form adds 0.5 * -1 - 2 instead of -1.
        let mut state = [8.0, 2.0];
        step(&[("NESTEROV", 1.0)], [1.0, 1.0, 0.0, 0.0], &mut state);
        assert_eq!(state, [4.5, -1.0]);
        // Half the gradient: v = 1 - 1.
        let mut state = [8.0, 2.0];
        step(&[], [0.5, 1.0, 0.0, 0.0], &mut state);
        assert_eq!(state, [7.0, 0.0]);
        // The gradient is 4 + 0.5 * 8: v = 1 - 0.5 * 8.
        let mut state = [8.0, 2.0];
        step_with(0.5, &[], [1.0, 1.0, 0.0, 0.0], &mut state);
        assert_eq!(state, [4.0, -3.0]);
        let mut state = [8.0, 2.0];
        step(&[], [1.0, 0.0, 0.0, 0.0], &mut state);
        assert_eq!(state, [8.0, 2.0]);
    }
}
