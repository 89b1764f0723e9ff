//! The table of metrics of outputs and targets that can be read from a file by name.

use super::auc::AUC;
use super::confusion::{BinaryAccuracy, Precision, Recall};
use super::f_score::F1Score;
use super::function::{Entry, entry};
use super::mean::{
    CategoricalAccuracy, CategoricalHinge, CosineSimilarity, Hinge, KLDivergence, LogCoshError, MeanSquaredError,
    Poisson, RootMeanSquaredError, SquaredHinge,
};
use super::r2_score::R2Score;

/// Every metric of outputs and targets of the crate.
pub static METRICS: &[Entry] = &[
    entry::<Precision>("precision"),
    entry::<Recall>("recall"),
    entry::<F1Score>("f1_score"),
    entry::<AUC>("auc"),
    entry::<BinaryAccuracy>("binary_accuracy"),
    entry::<CategoricalAccuracy>("categorical_accuracy"),
    entry::<MeanSquaredError>("mean_squared_error"),
    entry::<RootMeanSquaredError>("root_mean_squared_error"),
    entry::<R2Score>("r2_score"),
    entry::<LogCoshError>("logcosh"),
    entry::<Poisson>("poisson"),
    entry::<KLDivergence>("kl_divergence"),
    entry::<Hinge>("hinge"),
    entry::<SquaredHinge>("squared_hinge"),
    entry::<CategoricalHinge>("categorical_hinge"),
    entry::<CosineSimilarity>("cosine_similarity"),
];
