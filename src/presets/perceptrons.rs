//! Networks of dense layers.

use super::size::Size;
use crate::error::Result;
use crate::layers::{Activation, Dense, Flatten};
use crate::model::{Model, Sequential};

/// Two hidden layers of 1024 units: 784-1024-1024-10 over 28 × 28 × 1, 1,863,690 parameters.
///
/// # Errors
/// If the shape has no values, or too many.
pub fn mlp(size: &Size) -> Result<Model> {
    let inputs = Sequential::new(size.input.clone()).add(Flatten::default());
    hidden(inputs, &[1024, 1024]).add(Dense::new(size.outputs)).build(size.seed)
}

/// The perceptron 8000-4000-2000-500-300-1 of Keras' `make_parallel`: 41,157,101 parameters.
///
/// # Errors
/// If the shape has no values, or too many.
pub fn make_parallel(size: &Size) -> Result<Model> {
    hidden(Sequential::new(size.input.clone()), &[4000, 2000, 500, 300]).add(Dense::new(size.outputs)).build(size.seed)
}

fn hidden(inputs: Sequential, units: &[usize]) -> Sequential {
    units.iter().fold(inputs, |model, units| model.add(Dense::new(*units).activation(Activation::Relu)))
}
