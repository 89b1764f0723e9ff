// Gradient of a two-dimensional convolution with respect to its input, or the transposed convolution, as matrix products.
//
//     d_x[r, iy, ix, ci] = act(sum over kh, kw, co of dy[r, oy, ox, first(ci) + co] w[kh, kw, ci % gi, first(ci) + co]
//                              + bias[ci])
//     oy = (iy + pad_top - kh DILATION_H) / stride_h, ox = (ix + pad_left - kw DILATION_W) / stride_w, where these are whole
//     gi = in_c / GROUPS channels make a group; first(ci) is the first of the out_c / GROUPS filters of that of ci
//
// With strides, the pixels of one phase (py, px) = (iy % stride_h, ix % stride_w) meet the same taps
// kh = kh0 + stride_h j only; dilated windows have no strides. Each phase is a product of its own: nothing is multiplied
// by a zero between the strides, and each result is gathered by one invocation, so the order of the sum is fixed.
//
// With several splits, d_x is [splits, rows, in_h, in_w, in_c]: split s has the sums over taps and filters [s c, (s + 1) c) of the
// phase's, c = ceil(of all / splits), and split_sum.finish adds them, the bias and the activation, which are left out here.
//
// Source    ours; tile loops in lib/product_*.wgsl.
// Shapes    dy [rows, out_h, out_w, out_c], w [k_h, k_w, in_c / GROUPS, out_c], d_x [rows, in_h, in_w, in_c],
//           bias [in_c]; d_x times `splits`.
// Grid      one workgroup a tile of [rows ceil(in_h / stride_h) ceil(in_w / stride_w), in_c / GROUPS],
//           times stride_h stride_w GROUPS `splits` along z.
// Accuracy  within 1e-5 of the twin, relative to 1 + |d_x|, for sums of up to 1100: in order of kh, kw, co.
// Twin      src/kernels/conv2d.rs, fn backward_input_twin.
// Uses      lib/product_*.wgsl, lib/activation.wgsl, lib/grid.wgsl

struct Params {
    rows: u32,
    in_h: u32,
    in_w: u32,
    in_c: u32,
    out_h: u32,
    out_w: u32,
    out_c: u32,
    k_h: u32,
    k_w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    splits: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_x: array<f32>;

// 0 leaves `bias` unread, as a gradient does: any buffer may be bound there.
override USE_BIAS: u32 = 0u;

// Groups of channels, each with filters of its own; pixels from one weight of a window to the next. Where they are 1, as
// mostly, they cost nothing.
override GROUPS: u32 = 1u;
override DILATION_H: u32 = 1u;
override DILATION_W: u32 = 1u;

fn group_in() -> u32 {
    return params.in_c / GROUPS;
}

fn group_out() -> u32 {
    return params.out_c / GROUPS;
}

@compute @workgroup_size(PRODUCT_INVOCATIONS)
fn backward_input(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    product(workgroup, workgroups, lane);
}

const A_ALONG_K: bool = true;
const B_ALONG_K: bool = true;

// What the pixels of a phase have in common, for the vertical (x) and the horizontal axis (y).
struct Phase {
    // The phase itself.
    at: vec2<u32>,
    // Pixels of it in an image.
    size: vec2<u32>,
    // Its first tap; past the kernel's end if it has none.
    tap: vec2<u32>,
    // Number of its taps.
    taps: vec2<u32>,
    // Pixel of dy under its first pixel and first tap.
    shift: vec2<u32>,
}

fn phase(part: u32) -> Phase {
    let stride = vec2<u32>(params.stride_h, params.stride_w);
    let number = part / GROUPS % (stride.x * stride.y);
    let at = vec2<u32>(number / stride.y, number % stride.y);
    let padded = at + vec2<u32>(params.pad_top, params.pad_left);
    let tap = padded % stride;
    let kernel = vec2<u32>(params.k_h, params.k_w);
    // at < stride and tap < stride, so neither difference is below zero.
    let size = (vec2<u32>(params.in_h, params.in_w) + stride - 1u - at) / stride;
    let taps = (kernel + stride - 1u - tap) / stride;
    return Phase(at, size, tap, taps, padded / stride);
}

// The part of the sum.
fn split(part: u32) -> u32 {
    return part / (GROUPS * params.stride_h * params.stride_w);
}

fn product_sizes(part: u32) -> vec4<u32> {
    let p = phase(part);
    let terms = p.taps.x * p.taps.y * group_out();
    let chunk = (terms + params.splits - 1u) / params.splits;
    let first = min(split(part) * chunk, terms);
    return vec4<u32>(params.rows * p.size.x * p.size.y, group_in(), first, min(first + chunk, terms));
}

// A row is a pixel of the phase: the pixel of dy under its first tap, as an index and as (oy, ox).
// It may lie past the end of dy, and taps may lead below zero, where u32 wraps: neither is loaded.
fn row_of_a(row: u32, part: u32) -> vec4<u32> {
    let p = phase(part);
    let line = row / p.size.y;
    let oy = line % p.size.x + p.shift.x;
    let ox = row % p.size.y + p.shift.y;
    let image = line / p.size.x * params.out_h * params.out_w;
    return vec4<u32>((image + oy * params.out_w + ox) * params.out_c + part % GROUPS * group_out(), oy, ox, 0u);
}

// A tap of the phase and a channel: index back from the first tap, and lines and columns back, and the channel.
fn inner_of_a(k: u32, part: u32) -> vec4<u32> {
    let tap = k / group_out();
    let co = k % group_out();
    let wide = phase(part).taps.y;
    let down = tap / wide * DILATION_H;
    let across = tap % wide * DILATION_W;
    return vec4<u32>(co - (down * params.out_w + across) * params.out_c, down, across, co);
}

fn next_of_a(inner: vec4<u32>, k: u32, step: u32, part: u32) -> vec4<u32> {
    if (inner.w + step < group_out()) { return inner + vec4<u32>(step, 0u, 0u, step); }
    return inner_of_a(k, part);
}

fn load_a(row: vec4<u32>, inner: vec4<u32>) -> f32 {
    let inside = row.y - inner.y < params.out_h && row.z - inner.z < params.out_w;
    return select(0.0, dy[select(0u, row.x + inner.x, inside)], inside);
}

fn column_of_b(column: u32, part: u32) -> u32 {
    return column * params.out_c + part % GROUPS * group_out();
}

// Index of w[kh, kw, 0, co], and co.
fn inner_of_b(k: u32, part: u32) -> vec2<u32> {
    let p = phase(part);
    let tap = k / group_out();
    let co = k % group_out();
    let kh = p.tap.x + tap / p.taps.y * params.stride_h;
    let kw = p.tap.y + tap % p.taps.y * params.stride_w;
    return vec2<u32>((kh * params.k_w + kw) * group_in() * params.out_c + co, co);
}

fn next_of_b(inner: vec2<u32>, k: u32, step: u32, part: u32) -> vec2<u32> {
    if (inner.y + step < group_out()) { return inner + step; }
    return inner_of_b(k, part);
}

fn load_b(inner: vec2<u32>, column: u32) -> f32 {
    return w[inner.x + column];
}

fn store(row: u32, column: u32, part: u32, sum: f32) {
    let p = phase(part);
    let line = row / p.size.y;
    let image = split(part) * params.rows + line / p.size.x;
    let iy = line % p.size.x * params.stride_h + p.at.x;
    let ix = row % p.size.y * params.stride_w + p.at.y;
    let ci = part % GROUPS * group_in() + column;
    var value = sum;
    if (USE_BIAS != 0u) { value += bias[ci]; }
    d_x[((image * params.in_h + iy) * params.in_w + ix) * params.in_c + ci] = activate(value);
}
