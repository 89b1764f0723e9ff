//! Mean squared error, with the gradient with respect to the predictions.

use super::cases::{Case, Fill};
use super::rounding::{double, float, index, single};
use super::text::wgsl;
use super::{Call, Kernel, Library, parallel};

crate::params! {
    /// Rows, each a position of a sample: the batch's rows times `positions`.
    rows: u32,
    /// Columns.
    cols: u32,
    /// Rows that share a sample weight.
    positions: u32,
    /// Factor of the gradient: 1 / (sum of sample weights of the whole batch), as a rule.
    scale: f32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD];

/// `predictions [rows, cols]`, `targets [rows, cols]`, `sample_weights` → `report [rows, 2]`, `gradient [rows, cols]`.
///
/// `report` holds the weighted loss (without `scale`), a mean over the columns, and the mean absolute error (without
/// weight). A row of weight 0 gives loss and gradient 0, whatever it holds.
/// The constant `LANES` is [`lanes`](super::lanes)`(cols)`. Grid: `Elements(rows * LANES)`. Source: Keras 3 `MeanSquaredError`.
pub static FORWARD: Kernel = Kernel {
    stem: "mean_squared_error",
    entry: "forward",
    source: wgsl!("mean_squared_error"),
    uses: &[Library::Grid, Library::Reduce],
    params: Params::FIELDS,
    inputs: &["predictions", "targets", "sample_weights"],
    outputs: &["report", "gradient"],
    workgroup: 64,
    constants: &["LANES"],
    twin: forward_twin,
    fast: Some(forward_fast),
    // All terms are positive: 256 additions a lane, of which half a unit each partly cancel; fast adds 4096.
    tolerance: 5e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let cols = index(params.cols);
    for row in 0..index(params.rows) {
        let weight = f64::from(call.inputs[2][row / index(params.positions)]);
        let (mut square, mut absolute) = (0.0, 0.0);
        for (at, gradient) in outputs[1].iter_mut().enumerate().skip(row * cols).take(cols) {
            let difference = f64::from(call.inputs[0][at]) - f64::from(call.inputs[1][at]);
            square += difference * difference;
            absolute += difference.abs();
            let slope = 2.0 * difference / double(cols) * weight * f64::from(params.scale);
            *gradient = if weight == 0.0 { 0.0 } else { single(slope) };
        }
        outputs[0][2 * row] = if weight == 0.0 { 0.0 } else { single(square / double(cols) * weight) };
        outputs[0][2 * row + 1] = single(absolute / double(cols));
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (rows, cols) = (index(params.rows), index(params.cols));
    let [report, gradient] = outputs else { return };
    parallel::row_pairs((&mut report[..2 * rows], 2), (&mut gradient[..rows * cols], cols), |row, report, gradient| {
        let weight = call.inputs[2][row / index(params.positions)];
        let step = 2.0 * weight * params.scale / float(cols);
        let pairs = call.inputs[0][row * cols..].iter().zip(&call.inputs[1][row * cols..]);
        let (mut square, mut absolute) = (0.0f64, 0.0f64);
        for (gradient, (y, t)) in gradient.iter_mut().zip(pairs) {
            let difference = y - t;
            square += f64::from(difference * difference);
            absolute += f64::from(difference.abs());
            *gradient = difference * step;
        }
        report[0] = single(square / double(cols)) * weight;
        report[1] = single(absolute / double(cols));
        if weight == 0.0 {
            report[0] = 0.0;
            gradient.fill(0.0);
        }
    });
}

fn cases() -> Vec<Case> {
    let case = |rows: u32, cols: u32, positions: u32| {
        let params = Params { rows, cols, positions, scale: 0.25 };
        let weights = (0..index(rows / positions)).map(|sample| float(sample % 3) * 0.75).collect();
        Case::rows(format!("{rows} x {cols}, {positions} positions"), params.words(), rows, cols)
            .input(Fill::Normal(index(rows * cols)))
            .input(Fill::Normal(index(rows * cols)))
            .input(Fill::Values(weights))
            .output(index(2 * rows))
            .output(index(rows * cols))
    };
    vec![
        case(1, 1, 1),
        case(63, 1, 7),
        case(64, 16, 1),
        case(65, 17, 5),
        case(257, 5, 1),
        case(4, 4096, 2),
        case(7001, 10, 1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_by_hand() {
        let params = Params { rows: 2, cols: 2, positions: 1, scale: 0.5 }.words();
        let inputs: [&[f32]; 3] = [&[1.0, 2.0, 3.0, 4.0], &[0.0, 4.0, 3.0, 4.0], &[2.0, 0.0]];
        for run in [forward_twin, forward_fast] {
            let (mut report, mut gradient) = ([9.0; 4], [9.0; 4]);
            let call = Call { params: &params, constants: &[], inputs: &inputs };
            run(&call, &mut [&mut report, &mut gradient]);
            // (1 + 4) / 2 * 2; (1 + 2) / 2; 2 * difference / 2 * 2 * 0.5
            assert_eq!(report, [5.0, 1.5, 0.0, 0.0]);
            assert_eq!(gradient, [1.0, -2.0, 0.0, 0.0]);
        }
    }
}
