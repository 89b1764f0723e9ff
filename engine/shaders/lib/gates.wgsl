// Gates and cells of recurrent layers: what kernels that compute one step, and those that compute many, do with a unit of a row.
//
// They bind `gates`, `bias`, `mask` and `y` forward, and `d_gates`, `dy`, `known`, `before`, `carried_h` and `carried_c` backward,
// with the shapes in recurrent.wgsl; `Params` has `units`, `steps`, `y_stride` and `cell_offset`. Places in `gates` and `d_gates` are those of a unit's first
// gate; `at` is a place in the sequence.

// 0 leaves `bias` or the mask unread: any buffer may be bound there.
override USE_BIAS: u32 = 1u;
override MASKED: u32 = 0u;
// Is the output 0 at masked steps? Else it is the state.
override ZERO_OUTPUT: u32 = 0u;
// Is the gates' function the hard sigmoid?
override HARD: u32 = 0u;

// Stands for no step, or no output.
const NONE: u32 = 0xffffffffu;

fn gate(x: f32) -> f32 {
    if HARD != 0u {
        return hard_sigmoid(x);
    }
    return sigmoid(x);
}

fn gate_slope(y: f32) -> f32 {
    if HARD != 0u {
        return select(0.0, 0.16666667, y > 0.0 && y < 1.0);
    }
    return y * (1.0 - y);
}

fn bias_of(i: u32) -> f32 {
    if USE_BIAS != 0u {
        return bias[i];
    }
    return 0.0;
}

fn counts(row: u32, at: u32) -> bool {
    if MASKED != 0u {
        return mask[row * params.steps + at] >= 0.5;
    }
    return true;
}

fn known_counts(row: u32, at: u32) -> bool {
    if MASKED != 0u {
        return known[row * params.steps + at] >= 0.5;
    }
    return true;
}

// Place of a unit's state at a step.
fn place(row: u32, unit: u32, at: u32) -> u32 {
    return (row * params.steps + at) * params.units + unit;
}

// Writes the state after a step as output, from a place of the row on, if that is wanted.
fn leave_output(row: u32, unit: u32, output: u32, h: f32, is_counted: bool) {
    if output != NONE {
        y[row * params.y_stride + output + unit] = select(h, 0.0, ZERO_OUTPUT != 0u && !is_counted);
    }
}

// Writes the LSTM's cell after the last step as output, if that is wanted.
fn leave_cell(row: u32, unit: u32, c: f32) {
    if params.cell_offset != NONE {
        y[row * params.y_stride + params.cell_offset + unit] = c;
    }
}

// The gradient of the state after a step, with that of the output.
fn with_output_slope(carried: f32, row: u32, unit: u32, at: u32, output: u32) -> f32 {
    if output != NONE && (ZERO_OUTPUT == 0u || known_counts(row, at)) {
        return carried + dy[row * params.y_stride + output + unit];
    }
    return carried;
}

// Gates of the LSTM from the products with the input, in their place, and those with the state: i, f, g, o.
fn lstm_gates(first: u32, unit: u32, products: vec4<f32>) -> vec4<f32> {
    let n = params.units;
    let i = gate(gates[first] + products.x + bias_of(unit));
    let f = gate(gates[first + n] + products.y + bias_of(unit + n));
    let g = activate(gates[first + 2u * n] + products.z + bias_of(unit + 2u * n));
    let o = gate(gates[first + 3u * n] + products.w + bias_of(unit + 3u * n));
    gates[first] = i;
    gates[first + n] = f;
    gates[first + 2u * n] = g;
    gates[first + 3u * n] = o;
    return vec4<f32>(i, f, g, o);
}

// The state of the GRU after a step that counts; leaves the gates and what reset multiplies.
fn gru_state(first: u32, unit: u32, products: vec3<f32>, h_before: f32) -> f32 {
    let n = params.units;
    let z = gate(gates[first] + bias_of(unit) + products.x + bias_of(3u * n + unit));
    let r = gate(gates[first + n] + bias_of(unit + n) + products.y + bias_of(4u * n + unit));
    let inner = products.z + bias_of(5u * n + unit);
    let g = activate(gates[first + 2u * n] + bias_of(unit + 2u * n) + r * inner);
    gates[first] = z;
    gates[first + n] = r;
    gates[first + 2u * n] = g;
    gates[first + 3u * n] = inner;
    return z * h_before + (1.0 - z) * g;
}

// Gradients of the LSTM's products, which take the place of the gates, from those of state and cell after the step; carries those of
// state and cell before it, at `item`; `here` is the place of the step's cell, or state.
fn lstm_slopes(first: u32, item: u32, here: u32, dh: f32, d_after: f32, is_counted: bool) -> vec4<f32> {
    let n = params.units;
    let i = d_gates[first];
    let f = d_gates[first + n];
    let g = d_gates[first + 2u * n];
    let o = d_gates[first + 3u * n];
    let c_before = before[here];
    let a = activate(f * c_before + i * g);
    let dc = d_after + dh * o * activation_slope_from_output(a);
    let slopes = vec4<f32>(
        dc * g * gate_slope(i),
        dc * c_before * gate_slope(f),
        dc * i * activation_slope_from_output(g),
        dh * a * gate_slope(o),
    );
    let d = select(vec4<f32>(0.0), slopes, is_counted);
    d_gates[first] = d.x;
    d_gates[first + n] = d.y;
    d_gates[first + 2u * n] = d.z;
    d_gates[first + 3u * n] = d.w;
    carried_h[item] = select(dh, 0.0, is_counted);
    carried_c[item] = select(d_after, dc * f, is_counted);
    return d;
}

// As `lstm_slopes`, of the GRU: gradients of the products with the state.
fn gru_slopes(first: u32, item: u32, here: u32, dh: f32, is_counted: bool) -> vec3<f32> {
    let n = params.units;
    let d = select(0.0, dh, is_counted);
    let z = d_gates[first];
    let r = d_gates[first + n];
    let g = d_gates[first + 2u * n];
    let inner = d_gates[first + 3u * n];
    let h_before = before[here];
    let dz = d * (h_before - g) * gate_slope(z);
    let dg = d * (1.0 - z) * activation_slope_from_output(g);
    let dr = dg * inner * gate_slope(r);
    d_gates[first] = dz;
    d_gates[first + n] = dr;
    d_gates[first + 2u * n] = dg;
    d_gates[first + 3u * n] = dz;
    d_gates[first + 4u * n] = dr;
    d_gates[first + 5u * n] = dg * r;
    carried_h[item] = select(dh, dh * z, is_counted);
    return vec3<f32>(dz, dr, dg * r);
}
