// Normalization of each row by itself, in groups of channels: layer, group, instance and RMS normalization.
//
//     x_hat = (x - mean) / sqrt(variance + epsilon),  y = activate(x_hat * gamma + beta)
//     d_x   = (g - mean of g - x_hat * mean of g * x_hat) / sqrt(variance + epsilon),  g = dy * gamma
//     Means are over a group of an item. With USE_MEAN 0 (RMS) the mean of x counts as 0, and the mean of g is left out.
//
// Source    Ba, Kiros, Hinton 2016, arXiv:1607.06450; Wu, He 2018, arXiv:1803.08494; Zhang, Sennrich 2019,
//           arXiv:1910.07467. The variance divides by the group's elements. It is summed from the deviations, and the
//           mean from the distances to the group's first element: nothing cancels.
// Shapes    x, y, dy, d_x [items, positions, groups, width]; gamma, beta [groups, width]; statistics
//           [items, groups, 2]: mean, 1 / sqrt(variance + epsilon); partial_sums [splits, 2, groups * width]: sums of dy
//           and of dy * x_hat. Slab s holds ceil(pixels / splits) of the items * positions pixels; the last may be short
//           or empty, and then gives 0.
// Grid      LANES invocations for each group (forward, backward_input); one for each of splits * groups * width
//           (backward_sums).
// Accuracy  within 1e-5 of the twin, relative to 1 + |value|, for groups of up to 4096; 1e-4 for backward_sums.
// Twin      src/kernels/group_norm/twins.rs
// Uses      lib/grid.wgsl, lib/reduce.wgsl, lib/activation.wgsl

struct Params {
    items: u32,
    positions: u32,
    groups: u32,
    width: u32,
    epsilon: f32,
    splits: u32,
}

override LANES: u32 = 16u;
override USE_MEAN: u32 = 1u;
override USE_SCALE: u32 = 1u;
override USE_CENTER: u32 = 1u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> gamma: array<f32>;
@group(0) @binding(3) var<storage, read> beta: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read_write> statistics: array<f32>;

@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read> saved_statistics: array<f32>;
@group(0) @binding(4) var<storage, read_write> partial_sums: array<f32>;

@group(0) @binding(4) var<storage, read> saved_gamma: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_x: array<f32>;

// An element of a group: its place in x, and its column in the group.
struct Place {
    at: u32,
    column: u32,
}

// Element `i` of a group that begins at `base`.
fn place(base: u32, i: u32) -> Place {
    let position = i / params.width;
    let column = i % params.width;
    return Place(base + position * params.groups * params.width + column, column);
}

// The place LANES elements further on, without a division: `stride` is that of `place(0, LANES)`.
fn further(from_place: Place, stride: Place) -> Place {
    let at = from_place.at + stride.at;
    let column = from_place.column + stride.column;
    if column < params.width {
        return Place(at, column);
    }
    return Place(at + (params.groups - 1u) * params.width, column - params.width);
}

// Where the group of an item begins.
fn base_of(item_group: u32) -> u32 {
    let item = item_group / params.groups;
    return (item * params.positions * params.groups + item_group % params.groups) * params.width;
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let item_group = i / LANES;
    // No early return: every lane meets the barriers. A group past the end has no elements.
    let inside = item_group < params.items * params.groups;
    let size = params.positions * params.width;
    let count = select(0u, size, inside);
    let base = base_of(select(0u, item_group, inside));
    let first_channel = item_group % params.groups * params.width;
    let start = place(base, i % LANES);
    let stride = place(0u, LANES);

    var mean = 0.0;
    if USE_MEAN == 1u {
        let origin = x[base];
        var sum = 0.0;
        var at = start;
        for (var j = i % LANES; j < count; j += LANES) {
            sum += x[at.at] - origin;
            at = further(at, stride);
        }
        mean = origin + lanes_sum(sum, lane, LANES) / f32(size);
    }
    var squares = 0.0;
    var at = start;
    for (var j = i % LANES; j < count; j += LANES) {
        let deviation = x[at.at] - mean;
        squares += deviation * deviation;
        at = further(at, stride);
    }
    let inverse = inverseSqrt(lanes_sum(squares, lane, LANES) / f32(size) + params.epsilon);
    if inside && i % LANES == 0u {
        statistics[2u * item_group] = mean;
        statistics[2u * item_group + 1u] = inverse;
    }
    at = start;
    for (var j = i % LANES; j < count; j += LANES) {
        var value = (x[at.at] - mean) * inverse;
        if USE_SCALE == 1u {
            value *= gamma[first_channel + at.column];
        }
        if USE_CENTER == 1u {
            value += beta[first_channel + at.column];
        }
        y[at.at] = activate(value);
        at = further(at, stride);
    }
}

@compute @workgroup_size(64)
fn backward_sums(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let channels = params.groups * params.width;
    if i >= params.splits * channels {
        return;
    }
    let channel = i % channels;
    let pixels = params.items * params.positions;
    let slab = (pixels + params.splits - 1u) / params.splits;
    let first = min((i / channels) * slab, pixels);
    var at = first * channels + channel;
    var group = 2u * (first / params.positions * params.groups + channel / params.width);
    // Pixels of the item that are left.
    var left = params.positions - first % params.positions;
    var sum = 0.0;
    var product = 0.0;
    for (var rest = min(slab, pixels - first); rest > 0u; rest -= 1u) {
        let slope = dy[at];
        sum += slope;
        product += slope * ((x[at] - saved_statistics[group]) * saved_statistics[group + 1u]);
        at += channels;
        left -= 1u;
        if left == 0u {
            left = params.positions;
            group += 2u * params.groups;
        }
    }
    partial_sums[(i / channels) * 2u * channels + channel] = sum;
    partial_sums[((i / channels) * 2u + 1u) * channels + channel] = product;
}

// dy * gamma: the gradient with respect to x_hat.
fn slope_of(at: u32, channel: u32) -> f32 {
    if USE_SCALE == 1u {
        return dy[at] * saved_gamma[channel];
    }
    return dy[at];
}

@compute @workgroup_size(64)
fn backward_input(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let inside = i / LANES < params.items * params.groups;
    let item_group = select(0u, i / LANES, inside);
    let size = params.positions * params.width;
    let count = select(0u, size, inside);
    let first_channel = item_group % params.groups * params.width;
    let start = place(base_of(item_group), i % LANES);
    let stride = place(0u, LANES);
    let mean = saved_statistics[2u * item_group];
    let inverse = saved_statistics[2u * item_group + 1u];

    var sums = vec4<f32>(0.0);
    var at = start;
    for (var j = i % LANES; j < count; j += LANES) {
        let slope = slope_of(at.at, first_channel + at.column);
        sums += vec4<f32>(slope, slope * (x[at.at] - mean), 0.0, 0.0);
        at = further(at, stride);
    }
    sums = lanes_sum4(sums, lane, LANES) / f32(size);
    let mean_slope = select(0.0, sums.x, USE_MEAN == 1u);
    let mean_product = sums.y * inverse * inverse;
    at = start;
    for (var j = i % LANES; j < count; j += LANES) {
        let slope = slope_of(at.at, first_channel + at.column);
        d_x[at.at] = inverse * (slope - mean_slope - (x[at.at] - mean) * mean_product);
        at = further(at, stride);
    }
}
