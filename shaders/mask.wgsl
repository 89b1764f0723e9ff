// Which positions of a sequence count, and a sequence whose others are 0.
//
//     mask[p] = any x[p, c] != value ? 1 : 0
//     y[p, c] = mask[p] x[p, c]
//
// Source    Keras 3 Masking and Embedding(mask_zero=True).
// Shapes    x, y [positions, cols]; mask [positions]. `apply` on dy is the backward pass.
// Grid      compute: an invocation for each position; apply: for each element.
// Accuracy  exact.
// Twin      src/kernels/mask.rs, fn compute_twin, apply_twin.
// Uses      lib/grid.wgsl

struct Params {
    positions: u32,
    cols: u32,
    value: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;

@group(0) @binding(2) var<storage, read_write> mask: array<f32>;

@group(0) @binding(2) var<storage, read> known: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn compute(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let p = element_index(workgroup, workgroups, lane, 64u);
    if p >= params.positions {
        return;
    }
    var counts = 0.0;
    for (var c = 0u; c < params.cols; c += 1u) {
        counts = select(counts, 1.0, x[p * params.cols + c] != params.value);
    }
    mask[p] = counts;
}

@compute @workgroup_size(64)
fn apply(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i < params.positions * params.cols {
        y[i] = select(0.0, x[i], known[i / params.cols] >= 0.5);
    }
}
