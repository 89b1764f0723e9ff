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
// Twin      src/kernels/adadelta.rs, fn update.
// Uses      lib/grid.wgsl, lib/update.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
    rho: f32,
    epsilon: f32,
}

@group(0) @binding(4) var<storage, read_write> accumulated_grad: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> accumulated_delta_var: array<vec4<f32>>;

fn formula(i: u32, old_w: vec4<f32>, w: vec4<f32>, g: vec4<f32>) -> vec4<f32> {
    let old_square = accumulated_grad[i];
    let old_change = accumulated_delta_var[i];
    let square = params.rho * old_square + (1.0 - params.rho) * (g * g);
    let delta = g * sqrt(old_change + params.epsilon) / sqrt(square + params.epsilon);
    let change = params.rho * old_change + (1.0 - params.rho) * (delta * delta);
    accumulated_grad[i] = up_to_end(i, square, old_square);
    accumulated_delta_var[i] = up_to_end(i, change, old_change);
    return w - params.learning_rate * delta;
}
