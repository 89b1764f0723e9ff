// Depthwise convolution as in depthwise_conv2d.wgsl, for channels that are a multiple of four, of one result each.
//
//     y[r, oy, ox, c]   = act(sum over kh, kw of x[r, iy, ix, c] w[kh, kw, c] + bias[c])
//     d_x[r, iy, ix, c] = sum over kh, kw of dy[r, oy, ox, c] w[kh, kw, c]
//     partials[s, (kh, kw), c] = sum over the lines (r, oy) of slab s and ox of x[r, iy, ix, c] dy[r, oy, ox, c]
//     iy = oy stride_h + kh dilation_h - pad_top, ix = ox STRIDE + kw DILATION - pad_left; x is 0 outside the image
//
// An invocation computes four results, side by side, of four channels, or the sums of up to eight neighbouring weights of four
// channels: a load is of four numbers. The width of the window, the
// stride and the dilation are constants, so that compilers unroll the loop over the window and load each number once. Only
// at the left and right of the image are places checked.
//
// Source    ours; Keras 3 DepthwiseConv2D.
// Shapes    x4, d_x4 [rows, in_h, in_w, channels / 4] fours; w4 [k_h, WIDE, channels / 4]; bias4 [channels / 4];
//           y4, slopes4, dy4 [rows, out_h, out_w, channels / 4]; partials4 [splits, k_h * WIDE, channels / 4]
// Grid      an invocation for four channels of four pixels of a line of the result (forward, backward_input); for each of
//           splits * k_h * ceil(WIDE / ACROSS) * channels / 4 (backward_weights).
// Accuracy  within 1e-5 of the twin, relative to 1 + |y|; 5e-5 for sums over slabs of up to 4096 pixels.
// Twin      src/kernels/depthwise_conv2d.rs, fn forward_twin, backward_input_twin, backward_weights_twin.
// Uses      lib/grid.wgsl, lib/activation.wgsl, lib/depthwise.wgsl

// `k_w`, `stride_w` and `dilation_w`.
override WIDE: u32 = 3u;
override STRIDE: u32 = 1u;
override DILATION: u32 = 1u;
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x4: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> w4: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias4: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y4: array<vec4<f32>>;

@group(0) @binding(1) var<storage, read> slopes4: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> d_x4: array<vec4<f32>>;

@group(0) @binding(2) var<storage, read> dy4: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> partials4: array<vec4<f32>>;

// Results of four pixels.
struct Strip {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

// x at a column of the line that begins at `start`, or 0 in the padding, whose columns wrap below zero or lie past the end.
fn x_within(start: u32, column: u32) -> vec4<f32> {
    let inside = column < params.in_w;
    return select(vec4<f32>(0.0), x4[select(0u, start + column * (params.channels / 4u), inside)], inside);
}

fn slope_within(start: u32, column: u32) -> vec4<f32> {
    let inside = column < params.out_w;
    return select(vec4<f32>(0.0), slopes4[select(0u, start + column * (params.channels / 4u), inside)], inside);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let fours = params.channels / 4u;
    let strips = strips_of_results();
    let line = i / fours / strips;
    if line >= params.rows * params.out_h {
        return;
    }
    let channel = i % fours;
    let ox = i / fours % strips * 4u;
    let top = top_of(line);
    let left = ox * STRIDE - params.pad_left;
    let is_inner = left < params.in_w && left + 3u * STRIDE + (WIDE - 1u) * DILATION < params.in_w;
    let image = input_of(line);
    var sums = Strip(vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0));
    for (var kh = 0u; kh < params.k_h; kh += 1u) {
        let iy = top + kh * params.dilation_h;
        if iy >= params.in_h {
            continue;
        }
        let start = (image + iy) * params.in_w * fours + channel;
        let weights = kh * WIDE * fours + channel;
        if is_inner {
            let at = start + left * fours;
            for (var kw = 0u; kw < WIDE; kw += 1u) {
                let weight = w4[weights + kw * fours];
                sums.a += weight * x4[at + kw * DILATION * fours];
                sums.b += weight * x4[at + (kw * DILATION + STRIDE) * fours];
                sums.c += weight * x4[at + (kw * DILATION + 2u * STRIDE) * fours];
                sums.d += weight * x4[at + (kw * DILATION + 3u * STRIDE) * fours];
            }
        } else {
            for (var kw = 0u; kw < WIDE; kw += 1u) {
                let weight = w4[weights + kw * fours];
                let ix = left + kw * DILATION;
                sums.a += weight * x_within(start, ix);
                sums.b += weight * x_within(start, ix + STRIDE);
                sums.c += weight * x_within(start, ix + 2u * STRIDE);
                sums.d += weight * x_within(start, ix + 3u * STRIDE);
            }
        }
    }
    var shift = vec4<f32>(0.0);
    if USE_BIAS == 1u {
        shift = bias4[channel];
    }
    let at = (line * params.out_w + ox) * fours + channel;
    y4[at] = activate4(sums.a + shift);
    if ox + 1u < params.out_w {
        y4[at + fours] = activate4(sums.b + shift);
    }
    if ox + 2u < params.out_w {
        y4[at + 2u * fours] = activate4(sums.c + shift);
    }
    if ox + 3u < params.out_w {
        y4[at + 3u * fours] = activate4(sums.d + shift);
    }
}

@compute @workgroup_size(64)
fn backward_input(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let fours = params.channels / 4u;
    let strips = strips_of_input(STRIDE);
    let line = i / fours / strips;
    if line >= params.rows * params.in_h {
        return;
    }
    let channel = i % fours;
    let strip = i / fours % strips;
    let ix = first_of_strip(strip, STRIDE);
    let padded = vec2<u32>(line % params.in_h + params.pad_top, ix + params.pad_left);
    let is_inner = padded.y >= (WIDE - 1u) * DILATION && padded.y / STRIDE + 3u < params.out_w;
    let image = line / params.in_h * params.out_h;
    var sums = Strip(vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0));
    for (var kh = 0u; kh < params.k_h; kh += 1u) {
        let back = kh * params.dilation_h;
        let oy = (padded.x - back) / params.stride_h;
        if back > padded.x || oy >= params.out_h || oy * params.stride_h + back != padded.x {
            continue;
        }
        let start = (image + oy) * params.out_w * fours + channel;
        let weights = kh * WIDE * fours + channel;
        if is_inner && STRIDE == 1u {
            let at = start + padded.y * fours;
            for (var kw = 0u; kw < WIDE; kw += 1u) {
                let weight = w4[weights + kw * fours];
                sums.a += weight * slopes4[at - kw * DILATION * fours];
                sums.b += weight * slopes4[at + (1u - kw * DILATION) * fours];
                sums.c += weight * slopes4[at + (2u - kw * DILATION) * fours];
                sums.d += weight * slopes4[at + (3u - kw * DILATION) * fours];
            }
        } else {
            for (var kw = 0u; kw < WIDE; kw += 1u) {
                // Shifted by a multiple of the stride, so that the difference is not below zero.
                let shift = kw * DILATION;
                let place = padded.y + shift * STRIDE - shift;
                if place % STRIDE == 0u {
                    let ox = place / STRIDE - shift;
                    let weight = w4[weights + kw * fours];
                    sums.a += weight * slope_within(start, ox);
                    sums.b += weight * slope_within(start, ox + 1u);
                    sums.c += weight * slope_within(start, ox + 2u);
                    sums.d += weight * slope_within(start, ox + 3u);
                }
            }
        }
    }
    let at = (line * params.in_w + ix) * fours + channel;
    let apart = STRIDE * fours;
    if ix < params.in_w {
        d_x4[at] = sums.a;
    }
    if ix + STRIDE < params.in_w {
        d_x4[at + apart] = sums.b;
    }
    if ix + 2u * STRIDE < params.in_w {
        d_x4[at + 2u * apart] = sums.c;
    }
    if ix + 3u * STRIDE < params.in_w {
        d_x4[at + 3u * apart] = sums.d;
    }
}

// Sums of neighbouring weights.
struct Taps {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
    e: vec4<f32>,
    f: vec4<f32>,
    g: vec4<f32>,
    h: vec4<f32>,
}

fn no_taps() -> Taps {
    let zero = vec4<f32>(0.0);
    return Taps(zero, zero, zero, zero, zero, zero, zero, zero);
}

// Adds the products of a slope with x from place `at` on.
fn with_inner(before: Taps, slope: vec4<f32>, at: u32) -> Taps {
    let apart = DILATION * (params.channels / 4u);
    var sums = before;
    sums.a += slope * x4[at];
    if ACROSS > 1u {
        sums.b += slope * x4[at + apart];
    }
    if ACROSS > 2u {
        sums.c += slope * x4[at + 2u * apart];
    }
    if ACROSS > 3u {
        sums.d += slope * x4[at + 3u * apart];
    }
    if ACROSS > 4u {
        sums.e += slope * x4[at + 4u * apart];
    }
    if ACROSS > 5u {
        sums.f += slope * x4[at + 5u * apart];
    }
    if ACROSS > 6u {
        sums.g += slope * x4[at + 6u * apart];
    }
    if ACROSS > 7u {
        sums.h += slope * x4[at + 7u * apart];
    }
    return sums;
}

// The same from a column on, where places may lie in the padding.
fn with_edge(before: Taps, slope: vec4<f32>, start: u32, column: u32) -> Taps {
    var sums = before;
    sums.a += slope * x_within(start, column);
    if ACROSS > 1u {
        sums.b += slope * x_within(start, column + DILATION);
    }
    if ACROSS > 2u {
        sums.c += slope * x_within(start, column + 2u * DILATION);
    }
    if ACROSS > 3u {
        sums.d += slope * x_within(start, column + 3u * DILATION);
    }
    if ACROSS > 4u {
        sums.e += slope * x_within(start, column + 4u * DILATION);
    }
    if ACROSS > 5u {
        sums.f += slope * x_within(start, column + 5u * DILATION);
    }
    if ACROSS > 6u {
        sums.g += slope * x_within(start, column + 6u * DILATION);
    }
    if ACROSS > 7u {
        sums.h += slope * x_within(start, column + 7u * DILATION);
    }
    return sums;
}

fn store(at: u32, kw: u32, k: u32, sum: vec4<f32>) {
    if k < ACROSS && kw + k < WIDE {
        partials4[at + k * (params.channels / 4u)] = sum;
    }
}

@compute @workgroup_size(64)
fn backward_weights(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let fours = params.channels / 4u;
    let across = (WIDE + ACROSS - 1u) / ACROSS;
    let channel = i % fours;
    let kw = i / fours % across * ACROSS;
    let kh = i / (fours * across) % params.k_h;
    let split = i / (fours * across * params.k_h);
    if split >= params.splits {
        return;
    }
    let slab = slab_of(split);
    var sums = no_taps();
    for (var line = slab.x; line < slab.y; line += 1u) {
        let iy = top_of(line) + kh * params.dilation_h;
        if iy >= params.in_h {
            continue;
        }
        let start = (input_of(line) + iy) * params.in_w * fours + channel;
        let slopes = line * params.out_w * fours + channel;
        // A line's own sums, so that long sums round less.
        var of_line = no_taps();
        for (var ox = 0u; ox < params.out_w; ox += 4u) {
            let ix = ox * STRIDE + kw * DILATION - params.pad_left;
            let is_inner = ix < params.in_w && ix + 3u * STRIDE + (ACROSS - 1u) * DILATION < params.in_w;
            if is_inner && ox + 3u < params.out_w {
                let at = start + ix * fours;
                let from_slope = slopes + ox * fours;
                of_line = with_inner(of_line, dy4[from_slope], at);
                of_line = with_inner(of_line, dy4[from_slope + fours], at + STRIDE * fours);
                of_line = with_inner(of_line, dy4[from_slope + 2u * fours], at + 2u * STRIDE * fours);
                of_line = with_inner(of_line, dy4[from_slope + 3u * fours], at + 3u * STRIDE * fours);
            } else {
                for (var n = 0u; n < 4u && ox + n < params.out_w; n += 1u) {
                    of_line = with_edge(of_line, dy4[slopes + (ox + n) * fours], start, ix + n * STRIDE);
                }
            }
        }
        sums.a += of_line.a;
        sums.b += of_line.b;
        sums.c += of_line.c;
        sums.d += of_line.d;
        sums.e += of_line.e;
        sums.f += of_line.f;
        sums.g += of_line.g;
        sums.h += of_line.h;
    }
    let at = ((split * params.k_h + kh) * WIDE + kw) * fours + channel;
    store(at, kw, 0u, sums.a);
    store(at, kw, 1u, sums.b);
    store(at, kw, 2u, sums.c);
    store(at, kw, 3u, sums.d);
    store(at, kw, 4u, sums.e);
    store(at, kw, 5u, sums.f);
    store(at, kw, 6u, sums.g);
    store(at, kw, 7u, sums.h);
}
