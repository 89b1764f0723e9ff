// Gaussian noise, added or multiplied. The entry point of multiplied noise on dy is also its backward pass.
//
//     y[i] = x[i] * (1 + relative * n) + absolute * n
//     n    = sqrt(2) erfinv(v), v = 2 u - 1 + 2^-24
//     u    = the number of (seed, step, node, first_row + i / row_len, i % row_len), uniform in [0, 1)
//
// Source    Keras 3 GaussianNoise, GaussianDropout. erfinv: Giles 2010, Approximating the erfinv function, GPU Computing
//           Gems 2: two polynomials in w = -ln(1 - v^2).
// Shapes    x, y [len], rows of row_len elements; first_row is the first row's index in the whole batch.
// Grid      an invocation for each element.
// Accuracy  u is the twin's, bit for bit; y within 5e-6 of it, relative to 1 + |y|.
// Twin      src/kernels/gaussian.rs, fn forward_twin.
// Uses      lib/grid.wgsl, lib/random.wgsl

struct Params {
    len: u32,
    row_len: u32,
    first_row: u32,
    seed: u32,
    step: u32,
    node: u32,
    relative: f32,
    absolute: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// erfinv(v) / v, from w = -ln(1 - v^2).
fn near_zero(w: f32) -> f32 {
    let t = w - 2.5;
    var p = 2.81022636e-08;
    p = p * t + 3.43273939e-07;
    p = p * t - 3.5233877e-06;
    p = p * t - 4.39150654e-06;
    p = p * t + 0.00021858087;
    p = p * t - 0.00125372503;
    p = p * t - 0.00417768164;
    p = p * t + 0.246640727;
    return p * t + 1.50140941;
}

fn near_one(w: f32) -> f32 {
    let t = sqrt(w) - 3.0;
    var p = -0.000200214257;
    p = p * t + 0.000100950558;
    p = p * t + 0.00134934322;
    p = p * t - 0.00367342844;
    p = p * t + 0.00573950773;
    p = p * t - 0.0076224613;
    p = p * t + 0.00943887047;
    p = p * t + 1.00167406;
    return p * t + 2.83297682;
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.len {
        return;
    }
    let key = random_row(params.seed, params.step, params.node, params.first_row + i / params.row_len);
    // In units of 2^-24, as whole numbers: compilers may sum 1 - (2 u - 1) in another order, and round what is exact.
    let above = 2u * u32(random_unit(key, i % params.row_len) * 16777216.0) + 1u;
    let v = f32(i32(above) - 16777216) * 5.9604644775390625e-8;
    let rest = (f32(above) * 5.9604644775390625e-8) * (f32(33554432u - above) * 5.9604644775390625e-8);
    let w = max(-log(rest), 0.0);
    let n = 1.4142135624 * v * select(near_one(w), near_zero(w), w < 5.0);
    y[i] = x[i] * (1.0 + params.relative * n) + params.absolute * n;
}
