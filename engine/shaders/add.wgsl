// Element-wise sum, sum in place, and copy.
//
//     y[i] = a[i] + b[i]        (forward)
//     y[i] = y[i] + x[i]        (accumulate: a value used twice gathers its gradients)
//     y[i] = x[i]               (copy)
//
// Source    ours.
// Shapes    all [len].
// Grid      an invocation for each four elements.
// Accuracy  one rounding: within 1e-6 of the twin, relative.
// Twin      src/kernels/add.rs, fn forward_twin, accumulate_twin, copy.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> sum: array<vec4<f32>>;

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if 4u * i >= params.len {
        return;
    }
    let value = a[i] + b[i];
    if i < params.len / 4u {
        sum[i] = value;
        return;
    }
    for (var at = 4u * i; at < params.len; at++) {
        sum[i][at % 4u] = value[at % 4u];
    }
}

@compute @workgroup_size(64)
fn accumulate(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if 4u * i >= params.len {
        return;
    }
    let value = y[i] + x[i];
    if i < params.len / 4u {
        y[i] = value;
        return;
    }
    for (var at = 4u * i; at < params.len; at++) {
        y[i][at % 4u] = value[at % 4u];
    }
}

@compute @workgroup_size(64)
fn copy(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if 4u * i >= params.len {
        return;
    }
    let value = x[i];
    if i < params.len / 4u {
        y[i] = value;
        return;
    }
    for (var at = 4u * i; at < params.len; at++) {
        y[i][at % 4u] = value[at % 4u];
    }
}
