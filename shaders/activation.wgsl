// Activation function of its own (not fused into the product or normalization before it).
//
//     y[i]  = f(x[i])                                                    (forward)
//     d_x[i] = dy[i] * f'(saved[i]), saved = y for codes 0 to 4, x for 5 and 6     (backward)
//
// Source    lib/activation.wgsl, which lists the codes of ACTIVATION.
// Shapes    all [len].
// Grid      an invocation for each element.
// Accuracy  within 5e-6 of the twin, relative to 1 + |y|: WGSL grants exp and tanh that much.
// Twin      src/kernels/activation.rs, fn forward_twin, backward_twin.
// Uses      lib/grid.wgsl, lib/activation.wgsl

struct Params {
    len: u32,
}

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
    if i < params.len {
        y[i] = activate(x[i]);
    }
}

@compute @workgroup_size(64)
fn backward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.len {
        return;
    }
    if ACTIVATION >= 5u {
        d_x[i] = dy[i] * activation_slope_from_input(saved[i]);
    } else {
        d_x[i] = dy[i] * activation_slope_from_output(saved[i]);
    }
}
