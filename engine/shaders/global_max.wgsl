// The largest value of each channel over all positions, and its gradient.
//
//     y[r, c]      = max of x[r, p, c] over p;  ties[r, c] = how many p have it, at least 1     (forward)
//     d_x[r, p, c] = x[r, p, c] = y[r, c] ? dy[r, c] / ties[r, c] : 0                                (backward)
//     Of a channel with a NaN the maximum is NaN, and it has no gradient.
//
// Source    Keras 3 GlobalMaxPooling2D on JAX: equal maxima share the gradient.
// Shapes    x, d_x [rows, positions, channels]; y, ties, dy [rows, channels].
// Grid      an invocation for each element of the result.
// Accuracy  the maximum exact; the gradient one rounding: within 1e-6 of the twin, relative to 1 + |d_x|.
// Twin      src/kernels/global_max.rs, fn forward_twin, backward_twin.
// Uses      lib/grid.wgsl

struct Params {
    rows: u32,
    positions: u32,
    channels: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> ties: array<f32>;

@group(0) @binding(2) var<storage, read> max_y: array<f32>;
@group(0) @binding(3) var<storage, read> max_ties: array<f32>;
@group(0) @binding(4) var<storage, read> dy: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_x: array<f32>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.rows * params.channels {
        return;
    }
    var at = i / params.channels * params.positions * params.channels + i % params.channels;
    var largest = -3.4e38;
    var count = 0.0;
    // Largest bits without sign: those of a NaN are above those of all numbers.
    var magnitude = 0u;
    for (var position = 0u; position < params.positions; position += 1u) {
        let value = x[at];
        count = select(count + select(0.0, 1.0, value == largest), 1.0, value > largest);
        largest = max(largest, value);
        magnitude = max(magnitude, bitcast<u32>(value) & 0x7fffffffu);
        at += params.channels;
    }
    y[i] = select(largest, bitcast<f32>(magnitude), magnitude > 0x7f800000u);
    ties[i] = select(max(count, 1.0), 1.0, magnitude > 0x7f800000u);
}

@compute @workgroup_size(64)
fn backward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.rows * params.positions * params.channels {
        return;
    }
    let source = i / (params.positions * params.channels) * params.channels + i % params.channels;
    d_x[i] = select(0.0, dy[source] / max_ties[source], x[i] == max_y[source]);
}
