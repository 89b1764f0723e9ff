// Rows of a table by their index, and the gradient of the table.
//
//     y[p] = table[ids[p]]
//     d_table[v] = sum over p with ids[p] = v of dy[p], in the order of p
//
// Source    ours. The positions of one index are a chain of links, so that no sum depends on the order of invocations.
// Shapes    ids, links [positions]; y, dy [positions, cols]; table [rows, cols]: `rows` rows from `first` on of a table of
//           `vocabulary` rows; partials [splits, rows, cols], each split a slab of ceil(positions / splits) positions.
//           A link: the distance to the next position with this index, 0 for none; bit 31 where it is the first of its slab.
// Grid      an invocation for each element of what is written: forward y, link links, clear partials; backward one for
//           each element of dy.
// Accuracy  forward exact; backward within 2e-5 of the twin, relative to 1 + |d_table|, for chains of up to 2,000.
// Twin      src/kernels/embedding.rs, fn forward_twin, link_twin, clear_twin, backward_twin.
// Uses      lib/grid.wgsl

struct Params {
    positions: u32,
    cols: u32,
    first: u32,
    rows: u32,
    vocabulary: u32,
    splits: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> ids: array<f32>;

@group(0) @binding(2) var<storage, read> table: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@group(0) @binding(2) var<storage, read_write> links: array<u32>;

@group(0) @binding(1) var<storage, read_write> cleared: array<f32>;

@group(0) @binding(2) var<storage, read> chain: array<u32>;
@group(0) @binding(3) var<storage, read> dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> partials: array<f32>;

const FIRST: u32 = 0x80000000u;

// Data are checked before a run; this only keeps a wrong index in bounds.
fn id_of(position: u32) -> u32 {
    return min(u32(max(ids[position], 0.0)), params.vocabulary - 1u);
}

fn slab_len() -> u32 {
    return (params.positions + params.splits - 1u) / params.splits;
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.positions * params.cols {
        return;
    }
    // Wraps around below `first`.
    let row = id_of(i / params.cols) - params.first;
    if row < params.rows {
        y[i] = table[row * params.cols + i % params.cols];
    }
}

@compute @workgroup_size(64)
fn link(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let p = element_index(workgroup, workgroups, lane, 64u);
    if p >= params.positions {
        return;
    }
    let id = id_of(p);
    let start = p / slab_len() * slab_len();
    let end = min(start + slab_len(), params.positions);
    var before = p;
    while before > start && id_of(before - 1u) != id {
        before -= 1u;
    }
    var next = p + 1u;
    while next < end && id_of(next) != id {
        next += 1u;
    }
    links[p] = select(next - p, 0u, next >= end) | select(0u, FIRST, before == start);
}

@compute @workgroup_size(64)
fn clear(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i < params.splits * params.rows * params.cols {
        cleared[i] = 0.0;
    }
}

@compute @workgroup_size(64)
fn backward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.positions * params.cols {
        return;
    }
    var p = i / params.cols;
    let col = i % params.cols;
    let row = id_of(p) - params.first;
    if (chain[p] & FIRST) == 0u || row >= params.rows {
        return;
    }
    let at = (p / slab_len() * params.rows + row) * params.cols + col;
    var sum = dy[p * params.cols + col];
    var distance = chain[p] & ~FIRST;
    while distance > 0u {
        p += distance;
        sum += dy[p * params.cols + col];
        distance = chain[p] & ~FIRST;
    }
    partials[at] = sum;
}
