// Gradient of a matrix product with respect to its first factor.
//
//     d_x[m, n] = sum over k of dy[m, k] w[n, k]
//
// With several splits, d_x is [splits, m, n]: split s has the sums over k in [s c, (s + 1) c), c = ceil(k / splits), and
// split_sum.finish adds them.
//
// Source    ours; tile loops in lib/product_*.wgsl.
// Shapes    dy [m, k], w [n, k] as the layer stores it, d_x [splits, m, n]: offsets and row strides in elements.
// Grid      one workgroup a tile of [m, n], times `splits` along z.
// Accuracy  within 1e-5 of the twin, relative to 1 + |d_x|, for k up to 1100: f32 sums in order of k.
// Twin      src/kernels/dense.rs, fn backward_input_twin.
// Uses      lib/product_*.wgsl, lib/grid.wgsl

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
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
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
    return dy[row.x + inner.x];
}

fn column_of_b(column: u32, part: u32) -> u32 {
    return params.b_offset + column * params.b_stride;
}

fn inner_of_b(k: u32, part: u32) -> vec2<u32> {
    return vec2<u32>(k);
}

fn next_of_b(inner: vec2<u32>, k: u32, step: u32, part: u32) -> vec2<u32> {
    return inner + step;
}

fn load_b(inner: vec2<u32>, column: u32) -> f32 {
    return w[inner.x + column];
}

fn store(row: u32, column: u32, part: u32, value: f32) {
    d_x[params.y_offset + (part * params.m + row) * params.y_stride + column] = value;
}
