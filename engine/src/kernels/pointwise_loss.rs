//! Losses that are a mean over columns of a function of prediction and target, with the gradient with respect to the
//! prediction.

mod cases;
mod functions;

use super::family::family;
use super::rounding::{double, index, single};
use super::{Call, Kernel, parallel};

pub use functions::{PointwiseFunction, PointwiseSettings};

crate::params! {
    /// Rows, each a position of a sample: the batch's rows times `positions`.
    rows: u32,
    /// Columns.
    cols: u32,
    /// Rows that share a sample weight.
    positions: u32,
    /// Factor of the gradient: 1 / (sum of sample weights of the whole batch), as a rule.
    scale: f32,
    /// Label smoothing, of the binary ones.
    smoothing: f32,
    /// End of Huber's parabola.
    delta: f32,
    /// Focus on what is not yet right, of the focal one.
    gamma: f32,
    /// Factor of targets that are 1, of the focal one.
    positive: f32,
    /// Factor of targets that are 0, of the focal one.
    negative: f32,
}

family!("pointwise_loss", [Grid, Reduce]);

/// WGSL grants exp, log and pow some units in the last place; a lane adds 256 terms of both signs, fast 4096.
const TOLERANCE: f32 = 2e-5;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD];

/// `predictions [rows, cols]`, `targets [rows, cols]`, `sample_weights` → `report [rows, 2]`, `gradient [rows, cols]`.
///
/// `report` holds the weighted loss (without `scale`), a mean over the columns (a sum for [`PointwiseFunction::KlDivergence`]), and
/// the score without weight: the mean absolute error, or the part of the columns on the right side of 0 for functions
/// of which [`PointwiseFunction::counts_hits`]. A row of weight 0 gives loss and gradient 0, whatever it holds.
/// Constants: `LOSS` is the function's code, `LANES` is [`lanes`](super::lanes)`(cols)`. Grid: `Elements(rows * LANES)`. Source: Keras 3's losses
/// of these names.
pub static FORWARD: Kernel = kernel(
    "forward",
    [&["predictions", "targets", "sample_weights"], &["report", "gradient"], &["LOSS", "LANES"]],
    (forward_twin, forward_fast),
    TOLERANCE,
    cases::forward,
);

impl Params {
    fn settings(&self) -> PointwiseSettings {
        PointwiseSettings {
            smoothing: self.smoothing.into(),
            delta: self.delta.into(),
            gamma: self.gamma.into(),
            positive: self.positive.into(),
            negative: self.negative.into(),
        }
    }
}

/// Writes the gradient of a row, and gives its report.
fn row_of(call: &Call<'_>, params: &Params, row: usize, gradient: &mut [f32]) -> [f32; 2] {
    let (function, settings, cols) = (PointwiseFunction::of_call(call), params.settings(), index(params.cols));
    let weight = f64::from(call.inputs[2][row / index(params.positions)]);
    let count = if function == PointwiseFunction::KlDivergence { 1.0 } else { double(cols) };
    let step = weight * f64::from(params.scale) / count;
    let pairs = call.inputs[0][row * cols..].iter().zip(&call.inputs[1][row * cols..]);
    let (mut loss, mut score) = (0.0, 0.0);
    for (gradient, (y, t)) in gradient.iter_mut().zip(pairs) {
        let (y, t) = (f64::from(*y), f64::from(*t));
        let [value, slope] = function.at(&settings, y, t);
        loss += value;
        score += if function.counts_hits() { f64::from(u8::from((y > 0.0) == (t > 0.5))) } else { (y - t).abs() };
        *gradient = if weight == 0.0 { 0.0 } else { single(slope * step) };
    }
    let loss = if weight == 0.0 { 0.0 } else { single(loss / count * weight) };
    [loss, single(score / double(cols))]
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let cols = index(params.cols);
    for row in 0..index(params.rows) {
        let report = row_of(call, &params, row, &mut outputs[1][row * cols..(row + 1) * cols]);
        outputs[0][2 * row..2 * row + 2].copy_from_slice(&report);
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (rows, cols) = (index(params.rows), index(params.cols));
    let [report, gradient] = outputs else { return };
    parallel::row_pairs((&mut report[..2 * rows], 2), (&mut gradient[..rows * cols], cols), |row, report, gradient| {
        report.copy_from_slice(&row_of(call, &params, row, gradient));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(function: PointwiseFunction, predictions: &[f32], targets: &[f32], weights: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (rows, cols) = (weights.len(), predictions.len() / weights.len());
        let [n_rows, n_cols] = [rows, cols].map(|count| u32::try_from(count).unwrap());
        let params = cases::params([n_rows, n_cols, 1], 0.5).words();
        let (mut report, mut gradient) = (vec![9.0; 2 * rows], vec![9.0; rows * cols]);
        let constants = [("LOSS", function.code())];
        let call = Call { params: &params, constants: &constants, inputs: &[predictions, targets, weights] };
        forward_twin(&call, &mut [&mut report, &mut gradient]);
        let twin = (report.clone(), gradient.clone());
        forward_fast(&call, &mut [&mut report, &mut gradient]);
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!([bits(&report), bits(&gradient)], [bits(&twin.0), bits(&twin.1)]);
        twin
    }

    #[test]
    fn two_rows_by_hand() {
        let (report, gradient) =
            run(PointwiseFunction::SquaredError, &[1.0, 2.0, 3.0, 4.0], &[0.0, 4.0, 3.0, 4.0], &[2.0, 0.0]);
        // (1 + 4) / 2 * 2; (1 + 2) / 2; 2 * difference / 2 * 2 * 0.5
        assert_eq!(report, [5.0, 1.5, 0.0, 0.0]);
        assert_eq!(gradient, [1.0, -2.0, 0.0, 0.0]);
        let (report, gradient) = run(PointwiseFunction::Hinge, &[0.5, -3.0], &[0.0, -1.0], &[1.0]);
        // (1.5 + 0) / 2, one of two on its side; +1 / 2 * 0.5
        assert_eq!(report, [0.75, 0.5]);
        assert_eq!(gradient, [0.25, 0.0]);
    }

    #[test]
    fn weight_zero_hides_what_is_not_finite_and_nothing_else_does() {
        for function in PointwiseFunction::ALL {
            let values = [f32::NAN, 0.5];
            let (report, gradient) = run(function, &values, &[1.0, 0.0], &[0.0]);
            assert_eq!((report[0], gradient.as_slice()), (0.0, [0.0, 0.0].as_slice()), "{function:?}");
            let (report, gradient) = run(function, &values, &[1.0, 0.0], &[1.0]);
            assert!(report[0].is_nan() && gradient[0].is_nan(), "{function:?}");
        }
    }
}
