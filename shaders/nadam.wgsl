// Nadam: Adam with Nesterov momentum, as Keras 3 defines it.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     momentum  = momentum + (g - momentum) * (1 - beta_1)
//     velocity  = velocity + (g * g - velocity) * (1 - beta_2)
//     mean      = momentum_factor * momentum + gradient_factor * g
//     parameter = w - learning_rate * mean / (sqrt(velocity / correction_2) + epsilon)
//
// Source    Dozat 2016, "Incorporating Nesterov momentum into Adam", with the schedule u_t = beta_1 (1 - 0.96^t / 2);
//           Keras 3, keras/src/optimizers/nadam.py.
// Shapes    gradient, parameter, momentum, velocity [len]; control [4] as clip.wgsl writes it. Nothing if
//           control[1] is 0. With U_t the product of u_1 to u_t, the host gives momentum_factor =
//           u_(t+1) / (1 - U_(t+1)), gradient_factor = (1 - u_t) / (1 - U_t) and correction_2 = 1 - beta_2^t.
// Grid      an invocation for each four elements.
// Accuracy  within 5e-6 of the twin, relative to 1 + |w|.
// Twin      src/kernels/nadam.rs, fn update_twin.
// Uses      lib/grid.wgsl

struct Params {
    len: u32,
    learning_rate: f32,
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    momentum_factor: f32,
    gradient_factor: f32,
    correction_2: f32,
    weight_decay: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> momentum: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> velocity: array<vec4<f32>>;

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
    let old_m = momentum[i];
    let old_v = velocity[i];
    let m = old_m + (g - old_m) * (1.0 - params.beta_1);
    let v = old_v + (g * g - old_v) * (1.0 - params.beta_2);
    let mean = params.momentum_factor * m + params.gradient_factor * g;
    let change = params.learning_rate * mean / (sqrt(v / params.correction_2) + params.epsilon);
    momentum[i] = select(m, old_m, behind);
    velocity[i] = select(v, old_v, behind);
    parameter[i] = select(w - change, old_w, behind);
}
