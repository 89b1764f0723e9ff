// Inverted dropout. The entry point on dy is also the backward pass.
//
//     y[i] = u >= rate ? x[i] / (1 - rate) : 0
//     u    = the number of (seed, step, node, first_row + i / row_len, i % row_len / inner % drawn), uniform in [0, 1)
//
// Source    Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov 2014, JMLR 15; Keras 3 Dropout.
// Shapes    x, y [len], rows of row_len elements; first_row is the first row's index in the whole batch. With inner 1 and
//           drawn row_len each element has a number of its own; else elements share one, as those of a channel do.
// Grid      an invocation for each element.
// Accuracy  the mask is the twin's, bit for bit; the factor within 1e-6.
// Twin      src/kernels/dropout.rs, fn forward_twin.
// Uses      lib/grid.wgsl, lib/random.wgsl

struct Params {
    len: u32,
    row_len: u32,
    first_row: u32,
    seed: u32,
    step: u32,
    node: u32,
    rate: f32,
    inner: u32,
    drawn: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.len {
        return;
    }
    let key = random_row(params.seed, params.step, params.node, params.first_row + i / params.row_len);
    let keeps = random_unit(key, i % params.row_len / params.inner % params.drawn) >= params.rate;
    // At rate 1 nothing is kept, and the factor is not used.
    y[i] = select(0.0, x[i] / max(1.0 - params.rate, 1e-7), keeps);
}
