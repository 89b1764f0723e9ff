//! Two-dimensional convolution and both its gradients, `shaders/conv2d*.wgsl`.

mod cases;
mod patches;
mod sizes;

use super::activation_functions::Function;
use super::parallel::Slabs;
use super::product::{HALF_FACTORS, unsplit, with_factors};
use super::rounding::single;
use super::text::wgsl;
use super::{Call, Kernel, Library};

use sizes::ConvSizes;

pub use super::product::splits;
pub use sizes::{ConvForm, Params, Record};

/// Constants of the convolution and of its gradient by the inputs, which is the transposed convolution, too.
const CONSTANTS: &[&str] =
    &["ACTIVATION", "SLOPE", "OFFSET", "LIMIT", "USE_BIAS", "GROUPS", "DILATION_H", "DILATION_W", HALF_FACTORS];

/// `y = act(conv(x, w) + bias)`; `x [rows, in_h, in_w, in_c]`, `w [k_h, k_w, in_c / groups, out_c]`. With several splits, partial sums over
/// parts of a patch, `[splits, rows, out_h, out_w, out_c]`, for [`split_sum`](super::split_sum).
///
/// Grid: [`Params::forward_grid`]. Constants: those of [`ConvForm`] and of [`Function`]; `USE_BIAS` 0 leaves `bias` unread.
pub static FORWARD: Kernel = Kernel {
    stem: "conv2d",
    entry: "forward",
    source: wgsl!("conv2d"),
    uses: &[Library::Product, Library::Activation, Library::Grid],
    params: Params::FIELDS,
    inputs: &["x", "w", "bias"],
    outputs: &["y"],
    workgroup: 64,
    constants: CONSTANTS,
    twin: |call, outputs| with_factors(call, outputs, forward_twin),
    fast: Some(|call, outputs| with_factors(call, outputs, forward_fast)),
    tolerance: TOLERANCE,
    #[cfg(not(target_arch = "wasm32"))]
    cases: cases::forward,
}
.lean();

/// The gradient with respect to `x`, from `dy [rows, out_h, out_w, out_c]`; with `USE_BIAS` 1, which adds `bias [in_c]`, the
/// transposed convolution of `dy`. With several splits, partial sums as of [`FORWARD`].
///
/// Grid: [`Params::backward_input_grid`]. Constants: those of [`ConvForm`] and of [`Function`]; `USE_BIAS`, 0 unless set: then
/// `bias` is not read, and may be any buffer.
pub static BACKWARD_INPUT: Kernel = Kernel {
    stem: "conv2d_backward_input",
    entry: "backward_input",
    source: wgsl!("conv2d_backward_input"),
    uses: &[Library::Product, Library::Activation, Library::Grid],
    params: Params::FIELDS,
    inputs: &["dy", "w", "bias"],
    outputs: &["d_x"],
    workgroup: 64,
    constants: CONSTANTS,
    twin: |call, outputs| with_factors(call, outputs, backward_input_twin),
    fast: Some(|call, outputs| with_factors(call, outputs, backward_input_fast)),
    tolerance: TOLERANCE,
    #[cfg(not(target_arch = "wasm32"))]
    cases: cases::backward_input,
}
.lean();

/// The gradient with respect to `w`, as partial sums over parts of the pixels:
/// `[splits, k_h k_w in_c / groups, out_c]`.
///
/// Grid: [`Params::backward_weights_grid`]. Constants: those of [`ConvForm`].
pub static BACKWARD_WEIGHTS: Kernel = Kernel {
    stem: "conv2d_backward_weights",
    entry: "backward_weights",
    source: wgsl!("conv2d_backward_weights"),
    uses: &[Library::Product, Library::Grid],
    params: Params::FIELDS,
    inputs: &["x", "dy"],
    outputs: &["partials"],
    workgroup: 64,
    constants: &["GROUPS", "DILATION_H", "DILATION_W", HALF_FACTORS],
    twin: |call, outputs| with_factors(call, outputs, backward_weights_twin),
    fast: Some(|call, outputs| with_factors(call, outputs, patches::backward_weights)),
    tolerance: TOLERANCE,
    #[cfg(not(target_arch = "wasm32"))]
    cases: cases::backward_weights,
}
.lean();

/// The kernels of this file.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD_INPUT, &BACKWARD_WEIGHTS];

/// Rounding of f32 sums in any order, for sums of size 1 and up to 1100 terms; 3e-6 was measured.
const TOLERANCE: f32 = 1e-5;

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    unsplit(call, outputs, [patches::forward, forward_twin]);
}

fn backward_input_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    unsplit(call, outputs, [patches::backward_input, backward_input_twin]);
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = ConvSizes::of_call(call);
    let (x, w, bias) = (call.inputs[0], call.inputs[1], call.inputs[2]);
    let function = Function::of_call(call);
    let use_bias = call.constant("USE_BIAS", 1.0) != 0.0;
    let slabs = Slabs::new(s.patch(), s.splits);
    for pixel in 0..s.pixels() {
        let seen: Vec<Option<usize>> = (0..s.taps()).map(|tap| s.seen(s.at(pixel), tap)).collect();
        for co in 0..s.out_c {
            let first = co / s.group_out() * s.group_in();
            let bias = if use_bias { f64::from(bias[co]) } else { 0.0 };
            let term = |at: usize| {
                let seen = seen[at / s.group_in()].map_or(0.0, |place| f64::from(x[place + first + at % s.group_in()]));
                seen * f64::from(w[at * s.out_c + co])
            };
            for split in 0..s.splits {
                let sum: f64 = slabs.range(split).map(term).sum();
                outputs[0][(split * s.pixels() + pixel) * s.out_c + co] = single(function.activate(sum + bias));
            }
        }
    }
}

fn backward_input_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = ConvSizes::of_call(call);
    let (dy, w, bias) = (call.inputs[0], call.inputs[1], call.inputs[2]);
    let function = Function::of_call(call);
    let use_bias = call.constant("USE_BIAS", 0.0) != 0.0;
    let len = s.rows * s.in_pixels() * s.in_c;
    let mut d_x = vec![0.0f64; s.splits * len];
    for pixel in 0..s.pixels() {
        for (tap, place) in (0..s.taps()).filter_map(|tap| Some((tap, s.seen(s.at(pixel), tap)?))) {
            for ci in 0..s.in_c {
                let filters = ci / s.group_in() * s.group_out()..(ci / s.group_in() + 1) * s.group_out();
                let weights = &w[(tap * s.group_in() + ci % s.group_in()) * s.out_c..][filters.clone()];
                for (filter, (dy, w)) in dy[pixel * s.out_c..][filters].iter().zip(weights).enumerate() {
                    d_x[s.part_of_input(tap, filter) * len + place + ci] += f64::from(*dy) * f64::from(*w);
                }
            }
        }
    }
    for (at, (result, sum)) in outputs[0].iter_mut().zip(&d_x).enumerate() {
        let sum = if use_bias { sum + f64::from(bias[at % s.in_c]) } else { *sum };
        *result = single(function.activate(sum));
    }
}

fn backward_weights_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = ConvSizes::of_call(call);
    let (x, dy) = (call.inputs[0], call.inputs[1]);
    let slabs = Slabs::new(s.pixels(), s.splits);
    for (place, result) in outputs[0].iter_mut().enumerate().take(s.splits * s.patch() * s.out_c) {
        let (co, line) = (place % s.out_c, place / s.out_c);
        let (ci, tap) = (line % s.group_in(), line / s.group_in() % s.taps());
        let channel = co / s.group_out() * s.group_in() + ci;
        let term = |pixel| {
            let seen = s.seen(s.at(pixel), tap).map_or(0.0, |place| f64::from(x[place + channel]));
            seen * f64::from(dy[pixel * s.out_c + co])
        };
        *result = single(slabs.range(line / s.patch()).map(term).sum());
    }
}

#[cfg(test)]
mod tests {
    use super::super::activation_functions::Activation;
    use super::super::cases::InputFill;
    use super::super::rounding::{float, index};
    use super::cases::{Geometry, lens, small_sizes};
    use super::*;

    /// Convolution written another way: over an image with its zeros written out.
    fn convolve((p, form): &Geometry, x: &[f32], w: &[f32]) -> Vec<f64> {
        let constants: Vec<_> = form.constants().collect();
        let s = ConvSizes::of_call(&Call { params: &p.words(), constants: &constants, inputs: &[] });
        let (high, wide) = (s.in_h + 2 * s.k_h * s.dilation[0], s.in_w + 2 * s.k_w * s.dilation[1]);
        let mut y = Vec::new();
        for image in x.chunks(s.in_h * s.in_w * s.in_c) {
            let mut padded = vec![0.0; high * wide * s.in_c];
            for (line, values) in image.chunks(s.in_w * s.in_c).enumerate() {
                let at = ((line + s.pad_top) * wide + s.pad_left) * s.in_c;
                padded[at..at + values.len()].copy_from_slice(values);
            }
            for (oy, ox, co) in places(s.out_h, s.out_w, s.out_c) {
                // Of each group of filters, the channels of the group.
                let (channels, filters) = (s.in_c / s.groups, s.out_c / s.groups);
                let terms = places(s.k_h, s.k_w, channels).map(|(kh, kw, ci)| {
                    let [iy, ix] = [oy * s.stride_h + kh * s.dilation[0], ox * s.stride_w + kw * s.dilation[1]];
                    let at = (iy * wide + ix) * s.in_c + co / filters * channels + ci;
                    f64::from(padded[at]) * f64::from(w[((kh * s.k_w + kw) * channels + ci) * s.out_c + co])
                });
                y.push(terms.sum());
            }
        }
        y
    }

    fn places(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
    }

    fn run(kernel: &Kernel, (params, form): &Geometry, inputs: &[&[f32]], len: u32) -> Vec<f32> {
        let mut output = vec![9.0; index(len)];
        let constants: Vec<_> = form.constants().chain([("USE_BIAS", 0.0)]).collect();
        let call = Call { params: &params.words(), constants: &constants, inputs };
        (kernel.twin)(&call, &mut [&mut output]);
        output
    }

    fn assert_close(got: &[f32], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{got} {expected}");
        }
    }

    #[test]
    fn forward_is_convolution() {
        for p in small_sizes() {
            let [input, weights, output] = lens(&p).map(index);
            let (x, w) = (InputFill::Normal(input).values(1), InputFill::Normal(weights).values(2));
            assert_close(&run(&FORWARD, &p, &[&x, &w, &[]], lens(&p)[2]), &convolve(&p, &x, &w));
            assert_eq!(convolve(&p, &x, &w).len(), output);
        }
    }

    /// Convolution is linear in `x` and in `w`: a gradient's value is what `dy` sees of one unit.
    #[test]
    fn gradients_are_those_of_convolution() {
        let seen = |y: Vec<f64>, dy: &[f32]| y.iter().zip(dy).map(|(y, dy)| y * f64::from(*dy)).sum::<f64>();
        let unit = |len: u32, at: u32| (0..len).map(|i| float(usize::from(i == at))).collect::<Vec<f32>>();
        for p in small_sizes() {
            let [input, weights, output] = lens(&p);
            let [x, w, dy] = [input, weights, output].map(|len| InputFill::Normal(index(len)).values(u64::from(len)));
            let d_x: Vec<f64> = (0..input).map(|at| seen(convolve(&p, &unit(input, at), &w), &dy)).collect();
            assert_close(&run(&BACKWARD_INPUT, &p, &[&dy, &w, &[]], input), &d_x);
            let dw: Vec<f64> = (0..weights).map(|at| seen(convolve(&p, &x, &unit(weights, at)), &dy)).collect();
            assert_close(&run(&BACKWARD_WEIGHTS, &p, &[&x, &dy], weights), &dw);
            let split = (Params { splits: 4, ..p.0 }, p.1);
            let partials = run(&BACKWARD_WEIGHTS, &split, &[&x, &dy], 4 * weights);
            let sums: Vec<f32> =
                (0..index(weights)).map(|at| (0..4).map(|part| partials[part * index(weights) + at]).sum()).collect();
            assert_close(&sums, &dw);
        }
    }

    /// A kernel large enough to be cut by taps, several blocks of patches, several tasks.
    #[test]
    fn large_convolutions_do_not_depend_on_how_they_are_cut() {
        let p = cases::sizes(2, [14, 14, 300], [2, 2, 220], [1, 1], [[0, 1]; 2]);
        let input = cases::backward_input_case(p);
        let bias = input.inputs[1].clone();
        let cases = [
            (&FORWARD, cases::forward_case(p, Function::plain(Activation::Relu), 1.0)),
            (&BACKWARD_INPUT, input.input(bias)),
            (&BACKWARD_WEIGHTS, cases::backward_weights_case(p)),
        ];
        for (kernel, case) in cases {
            let threads = |count| rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap();
            let fast = kernel.fast.unwrap();
            let one = threads(1).install(|| case.run(fast));
            assert_eq!(one, threads(3).install(|| case.run(fast)));
            super::super::cases::compare(kernel, &case, &one, &case.run(kernel.twin)).unwrap();
        }
    }
}
