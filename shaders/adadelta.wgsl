// Adadelta, as Keras 3 defines it: steps in the unit of the parameters.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     accumulated_grad      = rho * accumulated_grad + (1 - rho) * g * g
//     delta                 = g * sqrt(accumulated_delta_var + epsilon) / sqrt(accumulated_grad + epsilon)
//     accumulated_delta_var = rho * accumulated_delta_var + (1 - rho) * delta * delta
//     parameter             = w - learning_rate * delta
//
// Source    Zeiler 2012, arXiv:1212.5701, algorithm 1; Keras 3, keras/src/optimizers/adadelta.py.
// Shapes    gradient, parameter, accumulated_grad, accumulated_delta_var [len]; control [4] as clip.wgsl writes it.
//           Nothing if control[1] is 0.
// Grid      an invocation for each four elements.
// Accuracy  within 5e-6 of the twin, relative to 1 + |w|.
// Twin      src/kernels/adadelta.rs, fn update_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    rho: f32,
    epsilon: f32,
    weight_decay: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> accumulated_grad: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> accumulated_delta_var: array<vec4<f32>>;

@compute @workgroup_size(64)
fn update(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    // Read before the branch, where all invocations are known to read the same: CPUs then load it once.
    let scale = control[0];
    let applies = control[1];
    if 4u * i >= params.len || applies == 0.0 {
        return;
    }
    let behind = behind_end(i, params.len);
    let g = gradient[i] * scale;
    let old_w = parameter[i];
    let w = old_w - old_w * (params.weight_decay * params.learning_rate);
    let old_square = accumulated_grad[i];
    let old_change = accumulated_delta_var[i];
    let square = params.rho * old_square + (1.0 - params.rho) * (g * g);
    let delta = g * sqrt(old_change + params.epsilon) / sqrt(square + params.epsilon);
    let change = params.rho * old_change + (1.0 - params.rho) * (delta * delta);
    accumulated_grad[i] = select(square, old_square, behind);
    accumulated_delta_var[i] = select(change, old_change, behind);
    parameter[i] = select(w - params.learning_rate * delta, old_w, behind);
}
