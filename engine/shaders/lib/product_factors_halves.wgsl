// Factors that become 16-bit floats in workgroup memory: the device rounds them there, to the nearest, half to even. By bits, as in
// lib/product_factors.wgsl, it would take as many instructions as multiplying. WGSL leaves the way of rounding to the device; one
// that rounds otherwise differs from the twin, and gets another tile.

override HALF_FACTORS: u32 = 1u;

fn rounded(factor: f32) -> f32 {
    return factor;
}
