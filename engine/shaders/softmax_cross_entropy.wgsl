// Softmax and cross-entropy of it, with the gradient, in one go.
//
//     p = softmax(logits[r]);  q = target * (1 - smoothing) + smoothing / cols
//     report[r]   = (w * sum of -q * log p,  number of logits above the true class's, and 1/2 if one before it is as large)
//     gradient[r] = (p * sum of q - q) * w * scale
//
// Source    Keras 3 SparseCategoricalCrossentropy and CategoricalCrossentropy, from_logits, label_smoothing.
// Shapes    logits, gradient, targets [rows, cols]; labels [rows]; report [rows, 2]; w = sample_weights
//           [rows / positions], that of r / positions. A row of weight 0 gives 0, whatever it holds.
// Grid      LANES invocations for each row, 64 / LANES rows to a workgroup.
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

override LANES: u32 = 16u;
const LOWEST: f32 = -3.4e38;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> labels: array<f32>;
@group(0) @binding(3) var<storage, read> sample_weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> report: array<f32>;
@group(0) @binding(5) var<storage, read_write> gradient: array<f32>;

@group(0) @binding(2) var<storage, read> targets: array<vec4<f32>>;

// Columns of a vector's four elements in the row that begins at `base`; those of a row before it wrap to large numbers.
fn columns(vector: u32, base: u32) -> vec4<u32> {
    return vec4<u32>(4u * vector) + vec4<u32>(0u, 1u, 2u, 3u) - vec4<u32>(base);
}

fn logit(at: u32) -> f32 {
    return logits[at / 4u][at % 4u];
}

fn largest_of(values: vec4<f32>) -> f32 {
    return max(max(values.x, values.y), max(values.z, values.w));
}

// Which logits before the true class are as large? The first of the largest is what the model says.
fn tie_before(values: vec4<f32>, col: vec4<u32>, true_value: f32, true_col: u32) -> vec4<bool> {
    return (values == vec4<f32>(true_value)) & (col < vec4<u32>(true_col));
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
    let end = base + cols;

    var largests = vec4<f32>(LOWEST);
    for (var vector = base / 4u + start; 4u * vector < end; vector += LANES) {
        let inside = columns(vector, base) < vec4<u32>(cols);
        largests = max(largests, select(vec4<f32>(LOWEST), logits[vector], inside));
    }
    let largest = lanes_max(largest_of(largests), lane, LANES);

    let true_col = min(u32(labels[row]), params.cols - 1u);
    let true_value = logit(base + true_col);
    // Sums of exponentials, of the logits under the largest, of the logits above the true one, and of its ties.
    var exponentials = vec4<f32>(0.0);
    var depths = vec4<f32>(0.0);
    var ranks = vec4<f32>(0.0);
    var ties = vec4<f32>(0.0);
    for (var vector = base / 4u + start; 4u * vector < end; vector += LANES) {
        let col = columns(vector, base);
        let inside = col < vec4<u32>(cols);
        let values = logits[vector];
        let above = inside & (values > vec4<f32>(true_value));
        let tied = inside & tie_before(values, col, true_value, true_col);
        exponentials += select(vec4<f32>(0.0), exp(values - largest), inside);
        depths += select(vec4<f32>(0.0), values - largest, inside);
        ranks += select(vec4<f32>(0.0), vec4<f32>(1.0), above);
        ties = max(ties, select(vec4<f32>(0.0), vec4<f32>(1.0), tied));
    }
    let one = vec4<f32>(1.0);
    let own = vec4<f32>(dot(exponentials, one), dot(depths, one), dot(ranks, one), dot(ties, one));
    let sums = lanes_sum4(own, lane, LANES);

    let weight = sample_weights[row / params.positions];
    let even = params.smoothing / f32(params.cols);
    let step = weight * params.scale;
    // One by one: to write an element may be to write its vector, and the next row's lane writes that, too.
    for (var col = start; col < cols; col += LANES) {
        let q = even + select(0.0, 1.0 - params.smoothing, col == true_col);
        let slope = exp(logit(base + col) - largest) / sums.x - q;
        gradient[base + col] = select(slope * step, 0.0, weight == 0.0);
    }
    if live && start == 0u {
        let spread = select(0.0, even * sums.y, even > 0.0);
        let loss = log(sums.x) - (1.0 - params.smoothing) * (true_value - largest) - spread;
        report[2u * row] = select(loss * weight, 0.0, weight == 0.0);
        report[2u * row + 1u] = sums.z + select(0.0, 0.5, sums.w > 0.0);
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
    let end = base + cols;

    var largests = vec4<f32>(LOWEST);
    var largest_targets = vec4<f32>(LOWEST);
    // Where those stand, counted from the end of the row.
    var places = vec4<u32>(0u);
    for (var vector = base / 4u + start; 4u * vector < end; vector += LANES) {
        let col = columns(vector, base);
        let inside = col < vec4<u32>(cols);
        largests = max(largests, select(vec4<f32>(LOWEST), logits[vector], inside));
        let better = inside & (targets[vector] > largest_targets);
        largest_targets = select(largest_targets, targets[vector], better);
        places = select(places, vec4<u32>(cols) - col, better);
    }
    let largest = lanes_max(largest_of(largests), lane, LANES);
    // The first of the largest targets: the lowest column of those that hold it.
    let row_target = lanes_max(largest_of(largest_targets), lane, LANES);
    let from_end = select(vec4<f32>(0.0), vec4<f32>(places), largest_targets == vec4<f32>(row_target));
    let true_col = min(params.cols - u32(lanes_max(largest_of(from_end), lane, LANES)), params.cols - 1u);
    let true_value = logit(base + true_col);

    let even = params.smoothing / f32(params.cols);
    // Sums of exponentials, of q * (logit - largest), of the logits above the true one, and of q.
    var exponentials = vec4<f32>(0.0);
    var products = vec4<f32>(0.0);
    var ranks = vec4<f32>(0.0);
    var masses = vec4<f32>(0.0);
    var ties = vec4<f32>(0.0);
    for (var vector = base / 4u + start; 4u * vector < end; vector += LANES) {
        let col = columns(vector, base);
        let inside = col < vec4<u32>(cols);
        let values = logits[vector];
        let q = select(vec4<f32>(0.0), targets[vector] * (1.0 - params.smoothing) + even, inside);
        let above = inside & (values > vec4<f32>(true_value));
        let tied = inside & tie_before(values, col, true_value, true_col);
        exponentials += select(vec4<f32>(0.0), exp(values - largest), inside);
        // A logit of -inf with target 0 adds nothing.
        products += select(q * (values - largest), vec4<f32>(0.0), q == vec4<f32>(0.0));
        ranks += select(vec4<f32>(0.0), vec4<f32>(1.0), above);
        ties = max(ties, select(vec4<f32>(0.0), vec4<f32>(1.0), tied));
        masses += q;
    }
    let one = vec4<f32>(1.0);
    let own = vec4<f32>(dot(exponentials, one), dot(products, one), dot(ranks, one), dot(masses, one));
    let sums = lanes_sum4(own, lane, LANES);
    let tie = lanes_max(largest_of(ties), lane, LANES);

    let weight = sample_weights[row / params.positions];
    let step = weight * params.scale;
    for (var col = start; col < cols; col += LANES) {
        let at = base + col;
        let q = targets[at / 4u][at % 4u] * (1.0 - params.smoothing) + even;
        let slope = exp(logit(at) - largest) / sums.x * sums.w - q;
        gradient[at] = select(slope * step, 0.0, weight == 0.0);
    }
    if live && start == 0u {
        let loss = log(sums.x) * sums.w - sums.y;
        report[2u * row] = select(loss * weight, 0.0, weight == 0.0);
        report[2u * row + 1u] = sums.z + select(0.0, 0.5, tie > 0.0);
    }
}
