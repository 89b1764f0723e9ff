//! States that are inputs and outputs of a recurrent layer: where the steps find them and leave them.

use super::super::remap::copy;
use super::{Recurrence, RecurrentOutput};
use crate::kernels::remap::Axis;
use crate::kernels::{concatenate, whole};
use crate::plan::{Recorder, View, Word};

impl Recurrence {
    /// Puts what it begins with where the steps look for it: the state, and the first step's place of state and cell.
    pub(super) fn begin(&self, rec: &mut Recorder<'_>, [state, states, cells]: [View; 3]) {
        let time = rec.input_shape(0).axes()[0];
        let place = self.at(0, time) * self.units;
        let h = rec.input(1);
        copy(rec, &[Axis::full(self.units, 1)], (0, self.units), h, state);
        for (i, to) in (1..self.n_inputs()).zip([states, cells]) {
            let (from, part) = (rec.input(i), self.part_of_row(time * self.units, place));
            rec.dispatch(&concatenate::FORWARD, part, [from], [to], self.grid());
        }
    }

    /// Puts the last state behind the outputs, if it is wanted there. A step has put the cell behind it.
    pub(super) fn give_state(&self, rec: &mut Recorder<'_>, state: View, y: RecurrentOutput) {
        if self.return_state && self.return_sequences {
            let time = rec.input_shape(0).axes()[0];
            let part = self.part_of_row(self.steps_out(time) * self.units, time * self.units);
            rec.dispatch(&concatenate::FORWARD, part, [state], [y.view], self.grid());
        }
    }

    /// Units among the numbers of a row, from a place on.
    fn part_of_row(&self, row_len: usize, place: usize) -> concatenate::Record {
        let [cols, total, offset] = [self.units, row_len, place].map(whole);
        concatenate::Record { rows: Word::Rows(1), cols, total, offset }
    }

    /// Lets backward begin with the gradients of the last state. Without outputs of its own, that of the state is the output's.
    pub(super) fn end(&self, rec: &mut Recorder<'_>, dy: RecurrentOutput, [carried_h, carried_c, d_part]: [View; 3]) {
        let time = rec.input_shape(0).axes()[0];
        let row_len = self.steps_out(time) * self.units;
        let nothing = [Axis { size: self.units, stride: 1, before: self.units, extent: 0 }];
        let mut zero = |view| copy(rec, &nothing, (0, 0), dy.view, view);
        zero(d_part);
        let mut from = Vec::new();
        match self.return_sequences {
            true => from.push((carried_h, time * self.units)),
            false => zero(carried_h),
        }
        from.extend(self.cell_offset(time).map(|place| (carried_c, place)));
        for (carried, place) in from {
            let part = self.part_of_row(row_len, place);
            rec.dispatch(&concatenate::BACKWARD, part, [dy.view], [carried], self.grid());
        }
    }

    /// Records the gradients of what it begins with: of the first step's product with the state, and what is carried.
    pub(super) fn initial_gradients(&self, rec: &mut Recorder<'_>, [carried_h, carried_c, d_part]: [View; 3]) {
        let all = [Axis::full(self.units, 1)];
        if let Some(dh) = rec.input_gradient(1) {
            copy(rec, &all, (0, self.units), carried_h, dh);
            rec.accumulate(d_part, dh);
        }
        if self.cell.states() == 2
            && let Some(dc) = rec.input_gradient(2)
        {
            copy(rec, &all, (0, self.units), carried_c, dc);
        }
    }
}
