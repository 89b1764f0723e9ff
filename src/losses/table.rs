//! The table of losses that can be read from a file by name.

use super::function::{Entry, entry};
use super::pointwise::{
    BinaryCrossentropy, BinaryFocalCrossentropy, Hinge, Huber, KLDivergence, LogCosh, MeanAbsoluteError,
    MeanSquaredError, Poisson, SquaredHinge,
};
use super::row::{CategoricalFocalCrossentropy, CategoricalHinge, CosineSimilarity};
use super::softmax_cross_entropy::{CategoricalCrossentropy, SparseCategoricalCrossentropy};

/// Every loss of the crate.
pub static LOSSES: &[Entry] = &[
    entry::<SparseCategoricalCrossentropy>("SparseCategoricalCrossentropy"),
    entry::<CategoricalCrossentropy>("CategoricalCrossentropy"),
    entry::<CategoricalFocalCrossentropy>("CategoricalFocalCrossentropy"),
    entry::<BinaryCrossentropy>("BinaryCrossentropy"),
    entry::<BinaryFocalCrossentropy>("BinaryFocalCrossentropy"),
    entry::<MeanSquaredError>("MeanSquaredError"),
    entry::<MeanAbsoluteError>("MeanAbsoluteError"),
    entry::<Huber>("Huber"),
    entry::<LogCosh>("LogCosh"),
    entry::<CosineSimilarity>("CosineSimilarity"),
    entry::<Poisson>("Poisson"),
    entry::<KLDivergence>("KLDivergence"),
    entry::<Hinge>("Hinge"),
    entry::<SquaredHinge>("SquaredHinge"),
    entry::<CategoricalHinge>("CategoricalHinge"),
];
