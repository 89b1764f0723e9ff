//! Batch normalization in f32, vectorised over channels, in fixed chunks over threads.

use super::super::Call;
use super::super::activation_functions::Function;
use super::super::parallel::{self, Slabs};
use super::super::rounding::{float, index};
use super::Params;

/// Channels whose running sums stay in registers and the L1 cache.
const BLOCK: usize = 64;

/// Pixels summed on their own before they join the running sums: keeps rounding down, and divisions rare.
const PIXELS: usize = 16;

fn inverse_deviation(params: &Params, m2: f32) -> f32 {
    1.0 / (m2 / float(index(params.count.max(1))) + params.epsilon).sqrt()
}

pub(super) fn statistics(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (channels, splits) = (index(params.channels), index(params.splits));
    let slabs = Slabs::new(index(params.pixels), splits);
    let x = call.inputs[0];
    parallel::slabs(
        &mut outputs[0][..2 * splits * channels],
        2 * channels,
        index(params.pixels) * channels,
        |split, part| {
            part.fill(0.0);
            let (means, m2s) = part.split_at_mut(channels);
            let range = slabs.range(split);
            let blocks = x[range.start * channels..range.end * channels].chunks(PIXELS * channels);
            for (block, x) in blocks.enumerate() {
                for first in (0..channels).step_by(BLOCK) {
                    let last = (first + BLOCK).min(channels);
                    merge(x, channels, first, float(block * PIXELS), &mut means[first..last], &mut m2s[first..last]);
                }
            }
        },
    );
}

/// Merges the pixels of `x`, for the channels from `first` on, into the mean and M2 of `n` pixels before.
fn merge(x: &[f32], channels: usize, first: usize, n: f32, means: &mut [f32], m2s: &mut [f32]) {
    let count = float(x.len() / channels);
    let (mut sums, mut squares) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
    let (sums, squares) = (&mut sums[..means.len()], &mut squares[..means.len()]);
    for pixel in x.chunks_exact(channels) {
        sums.iter_mut().zip(&pixel[first..]).for_each(|(sum, x)| *sum += x);
    }
    sums.iter_mut().for_each(|sum| *sum /= count);
    for pixel in x.chunks_exact(channels) {
        let terms = pixel[first..].iter().zip(&*sums);
        squares.iter_mut().zip(terms).for_each(|(square, (x, mean))| *square += (x - mean) * (x - mean));
    }
    let share = count / (n + count);
    for ((mean, m2), (block_mean, block_m2)) in means.iter_mut().zip(m2s).zip(sums.iter().zip(squares)) {
        let delta = block_mean - *mean;
        *mean += delta * share;
        *m2 += *block_m2 + delta * delta * n * share;
    }
}

/// Numbers for each channel, `[a, b, …]`, repeated so that a loop over them is long also with few channels.
fn repeated<const N: usize>(channels: usize, of: impl Fn(usize) -> [f32; N]) -> [Vec<f32>; N] {
    let len = channels * (4 * BLOCK).div_ceil(channels.max(1));
    let all: Vec<[f32; N]> = (0..len).map(|i| of(i % channels)).collect();
    std::array::from_fn(|which| all.iter().map(|numbers| numbers[which]).collect())
}

/// `activate((x - mean) * factor + center)`, with `[mean, factor, center]` of each channel.
fn normalize(call: &Call<'_>, y: &mut [f32], numbers_of: impl Fn(usize) -> [f32; 3]) {
    let params: Params = call.params();
    let channels = index(params.channels);
    let function = Function::of_call(call);
    let [means, factors, centers] = repeated(channels, numbers_of);
    let x = call.inputs[0];
    parallel::rows(&mut y[..index(params.pixels) * channels], channels, |first, y| {
        let blocks = x[first * channels..].chunks(means.len()).zip(y.chunks_mut(means.len()));
        for (x, y) in blocks {
            let (means, factors, centers) = (&means[..y.len()], &factors[..y.len()], &centers[..y.len()]);
            for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
                *y = (x - means[i]) * factors[i] + centers[i];
            }
            // While the block is in the cache.
            function.activate_all(y);
        }
    });
}

/// `gamma` and `beta` of a channel, 1 and 0 where they are not used.
fn scale_and_center(call: &Call<'_>, [gamma, beta]: [usize; 2], channel: usize) -> [f32; 2] {
    let scales = call.constant("USE_SCALE", 1.0) > 0.5;
    let centers = call.constant("USE_CENTER", 1.0) > 0.5;
    let gamma = if scales { call.inputs[gamma][channel] } else { 1.0 };
    [gamma, if centers { call.inputs[beta][channel] } else { 0.0 }]
}

pub(super) fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (moments, channels) = (call.inputs[1], index(params.channels));
    normalize(call, outputs[0], |channel| {
        let [gamma, beta] = scale_and_center(call, [2, 3], channel);
        [moments[channel], gamma * inverse_deviation(&params, moments[channels + channel]), beta]
    });
}

pub(super) fn inference(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (mean, variance) = (call.inputs[1], call.inputs[2]);
    normalize(call, outputs[0], |channel| {
        let [gamma, beta] = scale_and_center(call, [3, 4], channel);
        [mean[channel], gamma / (variance[channel] + params.epsilon).sqrt(), beta]
    });
}

pub(super) fn backward_sums(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (channels, splits) = (index(params.channels), index(params.splits));
    let slabs = Slabs::new(index(params.pixels), splits);
    let [x, dy, moments] = [0, 1, 2].map(|input: usize| call.inputs[input]);
    parallel::slabs(
        &mut outputs[0][..2 * splits * channels],
        2 * channels,
        index(params.pixels) * channels,
        |split, part| {
            part.fill(0.0);
            let (sums, products) = part.split_at_mut(channels);
            let range = slabs.range(split);
            let (x, dy) = (&x[range.start * channels..range.end * channels], &dy[range.start * channels..]);
            for (x, dy) in x.chunks(PIXELS * channels).zip(dy.chunks(PIXELS * channels)) {
                for first in (0..channels).step_by(BLOCK) {
                    let last = (first + BLOCK).min(channels);
                    add_products(
                        [x, dy, &moments[..channels]],
                        first,
                        &mut sums[first..last],
                        &mut products[first..last],
                    );
                }
            }
            for (channel, product) in products.iter_mut().enumerate() {
                *product *= inverse_deviation(&params, moments[channels + channel]);
            }
        },
    );
}

/// Adds Σ dy and Σ dy (x - mean) of a few pixels, for the channels from `first` on.
fn add_products([x, dy, means]: [&[f32]; 3], first: usize, sums: &mut [f32], products: &mut [f32]) {
    let channels = means.len();
    let (mut slopes, mut terms) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
    let (slopes, terms) = (&mut slopes[..sums.len()], &mut terms[..sums.len()]);
    let last = first + sums.len();
    for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact(channels)) {
        let (x, dy, means) = (&x[first..last], &dy[first..last], &means[first..last]);
        for (i, (slope, term)) in slopes.iter_mut().zip(terms.iter_mut()).enumerate() {
            *slope += dy[i];
            *term += dy[i] * (x[i] - means[i]);
        }
    }
    sums.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += *slope);
    products.iter_mut().zip(terms).for_each(|(product, term)| *product += *term);
}

pub(super) fn backward_input(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let channels = index(params.channels);
    let [x, dy, moments, sums] = [0, 1, 2, 4].map(|input: usize| call.inputs[input]);
    let share = 1.0 / float(index(params.count.max(1)));
    let scales = call.constant("USE_SCALE", 1.0) > 0.5;
    let [means, inverses, factors, slopes, products] = repeated(channels, |channel| {
        let inverse = inverse_deviation(&params, moments[channels + channel]);
        let gamma = if scales { call.inputs[3][channel] } else { 1.0 };
        [moments[channel], inverse, gamma * inverse, sums[channel] * share, sums[channels + channel] * share]
    });
    parallel::rows(&mut outputs[0][..index(params.pixels) * channels], channels, |first, d_x| {
        let inputs = x[first * channels..].chunks(means.len()).zip(dy[first * channels..].chunks(means.len()));
        for (d_x, (x, dy)) in d_x.chunks_mut(means.len()).zip(inputs) {
            let len = d_x.len();
            let (means, inverses, factors) = (&means[..len], &inverses[..len], &factors[..len]);
            let (x, slopes, products) = (&x[..len], &slopes[..len], &products[..len]);
            for (i, (d_x, dy)) in d_x.iter_mut().zip(dy).enumerate() {
                *d_x = factors[i] * (dy - slopes[i] - (x[i] - means[i]) * inverses[i] * products[i]);
            }
        }
    });
}

pub(super) fn backward_inference(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let channels = index(params.channels);
    let scales = call.constant("USE_SCALE", 1.0) > 0.5;
    let [dy, variance, gamma] = [0, 1, 2].map(|input: usize| call.inputs[input]);
    let [factors] = repeated(channels, |channel| {
        let gamma = if scales { gamma[channel] } else { 1.0 };
        [gamma / (variance[channel] + params.epsilon).sqrt()]
    });
    parallel::rows(&mut outputs[0][..index(params.pixels) * channels], channels, |first, d_x| {
        let blocks = d_x.chunks_mut(factors.len()).zip(dy[first * channels..].chunks(factors.len()));
        for (d_x, dy) in blocks {
            d_x.iter_mut().zip(dy).zip(&factors).for_each(|((d_x, dy), factor)| *d_x = factor * dy);
        }
    });
}
