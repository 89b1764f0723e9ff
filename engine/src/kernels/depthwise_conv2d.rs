//! Depthwise convolution and both its gradients: each channel has windows of its own, and no sum is over channels.
//!
//! Weights are `[k_h, k_w, channels, multiplier]`; output channel `c * multiplier + m` is seen through weight `m` of
//! channel `c`. These kernels wait for memory, so they are no matrix products.

pub(super) mod cases;
pub(super) mod fast;
mod sizes;

use super::activation_functions::Function;
use super::family::family;
use super::parallel::Slabs;
use super::rounding::single;
use super::{Call, Kernel};
use sizes::DepthwiseSizes;

pub use sizes::{Params, Record, splits};

family!("depthwise_conv2d", [Grid, Activation, Depthwise]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD_INPUT, &BACKWARD_WEIGHTS];

/// `y = act(x through the windows w + bias)`; `x [rows, in_h, in_w, channels]`, `w [k_h, k_w, channels, multiplier]`.
///
/// Constants: those of [`Function`]; `USE_BIAS` 0 leaves `bias` unread. Grid: [`Params::forward_grid`].
pub static FORWARD: Kernel = kernel(
    "forward",
    [&["x", "w", "bias"], &["y"], &["ACTIVATION", "SLOPE", "OFFSET", "LIMIT", "USE_BIAS"]],
    (forward_twin, fast::forward),
    // Sums of up to 49 terms, and the activation.
    1e-5,
    cases::forward,
);

/// The gradient with respect to `x`, from `slopes`, which is dy `[rows, out_h, out_w, channels * multiplier]`.
///
/// Grid: [`Params::backward_input_grid`].
pub static BACKWARD_INPUT: Kernel = kernel(
    "backward_input",
    [&["slopes", "w"], &["d_x"], &[]],
    (backward_input_twin, fast::backward_input),
    1e-5,
    cases::backward_input,
);

/// The gradient with respect to `w`, as partial sums over slabs of lines: `[splits, k_h k_w, channels * multiplier]`.
///
/// Constant `ACROSS`: [`Params::across`]. Grid: [`Params::backward_weights_grid`].
pub static BACKWARD_WEIGHTS: Kernel = kernel(
    "backward_weights",
    [&["x", "dy"], &["partials"], &["ACROSS"]],
    (backward_weights_twin, fast::backward_weights),
    // Sums of up to 4096 terms, line by line.
    5e-5,
    cases::backward_weights,
);

pub(super) fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DepthwiseSizes::of_call(call);
    let [x, w, bias] = [0, 1, 2].map(|input: usize| call.inputs[input]);
    let function = Function::of_call(call);
    let use_bias = call.constant("USE_BIAS", 1.0) != 0.0;
    for pixel in 0..s.rows * s.out_h * s.out_w {
        for o in 0..s.all() {
            let mut sum = if use_bias { f64::from(bias[o]) } else { 0.0 };
            for (tap, place) in s.seen(pixel) {
                sum += f64::from(x[place + o / s.multiplier]) * f64::from(w[tap * s.all() + o]);
            }
            outputs[0][pixel * s.all() + o] = single(function.activate(sum));
        }
    }
}

pub(super) fn backward_input_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DepthwiseSizes::of_call(call);
    let (dy, w) = (call.inputs[0], call.inputs[1]);
    let mut d_x = vec![0.0f64; s.rows * s.in_h * s.in_w * s.channels];
    for pixel in 0..s.rows * s.out_h * s.out_w {
        for (tap, place) in s.seen(pixel) {
            for o in 0..s.all() {
                d_x[place + o / s.multiplier] += f64::from(dy[pixel * s.all() + o]) * f64::from(w[tap * s.all() + o]);
            }
        }
    }
    outputs[0].iter_mut().zip(&d_x).for_each(|(result, sum)| *result = single(*sum));
}

pub(super) fn backward_weights_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DepthwiseSizes::of_call(call);
    let (x, dy) = (call.inputs[0], call.inputs[1]);
    let slabs = Slabs::new(s.rows * s.out_h, s.splits);
    for split in 0..s.splits {
        let mut sums = vec![0.0f64; s.taps() * s.all()];
        let lines = slabs.range(split);
        for pixel in lines.start * s.out_w..lines.end * s.out_w {
            for (tap, place) in s.seen(pixel) {
                for o in 0..s.all() {
                    sums[tap * s.all() + o] +=
                        f64::from(dy[pixel * s.all() + o]) * f64::from(x[place + o / s.multiplier]);
                }
            }
        }
        let partials = outputs[0][split * sums.len()..].iter_mut();
        partials.zip(&sums).for_each(|(result, sum)| *result = single(*sum));
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::InputFill;
    use super::super::rounding::{float, index};
    use super::*;

    /// Depthwise convolution written another way: each channel alone, over an image with its zeros written out.
    fn convolve(p: &Params, x: &[f32], w: &[f32]) -> Vec<f64> {
        let s = DepthwiseSizes::of_call(&Call { params: &p.words(), constants: &[], inputs: &[] });
        let (high, wide) = (s.in_h + 4 * s.k_h * s.dilation[0], s.in_w + 4 * s.k_w * s.dilation[1]);
        let mut y = Vec::new();
        for (row, oy, ox, c, m) in places([s.rows, s.out_h, s.out_w, s.channels, s.multiplier]) {
            let mut padded = vec![0.0; high * wide];
            for (iy, ix) in (0..s.in_h).flat_map(|iy| (0..s.in_w).map(move |ix| (iy, ix))) {
                let value = x[((row * s.in_h + iy) * s.in_w + ix) * s.channels + c];
                padded[(iy + s.pad[0]) * wide + ix + s.pad[1]] = f64::from(value);
            }
            let terms = (0..s.taps()).map(|tap| {
                let iy = oy * s.stride[0] + tap / s.k_w * s.dilation[0];
                let ix = ox * s.stride[1] + tap % s.k_w * s.dilation[1];
                padded[iy * wide + ix] * f64::from(w[(tap * s.channels + c) * s.multiplier + m])
            });
            y.push(terms.sum());
        }
        y
    }

    fn places([a, b, c, d, e]: [usize; 5]) -> impl Iterator<Item = (usize, usize, usize, usize, usize)> {
        let count = a * b * c * d * e;
        (0..count).map(move |i| (i / (b * c * d * e), i / (c * d * e) % b, i / (d * e) % c, i / e % d, i % e))
    }

    fn run(kernel: &Kernel, params: &Params, inputs: &[&[f32]], len: usize) -> Vec<f32> {
        let mut output = vec![9.0; len];
        (kernel.twin)(&Call { params: &params.words(), constants: &[("USE_BIAS", 0.0)], inputs }, &mut [&mut output]);
        output
    }

    fn assert_close(got: &[f32], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{got} {expected}");
        }
    }

    /// The kernel is linear in `x` and in `w`: a gradient is the product of `dy` with the result for one unit.
    #[test]
    fn twins_are_depthwise_convolution_and_its_gradients() {
        let seen = |y: Vec<f64>, dy: &[f32]| y.iter().zip(dy).map(|(y, dy)| y * f64::from(*dy)).sum::<f64>();
        let unit = |len: usize, at: usize| (0..len).map(|i| float(usize::from(i == at))).collect::<Vec<f32>>();
        for p in cases::small_sizes() {
            let [input, weights, output] = cases::lens(&p).map(index);
            let [x, w, dy] = [input, weights, output].map(|len| InputFill::Normal(len).values(len as u64));
            assert_close(&run(&FORWARD, &p, &[&x, &w, &[]], output), &convolve(&p, &x, &w));
            let d_x: Vec<f64> = (0..input).map(|at| seen(convolve(&p, &unit(input, at), &w), &dy)).collect();
            assert_close(&run(&BACKWARD_INPUT, &p, &[&dy, &w], input), &d_x);
            let dw: Vec<f64> = (0..weights).map(|at| seen(convolve(&p, &x, &unit(weights, at)), &dy)).collect();
            for splits in [1, 4] {
                let partials = run(&BACKWARD_WEIGHTS, &Params { splits, ..p }, &[&x, &dy], index(splits) * weights);
                let sums: Vec<f32> = (0..weights).map(|at| partials[at..].iter().step_by(weights).sum()).collect();
                assert_close(&sums, &dw);
            }
        }
    }
}
