//! Softmax over the last axis, as a layer of its own.

use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::{index, single};
use super::vectors::{exponentiate, largest};
use super::{Call, Kernel, parallel};

crate::params! {
    /// Rows: all axes but the last, multiplied.
    rows: u32,
    /// Columns.
    cols: u32,
}

family!("softmax", [Grid, Reduce]);

/// WGSL grants exp(x) 3 + 2 |x| units in the last place, which counts where exp(x) is near 1.
const TOLERANCE: f32 = 5e-6;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD];

/// `x [rows, cols]` → `y [rows, cols]`, each row positive with sum 1.
///
/// The constant `LANES` is [`lanes`](super::lanes)`(cols)`. Grid: `Elements(rows * LANES)`.
pub static FORWARD: Kernel =
    kernel("forward", [&["x"], &["y"], &["LANES"]], (forward_twin, forward_fast), TOLERANCE, forward_cases);

/// `saved [rows, cols]`, the forward output, and `dy [rows, cols]` → `d_x [rows, cols]`.
///
/// The constant `LANES` is [`lanes`](super::lanes)`(cols)`. Grid: `Elements(rows * LANES)`.
pub static BACKWARD: Kernel = kernel(
    "backward",
    [&["saved", "dy"], &["d_x"], &["LANES"]],
    (backward_twin, backward_fast),
    TOLERANCE,
    backward_cases,
);

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, cols } = call.params();
    let cols = index(cols);
    let pairs = call.inputs[0].chunks_exact(cols).zip(outputs[0].chunks_exact_mut(cols));
    for (x, y) in pairs.take(index(rows)) {
        let shift = x.iter().copied().map(f64::from).fold(f64::from(-3.4e38f32), f64::max);
        let sum: f64 = x.iter().map(|x| (f64::from(*x) - shift).exp()).sum();
        y.iter_mut().zip(x).for_each(|(y, x)| *y = single((f64::from(*x) - shift).exp() / sum));
    }
}

fn backward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, cols } = call.params();
    let cols = index(cols);
    let inputs = call.inputs[0].chunks_exact(cols).zip(call.inputs[1].chunks_exact(cols));
    for ((y, dy), d_x) in inputs.zip(outputs[0].chunks_exact_mut(cols)).take(index(rows)) {
        let pairs = || y.iter().zip(dy).map(|(y, dy)| (f64::from(*y), f64::from(*dy)));
        let sum: f64 = pairs().map(|(y, dy)| y * dy).sum();
        d_x.iter_mut().zip(pairs()).for_each(|(d_x, (y, dy))| *d_x = single(y * (dy - sum)));
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, cols } = call.params();
    let (cols, len) = (index(cols), index(rows) * index(cols));
    let x = call.inputs[0];
    parallel::rows(&mut outputs[0][..len], cols, |first, y| {
        for (x, y) in x[first * cols..].chunks_exact(cols).zip(y.chunks_exact_mut(cols)) {
            y.copy_from_slice(x);
            let factor = 1.0 / exponentiate(y, largest(x, -3.4e38));
            y.iter_mut().for_each(|y| *y *= factor);
        }
    });
}

fn backward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, cols } = call.params();
    let (cols, len) = (index(cols), index(rows) * index(cols));
    let (y, dy) = (call.inputs[0], call.inputs[1]);
    parallel::rows(&mut outputs[0][..len], cols, |first, d_x| {
        let inputs = y[first * cols..].chunks_exact(cols).zip(dy[first * cols..].chunks_exact(cols));
        for ((y, dy), d_x) in inputs.zip(d_x.chunks_exact_mut(cols)) {
            let sum: f32 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
            d_x.iter_mut().zip(y.iter().zip(dy)).for_each(|(d_x, (y, dy))| *d_x = y * (dy - sum));
        }
    });
}

fn each_size(buffers: fn(Case, usize) -> Case) -> Vec<Case> {
    [(1, 1), (63, 10), (64, 15), (65, 16), (257, 17), (3, 257), (2, 4096), (7001, 10)]
        .map(|(rows, cols)| {
            let case = Case::rows(format!("{rows} x {cols}"), Params { rows, cols }.words(), rows, cols);
            buffers(case, index(rows * cols))
        })
        .into()
}

fn forward_cases() -> Vec<Case> {
    let mut cases = each_size(|case, len| case.input(InputFill::Uniform(len, -9.0, 9.0)).output(len));
    let mut large = cases[0].clone();
    large.label = "large logits".into();
    large.params = Params { rows: 2, cols: 3 }.words();
    large.grid = crate::size::Grid::Elements(2.into());
    large.inputs[0] = InputFill::Values(vec![3e38, -3e38, 3e38, 1e4, 1e4 + 1.0, 0.0]);
    large.outputs[0] = InputFill::Values(vec![7.0; 6]);
    cases.push(large);
    cases
}

fn backward_cases() -> Vec<Case> {
    each_size(|case, len| case.input(InputFill::Uniform(len, 0.0, 0.1)).input(InputFill::Normal(len)).output(len))
}

#[cfg(test)]
mod tests {
    use super::super::Twin;
    use super::*;

    fn run(twin: Twin, inputs: &[&[f32]]) -> [f32; 4] {
        let mut output = [9.0; 4];
        let call = Call { params: &Params { rows: 1, cols: 4 }.words(), constants: &[], inputs };
        twin(&call, &mut [&mut output]);
        output
    }

    #[test]
    fn logarithms_come_back_as_shares() {
        let x = [1f32, 2.0, 3.0, 4.0].map(f32::ln);
        for (y, expected) in run(forward_twin, &[&x]).iter().zip([0.1, 0.2, 0.3, 0.4]) {
            assert!((y - expected).abs() < 1e-6, "{y}");
        }
    }

    #[test]
    fn backward_is_the_difference_quotient_of_forward() {
        let (x, dy) = ([0.5, -1.0, 0.25, 2.0], [1.0, -2.0, 0.5, 3.0]);
        let loss = |x: &[f32]| run(forward_twin, &[x]).iter().zip(dy).map(|(y, dy)| y * dy).sum::<f32>();
        let d_x = run(backward_twin, &[&run(forward_twin, &[&x]), &dy]);
        for (i, told) in d_x.iter().enumerate() {
            let (mut up, mut down) = (x, x);
            (up[i], down[i]) = (up[i] + 0.015_625, down[i] - 0.015_625);
            let measured = (loss(&up) - loss(&down)) / 0.031_25;
            assert!((measured - told).abs() < 2e-4, "{i}: {measured} {told}");
        }
    }
}
