//! Checks of batches that the caller brings, for a thread that reads them beside the trainer.

use std::sync::Arc;

use crate::data::{Batch, Numbers, RowName, check_batch_indices, check_batch_labels, check_batch_numbers};
use crate::error::{Error, Result};
use crate::losses::{Domain, Loss};
use crate::model::Model;

/// Requirements of a trainer for the batches that the caller brings.
///
/// It does not borrow the trainer, so a thread that reads batches can check their values while the trainer computes.
#[derive(Clone, Debug)]
pub struct BatchCheck {
    inputs: Vec<Needed<Option<usize>>>,
    targets: Vec<Needed<(Domain, Option<f32>)>>,
}

/// Name of an array, values of a row, and the allowed values: of an input, the bound of its indices; of a target, its domain, and the
/// class that its loss ignores.
#[derive(Clone, Debug)]
struct Needed<T> {
    name: String,
    row_len: usize,
    allowed: T,
}

/// A function that makes a batch once more.
pub(super) type Remake = Arc<dyn Fn() -> Result<Batch> + Send + Sync>;

/// A batch whose values a [`BatchCheck`] has found right.
#[derive(Clone)]
pub struct CheckedBatch {
    pub(super) batch: Batch,
    pub(super) remake: Option<Remake>,
}

impl std::fmt::Debug for CheckedBatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CheckedBatch").field("batch", &self.batch).finish_non_exhaustive()
    }
}

impl CheckedBatch {
    /// Adds a function that makes a batch of the same values. The trainer calls it if a lost adapter's steps run again,
    /// and keeps no values for that.
    #[must_use]
    pub fn remade_by(self, remake: impl Fn() -> Result<Batch> + Send + Sync + 'static) -> Self {
        Self { remake: Some(Arc::new(remake)), ..self }
    }
}

impl BatchCheck {
    /// The requirements of a model with a loss for each output; for prediction there are no losses, and no targets.
    pub(super) fn of(model: &Model, losses: &[Loss]) -> Self {
        let inputs = model.inputs().iter().enumerate().map(|(idx, input)| Needed {
            name: input.name.clone(),
            row_len: input.shape.len(),
            allowed: model.index_bound(idx),
        });
        let targets = model.outputs().into_iter().zip(losses).map(|((name, shape), loss)| {
            let target = loss.target(shape);
            let allowed = (target.domain, loss.ignored_class());
            Needed { name: name.to_owned(), row_len: target.shape.len(), allowed }
        });
        Self { inputs: inputs.collect(), targets: targets.collect() }
    }

    /// Checks sizes and values of a batch to train on. Errors count rows from the batch's first.
    ///
    /// # Errors
    /// If a size is not that of model and losses, or a value is not allowed.
    pub fn check(&self, batch: Batch) -> Result<CheckedBatch> {
        self.check_all(&batch)?;
        Ok(CheckedBatch { batch, remake: None })
    }

    /// As [`check`](Self::check), for these rows of data, by which errors name them.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_rows(&self, batch: Batch, rows: &[usize]) -> Result<CheckedBatch> {
        self.check_named(&batch, &|row| rows[row])?;
        Ok(CheckedBatch { batch, remake: None })
    }

    /// Checks sizes and values of the inputs alone, for these rows of data, by which errors name them.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_input_rows(&self, batch: &Batch, rows: &[usize]) -> Result<()> {
        self.check_named_inputs(batch, &|row| rows[row])
    }

    /// Checks sizes and values of inputs and targets.
    pub(super) fn check_all(&self, batch: &Batch) -> Result<()> {
        self.check_named(batch, &|row| row)
    }

    fn check_named(&self, batch: &Batch, row_name: RowName<'_>) -> Result<()> {
        self.check_named_inputs(batch, row_name)?;
        self.check_targets(batch, row_name)
    }

    /// Checks the inputs: their sizes, and all values of the batch but labels.
    pub(super) fn check_inputs(&self, batch: &Batch) -> Result<()> {
        self.check_named_inputs(batch, &|row| row)
    }

    fn check_named_inputs(&self, batch: &Batch, row_name: RowName<'_>) -> Result<()> {
        check_lens("input", &self.inputs, &batch.inputs, batch.rows)?;
        batch.check_values(row_name)?;
        for (input, values) in self.inputs.iter().zip(&batch.inputs) {
            let checked = |bound| check_batch_indices(values, input.row_len, &input.name, bound, row_name);
            input.allowed.map_or(Ok(()), checked)?;
        }
        Ok(())
    }

    /// Checks sizes and values of the targets.
    fn check_targets(&self, batch: &Batch, row_name: RowName<'_>) -> Result<()> {
        check_lens("target for output", &self.targets, &batch.targets, batch.rows)?;
        for (output, (target, values)) in self.targets.iter().zip(&batch.targets).enumerate() {
            let (domain, ignored) = target.allowed;
            if let Domain::Classes(classes) = domain {
                check_batch_labels(values, target.row_len, output, classes, ignored, row_name)?;
            } else if let Some(numbers) = numbers_of(domain) {
                check_batch_numbers(values, target.row_len, output, numbers, row_name)?;
            }
        }
        Ok(())
    }

    /// Checks the sizes alone.
    pub(super) fn check_sizes(&self, batch: &Batch) -> Result<()> {
        check_lens("input", &self.inputs, &batch.inputs, batch.rows)?;
        check_lens("target for output", &self.targets, &batch.targets, batch.rows)
    }
}

/// The check of a target whose numbers have a range; `None` for labels, and for any numbers.
pub(super) fn numbers_of(domain: Domain) -> Option<Numbers> {
    match domain {
        Domain::Probabilities => Some(Numbers::Probabilities),
        Domain::Signs => Some(Numbers::Signs),
        Domain::Counts => Some(Numbers::Counts),
        Domain::Classes(_) | Domain::Numbers => None,
    }
}

fn check_lens<T>(kind: &str, needed: &[Needed<T>], got: &[Arc<[f32]>], rows: usize) -> Result<()> {
    if rows == 0 {
        return Err(Error::data("the batch", "needs at least one row, but has none", "leave it out"));
    }
    if needed.len() != got.len() {
        return Err(Error::data(
            "the batch",
            format!("needs to have {} arrays as {kind}, but has {}", needed.len(), got.len()),
            "give one array for each, in the model's order",
        ));
    }
    for (Needed { name, row_len, .. }, values) in needed.iter().zip(got) {
        if values.len() != rows * row_len {
            return Err(Error::data(
                format!("{kind} `{name}`"),
                format!("needs {row_len} values for each of {rows} rows, but the batch has {} in all", values.len()),
                "reshape the data, or change the model's input or last layer to fit it",
            ));
        }
    }
    Ok(())
}
