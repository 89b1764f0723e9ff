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
// Twin      src/kernels/adamax.rs, fn update.
// Uses      lib/grid.wgsl, lib/update.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    correction_1: f32,
}

@group(0) @binding(4) var<storage, read_write> momentum: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> norm: array<vec4<f32>>;

fn formula(i: u32, old_w: vec4<f32>, w: vec4<f32>, g: vec4<f32>) -> vec4<f32> {
    let old_m = momentum[i];
    let old_norm = norm[i];
    let m = old_m + (g - old_m) * (1.0 - params.beta_1);
    let largest = max(params.beta_2 * old_norm, abs(g));
    momentum[i] = up_to_end(i, m, old_m);
    norm[i] = up_to_end(i, largest, old_norm);
    return w - params.learning_rate * m / (params.correction_1 * (largest + params.epsilon));
}
