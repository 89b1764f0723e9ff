// Nadam: Adam with Nesterov momentum, as Keras 3 defines it.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     momentum  = momentum + (g - momentum) * (1 - beta_1)
//     velocity  = velocity + (g * g - velocity) * (1 - beta_2)
//     mean      = momentum_factor * momentum + gradient_factor * g
//     parameter = w - learning_rate * mean / (sqrt(velocity / correction_2) + epsilon)
//
// Source    Dozat 2016, "Incorporating Nesterov momentum into Adam", with the schedule u_t = beta_1 (1 - 0.96^t / 2);
//           Keras 3, keras/src/optimizers/nadam.py.
// Shapes    gradient, parameter, momentum, velocity [len]; control [4] as clip.wgsl writes it. Nothing if
//           control[1] is 0. With U_t the product of u_1 to u_t, the host gives momentum_factor =
//           u_(t+1) / (1 - U_(t+1)), gradient_factor = (1 - u_t) / (1 - U_t) and correction_2 = 1 - beta_2^t.
// Grid      an invocation for each four elements.
// Accuracy  within 5e-6 of the twin, relative to 1 + |w|.
// Twin      src/kernels/nadam.rs, fn update.
// Uses      lib/grid.wgsl, lib/update.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    momentum_factor: f32,
    gradient_factor: f32,
    correction_2: f32,
}

@group(0) @binding(4) var<storage, read_write> momentum: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> velocity: array<vec4<f32>>;

fn formula(i: u32, old_w: vec4<f32>, w: vec4<f32>, g: vec4<f32>) -> vec4<f32> {
    let old_m = momentum[i];
    let old_v = velocity[i];
    let m = old_m + (g - old_m) * (1.0 - params.beta_1);
    let v = old_v + (g * g - old_v) * (1.0 - params.beta_2);
    let mean = params.momentum_factor * m + params.gradient_factor * g;
    momentum[i] = up_to_end(i, m, old_m);
    velocity[i] = up_to_end(i, v, old_v);
    return w - params.learning_rate * mean / (sqrt(v / params.correction_2) + params.epsilon);
}
