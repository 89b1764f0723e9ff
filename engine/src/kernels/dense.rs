//! The densely connected layer: its product and both gradients, `shaders/dense*.wgsl`.

use ndarray::{ArrayView2, s};

use super::activation_functions::{Activation, Function};
use super::cases::{Case, InputFill};
use super::parallel::Slabs;
use super::product::{
    Epilogue, HALF_FACTORS, for_each_chunk, matrix, matrix_mut, multiply, multiply_here, unsplit, with_factors,
};
use super::rounding::{float, index, single};
use super::text::wgsl;
use super::{Call, Kernel, Library};
use crate::size::Grid;

pub use super::product::splits;

crate::params! {
    /// Rows of the result.
    m: u32,
    /// Columns of the result.
    n: u32,
    /// Terms of each sum.
    k: u32,
    /// First element of the first input.
    a_offset: u32,
    /// Elements from row to row of the first input.
    a_stride: u32,
    /// First element of the second input.
    b_offset: u32,
    /// Elements from row to row of the second input.
    b_stride: u32,
    /// First element of the output.
    y_offset: u32,
    /// Elements from row to row of the output.
    y_stride: u32,
    /// Parts into which each sum is split.
    splits: u32,
}

impl Record {
    /// The grid of a product whose sums are not split.
    pub fn grid(&self) -> Grid {
        self.split_grid(1)
    }

    /// The grid of one whose sums are split into so many parts.
    pub fn split_grid(&self, splits: u32) -> Grid {
        Grid::Tiles { m: self.m, n: self.n, k: self.k, depth: splits }
    }
}

impl Params {
    /// These sizes as a layer records them.
    pub fn record(&self) -> Record {
        Record {
            m: self.m.into(),
            n: self.n.into(),
            k: self.k.into(),
            a_offset: self.a_offset.into(),
            a_stride: self.a_stride.into(),
            b_offset: self.b_offset.into(),
            b_stride: self.b_stride.into(),
            y_offset: self.y_offset.into(),
            y_stride: self.y_stride.into(),
            splits: self.splits.into(),
        }
    }
}

/// `y = act(x w + bias)`; with several splits, partial sums over parts of the terms, `[splits, m, n]`, for
/// [`split_sum`](super::split_sum).
///
/// Constants: those of [`Function`]; `USE_BIAS` 0 leaves `bias` unread.
pub static FORWARD: Kernel = Kernel {
    stem: "dense",
    entry: "forward",
    source: wgsl!("dense"),
    uses: &[Library::Product, Library::Activation, Library::Grid],
    params: Params::FIELDS,
    inputs: &["x", "w", "bias"],
    outputs: &["y"],
    workgroup: 64,
    constants: &["ACTIVATION", "SLOPE", "OFFSET", "LIMIT", "USE_BIAS", HALF_FACTORS],
    twin: |call, outputs| with_factors(call, outputs, forward_twin),
    fast: Some(|call, outputs| with_factors(call, outputs, forward_fast)),
    tolerance: TOLERANCE,
    #[cfg(not(target_arch = "wasm32"))]
    cases: forward_cases,
}
.lean();

/// `d_x = dy wᵀ`; with several splits, partial sums as of [`FORWARD`].
pub static BACKWARD_INPUT: Kernel = Kernel {
    stem: "dense_backward_input",
    entry: "backward_input",
    source: wgsl!("dense_backward_input"),
    uses: &[Library::Product, Library::Grid],
    params: Params::FIELDS,
    inputs: &["dy", "w"],
    outputs: &["d_x"],
    workgroup: 64,
    constants: &[HALF_FACTORS],
    twin: |call, outputs| with_factors(call, outputs, backward_input_twin),
    fast: Some(|call, outputs| with_factors(call, outputs, backward_input_fast)),
    tolerance: TOLERANCE,
    #[cfg(not(target_arch = "wasm32"))]
    cases: backward_input_cases,
}
.lean();

/// `dw = xᵀ dy`, as partial sums over parts of the rows: `[splits, m, n]`.
pub static BACKWARD_WEIGHTS: Kernel = Kernel {
    stem: "dense_backward_weights",
    entry: "backward_weights",
    source: wgsl!("dense_backward_weights"),
    uses: &[Library::Product, Library::Grid],
    params: Params::FIELDS,
    inputs: &["x", "dy"],
    outputs: &["partials"],
    workgroup: 64,
    constants: &[HALF_FACTORS],
    twin: |call, outputs| with_factors(call, outputs, backward_weights_twin),
    fast: Some(|call, outputs| with_factors(call, outputs, backward_weights_fast)),
    tolerance: TOLERANCE,
    #[cfg(not(target_arch = "wasm32"))]
    cases: backward_weights_cases,
}
.lean();

/// The kernels of this file.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD_INPUT, &BACKWARD_WEIGHTS];

/// Rounding of f32 sums in any order, for sums of size 1 and the `k ≤ 1100` of the cases; 3e-6 was measured.
const TOLERANCE: f32 = 1e-5;

/// [`Params`] with plain sizes.
struct DenseSizes {
    m: usize,
    n: usize,
    k: usize,
    a_offset: usize,
    a_stride: usize,
    b_offset: usize,
    b_stride: usize,
    y_offset: usize,
    y_stride: usize,
    splits: usize,
}

impl DenseSizes {
    fn of_call(call: &Call<'_>) -> Self {
        let p: Params = call.params();
        Self {
            m: index(p.m),
            n: index(p.n),
            k: index(p.k),
            a_offset: index(p.a_offset),
            a_stride: index(p.a_stride),
            b_offset: index(p.b_offset),
            b_stride: index(p.b_stride),
            y_offset: index(p.y_offset),
            y_stride: index(p.y_stride),
            splits: index(p.splits),
        }
    }

    /// The first input as `rows` rows of `columns`.
    fn a<'a>(&self, call: &Call<'a>, rows: usize, columns: usize) -> ArrayView2<'a, f32> {
        matrix(&call.inputs[0][self.a_offset..], rows, columns, self.a_stride)
    }

    /// The second input as `rows` rows of `columns`.
    fn b<'a>(&self, call: &Call<'a>, rows: usize, columns: usize) -> ArrayView2<'a, f32> {
        matrix(&call.inputs[1][self.b_offset..], rows, columns, self.b_stride)
    }
}

impl DenseSizes {
    /// The parts of the sum of a result, and the place of each.
    fn sums(&self, row: usize, column: usize, term: impl Fn(usize) -> f64) -> impl Iterator<Item = (f64, usize)> {
        let slabs = Slabs::new(self.k, self.splits);
        (0..self.splits).map(move |split| {
            let at = self.y_offset + (split * self.m + row) * self.y_stride + column;
            (slabs.range(split).map(&term).sum(), at)
        })
    }
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DenseSizes::of_call(call);
    let (x, w, bias) = (call.inputs[0], call.inputs[1], call.inputs[2]);
    let function = Function::of_call(call);
    let use_bias = call.constant("USE_BIAS", 1.0) != 0.0;
    for row in 0..s.m {
        for column in 0..s.n {
            let term = |k| {
                f64::from(x[s.a_offset + row * s.a_stride + k]) * f64::from(w[s.b_offset + k * s.b_stride + column])
            };
            let bias = if use_bias { f64::from(bias[column]) } else { 0.0 };
            for (sum, at) in s.sums(row, column, term) {
                outputs[0][at] = single(function.activate(sum + bias));
            }
        }
    }
}

fn backward_input_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DenseSizes::of_call(call);
    let (dy, w) = (call.inputs[0], call.inputs[1]);
    for row in 0..s.m {
        for column in 0..s.n {
            let term = |k| {
                f64::from(dy[s.a_offset + row * s.a_stride + k]) * f64::from(w[s.b_offset + column * s.b_stride + k])
            };
            for (sum, at) in s.sums(row, column, term) {
                outputs[0][at] = single(sum);
            }
        }
    }
}

fn backward_weights_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DenseSizes::of_call(call);
    let (x, dy) = (call.inputs[0], call.inputs[1]);
    for row in 0..s.m {
        for column in 0..s.n {
            let term = |r| {
                f64::from(x[s.a_offset + r * s.a_stride + row]) * f64::from(dy[s.b_offset + r * s.b_stride + column])
            };
            for (sum, at) in s.sums(row, column, term) {
                outputs[0][at] = single(sum);
            }
        }
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    unsplit(call, outputs, [forward_at_once, forward_twin]);
}

fn forward_at_once(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DenseSizes::of_call(call);
    let y = matrix_mut(&mut outputs[0][s.y_offset..], s.m, s.n, s.y_stride);
    let epilogue = Epilogue::of_call(call, call.inputs[2], s.n);
    multiply(s.a(call, s.m, s.k), s.b(call, s.k, s.n), y, epilogue);
}

fn backward_input_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    unsplit(call, outputs, [backward_input_at_once, backward_input_twin]);
}

fn backward_input_at_once(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DenseSizes::of_call(call);
    let d_x = matrix_mut(&mut outputs[0][s.y_offset..], s.m, s.n, s.y_stride);
    multiply(s.a(call, s.m, s.k), s.b(call, s.n, s.k).reversed_axes(), d_x, Epilogue::NONE);
}

fn backward_weights_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DenseSizes::of_call(call);
    let (x, dy) = (s.a(call, s.k, s.m), s.b(call, s.k, s.n));
    if s.splits == 1 {
        let dw = matrix_mut(&mut outputs[0][s.y_offset..], s.m, s.n, s.y_stride);
        return multiply(x.reversed_axes(), dy, dw, Epilogue::NONE);
    }
    // The last split may end before its stride does.
    let len = (s.splits * s.m - 1) * s.y_stride + s.n;
    let partials = &mut outputs[0][s.y_offset..s.y_offset + len];
    for_each_chunk(partials, s.m * s.y_stride, s.m * s.n * s.k, |split, partial| {
        let rows = Slabs::new(s.k, s.splits).range(split);
        let partial = matrix_mut(partial, s.m, s.n, s.y_stride);
        let (x, dy) = (x.slice(s![rows.clone(), ..]), dy.slice(s![rows, ..]));
        multiply_here(&x.reversed_axes(), &dy, partial, Epilogue::NONE);
    });
}

/// Awkward sizes `[m, n, k]`: around a tile, one long sum, one result.
const SIZES: [[u32; 3]; 11] = [
    [1, 1, 1],
    [1, 63, 65],
    [5, 10, 64],
    [64, 64, 64],
    [65, 257, 63],
    [257, 65, 1],
    [63, 1, 257],
    [130, 67, 1100],
    [4, 4, 4],
    [68, 132, 64],
    [12, 36, 1100],
];

/// Sizes at which factors are rounded to halves: loaded one by one, in fours, and for a narrow result.
const HALVES: [[u32; 3]; 4] = [[65, 257, 63], [68, 132, 64], [12, 36, 1100], [5, 10, 64]];

/// Sizes `[m, n, k]`, and parts of each sum: even ones, ones that end early, more than there are terms.
const SPLIT: [[u32; 4]; 4] = [[65, 70, 1100, 4], [64, 128, 256, 2], [5, 10, 130, 8], [3, 65, 3, 8]];

/// Factors whose rounding differs: in the middle between two halves of either kind, below the least, near the largest. `w` is large, so that
/// small ones count.
fn special_halves() -> Case {
    let x = [1.0 + 2f32.powi(-11), 1.0 + 3.0 * 2f32.powi(-11), 65_519.0, -65_504.0, 1e-4, 6.1e-5, -6e-5, 1e-7, 3e-8];
    let x: Vec<f32> = x.into_iter().chain([2.9e-8, -1e-9, 0.0, 2f32.powi(-14) - 2f32.powi(-26)]).collect();
    let w = vec![1.0, 2048.0, 16_384.0];
    let p = packed([u32::try_from(x.len()).unwrap_or_default(), 3, 1], 1, 3);
    let mut case = forward_case(p, Function::plain(Activation::None), None).halves().labelled("special");
    (case.inputs[0], case.inputs[1]) = (InputFill::Values(x), InputFill::Values(w));
    case
}

/// A product without gaps, for inputs of `a_stride` and `b_stride` columns.
fn packed([m, n, k]: [u32; 3], a_stride: u32, b_stride: u32) -> Params {
    Params { m, n, k, a_offset: 0, a_stride, b_offset: 0, b_stride, y_offset: 0, y_stride: n, splits: 1 }
}

/// A product on slices of larger matrices.
fn sliced(p: Params) -> Params {
    Params {
        a_offset: 3,
        a_stride: p.a_stride + 5,
        b_offset: 7,
        b_stride: p.b_stride + 1,
        y_offset: 2,
        y_stride: p.y_stride + 9,
        ..p
    }
}

/// A case of a product whose inputs have `a` and `b` rows and columns.
fn case(p: Params, grid: Grid, a: [u32; 2], b: [u32; 2]) -> Case {
    let len = |offset: u32, [rows, columns]: [u32; 2], stride: u32| index(offset + (rows - 1) * stride + columns);
    // Sums of variance 1, as initial weights give them: else cancellation hides what rounding does.
    let bound = (3.0 / float(index(p.k))).sqrt();
    let label = format!("{} x {} x {}, {} splits, row strides {} {}", p.m, p.n, p.k, p.splits, p.a_stride, p.b_stride);
    Case::new(label, p.words(), grid)
        .input(InputFill::Normal(len(p.a_offset, a, p.a_stride)))
        .input(InputFill::Uniform(len(p.b_offset, b, p.b_stride), -bound, bound))
        .output(len(p.y_offset, [p.splits * p.m, p.n], p.y_stride))
}

/// A case of [`FORWARD`]; without a bias, the weights are bound in its place.
fn forward_case(p: Params, function: Function, bias: Option<InputFill>) -> Case {
    let grid = p.record().split_grid(p.splits);
    let mut case = case(p, grid, [p.m, p.k], [p.k, p.n]).function(function);
    case.label += &format!(", {:?}", function.activation);
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
    let sizes = SIZES.map(|[m, n, k]| packed([m, n, k], k, n));
    let mut cases: Vec<Case> =
        sizes.map(|p| forward_case(p, Function::plain(Activation::None), Some(InputFill::Normal(index(p.n))))).into();
    cases.extend(sizes.map(|p| forward_case(sliced(p), Function::plain(Activation::None), None)));
    let small = packed([33, 70, 9], 9, 70);
    cases.extend(Function::few_examples().map(|function| forward_case(small, function, Some(InputFill::Normal(70)))));
    let halves = HALVES.map(|[m, n, k]| packed([m, n, k], k, n));
    cases.extend(
        halves
            .map(|p| forward_case(p, Function::plain(Activation::Relu), Some(InputFill::Normal(index(p.n)))).halves()),
    );
    cases.extend(halves.map(|p| forward_case(sliced(p), Function::plain(Activation::None), None).halves()));
    cases.push(special_halves());
    cases.extend(SPLIT.map(|[m, n, k, splits]| {
        forward_case(Params { splits, ..packed([m, n, k], k, n) }, Function::plain(Activation::None), None)
    }));
    cases
}

fn backward_input_cases() -> Vec<Case> {
    let sizes = SIZES.map(|[m, n, k]| packed([m, n, k], k, k));
    let each = |p: Params| case(p, p.record().split_grid(p.splits), [p.m, p.k], [p.n, p.k]);
    let halves = HALVES.map(|[m, n, k]| each(packed([m, n, k], k, k)).halves());
    let split = SPLIT.map(|[m, n, k, splits]| each(Params { splits, ..packed([m, n, k], k, k) }));
    sizes.iter().flat_map(|p| [each(*p), each(sliced(*p))]).chain(halves).chain(split).collect()
}

fn backward_weights_cases() -> Vec<Case> {
    let sizes = SIZES.map(|[m, n, k]| packed([m, n, k], m, n));
    let each = |p: Params| case(p, p.record().split_grid(p.splits), [p.k, p.m], [p.k, p.n]);
    let splits = |p: Params, splits| each(Params { splits, ..p });
    let halves = HALVES.map(|[m, n, k]| splits(packed([m, n, k], m, n), 2).halves());
    sizes.iter().flat_map(|p| [each(*p), splits(*p, 8), splits(sliced(*p), 3)]).chain(halves).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of a kernel's twin and of its fast version.
    fn both(kernel: &Kernel, p: Params, constants: &[(&'static str, f64)], inputs: &[&[f32]], len: usize) -> Vec<f32> {
        let run = |twin: super::super::Twin| {
            let mut output = vec![0.0; len];
            twin(&Call { params: &p.words(), constants, inputs }, &mut [&mut output]);
            output
        };
        let (twin, fast) = (run(kernel.twin), run(kernel.fast.unwrap()));
        assert_eq!(twin, fast);
        twin
    }

    /// Whole numbers, worked by hand.
    #[test]
    fn small_products_are_right() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let w = [1.0, -1.0, 0.0, 2.0, -2.0, 1.0];
        let y = both(&FORWARD, packed([2, 2, 3], 3, 2), &[], &[&x, &w, &[1.0, -20.0]], 4);
        assert_eq!(y, [-4.0, -14.0, -7.0, -8.0]);
        let constants = [("ACTIVATION", 2.0), ("SLOPE", 0.5), ("USE_BIAS", 0.0)];
        let y = both(&FORWARD, packed([2, 2, 3], 3, 2), &constants, &[&x, &w, &w], 4);
        assert_eq!(y, [-2.5, 6.0, -4.0, 12.0]);
        let dy = [1.0, 2.0, 3.0, 4.0];
        let d_x = both(&BACKWARD_INPUT, packed([2, 3, 2], 2, 2), &[], &[&dy, &w], 6);
        assert_eq!(d_x, [-1.0, 4.0, 0.0, -1.0, 8.0, -2.0]);
        let dw = both(&BACKWARD_WEIGHTS, packed([3, 2, 2], 3, 2), &[], &[&x, &dy], 6);
        assert_eq!(dw, [13.0, 18.0, 17.0, 24.0, 21.0, 30.0]);
        let p = Params { splits: 4, ..packed([3, 2, 2], 3, 2) };
        let partials = both(&BACKWARD_WEIGHTS, p, &[], &[&x, &dy], 24);
        assert_eq!(partials[..12], [1.0, 2.0, 2.0, 4.0, 3.0, 6.0, 12.0, 16.0, 15.0, 20.0, 18.0, 24.0]);
        assert_eq!(partials[12..], [0.0; 12]);
    }

    /// Tasks cut in both directions give the bits of the whole.
    #[test]
    fn large_products_do_not_depend_on_how_they_are_cut() {
        for [m, n, k] in [[300, 130, 260], [130, 300, 260]] {
            let case = forward_case(
                packed([m, n, k], k, n),
                Function::plain(Activation::Relu),
                Some(InputFill::Normal(index(n))),
            );
            let threads = |count| rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap();
            let one = threads(1).install(|| case.run(forward_fast));
            assert_eq!(one, threads(3).install(|| case.run(forward_fast)));
            super::super::cases::compare(&FORWARD, &case, &one, &case.run(forward_twin)).unwrap();
        }
    }
}
