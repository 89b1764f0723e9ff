//! The handwritten digits that are part of the crate.

use manyhands::data::{self, Batch, ByteImages, Dataset};
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;

use crate::errors::detached;

/// Images of 8x8 pixels from 0 to 1 and their labels.
type Part<'py> = (Bound<'py, PyArrayDyn<f32>>, Bound<'py, PyArrayDyn<f32>>);

/// 1437 digits to train on, and 360 to test with.
#[pyfunction]
pub(crate) fn digits<'py>(py: Python<'py>) -> PyResult<(Part<'py>, Part<'py>)> {
    let part = |open: fn() -> manyhands::Result<ByteImages>| -> PyResult<Part<'py>> {
        let batch = detached(py, || {
            let images = open()?;
            Batch::fetch(&images, &(0..images.len()).collect::<Vec<_>>())
        })?;
        let array = |values: &[f32], shape: Vec<usize>| PyArray1::from_slice(py, values).reshape(shape);
        Ok((array(&batch.inputs[0], vec![batch.rows, 8, 8, 1])?, array(&batch.targets[0], vec![batch.rows])?))
    };
    Ok((part(data::digits::train)?, part(data::digits::test)?))
}
