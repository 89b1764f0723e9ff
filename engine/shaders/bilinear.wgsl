// A picture made larger by whole factors, with bilinear interpolation, and its gradient.
//
//     y[r, oy, ox, c]   = sum of w(oy, iy) w(ox, ix) x[r, iy, ix, c] over the two lines and columns next to (oy, ox)
//     d_x[r, iy, ix, c] = sum of w(oy, iy) w(ox, ix) dy[r, oy, ox, c] over all (oy, ox) that are next to (iy, ix)
//     o stands at s = (o + 1/2) / factor - 1/2 among the input's lines, kept between the first and the last;
//     w(o, i) = max(0, 1 - |s - i|)
//
// Source    Keras 3 UpSampling2D(interpolation="bilinear"): half-pixel centers, no antialiasing.
// Shapes    x, d_x [rows, in_h, in_w, channels]; y, dy [rows, in_h * factor_h, in_w * factor_w, channels].
// Grid      an invocation for each element of the result.
// Accuracy  within 2e-6 of the twin, relative to 1 + |y|; sums of factor_h * factor_w terms within 5e-6.
// Twin      src/kernels/bilinear.rs, fn forward_twin, backward_twin.
// Uses      lib/grid.wgsl

struct Params {
    rows: u32,
    in_h: u32,
    in_w: u32,
    channels: u32,
    factor_h: u32,
    factor_w: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> d_x: array<f32>;

// The two lines next to an output line, and how much of the second is in it.
struct Between {
    low: u32,
    high: u32,
    part: f32,
}

fn between(o: u32, factor: u32, size: u32) -> Between {
    // s in units of 1 / (2 factor): whole numbers.
    let s = min(max(2u * o + 1u, factor) - factor, 2u * factor * (size - 1u));
    let low = s / (2u * factor);
    let part = f32(s % (2u * factor)) / f32(2u * factor);
    return Between(low, min(low + 1u, size - 1u), part);
}

// w(o, i)
fn weight(o: u32, i: u32, factor: u32, size: u32) -> f32 {
    let at = between(o, factor, size);
    return select(0.0, 1.0 - at.part, at.low == i) + select(0.0, at.part, at.high == i);
}

// Output lines [x, y) among which are all that are next to line i.
fn neighbours(i: u32, factor: u32, size: u32) -> vec2<u32> {
    let first = select(0u, factor * (i - 1u) + factor / 2u, i > 0u);
    return vec2<u32>(first, select(factor * size, factor * (i + 1u) + factor / 2u + 1u, i + 1u < size));
}

// Between two columns of the line that starts at pixel `line`.
fn mixed(line: u32, at: Between, channel: u32) -> f32 {
    let left = x[(line + at.low) * params.channels + channel];
    let right = x[(line + at.high) * params.channels + channel];
    return mix(left, right, at.part);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let out_h = params.in_h * params.factor_h;
    let out_w = params.in_w * params.factor_w;
    if i >= params.rows * out_h * out_w * params.channels {
        return;
    }
    let channel = i % params.channels;
    let position = i / params.channels;
    let line = position / out_w;
    let high = between(line % out_h, params.factor_h, params.in_h);
    let wide = between(position % out_w, params.factor_w, params.in_w);
    let row = line / out_h * params.in_h;
    let top = mixed((row + high.low) * params.in_w, wide, channel);
    let bottom = mixed((row + high.high) * params.in_w, wide, channel);
    y[i] = mix(top, bottom, high.part);
}

@compute @workgroup_size(64)
fn backward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.rows * params.in_h * params.in_w * params.channels {
        return;
    }
    let channel = i % params.channels;
    let position = i / params.channels;
    let column = position % params.in_w;
    let line = position / params.in_w % params.in_h;
    let row = position / params.in_w / params.in_h * params.in_h * params.factor_h;
    let lines = neighbours(line, params.factor_h, params.in_h);
    let columns = neighbours(column, params.factor_w, params.in_w);
    var sum = 0.0;
    for (var o = lines.x; o < lines.y; o += 1u) {
        let share = weight(o, line, params.factor_h, params.in_h);
        let start = (row + o) * params.in_w * params.factor_w;
        for (var p = columns.x; p < columns.y; p += 1u) {
            sum += share * weight(p, column, params.factor_w, params.in_w) * dy[(start + p) * params.channels + channel];
        }
    }
    d_x[i] = sum;
}
