// Stochastic gradient descent with momentum, as Keras 3 defines it.
//
//     g = gradient * control[0] + l2_decay * parameter
//     w = parameter * (1 - weight_decay * learning_rate)
//     velocity  = momentum * velocity - learning_rate * g
//     parameter = w + velocity                                         (NESTEROV = 0)
//     parameter = w + momentum * velocity - learning_rate * g          (NESTEROV = 1)
//
// Source    Keras 3, keras/src/optimizers/sgd.py and base_optimizer.py (_apply_weight_decay); l2_decay:
//           PyTorch 2, torch.optim.SGD, weight_decay.
// Shapes    gradient, parameter, velocity [len]; control [4] as clip.wgsl writes it. Nothing if control[1] is 0.
// Grid      an invocation for each four elements.
// Accuracy  a few roundings: within 2e-6 of the twin, relative to 1 + |w|.
// Twin      src/kernels/sgd.rs, fn update.
// Uses      lib/grid.wgsl, lib/update.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
    momentum: f32,
    l2_decay: f32,
}

override NESTEROV: u32 = 0u;

@group(0) @binding(4) var<storage, read_write> velocity: array<vec4<f32>>;

fn formula(i: u32, old_w: vec4<f32>, w: vec4<f32>, g: vec4<f32>) -> vec4<f32> {
    let old_v = velocity[i];
    let change = params.learning_rate * (g + params.l2_decay * old_w);
    let v = params.momentum * old_v - change;
    velocity[i] = up_to_end(i, v, old_v);
    return w + select(v, params.momentum * v - change, NESTEROV == 1u);
}
