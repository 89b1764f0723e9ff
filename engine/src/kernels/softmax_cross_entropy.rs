//! Softmax and cross-entropy of it, with the gradient with respect to the logits.

use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::{class, double, float, index, single};
use super::vectors::{exponentiate, largest};
use super::{Call, Kernel, parallel};

crate::params! {
    /// Rows, each a position of a sample: the batch's rows times `positions`.
    rows: u32,
    /// Classes.
    cols: u32,
    /// Rows that share a sample weight.
    positions: u32,
    /// Factor of the gradient: 1 / (sum of sample weights of the whole batch), as a rule.
    scale: f32,
    /// Label smoothing.
    smoothing: f32,
}

family!("softmax_cross_entropy", [Grid, Reduce]);

/// WGSL grants exp(x) 3 + 2 |x| units in the last place: 1e-5 at the small end of the softmax, where it counts
/// little, and log 3 units; the rank is exact.
const TOLERANCE: f32 = 2e-5;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &FORWARD_DENSE];

/// `logits [rows, cols]`, `labels [rows]`, `sample_weights` → `report [rows, 2]`, `gradient [rows, cols]`.
///
/// `report` holds the weighted loss (without `scale`) and the rank of the true class: the number of logits above its own,
/// and a half if one before it is as large. So it is the first of the largest if its rank is 0, and among the top `k`,
/// where ties count as Keras counts them, if its rank is below `k`.
/// The constant `LANES` is [`lanes`](super::lanes)`(cols)`. Grid: `Elements(rows * LANES)`. Source: Keras 3 `SparseCategoricalCrossentropy(from_logits=True)`.
pub static FORWARD: Kernel = kernel(
    "forward",
    [&["logits", "labels", "sample_weights"], &["report", "gradient"], &["LANES"]],
    (forward_twin, forward_fast),
    TOLERANCE,
    sparse_cases,
);

/// `logits [rows, cols]`, `targets [rows, cols]`, `sample_weights` → `report [rows, 2]`, `gradient [rows, cols]`.
///
/// As [`FORWARD`]; the true class is that of the first largest target. Targets of a row need not sum to one.
/// The constant `LANES` is [`lanes`](super::lanes)`(cols)`. Grid: `Elements(rows * LANES)`. Source: Keras 3 `CategoricalCrossentropy(from_logits=True)`.
pub static FORWARD_DENSE: Kernel = kernel(
    "forward_dense",
    [&["logits", "targets", "sample_weights"], &["report", "gradient"], &["LANES"]],
    (forward_dense_twin, forward_dense_fast),
    TOLERANCE,
    dense_cases,
);

/// A row's logits, where its target stands, and its weight.
struct LogitsRow<'a> {
    logits: &'a [f32],
    weight: f32,
}

impl<'a> LogitsRow<'a> {
    fn of(call: &Call<'a>, params: &Params, row: usize) -> Self {
        let cols = index(params.cols);
        let logits = &call.inputs[0][row * cols..(row + 1) * cols];
        Self { logits, weight: call.inputs[2][row / index(params.positions)] }
    }

    fn largest(&self) -> f32 {
        self.logits.iter().copied().fold(-3.4e38, f32::max)
    }

    /// Number of logits above that of `true_col`, and a half if one before it is as large.
    fn rank(&self, true_col: usize) -> f32 {
        let true_value = self.logits[true_col];
        let above = self.logits.iter().filter(|value| **value > true_value).count();
        float(above) + if self.logits[..true_col].contains(&true_value) { 0.5 } else { 0.0 }
    }
}

/// Column of the first largest target.
fn first_largest(targets: &[f32]) -> usize {
    let step = |best: usize, col: usize| if targets[col] > targets[best] { col } else { best };
    (0..targets.len()).fold(0, step)
}

fn one_hot(true_col: usize, cols: usize) -> Vec<f32> {
    (0..cols).map(|col| if col == true_col { 1.0 } else { 0.0 }).collect()
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let cols = index(params.cols);
    for row in 0..index(params.rows) {
        let true_col = class(call.inputs[1][row], cols);
        row_twin(&params, row, &LogitsRow::of(call, &params, row), &one_hot(true_col, cols), outputs);
    }
}

fn forward_dense_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let cols = index(params.cols);
    for row in 0..index(params.rows) {
        let targets = &call.inputs[1][row * cols..(row + 1) * cols];
        row_twin(&params, row, &LogitsRow::of(call, &params, row), targets, outputs);
    }
}

fn row_twin(params: &Params, at: usize, row: &LogitsRow<'_>, targets: &[f32], outputs: &mut [&mut [f32]]) {
    let (cols, weight, smoothing) = (row.logits.len(), f64::from(row.weight), f64::from(params.smoothing));
    let gradient = &mut outputs[1][at * cols..(at + 1) * cols];
    let shift = f64::from(row.largest());
    let log_sum = row.logits.iter().map(|z| (f64::from(*z) - shift).exp()).sum::<f64>().ln();
    let log_p = |col: usize| f64::from(row.logits[col]) - shift - log_sum;
    let q = |col: usize| f64::from(targets[col]) * (1.0 - smoothing) + smoothing / double(cols);
    let mass: f64 = (0..cols).map(q).sum();
    let loss: f64 = -(0..cols).filter(|col| q(*col) != 0.0).map(|col| q(col) * log_p(col)).sum::<f64>();
    for (col, gradient) in gradient.iter_mut().enumerate() {
        let slope = log_p(col).exp() * mass - q(col);
        *gradient = if weight == 0.0 { 0.0 } else { single(slope * weight * f64::from(params.scale)) };
    }
    outputs[0][2 * at] = if weight == 0.0 { 0.0 } else { single(loss * weight) };
    outputs[0][2 * at + 1] = row.rank(first_largest(targets));
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let labels = call.inputs[1];
    each_row(call, outputs, |at, row, gradient| {
        let true_col = class(labels[at], row.logits.len());
        let (even, sharp) = (params.smoothing / float(row.logits.len()), 1.0 - params.smoothing);
        let (sum, largest) = exponentials(row.logits, gradient);
        let total: f32 = row.logits.iter().map(|z| z - largest).sum();
        let smooth = if even > 0.0 { even * total } else { 0.0 };
        let factor = row.weight * params.scale;
        gradient.iter_mut().for_each(|p| *p = (*p / sum - even) * factor);
        gradient[true_col] -= sharp * factor;
        (sum.ln() - sharp * (row.logits[true_col] - largest) - smooth, true_col)
    });
}

fn forward_dense_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let all_targets = call.inputs[1];
    each_row(call, outputs, |at, row, gradient| {
        let cols = row.logits.len();
        let targets = &all_targets[at * cols..(at + 1) * cols];
        let (even, sharp) = (params.smoothing / float(cols), 1.0 - params.smoothing);
        let (sum, largest) = exponentials(row.logits, gradient);
        let q = |target: f32| target * sharp + even;
        let mass: f32 = targets.iter().map(|target| q(*target)).sum();
        let pairs = targets.iter().zip(row.logits).filter(|(target, _)| q(**target) != 0.0);
        let cross: f32 = pairs.map(|(target, z)| q(*target) * (z - largest)).sum();
        let factor = row.weight * params.scale;
        gradient.iter_mut().zip(targets).for_each(|(p, target)| *p = (*p / sum * mass - q(*target)) * factor);
        (sum.ln() * mass - cross, first_largest(targets))
    });
}

/// Writes `exp(z - largest)` and gives their sum, and the largest logit.
fn exponentials(logits: &[f32], output: &mut [f32]) -> (f32, f32) {
    let largest = largest(logits, -3.4e38);
    output.copy_from_slice(logits);
    (exponentiate(output, largest), largest)
}

/// Calls `f(row, its logits, its gradient)`, which writes the gradient and gives the loss and the true class.
fn each_row(
    call: &Call<'_>,
    outputs: &mut [&mut [f32]],
    f: impl Fn(usize, &LogitsRow<'_>, &mut [f32]) -> (f32, usize) + Sync,
) {
    let params: Params = call.params();
    let (rows, cols) = (index(params.rows), index(params.cols));
    let [report, gradient] = outputs else { return };
    parallel::row_pairs((&mut report[..2 * rows], 2), (&mut gradient[..rows * cols], cols), |at, report, gradient| {
        let row = LogitsRow::of(call, &params, at);
        let (loss, true_col) = f(at, &row, gradient);
        report[0] = loss * row.weight;
        report[1] = row.rank(true_col);
        if row.weight == 0.0 {
            report[0] = 0.0;
            gradient.fill(0.0);
        }
    });
}

fn base_case(rows: u32, cols: u32, positions: u32, smoothing: f32) -> Case {
    let params = Params { rows, cols, positions, scale: 0.25, smoothing };
    let label = format!("{rows} x {cols}, {positions} positions, smoothing {smoothing}");
    Case::rows(label, params.words(), rows, cols).input(InputFill::Uniform(index(rows * cols), -8.0, 8.0))
}

fn with_outputs(case: Case, rows: u32, cols: u32) -> Case {
    case.output(index(2 * rows)).output(index(rows * cols))
}

/// Values of which every third is the same.
fn thirds(len: usize) -> InputFill {
    InputFill::Values((0..len).map(|i| float(i % 3)).collect())
}

/// Weights of which every third is 0.
fn weights(samples: u32) -> InputFill {
    InputFill::Values((0..index(samples)).map(|sample| float(sample % 3) * 0.75).collect())
}

fn sparse_cases() -> Vec<Case> {
    let case = |rows: u32, cols: u32, positions: u32, smoothing: f32| {
        let case = base_case(rows, cols, positions, smoothing).input(InputFill::Labels(index(rows), cols));
        with_outputs(case.input(weights(rows / positions)), rows, cols)
    };
    let mut cases = vec![
        case(1, 1, 1, 0.0),
        case(64, 10, 1, 0.0),
        case(63, 15, 7, 0.1),
        case(65, 16, 5, 0.0),
        case(257, 17, 1, 0.2),
        case(5, 4096, 1, 0.1),
        case(7000, 10, 1, 0.0),
    ];
    let tied = base_case(3, 4, 1, 0.0).input(InputFill::Values(vec![0.0, 2.0, 3.0]));
    let mut tied = with_outputs(tied.input(InputFill::Values(vec![1.0; 3])), 3, 4);
    tied.label = "ties and large logits".into();
    tied.inputs[0] = InputFill::Values(vec![1.0, 1.0, 1.0, 1.0, 5e4, -5e4, 5e4, 5e4, -3e38, 3e4, 2e4, 3e4]);
    cases.push(tied);
    let mut tied = case(2, 20, 1, 0.0);
    tied.label = "ties in several lanes".into();
    tied.inputs[0] = thirds(40);
    tied.inputs[1] = InputFill::Values(vec![19.0, 3.0]);
    tied.inputs[2] = InputFill::Values(vec![1.0; 2]);
    cases.push(tied);
    cases
}

fn dense_cases() -> Vec<Case> {
    let case = |rows: u32, cols: u32, positions: u32, smoothing: f32| {
        let case = base_case(rows, cols, positions, smoothing).input(InputFill::Uniform(index(rows * cols), 0.0, 0.5));
        with_outputs(case.input(weights(rows / positions)), rows, cols)
    };
    let mut one_hot = case(2, 3, 1, 0.1);
    one_hot.label = "one-hot and all equal".into();
    one_hot.inputs[1] = InputFill::Values(vec![0.0, 0.0, 1.0, 0.25, 0.25, 0.25]);
    let mut tied = case(2, 20, 1, 0.0);
    tied.label = "largest targets in several lanes".into();
    (tied.inputs[0], tied.inputs[1]) = (thirds(40), thirds(40));
    vec![
        one_hot,
        tied,
        case(1, 1, 1, 0.0),
        case(63, 10, 3, 0.0),
        case(65, 33, 1, 0.1),
        case(257, 64, 1, 0.0),
        case(800, 100, 4, 0.1),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::Twin;
    use super::*;

    fn run(twin: Twin, params: &Params, inputs: &[&[f32]]) -> (Vec<f32>, Vec<f32>) {
        let (rows, cols) = (index(params.rows), index(params.cols));
        let (mut report, mut gradient) = (vec![9.0; 2 * rows], vec![9.0; rows * cols]);
        twin(&Call { params: &params.words(), constants: &[], inputs }, &mut [&mut report, &mut gradient]);
        (report, gradient)
    }

    #[test]
    fn equal_logits_lose_log_of_the_classes() {
        let params = Params { rows: 2, cols: 4, positions: 1, scale: 0.5, smoothing: 0.0 };
        let (report, gradient) = run(forward_twin, &params, &[&[3.0; 8], &[0.0, 2.0], &[1.0, 2.0]]);
        let log4 = 4f32.ln();
        assert_eq!(report, [log4, 0.0, 2.0 * log4, 0.5]);
        assert_eq!(gradient, [-0.375, 0.125, 0.125, 0.125, 0.25, 0.25, -0.75, 0.25]);
    }

    #[test]
    fn weight_zero_hides_what_is_not_finite() {
        let params = Params { rows: 1, cols: 2, positions: 1, scale: 1.0, smoothing: 0.0 };
        for twin in [forward_twin, forward_fast] {
            let (report, gradient) = run(twin, &params, &[&[f32::NAN, f32::INFINITY], &[0.0], &[0.0]]);
            assert_eq!((report[0], gradient.as_slice()), (0.0, [0.0, 0.0].as_slice()));
        }
    }

    #[test]
    fn gradient_is_the_difference_quotient() {
        let params = Params { rows: 2, cols: 3, positions: 2, scale: 1.0, smoothing: 0.1 };
        let (targets, weights) = ([0.2, 0.3, 0.1, 1.0, 0.5, 0.5], [1.5]);
        let logits = [0.3, -1.0, 0.7, 2.0, 0.1, -0.4];
        for (twin, second) in [(forward_twin as Twin, &[2.0, 0.0][..]), (forward_dense_twin, &targets)] {
            let loss =
                |logits: &[f32]| run(twin, &params, &[logits, second, &weights]).0.iter().step_by(2).sum::<f32>();
            let (_, gradient) = run(twin, &params, &[&logits, second, &weights]);
            for (i, told) in gradient.iter().enumerate() {
                let (mut up, mut down) = (logits, logits);
                (up[i], down[i]) = (up[i] + 0.015_625, down[i] - 0.015_625);
                let measured = (loss(&up) - loss(&down)) / 0.031_25;
                assert!((measured - told).abs() < 2e-4, "{i}: {measured} {told}");
            }
        }
    }
}
