// Adamax, as Keras 3 defines it: Adam by the largest of the decaying sizes of gradients.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     momentum  = momentum + (g - momentum) * (1 - beta_1)
//     norm      = max(beta_2 * norm, |g|)
//     parameter = w - learning_rate * momentum / (correction_1 * (norm + epsilon))
//
// Source    Kingma, Ba 2014, arXiv:1412.6980, section 7.1; Keras 3, keras/src/optimizers/adamax.py.
// Shapes    gradient, parameter, momentum, norm [len]; control [4] as clip.wgsl writes it. Nothing if control[1] is
//           0. correction_1 = 1 - beta_1^t comes from the host.
// Grid      an invocation for each four elements.
// Accuracy  within 5e-6 of the twin, relative to 1 + |w|.
// Twin      src/kernels/adamax.rs, fn update_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    correction_1: f32,
    weight_decay: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> momentum: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> norm: array<vec4<f32>>;

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
    let old_norm = norm[i];
    let m = old_m + (g - old_m) * (1.0 - params.beta_1);
    let largest = max(params.beta_2 * old_norm, abs(g));
    momentum[i] = select(m, old_m, behind);
    norm[i] = select(largest, old_norm, behind);
    let change = params.learning_rate * m / (params.correction_1 * (largest + params.epsilon));
    parameter[i] = select(w - change, old_w, behind);
}
