// One step of recurrent cells, forward and backward: what stands between the products with the weights.
//
//     LSTM    i, f, o = gate(z_i), gate(z_f), gate(z_o);  g = activate(z_g);  c = f c' + i g;  h = o activate(c)
//     GRU     z, r = gate(x_z + p_z), gate(x_r + p_r);  g = activate(x_g + r p_g);  h = z h' + (1 - z) g
//     simple  h = activate(z)
//
// with z = x + p, x the input's product, p the product of the state h' before the step, each with its bias. Where the mask is
// 0, state and cell stay as they were.
//
// Source    Hochreiter, Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735; Cho et al. 2014, arXiv:1406.1078, reset after the
//           product; gates in the order of Keras 3.
// Shapes    gates [rows, steps, width]: LSTM 4 units (i, f, g, o), GRU 6 units (z, r, g, then what reset multiplies; backward:
//           gradients of x, then of p), simple units. cells, states, before [rows, steps, units]: those before each step (simple's
//           backward: the state after it). mask, known [rows, steps]. part [rows, 4, 3 or 1 units]: p of this step; backward [rows, units]: the gradient that the next
//           step's products give to its state. state, carried_h, carried_c [rows, units]. bias: LSTM [4 units], GRU
//           [2, 3 units], simple [units]. y, dy: rows of y_stride elements, of which those from y_offset on are this step's, and
//           those from cell_offset on the LSTM's cell after it.
// Grid      an invocation for each row and unit.
// Accuracy  within 5e-6 of the twin, relative to 1 + |y|.
// Twin      src/kernels/recurrent/twins.rs
// Uses      lib/grid.wgsl, lib/activation.wgsl, lib/gates.wgsl

struct Params {
    rows: u32,
    units: u32,
    steps: u32,
    at: u32,
    next: u32,
    is_first: u32,
    y_offset: u32,
    y_stride: u32,
    cell_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> part: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> mask: array<f32>;
@group(0) @binding(4) var<storage, read_write> gates: array<f32>;
@group(0) @binding(5) var<storage, read_write> states: array<f32>;
@group(0) @binding(6) var<storage, read_write> state: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;
@group(0) @binding(8) var<storage, read_write> cells: array<f32>;

@group(0) @binding(1) var<storage, read> d_part: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read> known: array<f32>;
@group(0) @binding(4) var<storage, read> before: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_gates: array<f32>;
@group(0) @binding(6) var<storage, read_write> carried_h: array<f32>;
@group(0) @binding(7) var<storage, read_write> carried_c: array<f32>;

// The product of the state; the first step has none.
fn part_of(i: u32) -> f32 {
    if params.is_first != 0u {
        return 0.0;
    }
    return part[i];
}

// The state before the step.
fn state_before(i: u32) -> f32 {
    if params.is_first != 0u {
        return 0.0;
    }
    return state[i];
}

// Writes the state after the step to all who want it.
fn leave(row: u32, unit: u32, h: f32, is_counted: bool) {
    state[row * params.units + unit] = h;
    if params.is_first != 0u {
        states[place(row, unit, params.at)] = 0.0;
    }
    if params.next != NONE {
        states[place(row, unit, params.next)] = h;
    }
    leave_output(row, unit, params.y_offset, h, is_counted);
}

@compute @workgroup_size(64)
fn forward_lstm(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = element_index(workgroup, workgroups, lane, 64u);
    let n = params.units;
    if item >= params.rows * n {
        return;
    }
    let row = item / n;
    let unit = item % n;
    let at = (row * params.steps + params.at) * 4u * n + unit;
    let p = row * 4u * n + unit;
    let products = vec4<f32>(part_of(p), part_of(p + n), part_of(p + 2u * n), part_of(p + 3u * n));
    let all = lstm_gates(at, unit, products);
    let here = place(row, unit, params.at);
    var c_before = 0.0;
    if params.is_first != 0u {
        cells[here] = 0.0;
    } else {
        c_before = cells[here];
    }
    var c = all.y * c_before + all.x * all.z;
    var h = all.w * activate(c);
    let is_counted = counts(row, params.at);
    if !is_counted {
        c = c_before;
        h = state_before(item);
    }
    if params.next != NONE {
        cells[place(row, unit, params.next)] = c;
    }
    leave_cell(row, unit, c);
    leave(row, unit, h, is_counted);
}

@compute @workgroup_size(64)
fn forward_gru(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = element_index(workgroup, workgroups, lane, 64u);
    let n = params.units;
    if item >= params.rows * n {
        return;
    }
    let row = item / n;
    let unit = item % n;
    let at = (row * params.steps + params.at) * 6u * n + unit;
    let p = row * 3u * n + unit;
    let h_before = state_before(item);
    let h = gru_state(at, unit, vec3<f32>(part_of(p), part_of(p + n), part_of(p + 2u * n)), h_before);
    let is_counted = counts(row, params.at);
    leave(row, unit, select(h_before, h, is_counted), is_counted);
}

@compute @workgroup_size(64)
fn forward_simple(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = element_index(workgroup, workgroups, lane, 64u);
    if item >= params.rows * params.units {
        return;
    }
    let row = item / params.units;
    let unit = item % params.units;
    let at = place(row, unit, params.at);
    let h = activate(gates[at] + part_of(item) + bias_of(unit));
    gates[at] = h;
    let is_counted = counts(row, params.at);
    leave(row, unit, select(state_before(item), h, is_counted), is_counted);
}

// The gradient of the state after the step.
fn d_state(item: u32, row: u32, unit: u32) -> f32 {
    var sum = 0.0;
    if params.next != NONE {
        sum = d_part[item] + carried_h[item];
    }
    return with_output_slope(sum, row, unit, params.at, params.y_offset);
}

@compute @workgroup_size(64)
fn backward_lstm(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = element_index(workgroup, workgroups, lane, 64u);
    let n = params.units;
    if item >= params.rows * n {
        return;
    }
    let row = item / n;
    let unit = item % n;
    let at = (row * params.steps + params.at) * 4u * n + unit;
    let dh = d_state(item, row, unit);
    var d_after = 0.0;
    if params.next != NONE {
        d_after = carried_c[item];
    }
    _ = lstm_slopes(at, item, place(row, unit, params.at), dh, d_after, known_counts(row, params.at));
}

@compute @workgroup_size(64)
fn backward_gru(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = element_index(workgroup, workgroups, lane, 64u);
    let n = params.units;
    if item >= params.rows * n {
        return;
    }
    let row = item / n;
    let unit = item % n;
    let at = (row * params.steps + params.at) * 6u * n + unit;
    let dh = d_state(item, row, unit);
    _ = gru_slopes(at, item, place(row, unit, params.at), dh, known_counts(row, params.at));
}

@compute @workgroup_size(64)
fn backward_simple(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = element_index(workgroup, workgroups, lane, 64u);
    if item >= params.rows * params.units {
        return;
    }
    let row = item / params.units;
    let unit = item % params.units;
    let at = place(row, unit, params.at);
    let dh = d_state(item, row, unit);
    let is_counted = known_counts(row, params.at);
    d_gates[at] = select(0.0, dh * activation_slope_from_output(before[at]), is_counted);
    carried_h[item] = select(dh, 0.0, is_counted);
}
