//! Two-dimensional convolution and both its gradients, `shaders/conv2d*.wgsl`.

mod patches;
mod sizes;

use super::activation_functions::Activation;
use super::cases::{Case, Fill};
use super::parallel::Slabs;
use super::rounding::{float, index, single};
use super::text::wgsl;
use super::{Call, Kernel, Library};
use crate::size::{Grid, Word};

use sizes::Sizes;

pub use super::product::splits;
pub use sizes::{Params, Record};

/// `y = act(conv(x, w) + bias)`; `x [rows, in_h, in_w, in_c]`, `w [k_h, k_w, in_c, out_c]`.
///
/// Grid: [`Params::forward_grid`]. Constants: `ACTIVATION`, `SLOPE` (see [`Activation`]); `USE_BIAS` 0 leaves
/// `bias` unread.
pub static FORWARD: Kernel = Kernel {
    stem: "conv2d",
    entry: "forward",
    source: wgsl!("conv2d"),
    uses: &[Library::Product, Library::Activation, Library::Grid],
    params: Params::FIELDS,
    inputs: &["x", "w", "bias"],
    outputs: &["y"],
    workgroup: 64,
    constants: &["ACTIVATION", "SLOPE", "USE_BIAS"],
    twin: forward_twin,
    fast: Some(patches::forward),
    tolerance: TOLERANCE,
    #[cfg(not(target_arch = "wasm32"))]
    cases: forward_cases,
}
.lean();

/// The gradient with respect to `x`, from `dy [rows, out_h, out_w, out_c]`.
///
/// Grid: [`Params::backward_input_grid`].
pub static BACKWARD_INPUT: Kernel = Kernel {
    stem: "conv2d_backward_input",
    entry: "backward_input",
    source: wgsl!("conv2d_backward_input"),
    uses: &[Library::Product, Library::Grid],
    params: Params::FIELDS,
    inputs: &["dy", "w"],
    outputs: &["d_x"],
    workgroup: 64,
    constants: &[],
    twin: backward_input_twin,
    fast: Some(patches::backward_input),
    tolerance: TOLERANCE,
    #[cfg(not(target_arch = "wasm32"))]
    cases: backward_input_cases,
}
.lean();

/// The gradient with respect to `w`, as partial sums over parts of the pixels: `[splits, k_h k_w in_c, out_c]`.
///
/// Grid: [`Params::backward_weights_grid`].
pub static BACKWARD_WEIGHTS: Kernel = Kernel {
    stem: "conv2d_backward_weights",
    entry: "backward_weights",
    source: wgsl!("conv2d_backward_weights"),
    uses: &[Library::Product, Library::Grid],
    params: Params::FIELDS,
    inputs: &["x", "dy"],
    outputs: &["partials"],
    workgroup: 64,
    constants: &[],
    twin: backward_weights_twin,
    fast: Some(patches::backward_weights),
    tolerance: TOLERANCE,
    #[cfg(not(target_arch = "wasm32"))]
    cases: backward_weights_cases,
}
.lean();

/// The kernels of this file.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD_INPUT, &BACKWARD_WEIGHTS];

/// Rounding of f32 sums in any order, for sums of size 1 and up to 1100 terms; 3e-6 was measured.
const TOLERANCE: f32 = 1e-5;

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = Sizes::of_call(call);
    let (x, w, bias) = (call.inputs[0], call.inputs[1], call.inputs[2]);
    let activation = Activation::of_code(call.constant("ACTIVATION", 0.0));
    let use_bias = call.constant("USE_BIAS", 1.0) != 0.0;
    for pixel in 0..s.pixels() {
        let seen: Vec<Option<usize>> = (0..s.taps()).map(|tap| s.seen(s.at(pixel), tap)).collect();
        for co in 0..s.out_c {
            let mut sum = if use_bias { f64::from(bias[co]) } else { 0.0 };
            for (tap, place) in seen.iter().enumerate().filter_map(|(tap, place)| Some((tap, (*place)?))) {
                let term = |ci| f64::from(x[place + ci]) * f64::from(w[(tap * s.in_c + ci) * s.out_c + co]);
                sum += (0..s.in_c).map(term).sum::<f64>();
            }
            outputs[0][pixel * s.out_c + co] = single(activation.activate(call.constant("SLOPE", 0.0), sum));
        }
    }
}

fn backward_input_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = Sizes::of_call(call);
    let (dy, w) = (call.inputs[0], call.inputs[1]);
    let mut d_x = vec![0.0f64; s.rows * s.in_pixels() * s.in_c];
    for pixel in 0..s.pixels() {
        for (tap, place) in (0..s.taps()).filter_map(|tap| Some((tap, s.seen(s.at(pixel), tap)?))) {
            for ci in 0..s.in_c {
                let weights = &w[(tap * s.in_c + ci) * s.out_c..][..s.out_c];
                let terms = dy[pixel * s.out_c..].iter().zip(weights);
                d_x[place + ci] += terms.map(|(dy, w)| f64::from(*dy) * f64::from(*w)).sum::<f64>();
            }
        }
    }
    outputs[0].iter_mut().zip(&d_x).for_each(|(result, sum)| *result = single(*sum));
}

fn backward_weights_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = Sizes::of_call(call);
    let (x, dy) = (call.inputs[0], call.inputs[1]);
    let slabs = Slabs::new(s.pixels(), s.splits);
    for (place, result) in outputs[0].iter_mut().enumerate().take(s.splits * s.patch() * s.out_c) {
        let (co, line) = (place % s.out_c, place / s.out_c);
        let (ci, tap) = (line % s.in_c, line / s.in_c % s.taps());
        let term = |pixel| {
            let seen = s.seen(s.at(pixel), tap).map_or(0.0, |place| f64::from(x[place + ci]));
            seen * f64::from(dy[pixel * s.out_c + co])
        };
        *result = single(slabs.range(line / s.patch()).map(term).sum());
    }
}

/// Sizes of an input, kernel, strides and padding; the output follows.
fn sizes(rows: u32, input: [u32; 3], kernel: [u32; 3], stride: [u32; 2], pad: [[u32; 2]; 2]) -> Params {
    let [out_h, out_w] =
        [0, 1].map(|axis| (input[axis] + pad[axis][0] + pad[axis][1] - kernel[axis]) / stride[axis] + 1);
    let [in_h, in_w, in_c] = input;
    let [k_h, k_w, out_c] = kernel;
    let [stride_h, stride_w] = stride;
    let [pad_top, pad_left] = pad.map(|axis| axis[0]);
    #[rustfmt::skip]
    let params = Params {
        rows, in_h, in_w, in_c, out_h, out_w, out_c, k_h, k_w, stride_h, stride_w, pad_top, pad_left, splits: 1,
    };
    params
}

fn all_sizes() -> Vec<Params> {
    let same = [[1, 1]; 2];
    let none = [[0, 0]; 2];
    vec![
        sizes(1, [1, 1, 1], [1, 1, 1], [1, 1], none),
        sizes(3, [8, 8, 1], [3, 3, 5], [1, 1], same),
        sizes(2, [9, 7, 3], [3, 2, 65], [1, 1], none),
        sizes(5, [7, 9, 65], [1, 1, 63], [1, 1], none),
        sizes(2, [5, 6, 17], [1, 1, 64], [2, 2], none),
        // `same` with stride 2 and an even size: nothing above, one zero below.
        sizes(3, [8, 10, 16], [3, 3, 33], [2, 2], [[0, 1]; 2]),
        sizes(2, [11, 13, 4], [5, 3, 64], [3, 2], [[2, 2], [0, 1]]),
        // Strides longer than the kernel: some pixels are seen by none.
        sizes(2, [10, 9, 6], [2, 1, 7], [3, 4], none),
        // Padding beyond the kernel: some pixels see nothing.
        sizes(2, [3, 4, 5], [2, 2, 6], [1, 1], [[3, 2]; 2]),
        // A kernel larger than the image.
        sizes(4, [2, 3, 20], [5, 5, 9], [1, 1], [[2, 2]; 2]),
        sizes(1, [17, 16, 120], [3, 3, 70], [1, 1], same),
        // Channels in fours: narrow, wide, and with strides.
        sizes(3, [7, 6, 4], [3, 3, 12], [1, 1], same),
        sizes(2, [5, 9, 8], [3, 2, 68], [2, 1], same),
        sizes(2, [6, 5, 68], [1, 3, 8], [1, 2], none),
    ]
}

/// A case whose inputs are made of `normal` and `weights` values, the latter such that sums of `terms` have size 1.
fn case(p: Params, grid: Grid, [normal, weights, output]: [u32; 3], terms: u32) -> Case {
    let [height, width] = [p.k_h, p.k_w];
    let label = format!(
        "{} x {} x {} x {}, kernel {height} x {width} x {}, strides {} {}, {} splits",
        p.rows, p.in_h, p.in_w, p.in_c, p.out_c, p.stride_h, p.stride_w, p.splits
    );
    let bound = (3.0 / float(index(terms))).sqrt();
    Case::new(label, p.words(), grid)
        .input(Fill::Normal(index(normal)))
        .input(Fill::Uniform(index(weights), -bound, bound))
        .output(index(output))
}

/// Values in the input, the weights and the output.
fn lens(p: &Params) -> [u32; 3] {
    [p.rows * p.in_h * p.in_w * p.in_c, p.k_h * p.k_w * p.in_c * p.out_c, p.rows * p.out_h * p.out_w * p.out_c]
}

/// A case of [`FORWARD`]; without a bias, the weights are bound in its place.
fn forward_case(p: Params, activation: Activation, bias: Option<Fill>) -> Case {
    let mut case = case(p, p.forward_grid(|factor| Word::U32(p.rows * factor)), lens(&p), p.k_h * p.k_w * p.in_c)
        .constant("ACTIVATION", activation.code())
        .constant("SLOPE", 0.25);
    case.label += &format!(", {activation:?}");
    match bias {
        Some(bias) => case.input(bias),
        None => {
            case.label += ", no bias";
            let w = case.inputs[1].clone();
            case.constant("USE_BIAS", 0.0).input(w)
        }
    }
}

fn forward_cases() -> Vec<Case> {
    let bias = |p: &Params| Some(Fill::Normal(index(p.out_c)));
    let all = all_sizes();
    let mut cases: Vec<Case> = all.iter().map(|p| forward_case(*p, Activation::None, bias(p))).collect();
    cases.extend(all.iter().map(|p| forward_case(*p, Activation::LeakyRelu, None)));
    cases.extend(Activation::ALL.map(|activation| {
        let p = sizes(2, [6, 5, 2], [3, 3, 20], [1, 1], [[1, 1]; 2]);
        forward_case(p, activation, bias(&p))
    }));
    cases
}

fn backward_input_cases() -> Vec<Case> {
    let each = |p: Params| {
        let [input, weights, output] = lens(&p);
        let grid = p.backward_input_grid(|factor| Word::U32(p.rows * factor));
        case(p, grid, [output, weights, input], p.k_h * p.k_w * p.out_c)
    };
    all_sizes().into_iter().map(each).collect()
}

fn backward_weights_cases() -> Vec<Case> {
    let each = |p: Params| {
        let [input, weights, output] = lens(&p);
        let grid = p.backward_weights_grid(|factor| Word::U32(p.rows * factor));
        case(p, grid, [input, output, p.splits * weights], p.rows * p.out_h * p.out_w)
    };
    let splits = |splits| all_sizes().into_iter().map(move |p| each(Params { splits, ..p }));
    splits(1).chain(splits(8)).chain(splits(3)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Convolution written another way: over an image with its zeros written out.
    fn convolve(p: &Params, x: &[f32], w: &[f32]) -> Vec<f64> {
        let s = Sizes::of_call(&Call { params: &p.words(), constants: &[], inputs: &[] });
        let (high, wide) = (s.in_h + 2 * s.k_h, s.in_w + 2 * s.k_w);
        let mut y = Vec::new();
        for image in x.chunks(s.in_h * s.in_w * s.in_c) {
            let mut padded = vec![0.0; high * wide * s.in_c];
            for (line, values) in image.chunks(s.in_w * s.in_c).enumerate() {
                let at = ((line + s.pad_top) * wide + s.pad_left) * s.in_c;
                padded[at..at + values.len()].copy_from_slice(values);
            }
            for (oy, ox, co) in places(s.out_h, s.out_w, s.out_c) {
                let terms = places(s.k_h, s.k_w, s.in_c).map(|(kh, kw, ci)| {
                    let at = ((oy * s.stride_h + kh) * wide + ox * s.stride_w + kw) * s.in_c + ci;
                    f64::from(padded[at]) * f64::from(w[((kh * s.k_w + kw) * s.in_c + ci) * s.out_c + co])
                });
                y.push(terms.sum());
            }
        }
        y
    }

    fn places(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
    }

    /// Small sizes of every kind, for checks that take each value in turn.
    fn small_sizes() -> [Params; 5] {
        [
            sizes(2, [4, 5, 2], [3, 3, 3], [1, 1], [[1, 1]; 2]),
            sizes(2, [4, 6, 2], [3, 3, 2], [2, 2], [[0, 1]; 2]),
            sizes(1, [7, 5, 1], [2, 1, 2], [3, 2], [[0, 0]; 2]),
            sizes(2, [2, 3, 2], [5, 5, 1], [1, 1], [[2, 2]; 2]),
            sizes(3, [3, 3, 4], [1, 1, 2], [1, 1], [[0, 0]; 2]),
        ]
    }

    fn run(kernel: &Kernel, params: &Params, inputs: &[&[f32]], len: u32) -> Vec<f32> {
        let mut output = vec![9.0; index(len)];
        let call = Call { params: &params.words(), constants: &[("USE_BIAS", 0.0)], inputs };
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
            let (x, w) = (Fill::Normal(input).values(1), Fill::Normal(weights).values(2));
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
            let [x, w, dy] = [input, weights, output].map(|len| Fill::Normal(index(len)).values(u64::from(len)));
            let d_x: Vec<f64> = (0..input).map(|at| seen(convolve(&p, &unit(input, at), &w), &dy)).collect();
            assert_close(&run(&BACKWARD_INPUT, &p, &[&dy, &w], input), &d_x);
            let dw: Vec<f64> = (0..weights).map(|at| seen(convolve(&p, &x, &unit(weights, at)), &dy)).collect();
            assert_close(&run(&BACKWARD_WEIGHTS, &p, &[&x, &dy], weights), &dw);
            let split = Params { splits: 4, ..p };
            let partials = run(&BACKWARD_WEIGHTS, &split, &[&x, &dy], 4 * weights);
            let sums: Vec<f32> =
                (0..index(weights)).map(|at| (0..4).map(|part| partials[part * index(weights) + at]).sum()).collect();
            assert_close(&sums, &dw);
        }
    }

    /// A kernel large enough to be cut by taps, several blocks of patches, several tasks.
    #[test]
    fn large_convolutions_do_not_depend_on_how_they_are_cut() {
        let p = sizes(2, [14, 14, 300], [2, 2, 220], [1, 1], [[0, 1]; 2]);
        let [input, weights, output] = lens(&p);
        let pixels = p.rows * p.out_h * p.out_w;
        let cases = [
            (&FORWARD, forward_case(p, Activation::Relu, Some(Fill::Normal(220)))),
            (&BACKWARD_INPUT, case(p, Grid::Items(1.into()), [output, weights, input], 880)),
            (&BACKWARD_WEIGHTS, case(p, Grid::Items(1.into()), [input, output, weights], pixels)),
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
