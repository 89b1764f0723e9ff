//! Activation function of its own, not fused into the layer before it.

use super::activation_functions::{Activation, CONSTANTS, Function, FunctionNumbers, PARTIAL};
use super::cases::{Case, InputFill};
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
    constants: &CONSTANTS,
    twin: forward_twin,
    fast: Some(forward_fast),
    // WGSL grants exp 3 + 2 |x| units in the last place.
    tolerance: 5e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases: forward_cases,
}
.lean();

/// `saved [len]`, `dy [len]` → `d_x [len]`, `d_x = dy f'`.
///
/// `saved` is `x` where [`slope_needs_input`](super::activation_functions::Activation::slope_needs_input), otherwise `y`. Grid: `Elements(ceil(len / 4))`.
pub static BACKWARD: Kernel = Kernel {
    stem: "activation",
    entry: "backward",
    source: SOURCE,
    uses: &[Library::Grid, Library::Activation],
    params: Params::FIELDS,
    inputs: &["saved", "dy"],
    outputs: &["d_x"],
    workgroup: 64,
    constants: &CONSTANTS,
    twin: backward_twin,
    fast: Some(backward_fast),
    // As forward.
    tolerance: 5e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases: backward_cases,
}
.lean();

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len } = call.params();
    let function = Function::of_call(call);
    for (y, x) in outputs[0].iter_mut().zip(call.inputs[0]).take(index(len)) {
        *y = single(function.activate(f64::from(*x)));
    }
}

fn backward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len } = call.params();
    let function = Function::of_call(call);
    for (i, d_x) in outputs[0].iter_mut().enumerate().take(index(len)) {
        let (saved, dy) = (f64::from(call.inputs[0][i]), f64::from(call.inputs[1][i]));
        *d_x = single(dy * function.slope(saved));
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let len = index(call.params::<Params>().len);
    let (function, x) = (Function::of_call(call), call.inputs[0]);
    parallel::chunks(&mut outputs[0][..len], |first, y| {
        y.copy_from_slice(&x[first..first + y.len()]);
        function.activate_all(y);
    });
}

fn backward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let len = index(call.params::<Params>().len);
    let (function, saved, dy) = (Function::of_call(call), call.inputs[0], call.inputs[1]);
    parallel::chunks(&mut outputs[0][..len], |first, d_x| function.scale_all(d_x, &dy[first..], &saved[first..]));
}

fn forward_cases() -> Vec<Case> {
    let numbers = each_function(|case, function, len| case.input(domain(function, len, 20.0)).output(len));
    let broken = each_function(|case, _, len| case.input(broken(len)).output(len));
    numbers.into_iter().chain(broken.into_iter().map(|case| case.labelled("with NaN"))).collect()
}

fn backward_cases() -> Vec<Case> {
    let numbers = each_function(|case, function, len| {
        let mut saved = domain(function, len, 4.0).values(1);
        if !function.activation.slope_needs_input() {
            function.activate_all(&mut saved);
        }
        case.input(InputFill::Values(saved)).input(InputFill::Normal(len)).output(len)
    });
    // What follows a NaN has a gradient of NaN, too.
    let broken = each_function(|case, _, len| case.input(broken(len)).input(broken(len)).output(len));
    numbers.into_iter().chain(broken.into_iter().map(|case| case.labelled("with NaN"))).collect()
}

/// Numbers up to a size at which a function and its slope are finite.
fn domain(function: Function, len: usize, size: f32) -> InputFill {
    InputFill::Uniform(len, if PARTIAL.contains(&function.activation) { 0.01 } else { -size }, size)
}

/// Normal numbers with a NaN at every third place.
fn broken(len: usize) -> InputFill {
    let mut values = InputFill::Normal(len).values(1);
    values.iter_mut().step_by(3).for_each(|value| *value = f32::NAN);
    InputFill::Values(values)
}

fn each_function(buffers: impl Fn(Case, Function, usize) -> Case) -> Vec<Case> {
    let sizes = [1000, 63, 64, 65, 257, 70_001, 1];
    let case = |(function, len): (Function, u32)| {
        let label = format!("{:?} of {len}", function.activation);
        let case = Case::elements(label, Params { len }.words(), len.div_ceil(4));
        buffers(case.function(function), function, index(len))
    };
    // One element tells little of a function; that size is one of `None`.
    let last = sizes.len() - 1;
    let nothing = Function::plain(Activation::None);
    let all = Function::examples().chain(PARTIAL.map(Function::plain));
    let sized = all.zip(sizes[..last].iter().copied().cycle());
    // A factor of 0, which compilers fold.
    let zero = FunctionNumbers { slope: 0.0, offset: 0.5, ..FunctionNumbers::NONE };
    let zeros = [Activation::Affine, Activation::LeakyRelu].map(|activation| Function { activation, numbers: zero });
    sized.chain([(nothing, sizes[last])]).chain(zeros.map(|function| (function, 65))).map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backward_is_the_difference_quotient_of_forward() {
        let x: Vec<f32> = (-12i16..12).map(|i| f32::from(i) / 4.0 + 0.1).collect();
        let dy = vec![2.0; x.len()];
        let params = Params { len: 24 }.words();
        for function in Function::examples() {
            let constants: Vec<_> = function.constants().collect();
            let forward = |x: &[f32]| {
                let mut y = vec![0.0; x.len()];
                forward_twin(&Call { params: &params, constants: &constants, inputs: &[x] }, &mut [&mut y]);
                y
            };
            let saved = if function.activation.slope_needs_input() { x.clone() } else { forward(&x) };
            let mut d_x = vec![0.0; x.len()];
            backward_twin(&Call { params: &params, constants: &constants, inputs: &[&saved, &dy] }, &mut [&mut d_x]);
            let h = 1.0 / 64.0;
            let (up, down) = (x.iter().map(|x| x + h).collect::<Vec<_>>(), x.iter().map(|x| x - h).collect::<Vec<_>>());
            for ((d_x, up), down) in d_x.iter().zip(forward(&up)).zip(forward(&down)) {
                let (measured, tolerance) = ((up - down) / h, 1e-3 * (1.0 + d_x.abs()));
                assert!((d_x - measured).abs() < tolerance, "{function:?}: {d_x} {measured}");
            }
        }
    }
}
