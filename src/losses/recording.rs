//! Views that a loss reads and writes in a plan.

use super::positions::Positions;
use crate::kernels::{Kernel, rows_grid, whole};
use crate::plan::{Dispatch, Length, Recorder, Role, View, Word, length_word};
use crate::shape::Shape;

/// Views that the loss of an output reads and writes. A kernel's rows are the batch's rows times the output's
/// positions: all its axes but the last.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// The model's output, `[rows, cols]`.
    pub output: View,
    /// The target, as the loss declares it.
    pub target: View,
    /// A weight for each sample, `[rows / positions]`; where the output has a mask, for each row of the kernel.
    pub sample_weight: View,
    /// Output: loss of each row times its sample's weight, and its score, `[rows, 2]`. A row of weight 0 has loss 0,
    /// whatever it holds.
    pub report: View,
    /// Output: the derivative of `scale` · the sum of the report's first column, `[rows, cols]`.
    pub gradient: View,
    /// Rows of the kernel.
    pub rows: Word,
    /// Length of the output's last axis.
    pub cols: Word,
    /// Rows of the kernel that share a sample.
    pub positions: Word,
    /// Factor of the gradient.
    pub scale: Word,
    /// Positions and columns.
    size: (usize, usize),
}

impl Recording {
    /// Of output `output_idx`, whose values at these positions of each row are `y`.
    pub(super) fn new(
        rec: &mut Recorder<'_>,
        output_idx: u32,
        [shape, target]: [&Shape; 2],
        positions: &Positions,
        y: View,
    ) -> Self {
        let is_masked = rec.plan().masks.get(output_idx as usize).is_some_and(Option::is_some);
        let (all, count) = (positions.all, positions.part.len());
        let weights = if is_masked { all } else { 1 };
        let mut whole_of = |role: fn(u32) -> Role, len: usize| {
            rec.plan().find_or_add(&format!("loss{output_idx}"), role(output_idx), Length::per_row(len))
        };
        let target_view = whole_of(Role::Target, target.len());
        let sample_weight = whole_of(Role::SampleWeight, weights);
        let report = whole_of(Role::Report, 2 * all);
        Self {
            output: y,
            target: positions.take(rec, target_view, target.len() / all.max(1)),
            sample_weight: if is_masked { positions.take(rec, sample_weight, 1) } else { sample_weight },
            report: if positions.are_all() { report } else { rec.scratch("report", Length::per_row(2 * count)) },
            gradient: rec.scratch("gradient", y.len),
            rows: length_word(Length::per_row(count)),
            cols: whole(shape.last()),
            positions: whole(if is_masked { 1 } else { count }),
            scale: Word::LossScale(output_idx),
            size: (count, shape.last()),
        }
    }

    /// Puts the report of some positions into that of all.
    pub(super) fn finish(&self, rec: &mut Recorder<'_>, output_idx: u32, positions: &Positions) {
        if let Some(buffer) = rec.plan().find(Role::Report(output_idx)).filter(|_| !positions.are_all()) {
            let report = View { buffer, offset: 0, len: Length::per_row(2 * positions.all) };
            positions.put(rec, self.report, report, 2);
        }
    }

    /// Records a kernel with the constant `LANES`, of which so many invocations share a row: inputs output, target and
    /// sample weight, outputs report and gradient. Other constants may be added to what it gives.
    pub fn dispatch<'a>(
        &self,
        rec: &'a mut Recorder<'_>,
        kernel: &'static Kernel,
        params: impl Into<Vec<Word>>,
    ) -> &'a mut Dispatch {
        let (grid, lanes) = rows_grid(self.size.0, self.size.1);
        let inputs = [self.output, self.target, self.sample_weight];
        let dispatch = rec.dispatch(kernel, params, inputs, [self.report, self.gradient], grid);
        dispatch.constants.push(lanes);
        dispatch
    }
}
