//! One part of a concatenation along the last axis: a dispatch for each part.

use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::index;
use super::{Call, Kernel};

crate::params! {
    /// Rows: all axes but the last, multiplied.
    rows: u32,
    /// Columns of the part.
    cols: u32,
    /// Columns of the whole.
    total: u32,
    /// Column of the whole at which the part begins.
    offset: u32,
}

family!("concatenate", [Grid]);

/// Copies. The twins copy whole rows, so that they are fast, too.
const TOLERANCE: f32 = 0.0;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD];

/// `x [rows, cols]` → columns `offset..offset + cols` of `y [rows, total]`.
///
/// Grid: `Elements(rows * cols)`.
pub static FORWARD: Kernel =
    kernel("forward", [&["x"], &["y"], &[]], (forward_twin, forward_twin), TOLERANCE, forward_cases);

/// Columns `offset..offset + cols` of `dy [rows, total]` → `d_x [rows, cols]`.
///
/// Grid: `Elements(rows * cols)`.
pub static BACKWARD: Kernel =
    kernel("backward", [&["dy"], &["d_x"], &[]], (backward_twin, backward_twin), TOLERANCE, backward_cases);

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, cols, total, offset } = call.params();
    let (cols, total, offset) = (index(cols), index(total), index(offset));
    let pairs = call.inputs[0].chunks_exact(cols).zip(outputs[0].chunks_exact_mut(total)).take(index(rows));
    pairs.for_each(|(x, y)| y[offset..offset + cols].copy_from_slice(x));
}

fn backward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, cols, total, offset } = call.params();
    let (cols, total, offset) = (index(cols), index(total), index(offset));
    let pairs = call.inputs[0].chunks_exact(total).zip(outputs[0].chunks_exact_mut(cols)).take(index(rows));
    pairs.for_each(|(dy, d_x)| d_x.copy_from_slice(&dy[offset..offset + cols]));
}

fn each_size(buffers: fn(Case, usize, usize) -> Case) -> Vec<Case> {
    [(1, 1, 1, 0), (1, 3, 64, 61), (63, 1, 2, 1), (64, 65, 70, 0), (257, 5, 300, 100), (65, 257, 514, 257)]
        .map(|(rows, cols, total, offset)| {
            let label = format!("{rows} x {cols} at {offset} of {total}");
            let case = Case::elements(label, Params { rows, cols, total, offset }.words(), rows * cols);
            buffers(case, index(rows * cols), index(rows * total))
        })
        .into()
}

fn forward_cases() -> Vec<Case> {
    each_size(|case, part, whole| case.input(InputFill::Normal(part)).output(whole))
}

fn backward_cases() -> Vec<Case> {
    each_size(|case, part, whole| case.input(InputFill::Normal(whole)).output(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join_and_come_apart() {
        let (left, right) = ([1.0, 2.0, 5.0, 6.0], [3.0, 7.0]);
        let mut y = [0.0; 6];
        let params = |cols, offset| Params { rows: 2, cols, total: 3, offset }.words();
        for (part, cols, offset) in [(&left[..], 2, 0), (&right[..], 1, 2)] {
            let call = Call { params: &params(cols, offset), constants: &[], inputs: &[part] };
            forward_twin(&call, &mut [&mut y]);
        }
        assert_eq!(y, [1.0, 2.0, 3.0, 5.0, 6.0, 7.0]);
        let mut back = [0.0; 4];
        backward_twin(&Call { params: &params(2, 0), constants: &[], inputs: &[&y] }, &mut [&mut back]);
        assert_eq!(back, left);
    }
}
