//! Data to train on, and data of the same shapes to test with.

use std::sync::Arc;

use super::Dataset;
use crate::{Error, Result};

/// Data to train on, and to test with.
#[derive(Clone)]
pub struct DataPair {
    /// Rows to train on.
    pub train: Arc<dyn Dataset>,
    /// Rows to test with, of the same shapes.
    pub test: Option<Arc<dyn Dataset>>,
}

impl DataPair {
    pub(super) fn of<D: Dataset + 'static>((train, test): (D, Option<D>)) -> Result<Self> {
        Self::new(Arc::new(train), test.map(|test| Arc::new(test) as Arc<dyn Dataset>))
    }

    pub(super) fn new(train: Arc<dyn Dataset>, test: Option<Arc<dyn Dataset>>) -> Result<Self> {
        if let Some(test) = &test {
            same_shapes(train.as_ref(), test.as_ref())?;
        }
        Ok(Self { train, test })
    }
}

fn same_shapes(train: &dyn Dataset, test: &dyn Dataset) -> Result<()> {
    let shapes = |data: &dyn Dataset| (data.input_shapes(), data.target_shapes());
    if shapes(train) == shapes(test) {
        return Ok(());
    }
    let ((inputs, targets), (test_inputs, test_targets)) = (shapes(train), shapes(test));
    Err(Error::data(
        "the test data",
        format!("needs inputs {inputs:?} and targets {targets:?}, but has {test_inputs:?} and {test_targets:?}"),
        "the test data must have the shapes of the training data",
    ))
}
