//! Element-wise sum, sum in place, and copy.

use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::{index, single};
use super::{Call, Kernel, parallel};
use crate::size::{Grid, Length, length_word, vectors_word};

crate::params! {
    /// Number of elements.
    len: u32,
}

family!("add", [Grid]);

impl Record {
    /// That of tensors of a length, with the grid of all three kernels.
    pub fn of(len: Length) -> (Self, Grid) {
        (Self { len: length_word(len) }, Grid::Elements(vectors_word(len)))
    }
}

/// One rounding.
const TOLERANCE: f32 = 1e-6;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &ACCUMULATE, &COPY];

/// `a [len]`, `b [len]` → `sum [len]`.
///
/// Grid: `Elements(ceil(len / 4))`.
pub static FORWARD: Kernel =
    kernel("forward", [&["a", "b"], &["sum"], &[]], (forward_twin, forward_fast), TOLERANCE, forward_cases);

/// `x [len]` → `y [len]`, which it adds to.
///
/// Grid: `Elements(ceil(len / 4))`.
pub static ACCUMULATE: Kernel =
    kernel("accumulate", [&["x"], &["y"], &[]], (accumulate_twin, accumulate_fast), TOLERANCE, cases);

/// `x [len]` → `y [len]`, the same values.
///
/// Grid: `Elements(ceil(len / 4))`.
pub static COPY: Kernel = kernel("copy", [&["x"], &["y"], &[]], (copy, copy), TOLERANCE, cases);

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len } = call.params();
    let terms = call.inputs[0].iter().zip(call.inputs[1]);
    for (sum, (a, b)) in outputs[0].iter_mut().zip(terms).take(index(len)) {
        *sum = single(f64::from(*a) + f64::from(*b));
    }
}

fn accumulate_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len } = call.params();
    for (y, x) in outputs[0].iter_mut().zip(call.inputs[0]).take(index(len)) {
        *y = single(f64::from(*y) + f64::from(*x));
    }
}

fn copy(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let len = index(call.params::<Params>().len);
    outputs[0][..len].copy_from_slice(&call.inputs[0][..len]);
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let len = index(call.params::<Params>().len);
    let (a, b) = (call.inputs[0], call.inputs[1]);
    parallel::chunks(&mut outputs[0][..len], |first, sum| {
        let terms = a[first..].iter().zip(&b[first..]);
        sum.iter_mut().zip(terms).for_each(|(sum, (a, b))| *sum = a + b);
    });
}

fn accumulate_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let len = index(call.params::<Params>().len);
    let x = call.inputs[0];
    parallel::chunks(&mut outputs[0][..len], |first, y| {
        y.iter_mut().zip(&x[first..]).for_each(|(y, x)| *y += x);
    });
}

fn forward_cases() -> Vec<Case> {
    // The last has 65,537 workgroups of 64 vectors: its grid is folded.
    [1, 63, 64, 65, 257, 256 * 65_536 + 3]
        .map(|len: u32| {
            Case::elements(format!("{len}"), Params { len }.words(), len.div_ceil(4))
                .input(InputFill::Normal(index(len)))
                .input(InputFill::Normal(index(len)))
                .output(index(len))
        })
        .into()
}

fn cases() -> Vec<Case> {
    [1, 63, 64, 65, 257, 70_001]
        .map(|len: u32| {
            Case::elements(format!("{len}"), Params { len }.words(), len.div_ceil(4))
                .input(InputFill::Normal(index(len)))
                .in_place(InputFill::Normal(index(len)))
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_len_elements_change() {
        let params = Params { len: 2 }.words();
        for (kernel, expected) in [(&ACCUMULATE, [11.0, 22.0, 30.0]), (&COPY, [1.0, 2.0, 30.0])] {
            for run in [Some(kernel.twin), kernel.fast].into_iter().flatten() {
                let mut y = [10.0, 20.0, 30.0];
                run(&Call { params: &params, constants: &[], inputs: &[&[1.0, 2.0, 3.0]] }, &mut [&mut y]);
                assert_eq!(y, expected);
            }
        }
    }
}
