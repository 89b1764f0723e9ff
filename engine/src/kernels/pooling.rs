//! Maximum and average pooling over windows, and the average over all positions. Images are `[rows, h, w, channels]`.

mod fast;
mod twins;

use super::Kernel;
use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::index;

crate::params! {
    /// Images.
    rows: u32,
    /// Height of the input.
    in_h: u32,
    /// Width of the input.
    in_w: u32,
    /// Channels.
    channels: u32,
    /// Height of the output; not read by the global average.
    out_h: u32,
    /// Width of the output; not read by the global average.
    out_w: u32,
    /// Height of a window.
    pool_h: u32,
    /// Width of a window.
    pool_w: u32,
    /// Lines from one window to the next.
    stride_h: u32,
    /// Columns from one window to the next.
    stride_w: u32,
    /// Lines of padding above the image; they count for nothing.
    pad_top: u32,
    /// Columns of padding left of the image; they count for nothing.
    pad_left: u32,
}

family!("pooling", [Grid]);

/// Sums of a window or of an image, divided by their number of terms.
const TOLERANCE: f32 = 5e-6;

/// The family.
pub static KERNELS: &[&Kernel] = &[
    &FORWARD_MAX,
    &BACKWARD_MAX,
    &FORWARD_AVERAGE,
    &BACKWARD_AVERAGE,
    &FORWARD_GLOBAL_AVERAGE,
    &BACKWARD_GLOBAL_AVERAGE,
];

/// `x [rows, in_h, in_w, channels]` → `y [rows, out_h, out_w, channels]`, the maximum of each window.
///
/// Grid: `Elements(rows * out_h * out_w * channels)`.
pub static FORWARD_MAX: Kernel =
    kernel("forward_max", [&["x"], &["y"], &[]], (twins::forward_max, fast::forward_max), TOLERANCE, forward_max_cases);

/// `x`, `max_y` (the forward output), `max_dy` → `max_dx`.
///
/// The first maximum of a window in row-major order takes its gradient. Grid: `Elements(rows * in_h * in_w * channels)`.
pub static BACKWARD_MAX: Kernel = kernel(
    "backward_max",
    [&["x", "max_y", "max_dy"], &["max_dx"], &[]],
    (twins::backward_max, fast::backward_max),
    TOLERANCE,
    backward_max_cases,
);

/// `x [rows, in_h, in_w, channels]` → `y [rows, out_h, out_w, channels]`, the mean of each window without padding.
///
/// Grid: `Elements(rows * out_h * out_w * channels)`.
pub static FORWARD_AVERAGE: Kernel = kernel(
    "forward_average",
    [&["x"], &["y"], &[]],
    (twins::forward_average, fast::forward_average),
    TOLERANCE,
    forward_cases,
);

/// `dy [rows, out_h, out_w, channels]` → `d_x [rows, in_h, in_w, channels]`.
///
/// Grid: `Elements(rows * in_h * in_w * channels)`.
pub static BACKWARD_AVERAGE: Kernel = kernel(
    "backward_average",
    [&["dy"], &["d_x"], &[]],
    (twins::backward_average, fast::backward_average),
    TOLERANCE,
    backward_cases,
);

/// `x [rows, in_h, in_w, channels]` → `y [rows, channels]`, the mean of all positions.
///
/// Grid: `Elements(rows * channels)`.
pub static FORWARD_GLOBAL_AVERAGE: Kernel = kernel(
    "forward_global_average",
    [&["x"], &["y"], &[]],
    (twins::forward_global_average, fast::forward_global_average),
    TOLERANCE,
    forward_global_cases,
);

/// `dy [rows, channels]` → `d_x [rows, in_h, in_w, channels]`.
///
/// Grid: `Elements(rows * in_h * in_w * channels)`.
pub static BACKWARD_GLOBAL_AVERAGE: Kernel = kernel(
    "backward_global_average",
    [&["dy"], &["d_x"], &[]],
    (twins::backward_global_average, fast::backward_global_average),
    TOLERANCE,
    backward_global_cases,
);

/// The sizes of a call, as indices.
#[derive(Clone, Copy, Debug)]
struct PoolingSizes {
    rows: usize,
    channels: usize,
    /// Height and width of the input.
    input: [usize; 2],
    /// Height and width of the output.
    output: [usize; 2],
    pool: [usize; 2],
    stride: [usize; 2],
    pad: [usize; 2],
}

impl PoolingSizes {
    fn of(params: &Params) -> Self {
        Self {
            rows: index(params.rows),
            channels: index(params.channels),
            input: [params.in_h, params.in_w].map(index),
            output: [params.out_h, params.out_w].map(index),
            pool: [params.pool_h, params.pool_w].map(index),
            stride: [params.stride_h, params.stride_w].map(index),
            pad: [params.pad_top, params.pad_left].map(index),
        }
    }

    /// Elements of an input image.
    fn in_len(&self) -> usize {
        self.input[0] * self.input[1] * self.channels
    }

    /// Elements of an output image.
    fn out_len(&self) -> usize {
        self.output[0] * self.output[1] * self.channels
    }

    /// Lines (axis 0) or columns (axis 1) of the image that a window covers.
    fn window(&self, axis: usize, out: usize) -> std::ops::Range<usize> {
        let (start, pad) = (out * self.stride[axis], self.pad[axis]);
        start.saturating_sub(pad)..(start + self.pool[axis]).saturating_sub(pad).min(self.input[axis])
    }

    /// Positions of the image in a window, row-major, as offsets of their first channel.
    fn positions(&self, line: usize, column: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let (columns, width, channels) = (self.window(1, column), self.input[1], self.channels);
        let lines = self.window(0, line);
        lines.flat_map(move |line| columns.clone().map(move |column| (line * width + column) * channels))
    }

    /// Lines and columns of the output.
    fn outputs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let [height, width] = self.output;
        (0..height).flat_map(move |line| (0..width).map(move |column| (line, column)))
    }
}

/// Rows, height and width, channels, window, stride, padding before and after.
type PoolingCase = (u32, [u32; 2], u32, [u32; 2], [u32; 2], [[u32; 2]; 2]);

const SIZES: [PoolingCase; 8] = [
    (1, [1, 1], 1, [1, 1], [1, 1], [[0, 0], [0, 0]]),
    (2, [4, 4], 3, [2, 2], [2, 2], [[0, 0], [0, 0]]),
    (1, [7, 9], 65, [3, 3], [2, 2], [[1, 1], [1, 1]]),
    (3, [5, 6], 1, [3, 2], [1, 1], [[1, 0], [1, 1]]),
    (1, [8, 3], 64, [2, 3], [3, 1], [[0, 1], [0, 1]]),
    (63, [4, 4], 1, [4, 4], [4, 4], [[0, 0], [0, 0]]),
    (1, [257, 1], 2, [5, 1], [2, 1], [[2, 0], [2, 0]]),
    (6, [33, 33], 17, [3, 3], [2, 2], [[1, 1], [1, 1]]),
];

fn each_size(count: fn(&PoolingSizes) -> usize, buffers: impl Fn(Case, &PoolingSizes) -> Case) -> Vec<Case> {
    SIZES
        .map(|(rows, input, channels, pool, stride, [before, after])| {
            let out = |axis: usize| (input[axis] + before[axis] + after[axis] - pool[axis]) / stride[axis] + 1;
            let params = Params {
                rows,
                in_h: input[0],
                in_w: input[1],
                channels,
                out_h: out(0),
                out_w: out(1),
                pool_h: pool[0],
                pool_w: pool[1],
                stride_h: stride[0],
                stride_w: stride[1],
                pad_top: before[0],
                pad_left: before[1],
            };
            let sizes = PoolingSizes::of(&params);
            let label = format!("{rows} x {input:?} x {channels}, window {pool:?}, stride {stride:?}, pad {before:?}");
            let grid = crate::size::Grid::Elements(super::whole(count(&sizes)));
            buffers(Case::new(label, params.words(), grid), &sizes)
        })
        .into()
}

fn all_in(sizes: &PoolingSizes) -> usize {
    sizes.rows * sizes.in_len()
}

fn all_out(sizes: &PoolingSizes) -> usize {
    sizes.rows * sizes.out_len()
}

fn forward_cases() -> Vec<Case> {
    each_size(all_out, |case, sizes| case.input(InputFill::Normal(all_in(sizes))).output(all_out(sizes)))
}

fn backward_cases() -> Vec<Case> {
    each_size(all_in, |case, sizes| case.input(InputFill::Normal(all_out(sizes))).output(all_in(sizes)))
}

/// Whole numbers from 0 to 4, so that windows have several maxima.
fn tied(len: usize) -> InputFill {
    InputFill::Labels(len, 5)
}

/// A NaN at every eleventh place, of either sign and with a payload.
fn broken(mut values: Vec<f32>) -> Vec<f32> {
    let nans = [0x7fc0_0000, 0xffc0_0001, 0x7f80_0001].into_iter().cycle().map(f32::from_bits);
    values.iter_mut().step_by(11).zip(nans).for_each(|(value, nan)| *value = nan);
    values
}

fn forward_max_cases() -> Vec<Case> {
    let of = |fill: fn(usize) -> InputFill| {
        each_size(all_out, move |case, sizes| case.input(fill(all_in(sizes))).output(all_out(sizes)))
    };
    let negative = of(|len| InputFill::Uniform(len, -9.0, -1.0));
    let broken = of(|len| InputFill::Values(broken(InputFill::Normal(len).values(1))));
    negative.into_iter().chain(broken.into_iter().map(|case| case.labelled("with NaN"))).collect()
}

fn backward_max_cases() -> Vec<Case> {
    let of = |fill: fn(usize) -> Vec<f32>| {
        each_size(all_in, move |case, sizes| {
            let mut y = vec![0.0; all_out(sizes)];
            let x = fill(all_in(sizes));
            let call = super::Call { params: &case.params, constants: &[], inputs: &[&x] };
            twins::forward_max(&call, &mut [&mut y]);
            case.input(InputFill::Values(x))
                .input(InputFill::Values(y))
                .input(InputFill::Normal(all_out(sizes)))
                .output(all_in(sizes))
        })
    };
    let numbers = of(|len| tied(len).values(1));
    let broken = of(|len| broken(tied(len).values(1)));
    numbers.into_iter().chain(broken.into_iter().map(|case| case.labelled("with NaN"))).collect()
}

fn forward_global_cases() -> Vec<Case> {
    each_size(
        |sizes| sizes.rows * sizes.channels,
        |case, sizes| case.input(InputFill::Normal(all_in(sizes))).output(sizes.rows * sizes.channels),
    )
}

fn backward_global_cases() -> Vec<Case> {
    each_size(all_in, |case, sizes| case.input(InputFill::Normal(sizes.rows * sizes.channels)).output(all_in(sizes)))
}

#[cfg(test)]
mod tests {
    use super::super::Call;
    use super::super::Twin;
    use super::*;

    fn run(twin: Twin, params: &Params, inputs: &[&[f32]], len: usize) -> Vec<f32> {
        let mut output = vec![9.0; len];
        twin(&Call { params: &params.words(), constants: &[], inputs }, &mut [&mut output]);
        output
    }

    /// A 3 × 3 image, windows of 2 × 2 at each position, padded below and right as `same` does.
    const SAME: Params = Params {
        rows: 1,
        in_h: 3,
        in_w: 3,
        channels: 1,
        out_h: 3,
        out_w: 3,
        pool_h: 2,
        pool_w: 2,
        stride_h: 1,
        stride_w: 1,
        pad_top: 0,
        pad_left: 0,
    };

    #[test]
    fn padding_counts_for_nothing() {
        let x = [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, -9.0];
        let y = run(twins::forward_max, &SAME, &[&x], 9);
        assert_eq!(y, [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, -9.0]);
        let y = run(twins::forward_average, &SAME, &[&x], 9);
        assert_eq!(y, [-3.0, -4.0, -4.5, -6.0, -7.0, -7.5, -7.5, -8.5, -9.0]);
    }

    #[test]
    fn the_first_maximum_takes_the_gradient() {
        let x = [5.0; 9];
        let y = run(twins::forward_max, &SAME, &[&x], 9);
        let dy = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        assert_eq!(run(twins::backward_max, &SAME, &[&x, &y, &dy], 9), dy);
    }

    #[test]
    fn gradients_are_difference_quotients() {
        let x = [0.5, -1.0, 2.0, 3.0, -2.5, 1.0, 0.0, 4.0, -3.0];
        let dy = [1.0, -2.0, 0.5, 3.0, 1.5, -1.0, 2.0, 0.25, -0.5];
        let y = run(twins::forward_max, &SAME, &[&x], 9);
        let global = [2.0];
        for (forward, told, dy) in [
            (twins::forward_max as Twin, run(twins::backward_max, &SAME, &[&x, &y, &dy], 9), &dy[..]),
            (twins::forward_average, run(twins::backward_average, &SAME, &[&dy], 9), &dy),
            (twins::forward_global_average, run(twins::backward_global_average, &SAME, &[&global], 9), &global),
        ] {
            let loss =
                |x: &[f32]| run(forward, &SAME, &[x], dy.len()).iter().zip(dy).map(|(y, dy)| y * dy).sum::<f32>();
            for (i, told) in told.iter().enumerate() {
                let (mut up, mut down) = (x, x);
                (up[i], down[i]) = (up[i] + 0.015_625, down[i] - 0.015_625);
                let measured = (loss(&up) - loss(&down)) / 0.031_25;
                assert!((measured - told).abs() < 1e-3, "{i}: {measured} {told}");
            }
        }
    }
}
