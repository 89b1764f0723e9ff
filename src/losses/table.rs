//! The table of losses that can be read from a file by name.

use super::function::{Entry, entry};
use super::pointwise::{
    BinaryCrossentropy, BinaryFocalCrossentropy, Hinge, Huber, KLDivergence, LogCosh, MeanAbsoluteError,
    MeanSquaredError, Poisson, SquaredHinge,
};
use super::row::{CategoricalFocalCrossentropy, CategoricalHinge, CosineSimilarity};
use super::softmax_cross_entropy::{CategoricalCrossentropy, SparseCategoricalCrossentropy};

manyhands_engine::table_of_kinds! {
    /// Every loss of the crate.
    LOSSES {
        SparseCategoricalCrossentropy => "SparseCategoricalCrossentropy",
        CategoricalCrossentropy => "CategoricalCrossentropy",
        CategoricalFocalCrossentropy => "CategoricalFocalCrossentropy",
        BinaryCrossentropy => "BinaryCrossentropy",
        BinaryFocalCrossentropy => "BinaryFocalCrossentropy",
        MeanSquaredError => "MeanSquaredError",
        MeanAbsoluteError => "MeanAbsoluteError",
        Huber => "Huber",
        LogCosh => "LogCosh",
        CosineSimilarity => "CosineSimilarity",
        Poisson => "Poisson",
        KLDivergence => "KLDivergence",
        Hinge => "Hinge",
        SquaredHinge => "SquaredHinge",
        CategoricalHinge => "CategoricalHinge",
    }
}
