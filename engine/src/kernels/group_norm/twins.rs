//! The sums of `group_norm.wgsl` in f64.

use super::super::Call;
use super::super::activation_functions::Function;
use super::super::parallel::Slabs;
use super::super::rounding::{double, single};
use super::{GroupNormSizes, Params};

/// Whether a constant is on, as it is unless it is set to 0.
fn is_on(call: &Call<'_>, constant: &str) -> bool {
    call.constant(constant, 1.0) > 0.5
}

/// Index in `x` and channel of each element of a group of an item.
fn elements(s: GroupNormSizes, item: usize, group: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    let channels = (0..s.positions).flat_map(move |position| (0..s.width).map(move |column| (position, column)));
    channels.map(move |(position, column)| {
        let channel = group * s.width + column;
        ((item * s.positions + position) * s.channels + channel, channel)
    })
}

pub(super) fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (s, x) = (GroupNormSizes::of(&params), call.inputs[0]);
    let function = Function::of_call(call);
    for (item, group) in (0..s.items).flat_map(|item| (0..s.groups).map(move |group| (item, group))) {
        let values = || elements(s, item, group).map(|(at, _)| f64::from(x[at]));
        let size = double(s.group());
        let mean = if is_on(call, "USE_MEAN") { values().sum::<f64>() / size } else { 0.0 };
        let variance = values().map(|x| (x - mean).powi(2)).sum::<f64>() / size;
        let inverse = 1.0 / (variance + f64::from(params.epsilon)).sqrt();
        let place = 2 * (item * s.groups + group);
        outputs[1][place..place + 2].copy_from_slice(&[mean, inverse].map(single));
        for (at, channel) in elements(s, item, group) {
            let mut value = (f64::from(x[at]) - mean) * inverse;
            if is_on(call, "USE_SCALE") {
                value *= f64::from(call.inputs[1][channel]);
            }
            if is_on(call, "USE_CENTER") {
                value += f64::from(call.inputs[2][channel]);
            }
            outputs[0][at] = single(function.activate(value));
        }
    }
}

pub(super) fn backward_sums(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = GroupNormSizes::of(&call.params());
    let [x, dy, statistics] = [0, 1, 2].map(|input: usize| call.inputs[input]);
    let slabs = Slabs::new(s.items * s.positions, s.splits);
    for split in 0..s.splits {
        for channel in 0..s.channels {
            let (mut sum, mut product) = (0.0, 0.0);
            for pixel in slabs.range(split) {
                let at = pixel * s.channels + channel;
                let place = 2 * (pixel / s.positions * s.groups + channel / s.width);
                let [mean, inverse] = [statistics[place], statistics[place + 1]].map(f64::from);
                sum += f64::from(dy[at]);
                product += f64::from(dy[at]) * (f64::from(x[at]) - mean) * inverse;
            }
            outputs[0][2 * split * s.channels + channel] = single(sum);
            outputs[0][(2 * split + 1) * s.channels + channel] = single(product);
        }
    }
}

pub(super) fn backward_input(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = GroupNormSizes::of(&call.params());
    let [x, dy, statistics, gamma] = [0, 1, 2, 3].map(|input: usize| call.inputs[input]);
    let scales = is_on(call, "USE_SCALE");
    for (item, group) in (0..s.items).flat_map(|item| (0..s.groups).map(move |group| (item, group))) {
        let place = 2 * (item * s.groups + group);
        let [mean, inverse] = [statistics[place], statistics[place + 1]].map(f64::from);
        // Index, gradient with respect to x_hat, and x_hat.
        let terms = || {
            elements(s, item, group).map(|(at, channel)| {
                let scale = if scales { f64::from(gamma[channel]) } else { 1.0 };
                (at, f64::from(dy[at]) * scale, (f64::from(x[at]) - mean) * inverse)
            })
        };
        let size = double(s.group());
        let mean_slope =
            if is_on(call, "USE_MEAN") { terms().map(|(_, slope, _)| slope).sum::<f64>() / size } else { 0.0 };
        let mean_product = terms().map(|(_, slope, x_hat)| slope * x_hat).sum::<f64>() / size;
        for (at, slope, x_hat) in terms() {
            outputs[0][at] = single(inverse * (slope - mean_slope - x_hat * mean_product));
        }
    }
}
