//! Data in memory, from arrays.

use std::sync::Arc;

use ndarray::{Array, Array1, Dimension};

use super::batch::{BatchMut, check_finite, check_weights};
use super::digest::Digest;
use super::origin::FindsOrigins;
use super::{Dataset, Origin};
use crate::schema::Schema;
use crate::{Error, Result, Shape};

/// A dataset of arrays whose first axis is the row.
///
/// Several inputs and targets are possible; all have the same number of rows. Values must be finite.
///
/// ```
/// use manyhands::data::{Dataset, InMemory};
/// use ndarray::{Array1, array};
///
/// # fn main() -> manyhands::Result<()> {
/// let inputs = array![[0., 0.], [0., 1.], [1., 0.], [1., 1.]];
/// let labels = array![0., 1., 1., 0.];
/// let xor = InMemory::new(inputs, labels)?.with_sample_weights(Array1::ones(4))?;
/// assert_eq!(xor.len(), 4);
/// assert_eq!(xor.input_shapes()[0].to_string(), "[batch, 2]");
/// assert_eq!(xor.target_shapes()[0].to_string(), "[batch]");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct InMemory {
    rows: usize,
    inputs: Vec<MemoryColumn>,
    targets: Vec<MemoryColumn>,
    sample_weights: Option<Vec<f32>>,
    schema: Schema,
    notes: Vec<String>,
    /// Finds the rows in their file, where they come from one.
    origins: Option<Arc<dyn FindsOrigins>>,
    /// Hash of the rows as their file has them, where they come from one.
    digest: Option<u64>,
}

/// One input or target of all rows.
#[derive(Clone, Debug)]
struct MemoryColumn {
    shape: Shape,
    values: Vec<f32>,
}

impl InMemory {
    /// One input and one target. Labels have the shape `[rows]`.
    ///
    /// # Errors
    ///
    /// When the numbers of rows differ, there is no row, or a value is not finite; the error names
    /// the row and the column.
    pub fn new<I: Dimension, T: Dimension>(inputs: Array<f32, I>, targets: Array<f32, T>) -> Result<Self> {
        Self::without_targets(inputs)?.with_target(targets)
    }

    /// One input and no target, for data to predict from.
    ///
    /// # Errors
    ///
    /// When there is no row, or a value is not finite.
    pub fn without_targets<D: Dimension>(inputs: Array<f32, D>) -> Result<Self> {
        let rows = inputs.shape().first().copied().unwrap_or(0);
        if rows == 0 {
            return Err(Error::data(
                "input 0",
                format!("needs at least one row, but its array has shape {:?}", inputs.shape()),
                "the first axis of an array is the row",
            ));
        }
        Self {
            rows,
            inputs: Vec::new(),
            targets: Vec::new(),
            sample_weights: None,
            schema: Schema::default(),
            notes: Vec::new(),
            origins: None,
            digest: None,
        }
        .with_input(inputs)
    }

    /// One more input.
    ///
    /// # Errors
    ///
    /// When its number of rows differs from the first input's, or a value is not finite.
    pub fn with_input<D: Dimension>(mut self, values: Array<f32, D>) -> Result<Self> {
        let column = self.column(&format!("input {}", self.inputs.len()), values)?;
        self.inputs.push(column);
        Ok(self)
    }

    /// One more target.
    ///
    /// # Errors
    ///
    /// When its number of rows differs from the first input's, or a value is not finite.
    pub fn with_target<D: Dimension>(mut self, values: Array<f32, D>) -> Result<Self> {
        let column = self.column(&format!("target {}", self.targets.len()), values)?;
        self.targets.push(column);
        Ok(self)
    }

    /// The weight of each row in the loss, finite and not negative.
    ///
    /// # Errors
    ///
    /// When the number of weights is not that of the rows, or a weight is negative or not finite.
    pub fn with_sample_weights(mut self, weights: Array1<f32>) -> Result<Self> {
        let weights = self.column("sample weights", weights)?.values;
        check_weights(&weights, |row| row)?;
        self.sample_weights = Some(weights);
        Ok(self)
    }

    /// Sets the names of columns and of classes.
    ///
    /// ```
    /// use manyhands::data::{Dataset, InMemory};
    /// use manyhands::data::{Format, Schema};
    /// use ndarray::array;
    /// # fn main() -> manyhands::Result<()> {
    /// let animals = InMemory::new(array![[0.5, 1.0], [2.0, 0.1]], array![0., 1.])?
    ///     .with_schema(Schema::with_classes(Format::Other, ["cat", "dog"]));
    /// assert_eq!(animals.schema().classes(0), ["cat", "dog"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_schema(mut self, schema: Schema) -> Self {
        self.schema = schema;
        self
    }

    /// Sets notes of its reader: [`Dataset::notes`].
    #[must_use]
    pub fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Sets what finds the rows in their file: [`Dataset::origins`].
    #[must_use]
    #[cfg_attr(not(feature = "files"), allow(dead_code, reason = "only readers of files know them"))]
    pub(super) fn with_origins(mut self, origins: Option<Arc<dyn FindsOrigins>>) -> Self {
        self.origins = origins;
        self
    }

    /// Sets the hash of the rows: [`Dataset::digest`].
    #[must_use]
    #[cfg_attr(not(feature = "files"), allow(dead_code, reason = "only readers of files know it"))]
    pub(super) fn with_digest(mut self, digest: Digest) -> Self {
        self.digest = Some(digest.value());
        self
    }

    fn column<D: Dimension>(&self, who: &str, array: Array<f32, D>) -> Result<MemoryColumn> {
        let (rows, axes) = array.shape().split_first().map_or((0, &[][..]), |(rows, axes)| (*rows, axes));
        if rows != self.rows {
            return Err(Error::data(
                who,
                format!("needs {} rows as input 0 has, but its array has shape {:?}", self.rows, array.shape()),
                "all arrays of a dataset have the same first axis, the row",
            ));
        }
        let shape = Shape::new(axes);
        if shape.len() == 0 {
            return Err(Error::data(
                who,
                format!("needs at least one element a row, but its array has shape {:?}", array.shape()),
                "leave an empty array out",
            ));
        }
        let values = row_major(array);
        check_finite(who, &shape, &values, |row| row)?;
        Ok(MemoryColumn { shape, values })
    }
}

/// The elements in row-major order; an array that already is contiguous is not copied.
fn row_major<D: Dimension>(array: Array<f32, D>) -> Vec<f32> {
    if !array.is_standard_layout() {
        return array.iter().copied().collect();
    }
    let len = array.len();
    let (mut values, offset) = array.into_raw_vec_and_offset();
    values.truncate(offset.unwrap_or(0) + len);
    values.drain(..offset.unwrap_or(0));
    values
}

impl Dataset for InMemory {
    fn len(&self) -> usize {
        self.rows
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.inputs.iter().map(|column| column.shape.clone()).collect()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.targets.iter().map(|column| column.shape.clone()).collect()
    }

    fn has_sample_weights(&self) -> bool {
        self.sample_weights.is_some()
    }

    fn schema(&self) -> Schema {
        self.schema.clone()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn origins(&self, rows: &[usize]) -> Vec<Origin> {
        self.origins.as_ref().map_or_else(Vec::new, |origins| origins.origins(rows))
    }

    fn digest(&self) -> Option<u64> {
        let of_values = || {
            let mut digest = Digest::default();
            let columns = self.inputs.iter().chain(&self.targets).map(|column| &column.values);
            columns.chain(&self.sample_weights).for_each(|values| digest.add_floats(values));
            digest.value()
        };
        Some(self.digest.unwrap_or_else(of_values))
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        for (position, column) in self.inputs.iter().enumerate() {
            column.gather(rows, batch.input(position));
        }
        for (position, column) in self.targets.iter().enumerate() {
            column.gather(rows, batch.target(position));
        }
        if let Some(weights) = &self.sample_weights {
            for (to, &row) in batch.sample_weights().iter_mut().zip(rows) {
                *to = weights[row];
            }
        }
        Ok(())
    }
}

impl MemoryColumn {
    fn gather(&self, rows: &[usize], to: &mut [f32]) {
        let row_len = self.shape.len();
        for (to, &row) in to.chunks_exact_mut(row_len).zip(rows) {
            to.copy_from_slice(&self.values[row * row_len..][..row_len]);
        }
    }
}
