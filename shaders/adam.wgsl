// Adam with decoupled weight decay (AdamW), as Keras 3 defines it.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     momentum  = momentum + (g - momentum) * (1 - beta_1)
//     velocity  = velocity + (g * g - velocity) * (1 - beta_2)
//     alpha     = learning_rate * sqrt(correction_2) / correction_1
//     parameter = w - alpha * momentum / (sqrt(velocity) + epsilon)
//
// Source    Kingma, Ba 2014, arXiv:1412.6980, with epsilon where Keras 3 has it (keras/src/optimizers/adam.py);
//           Loshchilov, Hutter 2017, arXiv:1711.05101, for the decay.
// Shapes    gradient, parameter, momentum, velocity [len]; control [4] as clip.wgsl writes it. Nothing if
//           control[1] is 0. correction_1 = 1 - beta_1^t and correction_2 = 1 - beta_2^t come from the host.
// Grid      an invocation for each element.
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
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<f32>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<f32>;
@group(0) @binding(4) var<storage, read_write> momentum: array<f32>;
@group(0) @binding(5) var<storage, read_write> velocity: array<f32>;

@compute @workgroup_size(64)
fn update(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.len || control[1] == 0.0 {
        return;
    }
    let g = gradient[i] * control[0];
    let w = parameter[i] - parameter[i] * (params.weight_decay * params.learning_rate);
    let m = momentum[i] + (g - momentum[i]) * (1.0 - params.beta_1);
    let v = velocity[i] + (g * g - velocity[i]) * (1.0 - params.beta_2);
    let alpha = params.learning_rate * sqrt(params.correction_2) / params.correction_1;
    momentum[i] = m;
    velocity[i] = v;
    parameter[i] = w - alpha * m / (sqrt(v) + params.epsilon);
}
