//! Adadelta: steps in the unit of the parameters. The fast version is the host's update.

use super::cases::{Case, Fill};
use super::family::family;
use super::rounding::{index, single};
use super::{Call, Kernel};

crate::params! {
    /// Number of elements.
    len: u32,
    /// Learning rate of this step.
    learning_rate: f32,
    /// Decay of the means; 0.95 as a rule.
    rho: f32,
    /// Added to both means, under the roots; 1e-7 as a rule.
    epsilon: f32,
    /// Decoupled weight decay, a part of the parameter for each unit of the learning rate; 0 for none.
    weight_decay: f32,
}

family!("adadelta", [Grid]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// `gradient [len]`, `control [4]` → `parameter`, `accumulated_grad`, `accumulated_delta_var` `[len]`, in place.
///
/// `control` is `[scale, apply, norm, 0]`, as `clip.combine` writes it; with `apply` 0 nothing changes.
/// Grid: `Elements(ceil(len / 4))`. Source: Zeiler 2012, arXiv:1212.5701, as Keras 3 `Adadelta` writes it.
pub static UPDATE: Kernel = kernel(
    "update",
    [&["gradient", "control"], &["parameter", "accumulated_grad", "accumulated_delta_var"], &[]],
    (update_twin, update_fast),
    // WGSL grants both roots and the division 2.5 units each.
    5e-6,
    cases,
);

fn update_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (gradient, control) = (call.inputs[0], call.inputs[1]);
    let [rate, decay] = [params.learning_rate, params.weight_decay].map(f64::from);
    let [rho, epsilon] = [params.rho, params.epsilon].map(f64::from);
    if control[1] == 0.0 {
        return;
    }
    for (i, gradient) in gradient.iter().enumerate().take(index(params.len)) {
        let g = f64::from(*gradient) * f64::from(control[0]);
        let [w, square, change] = [0, 1, 2].map(|output: usize| f64::from(outputs[output][i]));
        let square = rho * square + (1.0 - rho) * g * g;
        let delta = g * (change + epsilon).sqrt() / (square + epsilon).sqrt();
        outputs[0][i] = single(w - w * decay * rate - rate * delta);
        outputs[1][i] = single(square);
        outputs[2][i] = single(rho * change + (1.0 - rho) * delta * delta);
    }
}

fn update_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (len, control) = (index(params.len), call.inputs[1]);
    let [parameter, accumulated_grad, accumulated_delta_var] = outputs else { return };
    if control[1] == 0.0 {
        return;
    }
    let (scale, kept) = (control[0], params.weight_decay * params.learning_rate);
    let (rate, rho, rest, epsilon) = (params.learning_rate, params.rho, 1.0 - params.rho, params.epsilon);
    let states = accumulated_grad[..len].iter_mut().zip(&mut accumulated_delta_var[..len]);
    let state = parameter[..len].iter_mut().zip(states).zip(&call.inputs[0][..len]);
    state.for_each(|((w, (square, change)), g)| {
        let g = g * scale;
        *square = rho * *square + rest * (g * g);
        let delta = g * (*change + epsilon).sqrt() / (*square + epsilon).sqrt();
        *change = rho * *change + rest * (delta * delta);
        *w = (*w - *w * kept) - rate * delta;
    });
}

fn cases() -> Vec<Case> {
    let case = |len: u32, weight_decay: f32, control: [f32; 4]| {
        let params = Params { len, learning_rate: 0.01, rho: 0.875, epsilon: 1e-7, weight_decay };
        Case::elements(format!("{len}, decay {weight_decay}, {control:?}"), params.words(), len.div_ceil(4))
            .input(Fill::Normal(index(len)))
            .input(Fill::Values(control.into()))
            .in_place(Fill::Normal(index(len)))
            .in_place(Fill::Uniform(index(len), 0.5, 2.0))
            .in_place(Fill::Uniform(index(len), 0.5, 2.0))
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

    /// The squares are 1/2 * 4 + 1/2 * 8² = 34, and 34 + 2 has the root 6; the step is 8 * √(7 + 2) / 6 = 4.
    #[test]
    fn step_by_hand() {
        let params = Params { len: 1, learning_rate: 0.125, rho: 0.5, epsilon: 2.0, weight_decay: 0.0 };
        for run in [update_twin, update_fast] {
            let (mut w, mut s0, mut s1) = ([2.0], [4.0], [7.0]);
            let call = Call { params: &params.words(), constants: &[], inputs: &[&[16.0], &[0.5, 1.0, 0.0, 0.0]] };
            run(&call, &mut [&mut w, &mut s0, &mut s1]);
            assert!((w[0] - 1.5).abs() < 1e-5, "{w:?}");
            assert!((s0[0] - 34.0).abs() < 1e-5, "{s0:?}");
            assert!((s1[0] - 11.5).abs() < 1e-5, "{s1:?}");
        }
    }
}
