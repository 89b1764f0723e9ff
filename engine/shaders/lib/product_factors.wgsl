// Rounding of a product's factors to 16-bit floats, to the nearest, half to even: for `precision = "mixed_float16"`.
//
// By bits, so that every adapter rounds alike: `quantizeToF16` may take values below 2^-14 for 0, leaves those
// above 65504 to the device, and is missing on some. Such a float has 10 bits behind the leading one, below 2^-14 it is
// a multiple of 2^-24, and from 65520 on it is infinite. What is not a number stays so.

override HALF_FACTORS: u32 = 0u;

fn rounded(factor: f32) -> f32 {
    if (HALF_FACTORS == 0u) { return factor; }
    let bits = bitcast<u32>(factor);
    let size = bits & 0x7fffffffu;
    let even = 0xfffu + ((size >> 13u) & 1u);
    let usual = (size + even) & 0xffffe000u;
    let small = bitcast<u32>(round(bitcast<f32>(size) * 16777216.0) * 5.9604644775390625e-8);
    let finite = select(usual, small, size < 0x38800000u);
    let large = select(0x7f800000u, size, size > 0x7f800000u);
    let result = select(finite, large, size >= 0x477ff000u);
    return bitcast<f32>(result | (bits & 0x80000000u));
}
