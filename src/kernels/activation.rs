//! Activation function of its own, not fused into the layer before it.

use super::activation_functions::{Activation, erf_f32};
use super::cases::{Case, Fill};
use super::rounding::{index, single};
use super::text::wgsl;
use super::{Call, Kernel, Library, parallel};

crate::params! {
    /// Number of elements.
    len: u32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD];

const SOURCE: &str = wgsl!("activation");

/// `x [len]` → `y [len]`, `y = f(x)` for the function of the constant `ACTIVATION`.
///
/// Grid: `Elements(ceil(len / 4))`.
pub static FORWARD: Kernel = Kernel {
    stem: "activation",
    entry: "forward",
    source: SOURCE,
    uses: &[Library::Grid, Library::Activation],
    params: Params::FIELDS,
    inputs: &["x"],
    outputs: &["y"],
    workgroup: 64,
    constants: &["ACTIVATION", "SLOPE"],
    twin: forward_twin,
    fast: Some(forward_fast),
    // WGSL grants exp 3 + 2 |x| units in the last place, and tanh the error of sinh / cosh.
    tolerance: 5e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases: forward_cases,
}
.lean();

/// `saved [len]`, `dy [len]` → `d_x [len]`, `d_x = dy f'`.
///
/// `saved` is `x` where [`Activation::slope_needs_input`], otherwise `y`. Grid: `Elements(ceil(len / 4))`.
pub static BACKWARD: Kernel = Kernel {
    stem: "activation",
    entry: "backward",
    source: SOURCE,
    uses: &[Library::Grid, Library::Activation],
    params: Params::FIELDS,
    inputs: &["saved", "dy"],
    outputs: &["d_x"],
    workgroup: 64,
    constants: &["ACTIVATION", "SLOPE"],
    twin: backward_twin,
    fast: Some(backward_fast),
    // As forward.
    tolerance: 5e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases: backward_cases,
}
.lean();

/// The function and the slope of [`Activation::LeakyRelu`], from a call's constants.
pub(crate) fn of_call(call: &Call<'_>) -> (Activation, f64) {
    (Activation::of_code(call.constant("ACTIVATION", 0.0)), call.constant("SLOPE", 0.0))
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len } = call.params();
    let (activation, slope) = of_call(call);
    for (y, x) in outputs[0].iter_mut().zip(call.inputs[0]).take(index(len)) {
        *y = single(activation.activate(slope, f64::from(*x)));
    }
}

fn backward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len } = call.params();
    let (activation, slope) = of_call(call);
    for (i, d_x) in outputs[0].iter_mut().enumerate().take(index(len)) {
        let (saved, dy) = (f64::from(call.inputs[0][i]), f64::from(call.inputs[1][i]));
        let slope = if activation.slope_needs_input() {
            activation.slope_from_input(saved)
        } else {
            activation.slope_from_output(slope, saved)
        };
        *d_x = single(dy * slope);
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let len = index(call.params::<Params>().len);
    let (activation, slope) = of_call(call);
    let x = call.inputs[0];
    parallel::chunks(&mut outputs[0][..len], |first, y| {
        y.copy_from_slice(&x[first..first + y.len()]);
        activation.activate_all(single(slope), y);
    });
}

fn backward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let len = index(call.params::<Params>().len);
    let (activation, slope) = of_call(call);
    let (saved, dy, slope) = (call.inputs[0], call.inputs[1], single(slope));
    parallel::chunks(&mut outputs[0][..len], |first, d_x| {
        let (saved, dy) = (&saved[first..], &dy[first..]);
        // A closure type each, so that each loop is compiled, and vectorised, on its own.
        match activation {
            Activation::None => d_x.copy_from_slice(&dy[..d_x.len()]),
            Activation::Relu => scale(d_x, dy, saved, |y| if y > 0.0 { 1.0 } else { 0.0 }),
            Activation::LeakyRelu => scale(d_x, dy, saved, |y| if y > 0.0 { 1.0 } else { slope }),
            Activation::Sigmoid => scale(d_x, dy, saved, |y| y * (1.0 - y)),
            Activation::Tanh => scale(d_x, dy, saved, |y| 1.0 - y * y),
            Activation::Gelu => scale(d_x, dy, saved, gelu_slope),
            Activation::GeluTanh => scale(d_x, dy, saved, gelu_tanh_slope),
        }
    });
}

fn scale(d_x: &mut [f32], dy: &[f32], saved: &[f32], slope: impl Fn(f32) -> f32) {
    d_x.iter_mut().zip(dy.iter().zip(saved)).for_each(|(d_x, (dy, saved))| *d_x = dy * slope(*saved));
}

fn gelu_slope(x: f32) -> f32 {
    let b = x.clamp(-15.0, 15.0);
    0.5 * (1.0 + erf_f32(x * 0.707_106_77)) + b * 0.398_942_3 * (-0.5 * b * b).exp()
}

fn gelu_tanh_slope(x: f32) -> f32 {
    let b = x.clamp(-10.0, 10.0);
    let t = (0.797_884_6 * (b + 0.044_715 * b * b * b)).tanh();
    0.5 * (1.0 + t) + 0.5 * b * (1.0 - t * t) * 0.797_884_6 * (1.0 + 0.134_145 * b * b)
}

fn forward_cases() -> Vec<Case> {
    let numbers = each_activation(|case, len| case.input(Fill::Uniform(len, -20.0, 20.0)).output(len));
    let broken = each_activation(|case, len| case.input(broken(len)).output(len));
    numbers.into_iter().chain(broken.into_iter().map(|case| case.labelled("with NaN"))).collect()
}

fn backward_cases() -> Vec<Case> {
    // Outputs of a sigmoid lie in (0, 1); any number will do for the others.
    let numbers = each_activation(|case, len| case.input(Fill::Normal(len)).input(Fill::Normal(len)).output(len));
    // What follows a NaN has a gradient of NaN, too.
    let broken = each_activation(|case, len| case.input(broken(len)).input(broken(len)).output(len));
    numbers.into_iter().chain(broken.into_iter().map(|case| case.labelled("with NaN"))).collect()
}

/// Normal numbers with a NaN at every third place.
fn broken(len: usize) -> Fill {
    let mut values = Fill::Normal(len).values(1);
    values.iter_mut().step_by(3).for_each(|value| *value = f32::NAN);
    Fill::Values(values)
}

fn each_activation(buffers: fn(Case, usize) -> Case) -> Vec<Case> {
    let sizes = [1, 63, 64, 65, 257, 70_001, 1000];
    let case = |(activation, len): (Activation, u32)| {
        let case = Case::elements(format!("{activation:?} of {len}"), Params { len }.words(), len.div_ceil(4));
        buffers(case.constant("ACTIVATION", activation.code()).constant("SLOPE", 0.25), index(len))
    };
    Activation::ALL.into_iter().zip(sizes).map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backward_is_the_difference_quotient_of_forward() {
        let x: Vec<f32> = (-12i16..12).map(|i| f32::from(i) / 4.0 + 0.1).collect();
        let dy = vec![2.0; x.len()];
        let params = Params { len: 24 }.words();
        for activation in Activation::ALL {
            let constants = [("ACTIVATION", activation.code()), ("SLOPE", 0.25)];
            let forward = |x: &[f32]| {
                let mut y = vec![0.0; x.len()];
                forward_twin(&Call { params: &params, constants: &constants, inputs: &[x] }, &mut [&mut y]);
                y
            };
            let saved = if activation.slope_needs_input() { x.clone() } else { forward(&x) };
            let mut d_x = vec![0.0; x.len()];
            backward_twin(&Call { params: &params, constants: &constants, inputs: &[&saved, &dy] }, &mut [&mut d_x]);
            let h = 1.0 / 64.0;
            let (up, down) = (x.iter().map(|x| x + h).collect::<Vec<_>>(), x.iter().map(|x| x - h).collect::<Vec<_>>());
            for ((d_x, up), down) in d_x.iter().zip(forward(&up)).zip(forward(&down)) {
                assert!((d_x - (up - down) / h).abs() < 1e-3, "{activation:?}: {d_x} {}", (up - down) / h);
            }
        }
    }
}
