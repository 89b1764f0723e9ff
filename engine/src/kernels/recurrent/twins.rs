//! The steps in f64, number by number.

use super::super::Call;
use super::super::activation_functions::{Activation, Function};
use super::super::rounding::single;
use super::RecurrentStep;

/// Arguments of a step for all numbers.
struct StepTwin {
    step: RecurrentStep,
    activation: Function,
    gate: Function,
}

impl StepTwin {
    fn of_call(call: &Call<'_>) -> Self {
        let step = RecurrentStep::of_call(call);
        let gate = Function::plain(if step.is_hard { Activation::HardSigmoid } else { Activation::Sigmoid });
        Self { step, activation: Function::of_call(call), gate }
    }

    /// Each row and unit.
    fn each(&self, mut visit: impl FnMut(usize, usize)) {
        for row in 0..self.step.rows {
            (0..self.step.units).for_each(|unit| visit(row, unit));
        }
    }

    fn part(&self, call: &Call<'_>, row: usize, width: usize, i: usize) -> f64 {
        if self.step.is_first { 0.0 } else { f64::from(call.inputs[0][row * width + i]) }
    }

    fn bias(&self, call: &Call<'_>, i: usize) -> f64 {
        if self.step.has_bias { f64::from(call.inputs[1][i]) } else { 0.0 }
    }

    fn state_before(&self, state: &[f32], row: usize, unit: usize) -> f64 {
        if self.step.is_first { 0.0 } else { f64::from(state[row * self.step.units + unit]) }
    }

    /// Writes the state after the step.
    fn leave(&self, outputs: &mut [&mut [f32]], row: usize, unit: usize, h: f64, counts: bool) {
        let (s, [_, states, state, y, ..]) = (&self.step, outputs) else { return };
        state[row * s.units + unit] = single(h);
        if s.is_first {
            states[s.place(row, s.at, s.units) + unit] = 0.0;
        }
        if let Some(next) = s.next {
            states[s.place(row, next, s.units) + unit] = single(h);
        }
        if let Some(first) = s.output(row) {
            y[first + unit] = if s.is_zero_output && !counts { 0.0 } else { single(h) };
        }
    }

    /// The gradient of the state after the step.
    fn d_state(&self, call: &Call<'_>, carried: &[f32], row: usize, unit: usize) -> f64 {
        let s = &self.step;
        let item = row * s.units + unit;
        let later = match s.next {
            Some(_) => f64::from(call.inputs[0][item]) + f64::from(carried[item]),
            None => 0.0,
        };
        let is_seen = !s.is_zero_output || s.counts(call.inputs[2], row);
        let own = s.output(row).filter(|_| is_seen).map_or(0.0, |first| f64::from(call.inputs[1][first + unit]));
        later + own
    }
}

pub(super) fn forward_lstm(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let n = StepTwin::of_call(call);
    let (s, units) = (&n.step, n.step.units);
    n.each(|row, unit| {
        let at = s.place(row, s.at, 4 * units) + unit;
        let z = |gate: usize| {
            let x = f64::from(outputs[0][at + gate * units]);
            x + n.part(call, row, 4 * units, gate * units + unit) + n.bias(call, gate * units + unit)
        };
        let [i, f, g, o] =
            [n.gate.activate(z(0)), n.gate.activate(z(1)), n.activation.activate(z(2)), n.gate.activate(z(3))];
        for (gate, value) in [i, f, g, o].into_iter().enumerate() {
            outputs[0][at + gate * units] = single(value);
        }
        let here = s.place(row, s.at, units) + unit;
        let before = if s.is_first { 0.0 } else { f64::from(outputs[4][here]) };
        if s.is_first {
            outputs[4][here] = 0.0;
        }
        let counts = s.counts(call.inputs[2], row);
        let c = if counts { f * before + i * g } else { before };
        let h = if counts { o * n.activation.activate(c) } else { n.state_before(outputs[2], row, unit) };
        if let Some(next) = s.next {
            outputs[4][s.place(row, next, units) + unit] = single(c);
        }
        if let Some(first) = s.cell_offset {
            outputs[3][row * s.y_stride + first + unit] = single(c);
        }
        n.leave(outputs, row, unit, h, counts);
    });
}

pub(super) fn forward_gru(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let n = StepTwin::of_call(call);
    let (s, units) = (&n.step, n.step.units);
    n.each(|row, unit| {
        let at = s.place(row, s.at, 6 * units) + unit;
        let x = |gate: usize| f64::from(outputs[0][at + gate * units]) + n.bias(call, gate * units + unit);
        let p =
            |gate: usize| n.part(call, row, 3 * units, gate * units + unit) + n.bias(call, (3 + gate) * units + unit);
        let (z, r, inner) = (n.gate.activate(x(0) + p(0)), n.gate.activate(x(1) + p(1)), p(2));
        let g = n.activation.activate(x(2) + r * inner);
        for (gate, value) in [z, r, g, inner].into_iter().enumerate() {
            outputs[0][at + gate * units] = single(value);
        }
        let (before, counts) = (n.state_before(outputs[2], row, unit), s.counts(call.inputs[2], row));
        let h = if counts { z * before + (1.0 - z) * g } else { before };
        n.leave(outputs, row, unit, h, counts);
    });
}

pub(super) fn forward_simple(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let n = StepTwin::of_call(call);
    let (s, units) = (&n.step, n.step.units);
    n.each(|row, unit| {
        let at = s.place(row, s.at, units) + unit;
        let z = f64::from(outputs[0][at]) + n.part(call, row, units, unit) + n.bias(call, unit);
        let h = n.activation.activate(z);
        outputs[0][at] = single(h);
        let counts = s.counts(call.inputs[2], row);
        let h = if counts { h } else { n.state_before(outputs[2], row, unit) };
        n.leave(outputs, row, unit, h, counts);
    });
}

pub(super) fn backward_lstm(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let n = StepTwin::of_call(call);
    let (s, units) = (&n.step, n.step.units);
    n.each(|row, unit| {
        let (at, item) = (s.place(row, s.at, 4 * units) + unit, row * units + unit);
        let dh = n.d_state(call, outputs[1], row, unit);
        let d_after = if s.next.is_some() { f64::from(outputs[2][item]) } else { 0.0 };
        let [i, f, g, o] = [0, 1, 2, 3].map(|gate| f64::from(outputs[0][at + gate * units]));
        let before = f64::from(call.inputs[3][s.place(row, s.at, units) + unit]);
        let (mut d, mut carried) = ([0.0; 4], [dh, d_after]);
        if s.counts(call.inputs[2], row) {
            let a = n.activation.activate(f * before + i * g);
            let dc = d_after + dh * o * n.activation.slope(a);
            d = [
                dc * g * n.gate.slope(i),
                dc * before * n.gate.slope(f),
                dc * i * n.activation.slope(g),
                dh * a * n.gate.slope(o),
            ];
            carried = [0.0, dc * f];
        }
        for (gate, value) in d.into_iter().enumerate() {
            outputs[0][at + gate * units] = single(value);
        }
        outputs[1][item] = single(carried[0]);
        outputs[2][item] = single(carried[1]);
    });
}

pub(super) fn backward_gru(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let n = StepTwin::of_call(call);
    let (s, units) = (&n.step, n.step.units);
    n.each(|row, unit| {
        let (at, item) = (s.place(row, s.at, 6 * units) + unit, row * units + unit);
        let dh = n.d_state(call, outputs[1], row, unit);
        let [z, r, g, inner] = [0, 1, 2, 3].map(|gate| f64::from(outputs[0][at + gate * units]));
        let before = f64::from(call.inputs[3][s.place(row, s.at, units) + unit]);
        let counts = s.counts(call.inputs[2], row);
        let d = if counts { dh } else { 0.0 };
        let dz = d * (before - g) * n.gate.slope(z);
        let dg = d * (1.0 - z) * n.activation.slope(g);
        let dr = dg * inner * n.gate.slope(r);
        for (gate, value) in [dz, dr, dg, dz, dr, dg * r].into_iter().enumerate() {
            outputs[0][at + gate * units] = single(value);
        }
        outputs[1][item] = single(if counts { dh * z } else { dh });
    });
}

pub(super) fn backward_simple(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let n = StepTwin::of_call(call);
    let (s, units) = (&n.step, n.step.units);
    n.each(|row, unit| {
        let (at, item) = (s.place(row, s.at, units) + unit, row * units + unit);
        let dh = n.d_state(call, outputs[1], row, unit);
        let counts = s.counts(call.inputs[2], row);
        let slope = n.activation.slope(f64::from(call.inputs[3][at]));
        outputs[0][at] = if counts { single(dh * slope) } else { 0.0 };
        outputs[1][item] = if counts { 0.0 } else { single(dh) };
    });
}
