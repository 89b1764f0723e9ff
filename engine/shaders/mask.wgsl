// Which positions of a sequence count, a sequence whose others are 0, and the mean of those that count.
//
//     mask[p] = any x[p, c] != value ? 1 : 0
//     y[p, c] = mask[p] x[p, c]
//     m[r, c] = sum over t of mask[r, t] x[r, t, c] / sum over t of mask[r, t], 0 where none counts
//
// Source    Keras 3 Masking, Embedding(mask_zero=True) and GlobalAveragePooling1D.
// Shapes    x, y [positions, cols]; mask [positions]. `apply` on dy is the backward pass. means, d_means [rows, cols], x and
//           d_x [rows, steps, cols], positions = rows steps.
// Grid      compute: an invocation for each position; apply, backward_mean: for each element; mean: for each of means.
// Accuracy  compute, apply exact; the others within 2e-6 of the twin, relative to 1 + |m|, up to 1,000 steps.
// Twin      src/kernels/mask.rs, fn compute_twin, apply_twin, mean_twin, backward_mean_twin.
// Uses      lib/grid.wgsl

struct Params {
    positions: u32,
    cols: u32,
    steps: u32,
    value: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;

@group(0) @binding(2) var<storage, read_write> mask: array<f32>;

@group(0) @binding(2) var<storage, read> known: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@group(0) @binding(3) var<storage, read_write> means: array<f32>;

@group(0) @binding(1) var<storage, read> d_means: array<f32>;
@group(0) @binding(3) var<storage, read_write> d_x: array<f32>;

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

// How many steps of a row count; at least 1, to be divided by.
fn count_of(row: u32) -> f32 {
    var count = 0.0;
    for (var t = 0u; t < params.steps; t += 1u) {
        count += select(0.0, 1.0, known[row * params.steps + t] >= 0.5);
    }
    return max(count, 1.0);
}

@compute @workgroup_size(64)
fn mean(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let row = i / params.cols;
    if row >= params.positions / params.steps {
        return;
    }
    var sum = 0.0;
    for (var t = 0u; t < params.steps; t += 1u) {
        let p = row * params.steps + t;
        sum += select(0.0, x[p * params.cols + i % params.cols], known[p] >= 0.5);
    }
    means[i] = sum / count_of(row);
}

@compute @workgroup_size(64)
fn backward_mean(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.positions * params.cols {
        return;
    }
    let p = i / params.cols;
    let row = p / params.steps;
    let share = d_means[row * params.cols + i % params.cols] / count_of(row);
    d_x[i] = select(0.0, share, known[p] >= 0.5);
}
