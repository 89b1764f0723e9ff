// Two tensors element by element, each stretched along axes that it lacks, and the gradient of one of them.
//
//     y[i]   = scale * op(a[..], b[..])                                     (forward)
//     d_x[j] = scale * sum over the axes that x lacks of dy[..] * op'(x[j], z[..])     (backward)
//     op     0 a + b, 1 a - b, 2 a * b, 3 max(a, b), 4 min(a, b), 5 a > 0 ? a : a * b, 6 a / d, 7 a * d
//            with the deviation d = max(sqrt(b), 1e-7) of a variance b
//     op'    by x, which is a for OPERAND 0 and b for OPERAND 1; z is the other. Where a = b, the gradient of a maximum
//            or minimum goes half to each; that of op 5 at a = 0 is 0; ops 6 and 7 have none by b.
//     A NaN goes through all of them.
//
// Source    Keras 3 Add, Subtract, Multiply, Maximum, Minimum, PReLU, Normalization on JAX; broadcasting as in NumPy.
// Shapes    y, dy [rows, size_5, .., size_1]. An operand has its element of (row, c5, .., c1) at row * _rows + c5 * _5
//           + .. + c1 * _1, with 0 for axes that it lacks. d_x [rows, size_5, .., size_1], with sums over count_5 .. count_1:
//           an axis has a size or a count, and the other is 1. x is at row * x_rows + (j in its row). Only the first AXES
//           axes are used; with AXES 0 all tensors are alike.
// Grid      an invocation for each element of the result.
// Accuracy  an element one or two roundings; a sum within 5e-6 of the twin, relative to 1 + |d_x|.
// Twin      src/kernels/merge.rs, fn forward_twin, backward_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    size_1: u32,
    size_2: u32,
    size_3: u32,
    size_4: u32,
    size_5: u32,
    count_1: u32,
    count_2: u32,
    count_3: u32,
    count_4: u32,
    count_5: u32,
    a_1: u32,
    a_2: u32,
    a_3: u32,
    a_4: u32,
    a_5: u32,
    a_rows: u32,
    b_1: u32,
    b_2: u32,
    b_3: u32,
    b_4: u32,
    b_5: u32,
    b_rows: u32,
    x_rows: u32,
    scale: f32,
}

override OPERATION: u32 = 0u;
override OPERAND: u32 = 0u;
override AXES: u32 = 5u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

// Backward reads dy by the strides of a, z by those of b.
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> z: array<f32>;
@group(0) @binding(3) var<storage, read> dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_x: array<f32>;

// Where a sum over what x lacks begins in both operands, and the row and the place in it.
struct Place {
    a: u32,
    b: u32,
    row: u32,
}

fn place_of(i: u32) -> Place {
    var rest = i;
    var place = Place(0u, 0u, 0u);
    place.a += (rest % params.size_1) * params.a_1;
    place.b += (rest % params.size_1) * params.b_1;
    rest /= params.size_1;
    if AXES > 1u {
        place.a += (rest % params.size_2) * params.a_2;
        place.b += (rest % params.size_2) * params.b_2;
        rest /= params.size_2;
    }
    if AXES > 2u {
        place.a += (rest % params.size_3) * params.a_3;
        place.b += (rest % params.size_3) * params.b_3;
        rest /= params.size_3;
    }
    if AXES > 3u {
        place.a += (rest % params.size_4) * params.a_4;
        place.b += (rest % params.size_4) * params.b_4;
        rest /= params.size_4;
    }
    if AXES > 4u {
        place.a += (rest % params.size_5) * params.a_5;
        place.b += (rest % params.size_5) * params.b_5;
        rest /= params.size_5;
    }
    place.a += rest * params.a_rows;
    place.b += rest * params.b_rows;
    place.row = rest;
    return place;
}

// By bits: compilers fold x != x to false.
fn is_no_number(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
}

fn deviation(variance: f32) -> f32 {
    return select(max(sqrt(max(variance, 0.0)), 1e-7), variance, is_no_number(variance));
}

fn merged(left: f32, right: f32) -> f32 {
    switch OPERATION {
        case 0u: { return left + right; }
        case 1u: { return left - right; }
        case 2u: { return left * right; }
        case 3u: { return select(select(right, left, left >= right), left, is_no_number(left)); }
        case 4u: { return select(select(right, left, left <= right), left, is_no_number(left)); }
        case 5u: { return select(left, left * right, left <= 0.0); }
        case 6u: { return left / deviation(right); }
        default: { return left * deviation(right); }
    }
}

// op' by `own`, one of the operands.
fn slope(own: f32, other: f32) -> f32 {
    switch OPERATION {
        case 0u: { return 1.0; }
        case 1u: { return select(1.0, -1.0, OPERAND == 1u); }
        case 2u: { return other; }
        case 3u: { return select(select(0.0, 0.5, own == other), 1.0, own > other); }
        case 4u: { return select(select(0.0, 0.5, own == other), 1.0, own < other); }
        case 5u: {
            if OPERAND == 1u {
                return select(0.0, other, other < 0.0);
            }
            return select(select(0.0, other, own < 0.0), 1.0, own > 0.0);
        }
        case 6u: { return select(1.0 / deviation(other), 0.0, OPERAND == 1u); }
        default: { return select(deviation(other), 0.0, OPERAND == 1u); }
    }
}

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
    if AXES == 0u {
        y[i] = params.scale * merged(a[i], b[i]);
        return;
    }
    let place = place_of(i);
    y[i] = params.scale * merged(a[place.a], b[place.b]);
}

@compute @workgroup_size(64)
fn backward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let j = element_index(workgroup, workgroups, lane, 64u);
    if j >= params.len {
        return;
    }
    if AXES == 0u {
        d_x[j] = params.scale * dy[j] * slope(x[j], z[j]);
        return;
    }
    let place = place_of(j);
    let row_len = params.size_1 * params.size_2 * params.size_3 * params.size_4 * params.size_5;
    let own = x[place.row * params.x_rows + j % row_len];
    var sum = 0.0;
    for (var c5 = 0u; c5 < params.count_5; c5 += 1u) {
        for (var c4 = 0u; c4 < params.count_4; c4 += 1u) {
            for (var c3 = 0u; c3 < params.count_3; c3 += 1u) {
                let outer_a = place.a + c5 * params.a_5 + c4 * params.a_4 + c3 * params.a_3;
                let outer_b = place.b + c5 * params.b_5 + c4 * params.b_4 + c3 * params.b_3;
                for (var c2 = 0u; c2 < params.count_2; c2 += 1u) {
                    var from_a = outer_a + c2 * params.a_2;
                    var from_b = outer_b + c2 * params.b_2;
                    for (var c1 = 0u; c1 < params.count_1; c1 += 1u) {
                        sum += dy[from_a] * slope(own, z[from_b]);
                        from_a += params.a_1;
                        from_b += params.b_1;
                    }
                }
            }
        }
    }
    d_x[j] = params.scale * sum;
}
