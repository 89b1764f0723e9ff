//! Which positions of a sequence count, and a sequence whose others are 0.

use super::cases::{Case, Fill};
use super::family::family;
use super::rounding::index;
use super::{Call, Kernel, parallel};

crate::params! {
    /// Positions, of all rows together.
    positions: u32,
    /// Numbers of a position.
    cols: u32,
    /// What each number of a position that does not count is.
    value: f32,
}

family!("mask", [Grid]);

/// Nothing is rounded.
const TOLERANCE: f32 = 0.0;

/// The family.
pub static KERNELS: &[&Kernel] = &[&COMPUTE, &APPLY];

/// `x [positions, cols]` → `mask [positions]`: 1 where a number is not `value`, else 0. Grid: `Elements(positions)`.
pub static COMPUTE: Kernel =
    kernel("compute", [&["x"], &["mask"], &[]], (compute_twin, compute_fast), TOLERANCE, compute_cases);

/// `x [positions, cols]`, `known [positions]` → `y [positions, cols]`: `x` where the mask is 1, else 0. Backward: `dy` → `d_x`.
///
/// Grid: `Elements(positions * cols)`.
pub static APPLY: Kernel =
    kernel("apply", [&["x", "known"], &["y"], &[]], (apply_twin, apply_fast), TOLERANCE, apply_cases);

/// Does a position count?
pub fn counts(mask: f32) -> bool {
    mask >= 0.5
}

fn compute_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, value } = call.params();
    for (p, mask) in outputs[0].iter_mut().enumerate().take(index(positions)) {
        let x = &call.inputs[0][p * index(cols)..(p + 1) * index(cols)];
        *mask = if x.iter().any(|x| *x != value) { 1.0 } else { 0.0 };
    }
}

fn compute_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { positions, cols, value } = call.params();
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

const SIZES: [[u32; 2]; 8] = [[1, 1], [63, 5], [64, 64], [65, 2], [257, 1], [3, 257], [0, 4], [4_200_000, 1]];

fn case([positions, cols]: [u32; 2], elements: u32) -> Case {
    let params = Params { positions, cols, value: 1.0 };
    Case::elements(format!("{positions} x {cols}"), params.words(), elements)
        .input(Fill::Labels(index(positions * cols), 2))
}

fn compute_cases() -> Vec<Case> {
    SIZES.map(|size| case(size, size[0]).output(index(size[0]))).into()
}

fn apply_cases() -> Vec<Case> {
    let each = |size: [u32; 2]| {
        let len = size[0] * size[1];
        case(size, len).input(Fill::Labels(index(size[0]), 2)).output(index(len))
    };
    SIZES.map(each).into()
}
