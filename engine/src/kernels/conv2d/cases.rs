//! The sizes at which convolution is tested.

use super::super::activation_functions::{Activation, Function};
use super::super::cases::{Case, InputFill};
use super::super::rounding::{float, index};
use super::{ConvForm, Params};
use crate::size::{Grid, Word};

/// A convolution: its sizes, and its groups and gaps.
pub(super) type Geometry = (Params, ConvForm);

/// Sizes of an input, kernel, strides and padding; the output follows.
pub(super) fn sizes(rows: u32, input: [u32; 3], kernel: [u32; 3], stride: [u32; 2], pad: [[u32; 2]; 2]) -> Geometry {
    formed(rows, input, kernel, stride, pad, ConvForm::PLAIN)
}

/// [`sizes`] of a convolution with groups and gaps.
fn formed(
    rows: u32,
    input: [u32; 3],
    kernel: [u32; 3],
    stride: [u32; 2],
    pad: [[u32; 2]; 2],
    form: ConvForm,
) -> Geometry {
    let [out_h, out_w] = [0, 1].map(|axis| {
        let spread = (kernel[axis] - 1) * form.dilation[axis] + 1;
        (input[axis] + pad[axis][0] + pad[axis][1] - spread) / stride[axis] + 1
    });
    let [in_h, in_w, in_c] = input;
    let [k_h, k_w, out_c] = kernel;
    let [stride_h, stride_w] = stride;
    let [pad_top, pad_left] = pad.map(|axis| axis[0]);
    #[rustfmt::skip]
    let params = Params {
        rows, in_h, in_w, in_c, out_h, out_w, out_c, k_h, k_w, stride_h, stride_w, pad_top, pad_left, splits: 1,
    };
    (params, form)
}

fn groups(groups: u32) -> ConvForm {
    ConvForm { groups, ..ConvForm::PLAIN }
}

fn dilated(groups: u32, dilation: [u32; 2]) -> ConvForm {
    ConvForm { groups, dilation }
}

/// Small sizes of every kind, for checks that take each value in turn.
#[cfg(test)]
pub(super) fn small_sizes() -> Vec<Geometry> {
    vec![
        sizes(2, [4, 5, 2], [3, 3, 3], [1, 1], [[1, 1]; 2]),
        sizes(2, [4, 6, 2], [3, 3, 2], [2, 2], [[0, 1]; 2]),
        sizes(1, [7, 5, 1], [2, 1, 2], [3, 2], [[0, 0]; 2]),
        sizes(2, [2, 3, 2], [5, 5, 1], [1, 1], [[2, 2]; 2]),
        sizes(3, [3, 3, 4], [1, 1, 2], [1, 1], [[0, 0]; 2]),
        formed(2, [4, 5, 4], [3, 2, 6], [2, 1], [[1, 1]; 2], groups(2)),
        formed(2, [3, 3, 6], [1, 1, 3], [1, 1], [[0, 0]; 2], groups(3)),
        formed(1, [7, 6, 2], [3, 2, 2], [1, 1], [[2, 1]; 2], dilated(1, [2, 3])),
        formed(1, [5, 7, 4], [2, 3, 2], [2, 1], [[0, 0], [2, 2]], dilated(2, [1, 2])),
    ]
}

fn all_sizes() -> Vec<Geometry> {
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
        // Groups: of odd sizes, in fours, with strides, and of one channel each.
        formed(2, [5, 6, 6], [3, 3, 10], [1, 1], same, groups(2)),
        formed(2, [7, 5, 24], [3, 2, 36], [2, 1], same, groups(3)),
        formed(3, [6, 6, 16], [1, 1, 8], [1, 1], none, groups(2)),
        formed(2, [5, 5, 5], [3, 3, 10], [2, 2], same, groups(5)),
        // Gaps: alone, across a stride, and with groups.
        formed(2, [9, 8, 4], [3, 3, 12], [1, 1], [[2, 2]; 2], dilated(1, [2, 2])),
        formed(1, [12, 9, 3], [2, 3, 7], [1, 2], [[1, 0]; 2], dilated(1, [5, 1])),
        formed(2, [8, 9, 8], [3, 3, 8], [1, 1], [[2, 2], [3, 3]], dilated(2, [2, 3])),
    ]
}

/// Sizes whose sums are split: even parts and ones that end early, 1 × 1, with strides, groups and gaps, more parts than terms.
fn split_sizes() -> impl Iterator<Item = Geometry> {
    let same = [[1, 1]; 2];
    let split = [
        (sizes(2, [5, 5, 68], [1, 1, 70], [1, 1], [[0, 0]; 2]), 4),
        (sizes(1, [7, 6, 48], [3, 3, 64], [1, 1], same), 8),
        (sizes(3, [8, 9, 16], [3, 3, 33], [2, 2], [[0, 1]; 2]), 3),
        (formed(2, [7, 5, 24], [3, 2, 36], [2, 1], same, groups(3)), 2),
        (formed(1, [8, 9, 8], [3, 3, 8], [1, 1], [[2, 2], [3, 3]], dilated(2, [2, 3])), 4),
        (sizes(2, [3, 3, 2], [1, 1, 3], [1, 1], [[0, 0]; 2]), 8),
    ];
    split.into_iter().map(|((p, form), splits)| (Params { splits, ..p }, form))
}

/// Sizes at which factors are rounded to halves: channels one by one and in fours, groups, strides, 1 × 1.
fn halves_sizes() -> Vec<Geometry> {
    vec![
        sizes(2, [9, 7, 3], [3, 2, 65], [1, 1], [[0, 0]; 2]),
        sizes(3, [7, 6, 4], [3, 3, 12], [1, 1], [[1, 1]; 2]),
        sizes(2, [5, 9, 8], [3, 2, 68], [2, 1], [[1, 1]; 2]),
        formed(2, [7, 5, 24], [3, 2, 36], [2, 1], [[1, 1]; 2], groups(3)),
        sizes(5, [7, 9, 68], [1, 1, 64], [1, 1], [[0, 0]; 2]),
    ]
}

/// A case whose inputs are made of `normal` and `weights` values, the latter such that sums of `terms` have size 1.
pub(super) fn case((p, form): Geometry, grid: Grid, [normal, weights, output]: [u32; 3], terms: u32) -> Case {
    let [height, width] = [p.k_h, p.k_w];
    let label = format!(
        "{} x {} x {} x {}, kernel {height} x {width} x {}, strides {} {}, {} splits, {form:?}",
        p.rows, p.in_h, p.in_w, p.in_c, p.out_c, p.stride_h, p.stride_w, p.splits
    );
    let bound = (3.0 / float(index(terms))).sqrt();
    let mut case = Case::new(label, p.words(), grid)
        .input(InputFill::Normal(index(normal)))
        .input(InputFill::Uniform(index(weights), -bound, bound))
        .output(index(output));
    case.constants.extend(form.constants());
    case
}

fn rows_of(p: &Params) -> impl Fn(u32) -> Word + use<> {
    let rows = p.rows;
    move |factor| Word::U32(rows * factor)
}

/// Values in the input, the weights and the output.
pub(super) fn lens((p, form): &Geometry) -> [u32; 3] {
    let weights = p.k_h * p.k_w * p.in_c / form.groups * p.out_c;
    [p.rows * p.in_h * p.in_w * p.in_c, weights, p.rows * p.out_h * p.out_w * p.out_c]
}

/// Adds an activation, and a bias for `channels` results; without one, the weights are bound in its place.
fn finished(case: Case, function: Function, channels: u32, use_bias: f64) -> Case {
    let bias = if use_bias > 0.0 { InputFill::Normal(index(channels)) } else { case.inputs[1].clone() };
    let case = case.function(function).constant("USE_BIAS", use_bias).input(bias);
    case.labelled(&format!("{:?}, USE_BIAS {use_bias}", function.activation))
}

pub(super) fn forward_case(geometry: Geometry, function: Function, use_bias: f64) -> Case {
    let (p, form) = geometry;
    let terms = p.k_h * p.k_w * p.in_c / form.groups;
    let [input, weights, output] = lens(&geometry);
    let case = case(geometry, p.forward_grid(form, rows_of(&p)), [input, weights, p.splits * output], terms);
    finished(case, function, p.out_c, use_bias)
}

pub(super) fn forward() -> Vec<Case> {
    let all = all_sizes();
    let mut cases: Vec<Case> = all.iter().map(|p| forward_case(*p, Function::plain(Activation::None), 1.0)).collect();
    cases.extend(all.iter().map(|p| forward_case(*p, Function::sloped(Activation::LeakyRelu, 0.25), 0.0)));
    cases.extend(Function::few_examples().map(|function| {
        let p = sizes(2, [6, 5, 2], [3, 3, 20], [1, 1], [[1, 1]; 2]);
        forward_case(p, function, 1.0)
    }));
    let halves = halves_sizes().into_iter();
    cases.extend(halves.map(|p| forward_case(p, Function::plain(Activation::None), 1.0).halves()));
    cases.extend(split_sizes().map(|p| forward_case(p, Function::plain(Activation::None), 0.0)));
    cases
}

pub(super) fn backward_input_case(geometry: Geometry) -> Case {
    let (p, form) = geometry;
    let [input, weights, output] = lens(&geometry);
    let grid = p.backward_input_grid(form, rows_of(&p));
    case(geometry, grid, [output, weights, p.splits * input], p.k_h * p.k_w * p.out_c / form.groups)
}

pub(super) fn backward_input() -> Vec<Case> {
    let all = all_sizes();
    // A gradient leaves the bias away without a word.
    let gradient = |geometry: &Geometry| {
        let case = backward_input_case(*geometry);
        let bias = case.inputs[1].clone();
        case.input(bias)
    };
    let mut cases: Vec<Case> = all.iter().map(gradient).collect();
    // Transposed convolutions: with a bias and an activation.
    let functions: Vec<Function> = Function::few_examples().collect();
    cases.extend(
        all.iter()
            .zip(functions.into_iter().cycle())
            .map(|(p, function)| finished(backward_input_case(*p), function, p.0.in_c, 1.0)),
    );
    cases.extend(halves_sizes().iter().map(|p| gradient(p).halves()));
    cases.extend(split_sizes().map(|p| gradient(&p)));
    cases
}

pub(super) fn backward_weights_case(geometry: Geometry) -> Case {
    let (p, form) = geometry;
    let [input, weights, output] = lens(&geometry);
    let grid = p.backward_weights_grid(form, rows_of(&p));
    case(geometry, grid, [input, output, p.splits * weights], p.rows * p.out_h * p.out_w)
}

pub(super) fn backward_weights() -> Vec<Case> {
    let splits = |splits| {
        let all = all_sizes().into_iter();
        all.map(move |(p, form)| backward_weights_case((Params { splits, ..p }, form)))
    };
    let halves = halves_sizes().into_iter().map(|p| backward_weights_case(p).halves());
    splits(1).chain(splits(8)).chain(splits(3)).chain(halves).collect()
}
