//! Gaussian noise, added or multiplied; what is multiplied, backward, too.

use std::f64::consts::SQRT_2;

use super::cases::{Case, InputFill};
use super::random::RowKey;
use super::rounding::{index, single};
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
    /// Number of the node in its model: two layers draw different numbers.
    node: u32,
    /// Standard deviation of what an element is multiplied by.
    relative: f32,
    /// Standard deviation of what is added.
    absolute: f32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD];

/// `x [len]` → `y [len]`: `x (1 + relative n) + absolute n`. Backward, without what is added: `dy` → `d_x`.
///
/// The normal number `n` depends on (seed, step, node, row of the whole batch, element) alone, so it is the same on every
/// adapter, up to rounding, and for every split of the batch. Grid: `Elements(len)`.
pub static FORWARD: Kernel = Kernel {
    stem: "gaussian",
    entry: "forward",
    source: wgsl!("gaussian"),
    uses: &[Library::Grid, Library::Random],
    params: Params::FIELDS,
    inputs: &["x"],
    outputs: &["y"],
    workgroup: 64,
    constants: &[],
    twin: forward_twin,
    fast: Some(forward_fast),
    // Two polynomials of nine terms, a logarithm and a root.
    tolerance: 5e-6,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

/// Coefficients of erfinv(x) / x in -ln(1 - x²) - 2.5, where that logarithm is below 5. Source: Giles 2010.
const NEAR_ZERO: [f64; 9] = [
    2.810_226_36e-8,
    3.432_739_39e-7,
    -3.523_387_7e-6,
    -4.391_506_54e-6,
    0.000_218_580_87,
    -0.001_253_725_03,
    -0.004_177_681_64,
    0.246_640_727,
    1.501_409_41,
];

/// Coefficients of the polynomial in √(-ln(1 - x²)) - 3, for larger `x`, the highest power first.
const NEAR_ONE: [f64; 9] = [
    -0.000_200_214_257,
    0.000_100_950_558,
    0.001_349_343_22,
    -0.003_673_428_44,
    0.005_739_507_73,
    -0.007_622_461_3,
    0.009_438_870_47,
    1.001_674_06,
    2.832_976_82,
];

/// A normal number from one that is uniform in [0, 1), a multiple of 2^-24.
fn normal(unit: f32) -> f64 {
    // An odd multiple of 2^-24: neither -1 nor 1.
    let x = 2.0 * f64::from(unit) - 1.0 + 5.960_464_477_539_063e-8;
    let w = -((1.0 - x) * (1.0 + x)).ln();
    let polynomial = |list: &[f64], v: f64| list.iter().fold(0.0, |sum, term| sum * v + term);
    SQRT_2 * x * if w < 5.0 { polynomial(&NEAR_ZERO, w - 2.5) } else { polynomial(&NEAR_ONE, w.sqrt() - 3.0) }
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let [relative, absolute] = [params.relative, params.absolute].map(f64::from);
    for i in 0..params.len {
        let row = params.first_row.wrapping_add(i / params.row_len);
        let element = i % params.row_len;
        let units = RowKey::new(params.seed, params.step, params.node, row).units(element / 4);
        let n = normal(units[index(element % 4)]);
        let x = f64::from(call.inputs[0][index(i)]);
        outputs[0][index(i)] = single(x * (1.0 + relative * n) + absolute * n);
    }
}

/// Four elements a hash, a row a key.
fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (row_len, x) = (index(params.row_len), call.inputs[0]);
    parallel::rows(&mut outputs[0][..index(params.len)], row_len, |first, y| {
        let rows = x[first * row_len..].chunks(row_len).zip(y.chunks_mut(row_len));
        for (row, (x, y)) in (params.first_row..).skip(first).zip(rows) {
            let key = RowKey::new(params.seed, params.step, params.node, row);
            for (block, (x, y)) in (0..).zip(x.chunks(4).zip(y.chunks_mut(4))) {
                for ((x, y), unit) in x.iter().zip(y).zip(key.units(block)) {
                    let n = single(normal(unit));
                    *y = x * (1.0 + params.relative * n) + params.absolute * n;
                }
            }
        }
    });
}

fn cases() -> Vec<Case> {
    let case = |rows: u32, row_len: u32, first_row: u32, [relative, absolute]: [f32; 2]| {
        let len = rows * row_len;
        let params = Params { len, row_len, first_row, seed: 5, step: 1234, node: 2, relative, absolute };
        let label = format!("{rows} x {row_len} from row {first_row}, {relative} and {absolute}");
        Case::elements(label, params.words(), len).input(InputFill::Normal(index(len))).output(index(len))
    };
    vec![
        case(1, 1, 0, [0.5, 0.0]),
        case(63, 1, 7, [0.25, 0.0]),
        case(8, 8, 100, [0.0, 1.0]),
        case(5, 13, 1, [0.0, 0.1]),
        case(1, 257, 65_535, [0.3, 0.2]),
        case(50, 1001, 12, [0.0, 1.0]),
        case(300, 257, 0, [1.0, 0.0]),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::activation_functions::erf;
    use super::*;

    fn run(rows: u32, first_row: u32) -> Vec<f32> {
        let sizes = Params {
            len: rows * 100,
            row_len: 100,
            first_row,
            seed: 9,
            step: 3,
            node: 1,
            relative: 0.0,
            absolute: 2.0,
        };
        let (x, mut y) = (vec![3.0; index(sizes.len)], vec![9.0; index(sizes.len)]);
        forward_twin(&Call { params: &sizes.words(), constants: &[], inputs: &[&x] }, &mut [&mut y]);
        y
    }

    /// The polynomials are those of erfinv: erf gives the argument back.
    #[test]
    fn normal_numbers_follow_their_distribution() {
        for k in (0u16..=u16::MAX).step_by(7) {
            let unit = f32::from(k) / 65_536.0;
            let x = 2.0 * f64::from(unit) - 1.0 + 5.960_464_477_539_063e-8;
            assert!((erf(normal(unit) / SQRT_2) - x).abs() < 5e-7, "{unit}");
        }
        let ends = [0.0, 1.0 - f32::EPSILON / 2.0].map(normal);
        assert!(ends[0] < -5.2 && ends[0] > -5.5 && (ends[0] + ends[1]).abs() < 1e-9, "{ends:?}");
    }

    #[test]
    #[allow(clippy::cast_precision_loss, reason = "some ten thousand numbers")]
    fn mean_and_deviation_are_those_asked_for() {
        let y: Vec<f64> = run(400, 0).into_iter().map(f64::from).collect();
        let mean = y.iter().sum::<f64>() / y.len() as f64;
        let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / y.len() as f64;
        // 40,000 draws of deviation 2: standard errors 0.01 and 0.028.
        assert!((mean - 3.0).abs() < 0.05 && (variance - 4.0).abs() < 0.14, "{mean} {variance}");
    }

    #[test]
    fn any_split_draws_the_same() {
        assert_eq!(run(10, 20), [run(4, 20), run(6, 24)].concat());
    }
}
