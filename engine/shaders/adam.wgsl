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
// Twin      src/kernels/adam.rs, fn update.
// Uses      lib/grid.wgsl, lib/update.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    correction_1: f32,
    correction_2: f32,
    l2_decay: f32,
}

@group(0) @binding(4) var<storage, read_write> momentum: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> velocity: array<vec4<f32>>;

fn formula(i: u32, old_w: vec4<f32>, w: vec4<f32>, scaled: vec4<f32>) -> vec4<f32> {
    let g = scaled + params.l2_decay * old_w;
    let old_m = momentum[i];
    let old_v = velocity[i];
    let m = old_m + (g - old_m) * (1.0 - params.beta_1);
    let v = old_v + (g * g - old_v) * (1.0 - params.beta_2);
    let alpha = params.learning_rate * sqrt(params.correction_2) / params.correction_1;
    momentum[i] = up_to_end(i, m, old_m);
    velocity[i] = up_to_end(i, v, old_v);
    return w - alpha * m / (sqrt(v) + params.epsilon);
}
