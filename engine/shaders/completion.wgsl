// The last dispatch of a submission: one more is counted, since a driver may drop a submission and say nothing.
//
//     marker[0] = (marker[0] + 1) mod 2^23
//
// Source    ours. Below 2^23 every count is a float of its own.
// Shapes    marker [1].
// Grid      one invocation.
// Accuracy  exact.
// Twin      src/kernels/completion.rs, fn count_twin.
// Uses      nothing

@group(0) @binding(1) var<storage, read_write> marker: array<f32>;

@compute @workgroup_size(64)
fn count(@builtin(global_invocation_id) invocation: vec3<u32>) {
    if invocation.x == 0u {
        let next = marker[0] + 1.0;
        marker[0] = select(0.0, next, next < 8388608.0);
    }
}
