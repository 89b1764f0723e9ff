//! Exponential moving average of parameters. The fast version is the host's update.

use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::{index, single};
use super::{Call, Kernel};

crate::params! {
    /// Number of elements.
    len: u32,
    /// Part of the old average that stays; 0 in the first step, where there is none.
    momentum: f32,
    /// 1 in a step in which the parameters take the average over, otherwise 0.
    overwrites: f32,
}

family!("ema", [Grid]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// `control [4]` → `average`, `parameter` `[len]`, in place.
///
/// `control` is `[scale, apply, norm, 0]`, as `clip.combine` writes it; with `apply` 0 nothing changes.
/// Grid: `Elements(ceil(len / 4))`. Source: Keras 3, `use_ema` of its optimizers.
pub static UPDATE: Kernel = kernel(
    "update",
    [&["control"], &["average", "parameter"], &[]],
    (update_twin, update_fast),
    // Three roundings.
    1e-6,
    cases,
);

fn update_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let momentum = f64::from(params.momentum);
    let [average, parameter] = outputs else { return };
    if call.inputs[0][1] == 0.0 {
        return;
    }
    for (average, w) in average.iter_mut().zip(parameter.iter_mut()).take(index(params.len)) {
        *average = single(momentum * f64::from(*average) + (1.0 - momentum) * f64::from(*w));
        if params.overwrites > 0.5 {
            *w = *average;
        }
    }
}

fn update_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (len, momentum, rest) = (index(params.len), params.momentum, 1.0 - params.momentum);
    let [average, parameter] = outputs else { return };
    if call.inputs[0][1] == 0.0 {
        return;
    }
    let pairs = average[..len].iter_mut().zip(&parameter[..len]);
    pairs.for_each(|(average, w)| *average = momentum * *average + rest * w);
    if params.overwrites > 0.5 {
        parameter[..len].copy_from_slice(&average[..len]);
    }
}

fn cases() -> Vec<Case> {
    let case = |len: u32, momentum: f32, overwrites: f32, apply: f32| {
        let params = Params { len, momentum, overwrites };
        let label = format!("{len}, momentum {momentum}, overwrites {overwrites}, apply {apply}");
        Case::elements(label, params.words(), len.div_ceil(4))
            .input(InputFill::Values(vec![0.5, apply, 2.0, 0.0]))
            .in_place(InputFill::Normal(index(len)))
            .in_place(InputFill::Normal(index(len)))
    };
    vec![
        case(1, 0.0, 0.0, 1.0),
        case(63, 0.99, 1.0, 1.0),
        case(64, 0.5, 0.0, 1.0),
        case(65, 0.75, 1.0, 1.0),
        case(257, 0.75, 1.0, 0.0),
        case(261, 0.75, 1.0, 1.0),
        case(70_001, 0.9, 1.0, 1.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_by_hand() {
        for run in [update_twin, update_fast] {
            for (overwrites, expected) in [(0.0, 8.0), (1.0, 5.0)] {
                let params = Params { len: 1, momentum: 0.75, overwrites };
                let (mut average, mut w) = ([4.0], [8.0]);
                let call = Call { params: &params.words(), constants: &[], inputs: &[&[1.0, 1.0, 0.0, 0.0]] };
                run(&call, &mut [&mut average, &mut w]);
                assert_eq!((average, w), ([5.0], [expected]));
            }
        }
    }
}
