// Depthwise convolution over images with bias and activation, and both its gradients: each channel has windows of its own.
//
//     y[r, oy, ox, o]   = act(sum over kh, kw of x[r, iy, ix, o / multiplier] w[kh, kw, o] + bias[o])
//     d_x[r, iy, ix, c] = sum over kh, kw and the multiplier's o of c of dy[r, oy, ox, o] w[kh, kw, o]
//     partials[s, (kh, kw), o] = sum over the lines (r, oy) of slab s and ox of x[r, iy, ix, o / multiplier] dy[r, oy, ox, o]
//     iy = oy stride_h + kh dilation_h - pad_top, ix = ox stride_w + kw dilation_w - pad_left; x is 0 outside the image
//
// An invocation computes four results of one channel that read the same weights, or the sums of up to eight neighbouring
// weights: neighbours in a workgroup have neighbouring channels, and so read and write neighbours.
//
// Source    ours; Keras 3 DepthwiseConv2D for the order of the channels.
// Shapes    x, d_x [rows, in_h, in_w, channels]; w [k_h, k_w, channels * multiplier]; bias [channels * multiplier];
//           y, dy [rows, out_h, out_w, channels * multiplier]; partials [splits, k_h * k_w, channels * multiplier]. Slab s
//           holds ceil(rows * out_h / splits) lines; the last may be short or empty, and then gives 0.
// Grid      an invocation for each channel of four pixels of a line of the result (forward, backward_input); for each of
//           splits * k_h * ceil(k_w / ACROSS) * channels * multiplier (backward_weights).
// Accuracy  within 1e-5 of the twin, relative to 1 + |y|; 5e-5 for sums over slabs of up to 4096 pixels.
// Twin      src/kernels/depthwise_conv2d.rs, fn forward_twin, backward_input_twin, backward_weights_twin.
// Uses      lib/grid.wgsl, lib/activation.wgsl, lib/depthwise.wgsl

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@group(0) @binding(1) var<storage, read> slopes: array<f32>;
@group(0) @binding(3) var<storage, read_write> d_x: array<f32>;

@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> partials: array<f32>;

// x at a column of a line, or 0 in the padding, whose columns wrap below zero or lie past the end.
fn load_x(line: u32, column: u32, channel: u32) -> f32 {
    let inside = column < params.in_w;
    return select(0.0, x[select(0u, (line * params.in_w + column) * params.channels + channel, inside)], inside);
}

fn load_slope(line: u32, column: u32, channel: u32) -> f32 {
    let inside = column < params.out_w;
    let all = params.channels * params.multiplier;
    return select(0.0, slopes[select(0u, (line * params.out_w + column) * all + channel, inside)], inside);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let all = params.channels * params.multiplier;
    let strips = strips_of_results();
    let strip = i / all;
    let line = strip / strips;
    if line >= params.rows * params.out_h {
        return;
    }
    let o = i % all;
    let channel = o / params.multiplier;
    let ox = strip % strips * 4u;
    let top = top_of(line);
    let left = ox * params.stride_w - params.pad_left;
    let image = input_of(line);
    var sums = vec4<f32>(0.0);
    for (var kh = 0u; kh < params.k_h; kh += 1u) {
        let iy = top + kh * params.dilation_h;
        if iy < params.in_h {
            for (var kw = 0u; kw < params.k_w; kw += 1u) {
                let weight = w[(kh * params.k_w + kw) * all + o];
                let ix = left + kw * params.dilation_w;
                let a = load_x(image + iy, ix, channel);
                let b = load_x(image + iy, ix + params.stride_w, channel);
                let c = load_x(image + iy, ix + 2u * params.stride_w, channel);
                let d = load_x(image + iy, ix + 3u * params.stride_w, channel);
                sums += weight * vec4<f32>(a, b, c, d);
            }
        }
    }
    if USE_BIAS == 1u {
        sums += vec4<f32>(bias[o]);
    }
    sums = activate4(sums);
    let at = (line * params.out_w + ox) * all + o;
    y[at] = sums.x;
    if ox + 1u < params.out_w {
        y[at + all] = sums.y;
    }
    if ox + 2u < params.out_w {
        y[at + 2u * all] = sums.z;
    }
    if ox + 3u < params.out_w {
        y[at + 3u * all] = sums.w;
    }
}

@compute @workgroup_size(64)
fn backward_input(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let stride = params.stride_w;
    let strips = strips_of_input(stride);
    let strip = i / params.channels;
    let line = strip / strips;
    if line >= params.rows * params.in_h {
        return;
    }
    let channel = i % params.channels;
    let ix = first_of_strip(strip % strips, stride);
    let padded = line % params.in_h + params.pad_top;
    let image = line / params.in_h * params.out_h;
    var sums = vec4<f32>(0.0);
    for (var kh = 0u; kh < params.k_h; kh += 1u) {
        let back = kh * params.dilation_h;
        let oy = (padded - back) / params.stride_h;
        if back <= padded && oy < params.out_h && oy * params.stride_h + back == padded {
            for (var kw = 0u; kw < params.k_w; kw += 1u) {
                // Shifted by a multiple of the stride, so that the difference is not below zero.
                let shift = kw * params.dilation_w;
                let place = ix + params.pad_left + shift * stride - shift;
                if place % stride == 0u {
                    let ox = place / stride - shift;
                    for (var m = 0u; m < params.multiplier; m += 1u) {
                        let o = channel * params.multiplier + m;
                        let weight = w[(kh * params.k_w + kw) * params.channels * params.multiplier + o];
                        let a = load_slope(image + oy, ox, o);
                        let b = load_slope(image + oy, ox + 1u, o);
                        let c = load_slope(image + oy, ox + 2u, o);
                        let d = load_slope(image + oy, ox + 3u, o);
                        sums += weight * vec4<f32>(a, b, c, d);
                    }
                }
            }
        }
    }
    let at = (line * params.in_w + ix) * params.channels + channel;
    let apart = stride * params.channels;
    if ix < params.in_w {
        d_x[at] = sums.x;
    }
    if ix + stride < params.in_w {
        d_x[at + apart] = sums.y;
    }
    if ix + 2u * stride < params.in_w {
        d_x[at + 2u * apart] = sums.z;
    }
    if ix + 3u * stride < params.in_w {
        d_x[at + 3u * apart] = sums.w;
    }
}

// x under weight `k` of those of an invocation, where it has so many.
fn load_under(line: u32, column: u32, channel: u32, k: u32) -> f32 {
    if k < ACROSS {
        return load_x(line, column + k * params.dilation_w, channel);
    }
    return 0.0;
}

fn store(at: u32, kw: u32, k: u32, sum: f32) {
    if k < ACROSS && kw + k < params.k_w {
        partials[at + k * params.channels * params.multiplier] = sum;
    }
}

@compute @workgroup_size(64)
fn backward_weights(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let all = params.channels * params.multiplier;
    let across = (params.k_w + ACROSS - 1u) / ACROSS;
    let o = i % all;
    let kw = i / all % across * ACROSS;
    let kh = i / (all * across) % params.k_h;
    let split = i / (all * across * params.k_h);
    if split >= params.splits {
        return;
    }
    let channel = o / params.multiplier;
    let slab = slab_of(split);
    var low = vec4<f32>(0.0);
    var high = vec4<f32>(0.0);
    for (var line = slab.x; line < slab.y; line += 1u) {
        let iy = top_of(line) + kh * params.dilation_h;
        if iy < params.in_h {
            let from_line = input_of(line) + iy;
            var ix = kw * params.dilation_w - params.pad_left;
            var at = line * params.out_w * all + o;
            // A line's own sums, so that long sums round less.
            var low_line = vec4<f32>(0.0);
            var high_line = vec4<f32>(0.0);
            for (var ox = 0u; ox < params.out_w; ox += 1u) {
                let slope = dy[at];
                let a = load_under(from_line, ix, channel, 0u);
                let b = load_under(from_line, ix, channel, 1u);
                let c = load_under(from_line, ix, channel, 2u);
                let d = load_under(from_line, ix, channel, 3u);
                low_line += slope * vec4<f32>(a, b, c, d);
                if ACROSS > 4u {
                    let e = load_under(from_line, ix, channel, 4u);
                    let f = load_under(from_line, ix, channel, 5u);
                    let g = load_under(from_line, ix, channel, 6u);
                    let h = load_under(from_line, ix, channel, 7u);
                    high_line += slope * vec4<f32>(e, f, g, h);
                }
                ix += params.stride_w;
                at += all;
            }
            low += low_line;
            high += high_line;
        }
    }
    let at = ((split * params.k_h + kh) * params.k_w + kw) * all + o;
    store(at, kw, 0u, low.x);
    store(at, kw, 1u, low.y);
    store(at, kw, 2u, low.z);
    store(at, kw, 3u, low.w);
    store(at, kw, 4u, high.x);
    store(at, kw, 5u, high.y);
    store(at, kw, 6u, high.z);
    store(at, kw, 7u, high.w);
}
