//! Inverted dropout, forward and backward alike.

use super::cases::{Case, InputFill};
use super::random::{self, RowKey};
use super::rounding::{ceiling, index, single};
use super::text::wgsl;
use super::{Call, Kernel, Library, parallel};

crate::params! {
    /// Elements of this run: its rows times `row_len`.
    len: u32,
    /// Elements of a row.
    row_len: u32,
    /// Index in the whole batch of this run's first row.
    first_row: u32,
    /// Seed of the run.
    seed: u32,
    /// Training step.
    step: u32,
    /// Number of the node in its model: two layers drop different elements.
    node: u32,
    /// Share of the elements that are dropped.
    rate: f32,
    /// Elements side by side that share a number.
    inner: u32,
    /// Numbers of a row, which are used again from the first on.
    drawn: u32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD];

/// `x [len]` → `y [len]`: 0 for a share `rate` of the elements, `x / (1 - rate)` for the others. Backward: `dy` → `d_x`.
///
/// The mask depends on (seed, step, node, row of the whole batch, element) alone, so it is the same on every adapter
/// and for every split of the batch. Grid: `Elements(len)`. Source: Srivastava et al. 2014, JMLR 15.
pub static FORWARD: Kernel = Kernel {
    stem: "dropout",
    entry: "forward",
    source: wgsl!("dropout"),
    uses: &[Library::Grid, Library::Random],
    params: Params::FIELDS,
    inputs: &["x"],
    outputs: &["y"],
    workgroup: 64,
    constants: &[],
    twin: forward_twin,
    fast: Some(forward_fast),
    // One subtraction and one division, at 2.5 units; a mask that differs would be far outside.
    tolerance: 1e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

fn factor(rate: f32) -> f64 {
    1.0 / f64::from((1.0 - rate).max(1e-7))
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let factor = factor(params.rate);
    for i in 0..params.len {
        let row = params.first_row.wrapping_add(i / params.row_len);
        let element = i % params.row_len / params.inner % params.drawn;
        let units = RowKey::new(params.seed, params.step, params.node, row).units(element / 4);
        let keeps = units[index(element % 4)] >= params.rate;
        let kept = single(f64::from(call.inputs[0][index(i)]) * factor);
        outputs[0][index(i)] = if keeps { kept } else { 0.0 };
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (row_len, x, factor) = (index(params.row_len), call.inputs[0], single(factor(params.rate)));
    parallel::rows(&mut outputs[0][..index(params.len)], row_len, |first, y| {
        let rows = x[first * row_len..].chunks(row_len).zip(y.chunks_mut(row_len));
        for (row, (x, y)) in (params.first_row..).skip(first).zip(rows) {
            let key = RowKey::new(params.seed, params.step, params.node, row);
            if params.inner == 1 && params.drawn == params.row_len {
                drop_row(key, (params.rate, factor), x, y);
            } else {
                drop_shared(key, &params, factor, (x, y));
            }
        }
    });
}

/// A row whose elements share numbers.
fn drop_shared(key: RowKey, params: &Params, factor: f32, (x, y): (&[f32], &mut [f32])) {
    let (drawn, inner) = (index(params.drawn), index(params.inner));
    let (ones, mut factors) = (vec![1.0; drawn], vec![0.0; drawn]);
    drop_row(key, (params.rate, factor), &ones, &mut factors);
    for (x, y) in x.chunks(drawn * inner).zip(y.chunks_mut(drawn * inner)) {
        for ((x, y), factor) in x.chunks(inner).zip(y.chunks_mut(inner)).zip(&factors) {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = if *factor == 0.0 { 0.0 } else { x * factor });
        }
    }
}

fn drop_row(key: RowKey, (rate, factor): (f32, f32), x: &[f32], y: &mut [f32]) {
    // u = k / 2^24 >= rate just where k >= rate * 2^24: that product is exact.
    let least = ceiling(rate * 16_777_216.0);
    let len = 4 * random::LANES;
    for (first, (x, y)) in (0..).step_by(random::LANES).zip(x.chunks(len).zip(y.chunks_mut(len))) {
        // Masks of bits, not choices: half of all branches would be mispredicted.
        let mut masks = [0u32; 4 * random::LANES];
        for (element, words) in key.words(first).iter().enumerate() {
            for (block, word) in words.iter().enumerate() {
                masks[4 * block + element] = u32::from(word >> 8 >= least).wrapping_neg();
            }
        }
        for ((y, x), mask) in y.iter_mut().zip(x).zip(masks) {
            *y = f32::from_bits((x * factor).to_bits() & mask);
        }
    }
}

fn cases() -> Vec<Case> {
    let shared = |[rows, row_len, first_row]: [u32; 3], rate: f32, [inner, drawn]: [u32; 2]| {
        let params =
            Params { len: rows * row_len, row_len, first_row, seed: 5, step: 1234, node: 2, rate, inner, drawn };
        let label = format!("{rows} x {row_len} from row {first_row}, rate {rate}, {drawn} numbers for {inner} each");
        let case = Case::elements(label, params.words(), params.len);
        case.input(InputFill::Normal(index(params.len))).output(index(params.len))
    };
    let case = |rows, row_len, first_row, rate| shared([rows, row_len, first_row], rate, [1, row_len]);
    vec![
        case(1, 1, 0, 0.5),
        case(63, 1, 7, 0.25),
        case(8, 8, 100, 0.0),
        case(5, 13, 1, 0.9),
        case(1, 257, 65_535, 0.3),
        case(3, 10, 0, 1.0),
        case(50, 1001, 12, 0.5),
        case(300, 257, 0, 0.1),
        shared([3, 35, 1], 0.5, [1, 5]),
        shared([70, 6, 2], 0.3, [6, 1]),
        shared([2, 66, 9], 0.5, [3, 22]),
        shared([5, 60, 0], 0.4, [5, 3]),
        shared([40, 3000, 4], 0.2, [1, 60]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rows: u32, first_row: u32, step: u32) -> Vec<f32> {
        let sizes = Params {
            len: rows * 100,
            row_len: 100,
            first_row,
            seed: 9,
            step,
            node: 1,
            rate: 0.25,
            inner: 1,
            drawn: 100,
        };
        let params = sizes;
        let (x, mut y) = (vec![3.0; index(params.len)], vec![9.0; index(params.len)]);
        forward_twin(&Call { params: &params.words(), constants: &[], inputs: &[&x] }, &mut [&mut y]);
        y
    }

    #[test]
    fn a_quarter_is_dropped_and_the_rest_scaled() {
        let y = run(400, 0, 1);
        let dropped = y.iter().filter(|y| **y == 0.0).count();
        // 40,000 draws of 1/4: standard deviation 87.
        assert!((9_600..10_400).contains(&dropped), "{dropped}");
        assert!(y.iter().all(|y| *y == 0.0 || *y == 4.0));
    }

    #[test]
    fn any_split_drops_the_same() {
        let whole = run(10, 20, 3);
        assert_eq!(whole, [run(4, 20, 3), run(6, 24, 3)].concat());
        assert_ne!(whole, run(10, 20, 4));
    }
}
