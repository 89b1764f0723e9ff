// Two-dimensional convolution (cross-correlation) with bias and activation, as an implicit matrix product.
//
//     y[r, oy, ox, co] = act(sum over kh, kw, ci of x[r, iy, ix, first(co) + ci] w[kh, kw, ci, co] + bias[co])
//     iy = oy stride_h + kh DILATION_H - pad_top, ix = ox stride_w + kw DILATION_W - pad_left; x is 0 outside the image
//     first(co) is the first of the in_c / GROUPS channels that the group of filter co sees
//
// With several splits, y is [splits, rows, out_h, out_w, out_c]: split s has the sums over places in the patch [s c, (s + 1) c),
// c = ceil(patch / splits), and split_sum.finish adds them, the bias and the activation, which are left out here.
//
// Source    ours; tile loops in lib/product_*.wgsl. No patches are written to memory.
// Shapes    x [rows, in_h, in_w, in_c], w [k_h, k_w, in_c / GROUPS, out_c], y [rows, out_h, out_w, out_c],
//           bias [out_c]; y times `splits`.
// Grid      one workgroup a tile of [rows out_h out_w, out_c / GROUPS], times GROUPS `splits` along z.
// Accuracy  within 1e-5 of the twin, relative to 1 + |y|, for sums of up to 1100: in order of kh, kw, ci.
// Twin      src/kernels/conv2d.rs, fn forward_twin.
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
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

// 0 leaves `bias` unread: any buffer may be bound there.
override USE_BIAS: u32 = 1u;

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
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    product(workgroup, workgroups, lane);
}

const A_ALONG_K: bool = true;
const B_ALONG_K: bool = false;

fn product_sizes(part: u32) -> vec4<u32> {
    let terms = params.k_h * params.k_w * group_in();
    let chunk = (terms + params.splits - 1u) / params.splits;
    let first = min(part / GROUPS * chunk, terms);
    return vec4<u32>(params.rows * params.out_h * params.out_w, group_out(), first, min(first + chunk, terms));
}

// A row is a pixel of y: where its patch begins in x, as an index and as (iy, ix). In the padding these
// are below zero, so they wrap; sums with the place in the patch wrap back, or stay past the image's end.
fn row_of_a(row: u32, part: u32) -> vec4<u32> {
    let line = row / params.out_w;
    let iy = line % params.out_h * params.stride_h - params.pad_top;
    let ix = row % params.out_w * params.stride_w - params.pad_left;
    let image = line / params.out_h * params.in_h * params.in_w;
    return vec4<u32>((image + iy * params.in_w + ix) * params.in_c + part % GROUPS * group_in(), iy, ix, 0u);
}

// A place in the patch: as an index from the patch's begin, and as lines, columns and channels from there.
fn inner_of_a(k: u32, part: u32) -> vec4<u32> {
    let tap = k / group_in();
    let ci = k % group_in();
    let down = tap / params.k_w * DILATION_H;
    let across = tap % params.k_w * DILATION_W;
    return vec4<u32>((down * params.in_w + across) * params.in_c + ci, down, across, ci);
}

fn next_of_a(inner: vec4<u32>, k: u32, step: u32, part: u32) -> vec4<u32> {
    if (inner.w + step < group_in()) { return inner + vec4<u32>(step, 0u, 0u, step); }
    return inner_of_a(k, part);
}

fn load_a(row: vec4<u32>, inner: vec4<u32>) -> f32 {
    let inside = row.y + inner.y < params.in_h && row.z + inner.z < params.in_w;
    return select(0.0, x[select(0u, row.x + inner.x, inside)], inside);
}

fn column_of_b(column: u32, part: u32) -> u32 {
    return part % GROUPS * group_out() + column;
}

fn inner_of_b(k: u32, part: u32) -> vec2<u32> {
    return vec2<u32>(k * params.out_c);
}

fn next_of_b(inner: vec2<u32>, k: u32, step: u32, part: u32) -> vec2<u32> {
    return inner + step * params.out_c;
}

fn load_b(inner: vec2<u32>, column: u32) -> f32 {
    return w[inner.x + column];
}

fn store(row: u32, column: u32, part: u32, sum: f32) {
    let co = part % GROUPS * group_out() + column;
    let pixel = part / GROUPS * params.rows * params.out_h * params.out_w + row;
    var value = sum;
    if (USE_BIAS != 0u) { value += bias[co]; }
    y[pixel * params.out_c + co] = activate(value);
}
