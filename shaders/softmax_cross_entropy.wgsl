// Softmax and cross-entropy of it, with the gradient, in one go.
//
//     p = softmax(logits[r]);  q = target * (1 - smoothing) + smoothing / cols
//     report[r]   = (w * sum of -q * log p,  number of logits that stand before the true class)
//     gradient[r] = (p * sum of q - q) * w * scale
//
// Source    Keras 3 SparseCategoricalCrossentropy and CategoricalCrossentropy, from_logits, label_smoothing.
// Shapes    logits, gradient, targets [rows, cols]; labels [rows]; report [rows, 2]; w = sample_weights
//           [rows / positions], that of r / positions. A row of weight 0 gives 0, whatever it holds.
// Grid      16 invocations for each row, four rows to a workgroup.
// Accuracy  within 2e-5 of the twin, relative to 1 + |loss|, up to 4096 columns.
// Twin      src/kernels/softmax_cross_entropy.rs, fn forward_twin, forward_dense_twin.
// Uses      lib/grid.wgsl, lib/reduce.wgsl

struct Params {
    rows: u32,
    cols: u32,
    positions: u32,
    scale: f32,
    smoothing: f32,
}

const LANES: u32 = 16u;
const LOWEST: f32 = -3.4e38;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read> labels: array<f32>;
@group(0) @binding(3) var<storage, read> sample_weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> report: array<f32>;
@group(0) @binding(5) var<storage, read_write> gradient: array<f32>;

@group(0) @binding(2) var<storage, read> targets: array<f32>;

// Does a logit stand before the true class? A tie counts for the lower index, as in tf.math.top_k.
fn stands_before(value: f32, col: u32, true_value: f32, true_col: u32) -> bool {
    return value > true_value || (value == true_value && col < true_col);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let start = i % LANES;
    // No early return: every lane meets the barriers. A row past the end has no columns.
    let live = i / LANES < params.rows;
    let row = select(0u, i / LANES, live);
    let cols = select(0u, params.cols, live);
    let base = row * params.cols;

    var largest = LOWEST;
    for (var col = start; col < cols; col += LANES) {
        largest = max(largest, logits[base + col]);
    }
    largest = lanes_max(largest, lane, LANES);

    let true_col = min(u32(labels[row]), params.cols - 1u);
    let true_value = logits[base + true_col];
    // Sum of exponentials, sum of the logits under the largest, logits before the true one.
    var sums = vec4<f32>(0.0);
    for (var col = start; col < cols; col += LANES) {
        let value = logits[base + col];
        let before = select(0.0, 1.0, stands_before(value, col, true_value, true_col));
        sums += vec4<f32>(exp(value - largest), value - largest, before, 0.0);
    }
    sums = lanes_sum4(sums, lane, LANES);

    let weight = sample_weights[row / params.positions];
    let even = params.smoothing / f32(params.cols);
    let step = weight * params.scale;
    for (var col = start; col < cols; col += LANES) {
        let q = even + select(0.0, 1.0 - params.smoothing, col == true_col);
        let slope = exp(logits[base + col] - largest) / sums.x - q;
        gradient[base + col] = select(slope * step, 0.0, weight == 0.0);
    }
    if live && start == 0u {
        let spread = select(0.0, even * sums.y, even > 0.0);
        let loss = log(sums.x) - (1.0 - params.smoothing) * (true_value - largest) - spread;
        report[2u * row] = select(loss * weight, 0.0, weight == 0.0);
        report[2u * row + 1u] = sums.z;
    }
}

@compute @workgroup_size(64)
fn forward_dense(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let start = i % LANES;
    let live = i / LANES < params.rows;
    let row = select(0u, i / LANES, live);
    let cols = select(0u, params.cols, live);
    let base = row * params.cols;

    var largest = LOWEST;
    var largest_target = LOWEST;
    var true_col = 0u;
    for (var col = start; col < cols; col += LANES) {
        largest = max(largest, logits[base + col]);
        if targets[base + col] > largest_target {
            largest_target = targets[base + col];
            true_col = col;
        }
    }
    largest = lanes_max(largest, lane, LANES);
    // The first of the largest targets: the lowest column of the lanes that hold it.
    let row_target = lanes_max(largest_target, lane, LANES);
    let from_end = select(0.0, f32(params.cols - true_col), largest_target == row_target);
    true_col = min(params.cols - u32(lanes_max(from_end, lane, LANES)), params.cols - 1u);
    let true_value = logits[base + true_col];

    let even = params.smoothing / f32(params.cols);
    // Sum of exponentials, sum of q * (logit - largest), logits before the true one, sum of q.
    var sums = vec4<f32>(0.0);
    for (var col = start; col < cols; col += LANES) {
        let value = logits[base + col];
        let q = targets[base + col] * (1.0 - params.smoothing) + even;
        let before = select(0.0, 1.0, stands_before(value, col, true_value, true_col));
        // A logit of -inf with target 0 adds nothing.
        sums += vec4<f32>(exp(value - largest), select(q * (value - largest), 0.0, q == 0.0), before, q);
    }
    sums = lanes_sum4(sums, lane, LANES);

    let weight = sample_weights[row / params.positions];
    let step = weight * params.scale;
    for (var col = start; col < cols; col += LANES) {
        let q = targets[base + col] * (1.0 - params.smoothing) + even;
        let slope = exp(logits[base + col] - largest) / sums.x * sums.w - q;
        gradient[base + col] = select(slope * step, 0.0, weight == 0.0);
    }
    if live && start == 0u {
        let loss = log(sums.x) * sums.w - sums.y;
        report[2u * row] = select(loss * weight, 0.0, weight == 0.0);
        report[2u * row + 1u] = sums.z;
    }
}
