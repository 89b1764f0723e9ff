// Gradient of a two-dimensional convolution with respect to its input, as implicit matrix products.
//
//     d_x[r, iy, ix, ci] = sum over kh, kw, co of dy[r, oy, ox, co] w[kh, kw, ci, co]
//     oy = (iy + pad_top - kh) / stride_h, ox = (ix + pad_left - kw) / stride_w, where these are whole
//
// With strides, the pixels of one phase (py, px) = (iy % stride_h, ix % stride_w) meet the same taps
// kh = kh0 + stride_h j only. Each phase is a product of its own: nothing is multiplied by a zero between
// the strides, and each result is gathered by one invocation, so the order of the sum is fixed.
//
// Source    ours; tile loops in lib/product_*.wgsl.
// Shapes    dy [rows, out_h, out_w, out_c], w [k_h, k_w, in_c, out_c], d_x [rows, in_h, in_w, in_c].
// Grid      one workgroup a tile of [rows ceil(in_h / stride_h) ceil(in_w / stride_w), in_c], times
//           stride_h stride_w along z.
// Accuracy  within 1e-5 of the twin, relative to 1 + |d_x|, for sums of up to 1100: in order of kh, kw, co.
// Twin      src/kernels/conv2d.rs, fn backward_input_twin.
// Uses      lib/product_*.wgsl, lib/grid.wgsl

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
@group(0) @binding(1) var<storage, read> dy: array<Factor>;
@group(0) @binding(2) var<storage, read> w: array<Factor>;
@group(0) @binding(3) var<storage, read_write> d_x: array<f32>;

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
    let at = vec2<u32>(part / stride.y, part % stride.y);
    let padded = at + vec2<u32>(params.pad_top, params.pad_left);
    let tap = padded % stride;
    let kernel = vec2<u32>(params.k_h, params.k_w);
    // at < stride and tap < stride, so neither difference is below zero.
    let size = (vec2<u32>(params.in_h, params.in_w) + stride - 1u - at) / stride;
    let taps = (kernel + stride - 1u - tap) / stride;
    return Phase(at, size, tap, taps, padded / stride);
}

fn product_sizes(part: u32) -> vec4<u32> {
    let p = phase(part);
    return vec4<u32>(params.rows * p.size.x * p.size.y, params.in_c, 0u, p.taps.x * p.taps.y * params.out_c);
}

// A row is a pixel of the phase: the pixel of dy under its first tap, as an index and as (oy, ox).
// It may lie past the end of dy, and taps may lead below zero, where u32 wraps: neither is loaded.
fn row_of_a(row: u32, part: u32) -> vec4<u32> {
    let p = phase(part);
    let line = row / p.size.y;
    let oy = line % p.size.x + p.shift.x;
    let ox = row % p.size.y + p.shift.y;
    let image = line / p.size.x * params.out_h * params.out_w;
    return vec4<u32>((image + oy * params.out_w + ox) * params.out_c, oy, ox, 0u);
}

// A tap (j, i) of the phase and a channel: index back from the first tap, and (j, i, co).
fn inner_of_a(k: u32, part: u32) -> vec4<u32> {
    let tap = k / params.out_c;
    let co = k % params.out_c;
    let across = phase(part).taps.y;
    let j = tap / across;
    let i = tap % across;
    return vec4<u32>(co - (j * params.out_w + i) * params.out_c, j, i, co);
}

fn next_of_a(inner: vec4<u32>, k: u32, step: u32, part: u32) -> vec4<u32> {
    if (inner.w + step < params.out_c) { return inner + vec4<u32>(step, 0u, 0u, step); }
    return inner_of_a(k, part);
}

fn load_a(row: vec4<u32>, inner: vec4<u32>) -> Factor {
    let inside = row.y - inner.y < params.out_h && row.z - inner.z < params.out_w;
    return select(Factor(), dy[select(0u, row.x + inner.x, inside) / FACTOR_WIDTH], inside);
}

fn column_of_b(column: u32, part: u32) -> u32 {
    return column * params.out_c;
}

// Index of w[kh, kw, 0, co], and co.
fn inner_of_b(k: u32, part: u32) -> vec2<u32> {
    let p = phase(part);
    let tap = k / params.out_c;
    let co = k % params.out_c;
    let kh = p.tap.x + tap / p.taps.y * params.stride_h;
    let kw = p.tap.y + tap % p.taps.y * params.stride_w;
    return vec2<u32>((kh * params.k_w + kw) * params.in_c * params.out_c + co, co);
}

fn next_of_b(inner: vec2<u32>, k: u32, step: u32, part: u32) -> vec2<u32> {
    if (inner.y + step < params.out_c) { return inner + step; }
    return inner_of_b(k, part);
}

fn load_b(inner: vec2<u32>, column: u32) -> Factor {
    return w[(inner.x + column) / FACTOR_WIDTH];
}

fn store(row: u32, column: u32, part: u32, value: f32) {
    let p = phase(part);
    let line = row / p.size.y;
    let image = line / p.size.x;
    let iy = line % p.size.x * params.stride_h + p.at.x;
    let ix = row % p.size.y * params.stride_w + p.at.y;
    d_x[((image * params.in_h + iy) * params.in_w + ix) * params.in_c + column] = value;
}
