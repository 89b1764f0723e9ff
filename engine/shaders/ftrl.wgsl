// Ftrl, as Keras 3 defines it: "follow the regularized leader", which keeps weights at 0 by L1 regularization.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate);  power(n) = n^-learning_rate_power
//     n         = accumulator + g * g
//     linear    = linear + g + 2 * l2_shrinkage * w - (power(n) - power(accumulator)) / learning_rate * w
//     parameter = (clamp(linear, -l1, l1) - linear) / ((power(n) + beta) / learning_rate + 2 * l2)
//
// Source    McMahan et al. 2013, "Ad click prediction", algorithm 1; Keras 3, keras/src/optimizers/ftrl.py, which divides
//           by 0 in two places: here nothing changes at a learning rate of 0, and a parameter whose divisor is 0 stays.
// Shapes    gradient, parameter, accumulator, linear [len]; control [4] as clip.wgsl writes it. Nothing if control[1] is 0.
// Grid      an invocation for each four elements.
// Accuracy  within 1e-5 of the twin, relative to 1 + |w|.
// Twin      src/kernels/ftrl.rs, fn update.
// Uses      lib/grid.wgsl, lib/update.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
    learning_rate_power: f32,
    l1: f32,
    l2: f32,
    l2_shrinkage: f32,
    beta: f32,
}

@group(0) @binding(4) var<storage, read_write> accumulator: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> linear: array<vec4<f32>>;

fn formula(i: u32, old_w: vec4<f32>, w: vec4<f32>, g: vec4<f32>) -> vec4<f32> {
    if params.learning_rate == 0.0 {
        return old_w;
    }
    let old_n = accumulator[i];
    let old_z = linear[i];
    let n = old_n + g * g;
    let power_n = power(n);
    let z = old_z + g + 2.0 * params.l2_shrinkage * w - (power_n - power(old_n)) / params.learning_rate * w;
    accumulator[i] = up_to_end(i, n, old_n);
    linear[i] = up_to_end(i, z, old_z);
    let divisor = (power_n + params.beta) / params.learning_rate + 2.0 * params.l2;
    let is_zero = divisor == vec4<f32>(0.0);
    let new_w = (clamp(z, vec4<f32>(-params.l1), vec4<f32>(params.l1)) - z) / select(divisor, vec4<f32>(1.0), is_zero);
    return select(new_w, w, is_zero);
}

// n^-learning_rate_power. The root is closer than `pow`, which WGSL leaves open at 0.
fn power(n: vec4<f32>) -> vec4<f32> {
    if params.learning_rate_power == -0.5 {
        return sqrt(n);
    }
    let of_zero = select(0.0, 1.0, params.learning_rate_power == 0.0);
    return select(pow(n, vec4<f32>(-params.learning_rate_power)), vec4<f32>(of_zero), n == vec4<f32>(0.0));
}
