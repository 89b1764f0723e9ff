// Activation function of its own (not fused into the product or normalization before it).
//
//     y[i]  = f(x[i])                                                    (forward)
//     d_x[i] = dy[i] * f'(saved[i]), saved = y for codes 0 to 12, x for those above    (backward)
//
// Source    lib/activation.wgsl, which lists the codes of ACTIVATION.
// Shapes    all [len].
// Grid      an invocation for each four elements.
// Accuracy  within 5e-6 of the twin, relative to 1 + |y|: WGSL grants exp and tanh that much.
// Twin      src/kernels/activation.rs, fn forward_twin, backward_twin.
// Uses      lib/grid.wgsl, lib/activation.wgsl

struct Params {
    len: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@group(0) @binding(1) var<storage, read> saved: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> d_x: array<vec4<f32>>;

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
    let value = activate4(x[i]);
    if i < params.len / 4u {
        y[i] = value;
        return;
    }
    for (var at = 4u * i; at < params.len; at++) {
        y[i][at % 4u] = value[at % 4u];
    }
}

fn slope_of(kept: f32) -> f32 {
    if ACTIVATION >= 13u {
        return activation_slope_from_input(kept);
    }
    return activation_slope_from_output(kept);
}

// d_y times the slope. Compilers know slopes of 0 and fold 0 d_y to 0, Mesa 26 behind a condition, too: that would hide a NaN.
fn scaled(d_y: f32, kept: f32) -> f32 {
    return select(d_y * slope_of(kept), d_y, is_nan(d_y));
}

@compute @workgroup_size(64)
fn backward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if 4u * i >= params.len {
        return;
    }
    let s = saved[i];
    let d_y = dy[i];
    let value = vec4<f32>(scaled(d_y.x, s.x), scaled(d_y.y, s.y), scaled(d_y.z, s.z), scaled(d_y.w, s.w));
    if i < params.len / 4u {
        d_x[i] = value;
        return;
    }
    for (var at = 4u * i; at < params.len; at++) {
        d_x[i][at % 4u] = value[at % 4u];
    }
}
