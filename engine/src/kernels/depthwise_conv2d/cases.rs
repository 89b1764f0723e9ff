//! The sizes at which depthwise convolution is tested.

use super::super::activation_functions::{Activation, Function};
use super::super::cases::{Case, InputFill};
use super::super::rounding::{float, index};
use super::Params;
use crate::size::{Grid, Word};

/// Geometry of one axis: input, window, stride, dilation, zeros before and after.
type AxisGeometry = [u32; 6];

fn sizes(rows: u32, channels: u32, multiplier: u32, [down, across]: [AxisGeometry; 2]) -> Params {
    let out = |[size, window, stride, dilation, before, after]: AxisGeometry| {
        (size + before + after - (window - 1) * dilation - 1) / stride + 1
    };
    Params {
        rows,
        in_h: down[0],
        in_w: across[0],
        channels,
        multiplier,
        out_h: out(down),
        out_w: out(across),
        k_h: down[1],
        k_w: across[1],
        stride_h: down[2],
        stride_w: across[2],
        dilation_h: down[3],
        dilation_w: across[3],
        pad_top: down[4],
        pad_left: across[4],
        splits: 1,
    }
}

/// Small sizes of every kind, for checks that take each value in turn.
pub(super) fn small_sizes() -> Vec<Params> {
    vec![
        sizes(2, 3, 1, [[4, 3, 1, 1, 1, 1], [5, 3, 1, 1, 1, 1]]),
        // `same` with stride 2 and an even size: nothing before, one zero behind.
        sizes(2, 2, 2, [[4, 3, 2, 1, 0, 1], [6, 3, 2, 1, 0, 1]]),
        sizes(1, 2, 1, [[7, 2, 3, 1, 0, 0], [5, 1, 2, 1, 0, 0]]),
        // A dilated window, with a stride that divides the dilation, and one that does not.
        sizes(2, 2, 1, [[9, 3, 2, 2, 1, 2], [8, 3, 2, 3, 3, 3]]),
        // A window larger than the image; strides longer than the window.
        sizes(2, 1, 3, [[2, 5, 1, 1, 2, 2], [3, 5, 1, 1, 2, 2]]),
        sizes(2, 2, 1, [[7, 1, 3, 1, 0, 0], [9, 2, 4, 1, 0, 0]]),
        // Padding beyond the window.
        sizes(1, 2, 1, [[3, 2, 1, 1, 3, 3], [4, 2, 1, 1, 2, 2]]),
    ]
}

fn all_sizes() -> Vec<Params> {
    let mut all = small_sizes();
    all.extend([
        sizes(1, 1, 1, [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0]]),
        sizes(3, 63, 1, [[6, 3, 1, 1, 1, 1], [7, 3, 1, 1, 1, 1]]),
        sizes(2, 64, 1, [[9, 3, 2, 1, 1, 1], [9, 3, 2, 1, 1, 1]]),
        sizes(2, 65, 1, [[7, 5, 1, 1, 2, 2], [9, 5, 1, 1, 2, 2]]),
        sizes(1, 257, 1, [[8, 7, 1, 1, 3, 3], [10, 7, 1, 1, 3, 3]]),
        // More weights across than an invocation takes.
        sizes(2, 20, 1, [[4, 2, 1, 1, 0, 0], [19, 11, 1, 1, 5, 5]]),
        sizes(2, 18, 4, [[8, 3, 1, 2, 2, 2], [12, 3, 1, 2, 2, 2]]),
        sizes(40, 2, 1, [[16, 3, 1, 1, 1, 1], [16, 3, 1, 1, 1, 1]]),
    ]);
    all
}

/// Sizes whose channels are fours: strips within the image, and at its edges.
fn sizes_in_fours() -> Vec<Params> {
    let mut all: Vec<Params> =
        small_sizes().iter().map(|p| Params { channels: 4 * p.channels, multiplier: 1, ..*p }).collect();
    all.extend(all_sizes().into_iter().filter(|p| p.in_fours().is_some()));
    all.extend([
        sizes(3, 12, 1, [[6, 3, 1, 1, 1, 1], [14, 3, 1, 1, 1, 1]]),
        sizes(2, 8, 1, [[9, 3, 2, 1, 1, 1], [21, 3, 2, 1, 1, 1]]),
        sizes(1, 260, 1, [[8, 7, 1, 1, 3, 3], [19, 7, 1, 1, 3, 3]]),
        sizes(1, 4, 1, [[5, 3, 1, 2, 2, 2], [17, 3, 1, 2, 2, 2]]),
        // As in EfficientNet and ConvNeXt.
        sizes(2, 8, 1, [[8, 5, 2, 1, 2, 2], [14, 5, 2, 1, 2, 2]]),
        sizes(1, 8, 1, [[8, 7, 1, 1, 3, 3], [14, 7, 1, 1, 3, 3]]),
    ]);
    all
}

/// Values in the input, the weights and the output.
pub(super) fn lens(p: &Params) -> [u32; 3] {
    let all = p.channels * p.multiplier;
    [p.rows * p.in_h * p.in_w * p.channels, p.k_h * p.k_w * all, p.rows * p.out_h * p.out_w * all]
}

/// A case whose inputs are made of `normal` and `weights` values, the latter such that sums of `terms` have size 1.
fn case(p: Params, grid: Grid, [normal, weights, output]: [u32; 3], terms: u32) -> Case {
    let label = format!(
        "{} x {} x {} x {} x {}, window {} x {}, strides {} {}, dilation {} {}, {} splits",
        p.rows,
        p.in_h,
        p.in_w,
        p.channels,
        p.multiplier,
        p.k_h,
        p.k_w,
        p.stride_h,
        p.stride_w,
        p.dilation_h,
        p.dilation_w,
        p.splits
    );
    let bound = (3.0 / float(index(terms))).sqrt();
    Case::new(label, p.words(), grid)
        .input(InputFill::Normal(index(normal)))
        .input(InputFill::Uniform(index(weights), -bound, bound))
        .output(index(output))
}

fn rows_of(p: &Params) -> impl Fn(u32) -> Word + use<> {
    let rows = p.rows;
    move |factor| Word::U32(rows * factor)
}

/// A case of forward; without a bias, the weights are bound in its place.
fn forward_case(p: Params, function: Function, bias: Option<InputFill>) -> Case {
    let case = case(p, p.forward_grid(rows_of(&p)), lens(&p), p.k_h * p.k_w)
        .function(function)
        .labelled(&format!("{:?}", function.activation));
    match bias {
        Some(bias) => case.input(bias),
        None => {
            let w = case.inputs[1].clone();
            case.constant("USE_BIAS", 0.0).input(w).labelled("no bias")
        }
    }
}

pub(super) fn forward() -> Vec<Case> {
    let bias = |p: &Params| Some(InputFill::Normal(index(p.channels * p.multiplier)));
    let all = all_sizes();
    let mut cases: Vec<Case> =
        all.iter().map(|p| forward_case(*p, Function::plain(Activation::None), bias(p))).collect();
    cases.extend(all.iter().map(|p| forward_case(*p, Function::sloped(Activation::LeakyRelu, 0.25), None)));
    let others = Function::examples().filter(|function| function.activation != Activation::None);
    cases.extend(others.map(|function| forward_case(all[0], function, bias(&all[0]))));
    // So many lines that the grid is folded.
    let p = sizes(2100, 64, 1, [[32, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0]]);
    cases.push(forward_case(p, Function::plain(Activation::None), bias(&p)));
    cases
}

/// A case with the constants and the grid of fours.
fn in_fours(case: Case, p: &Params, grid: impl Fn(&Params) -> Grid) -> Case {
    let grid = p.in_fours().map_or(case.grid, |fours| grid(&fours));
    p.of_fours().into_iter().fold(Case { grid, ..case }, |case, (name, value)| case.constant(name, value))
}

pub(in super::super) fn forward_fours() -> Vec<Case> {
    let bias = |p: &Params| InputFill::Normal(index(p.channels));
    let each = |p: Params, function: Function, bias: Option<InputFill>| {
        in_fours(forward_case(p, function, bias), &p, |fours| fours.forward_grid(rows_of(&p)))
    };
    let all = sizes_in_fours();
    let mut cases: Vec<Case> = all.iter().map(|p| each(*p, Function::plain(Activation::None), Some(bias(p)))).collect();
    cases.extend(all.iter().map(|p| each(*p, Function::sloped(Activation::LeakyRelu, 0.25), None)));
    // So many lines that the grid is folded.
    let p = sizes(2100, 64, 1, [[32, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0]]);
    cases.push(each(p, Function::plain(Activation::None), Some(bias(&p))));
    cases
}

pub(in super::super) fn backward_input_fours() -> Vec<Case> {
    let each = |p: Params| {
        let [input, weights, output] = lens(&p);
        let grid = p.backward_input_grid(rows_of(&p));
        let case = case(p, grid, [output, weights, input], p.k_h * p.k_w);
        in_fours(case, &p, |fours| fours.backward_input_grid(rows_of(&p)))
    };
    sizes_in_fours().into_iter().map(each).collect()
}

pub(super) fn backward_input() -> Vec<Case> {
    let each = |p: Params| {
        let [input, weights, output] = lens(&p);
        case(p, p.backward_input_grid(rows_of(&p)), [output, weights, input], p.k_h * p.k_w * p.multiplier)
    };
    all_sizes().into_iter().map(each).collect()
}

fn backward_weights_case(p: Params) -> Case {
    let [input, weights, output] = lens(&p);
    let terms = p.rows * p.out_h * p.out_w;
    let case = case(p, p.backward_weights_grid(), [input, output, p.splits * weights], terms);
    case.constant("ACROSS", f64::from(p.across()))
}

pub(in super::super) fn backward_weights_fours() -> Vec<Case> {
    let each = |p: Params| in_fours(backward_weights_case(p), &p, Params::backward_weights_grid);
    let splits = |splits| sizes_in_fours().into_iter().map(move |p| each(Params { splits, ..p }));
    splits(1).chain(splits(5)).collect()
}

pub(super) fn backward_weights() -> Vec<Case> {
    let splits = |splits| all_sizes().into_iter().map(move |p| backward_weights_case(Params { splits, ..p }));
    splits(1).chain(splits(5)).collect()
}
