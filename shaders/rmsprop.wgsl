// RMSprop, plain or centered, with momentum, as Keras 3 defines it.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     mean_square     = rho * mean_square + (1 - rho) * g * g
//     mean_gradient   = rho * mean_gradient + (1 - rho) * g                              (CENTERED = 1)
//     increment       = learning_rate * g / sqrt(mean_square - mean_gradient^2 + epsilon)
//     momentum_buffer = momentum * momentum_buffer + increment                           (momentum > 0)
//     parameter       = w - momentum_buffer, or w - increment without momentum
//
// Source    Tieleman, Hinton 2012, lecture 6.5; Keras 3, keras/src/optimizers/rmsprop.py: epsilon under the root.
// Shapes    gradient, parameter, mean_square, momentum_buffer, mean_gradient [len]; control [4] as clip.wgsl
//           writes it. Nothing if control[1] is 0.
// Grid      an invocation for each element.
// Accuracy  within 1e-5 of the twin, relative to 1 + |w|; a centered variance near 0 costs digits.
// Twin      src/kernels/rmsprop.rs, fn update_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    rho: f32,
    momentum: f32,
    epsilon: f32,
    weight_decay: f32,
}

override CENTERED: u32 = 0u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<f32>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<f32>;
@group(0) @binding(4) var<storage, read_write> mean_square: array<f32>;
@group(0) @binding(5) var<storage, read_write> momentum_buffer: array<f32>;
@group(0) @binding(6) var<storage, read_write> mean_gradient: array<f32>;

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
    let square = params.rho * mean_square[i] + (1.0 - params.rho) * (g * g);
    mean_square[i] = square;
    var variance = square;
    if CENTERED == 1u {
        let mean = params.rho * mean_gradient[i] + (1.0 - params.rho) * g;
        mean_gradient[i] = mean;
        // Rounding may put the square of the mean above the mean of the squares.
        variance = max(square - mean * mean, 0.0);
    }
    var change = params.learning_rate * g / sqrt(variance + params.epsilon);
    if params.momentum > 0.0 {
        change += params.momentum * momentum_buffer[i];
        momentum_buffer[i] = change;
    }
    parameter[i] = w - change;
}
