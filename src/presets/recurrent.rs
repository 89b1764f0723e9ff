//! Networks that read sequences step by step.

use super::size::Size;
use crate::error::Result;
use crate::layers::{Dense, Lstm};
use crate::model::{Model, Sequential};

/// An LSTM of 64 units and a dense layer: 82,826 parameters over 140 steps of 256 values, for ten classes.
///
/// The layer that reads tweets letter by letter in Keras' guide to the functional API.
///
/// # Errors
/// If the shape is no sequence.
pub fn lstm(size: &Size) -> Result<Model> {
    Sequential::new(size.input.clone()).add(Lstm::new(64)).add(Dense::new(size.outputs)).build(size.seed)
}
