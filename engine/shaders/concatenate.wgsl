// One part of a concatenation along the last axis.
//
//     y[r, offset + c] = x[r, c]        (forward)
//     d_x[r, c] = dy[r, offset + c]      (backward)
//
// Source    ours.
// Shapes    x, d_x [rows, cols]; y, dy [rows, total]. Columns of y outside the part are left as they are.
// Grid      an invocation for each of rows * cols.
// Accuracy  exact.
// Twin      src/kernels/concatenate.rs, fn forward_twin, backward_twin.
// Uses      lib/grid.wgsl

struct Params {
    rows: u32,
    cols: u32,
    total: u32,
    offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> d_x: array<f32>;

fn place(i: u32) -> u32 {
    return (i / params.cols) * params.total + params.offset + i % params.cols;
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i < params.rows * params.cols {
        y[place(i)] = x[i];
    }
}

@compute @workgroup_size(64)
fn backward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i < params.rows * params.cols {
        d_x[i] = dy[place(i)];
    }
}
