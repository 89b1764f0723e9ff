//! `RMSprop`, plain or centered, with momentum. The fast version is the host's update.

use super::cases::{Case, Fill};
use super::rounding::{index, normal, single};
use super::text::wgsl;
use super::{Call, Kernel, Library};

crate::params! {
    /// Number of elements.
    len: u32,
    /// Learning rate of this step.
    learning_rate: f32,
    /// Decay of the means; 0.9 as a rule.
    rho: f32,
    /// Momentum; 0 for none.
    momentum: f32,
    /// Added to the variance, under the root; 1e-7 as a rule.
    epsilon: f32,
    /// Decoupled weight decay, a part of the parameter for each unit of the learning rate; 0 for none.
    weight_decay: f32,
    /// Added to the root; 0 for none.
    outer_epsilon: f32,
    /// Part of the parameter that is added to its gradient; 0 for none.
    l2_decay: f32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&UPDATE];

/// `gradient [len]`, `control [4]` → `parameter`, `mean_square`, `momentum_buffer`, `mean_gradient` `[len]`, in place.
///
/// `control` is `[scale, apply, norm, 0]`, as `clip.combine` writes it; with `apply` 0 nothing changes. The
/// constant `CENTERED` is 0 or 1. `momentum_buffer` is only written with momentum, `mean_gradient` only if centered:
/// what is bound there otherwise must still be of one element at least and no part of another binding.
/// Grid: `Elements(ceil(len / 4))`. Source: Keras 3 `RMSprop`; the centered variance is kept from going below 0.
pub static UPDATE: Kernel = Kernel {
    stem: "rmsprop",
    entry: "update",
    source: wgsl!("rmsprop"),
    uses: &[Library::Grid],
    params: Params::FIELDS,
    inputs: &["gradient", "control"],
    outputs: &["parameter", "mean_square", "momentum_buffer", "mean_gradient"],
    workgroup: 64,
    constants: &["CENTERED"],
    twin: update_twin,
    fast: Some(update_fast),
    // WGSL grants sqrt and division 2.5 units each; the centered variance loses a digit to cancellation.
    tolerance: 1e-5,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

fn update_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (gradient, control) = (call.inputs[0], call.inputs[1]);
    let centered = call.constant("CENTERED", 0.0) > 0.5;
    let [rate, rho, momentum] = [params.learning_rate, params.rho, params.momentum].map(f64::from);
    let [epsilon, outer_epsilon] = [params.epsilon, params.outer_epsilon].map(f64::from);
    let [decay, l2_decay] = [params.weight_decay, params.l2_decay].map(f64::from);
    if control[1] == 0.0 {
        return;
    }
    for (i, gradient) in gradient.iter().enumerate().take(index(params.len)) {
        let w = f64::from(outputs[0][i]);
        let g = f64::from(*gradient) * f64::from(control[0]) + l2_decay * w;
        let square = rho * f64::from(outputs[1][i]) + (1.0 - rho) * g * g;
        outputs[1][i] = single(square);
        let mut variance = square;
        if centered {
            let mean = rho * f64::from(outputs[3][i]) + (1.0 - rho) * g;
            outputs[3][i] = single(mean);
            variance = (square - mean * mean).max(0.0);
        }
        let mut change = rate * g / ((variance + epsilon).sqrt() + outer_epsilon);
        if momentum > 0.0 {
            change += momentum * f64::from(outputs[2][i]);
            outputs[2][i] = single(change);
        }
        outputs[0][i] = single(w - w * decay * rate - change);
    }
}

fn update_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (len, control) = (index(params.len), call.inputs[1]);
    let [parameter, mean_square, momentum_buffer, mean_gradient] = outputs else { return };
    if control[1] == 0.0 {
        return;
    }
    let (scale, rho, rest) = (control[0], params.rho, 1.0 - params.rho);
    let kept = params.weight_decay * params.learning_rate;
    let gradient = &call.inputs[0][..len];
    let pairs = parameter[..len].iter_mut().zip(&mut mean_square[..len]).zip(gradient);
    let step = |w: &mut f32, square: &mut f32, g: f32, mean: f32| {
        *square = normal(rho * *square + rest * (g * g));
        *w -= *w * kept;
        params.learning_rate * g / (((*square - mean * mean).max(0.0) + params.epsilon).sqrt() + params.outer_epsilon)
    };
    let slope = |w: f32, g: f32| g * scale + params.l2_decay * w;
    let gather = |mean: &mut f32, g: f32| {
        *mean = normal(rho * *mean + rest * g);
        *mean
    };
    let push = |buffer: &mut f32, change: f32| {
        *buffer = normal(params.momentum * *buffer + change);
        *buffer
    };
    // A loop for each form, so that each is vectorised and touches only the state it needs.
    match (call.constant("CENTERED", 0.0) > 0.5, params.momentum > 0.0) {
        (false, false) => pairs.for_each(|((w, s), g)| *w -= step(w, s, slope(*w, *g), 0.0)),
        (false, true) => pairs
            .zip(&mut momentum_buffer[..len])
            .for_each(|(((w, s), g), buffer)| *w -= push(buffer, step(w, s, slope(*w, *g), 0.0))),
        (true, false) => pairs
            .zip(&mut mean_gradient[..len])
            .for_each(|(((w, s), g), mean)| *w -= step(w, s, slope(*w, *g), gather(mean, slope(*w, *g)))),
        (true, true) => pairs.zip(&mut mean_gradient[..len]).zip(&mut momentum_buffer[..len]).for_each(
            |((((w, s), g), mean), buffer)| {
                let g = slope(*w, *g);
                *w -= push(buffer, step(w, s, g, gather(mean, g)));
            },
        ),
    }
}

fn cases() -> Vec<Case> {
    let case = |len: u32, momentum: f32, centered: f64, control: [f32; 4]| {
        let params = Params {
            len,
            learning_rate: 0.01,
            rho: 0.875,
            momentum,
            epsilon: 1e-7,
            weight_decay: momentum * 0.1,
            outer_epsilon: momentum * 0.01,
            l2_decay: momentum * 0.2,
        };
        let label = format!("{len}, momentum {momentum}, CENTERED {centered}, {control:?}");
        Case::elements(label, params.words(), len.div_ceil(4))
            .constant("CENTERED", centered)
            .input(Fill::Normal(index(len)))
            .input(Fill::Values(control.into()))
            .in_place(Fill::Normal(index(len)))
            .in_place(Fill::Uniform(index(len), 1.0, 2.0))
            .in_place(Fill::Normal(index(len)))
            .in_place(Fill::Uniform(index(len), -0.5, 0.5))
    };
    vec![
        case(1, 0.0, 0.0, [1.0, 1.0, 0.0, 0.0]),
        case(63, 0.9, 0.0, [0.5, 1.0, 2.0, 0.0]),
        case(64, 0.0, 1.0, [1.0, 1.0, 0.0, 0.0]),
        case(65, 0.9, 1.0, [0.25, 1.0, 4.0, 0.0]),
        case(257, 0.9, 1.0, [1.0, 0.0, 0.0, 0.0]),
        case(70_001, 0.0, 0.0, [1.0, 1.0, 0.0, 0.0]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// g = 2, rho = 1/2, lr = 1/4: square 1/2 * 4 + 1/2 * 4 = 4, so the plain step is 1/4 * 2 / 2 = 1/4. Centered
    /// with a mean of 1/2 * (2√3 - 2) + 1/2 * 2 = √3, the variance is 1 and the step 1/2; momentum adds 1/2 * 3.
    #[test]
    fn steps_by_hand() {
        let run = |twin: super::super::Twin, momentum: f32, centered: f64| {
            let params = Params {
                len: 1,
                learning_rate: 0.25,
                rho: 0.5,
                momentum,
                epsilon: 0.0,
                weight_decay: 0.0,
                outer_epsilon: 0.0,
                l2_decay: 0.0,
            };
            let (mut w, mut square, mut buffer, mut mean) = ([10.0], [4.0], [3.0], [2.0 * 3f32.sqrt() - 2.0]);
            let constants = [("CENTERED", centered)];
            let call =
                Call { params: &params.words(), constants: &constants, inputs: &[&[4.0], &[0.5, 1.0, 0.0, 0.0]] };
            twin(&call, &mut [&mut w, &mut square, &mut buffer, &mut mean]);
            assert_eq!(square, [4.0]);
            w[0]
        };
        for twin in [update_twin, update_fast] {
            for (momentum, centered, expected) in [(0.0, 0.0, 9.75), (0.0, 1.0, 9.5), (0.5, 0.0, 8.25), (0.5, 1.0, 8.0)]
            {
                let w = run(twin, momentum, centered);
                assert!((w - expected).abs() < 1e-5, "{w} {expected}");
            }
        }
    }
}
