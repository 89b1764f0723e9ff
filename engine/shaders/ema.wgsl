// Exponential moving average of parameters, and parameters that take it over.
//
//     average   = momentum * average + (1 - momentum) * parameter
//     parameter = average if overwrites is 1, otherwise as it was
//
// Source    Keras 3, keras/src/optimizers/base_optimizer.py, _update_model_variables_moving_average and
//           _overwrite_model_variables_with_average_value.
// Shapes    average, parameter [len]; control [4] as clip.wgsl writes it. Nothing if control[1] is 0.
// Grid      an invocation for each four elements.
// Accuracy  three roundings: within 1e-6 of the twin, relative to 1 + |parameter|.
// Twin      src/kernels/ema.rs, fn update_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    momentum: f32,
    overwrites: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> control: array<f32>;
@group(0) @binding(2) var<storage, read_write> average: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;

@compute @workgroup_size(64)
fn update(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    // Read before the branch, where all invocations are known to read the same: CPUs then load it once.
    let applies = control[1];
    if 4u * i >= params.len || applies == 0.0 {
        return;
    }
    let behind = behind_end(i, params.len);
    let old_average = average[i];
    let w = parameter[i];
    let new_average = params.momentum * old_average + (1.0 - params.momentum) * w;
    average[i] = select(new_average, old_average, behind);
    if params.overwrites == 1.0 {
        parameter[i] = select(new_average, w, behind);
    }
}
