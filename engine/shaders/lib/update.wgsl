// The frame of an optimizer's update: all that optimizers share, around the formula of each.
//
//     g = gradient * control[0];  w = parameter * (1 - weight_decay * learning_rate)
//     parameter = formula(i, parameter, w, g), and nothing at all if control[1] is 0
//
// An invocation takes the four elements of vector i. The kernel's own text declares `Params`, which begins with len,
// learning_rate and weight_decay, its states, from binding 4 on, and `formula`, which gives the parameter after the step and
// writes the states, each through `up_to_end`.

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> control: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameter: array<vec4<f32>>;

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
    let old_w = parameter[i];
    let w = old_w - old_w * (params.weight_decay * params.learning_rate);
    parameter[i] = up_to_end(i, formula(i, old_w, w, gradient[i] * scale), old_w);
}

// The new values of vector i, but the old ones behind the end.
fn up_to_end(i: u32, new_values: vec4<f32>, old_values: vec4<f32>) -> vec4<f32> {
    return select(new_values, old_values, behind_end(i, params.len));
}
