// Mean squared error, with the gradient, in one go.
//
//     report[r]   = (w * mean over c of (y - t)^2, mean over c of |y - t|)
//     gradient[r] = 2 * (y - t) / cols * w * scale
//
// Source    Keras 3 MeanSquaredError and the metric MeanAbsoluteError.
// Shapes    predictions, targets, gradient [rows, cols]; report [rows, 2]; w = sample_weights [rows / positions],
//           that of r / positions. A row of weight 0 gives 0, whatever it holds.
// Grid      LANES invocations for each row, 64 / LANES rows to a workgroup.
// Accuracy  within 2e-6 of the twin, relative to 1 + |loss|, up to 4096 columns.
// Twin      src/kernels/mean_squared_error.rs, fn forward_twin.
// Uses      lib/grid.wgsl, lib/reduce.wgsl

struct Params {
    rows: u32,
    cols: u32,
    positions: u32,
    scale: f32,
}

override LANES: u32 = 16u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> predictions: array<f32>;
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
    let i = element_index(workgroup, workgroups, lane, 64u);
    let start = i % LANES;
    // No early return: every lane meets the barriers. A row past the end has no columns.
    let live = i / LANES < params.rows;
    let row = select(0u, i / LANES, live);
    let cols = select(0u, params.cols, live);
    let base = row * params.cols;
    let weight = sample_weights[row / params.positions];
    let step = 2.0 * weight * params.scale / f32(params.cols);

    var square = 0.0;
    var absolute = 0.0;
    for (var col = start; col < cols; col += LANES) {
        let difference = predictions[base + col] - targets[base + col];
        square += difference * difference;
        absolute += abs(difference);
        gradient[base + col] = select(difference * step, 0.0, weight == 0.0);
    }
    let sums = lanes_sum4(vec4<f32>(square, absolute, 0.0, 0.0), lane, LANES) / f32(params.cols);
    if live && start == 0u {
        report[2u * row] = select(sums.x * weight, 0.0, weight == 0.0);
        report[2u * row + 1u] = sums.y;
    }
}
