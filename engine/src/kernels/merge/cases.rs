//! The cases of merging: every operation over tensors that are alike, and over all ways of stretching one of them.

use super::super::cases::{Case, InputFill};
use super::super::rounding::index;
use super::alignment::MergeArguments;
use super::{Alignment, Operation};
use crate::size::{Length, Scalars, Word, length_word};

/// Shapes of two rows, and how many rows.
const STRETCHED: [(u32, &[usize], &[usize]); 9] = [
    (3, &[5, 7], &[1, 7]),
    (2, &[7, 4, 1], &[7, 4, 9]),
    (5, &[1, 1], &[3, 2]),
    (2, &[1], &[257]),
    (2, &[65, 63], &[65, 1]),
    (1, &[2, 9, 3, 1], &[1, 9, 1, 4]),
    (3, &[2, 1, 2, 1, 3], &[1, 4, 1, 2, 1]),
    (2, &[64, 64], &[64]),
    (4, &[1, 1], &[1, 1]),
];

struct Sized {
    rows: u32,
    alignment: Alignment,
    label: String,
}

/// Alike in lengths about those of workgroups, one of them with a folded grid where `folded`; then the stretched ones.
fn all_sizes(folded: u32) -> Vec<Sized> {
    let alike = [1, 63, 64, 65, 257, folded].map(|len| {
        let alignment = Alignment::new(&[index(len)], &[index(len)]).into_iter();
        alignment.map(move |alignment| Sized { rows: 1, alignment, label: format!("{len}") })
    });
    let stretched = STRETCHED.iter().flat_map(|(rows, a, b)| {
        let alignment = Alignment::new(a, b).into_iter();
        let label = format!("{rows} rows of {a:?} and {b:?}");
        alignment.flat_map(move |alignment| {
            let parameter = alignment.clone().with_parameter();
            let shared = Sized { rows: *rows, alignment: parameter, label: format!("{label}, a parameter") };
            [Sized { rows: *rows, alignment, label: label.clone() }, shared]
        })
    });
    alike.into_iter().flatten().chain(stretched).collect()
}

impl Sized {
    /// Elements of an operand, or of the result.
    fn len(&self, operand: Option<usize>) -> usize {
        let rows = if operand == Some(1) && !self.alignment.has_rows[1] { 1 } else { index(self.rows) };
        let row = operand.map_or(self.alignment.output().iter().product(), |operand| self.alignment.len(operand));
        rows * row
    }

    fn case(&self, operation: Operation, recorded: MergeArguments, len: usize) -> Case {
        let scalars = Scalars { rows: self.rows, ..Scalars::default() };
        let params: Vec<Word> = recorded.params.into();
        let params = params.into_iter().map(|word| word.bits(&scalars)).collect();
        let count = length_word(Length::fixed(len)).bits(&scalars);
        let mut case = Case::elements(format!("{operation:?} of {}", self.label), params, count);
        case.constants = recorded.constants;
        case
    }
}

/// Halves from -3 to 3, so that many are equal.
fn halves(len: usize, seed: u64) -> InputFill {
    let values = InputFill::Normal(len).values(seed);
    InputFill::Values(values.iter().map(|value| (value * 2.0).round().clamp(-6.0, 6.0) / 2.0).collect())
}

/// Second operand of an operation: halves, or variances above 0, since drivers compute roots near 0 less exactly.
fn second(operation: Operation, len: usize, seed: u64) -> InputFill {
    match operation {
        Operation::Standardize | Operation::Unstandardize => InputFill::Uniform(len, 0.1, 9.0),
        _ => halves(len, seed),
    }
}

/// Halves with a NaN at every third place.
fn broken(len: usize, seed: u64) -> InputFill {
    let mut values = halves(len, seed).values(0);
    values.iter_mut().step_by(3).for_each(|value| *value = f32::NAN);
    InputFill::Values(values)
}

/// Calls `f` with each operation over each small size, and with one over all.
fn each(folded: u32, f: impl Fn(Operation, &Sized) -> Vec<Case>) -> Vec<Case> {
    let sizes = all_sizes(folded);
    let pairs = Operation::ALL.iter().flat_map(|operation| sizes.iter().map(move |size| (*operation, size)));
    let fits = |(operation, size): &(Operation, &Sized)| size.len(None) < 160 || *operation == Operation::Multiply;
    pairs.filter(fits).flat_map(|(operation, size)| f(operation, size)).collect()
}

pub(super) fn forward() -> Vec<Case> {
    each(64 * 65_536 + 3, |operation, size| {
        let case = |scale| size.case(operation, size.alignment.forward(operation, scale), size.len(None));
        let [a, b] = [0, 1].map(|operand| size.len(Some(operand)));
        let plain = case(0.5).input(halves(a, 1)).input(second(operation, b, 2)).output(size.len(None));
        let nan = case(1.0).input(broken(a, 1)).input(second(operation, b, 2)).output(size.len(None)).labelled("a NaN");
        let other = case(1.0).input(halves(a, 1)).input(broken(b, 2)).output(size.len(None)).labelled("b NaN");
        if size.len(None) < 100 { vec![plain, nan, other] } else { vec![plain] }
    })
}

pub(super) fn backward() -> Vec<Case> {
    each(70_001, |operation, size| {
        [0, 1]
            .map(|operand| {
                let recorded = size.alignment.backward(operation, operand, 0.5);
                // A parameter's gradient is summed over the rows by another kernel.
                let len = index(size.rows) * size.alignment.len(operand);
                let [own, other] = [operand, 1 - operand].map(|operand| match (operand, size.len(Some(operand))) {
                    (0, len) => halves(len, 3),
                    (_, len) => second(operation, len, 4),
                });
                let case = size.case(operation, recorded, len).labelled(&format!("operand {operand}"));
                case.input(own).input(other).input(InputFill::Normal(size.len(None))).output(len)
            })
            .into()
    })
}
