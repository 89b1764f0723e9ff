//! Metrics under Keras' names.
//!
//! Accuracy, top-k accuracy, mean absolute error and perplexity come with the loss, row by row. The structs below are counted by the
//! host, in f64, from outputs and targets, which adapters send for them: over the whole dataset, so that no mean of batches is
//! taken. Where the loss takes logits, they see probabilities: the sigmoid or softmax of the outputs. Positions that a
//! mask leaves out count in none.

// Files: `table.rs`: `METRICS`, the one table of counted metrics; `function.rs`: their trait; `metric.rs`: a metric by its name, from
// the scores of rows or counted; `mode.rs`: the direction in which a number improves; one file for each kind.

mod auc;
mod confusion;
mod f_score;
mod function;
mod mean;
mod metric;
mod mode;
mod r2_score;
pub(crate) mod table;

pub use crate::kind::Settings;
pub use auc::{AUC, Curve, SummationMethod};
pub use confusion::{BinaryAccuracy, Precision, Recall};
pub use f_score::{Average, F1Score};
pub use function::{Entry, MetricFunction, Position, entry};
pub use mean::{
    CategoricalAccuracy, CategoricalHinge, CosineSimilarity, Hinge, KLDivergence, LogCoshError, MeanSquaredError,
    Poisson, RootMeanSquaredError, SquaredHinge,
};
pub(crate) use metric::MetricRead;
pub use metric::{Counted, Metric};
pub use mode::{Mode, Reported};
pub use r2_score::{ClassAggregation, R2Score};
pub use table::METRICS;
