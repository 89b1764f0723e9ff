//! The cases of pointwise losses: sizes for one of them, and values in and at the ends of their ranges for each.

use super::super::cases::{Case, InputFill};
use super::super::rounding::{float, index};
use super::{Params, PointwiseFunction};

/// Rows, columns and positions, with settings that each function sees.
pub(super) fn params([rows, cols, positions]: [u32; 3], scale: f32) -> Params {
    Params { rows, cols, positions, scale, smoothing: 0.125, delta: 0.75, gamma: 2.5, positive: 0.25, negative: 0.75 }
}

/// Predictions and targets in the range of a function.
fn fills(function: PointwiseFunction, len: usize) -> [InputFill; 2] {
    let signs = |low: f32| InputFill::Values((0..len).map(|at| if at * at % 7 < 3 { low } else { 1.0 }).collect());
    match function {
        PointwiseFunction::Poisson => [InputFill::Uniform(len, 0.05, 4.0), InputFill::Labels(len, 5)],
        PointwiseFunction::KlDivergence => [InputFill::Uniform(len, -0.1, 1.1), InputFill::Uniform(len, 0.0, 1.0)],
        PointwiseFunction::Hinge => [InputFill::Uniform(len, -2.0, 2.0), signs(-1.0)],
        PointwiseFunction::SquaredHinge => [InputFill::Uniform(len, -2.0, 2.0), signs(0.0)],
        PointwiseFunction::BinaryCrossentropy => {
            [InputFill::Uniform(len, -30.0, 30.0), InputFill::Uniform(len, 0.0, 1.0)]
        }
        PointwiseFunction::BinaryFocalCrossentropy => {
            [InputFill::Uniform(len, -20.0, 20.0), InputFill::Uniform(len, 0.0, 1.0)]
        }
        _ => [InputFill::Normal(len), InputFill::Normal(len)],
    }
}

fn case(function: PointwiseFunction, params: Params, [predictions, targets]: [InputFill; 2]) -> Case {
    let Params { rows, cols, positions, .. } = params;
    let weights = (0..index(rows / positions)).map(|sample| float((sample + 1) % 3) * 0.75).collect();
    Case::rows(format!("{function:?}, {rows} x {cols}, {positions} positions"), params.words(), rows, cols)
        .constant("LOSS", function.code())
        .input(predictions)
        .input(targets)
        .input(InputFill::Values(weights))
        .output(index(2 * rows))
        .output(index(rows * cols))
}

fn sized(function: PointwiseFunction, [rows, cols, positions]: [u32; 3]) -> Case {
    case(function, params([rows, cols, positions], 0.25), fills(function, index(rows * cols)))
}

/// Predictions where two slopes meet, and predictions far from their targets.
fn ends(function: PointwiseFunction) -> Case {
    let predictions = vec![0.0, 1.0, -1.0, 0.75, 1.5, 40.0, 0.5, 2e-8];
    let targets = vec![0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0];
    let pairs = [InputFill::Values(predictions), InputFill::Values(targets)];
    let params = Params { smoothing: 0.0, gamma: 1.0, ..params([1, 8, 1], 1.0) };
    let pairs = if function == PointwiseFunction::Poisson { fills(function, 8) } else { pairs };
    case(function, params, pairs).labelled("ends")
}

pub(super) fn forward() -> Vec<Case> {
    let sizes = [[1, 1, 1], [63, 1, 7], [64, 16, 1], [65, 17, 5], [257, 5, 1], [4, 4096, 2], [7001, 10, 1]];
    let squares = sizes.into_iter().map(|size| sized(PointwiseFunction::SquaredError, size));
    let each = PointwiseFunction::ALL.into_iter().flat_map(|function| {
        [sized(function, [64, 5, 1]), sized(function, [65, 33, 5]), sized(function, [3, 1000, 1]), ends(function)]
    });
    squares.chain(each).collect()
}
