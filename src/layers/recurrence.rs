//! Recording of recurrent layers: the product of the input for all steps at once, then for each step the product of the
//! state and the cell; backward the same in the other order, and the weights' gradients for all steps at once.

mod states;

use super::gradient_sums::{ROWS_HINT, sum_columns, sum_parts};
use super::{Activation, Built, Initializer, Parameter, Problem};
use crate::kernels::activation_functions::{self as functions, Function};
use crate::kernels::{Kernel, dense, dropout, recurrent as kernel, recurrent_scan as scan, whole};
use crate::plan::{Grid, Length, Recorder, View, Word, length_word};
use crate::shape::{Shape, elements};

/// Kernels of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Lstm,
    Gru,
    Simple,
}

impl Cell {
    /// Products of units that a step takes.
    pub(super) fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
            Self::Simple => 1,
        }
    }

    /// Tensors that a step leaves to the next: the state, and a cell.
    pub(super) fn states(self) -> usize {
        if self == Self::Lstm { 2 } else { 1 }
    }

    /// Numbers of a unit and step that are kept; after backward, gradients of products.
    fn width(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 6,
            Self::Simple => 1,
        }
    }

    /// The first of these that is a gradient of the state's product; those of the input's begin at 0.
    fn first_of_state(self) -> usize {
        if self == Self::Gru { 3 } else { 0 }
    }

    fn forward(self) -> &'static Kernel {
        match self {
            Self::Lstm => &kernel::FORWARD_LSTM,
            Self::Gru => &kernel::FORWARD_GRU,
            Self::Simple => &kernel::FORWARD_SIMPLE,
        }
    }

    fn backward(self) -> &'static Kernel {
        match self {
            Self::Lstm => &kernel::BACKWARD_LSTM,
            Self::Gru => &kernel::BACKWARD_GRU,
            Self::Simple => &kernel::BACKWARD_SIMPLE,
        }
    }

    /// The kernels of several steps, if there are any: forward and backward.
    fn scans(self) -> Option<[&'static Kernel; 2]> {
        match self {
            Self::Lstm => Some([&scan::FORWARD_LSTM, &scan::BACKWARD_LSTM]),
            Self::Gru => Some([&scan::FORWARD_GRU, &scan::BACKWARD_GRU]),
            Self::Simple => None,
        }
    }
}

/// Most steps of one dispatch: devices want to be handed work in small pieces.
const MOST_STEPS: usize = 32;

/// Part of a recurrence in its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecurrencePart {
    /// All of it.
    Whole,
    /// One direction of a bidirectional layer.
    Forward,
    /// The other.
    Backward,
}

impl RecurrencePart {
    /// Names of its parameters: of the input's weights, the state's, and the bias.
    pub(super) fn names(self) -> [&'static str; 3] {
        match self {
            Self::Whole => ["kernel", "recurrent_kernel", "bias"],
            Self::Forward => ["forward_kernel", "forward_recurrent_kernel", "forward_bias"],
            Self::Backward => ["backward_kernel", "backward_recurrent_kernel", "backward_bias"],
        }
    }

    fn idx(self) -> usize {
        usize::from(self == Self::Backward)
    }
}

/// Position of a recurrence's outputs among those of its node.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecurrentOutput {
    pub view: View,
    /// Numbers of a step.
    pub width: usize,
    /// The first of them that is this recurrence's.
    pub first: usize,
}

/// A recurrent layer in one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recurrence {
    pub cell: Cell,
    pub part: RecurrencePart,
    pub units: usize,
    pub activation: Activation,
    pub recurrent_activation: Activation,
    pub use_bias: bool,
    pub bias_initializer: Initializer,
    pub kernel_initializer: Initializer,
    pub recurrent_initializer: Initializer,
    pub dropout: f32,
    pub recurrent_dropout: f32,
    pub return_sequences: bool,
    pub go_backwards: bool,
    pub zero_output_for_mask: bool,
    pub return_state: bool,
    pub initial_state: bool,
}

/// Steps and features of a sequence, with a mask or without.
pub(super) fn sequence_and_mask(inputs: &[Shape]) -> Result<[usize; 2], Problem> {
    let sequence = match inputs {
        [x] | [x, _] => x.axes(),
        _ => &[],
    };
    match (sequence, inputs.get(1).map(Shape::axes)) {
        (&[time, features], None) => Ok([time, features]),
        (&[time, features], Some(mask)) if mask == [time] => Ok([time, features]),
        _ => Err(Problem::new(
            format!(
                "needs an input [batch, time, features] and perhaps a mask [batch, time], but got {}",
                inputs.iter().map(Shape::to_string).collect::<Vec<_>>().join(" and ")
            ),
            "a sequence of single numbers has one feature: `Reshape` adds an axis; indices go through `Embedding`",
        )),
    }
}

/// A matrix in a view: its first element, and elements from row to row.
#[derive(Clone, Copy)]
struct Matrix(View, usize, usize);

/// Params of a product `[m, n]` over `k` terms.
fn product([m, n, k]: [Word; 3], a: Matrix, b: Matrix, y: Matrix) -> dense::Record {
    dense::Record {
        m,
        n,
        k,
        a_offset: whole(a.1),
        a_stride: whole(a.2),
        b_offset: whole(b.1),
        b_stride: whole(b.2),
        y_offset: whole(y.1),
        y_stride: whole(y.2),
        splits: Word::U32(1),
    }
}

/// `y = a b`.
fn times(rec: &mut Recorder<'_>, sizes: [Word; 3], a: Matrix, b: Matrix, y: Matrix) {
    let params = product(sizes, a, b, y);
    let inputs = [a.0, b.0, b.0];
    let dispatch = rec.dispatch(&dense::FORWARD, params, inputs, [y.0], params.grid());
    dispatch.constants.push(("USE_BIAS", 0.0));
}

/// `y = a bᵀ`.
fn times_transposed(rec: &mut Recorder<'_>, sizes: [Word; 3], a: Matrix, b: Matrix, y: Matrix) {
    let params = product(sizes, a, b, y);
    rec.dispatch(&dense::BACKWARD_INPUT, params, [a.0, b.0], [y.0], params.grid());
}

/// Numbers of a row that are dropped together at all steps.
#[derive(Clone, Copy)]
struct DroppedNumbers {
    rate: f32,
    /// Numbers of a row.
    row_len: usize,
    /// Numbers of a step.
    drawn: usize,
    /// Part of the key beside the node: each gate has numbers of its own.
    key: usize,
}

impl DroppedNumbers {
    fn gate(self, gate: usize) -> Self {
        Self { key: self.key | gate << 26, ..self }
    }

    fn record(self, rec: &mut Recorder<'_>, x: View, y: View) {
        let len = length_word(Length::per_row(self.row_len));
        let params = dropout::Record {
            len,
            row_len: whole(self.row_len),
            first_row: Word::FirstRow,
            seed: Word::Seed,
            step: Word::Step,
            node: whole(rec.node_idx() | self.key),
            rate: Word::F32(self.rate),
            inner: Word::U32(1),
            drawn: whole(self.drawn),
        };
        rec.dispatch(&dropout::FORWARD, params, [x], [y], Grid::Elements(len));
    }

    /// Records a gradient that is a sum over gates, each dropped by itself: `record` gives that of one.
    fn backward(
        self,
        rec: &mut Recorder<'_>,
        groups: usize,
        buffers: [View; 2],
        to: View,
        record: impl Fn(&mut Recorder<'_>, usize, View),
    ) {
        if self.rate == 0.0 {
            return record(rec, 0, to);
        }
        let [before, more] = buffers;
        for group in 0..groups {
            record(rec, group, before);
            self.gate(group).record(rec, before, if group == 0 { to } else { more });
            if group > 0 {
                rec.accumulate(more, to);
            }
        }
    }
}

impl Recurrence {
    /// Checks inputs and settings; gives the output's shape and the parameters.
    pub(super) fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [time, features] = self.sequence(inputs)?;
        if self.units == 0 {
            return Err(Problem::new("needs at least one unit, but got 0", "set `units`"));
        }
        super::dropout::check_rate(self.dropout)?;
        super::dropout::check_rate(self.recurrent_dropout)?;
        let is_fit = |function: Option<Function>| function.is_some_and(|it| !it.activation.slope_needs_input());
        if self.activation != Activation::Linear && !is_fit(self.activation.function()) {
            return Err(Problem::new(
                "needs an activation whose slope follows from its output alone, but got another one",
                "`tanh` is Keras' default; `relu`, `sigmoid`, `elu` and `softsign` are possible, too",
            ));
        }
        if !matches!(self.recurrent_activation, Activation::Sigmoid | Activation::HardSigmoid) {
            return Err(Problem::new(
                "needs `sigmoid` or `hard_sigmoid` as its recurrent activation, but got another one",
                "gates are numbers from 0 to 1; `sigmoid` is Keras' default",
            ));
        }
        let [kernel, recurrent_kernel, bias] = self.part.names();
        let columns = self.cell.gates().saturating_mul(self.units);
        let parameter = |name, shape: Vec<usize>, initializer| Parameter { name, shape, initializer };
        let mut parameters = vec![
            parameter(kernel, vec![features, columns], self.kernel_initializer),
            parameter(recurrent_kernel, vec![self.units, columns], self.recurrent_initializer),
        ];
        if self.use_bias {
            let shape = if self.cell == Cell::Gru { vec![2, columns] } else { vec![columns] };
            parameters.push(parameter(bias, shape, self.bias_initializer));
        }
        let output = Shape::new(match (self.return_sequences, self.return_state) {
            (false, false) => vec![self.units],
            _ => vec![self.steps_out(time), self.units],
        });
        Ok(Built { output, parameters, statistics: Vec::new() })
    }

    /// Steps and features of the sequence.
    fn sequence(&self, inputs: &[Shape]) -> Result<[usize; 2], Problem> {
        let (states, rest) = inputs.split_at(self.n_inputs().min(inputs.len()));
        let (x, states) = states.split_at(1.min(states.len()));
        let is_state = |shape: &Shape| shape.axes() == [self.units];
        if states.len() + x.len() == self.n_inputs() && states.iter().all(is_state) {
            return sequence_and_mask(&[x, rest].concat());
        }
        let names = if self.cell.states() == 2 { "state and the cell" } else { "state" };
        let got = inputs.iter().map(Shape::to_string).collect::<Vec<_>>().join(" and ");
        Err(Problem::new(
            format!(
                "needs an input [batch, time, features], the {names} before it [batch, {}], but got {got}",
                self.units
            ),
            "leave out `initial_state` to begin with zeros",
        ))
    }

    /// Inputs without the mask.
    pub(super) fn n_inputs(&self) -> usize {
        1 + if self.initial_state { self.cell.states() } else { 0 }
    }

    /// The mask behind its inputs, if there is one.
    fn mask(&self, rec: &Recorder<'_>) -> Option<View> {
        (rec.n_inputs() > self.n_inputs()).then(|| rec.input(self.n_inputs()))
    }

    /// States that the output ends with.
    fn n_returned(&self) -> usize {
        if self.return_state { self.cell.states() } else { 0 }
    }

    /// Steps of the output before its states.
    fn own_steps(&self, time: usize) -> usize {
        match (self.return_sequences, self.return_state) {
            (true, _) => time,
            (false, true) => 0,
            (false, false) => 1,
        }
    }

    /// Steps of the output.
    pub(super) fn steps_out(&self, time: usize) -> usize {
        self.own_steps(time).saturating_add(self.n_returned())
    }

    /// Gates whose products are computed together: all, or each by itself, if its factor is dropped by itself.
    fn groups(&self, is_each: bool) -> Vec<std::ops::Range<usize>> {
        match is_each {
            true => (0..self.cell.gates()).map(|gate| gate..gate + 1).collect(),
            false => std::iter::once(0..self.cell.gates()).collect(),
        }
    }

    /// Keras draws a mask for each gate where the state is dropped, too.
    fn input_groups(&self, is_training: bool) -> Vec<std::ops::Range<usize>> {
        self.groups(is_training && self.dropout > 0.0 && self.recurrent_dropout > 0.0)
    }

    fn state_groups(&self, is_training: bool) -> Vec<std::ops::Range<usize>> {
        self.groups(is_training && self.recurrent_dropout > 0.0)
    }

    fn input_drop(&self, [time, features]: [usize; 2]) -> DroppedNumbers {
        DroppedNumbers {
            rate: self.dropout,
            row_len: time * features,
            drawn: features,
            key: self.part.idx() << 31 | 1 << 29,
        }
    }

    fn state_drop(&self, steps: usize) -> DroppedNumbers {
        let (rate, drawn) = (self.recurrent_dropout, self.units);
        DroppedNumbers { rate, row_len: steps * drawn, drawn, key: self.part.idx() << 31 | 2 << 29 }
    }

    fn scratch(rec: &mut Recorder<'_>, what: &str, len: usize) -> View {
        rec.scratch(what, Length::per_row(len))
    }

    /// The place in the sequence of the step that is computed as `step`.
    fn at(&self, step: usize, time: usize) -> usize {
        if self.go_backwards { time - 1 - step } else { step }
    }

    /// Params of a step.
    fn params(&self, step: usize, time: usize, output: RecurrentOutput) -> kernel::Record {
        let at = self.at(step, time);
        // Alone, a layer that goes backwards gives its outputs in the order in which it computes them, as in Keras.
        let place = if self.part == RecurrencePart::Whole { step } else { at };
        let is_last = step + 1 == time;
        let offset = match self.return_sequences {
            true => Some(place * output.width + output.first),
            // Its last state, if that is given, is the output.
            false => is_last.then_some(output.first),
        };
        let next = (step + 1 < time).then(|| self.at(step + 1, time));
        let or_none = |place: Option<usize>| place.map_or(Word::U32(kernel::NONE), whole);
        kernel::Record {
            rows: Word::Rows(1),
            units: whole(self.units),
            steps: whole(time),
            at: whole(at),
            next: or_none(next),
            is_first: Word::U32(u32::from(step == 0 && !self.initial_state)),
            y_offset: or_none(offset),
            y_stride: whole(self.steps_out(time) * output.width),
            cell_offset: or_none(self.cell_offset(time).filter(|_| is_last)),
        }
    }

    /// As [`params`](Self::params), for backward: behind the last step come the gradients of the states that are given.
    fn backward_params(&self, step: usize, time: usize, output: RecurrentOutput) -> kernel::Record {
        let params = self.params(step, time, output);
        match self.return_state && step + 1 == time {
            true => kernel::Record { next: Word::U32(0), ..params },
            false => params,
        }
    }

    /// Place of the cell in a row of the output, if it is given.
    fn cell_offset(&self, time: usize) -> Option<usize> {
        let is_given = self.return_state && self.cell.states() == 2;
        is_given.then(|| (self.own_steps(time) + 1) * self.units)
    }

    /// The grid of a step.
    fn grid(&self) -> Grid {
        Grid::Elements(length_word(Length::per_row(self.units)))
    }

    /// The kernels of several steps, where a workgroup can keep the states of its rows, and none are dropped.
    fn scans(&self, is_training: bool) -> Option<[&'static Kernel; 2]> {
        let is_kept = self.units <= scan::MOST_UNITS && !(is_training && self.recurrent_dropout > 0.0);
        self.cell.scans().filter(|_| is_kept)
    }

    /// Params of several steps.
    fn scan_params(
        &self,
        steps: std::ops::Range<usize>,
        time: usize,
        output: RecurrentOutput,
        is_given: bool,
    ) -> scan::Record {
        // `is_given`: forward, whether it begins with states; backward, whether it ends with them.
        let is = |is: bool| Word::U32(u32::from(is));
        scan::Record {
            rows: Word::Rows(1),
            units: whole(self.units),
            steps: whole(time),
            first: whole(steps.start),
            count: whole(steps.len()),
            go_backwards: is(self.go_backwards),
            y_first: whole(output.first),
            y_width: whole(if self.return_sequences { output.width } else { 0 }),
            y_stride: whole(self.steps_out(time) * output.width),
            // Alone, a layer that goes backwards gives its outputs in the order in which it computes them, as in Keras.
            y_in_order: is(self.part == RecurrencePart::Whole),
            is_given: is(is_given),
            cell_offset: self.cell_offset(time).map_or(Word::U32(kernel::NONE), whole),
        }
    }

    fn dispatch(
        &self,
        rec: &mut Recorder<'_>,
        kernel: &'static Kernel,
        (params, grid): (impl Into<Vec<Word>>, Grid),
        inputs: &[View],
        outputs: &[View],
    ) {
        let is_masked = self.mask(rec).is_some();
        let dispatch = rec.dispatch(kernel, params, inputs, outputs, grid);
        let function = self.activation.function().unwrap_or(Function::plain(functions::Activation::None));
        dispatch.constants.extend(function.constants());
        let set = [
            ("USE_BIAS", self.use_bias, true),
            ("MASKED", is_masked, false),
            ("ZERO_OUTPUT", is_masked && self.zero_output_for_mask && self.own_steps(1) > 0, false),
            ("HARD", self.recurrent_activation == Activation::HardSigmoid, false),
        ];
        let other = set.into_iter().filter(|(_, is, default)| is != default);
        dispatch.constants.extend(other.map(|(name, is, _)| (name, f64::from(u8::from(is)))));
    }

    /// Records the outputs.
    pub(super) fn forward(&self, rec: &mut Recorder<'_>, y: RecurrentOutput) {
        let (shape, units, is_training) = (rec.input_shape(0), self.units, rec.is_training());
        let [time, features] = [shape.axes()[0], shape.last()];
        let [kernel, recurrent_kernel, bias] = self.part.names();
        let (columns, width) = (self.cell.gates() * units, self.cell.width() * units);
        let gates = Self::scratch(rec, "gates", time * width);
        let w = rec.parameter(kernel);
        for (group, range) in self.input_groups(is_training).into_iter().enumerate() {
            let x = self.dropped_input(rec, [time, features], group);
            let sizes = [length_word(Length::per_row(time)), whole(range.len() * units), whole(features)];
            let first = range.start * units;
            times(rec, sizes, Matrix(x, 0, features), Matrix(w, first, columns), Matrix(gates, first, width));
        }
        let [states, cells] = ["states", "cells"].map(|what| Self::scratch(rec, what, time * units));
        for (what, view) in [("gates", gates), ("states", states), ("cells", cells)] {
            rec.keep_each(what, self.part.idx(), view);
        }
        let (state, part) = (Self::scratch(rec, "state", units), Self::scratch(rec, "part", columns));
        let dropped = Self::scratch(rec, "dropped_state", units);
        let u = rec.parameter(recurrent_kernel);
        // What is not read may be any buffer that is not written.
        let bias = if self.use_bias { rec.parameter(bias) } else { part };
        let mask = self.mask(rec).unwrap_or(part);
        let mut outputs = vec![gates, states, state, y.view];
        outputs.extend((self.cell == Cell::Lstm).then_some(cells));
        if self.initial_state {
            self.begin(rec, [state, states, cells]);
        }
        if let Some([kernel, _]) = self.scans(is_training) {
            for first in (0..time).step_by(MOST_STEPS) {
                let params = self.scan_params(first..time.min(first + MOST_STEPS), time, y, self.initial_state);
                self.dispatch(rec, kernel, (params, scan::GRID), &[u, bias, mask], &outputs);
            }
            return self.give_state(rec, state, y);
        }
        for step in 0..time {
            let has_state = step > 0 || self.initial_state;
            for (gate, range) in self.state_groups(is_training).into_iter().enumerate().filter(|_| has_state) {
                let mut h = state;
                if is_training && self.recurrent_dropout > 0.0 {
                    self.state_drop(1).gate(gate).record(rec, state, dropped);
                    h = dropped;
                }
                let sizes = [Word::Rows(1), whole(range.len() * units), whole(units)];
                let first = range.start * units;
                times(rec, sizes, Matrix(h, 0, units), Matrix(u, first, columns), Matrix(part, first, columns));
            }
            let params = (self.params(step, time, y), self.grid());
            self.dispatch(rec, self.cell.forward(), params, &[part, bias, mask], &outputs);
        }
        self.give_state(rec, state, y);
    }

    /// Records the gradient that the product of a step gives to the state before it.
    fn state_gradient(&self, rec: &mut Recorder<'_>, step: usize, [d_gates, d_part]: [View; 2]) {
        let (time, units) = (rec.input_shape(0).axes()[0], self.units);
        let (columns, width) = (self.cell.gates() * units, self.cell.width() * units);
        let u = rec.parameter(self.part.names()[1]);
        let buffers = ["undropped", "more"].map(|what| Self::scratch(rec, what, units));
        let groups = self.state_groups(true);
        let first = self.at(step, time) * width + self.cell.first_of_state() * units;
        self.state_drop(1).backward(rec, groups.len(), buffers, d_part, |rec, group, to| {
            let range = &groups[group];
            let sizes = [Word::Rows(1), whole(units), whole(range.len() * units)];
            let d = Matrix(d_gates, first + range.start * units, time * width);
            times_transposed(rec, sizes, d, Matrix(u, range.start * units, columns), Matrix(to, 0, units));
        });
    }

    /// The input as a group of gates sees it; kept for backward.
    fn dropped_input(&self, rec: &mut Recorder<'_>, sizes: [usize; 2], group: usize) -> View {
        let x = rec.input(0);
        if !rec.is_training() || self.dropout == 0.0 {
            return x;
        }
        let dropped = rec.scratch("dropped_input", x.len);
        self.input_drop(sizes).gate(group).record(rec, x, dropped);
        rec.keep_each("dropped_input", self.part.idx() * 4 + group, dropped);
        dropped
    }

    /// Records the gradients of parameters and input.
    pub(super) fn backward(&self, rec: &mut Recorder<'_>, dy: RecurrentOutput) {
        let (shape, units) = (rec.input_shape(0), self.units);
        let time = shape.axes()[0];
        let width = self.cell.width() * units;
        let [gates, states, cells] = ["gates", "states", "cells"].map(|what| rec.kept_each(what, self.part.idx()));
        let [carried_h, carried_c, d_part] =
            ["carried_state", "carried_cell", "state_gradient"].map(|what| Self::scratch(rec, what, units));
        let u = rec.parameter(self.part.names()[1]);
        let mask = self.mask(rec).unwrap_or(d_part);
        let (before, d_gates) = match self.cell {
            Cell::Lstm => (cells, gates),
            Cell::Gru => (states, gates),
            Cell::Simple => (gates, Self::scratch(rec, "gate_gradients", time * width)),
        };
        let mut outputs = vec![d_gates, carried_h];
        outputs.extend((self.cell == Cell::Lstm).then_some(carried_c));
        if self.return_state {
            self.end(rec, dy, [carried_h, carried_c, d_part]);
        }
        if let Some([_, kernel]) = self.scans(true) {
            for first in (0..time).step_by(MOST_STEPS).rev() {
                let params = self.scan_params(first..time.min(first + MOST_STEPS), time, dy, self.return_state);
                self.dispatch(rec, kernel, (params, scan::GRID), &[u, dy.view, mask, before], &outputs);
            }
            if self.initial_state {
                self.state_gradient(rec, 0, [d_gates, d_part]);
            }
        } else {
            for step in (0..time).rev() {
                let inputs = [d_part, dy.view, mask, before];
                let params = self.backward_params(step, time, dy);
                self.dispatch(rec, self.cell.backward(), (params, self.grid()), &inputs, &outputs);
                if step > 0 || self.initial_state {
                    self.state_gradient(rec, step, [d_gates, d_part]);
                }
            }
        }
        if self.initial_state {
            self.initial_gradients(rec, [carried_h, carried_c, d_part]);
        }
        self.weight_gradients(rec, d_gates, states);
        self.input_gradient(rec, d_gates);
    }

    fn weight_gradients(&self, rec: &mut Recorder<'_>, d_gates: View, states: View) {
        let (shape, units) = (rec.input_shape(0), self.units);
        let [time, features] = [shape.axes()[0], shape.last()];
        let width = self.cell.width() * units;
        let [kernel, recurrent_kernel, bias] = self.part.names();
        if self.use_bias {
            sum_columns(rec, d_gates, time, width, bias);
        }
        let groups = self.input_groups(true);
        let inputs: Vec<View> = (0..groups.len())
            .map(|group| match self.dropout > 0.0 {
                true => rec.kept_each("dropped_input", self.part.idx() * 4 + group),
                false => rec.input(0),
            })
            .collect();
        self.weight_gradient(rec, kernel, &groups, (&inputs, features), (d_gates, 0));
        let groups = self.state_groups(true);
        let mut dropped = vec![states];
        if self.recurrent_dropout > 0.0 {
            dropped = (0..groups.len()).map(|_| Self::scratch(rec, "dropped_states", time * units)).collect();
            for (gate, dropped) in dropped.iter().enumerate() {
                self.state_drop(time).gate(gate).record(rec, states, *dropped);
            }
        }
        let first = self.cell.first_of_state() * units;
        self.weight_gradient(rec, recurrent_kernel, &groups, (&dropped, units), (d_gates, first));
    }

    /// Records `aᵀ d` over all steps, for each group of gates with its own `a` of so many columns.
    fn weight_gradient(
        &self,
        rec: &mut Recorder<'_>,
        parameter: &str,
        groups: &[std::ops::Range<usize>],
        (a, inputs): (&[View], usize),
        (d_gates, first): (View, usize),
    ) {
        let (time, units) = (rec.input_shape(0).axes()[0], self.units);
        let (columns, width) = (self.cell.gates() * units, self.cell.width() * units);
        let splits = dense::splits(inputs, columns, elements(&[ROWS_HINT, time]));
        sum_parts(rec, parameter, splits, |rec, splits, partials| {
            for (range, a) in groups.iter().zip(a) {
                let sizes = [whole(inputs), whole(range.len() * units), length_word(Length::per_row(time))];
                let d = Matrix(d_gates, first + range.start * units, width);
                let to = Matrix(partials, range.start * units, columns);
                let params =
                    dense::Record { splits: Word::U32(splits), ..product(sizes, Matrix(*a, 0, inputs), d, to) };
                let grid = params.split_grid(splits);
                rec.dispatch(&dense::BACKWARD_WEIGHTS, params, [*a, d_gates], [partials], grid);
            }
        });
    }

    fn input_gradient(&self, rec: &mut Recorder<'_>, d_gates: View) {
        let (shape, units) = (rec.input_shape(0), self.units);
        let [time, features] = [shape.axes()[0], shape.last()];
        let (columns, width) = (self.cell.gates() * units, self.cell.width() * units);
        let Some(dx) = rec.input_gradient(0) else { return };
        let w = rec.parameter(self.part.names()[0]);
        let buffers = ["undropped_input", "more_input"].map(|what| Self::scratch(rec, what, shape.len()));
        let groups = self.input_groups(true);
        self.input_drop([time, features]).backward(rec, groups.len(), buffers, dx, |rec, group, to| {
            let range = &groups[group];
            let sizes = [length_word(Length::per_row(time)), whole(features), whole(range.len() * units)];
            let first = range.start * units;
            times_transposed(
                rec,
                sizes,
                Matrix(d_gates, first, width),
                Matrix(w, first, columns),
                Matrix(to, 0, features),
            );
        });
    }
}
