// RMSprop, plain or centered, with momentum, as Keras 3 defines it.
//
//     g = gradient * control[0] + l2_decay * parameter
//     w = parameter * (1 - weight_decay * learning_rate)
//     mean_square     = rho * mean_square + (1 - rho) * g * g
//     mean_gradient   = rho * mean_gradient + (1 - rho) * g                              (CENTERED = 1)
//     increment       = learning_rate * g / (sqrt(mean_square - mean_gradient^2 + epsilon) + outer_epsilon)
//     momentum_buffer = momentum * momentum_buffer + increment                           (momentum > 0)
//     parameter       = w - momentum_buffer, or w - increment without momentum
//
// Source    Tieleman, Hinton 2012, lecture 6.5; Keras 3, keras/src/optimizers/rmsprop.py: epsilon under the root. PyTorch 2,
//           torch.optim.RMSprop: outer_epsilon, and l2_decay, its weight_decay.
// Shapes    gradient, parameter, mean_square, momentum_buffer, mean_gradient [len]; control [4] as clip.wgsl
//           writes it. Nothing if control[1] is 0.
// Grid      an invocation for each four elements.
// Accuracy  within 1e-5 of the twin, relative to 1 + |w|; a centered variance near 0 costs digits.
// Twin      src/kernels/rmsprop.rs, fn update.
// Uses      lib/grid.wgsl, lib/update.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
    rho: f32,
    momentum: f32,
    epsilon: f32,
    outer_epsilon: f32,
    l2_decay: f32,
}

override CENTERED: u32 = 0u;

@group(0) @binding(4) var<storage, read_write> mean_square: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> momentum_buffer: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> mean_gradient: array<vec4<f32>>;

fn formula(i: u32, old_w: vec4<f32>, w: vec4<f32>, scaled: vec4<f32>) -> vec4<f32> {
    let g = scaled + params.l2_decay * old_w;
    let old_square = mean_square[i];
    let square = params.rho * old_square + (1.0 - params.rho) * (g * g);
    mean_square[i] = up_to_end(i, square, old_square);
    var variance = square;
    if CENTERED == 1u {
        let old_mean = mean_gradient[i];
        let mean = params.rho * old_mean + (1.0 - params.rho) * g;
        mean_gradient[i] = up_to_end(i, mean, old_mean);
        // Rounding may put the square of the mean above the mean of the squares.
        variance = max(square - mean * mean, vec4<f32>(0.0));
    }
    var change = params.learning_rate * g / (sqrt(variance + params.epsilon) + params.outer_epsilon);
    if params.momentum > 0.0 {
        let old_change = momentum_buffer[i];
        change += params.momentum * old_change;
        momentum_buffer[i] = up_to_end(i, change, old_change);
    }
    return w - change;
}
