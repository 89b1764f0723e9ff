//! Group normalization in f32, vectorised: along a group whose elements are neighbours, else over channels. Items are
//! cut into chunks for threads, and no sum depends on how.

use super::super::Call;
use super::super::activation_functions::Function;
use super::super::parallel::{self, Slabs};
use super::super::product::with_scratch;
use super::super::rounding::{double, single};
use super::{GroupNormSizes, Params};

/// Sums that run side by side, so that they fill vector registers.
const SIDE_BY_SIDE: usize = 16;

/// Terms that are summed in f32 before they join a sum in f64.
const BLOCK: usize = 1 << 12;

/// Pixels that are summed in f32 before they join the running sums.
const PIXELS: usize = 16;

/// Channels whose sums stay in registers and the L1 cache.
const CHANNELS: usize = 64;

/// Arguments of a call.
#[derive(Clone, Copy)]
struct Setup<'a> {
    s: GroupNormSizes,
    epsilon: f64,
    uses_mean: bool,
    /// `None` counts as 1.
    gamma: Option<&'a [f32]>,
    /// `None` counts as 0.
    beta: Option<&'a [f32]>,
    function: Function,
}

impl<'a> Setup<'a> {
    /// Of a call that has `gamma` and `beta` among its inputs.
    fn of(call: &Call<'a>, gamma: usize, beta: Option<usize>) -> Self {
        let params: Params = call.params();
        let on = |constant: &str| call.constant(constant, 1.0) > 0.5;
        Self {
            s: GroupNormSizes::of(&params),
            epsilon: f64::from(params.epsilon),
            uses_mean: on("USE_MEAN"),
            gamma: on("USE_SCALE").then(|| call.inputs[gamma]),
            beta: beta.filter(|_| on("USE_CENTER")).map(|beta| call.inputs[beta]),
            function: Function::of_call(call),
        }
    }
}

/// Σ f(a, b) over pairs.
fn total(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f64 {
    let block = |(a, b): (&[f32], &[f32])| {
        let mut sums = [0.0f32; SIDE_BY_SIDE];
        let (a, a_rest) = a.as_chunks::<SIDE_BY_SIDE>();
        let (b, b_rest) = b.as_chunks::<SIDE_BY_SIDE>();
        for (a, b) in a.iter().zip(b) {
            sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += f(*a, *b));
        }
        sums.iter_mut().zip(a_rest.iter().zip(b_rest)).for_each(|(sum, (a, b))| *sum += f(*a, *b));
        sums.iter().map(|sum| f64::from(*sum)).sum::<f64>()
    };
    a.chunks(BLOCK).zip(b.chunks(BLOCK)).map(block).sum()
}

pub(super) fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let setup = Setup::of(call, 1, Some(2));
    let (s, x) = (setup.s, call.inputs[0]);
    let [y, statistics] = outputs else { return };
    let y = (&mut y[..s.items * s.item()], s.item());
    let statistics = (&mut statistics[..2 * s.items * s.groups], 2 * s.groups);
    parallel::row_pairs(statistics, y, |item, statistics, y| {
        let x = &x[item * s.item()..][..s.item()];
        if s.positions == 1 {
            let groups = x.chunks_exact(s.width).zip(y.chunks_exact_mut(s.width));
            for (group, ((x, y), statistics)) in groups.zip(statistics.chunks_exact_mut(2)).enumerate() {
                normalize_neighbours(&setup, group * s.width, x, y, statistics);
            }
        } else {
            normalize_channels(&setup, x, y, statistics);
        }
        setup.function.activate_all(y);
    });
}

/// A group whose elements are neighbours, from channel `first` on.
fn normalize_neighbours(setup: &Setup<'_>, first: usize, x: &[f32], y: &mut [f32], statistics: &mut [f32]) {
    let (origin, size) = (x[0], double(x.len()));
    let shift = if setup.uses_mean { total(x, x, |x, _| x - origin) / size } else { -f64::from(origin) };
    let mean = single(f64::from(origin) + shift);
    let variance = total(x, x, |x, _| (x - mean) * (x - mean)) / size;
    let inverse = single(1.0 / (variance + setup.epsilon).sqrt());
    statistics.copy_from_slice(&[mean, inverse]);
    let gamma = setup.gamma.map(|gamma| &gamma[first..][..x.len()]);
    let beta = setup.beta.map(|beta| &beta[first..][..x.len()]);
    let values = y.iter_mut().zip(x);
    match (gamma, beta) {
        (None, None) => values.for_each(|(y, x)| *y = (x - mean) * inverse),
        (Some(gamma), None) => values.zip(gamma).for_each(|((y, x), gamma)| *y = (x - mean) * inverse * gamma),
        (None, Some(beta)) => values.zip(beta).for_each(|((y, x), beta)| *y = (x - mean) * inverse + beta),
        (Some(gamma), Some(beta)) => {
            let values = values.zip(gamma.iter().zip(beta));
            values.for_each(|((y, x), (gamma, beta))| *y = (x - mean) * inverse * gamma + beta);
        }
    }
}

/// Σ f(x) of each channel over the pixels of an item, in `sums`.
fn channel_sums(x: &[f32], sums: &mut [f32], block_sums: &mut [f32], f: impl Fn(usize, &[f32], &mut [f32])) {
    let channels = sums.len();
    sums.fill(0.0);
    for (block, x) in x.chunks(PIXELS * channels).enumerate() {
        block_sums.fill(0.0);
        for (pixel, x) in x.chunks_exact(channels).enumerate() {
            f(block * PIXELS + pixel, x, block_sums);
        }
        sums.iter_mut().zip(&*block_sums).for_each(|(sum, block)| *sum += block);
    }
}

/// All groups of an item, vectorised over channels.
fn normalize_channels(setup: &Setup<'_>, x: &[f32], y: &mut [f32], statistics: &mut [f32]) {
    let s = setup.s;
    let (channels, size) = (s.channels, double(s.group()));
    with_scratch(5 * channels, |scratch| {
        let (sums, rest) = scratch.split_at_mut(channels);
        let (block, rest) = rest.split_at_mut(channels);
        let (means, rest) = rest.split_at_mut(channels);
        let (factors, centers) = rest.split_at_mut(channels);
        means.fill(0.0);
        if setup.uses_mean {
            let origin = &x[..channels];
            channel_sums(x, sums, block, |_, x, sums| {
                sums.iter_mut().zip(x.iter().zip(origin)).for_each(|(sum, (x, origin))| *sum += x - origin);
            });
            for (group, (means, sums)) in means.chunks_exact_mut(s.width).zip(sums.chunks_exact(s.width)).enumerate() {
                let shifts: f64 = sums.iter().map(|sum| f64::from(*sum)).sum();
                let origins: f64 = origin[group * s.width..][..s.width].iter().map(|x| f64::from(*x)).sum();
                means.fill(single(origins / double(s.width) + shifts / size));
            }
        }
        channel_sums(x, sums, block, |_, x, sums| {
            let terms = x.iter().zip(&*means);
            sums.iter_mut().zip(terms).for_each(|(sum, (x, mean))| *sum += (x - mean) * (x - mean));
        });
        for (group, sums) in sums.chunks_exact(s.width).enumerate() {
            let variance = sums.iter().map(|sum| f64::from(*sum)).sum::<f64>() / size;
            let inverse = single(1.0 / (variance + setup.epsilon).sqrt());
            let channels = group * s.width..(group + 1) * s.width;
            statistics[2 * group..2 * group + 2].copy_from_slice(&[means[channels.start], inverse]);
            factors[channels].fill(inverse);
        }
        if let Some(gamma) = setup.gamma {
            factors.iter_mut().zip(gamma).for_each(|(factor, gamma)| *factor *= gamma);
        }
        match setup.beta {
            Some(beta) => centers.copy_from_slice(&beta[..channels]),
            None => centers.fill(0.0),
        }
        for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
            let numbers = means.iter().zip(&*factors).zip(&*centers);
            for ((y, x), ((mean, factor), center)) in y.iter_mut().zip(x).zip(numbers) {
                *y = (x - mean) * factor + center;
            }
        }
    });
}

pub(super) fn backward_sums(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = GroupNormSizes::of(&call.params());
    let [x, dy, statistics] = [0, 1, 2].map(|input: usize| call.inputs[input]);
    let slabs = Slabs::new(s.items * s.positions, s.splits);
    let work = s.items * s.item();
    parallel::slabs(&mut outputs[0][..2 * s.splits * s.channels], 2 * s.channels, work, |split, part| {
        part.fill(0.0);
        let (sums, products) = part.split_at_mut(s.channels);
        let range = slabs.range(split);
        let mut pixel = range.start;
        while pixel < range.end {
            // Pixels of one item; of many items, if each is a pixel with one group.
            let is_plain = s.positions == 1 && s.groups == 1;
            let end = if is_plain { range.end } else { (pixel / s.positions + 1) * s.positions };
            let end = end.min(range.end).min(pixel + PIXELS);
            let [x, dy] = [x, dy].map(|values| &values[pixel * s.channels..end * s.channels]);
            if is_plain {
                add_items([x, dy, &statistics[2 * pixel..]], sums, products);
            } else {
                let groups = &statistics[2 * (pixel / s.positions * s.groups)..][..2 * s.groups];
                add_pixels(s, [x, dy, groups], sums, products);
            }
            pixel = end;
        }
    });
}

/// Adds Σ dy and Σ dy x̂ of a few items of one pixel and one group.
fn add_items([x, dy, statistics]: [&[f32]; 3], sums: &mut [f32], products: &mut [f32]) {
    let channels = sums.len();
    for first in (0..channels).step_by(CHANNELS) {
        let last = (first + CHANNELS).min(channels);
        let (mut slopes, mut terms) = ([0.0f32; CHANNELS], [0.0f32; CHANNELS]);
        let pixels = x.chunks_exact(channels).zip(dy.chunks_exact(channels));
        for ((x, dy), numbers) in pixels.zip(statistics.chunks_exact(2)) {
            let (mean, inverse) = (numbers[0], numbers[1]);
            let values = x[first..last].iter().zip(&dy[first..last]);
            for ((slope, term), (x, dy)) in slopes.iter_mut().zip(&mut terms).zip(values) {
                *slope += dy;
                *term += dy * ((x - mean) * inverse);
            }
        }
        sums[first..last].iter_mut().zip(&slopes).for_each(|(sum, slope)| *sum += slope);
        products[first..last].iter_mut().zip(&terms).for_each(|(product, term)| *product += term);
    }
}

/// Adds Σ dy and Σ dy x̂ of a few pixels of one item.
fn add_pixels(s: GroupNormSizes, [x, dy, statistics]: [&[f32]; 3], sums: &mut [f32], products: &mut [f32]) {
    for first in (0..s.channels).step_by(CHANNELS) {
        let last = (first + CHANNELS).min(s.channels);
        let [mut means, mut inverses, mut slopes, mut terms] = [[0.0f32; CHANNELS]; 4];
        for (channel, (mean, inverse)) in (first..last).zip(means.iter_mut().zip(&mut inverses)) {
            let group = 2 * (channel / s.width);
            (*mean, *inverse) = (statistics[group], statistics[group + 1]);
        }
        for (x, dy) in x.chunks_exact(s.channels).zip(dy.chunks_exact(s.channels)) {
            let values = x[first..last].iter().zip(&dy[first..last]).zip(&means);
            for ((slope, term), ((x, dy), mean)) in slopes.iter_mut().zip(&mut terms).zip(values) {
                *slope += dy;
                *term += dy * (x - mean);
            }
        }
        sums[first..last].iter_mut().zip(&slopes).for_each(|(sum, slope)| *sum += slope);
        let scaled = terms.iter().zip(&inverses).map(|(term, inverse)| term * inverse);
        products[first..last].iter_mut().zip(scaled).for_each(|(product, term)| *product += term);
    }
}

pub(super) fn backward_input(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let setup = Setup::of(call, 3, None);
    let (s, statistics) = (setup.s, call.inputs[2]);
    let [x, dy] = [0, 1].map(|input: usize| call.inputs[input]);
    parallel::rows(&mut outputs[0][..s.items * s.item()], s.item(), |first, d_x| {
        for (item, d_x) in (first..).zip(d_x.chunks_exact_mut(s.item())) {
            let [x, dy] = [x, dy].map(|values| &values[item * s.item()..][..s.item()]);
            let statistics = &statistics[2 * item * s.groups..][..2 * s.groups];
            if s.positions == 1 {
                let groups = x.chunks_exact(s.width).zip(dy.chunks_exact(s.width)).zip(statistics.chunks_exact(2));
                for (group, (((x, dy), numbers), d_x)) in groups.zip(d_x.chunks_exact_mut(s.width)).enumerate() {
                    slope_neighbours(&setup, group * s.width, [x, dy], [numbers[0], numbers[1]], d_x);
                }
            } else {
                slope_channels(&setup, [x, dy, statistics], d_x);
            }
        }
    });
}

/// Mean slope and mean of slope · x̂ / deviation of a group, from the sums of slope and of slope · (x - mean).
fn means_of(setup: &Setup<'_>, [slopes, products]: [f64; 2], inverse: f32) -> [f32; 2] {
    let size = double(setup.s.group());
    let mean_slope = if setup.uses_mean { single(slopes / size) } else { 0.0 };
    [mean_slope, single(products / size * f64::from(inverse).powi(2))]
}

/// A group whose elements are neighbours, from channel `first` on.
fn slope_neighbours(setup: &Setup<'_>, first: usize, [x, dy]: [&[f32]; 2], [mean, inverse]: [f32; 2], d_x: &mut [f32]) {
    match setup.gamma {
        Some(gamma) => {
            d_x.iter_mut().zip(dy.iter().zip(&gamma[first..])).for_each(|(d_x, (dy, gamma))| *d_x = dy * gamma)
        }
        None => d_x.copy_from_slice(dy),
    }
    let sums = [total(d_x, x, |slope, _| slope), total(d_x, x, |slope, x| slope * (x - mean))];
    let [mean_slope, mean_product] = means_of(setup, sums, inverse);
    for (d_x, x) in d_x.iter_mut().zip(x) {
        *d_x = inverse * (*d_x - mean_slope - (x - mean) * mean_product);
    }
}

/// All groups of an item, vectorised over channels.
fn slope_channels(setup: &Setup<'_>, [x, dy, statistics]: [&[f32]; 3], d_x: &mut [f32]) {
    let s = setup.s;
    let channels = s.channels;
    with_scratch(7 * channels, |scratch| {
        let (slopes, rest) = scratch.split_at_mut(channels);
        let (products, rest) = rest.split_at_mut(channels);
        let (block, rest) = rest.split_at_mut(channels);
        let (means, rest) = rest.split_at_mut(channels);
        let (factors, rest) = rest.split_at_mut(channels);
        let (mean_slopes, mean_products) = rest.split_at_mut(channels);
        for (means, numbers) in means.chunks_exact_mut(s.width).zip(statistics.chunks_exact(2)) {
            means.fill(numbers[0]);
        }
        channel_sums(dy, slopes, block, |_, dy, sums| sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy));
        channel_sums(dy, products, block, |pixel, dy, sums| {
            let terms = dy.iter().zip(&x[pixel * channels..]).zip(&*means);
            sums.iter_mut().zip(terms).for_each(|(sum, ((dy, x), mean))| *sum += dy * (x - mean));
        });
        match setup.gamma {
            Some(gamma) => factors.copy_from_slice(&gamma[..channels]),
            None => factors.fill(1.0),
        }
        for (group, numbers) in statistics.chunks_exact(2).enumerate() {
            let range = group * s.width..(group + 1) * s.width;
            let sum = |sums: &[f32]| {
                let terms = sums[range.clone()].iter().zip(&factors[range.clone()]);
                terms.map(|(sum, factor)| f64::from(*sum) * f64::from(*factor)).sum::<f64>()
            };
            let inverse = numbers[1];
            let [mean_slope, mean_product] = means_of(setup, [sum(slopes), sum(products)], inverse);
            mean_slopes[range.clone()].fill(inverse * mean_slope);
            mean_products[range.clone()].fill(inverse * mean_product);
            factors[range].iter_mut().for_each(|factor| *factor *= inverse);
        }
        let pixels = x.chunks_exact(channels).zip(dy.chunks_exact(channels));
        for ((x, dy), d_x) in pixels.zip(d_x.chunks_exact_mut(channels)) {
            let numbers = means.iter().zip(&*factors).zip(mean_slopes.iter().zip(&*mean_products));
            let values = d_x.iter_mut().zip(x.iter().zip(dy)).zip(numbers);
            for ((d_x, (x, dy)), ((mean, factor), (mean_slope, mean_product))) in values {
                *d_x = factor * dy - mean_slope - (x - mean) * mean_product;
            }
        }
    });
}
