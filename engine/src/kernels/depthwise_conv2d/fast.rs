//! Depthwise convolutions in f32, line by line over threads, vectorised over channels: sums of a few channels of two
//! pixels stay in registers over the whole window. A multiplier other than 1 is rare, and takes plain loops.

use std::ops::Range;

use super::super::Call;
use super::super::activation_functions::Function;
use super::super::parallel::{self, Slabs};
use super::sizes::DepthwiseSizes;

/// Channels whose sums stay in registers.
const BLOCK: usize = 16;

/// A weight for each channel, and the line that it meets.
struct Tap<'a> {
    line: &'a [f32],
    /// Result `p` meets column `p * step + place - lag`.
    place: usize,
    weights: &'a [f32],
}

/// Relation of a line's results to columns of another line.
#[derive(Clone, Copy)]
struct Reach {
    channels: usize,
    /// Results.
    pixels: usize,
    /// Columns of the lines that they meet.
    columns: usize,
    step: usize,
    lag: usize,
}

impl Reach {
    /// The results whose column is there.
    fn within(self, place: usize) -> Range<usize> {
        let end = (self.columns + self.lag).saturating_sub(place).div_ceil(self.step).min(self.pixels);
        self.lag.saturating_sub(place).div_ceil(self.step).min(end)..end
    }

    /// First element of the column that a result meets.
    fn column(self, pixel: usize, place: usize) -> usize {
        (pixel * self.step + place - self.lag) * self.channels
    }
}

/// Writes results `out_step` pixels apart: what they start with, and the sum over the taps.
fn sum_line(reach: Reach, taps: &[Tap<'_>], start: Option<&[f32]>, out: &mut [f32], out_step: usize) {
    let whole = taps.iter().map(|tap| reach.within(tap.place));
    let whole = whole.fold(0..reach.pixels, |a, b| a.start.max(b.start)..a.end.min(b.end));
    let whole = whole.start.min(whole.end)..whole.end;
    let mut first = 0;
    while first < reach.channels {
        let mut part = LineChannels { reach, taps, start, first, out: &mut *out, out_step };
        first += match reach.channels - first {
            BLOCK.. => part.sum::<BLOCK>(&whole),
            4.. => part.sum::<4>(&whole),
            _ => part.sum::<1>(&whole),
        };
    }
}

/// A few channels of a line, from `first` on.
struct LineChannels<'a> {
    reach: Reach,
    taps: &'a [Tap<'a>],
    start: Option<&'a [f32]>,
    first: usize,
    out: &'a mut [f32],
    out_step: usize,
}

impl LineChannels<'_> {
    /// Sums `N` channels; `whole` are the pixels at which no tap meets the border. Gives `N`.
    fn sum<const N: usize>(&mut self, whole: &Range<usize>) -> usize {
        let mut start = [0.0; N];
        if let Some(values) = self.start {
            start.copy_from_slice(&values[self.first..][..N]);
        }
        (0..whole.start).chain(whole.end..self.reach.pixels).for_each(|pixel| self.sum_at_border(pixel, start));
        let mut pixel = whole.start;
        while pixel < whole.end {
            // The last one may be computed twice.
            let pair = [pixel, (pixel + 1).min(whole.end - 1)];
            self.sum_pair(pair, start);
            pixel += 2;
        }
        N
    }

    fn store<const N: usize>(&mut self, pixel: usize, sums: [f32; N]) {
        let at = pixel * self.out_step * self.reach.channels + self.first;
        self.out[at..at + N].copy_from_slice(&sums);
    }

    fn sum_pair<const N: usize>(&mut self, pair: [usize; 2], start: [f32; N]) {
        let (mut a, mut b) = (start, start);
        for tap in self.taps {
            let [x_a, x_b] = pair.map(|pixel| self.reach.column(pixel, tap.place) + self.first);
            let values = (
                tap.weights[self.first..].first_chunk::<N>(),
                tap.line[x_a..].first_chunk::<N>(),
                tap.line[x_b..].first_chunk::<N>(),
            );
            let (Some(w), Some(x_a), Some(x_b)) = values else { continue };
            for i in 0..N {
                a[i] += w[i] * x_a[i];
                b[i] += w[i] * x_b[i];
            }
        }
        self.store(pair[0], a);
        self.store(pair[1], b);
    }

    fn sum_at_border<const N: usize>(&mut self, pixel: usize, start: [f32; N]) {
        let mut sums = start;
        for tap in self.taps.iter().filter(|tap| self.reach.within(tap.place).contains(&pixel)) {
            let x = &tap.line[self.reach.column(pixel, tap.place) + self.first..][..N];
            let terms = tap.weights[self.first..].iter().zip(x);
            sums.iter_mut().zip(terms).for_each(|(sum, (w, x))| *sum += w * x);
        }
        self.store(pixel, sums);
    }
}

/// Line `line` of images of lines of `len` elements.
fn line_of(images: &[f32], line: usize, len: usize) -> &[f32] {
    &images[line * len..][..len]
}

pub(in super::super) fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DepthwiseSizes::of_call(call);
    let (x, w) = (call.inputs[0], call.inputs[1]);
    let bias = (call.constant("USE_BIAS", 1.0) != 0.0).then(|| &call.inputs[2][..s.all()]);
    let function = Function::of_call(call);
    let y_line = s.out_w * s.all();
    parallel::rows(&mut outputs[0][..s.rows * s.out_h * y_line], y_line, |first, y| {
        let mut taps = Vec::with_capacity(s.taps());
        for (line, y) in (first..).zip(y.chunks_exact_mut(y_line)) {
            if s.multiplier == 1 {
                forward_line(&s, [x, w], line, bias, y, &mut taps);
            } else {
                forward_multiplied(&s, [x, w], line, bias, y);
            }
        }
        function.activate_all(y);
    });
}

fn forward_line<'a>(
    s: &DepthwiseSizes,
    [x, w]: [&'a [f32]; 2],
    line: usize,
    bias: Option<&[f32]>,
    y: &mut [f32],
    taps: &mut Vec<Tap<'a>>,
) {
    taps.clear();
    for kh in 0..s.k_h {
        let Some(iy) = s.line_seen(line % s.out_h, kh) else { continue };
        let seen = line_of(x, line / s.out_h * s.in_h + iy, s.in_w * s.channels);
        taps.extend((0..s.k_w).map(|kw| Tap {
            line: seen,
            place: kw * s.dilation[1],
            weights: line_of(w, kh * s.k_w + kw, s.channels),
        }));
    }
    sum_line(reach_of(s), taps, bias, y, 1);
}

/// Columns of the input for pixels of a line of the output.
fn reach_of(s: &DepthwiseSizes) -> Reach {
    Reach { channels: s.channels, pixels: s.out_w, columns: s.in_w, step: s.stride[1], lag: s.pad[1] }
}

fn forward_multiplied(s: &DepthwiseSizes, [x, w]: [&[f32]; 2], line: usize, bias: Option<&[f32]>, y: &mut [f32]) {
    for (ox, y) in y.chunks_exact_mut(s.all()).enumerate() {
        match bias {
            Some(bias) => y.copy_from_slice(bias),
            None => y.fill(0.0),
        }
        for (tap, place) in s.seen(line * s.out_w + ox) {
            let w = line_of(w, tap, s.all()).chunks_exact(s.multiplier);
            for ((y, w), x) in y.chunks_exact_mut(s.multiplier).zip(w).zip(&x[place..]) {
                y.iter_mut().zip(w).for_each(|(y, w)| *y += w * x);
            }
        }
    }
}

pub(in super::super) fn backward_input(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DepthwiseSizes::of_call(call);
    let (dy, w) = (call.inputs[0], call.inputs[1]);
    let line_len = s.in_w * s.channels;
    let d_x = &mut outputs[0][..s.rows * s.in_h * line_len];
    if s.multiplier != 1 {
        return parallel::rows(d_x, s.in_h * line_len, |first, d_x| {
            for (image, d_x) in (first..).zip(d_x.chunks_exact_mut(s.in_h * line_len)) {
                backward_input_multiplied(&s, [dy, w], image, d_x);
            }
        });
    }
    parallel::rows(d_x, line_len, |first, d_x| {
        let mut taps = Vec::with_capacity(s.taps());
        for (line, d_x) in (first..).zip(d_x.chunks_exact_mut(line_len)) {
            backward_input_line(&s, [dy, w], line, d_x, &mut taps);
        }
    });
}

fn backward_input_line<'a>(
    s: &DepthwiseSizes,
    [dy, w]: [&'a [f32]; 2],
    line: usize,
    d_x: &mut [f32],
    taps: &mut Vec<Tap<'a>>,
) {
    let [stride_h, stride_w] = s.stride;
    let padded = line % s.in_h + s.pad[0];
    // What keeps places above 0.
    let lag = (s.k_w - 1) * s.dilation[1];
    // Pixels of a phase meet the same weights.
    for phase in 0..stride_w.min(s.in_w) {
        taps.clear();
        for kh in 0..s.k_h {
            let Some(above) = padded.checked_sub(kh * s.dilation[0]).filter(|above| above % stride_h == 0) else {
                continue;
            };
            if above / stride_h >= s.out_h {
                continue;
            }
            let slopes = line_of(dy, line / s.in_h * s.out_h + above / stride_h, s.out_w * s.channels);
            for kw in 0..s.k_w {
                let place = phase + s.pad[1] + lag * stride_w - kw * s.dilation[1];
                if place.is_multiple_of(stride_w) {
                    let weights = line_of(w, kh * s.k_w + kw, s.channels);
                    taps.push(Tap { line: slopes, place: place / stride_w, weights });
                }
            }
        }
        let pixels = (s.in_w - phase).div_ceil(stride_w);
        let reach = Reach { channels: s.channels, pixels, columns: s.out_w, step: 1, lag };
        sum_line(reach, taps, None, &mut d_x[phase * s.channels..], stride_w);
    }
}

fn backward_input_multiplied(s: &DepthwiseSizes, [dy, w]: [&[f32]; 2], image: usize, d_x: &mut [f32]) {
    d_x.fill(0.0);
    let pixels = s.out_h * s.out_w;
    for pixel in image * pixels..(image + 1) * pixels {
        let dy = line_of(dy, pixel, s.all());
        for (tap, place) in s.seen(pixel) {
            let w = line_of(w, tap, s.all()).chunks_exact(s.multiplier);
            let d_x = d_x[place - image * s.in_h * s.in_w * s.channels..].iter_mut();
            for ((d_x, dy), w) in d_x.zip(dy.chunks_exact(s.multiplier)).zip(w) {
                *d_x += dy.iter().zip(w).map(|(dy, w)| dy * w).sum::<f32>();
            }
        }
    }
}

pub(in super::super) fn backward_weights(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = DepthwiseSizes::of_call(call);
    let (x, dy) = (call.inputs[0], call.inputs[1]);
    let slabs = Slabs::new(s.rows * s.out_h, s.splits);
    let part_len = s.taps() * s.all();
    let work = s.rows * s.out_h * s.out_w * s.all();
    parallel::slabs(&mut outputs[0][..s.splits * part_len], part_len, work, |split, part| {
        part.fill(0.0);
        for line in slabs.range(split) {
            if s.multiplier == 1 {
                add_line(&s, [x, dy], line, part);
            } else {
                add_multiplied(&s, [x, dy], line, part);
            }
        }
    });
}

/// Adds what a line of the output gives to the gradients of the weights.
fn add_line(s: &DepthwiseSizes, [x, dy]: [&[f32]; 2], line: usize, part: &mut [f32]) {
    let dy = line_of(dy, line, s.out_w * s.channels);
    let reach = reach_of(s);
    for kh in 0..s.k_h {
        let Some(iy) = s.line_seen(line % s.out_h, kh) else { continue };
        let seen = line_of(x, line / s.out_h * s.in_h + iy, s.in_w * s.channels);
        let sums = &mut part[kh * s.k_w * s.channels..][..s.k_w * s.channels];
        let mut first = 0;
        while first < s.channels {
            first += match s.channels - first {
                BLOCK.. => add_part::<BLOCK>(reach, [seen, dy], first, s.dilation[1], sums),
                4.. => add_part::<4>(reach, [seen, dy], first, s.dilation[1], sums),
                _ => add_part::<1>(reach, [seen, dy], first, s.dilation[1], sums),
            };
        }
    }
}

/// `N` channels of it, for a line of weights. Gives `N`.
fn add_part<const N: usize>(
    reach: Reach,
    [x, dy]: [&[f32]; 2],
    first: usize,
    dilation: usize,
    sums: &mut [f32],
) -> usize {
    for (kw, sums) in sums.chunks_exact_mut(reach.channels).enumerate() {
        let mut line = [0.0f32; N];
        for pixel in reach.within(kw * dilation) {
            let x = x[reach.column(pixel, kw * dilation) + first..].first_chunk::<N>();
            let dy = dy[pixel * reach.channels + first..].first_chunk::<N>();
            let (Some(x), Some(dy)) = (x, dy) else { continue };
            for i in 0..N {
                line[i] += x[i] * dy[i];
            }
        }
        sums[first..].iter_mut().zip(line).for_each(|(sum, line)| *sum += line);
    }
    N
}

fn add_multiplied(s: &DepthwiseSizes, [x, dy]: [&[f32]; 2], line: usize, part: &mut [f32]) {
    for pixel in line * s.out_w..(line + 1) * s.out_w {
        let dy = line_of(dy, pixel, s.all());
        for (tap, place) in s.seen(pixel) {
            let sums = part[tap * s.all()..].chunks_exact_mut(s.multiplier);
            for ((sums, dy), x) in sums.zip(dy.chunks_exact(s.multiplier)).zip(&x[place..place + s.channels]) {
                sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy * x);
            }
        }
    }
}
