// What an adapter can do at best: copying its memory, and fused multiply-adds in registers.
//
//     y[i] = x[i]                                                        (copy, 16 elements an invocation)
//     a_j = fma(a_j, m, c), rounds * 4 times for each of 12 chains j     (chains)
//     y[i] = Σ a_j
//
// Twelve chains, since a core starts two a cycle and has a result after four or five; with `m` and `c` they just
// fit the sixteen vector registers of a CPU. `m` and `c` come from memory, so that no compiler computes ahead.
//
// Source    ours.
// Shapes    x, y [len]; of `chains`, factors [2], y [len].
// Grid      copy: an invocation for each 16 elements; chains: one for each element.
// Twin      src/machine.rs, fn copy_twin, chains_twin.

struct Params {
    len: u32,
    rounds: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@group(0) @binding(1) var<storage, read> factors: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(64)
fn copy(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Vectors of a workgroup are neighbours, and all four loads of an invocation are on their way at once.
    let i = 256u * item_index(workgroup, workgroups) + lane;
    if i < params.len / 4u {
        let a = x[i];
        let b = x[i + 64u];
        let c = x[i + 128u];
        let d = x[i + 192u];
        y[i] = a;
        y[i + 64u] = b;
        y[i + 128u] = c;
        y[i + 192u] = d;
    }
}

@compute @workgroup_size(64)
fn chains(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    if i >= params.len {
        return;
    }
    let m = vec4<f32>(factors[0]);
    let c = vec4<f32>(factors[1]);
    let start = f32(i % 64u);
    var a = vec4<f32>(start, start + 1.0, start + 2.0, start + 3.0);
    var b = a + 4.0;
    var d = a + 8.0;
    for (var round = 0u; round < params.rounds; round++) {
        a = fma(a, m, c);
        b = fma(b, m, c);
        d = fma(d, m, c);
        a = fma(a, m, c);
        b = fma(b, m, c);
        d = fma(d, m, c);
        a = fma(a, m, c);
        b = fma(b, m, c);
        d = fma(d, m, c);
        a = fma(a, m, c);
        b = fma(b, m, c);
        d = fma(d, m, c);
    }
    let all = a + b + d;
    sums[i] = all.x + all.y + all.z + all.w;
}
