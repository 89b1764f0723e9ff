//! Alignment of two operands with their result, each stretched along the axes that it lacks.

use super::super::whole;
use super::{MOST_AXES, MergedAxis, Operation, Record};
use crate::size::{Length, Word, length_word};

/// Axes of the result that stand side by side and that the same operands have, as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AxisRun {
    size: usize,
    /// Whether `a` and `b` have it.
    has: [bool; 2],
}

/// Alignment of two operands with their result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alignment {
    output: Vec<usize>,
    /// The innermost first.
    runs: Vec<AxisRun>,
    /// Whether each operand has rows. A parameter has none.
    pub(super) has_rows: [bool; 2],
}

/// Arguments of a dispatch beside its buffers.
#[derive(Clone, Debug)]
pub struct MergeArguments {
    /// `Params`.
    pub params: Record,
    /// The constants.
    pub constants: Vec<(&'static str, f64)>,
}

impl Alignment {
    /// Of the shapes of two rows, the outermost axis first. An axis of length 1, or one that is left out in front, is
    /// stretched. `None` if the shapes don't go together.
    pub fn new(a: &[usize], b: &[usize]) -> Option<Self> {
        let rank = a.len().max(b.len());
        let padded = |shape: &[usize]| [vec![1; rank - shape.len()], shape.to_vec()].concat();
        let pairs = || padded(a).into_iter().zip(padded(b));
        if pairs().any(|(a, b)| a != b && a != 1 && b != 1) {
            return None;
        }
        let mut runs: Vec<AxisRun> = Vec::new();
        for (a, b) in pairs().rev().filter(|pair| *pair != (1, 1)) {
            let has = [a != 1, b != 1];
            match runs.last_mut().filter(|run| run.has == has) {
                Some(run) => run.size = run.size.saturating_mul(a.max(b)),
                None => runs.push(AxisRun { size: a.max(b), has }),
            }
        }
        let output = pairs().map(|(a, b)| a.max(b)).collect();
        Some(Self { output, runs, has_rows: [true, true] })
    }

    /// Says that `b` is a parameter, which all rows share.
    #[must_use]
    pub fn with_parameter(mut self) -> Self {
        self.has_rows[1] = false;
        self
    }

    /// The shape of a row of the result.
    pub fn output(&self) -> &[usize] {
        &self.output
    }

    /// Whether the kernels support it.
    pub fn is_able(&self) -> bool {
        self.runs.len() <= MOST_AXES
    }

    /// Whether both operands are as long as the result.
    pub fn is_plain(&self) -> bool {
        self.has_rows == [true, true] && self.runs.iter().all(|run| run.has == [true, true])
    }

    /// Elements of a row of an operand.
    pub fn len(&self, operand: usize) -> usize {
        self.runs.iter().filter(|run| run.has[operand]).fold(1, |len, run| len.saturating_mul(run.size))
    }

    /// `scale * op(a, b)`.
    pub fn forward(&self, operation: Operation, scale: f32) -> MergeArguments {
        let axes: Vec<MergedAxis> = self.strided(|run| run.has).map(|axis| MergedAxis { count: 1, ..axis }).collect();
        let rows = [0, 1].map(|operand| if self.has_rows[operand] { self.len(operand) } else { 0 });
        let len = self.runs.iter().fold(1, |len: usize, run| len.saturating_mul(run.size));
        self.recorded(operation, record(len, &axes, [rows[0], rows[1], 0], scale))
    }

    /// The gradient of an operand, 0 or 1, of each row; `dy` has the strides of the result.
    pub fn backward(&self, operation: Operation, operand: usize, scale: f32) -> MergeArguments {
        let whole_and_other = |run: &AxisRun| [true, run.has[1 - operand]];
        let axes = self.strided(whole_and_other).zip(&self.runs).map(|(axis, run)| match run.has[operand] {
            true => MergedAxis { count: 1, ..axis },
            false => MergedAxis { size: 1, ..axis },
        });
        let output = self.runs.iter().fold(1, |len: usize, run| len.saturating_mul(run.size));
        let rows_of = |operand: usize| if self.has_rows[operand] { self.len(operand) } else { 0 };
        let rows = [output, rows_of(1 - operand), rows_of(operand)];
        let axes: Vec<MergedAxis> = axes.collect();
        let mut recorded = self.recorded(operation, record(self.len(operand), &axes, rows, scale));
        recorded.constants.push(("OPERAND", if operand == 1 { 1.0 } else { 0.0 }));
        recorded
    }

    /// The axes with the strides of two tensors that have them or not; size and count are the axis' length.
    fn strided(&self, has: impl Fn(&AxisRun) -> [bool; 2]) -> impl Iterator<Item = MergedAxis> {
        let mut lens = [1, 1];
        self.runs.iter().map(move |run| {
            let has = has(run);
            let strides = [0, 1].map(|tensor: usize| if has[tensor] { lens[tensor] } else { 0 });
            [0, 1].into_iter().filter(|tensor: &usize| has[*tensor]).for_each(|tensor| lens[tensor] *= run.size);
            MergedAxis { size: run.size, count: run.size, a: strides[0], b: strides[1] }
        })
    }

    fn recorded(&self, operation: Operation, params: Record) -> MergeArguments {
        let axes = if self.is_plain() { 0 } else { self.runs.len().max(1) };
        let axes = f64::from(u32::try_from(axes).unwrap_or(u32::MAX));
        MergeArguments { params, constants: vec![("OPERATION", operation.code()), ("AXES", axes)] }
    }
}

/// `Params` of a result of `len` elements a row, with axes from the inside, and the rows' strides of `a`, `b` and `x`.
fn record(len: usize, axes: &[MergedAxis], rows: [usize; 3], scale: f32) -> Record {
    let axis = |idx: usize| axes.get(idx).copied().unwrap_or(MergedAxis { size: 1, count: 1, a: 0, b: 0 });
    let [sizes, counts, a, b]: [[Word; MOST_AXES]; 4] = [
        |axis: MergedAxis| axis.size,
        |axis: MergedAxis| axis.count,
        |axis: MergedAxis| axis.a,
        |axis: MergedAxis| axis.b,
    ]
    .map(|of| std::array::from_fn(|idx| whole(of(axis(idx)))));
    Record {
        len: length_word(Length::per_row(len)),
        size_1: sizes[0],
        size_2: sizes[1],
        size_3: sizes[2],
        size_4: sizes[3],
        size_5: sizes[4],
        count_1: counts[0],
        count_2: counts[1],
        count_3: counts[2],
        count_4: counts[3],
        count_5: counts[4],
        a_1: a[0],
        a_2: a[1],
        a_3: a[2],
        a_4: a[3],
        a_5: a[4],
        a_rows: whole(rows[0]),
        b_1: b[0],
        b_2: b[1],
        b_3: b[2],
        b_4: b[3],
        b_5: b[4],
        b_rows: whole(rows[1]),
        x_rows: whole(rows[2]),
        scale: Word::F32(scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_run_alike_are_one() {
        let runs = |a: &[usize], b: &[usize]| {
            let runs = Alignment::new(a, b).unwrap().runs;
            runs.iter().map(|run| (run.size, run.has)).collect::<Vec<_>>()
        };
        assert_eq!(runs(&[4, 5, 6], &[4, 5, 6]), [(120, [true, true])]);
        assert_eq!(runs(&[4, 5, 6], &[1, 1, 6]), [(6, [true, true]), (20, [true, false])]);
        assert_eq!(runs(&[4, 5, 6], &[6]), [(6, [true, true]), (20, [true, false])]);
        assert_eq!(runs(&[4, 5, 1], &[4, 5, 6]), [(6, [false, true]), (20, [true, true])]);
        assert_eq!(runs(&[1, 1], &[1]), []);
        assert_eq!(Alignment::new(&[4, 5], &[4]), None);
        assert_eq!(Alignment::new(&[4, 1], &[1, 5]).unwrap().output(), [4, 5]);
        let many = Alignment::new(&[2, 1, 2, 1, 2, 1], &[1, 2, 1, 2, 1, 2]).unwrap();
        assert!(!many.is_able() && Alignment::new(&[1, 2, 1, 2, 1], &[2, 1, 2, 1, 2]).unwrap().is_able());
    }
}
