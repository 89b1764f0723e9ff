// Several steps of recurrent cells, forward and backward, with the products of the state: recurrent.wgsl has the formulas.
//
// A workgroup has 8 rows to itself and walks through the steps. The state before a step, or the gradients of the products of the
// step behind, are in workgroup memory. An invocation has four rows of a unit.
//
// Source    as recurrent.wgsl.
// Shapes    u [units, 4 or 3 units]: the weights of the state. gates, states, cells, before, state, carried_h, carried_c, bias,
//           mask and known are those of recurrent.wgsl. y, dy: rows of y_stride elements. The output of a step begins at
//           y_first + y_width times its place; a width of 0 leaves that of the last step alone. The LSTM's last cell begins at
//           cell_offset.
// Grid      a workgroup for 8 rows.
// Accuracy  within 2e-5 of the twin, relative to 1 + |y|, over 7 steps.
// Twin      src/kernels/recurrent_scan.rs, fn forward, backward.
// Uses      lib/grid.wgsl, lib/activation.wgsl, lib/gates.wgsl

struct Params {
    rows: u32,
    units: u32,
    steps: u32,
    first: u32,
    count: u32,
    go_backwards: u32,
    y_first: u32,
    y_width: u32,
    y_stride: u32,
    y_in_order: u32,
    is_given: u32,
    cell_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> u: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> mask: array<f32>;
@group(0) @binding(4) var<storage, read_write> gates: array<f32>;
@group(0) @binding(5) var<storage, read_write> states: array<f32>;
@group(0) @binding(6) var<storage, read_write> state: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;
@group(0) @binding(8) var<storage, read_write> cells: array<f32>;

@group(0) @binding(1) var<storage, read> u_fours: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read> known: array<f32>;
@group(0) @binding(4) var<storage, read> before: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_gates: array<f32>;
@group(0) @binding(6) var<storage, read_write> carried_h: array<f32>;
@group(0) @binding(7) var<storage, read_write> carried_c: array<f32>;

const INVOCATIONS: u32 = 128u;
// Rows of a workgroup: two vectors.
const ROWS: u32 = 8u;

// States of two steps, of up to 128 units; gradients of up to 512 products.
var<workgroup> kept_states: array<vec4<f32>, 512>;
var<workgroup> kept_slopes: array<vec4<f32>, 1024>;

// The place in the sequence of the step that is computed as `step`.
fn place_of(step: u32) -> u32 {
    return select(step, params.steps - 1u - step, params.go_backwards != 0u);
}

// Where the output of a step begins in its row; NONE if it is not wanted.
fn output_of(step: u32) -> u32 {
    if params.y_width == 0u {
        return select(NONE, params.y_first, step + 1u == params.steps);
    }
    return params.y_first + select(place_of(step), step, params.y_in_order != 0u) * params.y_width;
}

// Is nothing there before a step?
fn begins_with_zeros(step: u32) -> bool {
    return step == 0u && params.is_given == 0u;
}

// Is the gradient of the state after a step carried?
fn is_carried(step: u32) -> bool {
    return step + 1u < params.steps || params.is_given != 0u;
}

fn with_row(four: vec4<f32>, r: u32, value: f32) -> vec4<f32> {
    return select(four, vec4<f32>(value), vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(r));
}

// Four rows of a unit.
struct Item {
    unit: u32,
    half: u32,
    row: u32,
}

fn item_of(n: u32, first_row: u32) -> Item {
    let half = n / params.units;
    return Item(n % params.units, half, first_row + 4u * half);
}

// Four states, from a place of `kept_states` on.
fn take_states(lane: u32, first_row: u32) {
    for (var n = lane; n < 2u * params.units; n += INVOCATIONS) {
        let item = item_of(n, first_row);
        var four = vec4<f32>(0.0);
        for (var r = 0u; r < 4u; r += 1u) {
            if !begins_with_zeros(params.first) && item.row + r < params.rows {
                four = with_row(four, r, state[(item.row + r) * params.units + item.unit]);
            }
        }
        kept_states[2u * item.unit + item.half] = four;
    }
}

// Weights of a unit's products with one state, from those of the first gate on.
fn lstm_weights(at: u32) -> vec4<f32> {
    return vec4<f32>(u[at], u[at + params.units], u[at + 2u * params.units], u[at + 3u * params.units]);
}

fn gru_weights(at: u32) -> vec3<f32> {
    return vec3<f32>(u[at], u[at + params.units], u[at + 2u * params.units]);
}

// Writes the state after a step to all who want it.
fn leave(row: u32, unit: u32, step: u32, h: f32, is_counted: bool) {
    let at = place_of(step);
    if begins_with_zeros(step) {
        states[place(row, unit, at)] = 0.0;
    }
    if step + 1u < params.steps {
        states[place(row, unit, place_of(step + 1u))] = h;
    }
    if step + 1u == params.first + params.count {
        state[row * params.units + unit] = h;
    }
    leave_output(row, unit, output_of(step), h, is_counted);
}

// A row of a unit of the LSTM after its products with the state: the new state.
fn lstm_row(row: u32, unit: u32, step: u32, products: vec4<f32>, h_before: f32) -> f32 {
    let n = params.units;
    let at = place_of(step);
    let all = lstm_gates((row * params.steps + at) * 4u * n + unit, unit, products);
    let here = place(row, unit, at);
    var c_before = 0.0;
    if begins_with_zeros(step) {
        cells[here] = 0.0;
    } else {
        c_before = cells[here];
    }
    let is_counted = counts(row, at);
    let c = select(c_before, all.y * c_before + all.x * all.z, is_counted);
    let h = select(h_before, all.w * activate(c), is_counted);
    if step + 1u < params.steps {
        cells[place(row, unit, place_of(step + 1u))] = c;
    } else {
        leave_cell(row, unit, c);
    }
    leave(row, unit, step, h, is_counted);
    return h;
}

// As `lstm_row`, of the GRU.
fn gru_row(row: u32, unit: u32, step: u32, products: vec3<f32>, h_before: f32) -> f32 {
    let at = place_of(step);
    let counted = gru_state((row * params.steps + at) * 6u * params.units + unit, unit, products, h_before);
    let is_counted = counts(row, at);
    let h = select(h_before, counted, is_counted);
    leave(row, unit, step, h, is_counted);
    return h;
}

@compute @workgroup_size(INVOCATIONS)
fn forward_lstm(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first_row = item_index(workgroup, workgroups) * ROWS;
    if first_row >= params.rows {
        return;
    }
    take_states(lane, first_row);
    // The states before and after a step change places.
    var now = 0u;
    for (var step = params.first; step < params.first + params.count; step += 1u) {
        workgroupBarrier();
        for (var n = lane; n < 2u * params.units; n += INVOCATIONS) {
            let item = item_of(n, first_row);
            var i = vec4<f32>(0.0);
            var f = vec4<f32>(0.0);
            var g = vec4<f32>(0.0);
            var o = vec4<f32>(0.0);
            let apart = 4u * params.units;
            var from_u = item.unit;
            var k = now + item.half;
            // Four units at a time: their loads wait together.
            for (var block = params.units / 4u; block > 0u; block -= 1u) {
                let w0 = lstm_weights(from_u);
                let w1 = lstm_weights(from_u + apart);
                let w2 = lstm_weights(from_u + 2u * apart);
                let w3 = lstm_weights(from_u + 3u * apart);
                let h0 = kept_states[k];
                let h1 = kept_states[k + 2u];
                let h2 = kept_states[k + 4u];
                let h3 = kept_states[k + 6u];
                i += w0.x * h0; f += w0.y * h0; g += w0.z * h0; o += w0.w * h0;
                i += w1.x * h1; f += w1.y * h1; g += w1.z * h1; o += w1.w * h1;
                i += w2.x * h2; f += w2.y * h2; g += w2.z * h2; o += w2.w * h2;
                i += w3.x * h3; f += w3.y * h3; g += w3.z * h3; o += w3.w * h3;
                from_u += 4u * apart;
                k += 8u;
            }
            for (var rest = params.units % 4u; rest > 0u; rest -= 1u) {
                let w = lstm_weights(from_u);
                let h = kept_states[k];
                i += w.x * h; f += w.y * h; g += w.z * h; o += w.w * h;
                from_u += apart;
                k += 2u;
            }
            var after = kept_states[now + 2u * item.unit + item.half];
            for (var r = 0u; r < 4u; r += 1u) {
                if item.row + r < params.rows {
                    let products = vec4<f32>(i[r], f[r], g[r], o[r]);
                    after = with_row(after, r, lstm_row(item.row + r, item.unit, step, products, after[r]));
                }
            }
            kept_states[256u - now + 2u * item.unit + item.half] = after;
        }
        now = 256u - now;
    }
}

@compute @workgroup_size(INVOCATIONS)
fn forward_gru(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first_row = item_index(workgroup, workgroups) * ROWS;
    if first_row >= params.rows {
        return;
    }
    take_states(lane, first_row);
    var now = 0u;
    for (var step = params.first; step < params.first + params.count; step += 1u) {
        workgroupBarrier();
        for (var n = lane; n < 2u * params.units; n += INVOCATIONS) {
            let item = item_of(n, first_row);
            var z = vec4<f32>(0.0);
            var reset = vec4<f32>(0.0);
            var g = vec4<f32>(0.0);
            let apart = 3u * params.units;
            var from_u = item.unit;
            var k = now + item.half;
            for (var block = params.units / 4u; block > 0u; block -= 1u) {
                let w0 = gru_weights(from_u);
                let w1 = gru_weights(from_u + apart);
                let w2 = gru_weights(from_u + 2u * apart);
                let w3 = gru_weights(from_u + 3u * apart);
                let h0 = kept_states[k];
                let h1 = kept_states[k + 2u];
                let h2 = kept_states[k + 4u];
                let h3 = kept_states[k + 6u];
                z += w0.x * h0; reset += w0.y * h0; g += w0.z * h0;
                z += w1.x * h1; reset += w1.y * h1; g += w1.z * h1;
                z += w2.x * h2; reset += w2.y * h2; g += w2.z * h2;
                z += w3.x * h3; reset += w3.y * h3; g += w3.z * h3;
                from_u += 4u * apart;
                k += 8u;
            }
            for (var rest = params.units % 4u; rest > 0u; rest -= 1u) {
                let w = gru_weights(from_u);
                let h = kept_states[k];
                z += w.x * h; reset += w.y * h; g += w.z * h;
                from_u += apart;
                k += 2u;
            }
            var after = kept_states[now + 2u * item.unit + item.half];
            for (var r = 0u; r < 4u; r += 1u) {
                if item.row + r < params.rows {
                    let products = vec3<f32>(z[r], reset[r], g[r]);
                    after = with_row(after, r, gru_row(item.row + r, item.unit, step, products, after[r]));
                }
            }
            kept_states[256u - now + 2u * item.unit + item.half] = after;
        }
        now = 256u - now;
    }
}

// Takes gradients of the products of a step, if there is one: so many times the units, from some on, of so many a step.
fn take_slopes(lane: u32, first_row: u32, step: u32, sizes: vec3<u32>) {
    if step >= params.steps {
        return;
    }
    let columns = sizes.x * params.units;
    for (var n = lane; n < 2u * columns; n += INVOCATIONS) {
        var four = vec4<f32>(0.0);
        for (var r = 0u; r < 4u; r += 1u) {
            let row = first_row + 4u * (n % 2u) + r;
            if row < params.rows {
                let at = (row * params.steps + place_of(step)) * sizes.z + sizes.y;
                four = with_row(four, r, d_gates[at * params.units + n / 2u]);
            }
        }
        kept_slopes[n] = four;
    }
}

// Adds to the carried gradients of states the products of those of the step behind, if there is one.
fn add_products(lane: u32, first_row: u32, behind: u32, n_gates: u32) {
    workgroupBarrier();
    if behind < params.steps {
        add_to_states(lane, first_row, n_gates);
    }
    workgroupBarrier();
}

fn add_to_states(lane: u32, first_row: u32, n_gates: u32) {
    let columns = n_gates * params.units;
    for (var n = lane; n < 2u * params.units; n += INVOCATIONS) {
        let item = item_of(n, first_row);
        var sum = vec4<f32>(0.0);
        let from_u = item.unit * columns;
        if columns % 4u == 0u {
            // Neighbours read lines far apart, so each load takes four.
            for (var j = 0u; j < columns; j += 4u) {
                let w = u_fours[(from_u + j) / 4u];
                let k = 2u * j + item.half;
                sum += w.x * kept_slopes[k];
                sum += w.y * kept_slopes[k + 2u];
                sum += w.z * kept_slopes[k + 4u];
                sum += w.w * kept_slopes[k + 6u];
            }
        } else {
            for (var j = 0u; j < columns; j += 1u) {
                let at = from_u + j;
                sum += u_fours[at / 4u][at % 4u] * kept_slopes[2u * j + item.half];
            }
        }
        for (var r = 0u; r < 4u; r += 1u) {
            if item.row + r < params.rows {
                carried_h[(item.row + r) * params.units + item.unit] += sum[r];
            }
        }
    }
}

// The gradient of the state after a step; that of the steps behind is carried.
fn d_state(row: u32, unit: u32, step: u32) -> f32 {
    var sum = 0.0;
    if is_carried(step) {
        sum = carried_h[row * params.units + unit];
    }
    return with_output_slope(sum, row, unit, place_of(step), output_of(step));
}

// A row of a unit of the LSTM: the gradients of its products with the state.
fn lstm_row_slopes(row: u32, unit: u32, step: u32) -> vec4<f32> {
    let n = params.units;
    let at = place_of(step);
    let dh = d_state(row, unit, step);
    var d_after = 0.0;
    if is_carried(step) {
        d_after = carried_c[row * n + unit];
    }
    let first = (row * params.steps + at) * 4u * n + unit;
    return lstm_slopes(first, row * n + unit, place(row, unit, at), dh, d_after, known_counts(row, at));
}

// As `lstm_row_slopes`, of the GRU.
fn gru_row_slopes(row: u32, unit: u32, step: u32) -> vec3<f32> {
    let n = params.units;
    let at = place_of(step);
    let dh = d_state(row, unit, step);
    let first = (row * params.steps + at) * 6u * n + unit;
    return gru_slopes(first, row * n + unit, place(row, unit, at), dh, known_counts(row, at));
}

@compute @workgroup_size(INVOCATIONS)
fn backward_lstm(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first_row = item_index(workgroup, workgroups) * ROWS;
    if first_row >= params.rows {
        return;
    }
    let end = params.first + params.count;
    take_slopes(lane, first_row, end, vec3<u32>(4u, 0u, 4u));
    for (var behind = end; behind > params.first; behind -= 1u) {
        add_products(lane, first_row, behind, 4u);
        for (var n = lane; n < 2u * params.units; n += INVOCATIONS) {
            let item = item_of(n, first_row);
            var i = vec4<f32>(0.0);
            var f = vec4<f32>(0.0);
            var g = vec4<f32>(0.0);
            var o = vec4<f32>(0.0);
            for (var r = 0u; r < 4u; r += 1u) {
                if item.row + r < params.rows {
                    let d = lstm_row_slopes(item.row + r, item.unit, behind - 1u);
                    i = with_row(i, r, d.x);
                    f = with_row(f, r, d.y);
                    g = with_row(g, r, d.z);
                    o = with_row(o, r, d.w);
                }
            }
            let at = 2u * item.unit + item.half;
            kept_slopes[at] = i;
            kept_slopes[at + 2u * params.units] = f;
            kept_slopes[at + 4u * params.units] = g;
            kept_slopes[at + 6u * params.units] = o;
        }
    }
}

@compute @workgroup_size(INVOCATIONS)
fn backward_gru(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first_row = item_index(workgroup, workgroups) * ROWS;
    if first_row >= params.rows {
        return;
    }
    let end = params.first + params.count;
    take_slopes(lane, first_row, end, vec3<u32>(3u, 3u, 6u));
    for (var behind = end; behind > params.first; behind -= 1u) {
        add_products(lane, first_row, behind, 3u);
        for (var n = lane; n < 2u * params.units; n += INVOCATIONS) {
            let item = item_of(n, first_row);
            var z = vec4<f32>(0.0);
            var reset = vec4<f32>(0.0);
            var g = vec4<f32>(0.0);
            for (var r = 0u; r < 4u; r += 1u) {
                if item.row + r < params.rows {
                    let d = gru_row_slopes(item.row + r, item.unit, behind - 1u);
                    z = with_row(z, r, d.x);
                    reset = with_row(reset, r, d.y);
                    g = with_row(g, r, d.z);
                }
            }
            let at = 2u * item.unit + item.half;
            kept_slopes[at] = z;
            kept_slopes[at + 2u * params.units] = reset;
            kept_slopes[at + 4u * params.units] = g;
        }
    }
}
