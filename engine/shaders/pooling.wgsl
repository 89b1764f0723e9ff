// Maximum and average pooling over windows, and the average over all positions, with their gradients.
//
//     y[r, oy, ox, c]  = max or mean of x over the window's positions that lie in the image
//     d_x[r, iy, ix, c] = sum of dy over the windows that hold (iy, ix): where it is the window's first maximum in
//                        row-major order, or of dy / (positions of the window in the image)
//     A window with a NaN has the maximum NaN, and no gradient.
//
// Source    Keras 3 MaxPooling2D, AveragePooling2D, GlobalAveragePooling2D; padding counts for nothing. Gather
//           form: an invocation owns one element of d_x, so that nothing is added by two.
// Shapes    x, d_x [rows, in_h, in_w, channels]; y, dy [rows, out_h, out_w, channels], global [rows, channels].
// Grid      an invocation for each element of the result.
// Accuracy  maximum exact; the others within 5e-6 of the twin, relative to 1 + |y|.
// Twin      src/kernels/pooling/twins.rs
// Uses      lib/grid.wgsl

struct Params {
    rows: u32,
    in_h: u32,
    in_w: u32,
    channels: u32,
    out_h: u32,
    out_w: u32,
    pool_h: u32,
    pool_w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@group(0) @binding(2) var<storage, read> max_y: array<f32>;
@group(0) @binding(3) var<storage, read> max_dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> max_dx: array<f32>;

@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> d_x: array<f32>;

// Where an element stands in [rows, height, width, channels].
struct Place {
    row: u32,
    line: u32,
    column: u32,
    channel: u32,
}

fn place_of(i: u32, height: u32, width: u32) -> Place {
    let position = i / params.channels;
    let line = position / width;
    return Place(line / height, line % height, position % width, i % params.channels);
}

// Lines or columns [x, y) of the image in a window.
fn window(out: u32, stride: u32, pool: u32, pad: u32, size: u32) -> vec2<u32> {
    let start = out * stride;
    return vec2<u32>(max(start, pad) - pad, min(max(start + pool, pad) - pad, size));
}

// Windows [x, y) that hold a line or column of the image.
fn windows(at: u32, stride: u32, pool: u32, pad: u32, count: u32) -> vec2<u32> {
    let padded = at + pad;
    let first = select(0u, (padded - min(pool, padded)) / stride + 1u, padded >= pool);
    return vec2<u32>(first, min(padded / stride + 1u, count));
}

fn in_index(row: u32, line: u32, column: u32, channel: u32) -> u32 {
    return ((row * params.in_h + line) * params.in_w + column) * params.channels + channel;
}

fn out_index(row: u32, line: u32, column: u32, channel: u32) -> u32 {
    return ((row * params.out_h + line) * params.out_w + column) * params.channels + channel;
}

@compute @workgroup_size(64)
fn forward_max(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.rows * params.out_h * params.out_w * params.channels {
        return;
    }
    let at = place_of(i, params.out_h, params.out_w);
    let lines = window(at.line, params.stride_h, params.pool_h, params.pad_top, params.in_h);
    let columns = window(at.column, params.stride_w, params.pool_w, params.pad_left, params.in_w);
    var largest = -3.4e38;
    // Largest bits without sign: those of a NaN are above those of all numbers, and max() may pass it over.
    var magnitude = 0u;
    for (var line = lines.x; line < lines.y; line += 1u) {
        for (var column = columns.x; column < columns.y; column += 1u) {
            let value = x[in_index(at.row, line, column, at.channel)];
            largest = max(largest, value);
            magnitude = max(magnitude, bitcast<u32>(value) & 0x7fffffffu);
        }
    }
    y[i] = select(largest, bitcast<f32>(magnitude), magnitude > 0x7f800000u);
}

@compute @workgroup_size(64)
fn backward_max(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.rows * params.in_h * params.in_w * params.channels {
        return;
    }
    let at = place_of(i, params.in_h, params.in_w);
    let lines = windows(at.line, params.stride_h, params.pool_h, params.pad_top, params.out_h);
    let columns = windows(at.column, params.stride_w, params.pool_w, params.pad_left, params.out_w);
    let value = x[i];
    var sum = 0.0;
    for (var line = lines.x; line < lines.y; line += 1u) {
        for (var column = columns.x; column < columns.y; column += 1u) {
            let source = out_index(at.row, line, column, at.channel);
            if max_y[source] == value && is_first(at, line, column, value) {
                sum += max_dy[source];
            }
        }
    }
    max_dx[i] = sum;
}

// Is no position of the window before this one, in row-major order, as large?
fn is_first(at: Place, out_line: u32, out_column: u32, value: f32) -> bool {
    let lines = window(out_line, params.stride_h, params.pool_h, params.pad_top, params.in_h);
    let columns = window(out_column, params.stride_w, params.pool_w, params.pad_left, params.in_w);
    var found = false;
    for (var line = lines.x; line <= at.line; line += 1u) {
        let end = select(columns.y, at.column, line == at.line);
        for (var column = columns.x; column < end; column += 1u) {
            found = found || x[in_index(at.row, line, column, at.channel)] == value;
        }
    }
    return !found;
}

@compute @workgroup_size(64)
fn forward_average(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.rows * params.out_h * params.out_w * params.channels {
        return;
    }
    let at = place_of(i, params.out_h, params.out_w);
    let lines = window(at.line, params.stride_h, params.pool_h, params.pad_top, params.in_h);
    let columns = window(at.column, params.stride_w, params.pool_w, params.pad_left, params.in_w);
    var sum = 0.0;
    for (var line = lines.x; line < lines.y; line += 1u) {
        for (var column = columns.x; column < columns.y; column += 1u) {
            sum += x[in_index(at.row, line, column, at.channel)];
        }
    }
    y[i] = sum / f32(max((lines.y - lines.x) * (columns.y - columns.x), 1u));
}

@compute @workgroup_size(64)
fn backward_average(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.rows * params.in_h * params.in_w * params.channels {
        return;
    }
    let at = place_of(i, params.in_h, params.in_w);
    let lines = windows(at.line, params.stride_h, params.pool_h, params.pad_top, params.out_h);
    let columns = windows(at.column, params.stride_w, params.pool_w, params.pad_left, params.out_w);
    var sum = 0.0;
    for (var line = lines.x; line < lines.y; line += 1u) {
        let tall = window(line, params.stride_h, params.pool_h, params.pad_top, params.in_h);
        for (var column = columns.x; column < columns.y; column += 1u) {
            let wide = window(column, params.stride_w, params.pool_w, params.pad_left, params.in_w);
            let count = (tall.y - tall.x) * (wide.y - wide.x);
            sum += dy[out_index(at.row, line, column, at.channel)] / f32(count);
        }
    }
    d_x[i] = sum;
}

@compute @workgroup_size(64)
fn forward_global_average(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let channels = params.channels;
    if i >= params.rows * channels {
        return;
    }
    let positions = params.in_h * params.in_w;
    var at = (i / channels) * positions * channels + i % channels;
    var sum = 0.0;
    // Four loads in flight.
    for (var block = positions / 4u; block > 0u; block -= 1u) {
        sum += (x[at] + x[at + channels]) + (x[at + 2u * channels] + x[at + 3u * channels]);
        at += 4u * channels;
    }
    for (var rest = positions % 4u; rest > 0u; rest -= 1u) {
        sum += x[at];
        at += channels;
    }
    y[i] = sum / f32(positions);
}

@compute @workgroup_size(64)
fn backward_global_average(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let positions = params.in_h * params.in_w;
    if i >= params.rows * positions * params.channels {
        return;
    }
    let row = i / (positions * params.channels);
    d_x[i] = dy[row * params.channels + i % params.channels] / f32(positions);
}
