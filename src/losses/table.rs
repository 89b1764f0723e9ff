//! The table of losses that can be read from a file by name.

use super::binary_cross_entropy::BinaryCrossentropy;
use super::function::{Entry, entry};
use super::mean_squared_error::MeanSquaredError;
use super::softmax_cross_entropy::{CategoricalCrossentropy, SparseCategoricalCrossentropy};

/// Every loss of the crate.
pub static LOSSES: &[Entry] = &[
    entry::<SparseCategoricalCrossentropy>("SparseCategoricalCrossentropy"),
    entry::<CategoricalCrossentropy>("CategoricalCrossentropy"),
    entry::<BinaryCrossentropy>("BinaryCrossentropy"),
    entry::<MeanSquaredError>("MeanSquaredError"),
];
