// A matrix product as one writes it first: an invocation computes one result, from global memory.

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
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// A workgroup computes 8 by 8 results; workgroups past 65,535 continue on the y axis.
@compute @workgroup_size(64)
fn product(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = workgroup.y * workgroups.x + workgroup.x;
    let blocks_across = params.n / 8u;
    let row = block / blocks_across * 8u + lane / 8u;
    let column = block % blocks_across * 8u + lane % 8u;
    if (row >= params.m) { return; }
    var sum = 0.0;
    for (var k = 0u; k < params.k; k += 1u) {
        sum += a[row * params.a_stride + k] * b[k * params.b_stride + column];
    }
    c[row * params.y_stride + column] = sum;
}
