//! A picture made larger by whole factors, with bilinear interpolation, and its gradient.

use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::{double, index, single};
use super::{Call, Kernel, parallel};

crate::params! {
    /// Pictures.
    rows: u32,
    /// Lines of the input.
    in_h: u32,
    /// Columns of the input.
    in_w: u32,
    /// Channels.
    channels: u32,
    /// Lines of the output for each of the input.
    factor_h: u32,
    /// Columns of the output for each of the input.
    factor_w: u32,
}

family!("bilinear", [Grid]);

/// Some products and sums, of which there are more backward.
const TOLERANCE: f32 = 5e-6;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD];

/// `x [rows, in_h, in_w, channels]` → `y [rows, in_h * factor_h, in_w * factor_w, channels]`.
///
/// Grid: `Elements` of `y`.
pub static FORWARD: Kernel =
    kernel("forward", [&["x"], &["y"], &[]], (forward_twin, forward_fast), TOLERANCE, forward_cases);

/// `dy [rows, in_h * factor_h, in_w * factor_w, channels]` → `d_x [rows, in_h, in_w, channels]`.
///
/// Grid: `Elements` of `d_x`.
pub static BACKWARD: Kernel =
    kernel("backward", [&["dy"], &["d_x"], &[]], (backward_twin, backward_fast), TOLERANCE, backward_cases);

/// One axis: places of the input, and places of the output for each of them.
#[derive(Clone, Copy, Debug)]
struct BilinearAxis {
    size: usize,
    factor: usize,
}

impl BilinearAxis {
    fn out(self) -> usize {
        self.size * self.factor
    }

    /// The two places of the input next to one of the output, and how much of the second is in it.
    fn between(self, o: usize) -> ([usize; 2], f64) {
        let at = (double(o) + 0.5) / double(self.factor) - 0.5;
        let at = at.clamp(0.0, double(self.size - 1));
        // Exact: the factor of a halved whole number.
        let low = (2 * o + 1).saturating_sub(self.factor) / (2 * self.factor);
        let low = low.min(self.size - 1);
        ([low, (low + 1).min(self.size - 1)], at - double(low))
    }
}

/// A picture of the input and of the output.
#[derive(Clone, Copy, Debug)]
struct Picture {
    rows: usize,
    high: BilinearAxis,
    wide: BilinearAxis,
    channels: usize,
}

impl Picture {
    fn of_call(call: &Call<'_>) -> Self {
        let params: Params = call.params();
        Self {
            rows: index(params.rows),
            high: BilinearAxis { size: index(params.in_h), factor: index(params.factor_h) },
            wide: BilinearAxis { size: index(params.in_w), factor: index(params.factor_w) },
            channels: index(params.channels),
        }
    }

    /// Elements of a picture of the input, and of one of the output.
    fn lens(&self) -> [usize; 2] {
        [self.high.size * self.wide.size * self.channels, self.high.out() * self.wide.out() * self.channels]
    }

    /// The four places of the input around one of the output, each with its weight.
    fn around(&self, line: usize, column: usize) -> [(usize, f64); 4] {
        let ([above, below], down) = self.high.between(line);
        let ([left, right], along) = self.wide.between(column);
        let at = |line: usize, column: usize| (line * self.wide.size + column) * self.channels;
        [
            (at(above, left), (1.0 - down) * (1.0 - along)),
            (at(above, right), (1.0 - down) * along),
            (at(below, left), down * (1.0 - along)),
            (at(below, right), down * along),
        ]
    }
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let picture = Picture::of_call(call);
    let [from, to] = picture.lens();
    for (i, y) in outputs[0].iter_mut().enumerate().take(picture.rows * to) {
        let (position, channel) = (i % to / picture.channels, i % picture.channels);
        let around = picture.around(position / picture.wide.out(), position % picture.wide.out());
        let x = |at: usize| f64::from(call.inputs[0][i / to * from + at + channel]);
        *y = single(around.iter().map(|(at, weight)| weight * x(*at)).sum());
    }
}

/// Each element of `dy` goes to the four around it; on the device each element of `d_x` gathers them.
fn backward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let picture = Picture::of_call(call);
    let [from, to] = picture.lens();
    let mut sums = vec![0.0; picture.rows * from];
    for (i, dy) in call.inputs[0].iter().enumerate().take(picture.rows * to) {
        let (position, channel) = (i % to / picture.channels, i % picture.channels);
        for (at, weight) in picture.around(position / picture.wide.out(), position % picture.wide.out()) {
            sums[i / to * from + at + channel] += weight * f64::from(*dy);
        }
    }
    outputs[0].iter_mut().zip(sums).for_each(|(d_x, sum)| *d_x = single(sum));
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let picture = Picture::of_call(call);
    let ([from, to], channels) = (picture.lens(), picture.channels);
    let line_len = picture.wide.out() * channels;
    parallel::rows(&mut outputs[0][..picture.rows * to], line_len, |first, y| {
        for (line, y) in (first..).zip(y.chunks_mut(line_len)) {
            let x = &call.inputs[0][line / picture.high.out() * from..];
            for (column, y) in y.chunks_mut(channels).enumerate() {
                let [a, b, c, d] = picture
                    .around(line % picture.high.out(), column)
                    .map(|(at, weight)| (&x[at..at + channels], single(weight)));
                for (i, y) in y.iter_mut().enumerate() {
                    *y = (a.0[i] * a.1 + b.0[i] * b.1) + (c.0[i] * c.1 + d.0[i] * d.1);
                }
            }
        }
    });
}

fn backward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let picture = Picture::of_call(call);
    let ([from, to], channels, wide) = (picture.lens(), picture.channels, picture.wide.out());
    parallel::slabs(&mut outputs[0][..picture.rows * from], from, picture.rows * to, |row, d_x| {
        d_x.fill(0.0);
        let dy = call.inputs[0][row * to..(row + 1) * to].chunks(channels);
        for (position, dy) in dy.enumerate() {
            for (at, weight) in picture.around(position / wide, position % wide) {
                let weight = single(weight);
                d_x[at..at + channels].iter_mut().zip(dy).for_each(|(d_x, dy)| *d_x += weight * dy);
            }
        }
    });
}

fn each_size(case: impl Fn(&Params) -> Case) -> Vec<Case> {
    let sizes = [
        [1, 1, 1, 1, 2, 2],
        [1, 1, 1, 65, 3, 1],
        [3, 1, 7, 1, 2, 3],
        [2, 4, 3, 5, 2, 2],
        [1, 5, 4, 3, 3, 4],
        [2, 3, 6, 2, 1, 5],
        [1, 33, 20, 30, 2, 2],
    ];
    sizes
        .iter()
        .map(|[rows, in_h, in_w, channels, factor_h, factor_w]| {
            case(&Params {
                rows: *rows,
                in_h: *in_h,
                in_w: *in_w,
                channels: *channels,
                factor_h: *factor_h,
                factor_w: *factor_w,
            })
        })
        .collect()
}

fn label(params: &Params) -> String {
    let Params { rows, in_h, in_w, channels, factor_h, factor_w } = params;
    format!("{rows} x {in_h} x {in_w} x {channels}, {factor_h} by {factor_w}")
}

fn forward_cases() -> Vec<Case> {
    let mut cases = each_size(|params| {
        let from = params.rows * params.in_h * params.in_w * params.channels;
        let to = from * params.factor_h * params.factor_w;
        Case::elements(label(params), params.words(), to).input(InputFill::Normal(index(from))).output(index(to))
    });
    let params = Params { rows: 2, in_h: 1, in_w: 1, channels: 1, factor_h: 1449, factor_w: 1448 };
    let len = params.rows * params.factor_h * params.factor_w;
    let folded = Case::elements("folded", params.words(), len);
    cases.push(folded.input(InputFill::Normal(2)).output(index(len)));
    cases
}

fn backward_cases() -> Vec<Case> {
    each_size(|params| {
        let from = params.rows * params.in_h * params.in_w * params.channels;
        let to = from * params.factor_h * params.factor_w;
        Case::elements(label(params), params.words(), from).input(InputFill::Normal(index(to))).output(index(from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_interpolated_by_hand() {
        let params = Params { rows: 1, in_h: 1, in_w: 3, channels: 1, factor_h: 1, factor_w: 2 };
        for run in [forward_twin, forward_fast] {
            let mut y = [9.0; 6];
            run(&Call { params: &params.words(), constants: &[], inputs: &[&[4.0, 8.0, 0.0]] }, &mut [&mut y]);
            assert_eq!(y, [4.0, 5.0, 7.0, 6.0, 2.0, 0.0]);
        }
        for run in [backward_twin, backward_fast] {
            let mut d_x = [9.0; 3];
            let dy = [1.0, 4.0, 8.0, 12.0, 16.0, 32.0];
            run(&Call { params: &params.words(), constants: &[], inputs: &[&dy] }, &mut [&mut d_x]);
            assert_eq!(d_x, [1.0 + 3.0 + 2.0, 1.0 + 6.0 + 9.0 + 4.0, 3.0 + 12.0 + 32.0]);
        }
    }
}
