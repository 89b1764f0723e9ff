// Rotary positions: pairs of a vector's features are turned by angles that grow with the vector's position.
// The entry point on dy, in the other direction, is also the backward pass.
//
//     y[v, k]        = x[v, k] cos(a) - x[v, k + half] sin(a)
//     y[v, k + half] = x[v, k + half] cos(a) + x[v, k] sin(a)
//     a              = direction * the angle of position v / inner % time and pair k
//
// Source    Su et al. 2021, arXiv:2104.09864; halves as in KerasHub and Hugging Face, not neighbours as in the paper.
// Shapes    x, y [vectors, 2 half]; turns [time, 2 half], cosines and then sines of each position: WGSL's own are not exact
//           enough, and only within pi.
// Grid      an invocation for each pair.
// Accuracy  two products and a sum: within 1e-6 of the twin, relative to 1 + |y|.
// Twin      src/kernels/rotary_embedding.rs, fn forward_twin.
// Uses      lib/grid.wgsl

struct Params {
    pairs: u32,
    half: u32,
    inner: u32,
    time: u32,
    direction: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> turns: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

// Places of a pair's two features, and of its cosine; the sine lies `half` behind it.
fn places(pair: u32) -> vec3<u32> {
    let vector = pair / params.half;
    let k = pair % params.half;
    let first = 2u * params.half * vector + k;
    let position = vector / params.inner % params.time;
    return vec3<u32>(first, first + params.half, 2u * params.half * position + k);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pair = element_index(workgroup, workgroups, lane, 64u);
    if pair >= params.pairs {
        return;
    }
    let at = places(pair);
    let cosine = turns[at.z];
    let sine = params.direction * turns[at.z + params.half];
    y[at.x] = x[at.x] * cosine - x[at.y] * sine;
    y[at.y] = x[at.y] * cosine + x[at.x] * sine;
}
