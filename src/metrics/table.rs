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

manyhands_engine::table_of_kinds! {
    /// Every metric of outputs and targets of the crate.
    METRICS {
        Precision => "precision",
        Recall => "recall",
        F1Score => "f1_score",
        AUC => "auc",
        BinaryAccuracy => "binary_accuracy",
        CategoricalAccuracy => "categorical_accuracy",
        MeanSquaredError => "mean_squared_error",
        RootMeanSquaredError => "root_mean_squared_error",
        R2Score => "r2_score",
        LogCoshError => "logcosh",
        Poisson => "poisson",
        KLDivergence => "kl_divergence",
        Hinge => "hinge",
        SquaredHinge => "squared_hinge",
        CategoricalHinge => "categorical_hinge",
        CosineSimilarity => "cosine_similarity",
    }
}
