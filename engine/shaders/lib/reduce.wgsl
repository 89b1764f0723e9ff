// Sum and maximum over aligned groups of `width` lanes of a workgroup of at most 256 invocations.
//
// Every lane gets the result. The order of the additions is that of a butterfly, a + b = b + a at each
// stage, so all lanes hold the same bits, and no lane writes alone before a read of all (wgpu#4500, #3181).
// Two stages at a time, for half the barriers. Call in uniform control flow; `width` is a power of four, the
// same in all lanes, and divides the workgroup.

var<workgroup> lane_values: array<f32, 256>;
var<workgroup> lane_vectors: array<vec4<f32>, 256>;

fn lanes_sum(value: f32, lane: u32, width: u32) -> f32 {
    var sum = value;
    for (var stride = width / 4u; stride > 0u; stride /= 4u) {
        workgroupBarrier();
        lane_values[lane] = sum;
        workgroupBarrier();
        sum = (sum + lane_values[lane ^ (2u * stride)]) + (lane_values[lane ^ stride] + lane_values[lane ^ (3u * stride)]);
    }
    return sum;
}

fn lanes_max(value: f32, lane: u32, width: u32) -> f32 {
    var largest = value;
    for (var stride = width / 4u; stride > 0u; stride /= 4u) {
        workgroupBarrier();
        lane_values[lane] = largest;
        workgroupBarrier();
        let others = max(lane_values[lane ^ stride], lane_values[lane ^ (3u * stride)]);
        largest = max(max(largest, lane_values[lane ^ (2u * stride)]), others);
    }
    return largest;
}

// Four sums at once, for the barriers of one.
fn lanes_sum4(value: vec4<f32>, lane: u32, width: u32) -> vec4<f32> {
    var sum = value;
    for (var stride = width / 4u; stride > 0u; stride /= 4u) {
        workgroupBarrier();
        lane_vectors[lane] = sum;
        workgroupBarrier();
        sum = (sum + lane_vectors[lane ^ (2u * stride)]) + (lane_vectors[lane ^ stride] + lane_vectors[lane ^ (3u * stride)]);
    }
    return sum;
}
