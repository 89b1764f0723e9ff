// Sums over the rows of a matrix, in a fixed order and without atomics.
//
//     partials[s, c] = sum of x[r, c] over the rows r of slab s        (column_sums)
//     y[c]           = sum of parts[s, c] over s                       (combine)
//
// Source    ours. Slab s holds ceil(rows / splits) rows; the last may be short or empty, and then gives 0.
// Shapes    x [rows, cols]; partials, parts [splits, cols]; y [cols]. Row-major, no gaps.
// Grid      column_sums: an invocation for each of splits * cols; combine: one for each of cols.
// Accuracy  within 5e-5 of the twin, relative to 1 + |sum|, for slabs up to 4096 standard normal rows.
// Twin      src/kernels/reduce.rs, fn column_sums_twin, combine_twin.
// Uses      lib/grid.wgsl

struct Params {
    rows: u32,
    cols: u32,
    splits: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> partials: array<f32>;

@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn column_sums(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let cols = params.cols;
    if i >= params.splits * cols {
        return;
    }
    let slab = (params.rows + params.splits - 1u) / params.splits;
    let first = min((i / cols) * slab, params.rows);
    let rows = min(slab, params.rows - first);
    var at = first * cols + i % cols;
    // Eight loads in flight; sums of eight first, so that the running sum rounds an eighth as often.
    var sum = 0.0;
    for (var block = rows / 8u; block > 0u; block -= 1u) {
        let a = (x[at] + x[at + cols]) + (x[at + 2u * cols] + x[at + 3u * cols]);
        let b = (x[at + 4u * cols] + x[at + 5u * cols]) + (x[at + 6u * cols] + x[at + 7u * cols]);
        sum += a + b;
        at += 8u * cols;
    }
    for (var rest = rows % 8u; rest > 0u; rest -= 1u) {
        sum += x[at];
        at += cols;
    }
    partials[i] = sum;
}

fn four_parts(at: u32) -> f32 {
    let cols = params.cols;
    return (parts[at] + parts[at + cols]) + (parts[at + 2u * cols] + parts[at + 3u * cols]);
}

@compute @workgroup_size(64)
fn combine(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let col = element_index(workgroup, workgroups, lane, 64u);
    let cols = params.cols;
    if col >= cols {
        return;
    }
    // Sixteen loads in flight: what takes long is to wait for memory.
    var at = col;
    var sum = 0.0;
    for (var block = params.splits / 16u; block > 0u; block -= 1u) {
        sum += (four_parts(at) + four_parts(at + 4u * cols)) + (four_parts(at + 8u * cols) + four_parts(at + 12u * cols));
        at += 16u * cols;
    }
    for (var block = params.splits % 16u / 4u; block > 0u; block -= 1u) {
        sum += four_parts(at);
        at += 4u * cols;
    }
    for (var rest = params.splits % 4u; rest > 0u; rest -= 1u) {
        sum += parts[at];
        at += cols;
    }
    y[col] = sum;
}
