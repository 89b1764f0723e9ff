// Stochastic gradient descent with momentum, as Keras 3 defines it.
//
//     g = gradient * control[0] + l2_decay * parameter
//     w = parameter * (1 - weight_decay * learning_rate)
//     velocity  = momentum * velocity - learning_rate * g
//     parameter = w + velocity                                         (NESTEROV = 0)
//     parameter = w + momentum * velocity - learning_rate * g          (NESTEROV = 1)
//
// Source    Keras 3, keras/src/optimizers/sgd.py and base_optimizer.py (_apply_weight_decay); l2_decay:
//           PyTorch 2, torch.optim.SGD, weight_decay.
// Shapes    gradient, parameter, velocity [len]; control [4] as clip.wgsl writes it. Nothing if control[1] is 0.
// Grid      an invocation for each four elements.
// Accuracy  a few roundings: within 2e-6 of the twin, relative to 1 + |w|.
// Twin      src/kernels/sgd.rs, fn update_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    momentum: f32,
    weight_decay: f32,
    l2_decay: f32,
}

override NESTEROV: u32 = 0u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> velocity: array<vec4<f32>>;

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
    let old_w = parameter[i];
    let old_v = velocity[i];
    let step = params.learning_rate * (gradient[i] * scale + params.l2_decay * old_w);
    let w = old_w - old_w * (params.weight_decay * params.learning_rate);
    let v = params.momentum * old_v - step;
    velocity[i] = select(v, old_v, behind);
    parameter[i] = select(w + select(v, params.momentum * v - step, NESTEROV == 1u), old_w, behind);
}
