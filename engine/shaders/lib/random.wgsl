// Counter-based random numbers: the number of (seed, step, node, row, element), wherever and whenever it is asked for.
//
// Source    pcg4d of Jarzynski, Olano 2020, Hash Functions for GPU Rendering, JCGT 9(3): passes BigCrush.
// Twin      src/kernels/random.rs, the same bits: only u32 arithmetic, which wraps everywhere.

fn pcg4d(counter: vec4<u32>) -> vec4<u32> {
    var v = counter * 1664525u + 1013904223u;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    v = v ^ (v >> vec4<u32>(16u));
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}

// Key of one row's numbers.
fn random_row(seed: u32, step: u32, node: u32, row: u32) -> vec3<u32> {
    return pcg4d(vec4<u32>(seed, step, node, row)).xyz;
}

// The row's number of an element, uniform in [0, 1): a multiple of 2^-24, exact in f32. Four elements share a hash.
fn random_unit(key: vec3<u32>, element: u32) -> f32 {
    let bits = pcg4d(vec4<u32>(key, element / 4u));
    return f32(bits[element % 4u] >> 8u) * 5.9604644775390625e-8;
}
