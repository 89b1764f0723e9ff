//! The sums of `batch_norm.wgsl` in f64.

use super::super::Call;
use super::super::activation_functions::Function;
use super::super::parallel::Slabs;
use super::super::rounding::{double, index, single};
use super::Params;

/// `1 / sqrt(M2 / count + epsilon)`.
fn inverse_deviation(params: &Params, m2: f32) -> f64 {
    1.0 / (f64::from(m2) / f64::from(params.count.max(1)) + f64::from(params.epsilon)).sqrt()
}

pub(super) fn statistics(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let channels = index(params.channels);
    let slabs = Slabs::new(index(params.pixels), index(params.splits));
    for split in 0..index(params.splits) {
        let count = slabs.range(split).len().max(1);
        for channel in 0..channels {
            let values = || slabs.range(split).map(|pixel| f64::from(call.inputs[0][pixel * channels + channel]));
            let mean = values().sum::<f64>() / double(count);
            outputs[0][2 * split * channels + channel] = single(mean);
            outputs[0][(2 * split + 1) * channels + channel] = single(values().map(|x| (x - mean).powi(2)).sum());
        }
    }
}

pub(super) fn combine_statistics(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let channels = index(params.channels);
    let slabs = Slabs::new(index(params.pixels), index(params.splits));
    for channel in 0..channels {
        // Count, mean and M2 of the slabs that are not empty.
        let parts = || {
            let filled = (0..index(params.splits)).filter(|split| !slabs.range(*split).is_empty());
            filled.map(|split| {
                let at = 2 * split * channels + channel;
                let (mean, m2) = (f64::from(call.inputs[0][at]), f64::from(call.inputs[0][at + channels]));
                (double(slabs.range(split).len()), mean, m2)
            })
        };
        let mean = parts().map(|(n, mean, _)| n * mean).sum::<f64>() / f64::from(params.pixels.max(1));
        outputs[0][channel] = single(mean);
        outputs[0][channels + channel] = single(parts().map(|(n, part, m2)| m2 + n * (part - mean).powi(2)).sum());
    }
}

/// `activate((x - mean) * inverse * gamma + beta)`, with mean and inverse deviation of each channel.
fn normalize(call: &Call<'_>, y: &mut [f32], [gamma, beta]: [&[f32]; 2], moments_of: impl Fn(usize) -> (f64, f64)) {
    let params: Params = call.params();
    let channels = index(params.channels);
    let function = Function::of_call(call);
    let (scales, centers) = (call.constant("USE_SCALE", 1.0) > 0.5, call.constant("USE_CENTER", 1.0) > 0.5);
    let pairs = y.iter_mut().zip(call.inputs[0]).take(index(params.pixels) * channels);
    for (i, (y, x)) in pairs.enumerate() {
        let channel = i % channels;
        let (mean, inverse) = moments_of(channel);
        let mut value = (f64::from(*x) - mean) * inverse;
        if scales {
            value *= f64::from(gamma[channel]);
        }
        if centers {
            value += f64::from(beta[channel]);
        }
        *y = single(function.activate(value));
    }
}

pub(super) fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (moments, channels) = (call.inputs[1], index(params.channels));
    normalize(call, outputs[0], [call.inputs[2], call.inputs[3]], |channel| {
        (f64::from(moments[channel]), inverse_deviation(&params, moments[channels + channel]))
    });
}

pub(super) fn inference(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (mean, variance) = (call.inputs[1], call.inputs[2]);
    normalize(call, outputs[0], [call.inputs[3], call.inputs[4]], |channel| {
        let inverse = 1.0 / (f64::from(variance[channel]) + f64::from(params.epsilon)).sqrt();
        (f64::from(mean[channel]), inverse)
    });
}

pub(super) fn backward_sums(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (channels, moments) = (index(params.channels), call.inputs[2]);
    let slabs = Slabs::new(index(params.pixels), index(params.splits));
    for split in 0..index(params.splits) {
        for channel in 0..channels {
            let mean = f64::from(moments[channel]);
            let inverse = inverse_deviation(&params, moments[channels + channel]);
            let (mut sum, mut product) = (0.0, 0.0);
            for pixel in slabs.range(split) {
                let at = pixel * channels + channel;
                let dy = f64::from(call.inputs[1][at]);
                sum += dy;
                product += dy * (f64::from(call.inputs[0][at]) - mean) * inverse;
            }
            outputs[0][2 * split * channels + channel] = single(sum);
            outputs[0][(2 * split + 1) * channels + channel] = single(product);
        }
    }
}

pub(super) fn backward_parameters(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (channels, splits) = (index(params.channels), index(params.splits));
    let total = |at: usize| (0..splits).map(|split| f64::from(call.inputs[0][2 * split * channels + at])).sum();
    for channel in 0..channels {
        let (sum, product) = (single(total(channel)), single(total(channels + channel)));
        outputs[0][channel] = sum;
        outputs[0][channels + channel] = product;
        outputs[1][channel] = product;
        outputs[2][channel] = sum;
    }
}

pub(super) fn backward_input(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let channels = index(params.channels);
    let scales = call.constant("USE_SCALE", 1.0) > 0.5;
    let [x, dy, moments, gamma, sums] = [0, 1, 2, 3, 4].map(|input: usize| call.inputs[input]);
    let count = f64::from(params.count.max(1));
    for i in 0..index(params.pixels) * channels {
        let channel = i % channels;
        let inverse = inverse_deviation(&params, moments[channels + channel]);
        let x_hat = (f64::from(x[i]) - f64::from(moments[channel])) * inverse;
        let gamma = if scales { f64::from(gamma[channel]) } else { 1.0 };
        let (sum, product) = (f64::from(sums[channel]), f64::from(sums[channels + channel]));
        outputs[0][i] = single(gamma * inverse * (f64::from(dy[i]) - sum / count - x_hat * product / count));
    }
}

pub(super) fn backward_inference(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let channels = index(params.channels);
    let scales = call.constant("USE_SCALE", 1.0) > 0.5;
    let [dy, variance, gamma] = [0, 1, 2].map(|input: usize| call.inputs[input]);
    for i in 0..index(params.pixels) * channels {
        let channel = i % channels;
        let gamma = if scales { f64::from(gamma[channel]) } else { 1.0 };
        let deviation = (f64::from(variance[channel]) + f64::from(params.epsilon)).sqrt();
        outputs[0][i] = single(gamma / deviation * f64::from(dy[i]));
    }
}

pub(super) fn update(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let params: Params = call.params();
    let (moments, control, channels) = (call.inputs[0], call.inputs[1], index(params.channels));
    if params.count == 0 || control[1] == 0.0 {
        return;
    }
    let keep = f64::from(params.momentum);
    let divisor = f64::from(params.count.saturating_sub(params.correction).max(1));
    for channel in 0..channels {
        let new = [f64::from(moments[channel]), f64::from(moments[channels + channel]) / divisor];
        for (output, new) in outputs.iter_mut().zip(new) {
            output[channel] = single(f64::from(output[channel]) * keep + new * (1.0 - keep));
        }
    }
}
