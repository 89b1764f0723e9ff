// Adagrad, as Keras 3 defines it: steps divided by the root of the sum of all squared gradients.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     accumulator = accumulator + g * g
//     parameter   = w - learning_rate * g / sqrt(accumulator + epsilon)
//
// Source    Duchi, Hazan, Singer 2011, JMLR 12; Keras 3, keras/src/optimizers/adagrad.py: epsilon under the root.
// Shapes    gradient, parameter, accumulator [len]; control [4] as clip.wgsl writes it. Nothing if control[1] is 0.
// Grid      an invocation for each four elements.
// Accuracy  within 5e-6 of the twin, relative to 1 + |w|.
// Twin      src/kernels/adagrad.rs, fn update_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    epsilon: f32,
    weight_decay: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> accumulator: array<vec4<f32>>;

@compute @workgroup_size(64)
fn update(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    // Read before the branch, where all invocations are known to read the same: CPUs then load it once.
    let scale = control[0];
    let applies = control[1];
    if 4u * i >= params.len || applies == 0.0 {
        return;
    }
    let behind = behind_end(i, params.len);
    let g = gradient[i] * scale;
    let old_w = parameter[i];
    let w = old_w - old_w * (params.weight_decay * params.learning_rate);
    let old_sum = accumulator[i];
    let sum = old_sum + g * g;
    accumulator[i] = select(sum, old_sum, behind);
    parameter[i] = select(w - params.learning_rate * g / sqrt(sum + params.epsilon), old_w, behind);
}
