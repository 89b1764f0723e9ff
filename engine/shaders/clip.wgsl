// Norm of the whole gradient, whether it is finite, and the factor that clips it.
//
//     partials[s] = (norm of slab s, number of its values that are not finite), or 0 behind the last     (norm)
//     n = root of the sum of the squares of all slabs' norms                           (combine)
//     control = (max_norm > 0 ? min(1, max_norm / n) : 1,  every value finite ? 1 : 0,  n,  0)
//     with an update of number u > 0: control[3] = u if a value is not finite; and behind u - 1 there, the update is void: as if
//     a value were not finite, but control[3] = 0
//     clipped *= factors[0]                                                            (scale)
//     unscaled *= factor                                                               (unscale)
//     bounded = between -max_norm and max_norm                                         (values)
//
// Source    Keras 3 clipnorm, of one parameter or over all gradients (global_clipnorm), and clipvalue; the two ranges are Blue's, ACM TOMS 4, 1978.
//           Squares above 2^100 are summed scaled, and the slabs hand on norms instead of sums of squares: a
//           large but finite gradient gives its norm, and only bits that say Inf or NaN make it not finite.
//           Values below 2^-63 count as 0, values that are not finite are left out of the norm.
// Shapes    gradient, clipped, unscaled, bounded [len]; factors [4], a control; partials [splits rounded up to 32, 2]; parts [parts, 2], all slabs of all segments; control [4].
//           Slab s holds ceil(len / splits) values; the last may be short or empty.
// Grid      norm: a workgroup for each slab; combine: one workgroup; the others: an invocation for each element.
// Accuracy  within 1e-5 of the twin, relative to 1 + norm, for slabs up to 2^24 values.
// Twin      src/kernels/clip.rs, fn norm_twin, combine_twin, scale_twin, unscale_twin, values_twin.
// Uses      lib/grid.wgsl, lib/reduce.wgsl

struct Params {
    len: u32,
    splits: u32,
    max_norm: f32,
    parts: u32,
    factor: f32,
    update: u32,
}

// Numbers of updates that an f32 holds.
const NUMBERS: u32 = 0x100000u;
const LANES: u32 = 256u;
const LARGE: f32 = 1.125899906842624e15;
const SMALL: f32 = 8.881784197001252e-16;
const SHRINK: f32 = 8.271806125530277e-25;
const GROW: f32 = 1.2089258196146292e24;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<f32>;
@group(0) @binding(2) var<storage, read_write> partials: array<f32>;

@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> control: array<f32>;

@group(0) @binding(1) var<storage, read> factors: array<f32>;
@group(0) @binding(2) var<storage, read_write> clipped: array<f32>;

@group(0) @binding(1) var<storage, read_write> bounded: array<f32>;
@group(0) @binding(1) var<storage, read_write> unscaled: array<f32>;

// Whether the exponent's bits are all set. Arithmetic tests may be optimised away, bit tests not.
fn is_not_finite(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7f800000u) == 0x7f800000u;
}

@compute @workgroup_size(256)
fn norm(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let split = item_index(workgroup, workgroups);
    let slab = (params.len + params.splits - 1u) / params.splits;
    let first = min(split * slab, params.len);
    let last = min(first + slab, params.len);
    // Sum of squares, the same of the large values times 2^-160, count of what is not finite.
    var sums = vec4<f32>(0.0);
    for (var i = first + lane; i < last; i += LANES) {
        let value = gradient[i];
        let wrong = is_not_finite(value);
        let size = select(abs(value), 0.0, wrong);
        let large = size > LARGE;
        let usual = select(size, 0.0, large);
        let shrunk = select(0.0, size * SHRINK, large);
        sums += vec4<f32>(usual * usual, shrunk * shrunk, select(0.0, 1.0, wrong), 0.0);
    }
    sums = lanes_sum4(sums, lane, LANES);
    if lane == 0u && split < params.splits {
        let usual = sqrt(sums.x);
        // Shrunk before it is squared: a compiler may fold SHRINK * SHRINK, which no f32 holds.
        let shrunk = usual * SHRINK;
        let large = min(sqrt(sums.y + shrunk * shrunk), 2.8e14) * GROW;
        partials[2u * split] = select(usual, large, sums.y > 0.0);
        partials[2u * split + 1u] = sums.z;
    }
    let slot = params.splits + lane;
    if split == 0u && slot < (params.splits + 31u) / 32u * 32u {
        partials[2u * slot] = 0.0;
        partials[2u * slot + 1u] = 0.0;
    }
}

@compute @workgroup_size(256)
fn combine(@builtin(local_invocation_index) lane: u32) {
    var largest = 0.0;
    var wrong = 0.0;
    for (var part = lane; part < params.parts; part += LANES) {
        largest = max(largest, parts[2u * part]);
        wrong += parts[2u * part + 1u];
    }
    largest = lanes_max(largest, lane, LANES);
    // Scaled by the largest, so that no square leaves the floats. No division: WGSL promises one only by up to 2^126, and NVIDIA's gives 0
    // beyond.
    let is_large = largest > LARGE;
    let is_small = largest < SMALL;
    let factor = select(select(1.0, GROW, is_small), SHRINK, is_large);
    var squares = 0.0;
    for (var part = lane; part < params.parts; part += LANES) {
        let scaled = parts[2u * part] * factor;
        squares += scaled * scaled;
    }
    let sums = lanes_sum4(vec4<f32>(squares, wrong, 0.0, 0.0), lane, LANES);
    if lane == 0u {
        // Kept at what every device takes as a float.
        let root = sqrt(sums.x);
        let total = select(select(root, root * SHRINK, is_small), min(root, 2.8124148e14) * GROW, is_large);
        let clips = params.max_norm > 0.0 && total > params.max_norm;
        control[0] = select(1.0, params.max_norm / max(total, 1e-30), clips);
        let refused = control[3];
        let is_void = params.update > 0u && refused > 0.0 && refused == f32((params.update - 1u) % NUMBERS);
        let is_finite = sums.y == 0.0;
        control[1] = select(0.0, 1.0, is_finite && !is_void);
        control[2] = total;
        control[3] = select(f32(params.update % NUMBERS), 0.0, is_finite || is_void);
    }
}

@compute @workgroup_size(256)
fn scale(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 256u);
    if i < params.len {
        clipped[i] *= factors[0];
    }
}

@compute @workgroup_size(256)
fn unscale(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 256u);
    if i < params.len {
        unscaled[i] *= params.factor;
    }
}

@compute @workgroup_size(256)
fn values(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 256u);
    if i < params.len {
        bounded[i] = clamp(bounded[i], -params.max_norm, params.max_norm);
    }
}
