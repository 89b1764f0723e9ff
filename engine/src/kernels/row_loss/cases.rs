//! The cases of losses of rows.

use super::super::cases::{Case, InputFill};
use super::super::rounding::{float, index};
use super::Params;

pub(super) fn params([rows, cols, positions]: [u32; 3]) -> Params {
    Params { rows, cols, positions, scale: 0.25, smoothing: 0.125, alpha: 0.5, gamma: 2.5 }
}

fn case(params: Params, predictions: InputFill, targets: InputFill) -> Case {
    let Params { rows, cols, positions, .. } = params;
    let weights = (0..index(rows / positions)).map(|sample| float((sample + 1) % 3) * 0.75).collect();
    Case::rows(format!("{rows} x {cols}, {positions} positions"), params.words(), rows, cols)
        .input(predictions)
        .input(targets)
        .input(InputFill::Values(weights))
        .output(index(2 * rows))
        .output(index(rows * cols))
}

const SIZES: [[u32; 3]; 7] =
    [[1, 1, 1], [63, 2, 7], [64, 16, 1], [65, 17, 5], [257, 5, 1], [4, 1025, 2], [7001, 10, 1]];

fn sized(fills: fn(len: usize) -> [InputFill; 2]) -> Vec<Case> {
    let sized = |size: [u32; 3]| {
        let [predictions, targets] = fills(index(size[0] * size[1]));
        case(params(size), predictions, targets)
    };
    SIZES.into_iter().map(sized).collect()
}

/// Values of which every third is the same.
fn thirds(len: usize) -> InputFill {
    InputFill::Values((0..len).map(|at| float(at % 3)).collect())
}

pub(super) fn cosine() -> Vec<Case> {
    let mut cases = sized(|len| [InputFill::Normal(len), InputFill::Normal(len)]);
    let zero = InputFill::Values([vec![0.0; 3], vec![1.0, 2.0, 2.0]].concat());
    let other = InputFill::Values([vec![1.0, 2.0, 2.0], vec![0.0; 3]].concat());
    cases.push(case(params([2, 3, 1]), zero, other).labelled("vectors of length 0"));
    cases
}

pub(super) fn hinge() -> Vec<Case> {
    let mut cases = sized(|len| [InputFill::Normal(len), InputFill::Uniform(len, 0.0, 1.0)]);
    cases.push(case(params([2, 20, 1]), thirds(40), thirds(40)).labelled("ties in several lanes"));
    let at_zero = [vec![1.0, 2.0, 1.0], vec![9.0, 1.0, 0.0]].concat();
    let one_hot = InputFill::Values([vec![0.0, 1.0, 0.0], vec![1.0, 0.0, 0.0]].concat());
    let weighted = case(params([2, 3, 1]), InputFill::Values(at_zero), one_hot);
    cases.push(weighted.labelled("at 0 and below"));
    cases
}

pub(super) fn focal() -> Vec<Case> {
    let mut cases = sized(|len| [InputFill::Uniform(len, -8.0, 8.0), InputFill::Uniform(len, 0.0, 0.5)]);
    let far = InputFill::Values(vec![40.0, 0.0, -1.0, -30.0, 1.0, 30.0]);
    let one_hot = InputFill::Values(vec![0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    let sharp = Params { smoothing: 0.0, gamma: 1.0, ..params([2, 3, 1]) };
    cases.push(case(sharp, far, one_hot).labelled("sure of a wrong class and of the right one"));
    cases.push(case(params([2, 20, 1]), thirds(40), thirds(40)).labelled("ties in several lanes"));
    cases
}
