// Adam with decoupled weight decay (AdamW), as Keras 3 defines it.
//
//     g = gradient * control[0] + l2_decay * parameter
//     w = parameter * (1 - weight_decay * learning_rate)
//     momentum  = momentum + (g - momentum) * (1 - beta_1)
//     velocity  = velocity + (g * g - velocity) * (1 - beta_2)
//     alpha     = learning_rate * sqrt(correction_2) / correction_1
//     parameter = w - alpha * momentum / (sqrt(velocity) + epsilon)
//
// Source    Kingma, Ba 2014, arXiv:1412.6980, with epsilon where Keras 3 has it (keras/src/optimizers/adam.py);
//           Loshchilov, Hutter 2017, arXiv:1711.05101, for the decay; PyTorch 2, torch.optim.Adam, for l2_decay.
// Shapes    gradient, parameter, momentum, velocity [len]; control [4] as clip.wgsl writes it. Nothing if
//           control[1] is 0. correction_1 = 1 - beta_1^t and correction_2 = 1 - beta_2^t come from the host.
// Grid      an invocation for each four elements.
// Accuracy  within 5e-6 of the twin, relative to 1 + |w|.
// Twin      src/kernels/adam.rs, fn update_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    correction_1: f32,
    correction_2: f32,
    weight_decay: f32,
    l2_decay: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> momentum: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> velocity: array<vec4<f32>>;

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
    let old_w = parameter[i];
    let g = gradient[i] * scale + params.l2_decay * old_w;
    let old_m = momentum[i];
    let old_v = velocity[i];
    let w = old_w - old_w * (params.weight_decay * params.learning_rate);
    let m = old_m + (g - old_m) * (1.0 - params.beta_1);
    let v = old_v + (g * g - old_v) * (1.0 - params.beta_2);
    let alpha = params.learning_rate * sqrt(params.correction_2) / params.correction_1;
    momentum[i] = select(m, old_m, behind);
    velocity[i] = select(v, old_v, behind);
    parameter[i] = select(w - alpha * m / (sqrt(v) + params.epsilon), old_w, behind);
}
