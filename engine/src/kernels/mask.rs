//! Masks of sequences: computes them, sets masked positions to a value, and takes the mean of the others.

use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::{double, float, index, single};
use super::{Call, Kernel, parallel};

crate::params! {
    /// Positions, of all rows together.
    positions: u32,
    /// Numbers of a position.
    cols: u32,
    /// Positions of a row; only the means read it.
    steps: u32,
    /// Value of each number of a masked position.
    value: f32,
}

family!("mask", [Grid]);

/// Nothing is rounded.
const TOLERANCE: f32 = 0.0;

/// The family.
pub static KERNELS: &[&Kernel] = &[&COMPUTE, &APPLY, &MEAN, &BACKWARD_MEAN];

/// `x [positions, cols]` → `mask [positions]`: 1 where a number is not `value`, else 0. Grid: `Elements(positions)`.
pub static COMPUTE: Kernel =
    kernel("compute", [&["x"], &["mask"], &[]], (compute_twin, compute_fast), TOLERANCE, compute_cases);

/// `x [positions, cols]`, `known [positions]` → `y [positions, cols]`: `x` where the mask is 1, else 0. Backward: `dy`
/// → `d_x`.
///
/// Grid: `Elements(positions * cols)`.
pub static APPLY: Kernel =
    kernel("apply", [&["x", "known"], &["y"], &[]], (apply_twin, apply_fast), TOLERANCE, apply_cases);

/// Sums of up to 1,000 normal numbers, divided.
const MEAN_TOLERANCE: f32 = 2e-6;

/// `x [rows, steps, cols]`, `known [rows, steps]` → `means [rows, cols]`: of the steps that count, 0 where none does.
///
/// Grid: `Elements(rows * cols)`.
pub static MEAN: Kernel =
    kernel("mean", [&["x", "known"], &["means"], &[]], (mean_twin, mean_fast), MEAN_TOLERANCE, mean_cases);

/// `d_means [rows, cols]`, `known [rows, steps]` → `d_x [rows, steps, cols]`. Grid: `Elements(rows * steps * cols)`.
pub static BACKWARD_MEAN: Kernel = kernel(
    "backward_mean",
    [&["d_means", "known"], &["d_x"], &[]],
    (backward_mean_twin, backward_mean_fast),
    MEAN_TOLERANCE,
    backward_mean_cases,
);

/// Whether a position counts.
pub fn counts(mask: f32) -> bool {
    mask >= 0.5
}

fn compute_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, value, .. } = call.params();
    for (p, mask) in outputs[0].iter_mut().enumerate().take(index(positions)) {
        let x = &call.inputs[0][p * index(cols)..(p + 1) * index(cols)];
        *mask = if x.iter().any(|x| *x != value) { 1.0 } else { 0.0 };
    }
}

fn compute_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, value, .. } = call.params();
    let (positions, cols) = (index(positions), index(cols));
    parallel::slabs(&mut outputs[0][..positions], 1024, positions * cols, |slab, mask| {
        let x = call.inputs[0][slab * 1024 * cols..].chunks_exact(cols);
        mask.iter_mut().zip(x).for_each(|(mask, x)| *mask = if x.iter().any(|x| *x != value) { 1.0 } else { 0.0 });
    });
}

fn apply_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, .. } = call.params();
    for (i, y) in outputs[0].iter_mut().enumerate().take(index(positions) * index(cols)) {
        *y = if counts(call.inputs[1][i / index(cols)]) { call.inputs[0][i] } else { 0.0 };
    }
}

fn apply_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, .. } = call.params();
    let cols = index(cols);
    parallel::rows(&mut outputs[0][..index(positions) * cols], cols, |first, y| {
        let rows = y.chunks_exact_mut(cols).zip(call.inputs[0][first * cols..].chunks_exact(cols));
        for ((y, x), mask) in rows.zip(&call.inputs[1][first..]) {
            if counts(*mask) { y.copy_from_slice(x) } else { y.fill(0.0) }
        }
    });
}

/// Number of steps of a row that count; at least 1, since it is a divisor.
fn count_of(mask: &[f32]) -> usize {
    mask.iter().filter(|mask| counts(**mask)).count().max(1)
}

fn mean_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, steps, .. } = call.params();
    let (cols, steps) = (index(cols), index(steps));
    for (i, mean) in outputs[0].iter_mut().enumerate().take(index(positions) / steps * cols) {
        let (row, col) = (i / cols, i % cols);
        let mask = &call.inputs[1][row * steps..][..steps];
        let counted = (0..steps).filter(|step| counts(mask[*step]));
        let sum: f64 = counted.map(|step| f64::from(call.inputs[0][(row * steps + step) * cols + col])).sum();
        *mean = single(sum / double(count_of(mask)));
    }
}

fn mean_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, steps, .. } = call.params();
    let (cols, steps) = (index(cols), index(steps));
    let means = &mut outputs[0][..index(positions) / steps * cols];
    parallel::slabs(means, cols, index(positions) * cols, |row, means| {
        let mask = &call.inputs[1][row * steps..][..steps];
        means.fill(0.0);
        let counted =
            call.inputs[0][row * steps * cols..].chunks_exact(cols).zip(mask).filter(|(_, mask)| counts(**mask));
        counted.for_each(|(x, _)| means.iter_mut().zip(x).for_each(|(mean, x)| *mean += x));
        let share = 1.0 / float(count_of(mask));
        means.iter_mut().for_each(|mean| *mean *= share);
    });
}

fn backward_mean_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, steps, .. } = call.params();
    let (cols, steps) = (index(cols), index(steps));
    for (i, d_x) in outputs[0].iter_mut().enumerate().take(index(positions) * cols) {
        let row = i / cols / steps;
        let share = f64::from(call.inputs[0][row * cols + i % cols])
            / double(count_of(&call.inputs[1][row * steps..][..steps]));
        *d_x = if counts(call.inputs[1][i / cols]) { single(share) } else { 0.0 };
    }
}

fn backward_mean_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, steps, .. } = call.params();
    let (cols, steps) = (index(cols), index(steps));
    let d_x = &mut outputs[0][..index(positions) * cols];
    let work = d_x.len();
    parallel::slabs(d_x, steps * cols, work, |row, d_x| {
        let mask = &call.inputs[1][row * steps..][..steps];
        let (d_means, share) = (&call.inputs[0][row * cols..][..cols], 1.0 / float(count_of(mask)));
        for (d_x, mask) in d_x.chunks_exact_mut(cols).zip(mask) {
            let share = if counts(*mask) { share } else { 0.0 };
            d_x.iter_mut().zip(d_means).for_each(|(d_x, d_mean)| *d_x = d_mean * share);
        }
    });
}

/// Rows, steps and columns.
const SEQUENCES: [[u32; 3]; 7] =
    [[1, 1, 1], [3, 7, 5], [63, 4, 2], [64, 3, 1], [2, 257, 65], [0, 3, 4], [65_600, 1, 64]];

fn sequence_case([rows, steps, cols]: [u32; 3], elements: u32) -> Case {
    let params = Params { positions: rows * steps, cols, steps, value: 0.0 };
    Case::elements(format!("{rows} x {steps} x {cols}"), params.words(), elements)
}

fn mean_cases() -> Vec<Case> {
    let each = |size: [u32; 3]| {
        let [rows, steps, cols] = size;
        let case = sequence_case(size, rows * cols).input(InputFill::Normal(index(rows * steps * cols)));
        case.input(InputFill::Labels(index(rows * steps), 2)).output(index(rows * cols))
    };
    SEQUENCES.map(each).into()
}

fn backward_mean_cases() -> Vec<Case> {
    let each = |size: [u32; 3]| {
        let [rows, steps, cols] = size;
        let case = sequence_case(size, rows * steps * cols).input(InputFill::Normal(index(rows * cols)));
        case.input(InputFill::Labels(index(rows * steps), 2)).output(index(rows * steps * cols))
    };
    SEQUENCES.map(each).into()
}

const SIZES: [[u32; 2]; 8] = [[1, 1], [63, 5], [64, 64], [65, 2], [257, 1], [3, 257], [0, 4], [4_200_000, 1]];

fn case([positions, cols]: [u32; 2], elements: u32) -> Case {
    let params = Params { positions, cols, steps: 1, value: 1.0 };
    Case::elements(format!("{positions} x {cols}"), params.words(), elements)
        .input(InputFill::Labels(index(positions * cols), 2))
}

fn compute_cases() -> Vec<Case> {
    SIZES.map(|size| case(size, size[0]).output(index(size[0]))).into()
}

fn apply_cases() -> Vec<Case> {
    let each = |size: [u32; 2]| {
        let len = size[0] * size[1];
        case(size, len).input(InputFill::Labels(index(size[0]), 2)).output(index(len))
    };
    SIZES.map(each).into()
}
