//! The sizes at which several steps are tested.

use super::super::activation_functions::{Activation, Function};
use super::super::cases::{Case, InputFill};
use super::super::recurrent::NONE;
use super::super::rounding::{float, index};
use super::Params;

/// Rows and units: less than a workgroup has, some more, and the most units.
const SIZES: [[u32; 2]; 6] = [[1, 1], [3, 7], [9, 33], [17, 64], [8, 65], [5, 128]];

/// Many workgroups: a grid that is folded.
const FOLDED: [u32; 2] = [8_100, 1];

const STEPS: u32 = 7;

/// Steps of a case, whether states and gradients are given, and the constants that are 1: all, the first ones, the last
/// ones, and some between.
const PARTS: [([u32; 2], bool, &[&str]); 7] = [
    ([0, STEPS], false, &["MASKED"]),
    ([0, STEPS], true, &[]),
    ([0, 3], false, &["MASKED", "ZERO_OUTPUT", "HARD"]),
    ([3, 4], false, &["MASKED"]),
    ([2, 3], false, &[]),
    ([6, 1], true, &["MASKED", "ZERO_OUTPUT"]),
    ([0, 2], true, &["MASKED"]),
];

/// Every case of a kernel, with its buffers.
fn each(buffers: impl Fn(Case, &Params) -> Case) -> Vec<Case> {
    let all = SIZES.iter().flat_map(|size| (0..PARTS.len()).map(move |part| (*size, part)));
    all.chain([(FOLDED, 4)]).map(|(size, part)| case(size, part, &buffers)).collect()
}

fn case([rows, units]: [u32; 2], part: usize, buffers: &impl Fn(Case, &Params) -> Case) -> Case {
    let ([first, count], is_given, constants) = PARTS[part];
    let [go_backwards, y_in_order] = [u32::from(part % 2 == 1), u32::from(part / 2 % 2 == 1)];
    // The output of the last step alone, and those of all, within wider ones.
    let (y_width, of_outputs) = if part == 3 { (0, units + 9) } else { (units + 2, STEPS * (units + 2) + 5) };
    let (y_stride, cell_offset) = if is_given { (of_outputs + units, of_outputs) } else { (of_outputs, NONE) };
    let params = Params {
        rows,
        units,
        steps: STEPS,
        first,
        count,
        go_backwards,
        y_first: 1,
        y_width,
        y_stride,
        y_in_order,
        is_given: u32::from(is_given),
        cell_offset,
    };
    let label = format!("{rows} x {units}, {count} steps from {first} of {STEPS}, {constants:?}");
    let case = Case::elements(label, params.words(), 16 * rows).function(Function::plain(Activation::Tanh));
    buffers(constants.iter().fold(case, |case, name| case.constant(name, 1.0)), &params)
}

fn len(factors: &[u32]) -> usize {
    factors.iter().map(|factor| index(*factor)).product()
}

/// Weights of the state, such that products have the size of the states.
fn weights(p: &Params, gates: u32) -> InputFill {
    let bound = (3.0 / float(index(p.units))).sqrt();
    InputFill::Uniform(len(&[p.units, gates, p.units]), -bound, bound)
}

fn forward(case: Case, p: &Params, [gates, bias, width]: [u32; 3]) -> Case {
    case.input(weights(p, gates))
        .input(InputFill::Normal(len(&[bias, p.units])))
        .input(InputFill::Labels(len(&[p.rows, p.steps]), 2))
        .in_place(InputFill::Normal(len(&[p.rows, p.steps, width, p.units])))
        .in_place(InputFill::Normal(len(&[p.rows, p.steps, p.units])))
        .in_place(InputFill::Normal(len(&[p.rows, p.units])))
        .in_place(InputFill::Normal(len(&[p.rows, p.y_stride])))
}

pub(super) fn forward_lstm() -> Vec<Case> {
    each(|case, p| forward(case, p, [4, 4, 4]).in_place(InputFill::Normal(len(&[p.rows, p.steps, p.units]))))
}

pub(super) fn forward_gru() -> Vec<Case> {
    each(|case, p| forward(case, p, [3, 6, 6]))
}

fn backward(case: Case, p: &Params, [gates, width]: [u32; 2]) -> Case {
    // Like what forward leaves: between 0 and 1.
    case.input(weights(p, gates))
        .input(InputFill::Normal(len(&[p.rows, p.y_stride])))
        .input(InputFill::Labels(len(&[p.rows, p.steps]), 2))
        .input(InputFill::Normal(len(&[p.rows, p.steps, p.units])))
        .in_place(InputFill::Uniform(len(&[p.rows, p.steps, width, p.units]), 0.0, 1.0))
        .in_place(InputFill::Normal(len(&[p.rows, p.units])))
}

pub(super) fn backward_lstm() -> Vec<Case> {
    each(|case, p| backward(case, p, [4, 4]).in_place(InputFill::Normal(len(&[p.rows, p.units]))))
}

pub(super) fn backward_gru() -> Vec<Case> {
    each(|case, p| backward(case, p, [3, 6]))
}
