//! L1 and L2 penalties of weights and of a layer's outputs, and their slopes.
//!
//! `penalty(v) = l1 |v| + l2 v²` and `slope(v) = l1 sign(v) + 2 l2 v`, where the sign of 0 is 0. Source: Keras 3 `L1L2`.

use super::cases::{Case, InputFill};
use super::family::family;
use super::parallel::{self, Slabs};
use super::rounding::{float, index, single};
use super::{Call, Kernel};
use crate::size::Grid;

crate::params! {
    /// Elements.
    len: u32,
    /// Slabs, or rows; not read by `slopes`.
    splits: u32,
    /// Factor of the values' sizes.
    l1: f32,
    /// Factor of the values' squares.
    l2: f32,
    /// Divisor of the outputs' slopes: rows of the whole batch. Not read by `weights` and `outputs`.
    count: u32,
    /// Factor of the outputs' slopes, which is that of all gradients. Not read by `weights` and `outputs`.
    scale: f32,
}

family!("regularizer", [Grid, Reduce], 256);

/// Sums of positive terms, some hundred additions a lane.
const TOLERANCE: f32 = 1e-5;

/// The family.
pub static KERNELS: &[&Kernel] = &[&WEIGHTS, &OUTPUTS, &SLOPES];

/// `weights_in [len]` → `gradient [len]` in place, `penalties [splits]`: adds the slopes, and gives the penalty of each
/// slab.
///
/// Grid: `Items(splits)`; how many slabs: [`clip::splits`](super::clip::splits).
pub static WEIGHTS: Kernel = kernel(
    "weights",
    [&["weights_in"], &["gradient", "penalties"], &[]],
    (weights_twin, weights_fast),
    TOLERANCE,
    weights_cases,
);

/// `values [splits, len / splits]` → `report [splits, 2]`: the penalty of each row and 0. With the constant `ADDS` at 1 the
/// penalty is added to what is there.
///
/// Grid: `Items(splits)`.
pub static OUTPUTS: Kernel =
    kernel("outputs", [&["values"], &["report"], &["ADDS"]], (outputs_twin, outputs_fast), TOLERANCE, outputs_cases);

/// `values [len]` → `output_gradient [len]` in place: adds the slopes, divided by `count` and times `scale`.
///
/// Grid: `Elements(len)`.
pub static SLOPES: Kernel =
    kernel("slopes", [&["values"], &["output_gradient"], &[]], (slopes_twin, slopes_fast), 2e-6, slopes_cases);

/// Adds the slopes of weights to their gradient, and gives their penalty.
pub fn add_slopes(gradient: &mut [f32], weights: &[f32], [l1, l2]: [f32; 2]) -> f64 {
    let mut sum = 0.0;
    // Blocks whose sums are short, so that those of f32 lose nothing.
    for (gradient, weights) in gradient.chunks_mut(BLOCK).zip(weights.chunks(BLOCK)) {
        gradient.iter_mut().zip(weights).for_each(|(gradient, value)| *gradient += slope(*value, l1, l2));
        sum += block_penalty(weights, [l1, l2]);
    }
    sum
}

/// The penalty of some values.
pub fn penalty(values: &[f32], factors: [f32; 2]) -> f64 {
    values.chunks(BLOCK).map(|block| block_penalty(block, factors)).sum()
}

/// Values whose penalties are added in f32.
const BLOCK: usize = 64;

fn block_penalty(values: &[f32], [l1, l2]: [f32; 2]) -> f64 {
    let chunks = values.chunks_exact(8);
    let rest: f32 = chunks.remainder().iter().map(|value| l1 * value.abs() + l2 * value * value).sum();
    let mut sums = [0.0f32; 8];
    for chunk in chunks {
        // Eight running sums, so that the loop is vectorised.
        for lane in 0..8 {
            sums[lane] += l1 * chunk[lane].abs() + l2 * chunk[lane] * chunk[lane];
        }
    }
    sums.into_iter().map(f64::from).sum::<f64>() + f64::from(rest)
}

/// The slope of |v| at 0 is 0.
fn slope(value: f32, l1: f32, l2: f32) -> f32 {
    let sign = if value == 0.0 { 0.0 } else { 1.0_f32.copysign(value) };
    l1 * sign + 2.0 * l2 * value
}

fn double_penalty(value: f32, params: &Params) -> f64 {
    f64::from(params.l1) * f64::from(value.abs()) + f64::from(params.l2) * f64::from(value).powi(2)
}

fn double_slope(value: f32, params: &Params) -> f64 {
    let sign = if value == 0.0 { 0.0 } else { 1.0_f64.copysign(f64::from(value)) };
    f64::from(params.l1) * sign + 2.0 * f64::from(params.l2) * f64::from(value)
}

fn weights_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let slabs = Slabs::new(index(params.len), index(params.splits));
    for split in 0..index(params.splits) {
        let mut sum = 0.0;
        for i in slabs.range(split) {
            sum += double_penalty(call.inputs[0][i], &params);
            outputs[0][i] = single(f64::from(outputs[0][i]) + double_slope(call.inputs[0][i], &params));
        }
        outputs[1][split] = single(sum);
    }
}

fn weights_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let slabs = Slabs::new(index(params.len), index(params.splits));
    let [gradient, penalties] = outputs else { return };
    for (split, penalty) in penalties.iter_mut().enumerate().take(index(params.splits)) {
        let range = slabs.range(split);
        *penalty = single(add_slopes(&mut gradient[range.clone()], &call.inputs[0][range], [params.l1, params.l2]));
    }
}

fn outputs_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    report(call, outputs[0], |values| values.iter().map(|value| double_penalty(*value, &params)).sum());
}

fn outputs_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    report(call, outputs[0], |values| penalty(values, [params.l1, params.l2]));
}

fn report(call: &Call<'_>, report: &mut [f32], penalty_of: impl Fn(&[f32]) -> f64 + Sync) {
    let params: Params = call.params();
    let adds = call.constant("ADDS", 0.0) > 0.5;
    let slabs = Slabs::new(index(params.len), index(params.splits));
    parallel::slabs(&mut report[..2 * index(params.splits)], 2, index(params.len), |split, row| {
        let penalty = single(penalty_of(&call.inputs[0][slabs.range(split)]));
        if adds {
            row[0] += penalty;
        } else {
            row.copy_from_slice(&[penalty, 0.0]);
        }
    });
}

fn slopes_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    for (gradient, value) in outputs[0].iter_mut().zip(call.inputs[0]).take(index(params.len)) {
        let slope = f64::from(params.scale) * double_slope(*value, &params) / f64::from(params.count.max(1));
        *gradient = single(f64::from(*gradient) + slope);
    }
}

fn slopes_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let share = 1.0 / float(index(params.count.max(1)));
    parallel::rows(&mut outputs[0][..index(params.len)], 1, |first, gradient| {
        let pairs = gradient.iter_mut().zip(&call.inputs[0][first..]);
        pairs.for_each(|(gradient, value)| *gradient += params.scale * (slope(*value, params.l1, params.l2) * share));
    });
}

const FACTORS: [[f32; 2]; 3] = [[0.01, 0.0], [0.0, 0.02], [0.03, 0.01]];

fn case(len: u32, splits: u32, [l1, l2]: [f32; 2], grid: Grid) -> Case {
    let params = Params { len, splits, l1, l2, count: 7, scale: 4.0 };
    let mut values = InputFill::Normal(index(len)).values(3);
    values.iter_mut().step_by(5).for_each(|value| *value = 0.0);
    let case = Case::new(format!("{len} in {splits} slabs, l1 {l1}, l2 {l2}"), params.words(), grid);
    case.input(InputFill::Values(values))
}

fn weights_cases() -> Vec<Case> {
    let sizes = [(1, 1), (63, 2), (64, 1), (65, 4), (257, 1), (70_001, 18)];
    let cases = sizes.into_iter().zip(FACTORS.into_iter().cycle()).map(|((len, splits), factors)| {
        let case = case(len, splits, factors, Grid::Items(splits.into()));
        case.in_place(InputFill::Normal(index(len))).output(index(splits))
    });
    cases.collect()
}

fn outputs_cases() -> Vec<Case> {
    let sizes = [(1, 1), (63, 1), (64, 64), (65, 5), (257, 3), (70, 1_100)];
    let cases = sizes.into_iter().zip(FACTORS.into_iter().cycle()).map(|((cols, rows), factors)| {
        let case = case(cols * rows, rows, factors, Grid::Items(rows.into()));
        case.output(2 * index(rows))
    });
    let mut cases: Vec<Case> = cases.collect();
    let case = case(65 * 3, 3, FACTORS[2], Grid::Items(3.into())).constant("ADDS", 1.0);
    cases.push(case.in_place(InputFill::Normal(6)));
    cases
}

fn slopes_cases() -> Vec<Case> {
    let sizes = [1, 63, 64, 65, 257, 70_001].into_iter().zip(FACTORS.into_iter().cycle());
    let case = |(len, factors): (u32, [f32; 2])| {
        case(len, 1, factors, Grid::Elements(len.into())).in_place(InputFill::Normal(index(len)))
    };
    sizes.map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_by_hand() {
        let mut gradient = [1.0, 1.0, 1.0];
        // 0.5 · (2 + 0 + 3) + 0.25 · (4 + 9)
        assert_eq!(add_slopes(&mut gradient, &[2.0, 0.0, -3.0], [0.5, 0.25]), 5.75);
        assert_eq!(gradient, [2.5, 1.0, -1.0]);
        assert_eq!(penalty(&[-3.0; 100], [1.0, 0.0]), 300.0);
    }
}
