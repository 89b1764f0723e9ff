//! The steps in f32, row by row.

use super::super::Call;
use super::super::activation_functions::{Activation, Function};
use super::super::vectors;
use super::RecurrentStep;

/// Arguments of a step for all rows.
struct FastStep {
    step: RecurrentStep,
    activation: Function,
}

impl FastStep {
    fn of_call(call: &Call<'_>) -> Self {
        Self { step: RecurrentStep::of_call(call), activation: Function::of_call(call) }
    }

    fn gate(&self, values: &mut [f32]) {
        if self.step.is_hard {
            Function::plain(Activation::HardSigmoid).activate_all(values);
        } else {
            vectors::sigmoid_all(values);
        }
    }

    fn gate_slope(&self, y: f32) -> f32 {
        if !self.step.is_hard {
            y * (1.0 - y)
        } else if y > 0.0 && y < 1.0 {
            1.0 / 6.0
        } else {
            0.0
        }
    }

    /// The slopes of gates, in their place.
    fn gate_slopes(&self, values: &mut [f32]) {
        if self.step.is_hard {
            values.iter_mut().for_each(|y| *y = self.gate_slope(*y));
        } else {
            values.iter_mut().for_each(|y| *y *= 1.0 - *y);
        }
    }

    fn activate(&self, values: &mut [f32]) {
        self.activation.activate_all(values);
    }

    /// `d *= slope`, of what [`activate`](Self::activate) made `values`.
    fn slope(&self, d: &mut [f32], values: &[f32]) {
        if self.activation.activation == Activation::Tanh {
            d.iter_mut().zip(values).for_each(|(d, y)| *d *= 1.0 - y * y);
        } else {
            let dy = d.to_vec();
            self.activation.scale_all(d, &dy, values);
        }
    }

    /// Adds a row of the state's product, and the bias.
    fn sum(&self, call: &Call<'_>, row: usize, z: &mut [f32]) {
        if !self.step.is_first {
            add(z, &call.inputs[0][row * z.len()..]);
        }
        if self.step.has_bias {
            add(z, call.inputs[1]);
        }
    }

    /// Puts the state before the step into `h`.
    fn state_before(&self, state: &[f32], row: usize, h: &mut [f32]) {
        if self.step.is_first {
            h.fill(0.0);
        } else {
            h.copy_from_slice(&state[row * h.len()..][..h.len()]);
        }
    }

    /// Writes the state after the step.
    fn leave(&self, [states, state, y]: [&mut [f32]; 3], row: usize, h: &[f32], counts: bool) {
        let (s, units) = (&self.step, h.len());
        state[row * units..][..units].copy_from_slice(h);
        if s.is_first {
            states[s.place(row, s.at, units)..][..units].fill(0.0);
        }
        if let Some(next) = s.next {
            states[s.place(row, next, units)..][..units].copy_from_slice(h);
        }
        if let Some(first) = s.output(row) {
            let y = &mut y[first..][..units];
            if s.is_zero_output && !counts { y.fill(0.0) } else { y.copy_from_slice(h) }
        }
    }

    /// Puts the gradient of the state after the step into `dh`.
    fn d_state(&self, call: &Call<'_>, carried: &[f32], row: usize, dh: &mut [f32]) {
        let (s, units) = (&self.step, dh.len());
        dh.fill(0.0);
        if s.next.is_some() {
            add(dh, &call.inputs[0][row * units..]);
            add(dh, &carried[row * units..]);
        }
        let is_seen = !s.is_zero_output || s.counts(call.inputs[2], row);
        if let Some(first) = s.output(row).filter(|_| is_seen) {
            add(dh, &call.inputs[1][first..]);
        }
    }
}

fn add(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

pub(super) fn forward_lstm(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let rows = FastStep::of_call(call);
    let (s, units) = (&rows.step, rows.step.units);
    let [gates, states, state, y, cells] = outputs else { return };
    let (mut c, mut h) = (vec![0.0; units], vec![0.0; units]);
    for row in 0..s.rows {
        let z = &mut gates[s.place(row, s.at, 4 * units)..][..4 * units];
        rows.sum(call, row, z);
        let (gated, rest) = z.split_at_mut(2 * units);
        let (g, o) = rest.split_at_mut(units);
        rows.gate(gated);
        rows.activate(g);
        rows.gate(o);
        let here = s.place(row, s.at, units);
        if s.is_first {
            cells[here..][..units].fill(0.0);
        }
        c.copy_from_slice(&cells[here..][..units]);
        let counts = s.counts(call.inputs[2], row);
        if counts {
            let (i, f) = gated.split_at(units);
            let terms = i.iter().zip(f).zip(&*g);
            c.iter_mut().zip(terms).for_each(|(c, ((i, f), g))| *c = f * *c + i * g);
            h.copy_from_slice(&c);
            rows.activate(&mut h);
            h.iter_mut().zip(&*o).for_each(|(h, o)| *h *= o);
        } else {
            rows.state_before(state, row, &mut h);
        }
        if let Some(next) = s.next {
            cells[s.place(row, next, units)..][..units].copy_from_slice(&c);
        }
        if let Some(first) = s.cell_offset {
            y[row * s.y_stride + first..][..units].copy_from_slice(&c);
        }
        rows.leave([states, state, y], row, &h, counts);
    }
}

pub(super) fn forward_gru(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let rows = FastStep::of_call(call);
    let (s, units) = (&rows.step, rows.step.units);
    let [gates, states, state, y] = outputs else { return };
    let (mut part, mut h) = (vec![0.0; 3 * units], vec![0.0; units]);
    for row in 0..s.rows {
        let z = &mut gates[s.place(row, s.at, 6 * units)..][..4 * units];
        part.fill(0.0);
        if !s.is_first {
            add(&mut part, &call.inputs[0][row * 3 * units..]);
        }
        if s.has_bias {
            add(&mut z[..3 * units], call.inputs[1]);
            add(&mut part, &call.inputs[1][3 * units..]);
        }
        let (gated, rest) = z.split_at_mut(2 * units);
        let (g, inner) = rest.split_at_mut(units);
        add(gated, &part);
        rows.gate(gated);
        inner.copy_from_slice(&part[2 * units..]);
        let (z, r) = gated.split_at(units);
        g.iter_mut().zip(r.iter().zip(&*inner)).for_each(|(g, (r, inner))| *g += r * inner);
        rows.activate(g);
        rows.state_before(state, row, &mut h);
        let counts = s.counts(call.inputs[2], row);
        if counts {
            h.iter_mut().zip(z.iter().zip(&*g)).for_each(|(h, (z, g))| *h = z * *h + (1.0 - z) * g);
        }
        rows.leave([states, state, y], row, &h, counts);
    }
}

pub(super) fn forward_simple(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let rows = FastStep::of_call(call);
    let (s, units) = (&rows.step, rows.step.units);
    let [gates, states, state, y] = outputs else { return };
    let mut h = vec![0.0; units];
    for row in 0..s.rows {
        let z = &mut gates[s.place(row, s.at, units)..][..units];
        rows.sum(call, row, z);
        rows.activate(z);
        let counts = s.counts(call.inputs[2], row);
        if counts {
            h.copy_from_slice(z)
        } else {
            rows.state_before(state, row, &mut h)
        }
        rows.leave([states, state, y], row, &h, counts);
    }
}

pub(super) fn backward_lstm(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let rows = FastStep::of_call(call);
    let (s, units) = (&rows.step, rows.step.units);
    let [d_gates, carried_h, carried_c] = outputs else { return };
    let [mut dh, mut a, mut dc] = [vec![0.0; units], vec![0.0; units], vec![0.0; units]];
    for row in 0..s.rows {
        rows.d_state(call, carried_h, row, &mut dh);
        let d = &mut d_gates[s.place(row, s.at, 4 * units)..][..4 * units];
        let (carried_h, carried_c) = (&mut carried_h[row * units..][..units], &mut carried_c[row * units..][..units]);
        if s.next.is_none() {
            carried_c.fill(0.0);
        }
        if !s.counts(call.inputs[2], row) {
            d.fill(0.0);
            carried_h.copy_from_slice(&dh);
            continue;
        }
        let before = &call.inputs[3][s.place(row, s.at, units)..][..units];
        let (i, rest) = d.split_at_mut(units);
        let (f, rest) = rest.split_at_mut(units);
        let (g, o) = rest.split_at_mut(units);
        for unit in 0..units {
            a[unit] = f[unit] * before[unit] + i[unit] * g[unit];
            dc[unit] = dh[unit] * o[unit];
        }
        rows.activate(&mut a);
        rows.slope(&mut dc, &a);
        add(&mut dc, carried_c);
        // The candidate's gradient takes the place of the cell's product, to be scaled by its slope.
        let mut dg: Vec<f32> = dc.iter().zip(&*i).map(|(dc, i)| dc * i).collect();
        rows.slope(&mut dg, g);
        // Whole slices, which compilers turn into vectors.
        carried_c.iter_mut().zip(dc.iter().zip(&*f)).for_each(|(carried, (dc, f))| *carried = dc * f);
        [&mut *i, &mut *f, &mut *o].into_iter().for_each(|gate| rows.gate_slopes(gate));
        i.iter_mut().zip(dc.iter().zip(&*g)).for_each(|(i, (dc, g))| *i *= dc * g);
        f.iter_mut().zip(dc.iter().zip(before)).for_each(|(f, (dc, before))| *f *= dc * before);
        o.iter_mut().zip(dh.iter().zip(&a)).for_each(|(o, (dh, a))| *o *= dh * a);
        g.copy_from_slice(&dg);
        carried_h.fill(0.0);
    }
}

pub(super) fn backward_gru(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let rows = FastStep::of_call(call);
    let (s, units) = (&rows.step, rows.step.units);
    let [d_gates, carried_h] = outputs else { return };
    let [mut dh, mut dg] = [vec![0.0; units], vec![0.0; units]];
    for row in 0..s.rows {
        rows.d_state(call, carried_h, row, &mut dh);
        let d = &mut d_gates[s.place(row, s.at, 6 * units)..][..6 * units];
        let carried_h = &mut carried_h[row * units..][..units];
        if !s.counts(call.inputs[2], row) {
            d.fill(0.0);
            carried_h.copy_from_slice(&dh);
            continue;
        }
        let before = &call.inputs[3][s.place(row, s.at, units)..][..units];
        for unit in 0..units {
            dg[unit] = dh[unit] * (1.0 - d[unit]);
        }
        rows.slope(&mut dg, &d[2 * units..3 * units]);
        for unit in 0..units {
            let [z, r, g, inner] = [0, 1, 2, 3].map(|gate| d[unit + gate * units]);
            let dz = dh[unit] * (before[unit] - g) * rows.gate_slope(z);
            let dr = dg[unit] * inner * rows.gate_slope(r);
            carried_h[unit] = dh[unit] * z;
            for (gate, value) in [dz, dr, dg[unit], dz, dr, dg[unit] * r].into_iter().enumerate() {
                d[unit + gate * units] = value;
            }
        }
    }
}

pub(super) fn backward_simple(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let rows = FastStep::of_call(call);
    let (s, units) = (&rows.step, rows.step.units);
    let [d_gates, carried_h] = outputs else { return };
    let mut dh = vec![0.0; units];
    for row in 0..s.rows {
        rows.d_state(call, carried_h, row, &mut dh);
        let at = s.place(row, s.at, units);
        let (d, carried_h) = (&mut d_gates[at..][..units], &mut carried_h[row * units..][..units]);
        if s.counts(call.inputs[2], row) {
            rows.slope(&mut dh, &call.inputs[3][at..][..units]);
            d.copy_from_slice(&dh);
            carried_h.fill(0.0);
        } else {
            d.fill(0.0);
            carried_h.copy_from_slice(&dh);
        }
    }
}
