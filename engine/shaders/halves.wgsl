// Values as 16-bit floats, two in a word, with a factor for each block of 64: half the bytes on the way to the host.
//
//     factor[b] = 2^(e - 14), where 2^e <= largest |x| of block b < 2^(e + 1)
//     halves[i] = x[i] / factor[b], rounded to 16 bits                          (pack)
//
// Source    ours; scaling by blocks as in Ott et al. 2019, arXiv:1806.00187, fp16 compression of gradients.
// Shapes    x [blocks, 64]; packed [blocks * 32 + blocks]: first the halves in pairs, the lower first, then the factors.
// Grid      an invocation for each block.
// Accuracy  a value above 2^-29 of its block's largest: within 2^-11 of itself, or 2^-10 where the device does not round to
//           the nearest; below, within 2^-39 of the largest. A block that holds Inf or NaN gets the factor NaN.
// Twin      src/kernels/halves.rs, fn pack_twin.
// Uses      lib/grid.wgsl

struct Params {
    blocks: u32,
}

const VECTORS: u32 = 16u;
const NOT_A_NUMBER: u32 = 0x7fc00000u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> packed: array<u32>;

@compute @workgroup_size(64)
fn pack(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = element_index(workgroup, workgroups, lane, 64u);
    if block >= params.blocks {
        return;
    }
    // Sizes compare as whole numbers, bits that say Inf or NaN above all others.
    var sizes = vec4<u32>(0u);
    for (var i = 0u; i < VECTORS; i++) {
        sizes = max(sizes, bitcast<vec4<u32>>(x[VECTORS * block + i]) & vec4<u32>(0x7fffffffu));
    }
    let exponent = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)) >> 23u;
    let is_wrong = exponent == 255u;
    // The factor's exponent, and that of 1 / factor: both of normal numbers.
    let factor = max(exponent, 15u) - 14u;
    let shrink = bitcast<f32>((254u - factor) << 23u);
    for (var i = 0u; i < VECTORS; i++) {
        let scaled = select(x[VECTORS * block + i] * shrink, vec4<f32>(0.0), is_wrong);
        packed[2u * (VECTORS * block + i)] = pack2x16float(scaled.xy);
        packed[2u * (VECTORS * block + i) + 1u] = pack2x16float(scaled.zw);
    }
    packed[2u * VECTORS * params.blocks + block] = select(factor << 23u, NOT_A_NUMBER, is_wrong);
}
