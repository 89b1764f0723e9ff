// Swish with a learnable slope for each channel.
//
//     y[r, c] = x[r, c] * s(beta[c] * x[r, c])        s(z) = 1 / (1 + exp(-z))
//
// Source    Ramachandran, Zoph, Le 2017, arXiv:1710.05941, section 3.
// Shapes    x, y, dy, dx [rows, channels]; beta, dbeta [channels]. Row-major, no gaps.
// Grid      an invocation for each element; backward_beta: for each channel.
// Accuracy  within 1e-5 of the twin, relative.
// Twin      examples/04_custom_layer.rs.
// Uses      lib/grid.wgsl

struct Params {
    rows: u32,
    channels: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> beta: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@group(0) @binding(3) var<storage, read> dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<f32>;
@group(0) @binding(4) var<storage, read_write> dbeta: array<f32>;

// Clamped, since infinity may not survive WGSL arithmetic.
fn sigmoid(z: f32) -> f32 {
    return 1.0 / (1.0 + exp(-clamp(z, -80.0, 80.0)));
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i < params.rows * params.channels {
        y[i] = x[i] * sigmoid(beta[i % params.channels] * x[i]);
    }
}

@compute @workgroup_size(64)
fn backward_input(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i < params.rows * params.channels {
        let z = beta[i % params.channels] * x[i];
        let s = sigmoid(z);
        dx[i] = dy[i] * (s + z * s * (1.0 - s));
    }
}

@compute @workgroup_size(64)
fn backward_beta(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let c = element_index(workgroup, workgroups, lane, 64u);
    if c >= params.channels {
        return;
    }
    var sum = 0.0;
    for (var r = 0u; r < params.rows; r++) {
        let i = r * params.channels + c;
        let s = sigmoid(beta[c] * x[i]);
        sum += dy[i] * x[i] * x[i] * s * (1.0 - s);
    }
    dbeta[c] = sum;
}
