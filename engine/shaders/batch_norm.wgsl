// Batch normalization over all axes but the last, in training and inference, with a fused activation.
//
//     x_hat = (x - mean) / sqrt(M2 / count + epsilon),  y = activate(x_hat * gamma + beta)
//     d_x    = gamma / sqrt(M2 / count + epsilon) * (dy - sum of dy / count - x_hat * sum of dy * x_hat / count)
//     slope_x = gamma / sqrt(variance + epsilon) * slope, where mean and variance are fixed
//
// Source    Ioffe, Szegedy 2015, arXiv:1502.03167; Keras 3 BatchNormalization: biased variance, moving statistics; with a
//           correction of 1 the moving variance is unbiased, as in PyTorch 2, nn.BatchNorm2d.
//           Moments are (mean, M2), M2 the sum of squared deviations, merged as in Chan, Golub, LeVeque 1983. Never
//           the mean of squares less the square of the mean, which cancels.
// Shapes    x, y, dy, d_x, slope, slope_x [pixels, channels], and so are values and slopes: x and dy, read by one element; moments, sums
//           [2, channels]; partial moments and sums [splits, 2, channels]; the others [channels]. Slab s holds
//           ceil(pixels / splits) pixels; the last may be short or empty, and then gives 0. count is the number of
//           values that the moments stand for: of this run or of the whole batch. With count 0 everything stays finite.
// Grid      an invocation for each of splits * channels (statistics, backward_sums), of channels
//           (combine_statistics, backward_parameters, update), of ceil(pixels / 16) * channels (the others).
// Accuracy  within 2e-5 of the twin, relative to 1 + |value|; 1e-4 for sums over slabs of up to 4096 pixels.
// Twin      src/kernels/batch_norm/twins.rs
// Uses      lib/grid.wgsl, lib/activation.wgsl

struct Params {
    pixels: u32,
    channels: u32,
    count: u32,
    epsilon: f32,
    momentum: f32,
    splits: u32,
    correction: u32,
}

override USE_SCALE: u32 = 1u;
override USE_CENTER: u32 = 1u;

// A buffer that entry points bind at different places, or read by one and by four elements, has a name for each.
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> partials: array<f32>;

@group(0) @binding(1) var<storage, read> slab_moments: array<f32>;
@group(0) @binding(2) var<storage, read_write> merged_moments: array<f32>;

@group(0) @binding(2) var<storage, read> moments: array<f32>;
@group(0) @binding(3) var<storage, read> gamma: array<f32>;
@group(0) @binding(4) var<storage, read> beta: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

@group(0) @binding(2) var<storage, read> moving_mean: array<f32>;
@group(0) @binding(3) var<storage, read> moving_variance: array<f32>;
@group(0) @binding(4) var<storage, read> inference_gamma: array<f32>;
@group(0) @binding(5) var<storage, read> inference_beta: array<f32>;
@group(0) @binding(6) var<storage, read_write> inference_y: array<vec4<f32>>;

@group(0) @binding(2) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> slopes: array<f32>;
@group(0) @binding(3) var<storage, read> saved_moments: array<f32>;
@group(0) @binding(4) var<storage, read_write> partial_sums: array<f32>;

@group(0) @binding(1) var<storage, read> slab_sums: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
@group(0) @binding(3) var<storage, read_write> gamma_gradient: array<f32>;
@group(0) @binding(4) var<storage, read_write> beta_gradient: array<f32>;

@group(0) @binding(4) var<storage, read> saved_gamma: array<f32>;
@group(0) @binding(5) var<storage, read> whole_sums: array<f32>;
@group(0) @binding(6) var<storage, read_write> d_x: array<vec4<f32>>;

@group(0) @binding(1) var<storage, read> slope: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> fixed_variance: array<f32>;
@group(0) @binding(3) var<storage, read> fixed_gamma: array<f32>;
@group(0) @binding(4) var<storage, read_write> slope_x: array<vec4<f32>>;

@group(0) @binding(1) var<storage, read> batch_moments: array<f32>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> new_mean: array<f32>;
@group(0) @binding(4) var<storage, read_write> new_variance: array<f32>;

// First pixel and number of pixels of a slab.
fn slab_of(split: u32) -> vec2<u32> {
    let slab = (params.pixels + params.splits - 1u) / params.splits;
    let first = min(split * slab, params.pixels);
    return vec2<u32>(first, min(slab, params.pixels - first));
}

fn inverse_deviation(m2: f32) -> f32 {
    return inverseSqrt(m2 / f32(max(params.count, 1u)) + params.epsilon);
}

fn inverse_deviations(m2: vec4<f32>) -> vec4<f32> {
    return inverseSqrt(m2 / f32(max(params.count, 1u)) + params.epsilon);
}

// How far apart the vectors are that one invocation takes, at most four: they begin a multiple of four pixels apart, so
// that their channels are the same, and neighbours always take neighbours.
fn vectors_apart() -> u32 {
    return (params.pixels + 15u) / 16u * params.channels;
}

// Channels of the four elements of a vector.
fn channels_of(i: u32) -> vec4<u32> {
    return (vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u)) % vec4<u32>(params.channels);
}

@compute @workgroup_size(64)
fn statistics(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let channels = params.channels;
    if i >= params.splits * channels {
        return;
    }
    let split = i / channels;
    let channel = i % channels;
    let slab = slab_of(split);
    var at = slab.x * channels + channel;
    var n = 0.0;
    var mean = 0.0;
    var m2 = 0.0;
    // Eight pixels at a time: their own mean and M2 in registers, then one merge.
    for (var block = slab.y / 8u; block > 0u; block -= 1u) {
        let a = vec4<f32>(values[at], values[at + channels], values[at + 2u * channels], values[at + 3u * channels]);
        at += 4u * channels;
        let b = vec4<f32>(values[at], values[at + channels], values[at + 2u * channels], values[at + 3u * channels]);
        at += 4u * channels;
        let block_mean = dot(a + b, vec4<f32>(0.125));
        let from_a = a - block_mean;
        let from_b = b - block_mean;
        let delta = block_mean - mean;
        let share = 8.0 / (n + 8.0);
        mean += delta * share;
        m2 += dot(from_a, from_a) + dot(from_b, from_b) + delta * delta * n * share;
        n += 8.0;
    }
    for (var rest = slab.y % 8u; rest > 0u; rest -= 1u) {
        let delta = values[at] - mean;
        at += channels;
        let share = 1.0 / (n + 1.0);
        mean += delta * share;
        m2 += delta * delta * n * share;
        n += 1.0;
    }
    partials[2u * split * channels + channel] = mean;
    partials[(2u * split + 1u) * channels + channel] = m2;
}

// Sum of a slab's differences from a number.
fn slab_shift(split: u32, channel: u32, origin: f32) -> f32 {
    let n = f32(slab_of(split).y);
    return n * select(slab_moments[2u * split * params.channels + channel] - origin, 0.0, n == 0.0);
}

// Sum of the squares of a slab's differences from the mean of all.
fn slab_spread(split: u32, channel: u32, mean: f32) -> f32 {
    let n = f32(slab_of(split).y);
    let delta = slab_moments[2u * split * params.channels + channel] - mean;
    let slab_m2 = slab_moments[(2u * split + 1u) * params.channels + channel];
    return select(slab_m2 + n * delta * delta, 0.0, n == 0.0);
}

fn four_shifts(s: u32, channel: u32, origin: f32) -> f32 {
    let a = slab_shift(s, channel, origin) + slab_shift(s + 1u, channel, origin);
    return a + (slab_shift(s + 2u, channel, origin) + slab_shift(s + 3u, channel, origin));
}

fn four_spreads(s: u32, channel: u32, mean: f32) -> f32 {
    let a = slab_spread(s, channel, mean) + slab_spread(s + 1u, channel, mean);
    return a + (slab_spread(s + 2u, channel, mean) + slab_spread(s + 3u, channel, mean));
}

@compute @workgroup_size(64)
fn combine_statistics(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let channel = element_index(workgroup, workgroups, lane, 64u);
    let channels = params.channels;
    if channel >= channels {
        return;
    }
    // The mean first, from the first slab's; then the deviations from it. No chain of divisions, and no
    // cancellation. An empty slab has weight 0. Sixteen slabs at a time: their loads wait together.
    let origin = select(slab_moments[channel], 0.0, params.pixels == 0u);
    let sixteens = params.splits / 16u * 16u;
    let fours = params.splits / 4u * 4u;
    var shift = 0.0;
    for (var s = 0u; s < sixteens; s += 16u) {
        let a = four_shifts(s, channel, origin) + four_shifts(s + 4u, channel, origin);
        shift += a + (four_shifts(s + 8u, channel, origin) + four_shifts(s + 12u, channel, origin));
    }
    for (var s = sixteens; s < fours; s += 4u) {
        shift += four_shifts(s, channel, origin);
    }
    for (var s = fours; s < params.splits; s += 1u) {
        shift += slab_shift(s, channel, origin);
    }
    let mean = origin + shift / f32(max(params.pixels, 1u));
    var m2 = 0.0;
    for (var s = 0u; s < sixteens; s += 16u) {
        let a = four_spreads(s, channel, mean) + four_spreads(s + 4u, channel, mean);
        m2 += a + (four_spreads(s + 8u, channel, mean) + four_spreads(s + 12u, channel, mean));
    }
    for (var s = sixteens; s < fours; s += 4u) {
        m2 += four_spreads(s, channel, mean);
    }
    for (var s = fours; s < params.splits; s += 1u) {
        m2 += slab_spread(s, channel, mean);
    }
    merged_moments[channel] = mean;
    merged_moments[channels + channel] = m2;
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let apart = vectors_apart();
    if i >= apart {
        return;
    }
    let c = channels_of(i);
    let d = c + params.channels;
    let mean = vec4<f32>(moments[c.x], moments[c.y], moments[c.z], moments[c.w]);
    let inverse = inverse_deviations(vec4<f32>(moments[d.x], moments[d.y], moments[d.z], moments[d.w]));
    var scale = vec4<f32>(1.0);
    var shift = vec4<f32>(0.0);
    if USE_SCALE == 1u {
        scale = vec4<f32>(gamma[c.x], gamma[c.y], gamma[c.z], gamma[c.w]);
    }
    if USE_CENTER == 1u {
        shift = vec4<f32>(beta[c.x], beta[c.y], beta[c.z], beta[c.w]);
    }
    let len = params.pixels * params.channels;
    var at = i;
    for (; at < len / 4u; at += apart) {
        y[at] = activate4((x[at] - mean) * inverse * scale + shift);
    }
    if 4u * at < len {
        let value = activate4((x[at] - mean) * inverse * scale + shift);
        y[at] = select(value, y[at], behind_end(at, len));
    }
}

@compute @workgroup_size(64)
fn inference(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let apart = vectors_apart();
    if i >= apart {
        return;
    }
    let c = channels_of(i);
    let mean = vec4<f32>(moving_mean[c.x], moving_mean[c.y], moving_mean[c.z], moving_mean[c.w]);
    let variance = vec4<f32>(moving_variance[c.x], moving_variance[c.y], moving_variance[c.z], moving_variance[c.w]);
    let inverse = inverseSqrt(variance + params.epsilon);
    var scale = vec4<f32>(1.0);
    var shift = vec4<f32>(0.0);
    if USE_SCALE == 1u {
        scale = vec4<f32>(inference_gamma[c.x], inference_gamma[c.y], inference_gamma[c.z], inference_gamma[c.w]);
    }
    if USE_CENTER == 1u {
        shift = vec4<f32>(inference_beta[c.x], inference_beta[c.y], inference_beta[c.z], inference_beta[c.w]);
    }
    let len = params.pixels * params.channels;
    var at = i;
    for (; at < len / 4u; at += apart) {
        inference_y[at] = activate4((x[at] - mean) * inverse * scale + shift);
    }
    if 4u * at < len {
        let value = activate4((x[at] - mean) * inverse * scale + shift);
        inference_y[at] = select(value, inference_y[at], behind_end(at, len));
    }
}

@compute @workgroup_size(64)
fn backward_sums(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let channels = params.channels;
    if i >= params.splits * channels {
        return;
    }
    let split = i / channels;
    let channel = i % channels;
    let slab = slab_of(split);
    let mean = saved_moments[channel];
    let inverse = inverse_deviation(saved_moments[channels + channel]);
    var at = slab.x * channels + channel;
    var sum = 0.0;
    var product = 0.0;
    // Sums of eight first, so that the running sums round an eighth as often, and sixteen loads wait together.
    for (var block = slab.y / 8u; block > 0u; block -= 1u) {
        let slope_1 = vec4<f32>(slopes[at], slopes[at + channels], slopes[at + 2u * channels], slopes[at + 3u * channels]);
        let value_1 = vec4<f32>(values[at], values[at + channels], values[at + 2u * channels], values[at + 3u * channels]);
        at += 4u * channels;
        let slope_2 = vec4<f32>(slopes[at], slopes[at + channels], slopes[at + 2u * channels], slopes[at + 3u * channels]);
        let value_2 = vec4<f32>(values[at], values[at + channels], values[at + 2u * channels], values[at + 3u * channels]);
        at += 4u * channels;
        sum += dot(slope_1 + slope_2, vec4<f32>(1.0));
        product += dot(slope_1, (value_1 - mean) * inverse) + dot(slope_2, (value_2 - mean) * inverse);
    }
    for (var rest = slab.y % 8u; rest > 0u; rest -= 1u) {
        sum += slopes[at];
        product += slopes[at] * ((values[at] - mean) * inverse);
        at += channels;
    }
    partial_sums[2u * split * channels + channel] = sum;
    partial_sums[(2u * split + 1u) * channels + channel] = product;
}

fn four_sums(at: u32) -> f32 {
    let apart = 2u * params.channels;
    return (slab_sums[at] + slab_sums[at + apart]) + (slab_sums[at + 2u * apart] + slab_sums[at + 3u * apart]);
}

@compute @workgroup_size(64)
fn backward_parameters(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let channel = element_index(workgroup, workgroups, lane, 64u);
    let channels = params.channels;
    if channel >= channels {
        return;
    }
    var sum = 0.0;
    var product = 0.0;
    let apart = 2u * channels;
    var at = channel;
    for (var block = params.splits / 8u; block > 0u; block -= 1u) {
        sum += four_sums(at) + four_sums(at + 4u * apart);
        product += four_sums(at + channels) + four_sums(at + channels + 4u * apart);
        at += 8u * apart;
    }
    for (var block = params.splits % 8u / 4u; block > 0u; block -= 1u) {
        sum += four_sums(at);
        product += four_sums(at + channels);
        at += 4u * apart;
    }
    for (var rest = params.splits % 4u; rest > 0u; rest -= 1u) {
        sum += slab_sums[at];
        product += slab_sums[at + channels];
        at += apart;
    }
    sums[channel] = sum;
    sums[channels + channel] = product;
    beta_gradient[channel] = sum;
    gamma_gradient[channel] = product;
}

@compute @workgroup_size(64)
fn backward_input(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let apart = vectors_apart();
    if i >= apart {
        return;
    }
    let c = channels_of(i);
    let d = c + params.channels;
    let share = 1.0 / f32(max(params.count, 1u));
    let mean = vec4<f32>(saved_moments[c.x], saved_moments[c.y], saved_moments[c.z], saved_moments[c.w]);
    let inverse = inverse_deviations(vec4<f32>(saved_moments[d.x], saved_moments[d.y], saved_moments[d.z], saved_moments[d.w]));
    let mean_slope = vec4<f32>(whole_sums[c.x], whole_sums[c.y], whole_sums[c.z], whole_sums[c.w]) * share;
    let mean_product = vec4<f32>(whole_sums[d.x], whole_sums[d.y], whole_sums[d.z], whole_sums[d.w]) * share;
    var factor = inverse;
    if USE_SCALE == 1u {
        factor *= vec4<f32>(saved_gamma[c.x], saved_gamma[c.y], saved_gamma[c.z], saved_gamma[c.w]);
    }
    let len = params.pixels * params.channels;
    var at = i;
    for (; at < len / 4u; at += apart) {
        d_x[at] = factor * (dy[at] - mean_slope - (x[at] - mean) * inverse * mean_product);
    }
    if 4u * at < len {
        let value = factor * (dy[at] - mean_slope - (x[at] - mean) * inverse * mean_product);
        d_x[at] = select(value, d_x[at], behind_end(at, len));
    }
}

@compute @workgroup_size(64)
fn backward_inference(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let apart = vectors_apart();
    if i >= apart {
        return;
    }
    let c = channels_of(i);
    let variance = vec4<f32>(fixed_variance[c.x], fixed_variance[c.y], fixed_variance[c.z], fixed_variance[c.w]);
    var factor = inverseSqrt(variance + params.epsilon);
    if USE_SCALE == 1u {
        factor *= vec4<f32>(fixed_gamma[c.x], fixed_gamma[c.y], fixed_gamma[c.z], fixed_gamma[c.w]);
    }
    let len = params.pixels * params.channels;
    var at = i;
    for (; at < len / 4u; at += apart) {
        slope_x[at] = factor * slope[at];
    }
    if 4u * at < len {
        slope_x[at] = select(factor * slope[at], slope_x[at], behind_end(at, len));
    }
}

@compute @workgroup_size(64)
fn update(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let channel = element_index(workgroup, workgroups, lane, 64u);
    if channel >= params.channels || params.count == 0u || control[1] == 0.0 {
        return;
    }
    let keep = params.momentum;
    let divisor = f32(max(params.count, params.correction + 1u) - params.correction);
    let variance = batch_moments[params.channels + channel] / divisor;
    new_mean[channel] = new_mean[channel] * keep + batch_moments[channel] * (1.0 - keep);
    new_variance[channel] = new_variance[channel] * keep + variance * (1.0 - keep);
}
