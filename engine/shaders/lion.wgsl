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
// Twin      src/kernels/lion.rs, fn update.
// Uses      lib/grid.wgsl, lib/update.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
    beta_1: f32,
    beta_2: f32,
}

@group(0) @binding(4) var<storage, read_write> momentum: array<vec4<f32>>;

fn formula(i: u32, old_w: vec4<f32>, w: vec4<f32>, g: vec4<f32>) -> vec4<f32> {
    let old_m = momentum[i];
    let direction = sign(params.beta_1 * old_m + (1.0 - params.beta_1) * g);
    momentum[i] = up_to_end(i, params.beta_2 * old_m + (1.0 - params.beta_2) * g, old_m);
    return w - params.learning_rate * direction;
}
