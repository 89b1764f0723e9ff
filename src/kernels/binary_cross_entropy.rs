//! Binary cross-entropy of the sigmoid of logits, with the gradient with respect to the logits.

use super::cases::{Case, Fill};
use super::rounding::{double, float, index, single};
use super::text::wgsl;
use super::{Call, Kernel, Library, parallel};

crate::params! {
    /// Rows, each a position of a sample: the batch's rows times `positions`.
    rows: u32,
    /// Columns, each a yes or no of its own.
    cols: u32,
    /// Rows that share a sample weight.
    positions: u32,
    /// Factor of the gradient: 1 / (sum of sample weights of the whole batch), as a rule.
    scale: f32,
    /// Label smoothing.
    smoothing: f32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD];

/// `logits [rows, cols]`, `targets [rows, cols]`, `sample_weights` → `report [rows, 2]`, `gradient [rows, cols]`.
///
/// `report` holds the weighted loss (without `scale`), a mean over the columns, and the share of columns that are
/// right: `logit > 0` just as `target > 0.5`. A row of weight 0 gives loss and gradient 0, whatever it holds.
/// The constant `LANES` is [`lanes`](super::lanes)`(cols)`. Grid: `Elements(rows * LANES)`. Source: Keras 3 `BinaryCrossentropy(from_logits=True)`.
pub static FORWARD: Kernel = Kernel {
    stem: "binary_cross_entropy",
    entry: "forward",
    source: wgsl!("binary_cross_entropy"),
    uses: &[Library::Grid, Library::Reduce],
    params: Params::FIELDS,
    inputs: &["logits", "targets", "sample_weights"],
    outputs: &["report", "gradient"],
    workgroup: 64,
    constants: &["LANES"],
    twin: forward_twin,
    fast: Some(forward_fast),
    // exp and log of WGSL are good to a few units where their values count.
    tolerance: 5e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (cols, smoothing) = (index(params.cols), f64::from(params.smoothing));
    for row in 0..index(params.rows) {
        let weight = f64::from(call.inputs[2][row / index(params.positions)]);
        let (mut loss, mut right) = (0.0, 0.0);
        for (at, gradient) in outputs[1].iter_mut().enumerate().skip(row * cols).take(cols) {
            let (z, label) = (f64::from(call.inputs[0][at]), f64::from(call.inputs[1][at]));
            let t = label * (1.0 - smoothing) + 0.5 * smoothing;
            loss += z.max(0.0) - z * t + (-z.abs()).exp().ln_1p();
            right += if (z > 0.0) == (label > 0.5) { 1.0 } else { 0.0 };
            let slope = (1.0 / (1.0 + (-z).exp()) - t) / double(cols) * weight * f64::from(params.scale);
            *gradient = if weight == 0.0 { 0.0 } else { single(slope) };
        }
        outputs[0][2 * row] = if weight == 0.0 { 0.0 } else { single(loss / double(cols) * weight) };
        outputs[0][2 * row + 1] = single(right / double(cols));
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (rows, cols) = (index(params.rows), index(params.cols));
    let [report, gradient] = outputs else { return };
    parallel::row_pairs((&mut report[..2 * rows], 2), (&mut gradient[..rows * cols], cols), |row, report, gradient| {
        let weight = call.inputs[2][row / index(params.positions)];
        let step = weight * params.scale / float(cols);
        let pairs = call.inputs[0][row * cols..].iter().zip(&call.inputs[1][row * cols..]);
        let (mut loss, mut right) = (0.0f32, 0.0f32);
        for (gradient, (z, label)) in gradient.iter_mut().zip(pairs) {
            let t = label * (1.0 - params.smoothing) + 0.5 * params.smoothing;
            let e = (-z.abs()).exp();
            loss += z.max(0.0) - z * t + e.ln_1p();
            right += if (*z > 0.0) == (*label > 0.5) { 1.0 } else { 0.0 };
            *gradient = (if *z >= 0.0 { 1.0 } else { e } / (1.0 + e) - t) * step;
        }
        report[0] = loss / float(cols) * weight;
        report[1] = right / float(cols);
        if weight == 0.0 {
            report[0] = 0.0;
            gradient.fill(0.0);
        }
    });
}

fn cases() -> Vec<Case> {
    let case = |rows: u32, cols: u32, positions: u32, smoothing: f32| {
        let params = Params { rows, cols, positions, scale: 0.25, smoothing };
        let weights = (0..index(rows / positions)).map(|sample| float(sample % 3) * 0.75).collect();
        let label = format!("{rows} x {cols}, {positions} positions, smoothing {smoothing}");
        Case::rows(label, params.words(), rows, cols)
            .input(Fill::Uniform(index(rows * cols), -8.0, 8.0))
            .input(Fill::Labels(index(rows * cols), 2))
            .input(Fill::Values(weights))
            .output(index(2 * rows))
            .output(index(rows * cols))
    };
    let mut large = case(2, 2, 1, 0.0);
    large.label = "large logits".into();
    large.inputs[0] = Fill::Values(vec![3e4, -3e4, 3e4, -3e4]);
    large.inputs[1] = Fill::Values(vec![1.0, 0.0, 0.0, 1.0]);
    large.inputs[2] = Fill::Values(vec![1.0, 1.0]);
    vec![
        case(1, 1, 1, 0.0),
        case(63, 1, 7, 0.1),
        case(64, 16, 1, 0.0),
        case(65, 17, 5, 0.2),
        case(257, 5, 1, 0.0),
        case(4, 4096, 2, 0.0),
        case(7001, 10, 1, 0.0),
        large,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(params: &Params, inputs: &[&[f32]]) -> ([f32; 2], [f32; 4]) {
        let (mut report, mut gradient) = ([9.0; 2], [9.0; 4]);
        let call = Call { params: &params.words(), constants: &[], inputs };
        forward_twin(&call, &mut [&mut report, &mut gradient]);
        (report, gradient)
    }

    #[test]
    fn no_opinion_loses_log_two() {
        let params = Params { rows: 1, cols: 4, positions: 1, scale: 1.0, smoothing: 0.0 };
        let (report, gradient) = run(&params, &[&[0.0; 4], &[1.0, 0.0, 1.0, 1.0], &[2.0]]);
        assert_eq!(report, [2.0 * 2f32.ln(), 0.25]);
        assert_eq!(gradient, [-0.25, 0.25, -0.25, -0.25]);
    }

    #[test]
    fn gradient_is_the_difference_quotient() {
        let params = Params { rows: 1, cols: 4, positions: 1, scale: 1.0, smoothing: 0.1 };
        let (logits, targets, weight) = ([0.3, -1.0, 2.0, 0.7], [1.0, 0.0, 0.0, 0.25], [1.5]);
        let (_, gradient) = run(&params, &[&logits, &targets, &weight]);
        for (i, told) in gradient.iter().enumerate() {
            let (mut up, mut down) = (logits, logits);
            (up[i], down[i]) = (up[i] + 0.015_625, down[i] - 0.015_625);
            let loss = |logits: &[f32]| run(&params, &[logits, &targets, &weight]).0[0];
            let measured = (loss(&up) - loss(&down)) / 0.031_25;
            assert!((measured - told).abs() < 2e-4, "{i}: {measured} {told}");
        }
    }
}
