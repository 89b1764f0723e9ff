// Huber's loss, with the gradient, in one go.
//
//     e = output[r, c] - target[r, c]
//     report[r]   = (w * mean over c of (|e| <= delta ? e * e / 2 : delta * |e| - delta * delta / 2),
//                    share of columns with |e| <= delta)
//     gradient[r] = clamp(e, -delta, delta) / cols * w * scale
//
// Source    Huber 1964, doi:10.1214/aoms/1177703732.
// Shapes    values, targets, gradient [rows, cols]; report [rows, 2]; w = sample_weights [rows / positions]. Row-major.
// Grid      an invocation for each row.
// Accuracy  within 1e-5 of the twin, relative.
// Twin      examples/05_custom_loss_and_optimizer.rs.
// Uses      lib/grid.wgsl

struct Params {
    rows: u32,
    cols: u32,
    positions: u32,
    scale: f32,
    delta: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read> targets: array<f32>;
@group(0) @binding(3) var<storage, read> sample_weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> report: array<f32>;
@group(0) @binding(5) var<storage, read_write> gradient: array<f32>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = element_index(workgroup, workgroups, lane, 64u);
    if row >= params.rows {
        return;
    }
    let weight = sample_weights[row / params.positions];
    let delta = params.delta;
    var loss = 0.0;
    var inside = 0.0;
    for (var at = row * params.cols; at < (row + 1u) * params.cols; at++) {
        let e = values[at] - targets[at];
        let is_inside = abs(e) <= delta;
        loss += select(delta * (abs(e) - 0.5 * delta), 0.5 * e * e, is_inside);
        inside += select(0.0, 1.0, is_inside);
        gradient[at] = clamp(e, -delta, delta) / f32(params.cols) * weight * params.scale;
    }
    report[2u * row] = loss / f32(params.cols) * weight;
    report[2u * row + 1u] = inside / f32(params.cols);
}
