//! `NumPy` arrays as batches: each value is copied once, and becomes an f32 on the way.

use std::sync::Arc;

use numpy::ndarray::{ArrayViewD, Axis, IxDyn};
use numpy::{
    Element, PyArrayDyn, PyArrayMethods, PyReadonlyArray, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use manyhands::data;
use manyhands::data::Buffers;
use manyhands::trainer::{BatchCheck, CheckedBatch};

use crate::errors::detached;

/// A batch of rows, ready for the adapters.
#[pyclass(frozen, module = "manyhands_ml._native")]
pub(crate) struct Batch {
    pub(crate) values: data::Batch,
    /// Its values, if they were found right for a trainer.
    pub(crate) checked: Option<CheckedBatch>,
}

#[pymethods]
impl Batch {
    /// All rows of arrays, checked here and now if a trainer's check is given.
    #[new]
    #[pyo3(signature = (rows, check=None))]
    fn new(py: Python<'_>, rows: &Rows, check: Option<&Check>) -> PyResult<Self> {
        let batch = |lent: &Lent<'_>| {
            let values = lent.batch(&(0..rows.rows).collect::<Vec<_>>());
            let checked = check.map(|check| check.0.check(values.clone())).transpose()?;
            Ok(Self { values, checked })
        };
        rows.lent(py, |lent| detached(py, || batch(lent)))?
    }

    /// Number of its rows.
    #[getter]
    fn rows(&self) -> usize {
        self.values.rows
    }
}

/// Requirements of a trainer for its batches, by which any thread can check them.
#[pyclass(frozen, module = "manyhands_ml._native")]
pub(crate) struct Check(pub(crate) BatchCheck);

#[pymethods]
impl Check {
    /// Checks these rows, whose numbers errors name.
    fn rows(&self, py: Python<'_>, rows: &Rows, order: PyReadonlyArray1<'_, i64>) -> PyResult<()> {
        let order = places(&order)?;
        if let Some(row) = order.iter().find(|row| **row >= rows.rows) {
            return Err(PyIndexError::new_err(format!("there is no row {row}")));
        }
        rows.lent(py, |lent| detached(py, || self.0.check_rows(lent.batch(&order), &order).map(drop)))?
    }
}

/// Rows by number.
pub(crate) fn places(order: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<usize>> {
    order.as_array().iter().map(|row| Ok(usize::try_from(*row)?)).collect()
}

/// Arrays whose first axis is the row. They stay the caller's: what is asked for is read when it is needed.
#[pyclass(frozen, module = "manyhands_ml._native")]
pub(crate) struct Rows {
    rows: usize,
    inputs: Vec<Box<dyn Array>>,
    targets: Vec<Box<dyn Array>>,
    sample_weights: Option<Box<dyn Array>>,
    buffers: Buffers,
}

#[pymethods]
impl Rows {
    /// Takes arrays of `float32`, `float64`, `uint8`, `int32`, `int64` or `bool`.
    #[new]
    #[pyo3(signature = (rows, inputs, targets, sample_weights=None))]
    fn new(
        rows: usize,
        inputs: &Bound<'_, PyList>,
        targets: &Bound<'_, PyList>,
        sample_weights: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let arrays = |list: &Bound<'_, PyList>| list.iter().map(|found| array(&found, rows)).collect::<PyResult<_>>();
        Ok(Self {
            rows,
            inputs: arrays(inputs)?,
            targets: arrays(targets)?,
            sample_weights: sample_weights.map(|found| array(found, rows)).transpose()?,
            buffers: Buffers::default(),
        })
    }

    /// Number of rows.
    #[getter]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }
}

impl Rows {
    /// Calls a function with the values, which it may read without the interpreter's lock.
    pub(crate) fn lent<T>(&self, py: Python<'_>, read: impl FnOnce(&Lent<'_>) -> T) -> PyResult<T> {
        let borrow =
            |arrays: &[Box<dyn Array>]| arrays.iter().map(|array| array.borrow(py)).collect::<PyResult<Vec<_>>>();
        let (inputs, targets) = (borrow(&self.inputs)?, borrow(&self.targets)?);
        let sample_weights = self.sample_weights.as_ref().map(|array| array.borrow(py)).transpose()?;
        let lent = Lent {
            inputs: inputs.iter().map(|array| array.column()).collect(),
            targets: targets.iter().map(|array| array.column()).collect(),
            sample_weights: sample_weights.as_ref().map(|array| array.column()),
            buffers: &self.buffers,
        };
        Ok(read(&lent))
    }
}

/// Values of rows, borrowed.
pub(crate) struct Lent<'a> {
    inputs: Vec<Box<dyn Column + 'a>>,
    targets: Vec<Box<dyn Column + 'a>>,
    sample_weights: Option<Box<dyn Column + 'a>>,
    buffers: &'a Buffers,
}

impl Lent<'_> {
    /// A batch of these rows, in this order.
    pub(crate) fn batch(&self, rows: &[usize]) -> data::Batch {
        let gathered = |column: &(dyn Column + '_)| {
            let mut buffer = self.buffers.take(rows.len() * column.row_len());
            // It has one owner: nothing is copied here.
            column.gather(rows, Arc::make_mut(&mut buffer));
            self.buffers.keep(&buffer);
            buffer
        };
        data::Batch {
            rows: rows.len(),
            inputs: self.inputs.iter().map(|column| gathered(column.as_ref())).collect(),
            targets: self.targets.iter().map(|column| gathered(column.as_ref())).collect(),
            sample_weights: self.sample_weights.as_ref().map(|column| gathered(column.as_ref())),
        }
    }
}

/// A value of an array as an f32.
trait Number: Element + Copy + Send + Sync + 'static {
    fn float(self) -> f32;

    /// Writes as many values as there are places.
    fn fill(places: &mut [f32], values: &[Self]) {
        places.iter_mut().zip(values).for_each(|(place, value)| *place = value.float());
    }
}

impl Number for f32 {
    fn float(self) -> f32 {
        self
    }

    fn fill(places: &mut [f32], values: &[Self]) {
        places.copy_from_slice(values);
    }
}

macro_rules! number {
    ($($kind:ty: $value:ident => $float:expr),* $(,)?) => {
        $(impl Number for $kind {
            #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "values are f32 in the engine")]
            fn float(self) -> f32 {
                let $value = self;
                $float
            }
        })*
    };
}

number! {
    u8: value => f32::from(value),
    i64: value => value as f32,
    f64: value => value as f32,
    i32: value => value as f32,
    bool: value => f32::from(u8::from(value)),
}

/// An array of a type that is known here, with as many rows.
fn array(found: &Bound<'_, PyAny>, rows: usize) -> PyResult<Box<dyn Array>> {
    if found.cast::<PyUntypedArray>().is_ok_and(|array| array.shape().first() != Some(&rows)) {
        return Err(PyValueError::new_err("all arrays need the same rows"));
    }
    let known = [typed::<f32>, typed::<u8>, typed::<i64>, typed::<f64>, typed::<i32>, typed::<bool>];
    let array = known.iter().find_map(|of_type| of_type(found));
    array.ok_or_else(|| PyTypeError::new_err("an array needs float32, float64, uint8, int32, int64 or bool"))
}

/// An array, if its values have this type.
fn typed<T: Number>(found: &Bound<'_, PyAny>) -> Option<Box<dyn Array>> {
    let array = found.cast::<PyArrayDyn<T>>().ok()?;
    Some(Box::new(array.clone().unbind()))
}

/// An array of any type.
trait Array: Send + Sync {
    fn borrow<'py>(&self, py: Python<'py>) -> PyResult<Box<dyn Borrowed + 'py>>;
}

impl<T: Number> Array for Py<PyArrayDyn<T>> {
    fn borrow<'py>(&self, py: Python<'py>) -> PyResult<Box<dyn Borrowed + 'py>> {
        Ok(Box::new(self.bind(py).try_readonly()?))
    }
}

/// An array that nothing native changes meanwhile.
trait Borrowed {
    fn column(&self) -> Box<dyn Column + '_>;
}

impl<T: Number> Borrowed for PyReadonlyArray<'_, T, IxDyn> {
    fn column(&self) -> Box<dyn Column + '_> {
        Box::new(self.as_array())
    }
}

/// Values that need no interpreter.
trait Column: Send + Sync {
    /// Values of a row.
    fn row_len(&self) -> usize;

    /// Writes the values of these rows, in this order.
    fn gather(&self, rows: &[usize], places: &mut [f32]);
}

impl<T: Number> Column for ArrayViewD<'_, T> {
    fn row_len(&self) -> usize {
        self.shape()[1..].iter().product()
    }

    fn gather(&self, rows: &[usize], places: &mut [f32]) {
        let row_len = self.row_len();
        let whole = self.as_slice();
        for (row, place) in rows.iter().zip(places.chunks_exact_mut(row_len.max(1))) {
            match whole {
                Some(values) => T::fill(place, &values[row * row_len..][..row_len]),
                None => place
                    .iter_mut()
                    .zip(self.index_axis(Axis(0), *row))
                    .for_each(|(place, value)| *place = value.float()),
            }
        }
    }
}
