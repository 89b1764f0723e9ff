// Softmax over the last axis, as a layer of its own.
//
//     y[r, c]  = exp(x[r, c] - max of x[r]) / sum over c of the same        (forward)
//     d_x[r, c] = y[r, c] * (dy[r, c] - sum over k of y[r, k] * dy[r, k])    (backward)
//
// Source    Keras 3 Softmax; Goodfellow, Bengio, Courville 2016, section 4.1, for the shift.
// Shapes    all [rows, cols].
// Grid      LANES invocations for each row, 64 / LANES rows to a workgroup.
// Accuracy  within 5e-6 of the twin, relative to 1 + |y|, up to 4096 columns.
// Twin      src/kernels/softmax.rs, fn forward_twin, backward_twin.
// Uses      lib/grid.wgsl, lib/reduce.wgsl

struct Params {
    rows: u32,
    cols: u32,
}

override LANES: u32 = 16u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@group(0) @binding(1) var<storage, read> saved: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> d_x: array<f32>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let start = i % LANES;
    // No early return: every lane meets the barriers. A row past the end has no columns.
    let cols = select(0u, params.cols, i / LANES < params.rows);
    let base = (i / LANES) * params.cols;

    var largest = -3.4e38;
    for (var col = start; col < cols; col += LANES) {
        largest = max(largest, x[base + col]);
    }
    largest = lanes_max(largest, lane, LANES);
    var sum = 0.0;
    for (var col = start; col < cols; col += LANES) {
        sum += exp(x[base + col] - largest);
    }
    sum = lanes_sum(sum, lane, LANES);
    for (var col = start; col < cols; col += LANES) {
        y[base + col] = exp(x[base + col] - largest) / sum;
    }
}

@compute @workgroup_size(64)
fn backward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let start = i % LANES;
    let cols = select(0u, params.cols, i / LANES < params.rows);
    let base = (i / LANES) * params.cols;

    var sum = 0.0;
    for (var col = start; col < cols; col += LANES) {
        sum += saved[base + col] * dy[base + col];
    }
    sum = lanes_sum(sum, lane, LANES);
    for (var col = start; col < cols; col += LANES) {
        d_x[base + col] = saved[base + col] * (dy[base + col] - sum);
    }
}
