// A copy under other indices: padding with zeros, cropping, permuted axes, repeated elements.
//
//     y[row, c5, .., c1] = x[row * x_rows + first + (c5 - before_5) * stride_5 + .. + (c1 - before_1) * stride_1]
//                          where each before_k <= ck < before_k + extent_k, and 0 elsewhere
//
// Source    ours; Keras 3 ZeroPadding2D, Cropping2D, Permute, RepeatVector, UpSampling2D.
// Shapes    y [rows, size_5, .., size_1]. A stride of 0 repeats. Only the first AXES axes are used, the innermost first.
// Grid      an invocation for each element of y.
// Accuracy  exact.
// Twin      src/kernels/remap.rs, fn forward_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    size_1: u32,
    size_2: u32,
    size_3: u32,
    size_4: u32,
    size_5: u32,
    stride_1: u32,
    stride_2: u32,
    stride_3: u32,
    stride_4: u32,
    stride_5: u32,
    before_1: u32,
    before_2: u32,
    before_3: u32,
    before_4: u32,
    before_5: u32,
    extent_1: u32,
    extent_2: u32,
    extent_3: u32,
    extent_4: u32,
    extent_5: u32,
    first: u32,
    x_rows: u32,
}

override AXES: u32 = 5u;

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
    // Before the first element this wraps around, which is past the last one, too.
    var at = i % params.size_1 - params.before_1;
    var rest = i / params.size_1;
    var is_inside = at < params.extent_1;
    var source = params.first + at * params.stride_1;
    if AXES > 1u {
        at = rest % params.size_2 - params.before_2;
        rest = rest / params.size_2;
        is_inside = is_inside && at < params.extent_2;
        source += at * params.stride_2;
    }
    if AXES > 2u {
        at = rest % params.size_3 - params.before_3;
        rest = rest / params.size_3;
        is_inside = is_inside && at < params.extent_3;
        source += at * params.stride_3;
    }
    if AXES > 3u {
        at = rest % params.size_4 - params.before_4;
        rest = rest / params.size_4;
        is_inside = is_inside && at < params.extent_4;
        source += at * params.stride_4;
    }
    if AXES > 4u {
        at = rest % params.size_5 - params.before_5;
        rest = rest / params.size_5;
        is_inside = is_inside && at < params.extent_5;
        source += at * params.stride_5;
    }
    source += rest * params.x_rows;
    if is_inside {
        y[i] = x[source];
    } else {
        y[i] = 0.0;
    }
}
