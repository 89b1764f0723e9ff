//! `NumPy` arrays as a batch: each value is copied once, and becomes an f32 on the way.

use std::sync::Arc;

use numpy::{Element, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyList;

use manyhands::data;

/// A batch of rows, ready for the adapters.
#[pyclass(frozen, module = "manyhands_ml._native")]
pub(crate) struct Batch(pub(crate) data::Batch);

#[pymethods]
impl Batch {
    /// Takes arrays whose first axis is the row: without gaps, of `float32`, `float64`, `uint8`, `int32`, `int64` or `bool`.
    #[new]
    #[pyo3(signature = (rows, inputs, targets, sample_weights=None))]
    fn new(
        rows: usize,
        inputs: &Bound<'_, PyList>,
        targets: &Bound<'_, PyList>,
        sample_weights: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let values =
            |arrays: &Bound<'_, PyList>| arrays.iter().map(|array| floats(&array)).collect::<PyResult<Vec<_>>>();
        let (inputs, targets) = (values(inputs)?, values(targets)?);
        Ok(Self(data::Batch { rows, inputs, targets, sample_weights: sample_weights.map(floats).transpose()? }))
    }

    /// Its rows.
    #[getter]
    fn rows(&self) -> usize {
        self.0.rows
    }
}

/// A value of an array as an f32.
trait Number: Element + Copy + Send + Sync {
    fn float(self) -> f32;
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
    f32: value => value,
    f64: value => value as f32,
    u8: value => f32::from(value),
    i32: value => value as f32,
    i64: value => value as f32,
    bool: value => f32::from(u8::from(value)),
}

fn floats(array: &Bound<'_, PyAny>) -> PyResult<Arc<[f32]>> {
    let py = array.py();
    let found = converted::<f32>(py, array)?
        .or(converted::<u8>(py, array)?)
        .or(converted::<i64>(py, array)?)
        .or(converted::<f64>(py, array)?)
        .or(converted::<i32>(py, array)?)
        .or(converted::<bool>(py, array)?);
    found.ok_or_else(|| {
        pyo3::exceptions::PyTypeError::new_err("an array needs float32, float64, uint8, int32, int64 or bool")
    })
}

/// `None` if the array is of another type. Copies without the interpreter's lock.
fn converted<T: Number>(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Option<Arc<[f32]>>> {
    let Ok(array) = array.extract::<PyReadonlyArrayDyn<'_, T>>() else { return Ok(None) };
    let values = array.as_slice()?;
    Ok(Some(py.detach(|| values.iter().map(|value| value.float()).collect())))
}
