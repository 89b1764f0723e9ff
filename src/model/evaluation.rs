//! Losses and metrics of a model: its file keeps them, so that it can be evaluated without settings.

use serde::{Deserialize, Serialize};

use super::{Model, Own};
use crate::error::{Error, Result};
use crate::kind::Named;
use crate::losses::{Loss, Reduction};
use crate::metrics::{Metric, MetricRead};
use crate::reading::ReadError;
use crate::schema::Schema;

/// The losses and metrics that a model was trained with, as in Keras' `compile`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Loss of each output.
    pub losses: Vec<Loss>,
    /// Weight of each output's loss; 1 where none is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loss_weights: Vec<f32>,
    /// Reduction of the rows' losses to one.
    pub reduction: Reduction,
    /// Metrics of each output; without any, the default of its loss.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Vec<Metric>>,
    /// Mean target of each output over the training rows, for each number of the output's last axis; for labels the part of each
    /// class. Empty for an output with many numbers, and in files of older versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target_means: Vec<Vec<f32>>,
}

/// An [`Evaluation`] as a file holds it, before the names of its losses and metrics are looked up: some may be the user's.
#[derive(Deserialize)]
pub(super) struct EvaluationRead {
    losses: Vec<Named>,
    #[serde(default)]
    loss_weights: Vec<f32>,
    #[serde(default)]
    reduction: Reduction,
    #[serde(default)]
    metrics: Vec<Vec<MetricRead>>,
    #[serde(default)]
    target_means: Vec<Vec<f32>>,
}

impl EvaluationRead {
    /// Looks up losses and metrics, including the user's own; the error names an unknown one.
    pub(super) fn evaluation(self, own: Own<'_>) -> Result<Evaluation, ReadError> {
        let Self { losses, loss_weights, reduction, metrics, target_means } = self;
        let losses = losses.into_iter().map(|named| Loss::read(named, own.losses)).collect::<Result<_, _>>()?;
        let of_output =
            |metrics: Vec<MetricRead>| metrics.into_iter().map(|metric| metric.metric(own.metrics)).collect();
        let metrics = metrics.into_iter().map(of_output).collect::<Result<_, _>>()?;
        Ok(Evaluation { losses, loss_weights, reduction, metrics, target_means })
    }
}

impl Model {
    /// Meaning of the training data's values; empty for an untrained model, or an old file.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Sets the meaning of its data's values. Training does so by itself.
    pub fn set_schema(&mut self, schema: Schema) {
        self.schema = schema;
    }

    /// The losses and metrics that it was trained with, if it was.
    pub fn evaluation(&self) -> Option<&Evaluation> {
        self.evaluation.as_ref()
    }

    /// Sets the losses and metrics that it was trained with. Training does so by itself.
    pub fn set_evaluation(&mut self, evaluation: Evaluation) {
        self.evaluation = Some(evaluation);
    }

    /// Checks that every parameter and statistic is finite; otherwise every output is not.
    ///
    /// # Errors
    /// If not: the first tensor, and which of its elements.
    pub fn check_finite(&self) -> Result<()> {
        for (name, _, values) in self.tensors() {
            if let Some(element) = values.iter().position(|value| !value.is_finite()) {
                return Err(Error::non_finite(
                    format!("tensor `{name}` of the model"),
                    format!("needs finite numbers, but element {element} is {}", values[element]),
                    "its training has diverged: go back to an earlier file, or train again with a lower learning rate or \
                     `clip_norm`",
                ));
            }
        }
        Ok(())
    }
}
