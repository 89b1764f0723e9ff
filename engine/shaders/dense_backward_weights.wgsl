// Gradient of a matrix product with respect to its second factor, in partial sums.
//
//     partials[s, m, n] = sum over r in split s of x[r, m] dy[r, n]
//
// Split s holds the rows [s c, (s + 1) c) of the k there are, c = ceil(k / splits); an empty split gives
// zeros. With one split this is the gradient; reduce.combine adds several up in a fixed order.
//
// Source    ours; tile loops in lib/product_*.wgsl.
// Shapes    x [k, m], dy [k, n], partials [splits, m, n]: offsets and row strides in elements.
// Grid      one workgroup a tile of the gradient, times `splits` along z.
// Accuracy  within 1e-5 of the twin, relative to 1 + |dw|, for k up to 1100: f32 sums in order of r.
// Twin      src/kernels/dense.rs, fn backward_weights_twin.
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
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> partials: array<f32>;

@compute @workgroup_size(PRODUCT_INVOCATIONS)
fn backward_weights(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    product(workgroup, workgroups, lane);
}

const A_ALONG_K: bool = false;
const B_ALONG_K: bool = false;

fn product_sizes(part: u32) -> vec4<u32> {
    let chunk = (params.k + params.splits - 1u) / params.splits;
    let first = min(part * chunk, params.k);
    return vec4<u32>(params.m, params.n, first, min(first + chunk, params.k));
}

fn row_of_a(row: u32, part: u32) -> vec4<u32> {
    return vec4<u32>(row);
}

fn inner_of_a(k: u32, part: u32) -> vec4<u32> {
    return vec4<u32>(params.a_offset + k * params.a_stride);
}

fn next_of_a(inner: vec4<u32>, k: u32, step: u32, part: u32) -> vec4<u32> {
    return inner + step * params.a_stride;
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
    return dy[inner.x + column];
}

fn store(row: u32, column: u32, part: u32, value: f32) {
    partials[params.y_offset + (part * params.m + row) * params.y_stride + column] = value;
}
