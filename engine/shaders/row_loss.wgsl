// Losses of whole rows of predictions y and targets t, with the gradient, in one go.
//
//     forward_cosine  loss = -sum of t' y', each vector over its length, of which at least 1e-7 counts; y of length 0
//                     has no gradient.  score = mean of |y - t|
//     forward_hinge   loss = max(max of (1 - t) y - sum of t y + 1, 0); equal maxima share the gradient
//     forward_focal   loss = sum of -q ln(p) (1 - p)^gamma alpha, p = softmax(y) between 1e-7 and 1 - 1e-7,
//                     q = t (1 - smoothing) + smoothing / cols
//     report[r]   = (w * loss, score);  gradient[r] = slope of the loss * w * scale
//     score of the last two: number of y above that of the first largest target, and 1/2 if one before it is as large
//
// Source    Keras 3 CosineSimilarity, CategoricalHinge, CategoricalFocalCrossentropy (from_logits) on JAX.
// Shapes    predictions, targets, gradient [rows, cols]; report [rows, 2]; w = sample_weights [rows / positions],
//           that of r / positions. A row of weight 0 gives 0, whatever it holds.
// Grid      LANES invocations for each row, 64 / LANES rows to a workgroup.
// Accuracy  within 2e-5 of the twin, relative to 1 + |loss|, up to 4096 columns.
// Twin      src/kernels/row_loss.rs, fn cosine_twin, hinge_twin, focal_twin.
// Uses      lib/grid.wgsl, lib/reduce.wgsl

struct Params {
    rows: u32,
    cols: u32,
    positions: u32,
    scale: f32,
    smoothing: f32,
    alpha: f32,
    gamma: f32,
}

override LANES: u32 = 16u;
const LOWEST: f32 = -3.4e38;
const EPSILON: f32 = 1e-7;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> predictions: array<f32>;
@group(0) @binding(2) var<storage, read> targets: array<f32>;
@group(0) @binding(3) var<storage, read> sample_weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> report: array<f32>;
@group(0) @binding(5) var<storage, read_write> gradient: array<f32>;

// By bits: compilers fold x != x to false.
fn is_no_number(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
}

// A row's columns for this lane; one past the end has none, but its lanes meet the barriers.
struct Row {
    at: u32,
    base: u32,
    cols: u32,
    start: u32,
    lane: u32,
    live: bool,
    weight: f32,
}

fn row_of(i: u32, lane: u32) -> Row {
    let live = i / LANES < params.rows;
    let at = select(0u, i / LANES, live);
    let weight = sample_weights[at / params.positions];
    return Row(at, at * params.cols, select(0u, params.cols, live), i % LANES, lane, live, weight);
}

fn write_report(row: Row, loss: f32, score: f32) {
    if row.live && row.start == 0u {
        report[2u * row.at] = select(loss * row.weight, 0.0, row.weight == 0.0);
        report[2u * row.at + 1u] = score;
    }
}

fn write_slope(row: Row, col: u32, slope: f32) {
    gradient[row.base + col] = select(slope * row.weight * params.scale, 0.0, row.weight == 0.0);
}

// Number of predictions above that of the first largest target, and 1/2 if one before it is as large.
fn rank_of(row: Row) -> f32 {
    var best = LOWEST;
    var place = 0u;
    for (var col = row.start; col < row.cols; col += LANES) {
        let t = targets[row.base + col];
        // Counted from the end of the row.
        place = select(place, row.cols - col, t > best);
        best = max(best, t);
    }
    let largest = lanes_max(best, row.lane, LANES);
    let from_end = lanes_max(select(0.0, f32(place), best == largest), row.lane, LANES);
    let true_col = min(params.cols - u32(from_end), params.cols - 1u);
    let true_value = predictions[row.base + true_col];
    var above = 0.0;
    var ties = 0.0;
    for (var col = row.start; col < row.cols; col += LANES) {
        let y = predictions[row.base + col];
        above += select(0.0, 1.0, y > true_value);
        ties += select(0.0, 1.0, y == true_value && col < true_col);
    }
    let sums = lanes_sum4(vec4<f32>(above, ties, 0.0, 0.0), row.lane, LANES);
    return sums.x + select(0.0, 0.5, sums.y > 0.0);
}

@compute @workgroup_size(64)
fn forward_cosine(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = row_of(element_index(workgroup, workgroups, lane, 64u), lane);
    var own = vec4<f32>(0.0);
    for (var col = row.start; col < row.cols; col += LANES) {
        let y = predictions[row.base + col];
        let t = targets[row.base + col];
        own += vec4<f32>(t * y, y * y, t * t, abs(y - t));
    }
    let sums = lanes_sum4(own, lane, LANES);
    let y_factor = 1.0 / max(sqrt(sums.y), EPSILON);
    let t_factor = 1.0 / max(sqrt(sums.z), EPSILON);
    let cosine = sums.x * y_factor * t_factor;
    let along = select(0.0, cosine * y_factor, sqrt(sums.y) >= EPSILON);
    for (var col = row.start; col < row.cols; col += LANES) {
        let slope = y_factor * (along * predictions[row.base + col] - targets[row.base + col] * t_factor);
        write_slope(row, col, select(slope, 0.0, sums.y == 0.0));
    }
    write_report(row, -cosine, sums.w / f32(params.cols));
}

@compute @workgroup_size(64)
fn forward_hinge(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = row_of(element_index(workgroup, workgroups, lane, 64u), lane);
    var others = LOWEST;
    var product = 0.0;
    for (var col = row.start; col < row.cols; col += LANES) {
        let y = predictions[row.base + col];
        let t = targets[row.base + col];
        others = max(others, (1.0 - t) * y);
        product += t * y;
    }
    let largest = lanes_max(others, lane, LANES);
    var equal = 0.0;
    for (var col = row.start; col < row.cols; col += LANES) {
        let t = targets[row.base + col];
        equal += select(0.0, 1.0, (1.0 - t) * predictions[row.base + col] == largest);
    }
    let sums = lanes_sum4(vec4<f32>(product, equal, 0.0, 0.0), lane, LANES);
    let rank = rank_of(row);
    let margin = largest - sums.x + 1.0;
    let gate = select(select(0.0, 0.5, margin == 0.0), 1.0, margin > 0.0);
    for (var col = row.start; col < row.cols; col += LANES) {
        let t = targets[row.base + col];
        let is_largest = (1.0 - t) * predictions[row.base + col] == largest;
        let slope = gate * (select(0.0, (1.0 - t) / sums.y, is_largest) - t);
        write_slope(row, col, select(slope, sums.x, is_no_number(sums.x)));
    }
    // A maximum would hide what is no number.
    write_report(row, select(max(margin, 0.0), sums.x, is_no_number(sums.x)), rank);
}

// Part of the loss of a class of probability p, and of the slope: the derivative by p, times p.
fn focal(p: f32, q: f32) -> vec2<f32> {
    let bounded = clamp(p, EPSILON, 1.0 - EPSILON);
    let missed = 1.0 - bounded;
    let factor = params.alpha * q * pow(missed, params.gamma);
    let logarithm = log(bounded);
    let slope = factor * (params.gamma * logarithm * bounded / missed - 1.0);
    return vec2<f32>(-factor * logarithm, select(0.0, slope, p > EPSILON && p < 1.0 - EPSILON));
}

@compute @workgroup_size(64)
fn forward_focal(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = row_of(element_index(workgroup, workgroups, lane, 64u), lane);
    var own = LOWEST;
    for (var col = row.start; col < row.cols; col += LANES) {
        own = max(own, predictions[row.base + col]);
    }
    let largest = lanes_max(own, lane, LANES);
    var exponentials = 0.0;
    for (var col = row.start; col < row.cols; col += LANES) {
        exponentials += exp(predictions[row.base + col] - largest);
    }
    let total = lanes_sum4(vec4<f32>(exponentials, 0.0, 0.0, 0.0), lane, LANES).x;
    let rank = rank_of(row);
    let sharp = 1.0 - params.smoothing;
    let even = params.smoothing / f32(params.cols);
    var parts = vec2<f32>(0.0);
    for (var col = row.start; col < row.cols; col += LANES) {
        let p = exp(predictions[row.base + col] - largest) / total;
        parts += focal(p, targets[row.base + col] * sharp + even);
    }
    let sums = lanes_sum4(vec4<f32>(parts, 0.0, 0.0), lane, LANES);
    for (var col = row.start; col < row.cols; col += LANES) {
        let p = exp(predictions[row.base + col] - largest) / total;
        write_slope(row, col, focal(p, targets[row.base + col] * sharp + even).y - p * sums.y);
    }
    // A bound would hide what is no number.
    write_report(row, select(sums.x, total, is_no_number(total)), rank);
}
