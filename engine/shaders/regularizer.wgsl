// L1 and L2 penalties of weights and of a layer's outputs, and their slopes.
//
//     penalty(v) = l1 * |v| + l2 * v^2,  slope(v) = l1 * sign(v) + 2 * l2 * v
//     gradient += slope(weights);  penalties[s] = sum of penalty over slab s of the weights            (weights)
//     report[s] = (sum of penalty over row s of the outputs, 0), or is added to what is there          (outputs)
//     output_gradient += scale * slope(outputs) / count                                                (slopes)
//
// Source    Keras 3 regularizers L1, L2, L1L2; the slope of |v| at 0 is 0, as in TensorFlow and PyTorch.
// Shapes    weights, gradient, outputs, output_gradient [len]; penalties [splits]; report [splits, 2]. Slab s holds
//           ceil(len / splits) values; the last may be short or empty. The rows of outputs are its slabs.
// Grid      weights, outputs: a workgroup for each slab; slopes: an invocation for each element.
// Accuracy  within 1e-5 of the twin, relative to 1 + |penalty|: some hundred additions of positive terms a lane.
// Twin      src/kernels/regularizer.rs, fn weights_twin, outputs_twin, slopes_twin.
// Uses      lib/grid.wgsl, lib/reduce.wgsl

struct Params {
    len: u32,
    splits: u32,
    l1: f32,
    l2: f32,
    count: u32,
    scale: f32,
}

const LANES: u32 = 256u;

override ADDS: u32 = 0u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> weights_in: array<f32>;
@group(0) @binding(2) var<storage, read_write> gradient: array<f32>;
@group(0) @binding(3) var<storage, read_write> penalties: array<f32>;

@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> report: array<f32>;
@group(0) @binding(2) var<storage, read_write> output_gradient: array<f32>;

fn penalty(v: f32) -> f32 {
    return params.l1 * abs(v) + params.l2 * v * v;
}

fn slope(v: f32) -> f32 {
    return params.l1 * sign(v) + 2.0 * params.l2 * v;
}

// First value of a slab, and the first behind it.
fn slab_of(split: u32) -> vec2<u32> {
    let slab = (params.len + params.splits - 1u) / params.splits;
    let first = min(split * slab, params.len);
    return vec2<u32>(first, min(first + slab, params.len));
}

@compute @workgroup_size(256)
fn weights(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let split = item_index(workgroup, workgroups);
    let slab = slab_of(split);
    var sum = 0.0;
    for (var i = slab.x + lane; i < slab.y; i += LANES) {
        let value = weights_in[i];
        sum += penalty(value);
        gradient[i] += slope(value);
    }
    sum = lanes_sum(sum, lane, LANES);
    if lane == 0u && split < params.splits {
        penalties[split] = sum;
    }
}

@compute @workgroup_size(256)
fn outputs(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let split = item_index(workgroup, workgroups);
    let slab = slab_of(split);
    var sum = 0.0;
    for (var i = slab.x + lane; i < slab.y; i += LANES) {
        sum += penalty(values[i]);
    }
    sum = lanes_sum(sum, lane, LANES);
    if lane == 0u && split < params.splits {
        if ADDS == 1u {
            report[2u * split] += sum;
        } else {
            report[2u * split] = sum;
            report[2u * split + 1u] = 0.0;
        }
    }
}

@compute @workgroup_size(256)
fn slopes(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 256u);
    if i < params.len {
        output_gradient[i] += params.scale * (slope(values[i]) / f32(max(params.count, 1u)));
    }
}
