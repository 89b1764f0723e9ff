// Sum of the parts of a product whose sums are split, with bias and activation.
//
//     y[r, c] = act(sum over s of parts[s, r, c] + bias[c])
//
// Source    ours.
// Shapes    parts [splits, rows, cols] without gaps, bias [cols], y [rows, cols]: first element and row stride in elements.
// Grid      an invocation for each of rows cols.
// Accuracy  within 1e-5 of the twin, relative to 1 + |y|, for 64 normal numbers.
// Twin      src/kernels/split_sum.rs, fn twin.
// Uses      lib/activation.wgsl, lib/grid.wgsl

struct Params {
    len: u32,
    cols: u32,
    splits: u32,
    y_offset: u32,
    y_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

// 0 leaves `bias` unread: any buffer may be bound there.
override USE_BIAS: u32 = 1u;

@compute @workgroup_size(64)
fn finish(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let len = params.len;
    if i >= len {
        return;
    }
    var at = i;
    var sum = 0.0;
    for (var block = params.splits / 4u; block > 0u; block -= 1u) {
        sum += (parts[at] + parts[at + len]) + (parts[at + 2u * len] + parts[at + 3u * len]);
        at += 4u * len;
    }
    for (var rest = params.splits % 4u; rest > 0u; rest -= 1u) {
        sum += parts[at];
        at += len;
    }
    let column = i % params.cols;
    if (USE_BIAS != 0u) { sum += bias[column]; }
    y[params.y_offset + i / params.cols * params.y_stride + column] = activate(sum);
}
