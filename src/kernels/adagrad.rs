//! Adagrad: steps divided by the root of the sum of all squared gradients. The fast version is the host's update.

use super::cases::{Case, Fill};
use super::family::family;
use super::rounding::{index, single};
use super::{Call, Kernel};

crate::params! {
    /// Number of elements.
    len: u32,
    /// Learning rate of this step.
    learning_rate: f32,
    /// Added to the sum, under the root; 1e-7 as a rule.
    epsilon: f32,
    /// Decoupled weight decay, a part of the parameter for each unit of the learning rate; 0 for none.
    weight_decay: f32,
}

family!("adagrad", [Grid]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// `gradient [len]`, `control [4]` → `parameter`, `accumulator` `[len]`, in place.
///
/// `control` is `[scale, apply, norm, 0]`, as `clip.combine` writes it; with `apply` 0 nothing changes.
/// Grid: `Elements(ceil(len / 4))`. Source: Duchi, Hazan, Singer 2011, JMLR 12, as Keras 3 `Adagrad` writes it.
pub static UPDATE: Kernel = kernel(
    "update",
    [&["gradient", "control"], &["parameter", "accumulator"], &[]],
    (update_twin, update_fast),
    // WGSL grants sqrt and division 2.5 units each.
    5e-6,
    cases,
);

fn update_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (gradient, control) = (call.inputs[0], call.inputs[1]);
    let [rate, decay] = [params.learning_rate, params.weight_decay].map(f64::from);
    let epsilon = f64::from(params.epsilon);
    if control[1] == 0.0 {
        return;
    }
    for (i, gradient) in gradient.iter().enumerate().take(index(params.len)) {
        let g = f64::from(*gradient) * f64::from(control[0]);
        let [w, sum] = [0, 1].map(|output: usize| f64::from(outputs[output][i]));
        let sum = sum + g * g;
        outputs[0][i] = single(w - w * decay * rate - rate * g / (sum + epsilon).sqrt());
        outputs[1][i] = single(sum);
    }
}

fn update_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (len, control) = (index(params.len), call.inputs[1]);
    let [parameter, accumulator] = outputs else { return };
    if control[1] == 0.0 {
        return;
    }
    let (scale, kept) = (control[0], params.weight_decay * params.learning_rate);
    let (rate, epsilon) = (params.learning_rate, params.epsilon);
    let state = parameter[..len].iter_mut().zip(&mut accumulator[..len]).zip(&call.inputs[0][..len]);
    state.for_each(|((w, sum), g)| {
        let g = g * scale;
        *sum += g * g;
        *w = (*w - *w * kept) - rate * g / (*sum + epsilon).sqrt();
    });
}

fn cases() -> Vec<Case> {
    let case = |len: u32, weight_decay: f32, control: [f32; 4]| {
        let params = Params { len, learning_rate: 0.01, epsilon: 1e-7, weight_decay };
        Case::elements(format!("{len}, decay {weight_decay}, {control:?}"), params.words(), len.div_ceil(4))
            .input(Fill::Normal(index(len)))
            .input(Fill::Values(control.into()))
            .in_place(Fill::Normal(index(len)))
            .in_place(Fill::Uniform(index(len), 0.1, 2.0))
    };
    vec![
        case(1, 0.0, [1.0, 1.0, 0.0, 0.0]),
        case(63, 0.1, [0.5, 1.0, 2.0, 0.0]),
        case(64, 0.0, [0.25, 1.0, 4.0, 0.0]),
        case(65, 0.0, [1.0, 1.0, 0.0, 0.0]),
        case(257, 0.1, [1.0, 0.0, 0.0, 0.0]),
        case(70_001, 0.004, [1.0, 1.0, 0.0, 0.0]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum is 3 + 2² = 7, and the root of 7 + 2 is 3.
    #[test]
    fn step_by_hand() {
        let params = Params { len: 1, learning_rate: 0.75, epsilon: 2.0, weight_decay: 0.0 };
        for run in [update_twin, update_fast] {
            let (mut w, mut s0) = ([2.0], [3.0]);
            let call = Call { params: &params.words(), constants: &[], inputs: &[&[4.0], &[0.5, 1.0, 0.0, 0.0]] };
            run(&call, &mut [&mut w, &mut s0]);
            assert!((w[0] - 1.5).abs() < 1e-5, "{w:?}");
            assert!((s0[0] - 7.0).abs() < 1e-5, "{s0:?}");
        }
    }
}
