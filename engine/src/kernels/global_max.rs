//! The largest value of each channel over all positions, and its gradient.

use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::{float, index, single};
use super::{Call, Kernel, parallel};

crate::params! {
    /// Pictures.
    rows: u32,
    /// Positions of a picture: height times width.
    positions: u32,
    /// Channels.
    channels: u32,
}

family!("global_max", [Grid]);

/// One division.
const TOLERANCE: f32 = 1e-6;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD];

/// `x [rows, positions, channels]` → `y [rows, channels]`, and `ties [rows, channels]`: how many positions have it.
///
/// Grid: `Elements(rows * channels)`.
pub static FORWARD: Kernel =
    kernel("forward", [&["x"], &["y", "ties"], &[]], (forward_twin, forward_fast), TOLERANCE, forward_cases);

/// `x`, `max_y` and `max_ties` (from forward), `dy [rows, channels]` → `d_x [rows, positions, channels]`.
///
/// Equal maxima share the gradient. Grid: `Elements(rows * positions * channels)`.
pub static BACKWARD: Kernel = kernel(
    "backward",
    [&["x", "max_y", "max_ties", "dy"], &["d_x"], &[]],
    (backward_twin, backward_fast),
    TOLERANCE,
    backward_cases,
);

/// The larger, or the NaN.
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a >= b { a } else { b }
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, positions, channels } = call.params();
    let (row_len, channels) = (index(positions) * index(channels), index(channels));
    let [y, ties] = outputs else { return };
    for (i, (y, ties)) in y.iter_mut().zip(ties.iter_mut()).enumerate().take(index(rows) * channels) {
        let values = || call.inputs[0][i / channels * row_len..][..row_len].iter().skip(i % channels).step_by(channels);
        *y = values().copied().fold(f32::MIN, larger);
        *ties = float(values().filter(|value| *value == y).count().max(1));
    }
}

fn backward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, positions, channels } = call.params();
    let (row_len, channels) = (index(positions) * index(channels), index(channels));
    let [x, y, ties, dy] = [call.inputs[0], call.inputs[1], call.inputs[2], call.inputs[3]];
    for (i, d_x) in outputs[0].iter_mut().enumerate().take(index(rows) * row_len) {
        let source = i / row_len * channels + i % channels;
        let share = f64::from(dy[source]) / f64::from(ties[source]);
        *d_x = if x[i] == y[source] { single(share) } else { 0.0 };
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, positions, channels } = call.params();
    let (rows, row_len, channels) = (index(rows), index(positions) * index(channels), index(channels));
    let [y, ties] = outputs else { return };
    let (y, ties) = (&mut y[..rows * channels], &mut ties[..rows * channels]);
    parallel::slabs(y, channels, rows * row_len, |row, y| {
        y.fill(f32::MIN);
        for x in call.inputs[0][row * row_len..(row + 1) * row_len].chunks_exact(channels) {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = larger(*y, *x));
        }
    });
    let y = &*y;
    parallel::slabs(ties, channels, rows * row_len, |row, ties| {
        ties.fill(0.0);
        for x in call.inputs[0][row * row_len..(row + 1) * row_len].chunks_exact(channels) {
            let pairs = x.iter().zip(&y[row * channels..]);
            ties.iter_mut().zip(pairs).for_each(|(ties, (x, y))| *ties += if x == y { 1.0 } else { 0.0 });
        }
        ties.iter_mut().for_each(|ties| *ties = ties.max(1.0));
    });
}

fn backward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { rows, positions, channels } = call.params();
    let (row_len, channels) = (index(positions) * index(channels), index(channels));
    let [x, y, ties, dy] = [call.inputs[0], call.inputs[1], call.inputs[2], call.inputs[3]];
    let d_x = &mut outputs[0][..index(rows) * row_len];
    let work = d_x.len();
    parallel::slabs(d_x, row_len, work, |row, d_x| {
        let of = row * channels..(row + 1) * channels;
        let each = d_x.chunks_exact_mut(channels).zip(x[row * row_len..].chunks_exact(channels));
        for (d_x, x) in each {
            let told = y[of.clone()].iter().zip(&ties[of.clone()]).zip(&dy[of.clone()]);
            for ((d_x, x), ((y, ties), dy)) in d_x.iter_mut().zip(x).zip(told) {
                *d_x = if x == y { dy / ties } else { 0.0 };
            }
        }
    });
}

const SIZES: [[u32; 3]; 8] =
    [[1, 1, 1], [3, 7, 5], [2, 63, 1], [1, 64, 65], [65, 1, 3], [2, 257, 4], [257, 4, 1], [2, 900, 64]];

/// Whole numbers from -4 to 0, so that there are several maxima.
fn tied(len: usize) -> Vec<f32> {
    InputFill::Labels(len, 5).values(1).iter().map(|value| value - 4.0).collect()
}

/// A NaN at every eleventh place.
fn broken(len: usize) -> Vec<f32> {
    let mut values = tied(len);
    values.iter_mut().step_by(11).for_each(|value| *value = f32::NAN);
    values
}

/// Values of so many elements.
type MakeValues = fn(usize) -> Vec<f32>;

fn each_size(count: fn([u32; 3]) -> u32, buffers: impl Fn(Case, [usize; 3], Vec<f32>) -> Case) -> Vec<Case> {
    let fills: [(&str, MakeValues); 3] =
        [("normal", |len| InputFill::Normal(len).values(1)), ("ties", tied), ("with NaN", broken)];
    let case = |size: [u32; 3], (label, fill): (&str, MakeValues)| {
        let [rows, positions, channels] = size;
        let params = Params { rows, positions, channels };
        let case = Case::elements(format!("{size:?}, {label}"), params.words(), count(size));
        buffers(case, size.map(index), fill(index(rows * positions * channels)))
    };
    SIZES.iter().flat_map(|size| fills.map(|fill| case(*size, fill))).collect()
}

fn forward_cases() -> Vec<Case> {
    each_size(
        |[rows, _, channels]| rows * channels,
        |case, [rows, _, channels], x| case.input(InputFill::Values(x)).output(rows * channels).output(rows * channels),
    )
}

fn backward_cases() -> Vec<Case> {
    each_size(
        |[rows, positions, channels]| rows * positions * channels,
        |case, [rows, positions, channels], x| {
            let [mut y, mut ties] = [vec![0.0; rows * channels], vec![0.0; rows * channels]];
            let call = Call { params: &case.params, constants: &[], inputs: &[&x] };
            forward_twin(&call, &mut [&mut y, &mut ties]);
            let case = case.input(InputFill::Values(x)).input(InputFill::Values(y)).input(InputFill::Values(ties));
            case.input(InputFill::Normal(rows * channels)).output(rows * positions * channels)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_maxima_share_the_gradient() {
        let params = Params { rows: 1, positions: 3, channels: 2 }.words();
        let x = [1.0, -5.0, 4.0, -2.0, 4.0, -3.0];
        let [mut y, mut ties, mut d_x] = [vec![0.0; 2], vec![0.0; 2], vec![9.0; 6]];
        forward_twin(&Call { params: &params, constants: &[], inputs: &[&x] }, &mut [&mut y, &mut ties]);
        assert_eq!((&y[..], &ties[..]), (&[4.0, -2.0][..], &[2.0, 1.0][..]));
        backward_twin(
            &Call { params: &params, constants: &[], inputs: &[&x, &y, &ties, &[6.0, 7.0]] },
            &mut [&mut d_x],
        );
        assert_eq!(d_x, [0.0, 0.0, 3.0, 7.0, 3.0, 0.0]);
    }
}
