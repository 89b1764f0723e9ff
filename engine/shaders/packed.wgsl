// Floats of packed weights: of a part of a matrix, and of rows of a table by their index.
//
//     y[l line_stride + i value_stride] = scale q + minimum of value i of line l       (unpack)
//     y[p] = scale q + minimum of row ids[p] of a table                                (gather)
//
// Source    blocks of Q8_0, Q4_0 and Q4_1 as in GGUF files: ggml-quants.c of llama.cpp. Only Q4_1 has minima.
// Shapes    packed: lines of `line_blocks` blocks of 32 values without gaps, BITS + SCALES / 2 bits a value: a scale of 16 bits,
//           perhaps a minimum of 16 bits, then the numbers q. A part: `lines` lines from `first_line` on, of each `blocks` blocks from `first_block` on. ids [positions];
//           y of gather [positions, 32 line_blocks]: of the `lines` rows from `first_line` on of a table of `vocabulary` rows.
// Grid      an invocation for each block of the part, or of y.
// Accuracy  exact: a product of 11 and 8 bits; with a minimum, rounded once.
// Twin      src/kernels/packed.rs, fn unpack_twin, gather_twin.
// Uses      lib/grid.wgsl

struct Params {
    line_blocks: u32,
    first_line: u32,
    lines: u32,
    first_block: u32,
    blocks: u32,
    line_stride: u32,
    value_stride: u32,
    positions: u32,
    vocabulary: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> packed: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@group(0) @binding(2) var<storage, read> ids: array<f32>;
@group(0) @binding(3) var<storage, read_write> rows: array<f32>;

// Bits of a number: 8 or 4.
override BITS: u32 = 8u;
// Floats of 16 bits before the numbers of a block: the scale, and perhaps the minimum.
override SCALES: u32 = 1u;

const BLOCK: u32 = 32u;

// Two bytes, from an even place on.
fn two_bytes(place: u32) -> u32 {
    return (packed[place / 4u] >> (8u * (place & 2u))) & 0xffffu;
}

// The float of 16 bits from an even byte on. Devices may take subnormal halves for 0, so integers decode them.
fn half_at(place: u32) -> f32 {
    let bits = two_bytes(place);
    let size = bits & 0x7fffu;
    let normal = bitcast<f32>((size << 13u) + 0x38000000u);
    let subnormal = f32(size) * 5.9604644775390625e-8;
    let value = select(normal, subnormal, size < 0x400u);
    return select(value, -value, bits >= 0x8000u);
}

// First byte of a block.
fn place_of(block: u32) -> u32 {
    return block * (2u * SCALES + 4u * BITS);
}

// Numbers `k` and `k + 1` of the block from byte `place` on; of 4 bits also `k + 16` and `k + 17`, in the same two bytes.
fn numbers_of(place: u32, k: u32) -> vec4<f32> {
    let two = two_bytes(place + 2u * SCALES + k);
    if BITS == 8u {
        let numbers = bitcast<vec2<i32>>(vec2<u32>(two << 24u, two << 16u)) >> vec2<u32>(24u);
        return vec4<f32>(vec2<f32>(numbers), 0.0, 0.0);
    }
    let numbers = (vec4<u32>(two) >> vec4<u32>(0u, 8u, 4u, 12u)) & vec4<u32>(15u);
    return vec4<f32>(numbers) - select(8.0, 0.0, SCALES == 2u);
}

// Values of the same places.
fn values_of(place: u32, scale: f32, minimum: f32, k: u32) -> vec4<f32> {
    let products = scale * numbers_of(place, k);
    // A minimum of 0 would change the sign of a 0.
    if SCALES == 2u {
        return products + minimum;
    }
    return products;
}

// The minimum of a block, if it has one.
fn minimum_of(place: u32) -> f32 {
    if SCALES == 2u {
        return half_at(place + 2u);
    }
    return 0.0;
}

@compute @workgroup_size(64)
fn unpack(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.lines * params.blocks {
        return;
    }
    // Neighbours write neighbours where values of a line are not side by side.
    let across = params.line_stride == 1u;
    let line = select(i / params.blocks, i % params.lines, across);
    let block = select(i % params.blocks, i / params.lines, across);
    let place = place_of((params.first_line + line) * params.line_blocks + params.first_block + block);
    let scale = half_at(place);
    let minimum = minimum_of(place);
    var at = line * params.line_stride + block * BLOCK * params.value_stride;
    let upper = 16u * params.value_stride;
    for (var k = 0u; k < 4u * BITS; k += 2u) {
        let values = values_of(place, scale, minimum, k);
        y[at] = values.x;
        y[at + params.value_stride] = values.y;
        if BITS == 4u {
            y[at + upper] = values.z;
            y[at + upper + params.value_stride] = values.w;
        }
        at += 2u * params.value_stride;
    }
}

@compute @workgroup_size(64)
fn gather(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.positions * params.line_blocks {
        return;
    }
    // Data are checked before a run; this only keeps a wrong index in bounds. It wraps around below the first row.
    let id = min(u32(max(ids[i / params.line_blocks], 0.0)), params.vocabulary - 1u);
    let row = id - params.first_line;
    if row >= params.lines {
        return;
    }
    let place = place_of(row * params.line_blocks + i % params.line_blocks);
    let scale = half_at(place);
    let minimum = minimum_of(place);
    let at = BLOCK * i;
    for (var k = 0u; k < 4u * BITS; k += 2u) {
        let values = values_of(place, scale, minimum, k);
        rows[at + k] = values.x;
        rows[at + k + 1u] = values.y;
        if BITS == 4u {
            rows[at + k + 16u] = values.z;
            rows[at + k + 17u] = values.w;
        }
    }
}
