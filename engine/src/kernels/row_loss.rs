//! Losses of whole rows of predictions and targets, with the gradient with respect to the predictions.

mod cases;

use super::family::family;
use super::rounding::{double, float, index, single};
use super::{Call, Kernel, parallel};

crate::params! {
    /// Rows, each a position of a sample: the batch's rows times `positions`.
    rows: u32,
    /// Columns.
    cols: u32,
    /// Rows that share a sample weight.
    positions: u32,
    /// Factor of the gradient: 1 / (sum of sample weights of the whole batch), as a rule.
    scale: f32,
    /// Label smoothing, of the focal one.
    smoothing: f32,
    /// Factor of the loss, of the focal one.
    alpha: f32,
    /// Focus on what is not yet right, of the focal one.
    gamma: f32,
}

family!("row_loss", [Grid, Reduce]);

/// WGSL grants exp, log and pow some units in the last place; a lane adds 256 terms of both signs.
const TOLERANCE: f32 = 2e-5;

/// Keras' `epsilon`.
const EPSILON: f64 = 1e-7;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD_COSINE, &FORWARD_HINGE, &FORWARD_FOCAL];

/// `predictions [rows, cols]`, `targets [rows, cols]`, `sample_weights` → `report [rows, 2]`, `gradient [rows, cols]`.
///
/// `report` holds the weighted loss (without `scale`), the negative cosine of the angle between both vectors, and the mean
/// absolute error. The constant `LANES` is [`lanes`](super::lanes)`(cols)`. Grid: `Elements(rows * LANES)`. Source: Keras 3 `CosineSimilarity`.
pub static FORWARD_COSINE: Kernel = kernel(
    "forward_cosine",
    [&["predictions", "targets", "sample_weights"], &["report", "gradient"], &["LANES"]],
    (cosine_twin, cosine_fast),
    TOLERANCE,
    cases::cosine,
);

/// `predictions [rows, cols]`, `targets [rows, cols]`, `sample_weights` → `report [rows, 2]`, `gradient [rows, cols]`.
///
/// `report` holds the weighted loss (without `scale`) and the rank of the class of the first largest target: the number of
/// predictions above its own, and a half if one before it is as large. The constant `LANES` is
/// [`lanes`](super::lanes)`(cols)`. Grid: `Elements(rows * LANES)`. Source: Keras 3 `CategoricalHinge`.
pub static FORWARD_HINGE: Kernel = kernel(
    "forward_hinge",
    [&["predictions", "targets", "sample_weights"], &["report", "gradient"], &["LANES"]],
    (hinge_twin, hinge_fast),
    TOLERANCE,
    cases::hinge,
);

/// `predictions [rows, cols]`, `targets [rows, cols]`, `sample_weights` → `report [rows, 2]`, `gradient [rows, cols]`.
///
/// As [`FORWARD_HINGE`], for logits. Source: Keras 3 `CategoricalFocalCrossentropy(from_logits=True)`.
pub static FORWARD_FOCAL: Kernel = kernel(
    "forward_focal",
    [&["predictions", "targets", "sample_weights"], &["report", "gradient"], &["LANES"]],
    (focal_twin, focal_fast),
    TOLERANCE,
    cases::focal,
);

/// Predictions and targets of a row.
#[derive(Clone, Copy)]
struct LossRow<'a> {
    predictions: &'a [f32],
    targets: &'a [f32],
}

impl LossRow<'_> {
    fn pairs(&self) -> impl Iterator<Item = (f64, f64)> {
        self.predictions.iter().zip(self.targets).map(|(y, t)| (f64::from(*y), f64::from(*t)))
    }

    /// Number of predictions above that of the first largest target, and a half if one before it is as large.
    fn rank(&self) -> f64 {
        let targets = self.targets;
        let step = |best: usize, col: usize| if targets[col] > targets[best] { col } else { best };
        let true_col = (0..targets.len()).fold(0, step);
        let true_value = self.predictions[true_col];
        let above = self.predictions.iter().filter(|value| **value > true_value).count();
        double(above) + if self.predictions[..true_col].contains(&true_value) { 0.5 } else { 0.0 }
    }
}

/// Loss and score of a row; slopes go into the slice.
type RowLoss = fn(params: &Params, row: LossRow<'_>, slopes: &mut [f64]) -> [f64; 2];

fn cosine(_params: &Params, row: LossRow<'_>, slopes: &mut [f64]) -> [f64; 2] {
    let sum = |f: fn(f64, f64) -> f64| row.pairs().map(|(y, t)| f(y, t)).sum::<f64>();
    let length = sum(|y, _| y * y).sqrt();
    let (y_factor, t_factor) = (1.0 / length.max(EPSILON), 1.0 / sum(|_, t| t * t).sqrt().max(EPSILON));
    let cosine = sum(|y, t| y * t) * y_factor * t_factor;
    let along = if length >= EPSILON { cosine * y_factor } else { 0.0 };
    for (slope, (y, t)) in slopes.iter_mut().zip(row.pairs()) {
        *slope = if length == 0.0 { 0.0 } else { y_factor * (along * y - t * t_factor) };
    }
    [-cosine, sum(|y, t| (y - t).abs()) / double(slopes.len())]
}

fn hinge(_params: &Params, row: LossRow<'_>, slopes: &mut [f64]) -> [f64; 2] {
    let product: f64 = row.pairs().map(|(y, t)| t * y).sum();
    let others = || row.predictions.iter().zip(row.targets).map(|(y, t)| (1.0 - t) * y);
    let largest = others().fold(f32::MIN, f32::max);
    #[allow(clippy::float_cmp, reason = "equal maxima share the gradient")]
    let equal = others().filter(|other| *other == largest).count();
    let margin = f64::from(largest) - product + 1.0;
    let gate = if margin == 0.0 { 0.5 } else { f64::from(u8::from(margin > 0.0)) };
    for ((slope, other), t) in slopes.iter_mut().zip(others()).zip(row.targets) {
        #[allow(clippy::float_cmp, reason = "as above")]
        let of_largest = if other == largest { (1.0 - f64::from(*t)) / double(equal) } else { 0.0 };
        *slope = if product.is_nan() { product } else { gate * (of_largest - f64::from(*t)) };
    }
    [if product.is_nan() { product } else { margin.max(0.0) }, row.rank()]
}

fn focal(params: &Params, row: LossRow<'_>, slopes: &mut [f64]) -> [f64; 2] {
    let (smoothing, alpha, gamma) = (f64::from(params.smoothing), f64::from(params.alpha), f64::from(params.gamma));
    let largest = row.predictions.iter().copied().fold(f32::MIN, f32::max);
    let exponential = |y: f64| (y - f64::from(largest)).exp();
    let total: f64 = row.pairs().map(|(y, _)| exponential(y)).sum();
    let (mut loss, mut along) = (0.0, 0.0);
    let even = smoothing / f64::from(float(slopes.len()));
    for (slope, (y, t)) in slopes.iter_mut().zip(row.pairs()) {
        let (p, q) = (exponential(y) / total, t * (1.0 - smoothing) + even);
        let bounded = p.clamp(EPSILON, 1.0 - EPSILON);
        let missed = 1.0 - bounded;
        let factor = alpha * q * missed.powf(gamma);
        loss -= factor * bounded.ln();
        let is_inside = p > EPSILON && p < 1.0 - EPSILON;
        *slope = if is_inside { factor * (gamma * bounded.ln() * bounded / missed - 1.0) } else { 0.0 };
        along += *slope;
    }
    slopes.iter_mut().zip(row.pairs()).for_each(|(slope, (y, _))| *slope -= exponential(y) / total * along);
    [if total.is_nan() { total } else { loss }, row.rank()]
}

/// Writes the gradient of a row, and gives its report.
fn row_of(call: &Call<'_>, params: &Params, at: usize, gradient: &mut [f32], loss: RowLoss) -> [f32; 2] {
    let cols = index(params.cols);
    let of_row = |values: &'_ [f32]| at * cols..values.len().min((at + 1) * cols);
    let [predictions, targets] = [call.inputs[0], call.inputs[1]].map(|values| &values[of_row(values)]);
    let weight = f64::from(call.inputs[2][at / index(params.positions)]);
    let mut slopes = vec![0.0; cols];
    let [value, score] = loss(params, LossRow { predictions, targets }, &mut slopes);
    for (gradient, slope) in gradient.iter_mut().zip(slopes) {
        *gradient = if weight == 0.0 { 0.0 } else { single(slope * weight * f64::from(params.scale)) };
    }
    [if weight == 0.0 { 0.0 } else { single(value * weight) }, single(score)]
}

fn each_row(call: &Call<'_>, outputs: &mut [&mut [f32]], loss: RowLoss) {
    let params: Params = call.params();
    let cols = index(params.cols);
    for row in 0..index(params.rows) {
        let report = row_of(call, &params, row, &mut outputs[1][row * cols..(row + 1) * cols], loss);
        outputs[0][2 * row..2 * row + 2].copy_from_slice(&report);
    }
}

fn in_parallel(call: &Call<'_>, outputs: &mut [&mut [f32]], loss: RowLoss) {
    let params: Params = call.params();
    let (rows, cols) = (index(params.rows), index(params.cols));
    let [report, gradient] = outputs else { return };
    parallel::row_pairs((&mut report[..2 * rows], 2), (&mut gradient[..rows * cols], cols), |row, report, gradient| {
        report.copy_from_slice(&row_of(call, &params, row, gradient, loss));
    });
}

fn cosine_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    each_row(call, outputs, cosine);
}

fn cosine_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    in_parallel(call, outputs, cosine);
}

fn hinge_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    each_row(call, outputs, hinge);
}

fn hinge_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    in_parallel(call, outputs, hinge);
}

fn focal_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    each_row(call, outputs, focal);
}

fn focal_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    in_parallel(call, outputs, focal);
}

#[cfg(test)]
mod tests {
    use super::super::Twin;
    use super::*;

    fn run(twin: Twin, predictions: &[f32], targets: &[f32], weight: f32) -> (Vec<f32>, Vec<f32>) {
        let cols = u32::try_from(predictions.len()).unwrap();
        let params = Params { smoothing: 0.0, ..cases::params([1, cols, 1]) };
        let (mut report, mut gradient) = (vec![9.0; 2], vec![9.0; predictions.len()]);
        let call = Call { params: &params.words(), constants: &[], inputs: &[predictions, targets, &[weight]] };
        twin(&call, &mut [&mut report, &mut gradient]);
        (report, gradient)
    }

    #[test]
    fn rows_by_hand() {
        // A right angle; a step of the prediction turns it by 1 / 2, times the scale of 1 / 4.
        let (report, gradient) = run(cosine_twin, &[0.0, 2.0], &[3.0, 0.0], 1.0);
        assert_eq!((report[0], &gradient[..]), (0.0, &[-0.125, 0.0][..]));
        // The largest of the others, twice, is 1, the true one 0.5, and above it are two.
        let (report, gradient) = run(hinge_twin, &[1.0, 0.5, 1.0], &[0.0, 1.0, 0.0], 2.0);
        assert_eq!((&report[..], &gradient[..]), (&[3.0, 2.0][..], &[0.25, -0.5, 0.25][..]));
    }

    #[test]
    fn weight_zero_hides_what_is_not_finite_and_nothing_else_does() {
        for twin in [cosine_twin as Twin, hinge_twin, focal_twin] {
            let (report, gradient) = run(twin, &[f32::NAN, 0.5], &[1.0, 0.0], 0.0);
            assert_eq!((report[0], gradient.as_slice()), (0.0, [0.0, 0.0].as_slice()));
            let (report, gradient) = run(twin, &[f32::NAN, 0.5], &[1.0, 0.0], 1.0);
            assert!(report[0].is_nan() && gradient[0].is_nan());
        }
    }
}
