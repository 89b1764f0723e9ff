//! Rows read from a dataset, as flat buffers for the adapters.

use std::ops::Range;
use std::sync::Arc;

use super::buffers::Buffers;
use super::{Dataset, label_value};
use crate::runtime::threads;
use crate::{Error, Result, Shape};

/// Rows of every input and target, row-major without gaps.
///
/// | buffer | shape |
/// | --- | --- |
/// | `inputs[i]` | `[rows, ..input_shapes[i]]` |
/// | `targets[i]` | `[rows, ..target_shapes[i]]` |
/// | `sample_weights` | `[rows]` |
///
/// Cloning a batch copies no values.
///
/// ```
/// use manyhands::data::{Batch, digits};
/// # fn main() -> manyhands::Result<()> {
/// let batch = Batch::fetch(&digits::test()?, &[0, 1, 2, 3])?;
/// let shard = batch.shard(1..3);
/// assert_eq!(shard.rows, 2);
/// assert_eq!(shard.inputs[0][..], batch.inputs[0][64..192]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// Values of each input.
    pub inputs: Vec<Arc<[f32]>>,
    /// Values of each target.
    pub targets: Vec<Arc<[f32]>>,
    /// Weight of each row in the loss.
    pub sample_weights: Option<Arc<[f32]>>,
}

impl Batch {
    /// Reads rows of a dataset, in the order given.
    ///
    /// # Errors
    ///
    /// When a row is not there, can't be decoded, or holds a value that is not finite.
    pub fn fetch(dataset: &dyn Dataset, rows: &[usize]) -> Result<Self> {
        Self::fetch_by(dataset, rows, &Buffers::default(), |whole| fetch_piece(dataset, rows, whole, &|_, _| ()))
    }

    /// Gives its buffers to later batches, once it is dropped. It is complete: a change of its values would now copy them.
    pub(super) fn lend_to(&self, buffers: &Buffers) {
        let Self { rows: _, inputs, targets, sample_weights } = self;
        inputs.iter().chain(targets).chain(sample_weights).for_each(|buffer| buffers.keep(buffer));
    }

    /// As [`fetch`](Self::fetch), into buffers of earlier batches. `change` gets rows and their values of input 0.
    pub(super) fn fetch_into(
        buffers: &Buffers,
        dataset: &dyn Dataset,
        rows: &[usize],
        change: &RowsChange<'_>,
    ) -> Result<Self> {
        Self::fetch_by(dataset, rows, buffers, |whole| fetch_piece(dataset, rows, whole, change))
    }

    /// As [`fetch_into`](Self::fetch_into), on the threads of the caller's pool: each reads, checks and changes some rows, which
    /// stay in its core's cache.
    pub(super) fn fetch_on_threads(
        buffers: &Buffers,
        dataset: &dyn Dataset,
        rows: &[usize],
        change: &RowsChange<'_>,
    ) -> Result<Self> {
        Self::fetch_by(dataset, rows, buffers, |whole| fetch_in_pieces(dataset, rows, whole, change))
    }

    fn fetch_by(
        dataset: &dyn Dataset,
        rows: &[usize],
        buffers: &Buffers,
        read: impl FnOnce(BatchMut<'_>) -> Result<()>,
    ) -> Result<Self> {
        if let Some(row) = rows.iter().find(|&&row| row >= dataset.len()) {
            return Err(Error::data(
                "the dataset",
                format!("has {} rows, but row {row} was asked for", dataset.len()),
                "rows count from 0",
            ));
        }
        let taken = |shapes: Vec<Shape>| shapes.iter().map(|shape| buffers.take(rows.len() * shape.len())).collect();
        let mut batch = Self {
            rows: rows.len(),
            inputs: taken(dataset.input_shapes()),
            targets: taken(dataset.target_shapes()),
            sample_weights: dataset.has_sample_weights().then(|| buffers.take(rows.len())),
        };
        if rows.is_empty() {
            return Ok(batch);
        }
        let whole = BatchMut {
            inputs: slices(&mut batch.inputs),
            targets: slices(&mut batch.targets),
            sample_weights: batch.sample_weights.as_mut().map_or(&mut [], Arc::make_mut),
        };
        read(whole)?;
        Ok(batch)
    }

    /// A range of the rows, for one adapter. The whole range copies no values.
    ///
    /// # Panics
    ///
    /// When the range ends after the last row.
    #[must_use]
    pub fn shard(&self, rows: Range<usize>) -> Self {
        if rows == (0..self.rows) {
            return self.clone();
        }
        let cut = |values: &Arc<[f32]>| {
            let row_len = values.len() / self.rows.max(1);
            Arc::from(&values[rows.start * row_len..rows.end * row_len])
        };
        Self {
            rows: rows.len(),
            inputs: self.inputs.iter().map(cut).collect(),
            targets: self.targets.iter().map(cut).collect(),
            sample_weights: self.sample_weights.as_ref().map(cut),
        }
    }

    /// Checks that all values are finite, and weights not negative.
    pub(crate) fn check_values(&self, row_name: RowName<'_>) -> Result<()> {
        let row = |values: &Arc<[f32]>| Shape::new([values.len() / self.rows.max(1)]);
        for (kind, buffers) in [("input", &self.inputs), ("target", &self.targets)] {
            for (position, values) in buffers.iter().enumerate() {
                check_finite(&format!("{kind} {position}"), &row(values), values, row_name)?;
            }
        }
        self.sample_weights.as_ref().map_or(Ok(()), |weights| check_weights(weights, row_name))
    }
}

/// Gives the row to name in an error for a row of a batch.
pub(crate) type RowName<'a> = &'a dyn Fn(usize) -> usize;

/// A change of the first input's values of some rows, on any thread.
pub(super) type RowsChange<'a> = dyn Fn(&[usize], &mut [f32]) + Sync + 'a;

/// Reads rows, checks their values, and changes them.
fn fetch_piece(dataset: &dyn Dataset, rows: &[usize], mut piece: BatchMut<'_>, change: &RowsChange<'_>) -> Result<()> {
    dataset.fetch(rows, &mut piece)?;
    piece.check_finite(rows, &dataset.input_shapes(), &dataset.target_shapes())?;
    change(rows, piece.input(0));
    Ok(())
}

/// Most rows that a thread reads at once.
const PIECE_ROWS: usize = 8;
/// Most values of such rows, unless one row has more: they stay in a core's cache until they are checked and changed.
const PIECE_VALUES: usize = 1 << 16;

/// Reads rows on the threads of the caller's pool: decoding a batch takes long, and all threads should be at the next one
/// that is needed.
fn fetch_in_pieces(
    dataset: &dyn Dataset,
    rows: &[usize],
    mut batch: BatchMut<'_>,
    change: &RowsChange<'_>,
) -> Result<()> {
    let n_rows = rows.len();
    let row_len = batch.input(0).len() / n_rows.max(1);
    let piece_rows = (PIECE_VALUES / row_len.max(1)).clamp(1, PIECE_ROWS);
    let mut results: Vec<Result<()>> = rows.chunks(piece_rows).map(|_| Ok(())).collect();
    let (mut pieces, mut left) = (Vec::new(), n_rows);
    for (rows, result) in rows.chunks(piece_rows).zip(&mut results) {
        let (piece, rest) = batch.split_at(rows.len(), left);
        (batch, left) = (rest, left - rows.len());
        pieces.push((rows, piece, result));
    }
    threads::for_each(pieces, |(rows, piece, result)| *result = fetch_piece(dataset, rows, piece, change));
    // The error of the first rows, whichever thread was first.
    results.into_iter().collect()
}

fn zeros(shapes: &[Shape], rows: usize) -> Vec<Arc<[f32]>> {
    shapes.iter().map(|shape| std::iter::repeat_n(0.0, rows * shape.len()).collect()).collect()
}

/// The buffers have one owner each, so nothing is copied here.
fn slices(buffers: &mut [Arc<[f32]>]) -> Vec<&mut [f32]> {
    buffers.iter_mut().map(Arc::make_mut).collect()
}

/// Buffers to which a [`Dataset`] writes the requested rows.
///
/// An unwanted part is an empty slice.
#[derive(Debug)]
pub struct BatchMut<'a> {
    inputs: Vec<&'a mut [f32]>,
    targets: Vec<&'a mut [f32]>,
    sample_weights: &'a mut [f32],
}

impl<'a> BatchMut<'a> {
    /// All rows of an input, `[rows, ..shape]`.
    pub fn input(&mut self, position: usize) -> &mut [f32] {
        self.inputs.get_mut(position).map_or(&mut [], |values| values)
    }

    /// All rows of a target, `[rows, ..shape]`.
    pub fn target(&mut self, position: usize) -> &mut [f32] {
        self.targets.get_mut(position).map_or(&mut [], |values| values)
    }

    /// The weight of each row, `[rows]`.
    pub fn sample_weights(&mut self) -> &mut [f32] {
        self.sample_weights
    }

    /// Checks that all values are finite, and weights not negative.
    fn check_finite(&self, rows: &[usize], inputs: &[Shape], targets: &[Shape]) -> Result<()> {
        for (kind, shapes, parts) in [("input", inputs, &self.inputs), ("target", targets, &self.targets)] {
            for (position, (shape, values)) in shapes.iter().zip(parts).enumerate() {
                check_finite(&format!("{kind} {position}"), shape, values, |row| rows[row])?;
            }
        }
        check_weights(self.sample_weights, |row| rows[row])
    }

    /// The first `rows` of `all` rows, and the others.
    fn split_at(self, rows: usize, all: usize) -> (Self, Self) {
        let cut = |values: &'a mut [f32]| {
            let row_len = values.len() / all.max(1);
            values.split_at_mut(rows * row_len)
        };
        let (inputs, later_inputs) = self.inputs.into_iter().map(cut).unzip();
        let (targets, later_targets) = self.targets.into_iter().map(cut).unzip();
        let (sample_weights, later_weights) = cut(self.sample_weights);
        (
            Self { inputs, targets, sample_weights },
            Self { inputs: later_inputs, targets: later_targets, sample_weights: later_weights },
        )
    }

    /// Inputs and targets together, for rows that are decoded as a whole.
    ///
    /// Either list is empty when it is not wanted.
    pub fn parts(&mut self) -> (&mut [&'a mut [f32]], &mut [&'a mut [f32]]) {
        (&mut self.inputs, &mut self.targets)
    }
}

fn of_inputs(inputs: Vec<&mut [f32]>) -> BatchMut<'_> {
    BatchMut { inputs, targets: Vec::new(), sample_weights: &mut [] }
}

fn of_targets(targets: Vec<&mut [f32]>) -> BatchMut<'_> {
    BatchMut { inputs: Vec::new(), targets, sample_weights: &mut [] }
}

/// Rows whose labels are checked at a time.
const LABEL_CHUNK: usize = 4096;

/// Checks that every label of a target is a whole number from 0 to `classes - 1`.
///
/// Only targets are read, so images are not decoded.
///
/// # Errors
///
/// Names the first row whose label is out of range, or what went wrong while reading.
///
/// ```
/// use manyhands::data::digits;
/// use manyhands::data::check_labels;
/// # fn main() -> manyhands::Result<()> {
/// let error = check_labels(&digits::test()?, 0, 5).unwrap_err();
/// assert!(error.to_string().starts_with("target 0 needs labels from 0 to 4, but row "));
/// # Ok(())
/// # }
/// ```
pub fn check_labels(dataset: &dyn Dataset, target: usize, classes: usize) -> Result<()> {
    check_counted_labels(dataset, target, classes, None)
}

/// As [`check_labels`], for a loss that ignores a class.
pub(crate) fn check_counted_labels(
    dataset: &dyn Dataset,
    target: usize,
    classes: usize,
    ignored: Option<f32>,
) -> Result<()> {
    match first_target_that(dataset, target, |label| !is_label(label, classes) && Some(label) != ignored)? {
        Some((row, label)) => Err(label_error(target, row, label, classes)),
        None => Ok(()),
    }
}

/// Checks that every number of a target is from 0 to 1.
///
/// # Errors
///
/// Names the first row and value that is not, or what went wrong while reading.
///
/// ```
/// use manyhands::data::digits;
/// use manyhands::data::check_probabilities;
/// # fn main() -> manyhands::Result<()> {
/// let error = check_probabilities(&digits::test()?, 0).unwrap_err();
/// assert!(error.to_string().starts_with("target 0 needs numbers from 0 to 1, but row "));
/// # Ok(())
/// # }
/// ```
pub fn check_probabilities(dataset: &dyn Dataset, target: usize) -> Result<()> {
    check_numbers(dataset, target, Numbers::Probabilities)
}

/// Numbers that a target may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// From 0 to 1.
    Probabilities,
    /// -1 and 1, or 0 and 1.
    Signs,
    /// At least 0.
    Counts,
}

impl Numbers {
    /// Tells of one value after the other whether it is refused.
    fn refuses(self) -> impl FnMut(f32) -> bool {
        let mut low = None;
        move |value| match self {
            Self::Probabilities => !(0.0..=1.0).contains(&value),
            Self::Counts => value < 0.0,
            Self::Signs if value == 1.0 => false,
            Self::Signs => (value != 0.0 && value != -1.0) || *low.get_or_insert(value) != value,
        }
    }

    fn error(self, target: usize, row: usize, value: f32) -> Error {
        match self {
            Self::Probabilities => probability_error(target, row, value),
            Self::Signs => Error::data(
                format!("target {target}"),
                format!("needs -1 and 1, or 0 and 1, but row {row} holds {value}"),
                "a hinge tells two classes apart; for other numbers use `MeanSquaredError`",
            ),
            Self::Counts => Error::data(
                format!("target {target}"),
                format!("needs numbers of at least 0, but row {row} holds {value}"),
                "`Poisson` takes counts; for other numbers use `MeanSquaredError`",
            ),
        }
    }
}

/// Checks the numbers of a target.
///
/// # Errors
///
/// Names the first row and value that is refused, or what went wrong while reading.
pub(crate) fn check_numbers(dataset: &dyn Dataset, target: usize, numbers: Numbers) -> Result<()> {
    match first_target_that(dataset, target, numbers.refuses())? {
        Some((row, value)) => Err(numbers.error(target, row, value)),
        None => Ok(()),
    }
}

/// Checks that every value of an input is a whole number from 0 to `bound - 1`, which a layer looks vectors up by.
///
/// Only inputs are read.
///
/// # Errors
///
/// Names the first row and value that is not, or what went wrong while reading.
pub(crate) fn check_indices(dataset: &dyn Dataset, input: usize, name: &str, bound: usize) -> Result<()> {
    let shapes = dataset.input_shapes();
    match first_that(dataset, &shapes, input, of_inputs, |value| !is_label(value, bound))? {
        Some((row, value)) => Err(index_error(name, row, value, bound)),
        None => Ok(()),
    }
}

/// Checks that every value of a batch's input is a whole number from 0 to `bound - 1`.
pub(crate) fn check_batch_indices(
    values: &[f32],
    row_len: usize,
    name: &str,
    bound: usize,
    row_name: RowName<'_>,
) -> Result<()> {
    match values.iter().position(|value| !is_label(*value, bound)) {
        Some(at) => Err(index_error(name, row_name(at / row_len.max(1)), values[at], bound)),
        None => Ok(()),
    }
}

fn index_error(name: &str, row: usize, value: f32, bound: usize) -> Error {
    Error::data(
        format!("input `{name}`"),
        format!("needs whole numbers from 0 to {}, but row {row} holds {value}", bound.saturating_sub(1)),
        if value.fract() == 0.0 {
            format!("each is a row of a table of {bound}; let the layer's `input_dim` be the largest number plus 1")
        } else {
            format!(
                "each is a row of a table of {bound}; give whole numbers, not scaled ones; in a settings file, numbers of a table \
                 stay as they are by `numbers = \"unchanged\"` in `[data]`"
            )
        },
    )
}

/// Row and value of the first refused number of a target.
pub(super) fn first_target_that(
    dataset: &dyn Dataset,
    target: usize,
    is_refused: impl FnMut(f32) -> bool,
) -> Result<Option<(usize, f32)>> {
    let shapes = dataset.target_shapes();
    if target >= shapes.len() {
        return Err(Error::data(
            format!("target {target}"),
            format!("is needed, but the dataset has {} targets", shapes.len()),
            "give the dataset a target for each output of the model",
        ));
    }
    first_that(dataset, &shapes, target, of_targets, is_refused)
}

/// Row and value of the first refused number of a part of the dataset; `into` selects the parts to read.
fn first_that(
    dataset: &dyn Dataset,
    shapes: &[Shape],
    part: usize,
    into: for<'a> fn(Vec<&'a mut [f32]>) -> BatchMut<'a>,
    mut is_refused: impl FnMut(f32) -> bool,
) -> Result<Option<(usize, f32)>> {
    let row_len = shapes[part].len().max(1);
    let mut buffers = zeros(shapes, LABEL_CHUNK.min(dataset.len()));
    for first in (0..dataset.len()).step_by(LABEL_CHUNK) {
        let rows: Vec<usize> = (first..dataset.len().min(first + LABEL_CHUNK)).collect();
        let mut parts = slices(&mut buffers);
        for (values, shape) in parts.iter_mut().zip(shapes) {
            *values = &mut std::mem::take(values)[..rows.len() * shape.len()];
        }
        dataset.fetch(&rows, &mut into(parts))?;
        let values = &buffers[part][..rows.len() * row_len];
        if let Some(element) = values.iter().position(|value| is_refused(*value)) {
            return Ok(Some((rows[element / row_len], values[element])));
        }
    }
    Ok(None)
}

/// Checks that every label of a batch's target is a whole number from 0 to `classes - 1`.
pub(crate) fn check_batch_labels(
    values: &[f32],
    row_len: usize,
    target: usize,
    classes: usize,
    ignored: Option<f32>,
    row_name: RowName<'_>,
) -> Result<()> {
    match values.iter().position(|label| !is_label(*label, classes) && Some(*label) != ignored) {
        Some(at) => Err(label_error(target, row_name(at / row_len.max(1)), values[at], classes)),
        None => Ok(()),
    }
}

/// Checks the numbers of a batch's target.
pub(crate) fn check_batch_numbers(
    values: &[f32],
    row_len: usize,
    target: usize,
    numbers: Numbers,
    row_name: RowName<'_>,
) -> Result<()> {
    let mut refuses = numbers.refuses();
    match values.iter().position(|value| refuses(*value)) {
        Some(at) => Err(numbers.error(target, row_name(at / row_len.max(1)), values[at])),
        None => Ok(()),
    }
}

fn is_label(label: f32, classes: usize) -> bool {
    label >= 0.0 && label < label_value(classes) && label.fract() == 0.0
}

fn label_error(target: usize, row: usize, label: f32, classes: usize) -> Error {
    let help = if label.fract() == 0.0 {
        format!("labels count from 0; give the last layer as many units as there are classes, now {classes}")
    } else {
        "a class label is a whole number that counts from 0; for other targets use another loss".into()
    };
    Error::data(
        format!("target {target}"),
        format!("needs labels from 0 to {}, but row {row} has label {label}", classes.saturating_sub(1)),
        help,
    )
}

fn probability_error(target: usize, row: usize, value: f32) -> Error {
    let help = if value > 1.0 && value.fract() == 0.0 {
        "one number tells two classes apart, 0 and 1; for more, give the last layer a unit for each class and use \
         `SparseCategoricalCrossentropy`"
    } else {
        "a cross-entropy takes probabilities; for other numbers use `MeanSquaredError`, or scale them"
    };
    Error::data(format!("target {target}"), format!("needs numbers from 0 to 1, but row {row} holds {value}"), help)
}

/// Checks `[rows, ..shape]` values; `row_name` turns an index in `values` into the row to name.
pub(super) fn check_finite(who: &str, shape: &Shape, values: &[f32], row_name: impl Fn(usize) -> usize) -> Result<()> {
    let Some(at) = first_not_finite(values) else { return Ok(()) };
    let row_len = shape.len().max(1);
    let place = place(shape, at % row_len);
    Err(Error::data(
        who,
        format!("needs finite numbers, but row {}{place} holds {}", row_name(at / row_len), values[at]),
        "mend the value or leave the row out: one such value would spoil every weight",
    ))
}

/// Index of the first number that is not finite. Whole blocks are looked at first: a loop without an early end compiles to
/// vector instructions.
fn first_not_finite(values: &[f32]) -> Option<usize> {
    const BLOCK: usize = 1024;
    const EXPONENT: u32 = 0x7f80_0000;
    // By bits: a fold of 32-bit numbers fills the lanes of vectors, one of `bool` does not.
    let others = |block: &[f32]| {
        block.iter().fold(0, |others, value| others | u32::from(value.to_bits() & EXPONENT == EXPONENT))
    };
    let begin = values.chunks(BLOCK).position(|block| others(block) > 0)? * BLOCK;
    values[begin..].iter().position(|value| !value.is_finite()).map(|at| begin + at)
}

/// Checks that weights are finite and not negative.
pub(super) fn check_weights(weights: &[f32], row_name: impl Fn(usize) -> usize) -> Result<()> {
    let Some(at) = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) else { return Ok(()) };
    Err(Error::data(
        "sample weights",
        format!("need finite numbers from 0 up, but row {} has {}", row_name(at), weights[at]),
        "use 0 for a row that must not count",
    ))
}

/// `, column 3` in a row of one axis, `, element [1, 2, 0]` in one of several, nothing in a scalar.
fn place(shape: &Shape, element: usize) -> String {
    let mut rest = element;
    let mut index: Vec<usize> = shape
        .axes()
        .iter()
        .rev()
        .map(|&axis| {
            let at = rest % axis;
            rest /= axis;
            at
        })
        .collect();
    index.reverse();
    match index[..] {
        [] => String::new(),
        [column] => format!(", column {column}"),
        _ => format!(", element {index:?}"),
    }
}
