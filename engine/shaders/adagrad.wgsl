// Adagrad, as Keras 3 defines it: steps divided by the root of the sum of all squared gradients.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     accumulator = accumulator + g * g
//     parameter   = w - learning_rate * g / sqrt(accumulator + epsilon)
//
// Source    Duchi, Hazan, Singer 2011, JMLR 12; Keras 3, keras/src/optimizers/adagrad.py: epsilon under the root.
// Shapes    gradient, parameter, accumulator [len]; control [4] as clip.wgsl writes it. Nothing if control[1] is 0.
// Grid      an invocation for each four elements.
// Accuracy  within 5e-6 of the twin, relative to 1 + |w|.
// Twin      src/kernels/adagrad.rs, fn update.
// Uses      lib/grid.wgsl, lib/update.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
    epsilon: f32,
}

@group(0) @binding(4) var<storage, read_write> accumulator: array<vec4<f32>>;

fn formula(i: u32, old_w: vec4<f32>, w: vec4<f32>, g: vec4<f32>) -> vec4<f32> {
    let old_sum = accumulator[i];
    let sum = old_sum + g * g;
    accumulator[i] = up_to_end(i, sum, old_sum);
    return w - params.learning_rate * g / sqrt(sum + params.epsilon);
}
