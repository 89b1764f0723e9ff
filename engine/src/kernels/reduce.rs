//! Sums over the rows of a matrix: bias gradients, and the parts of a split matrix product.
//!
//! `splits` is fixed when the plan is recorded, the rows of a slab follow from the run's rows: the sums are the
//! same for any adapter and any order of its workgroups.

use std::ops::Range;

use super::cases::{Case, InputFill};
use super::parallel::{self, Slabs};
use super::rounding::{index, single};
use super::text::wgsl;
use super::{Call, Kernel, Library};

crate::params! {
    /// Rows of `x`; not read by `combine`.
    rows: u32,
    /// Columns.
    cols: u32,
    /// Number of slabs.
    splits: u32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&COLUMN_SUMS, &COMBINE];

const SOURCE: &str = wgsl!("reduce");

/// `x [rows, cols]` → `partials [splits, cols]`, the sum of each slab's rows.
///
/// Grid: `Elements(splits * cols)`.
pub static COLUMN_SUMS: Kernel = Kernel {
    stem: "reduce",
    entry: "column_sums",
    source: SOURCE,
    uses: &[Library::Grid],
    params: Params::FIELDS,
    inputs: &["x"],
    outputs: &["partials"],
    workgroup: 64,
    constants: &[],
    twin: column_sums_twin,
    fast: Some(column_sums_fast),
    // Sums of up to 4096 normal numbers in f32, by blocks of eight: about 60 units of 6e-8, 500 roundings.
    tolerance: 5e-5,
    #[cfg(not(target_arch = "wasm32"))]
    cases: column_sums_cases,
}
.lean();

/// `parts [splits, cols]` → `y [cols]`, their sum in order.
///
/// Grid: `Elements(cols)`.
pub static COMBINE: Kernel = Kernel {
    stem: "reduce",
    entry: "combine",
    source: SOURCE,
    uses: &[Library::Grid],
    params: Params::FIELDS,
    inputs: &["parts"],
    outputs: &["y"],
    workgroup: 64,
    constants: &[],
    twin: combine_twin,
    fast: Some(combine_fast),
    // At most 256 normal numbers.
    tolerance: 1e-5,
    #[cfg(not(target_arch = "wasm32"))]
    cases: combine_cases,
}
.lean();

/// Slabs that give a GPU enough to do for a sum over many rows of `cols` columns: about 8192 invocations.
pub fn splits(cols: usize) -> usize {
    8192_usize.div_ceil(cols.max(1)).clamp(1, 128)
}

fn column_sums_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, cols, splits } = call.params();
    let (x, cols, slabs) = (call.inputs[0], index(cols), Slabs::new(index(rows), index(splits)));
    for split in 0..index(splits) {
        for col in 0..cols {
            let sum: f64 = slabs.range(split).map(|row| f64::from(x[row * cols + col])).sum();
            outputs[0][split * cols + col] = single(sum);
        }
    }
}

fn combine_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { cols, splits, .. } = call.params();
    let (parts, cols) = (call.inputs[0], index(cols));
    for col in 0..cols {
        outputs[0][col] = single((0..index(splits)).map(|split| f64::from(parts[split * cols + col])).sum());
    }
}

/// Columns summed at a time: 8 KiB of f64, in the L1 cache.
const BLOCK: usize = 1024;

/// `sums[c]` = sum over `rows` of `x[r, first + c]`, rows in order, in f64.
fn sum_rows(x: &[f32], cols: usize, rows: Range<usize>, first: usize, sums: &mut [f32]) {
    let mut total = [0.0f64; BLOCK];
    for (block, sums) in sums.chunks_mut(BLOCK).enumerate() {
        let total = &mut total[..sums.len()];
        total.fill(0.0);
        for row in rows.clone() {
            let at = row * cols + first + block * BLOCK;
            total.iter_mut().zip(&x[at..]).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        sums.iter_mut().zip(&*total).for_each(|(sum, total)| *sum = single(*total));
    }
}

fn column_sums_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, cols, splits } = call.params();
    let (rows, cols, splits) = (index(rows), index(cols), index(splits));
    let (x, slabs) = (call.inputs[0], Slabs::new(rows, splits));
    parallel::slabs(&mut outputs[0][..splits * cols], cols, rows * cols, |split, sums| {
        sum_rows(x, cols, slabs.range(split), 0, sums);
    });
}

fn combine_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { cols, splits, .. } = call.params();
    let (parts, cols, splits) = (call.inputs[0], index(cols), index(splits));
    parallel::chunks(&mut outputs[0][..cols], |first, sums| sum_rows(parts, cols, 0..splits, first, sums));
}

fn column_sums_cases() -> Vec<Case> {
    let case = |rows: u32, cols: u32, splits: u32| {
        Case::elements(format!("{rows} x {cols}, {splits} slabs"), Params { rows, cols, splits }.words(), splits * cols)
            .input(InputFill::Normal(index(rows * cols)))
            .output(index(splits * cols))
    };
    vec![
        case(1, 1, 1),
        case(63, 1, 4),
        case(64, 64, 3),
        case(65, 257, 8),
        case(257, 65, 64),
        case(3, 10, 8),
        case(0, 5, 4),
        case(4096, 3, 1),
        case(20_000, 10, 128),
    ]
}

fn combine_cases() -> Vec<Case> {
    let case = |cols: u32, splits: u32| {
        Case::elements(format!("{splits} slabs of {cols}"), Params { rows: 0, cols, splits }.words(), cols)
            .input(InputFill::Normal(index(splits * cols)))
            .output(index(cols))
    };
    vec![case(1, 1), case(63, 2), case(64, 3), case(65, 257), case(257, 5), case(100_003, 4)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_sum_exactly() {
        // Column c of row r holds r + 1000 c: its sum over n rows is n (n - 1) / 2 + 1000 c n.
        let (rows, cols, splits) = (103usize, 5usize, 7usize);
        let x: Vec<f32> = (0..rows * cols).map(|i| (i / cols + 1000 * (i % cols)) as f32).collect();
        let (mut partials, mut y) = (vec![0.0; splits * cols], vec![0.0; cols]);
        let params = Params { rows: 103, cols: 5, splits: 7 }.words();
        for (sums, combine) in [(COLUMN_SUMS.twin, COMBINE.twin), (column_sums_fast, combine_fast)] {
            sums(&Call { params: &params, constants: &[], inputs: &[&x] }, &mut [&mut partials]);
            combine(&Call { params: &params, constants: &[], inputs: &[&partials] }, &mut [&mut y]);
            for (col, sum) in y.iter().enumerate() {
                assert_eq!(*sum, (rows * (rows - 1) / 2 + 1000 * col * rows) as f32);
            }
        }
    }
}
