// Lion, as Keras 3 defines it: steps of one length, in the direction of a mean of gradients.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     parameter = w - learning_rate * sign(beta_1 * momentum + (1 - beta_1) * g)
//     momentum  = beta_2 * momentum + (1 - beta_2) * g
//
// Source    Chen et al. 2023, arXiv:2302.06675, algorithm 2; Keras 3, keras/src/optimizers/lion.py.
// Shapes    gradient, parameter, momentum [len]; control [4] as clip.wgsl writes it. Nothing if control[1] is 0.
// Grid      an invocation for each four elements.
// Accuracy  within 2e-6 of the twin, relative to 1 + |w|, where the direction is not 0 but for rounding.
// Twin      src/kernels/lion.rs, fn update_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    beta_1: f32,
    beta_2: f32,
    weight_decay: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> momentum: array<vec4<f32>>;

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
    let old_m = momentum[i];
    let direction = sign(params.beta_1 * old_m + (1.0 - params.beta_1) * g);
    momentum[i] = select(params.beta_2 * old_m + (1.0 - params.beta_2) * g, old_m, behind);
    parameter[i] = select(w - params.learning_rate * direction, old_w, behind);
}
