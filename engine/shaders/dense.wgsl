// Matrix product with bias and activation: a densely connected layer.
//
//     y[m, n] = act(sum over k of x[m, k] w[k, n] + bias[n])
//
// With several splits, y is [splits, m, n]: split s has the sums over k in [s c, (s + 1) c), c = ceil(k / splits), and
// split_sum.finish adds them, the bias and the activation, which are left out here.
//
// Source    ours; tile loops in lib/product_*.wgsl.
// Shapes    x [m, k], w [k, n], y [splits, m, n], row-major: offsets and row strides in elements; bias [n].
// Grid      one workgroup a tile of [m, n], times `splits` along z.
// Accuracy  within 1e-5 of the twin, relative to 1 + |y|, for k up to 1100: f32 sums in order of k.
// Twin      src/kernels/dense.rs, fn forward_twin.
// Uses      lib/product_*.wgsl, lib/activation.wgsl, lib/grid.wgsl

struct Params {
    m: u32,
    n: u32,
    k: u32,
    a_offset: u32,
    a_stride: u32,
    b_offset: u32,
    b_stride: u32,
    y_offset: u32,
    y_stride: u32,
    splits: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

// 0 leaves `bias` unread: any buffer may be bound there.
override USE_BIAS: u32 = 1u;

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
    let chunk = (params.k + params.splits - 1u) / params.splits;
    let first = min(part * chunk, params.k);
    return vec4<u32>(params.m, params.n, first, min(first + chunk, params.k));
}

fn row_of_a(row: u32, part: u32) -> vec4<u32> {
    return vec4<u32>(params.a_offset + row * params.a_stride);
}

fn inner_of_a(k: u32, part: u32) -> vec4<u32> {
    return vec4<u32>(k);
}

fn next_of_a(inner: vec4<u32>, k: u32, step: u32, part: u32) -> vec4<u32> {
    return inner + step;
}

fn load_a(row: vec4<u32>, inner: vec4<u32>) -> f32 {
    return x[row.x + inner.x];
}

fn column_of_b(column: u32, part: u32) -> u32 {
    return column;
}

fn inner_of_b(k: u32, part: u32) -> vec2<u32> {
    return vec2<u32>(params.b_offset + k * params.b_stride);
}

fn next_of_b(inner: vec2<u32>, k: u32, step: u32, part: u32) -> vec2<u32> {
    return inner + step * params.b_stride;
}

fn load_b(inner: vec2<u32>, column: u32) -> f32 {
    return w[inner.x + column];
}

fn store(row: u32, column: u32, part: u32, sum: f32) {
    var value = sum;
    if (USE_BIAS != 0u) { value += bias[column]; }
    y[params.y_offset + (part * params.m + row) * params.y_stride + column] = activate(value);
}
