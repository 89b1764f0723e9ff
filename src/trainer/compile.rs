//! Settings of training, as of Keras' `compile`: losses, metrics, optimizer and learning rate.

use crate::error::{Error, Problem, Result};
use crate::losses::{Loss, Reduction};
use crate::metrics::Metric;
use crate::model::{Evaluation, Model, Objective};
use crate::optimizers::{Optimizer, Schedule};
use crate::plan::{Accumulation, BatchStatistics, GradientCompression, Precision};

/// Treatment of a step whose gradient is not finite. Such a step is never applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// End the run with an error that names step, adapter and node.
    #[default]
    Stop,
    /// Warn, and continue with the next batch.
    Skip,
}

/// Settings of training, as of Keras' `compile`: made by [`new`](Self::new), followed by other settings.
///
/// ```
/// use manyhands::losses::CategoricalCrossentropy;
/// use manyhands::optimizers::AdamW;
/// use manyhands::{Compile, Metric, Schedule};
///
/// let loss = CategoricalCrossentropy { label_smoothing: 0.1 };
/// let compile = Compile::new(AdamW { weight_decay: 0.01, ..AdamW::default() }, loss)
///     .metrics([Metric::Accuracy, Metric::TopKCategoricalAccuracy { k: 5 }])
///     .clip_norm(1.0)
///     .schedule(Schedule::CosineDecay { decay_steps: 1000, alpha: 0.0, warmup_steps: 50 })
///     .seed(7);
/// assert_eq!((compile.clip_norm, compile.seed), (Some(1.0), 7));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compile {
    /// Rule that updates the parameters.
    pub optimizer: Optimizer,
    /// Loss of each output.
    pub losses: Vec<Loss>,
    /// Weight of each output's loss; the default is 1.
    pub loss_weights: Vec<f32>,
    /// Reduction of the rows' losses to one.
    pub reduction: Reduction,
    /// Metrics of each output; the default depends on its loss.
    pub metrics: Vec<Vec<Metric>>,
    /// Global norm above which gradients are scaled down.
    pub clip_norm: Option<f32>,
    /// Format of gradients sent to the host. Unused with one adapter, which updates on the device.
    pub gradient_compression: GradientCompression,
    /// Rows over which batch normalization takes mean and variance if several adapters share a batch.
    pub batch_statistics: BatchStatistics,
    /// Numbers with which training computes.
    pub precision: Precision,
    /// Whether values within the network are computed again for backward, in place of waiting for it: less memory, and time for a second
    /// forward pass.
    pub recompute: bool,
    /// Learning rate over the steps.
    pub schedule: Schedule,
    /// Batch size for which the learning rate was chosen: with another batch it is scaled in proportion.
    /// Source: Goyal et al. 2017, arXiv:1706.02677.
    pub learning_rate_batch: Option<usize>,
    /// Treatment of values that are not finite.
    pub non_finite: NonFinite,
    /// Seed of shuffling and dropout.
    pub seed: u64,
}

impl Compile {
    /// One optimizer and one loss, for a model with one output.
    pub fn new(optimizer: impl Into<Optimizer>, loss: impl Into<Loss>) -> Self {
        Self {
            optimizer: optimizer.into(),
            losses: vec![loss.into()],
            loss_weights: Vec::new(),
            reduction: Reduction::default(),
            metrics: Vec::new(),
            clip_norm: None,
            gradient_compression: GradientCompression::None,
            batch_statistics: BatchStatistics::default(),
            precision: Precision::default(),
            recompute: false,
            schedule: Schedule::default(),
            learning_rate_batch: None,
            non_finite: NonFinite::default(),
            seed: 0,
        }
    }

    /// One optimizer, and a loss for each output of the model, in its order.
    pub fn with_losses<L: Into<Loss>>(optimizer: impl Into<Optimizer>, losses: impl IntoIterator<Item = L>) -> Self {
        let losses = losses.into_iter().map(Into::into).collect();
        Self { losses, ..Self::new(optimizer, Loss::MEAN_SQUARED_ERROR) }
    }

    /// Sets a weight for each output's loss; the default is 1.
    #[must_use]
    pub fn loss_weights(mut self, weights: impl Into<Vec<f32>>) -> Self {
        self.loss_weights = weights.into();
        self
    }

    /// Sets the reduction of the rows' losses to one.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// Sets the metrics of a network with one output, in place of the default for its loss.
    #[must_use]
    pub fn metrics(self, metrics: impl Into<Vec<Metric>>) -> Self {
        self.metrics_by_output([metrics.into()])
    }

    /// Sets the metrics of each output, in place of the defaults for its loss.
    #[must_use]
    pub fn metrics_by_output(mut self, metrics: impl Into<Vec<Vec<Metric>>>) -> Self {
        self.metrics = metrics.into();
        self
    }

    /// Scales gradients down to this global norm if they exceed it.
    #[must_use]
    pub fn clip_norm(mut self, norm: f32) -> Self {
        self.clip_norm = Some(norm);
        self
    }

    /// Sets the format of gradients sent to the host and to other processes. Unused with one adapter, which updates on the device.
    #[must_use]
    pub fn gradient_compression(mut self, compression: GradientCompression) -> Self {
        self.gradient_compression = compression;
        self
    }

    /// Sets the rows over which batch normalization takes mean and variance if several adapters share a batch.
    #[must_use]
    pub fn batch_statistics(mut self, statistics: BatchStatistics) -> Self {
        self.batch_statistics = statistics;
        self
    }

    /// Sets the numbers with which training computes.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Computes values within the network again for backward, in place of keeping them until then, where that takes less memory:
    /// PyTorch's `torch.utils.checkpoint`, transformers' `gradient_checkpointing`, Keras' `RematScope`. The result keeps its bits. Only the
    /// values at which little crosses are kept, such as those between the blocks of a transformer. A step takes the time of one more forward
    /// pass. What stands beside batch normalization is kept.
    #[must_use]
    pub fn recompute(mut self, recompute: bool) -> Self {
        self.recompute = recompute;
        self
    }

    /// Learning rate over the steps.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Batch size for which the learning rate was chosen: with another batch it is scaled in proportion.
    #[must_use]
    pub fn learning_rate_batch(mut self, rows: usize) -> Self {
        self.learning_rate_batch = Some(rows);
        self
    }

    /// Sets the treatment of a step whose gradient is not finite.
    #[must_use]
    pub fn non_finite(mut self, non_finite: NonFinite) -> Self {
        self.non_finite = non_finite;
        self
    }

    /// Seed of shuffling and dropout.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Settings for the evaluation of a trained model: the losses and metrics that its file keeps.
    pub fn for_evaluation(evaluation: &Evaluation) -> Self {
        let Evaluation { losses, loss_weights, reduction, metrics, target_means: _ } = evaluation.clone();
        let sgd = Optimizer::sgd(0.01, 0.0);
        let compile = Self::new(sgd, Loss::MEAN_SQUARED_ERROR);
        Self { losses, loss_weights, reduction, metrics, ..compile }
    }

    /// Losses and metrics for a model's file.
    pub(super) fn evaluation(&self) -> Evaluation {
        Evaluation {
            losses: self.losses.clone(),
            loss_weights: self.loss_weights.clone(),
            reduction: self.reduction,
            metrics: self.metrics.clone(),
            target_means: Vec::new(),
        }
    }

    pub(super) fn objective(&self) -> Objective {
        Objective {
            losses: self.losses.clone(),
            optimizer: self.optimizer.clone(),
            clip_norm: self.clip_norm.unwrap_or(0.0),
            gradient_compression: self.gradient_compression,
            accumulation: Accumulation::default(),
            batch_statistics: self.batch_statistics,
            precision: self.precision,
            recompute: self.recompute,
            predicts: false,
            reported_outputs: self.reported_outputs(),
        }
    }

    /// Outputs with metrics that are counted from them.
    pub(super) fn reported_outputs(&self) -> Vec<usize> {
        let needs = |output: &usize| self.metrics_of(*output).iter().any(|metric| metric.counted().is_some());
        (0..self.losses.len()).filter(needs).collect()
    }

    pub(super) fn loss_weight(&self, output: usize) -> f32 {
        self.loss_weights.get(output).copied().unwrap_or(1.0)
    }

    pub(super) fn metrics_of(&self, output: usize) -> Vec<Metric> {
        let loss = self.losses[output].function();
        let metrics = self.metrics.get(output).cloned().unwrap_or_else(|| vec![Metric::default_of(loss)]);
        metrics.into_iter().map(|metric| metric.beside(loss)).collect()
    }

    /// Checks that losses and metrics fit the outputs of a model.
    pub(super) fn check(&self, model: &Model) -> Result<()> {
        let outputs = model.outputs().len();
        let refuse = |who: &str, problem: String, help: &str| Err(Error::setting(who, problem, help));
        if self.losses.len() != outputs {
            return refuse(
                "losses",
                format!("need one for each of {outputs} outputs, but got {}", self.losses.len()),
                "give the losses in the order of the model's outputs",
            );
        }
        if !self.metrics.is_empty() && self.metrics.len() != outputs {
            return refuse(
                "metrics",
                format!("need a list for each of {outputs} outputs, but got {}", self.metrics.len()),
                "give the lists in the order of the model's outputs, by `metrics_by_output`",
            );
        }
        for (output, (loss, (name, shape))) in self.losses.iter().zip(model.outputs()).enumerate() {
            loss.target(shape)
                .domain
                .check()
                .map_err(|Problem { problem, help }| Error::setting(format!("output `{name}`"), problem, help))?;
            for metric in self.metrics_of(output) {
                metric.check(loss.function(), shape).map_err(|Problem { problem, help }| {
                    Error::setting(format!("metric `{}` of output {output}", metric.name()), problem, help)
                })?;
            }
        }
        if self.clip_norm.is_some() && self.optimizer.clipping().is_some() {
            return refuse(
                "clip_norm",
                "needs to be the only clipping, but the optimizer has `clipnorm` or `clipvalue`, too".into(),
                "keep one of them, as in Keras",
            );
        }
        if self.clip_norm.is_some_and(|norm| !(norm > 0.0 && norm.is_finite())) {
            return refuse(
                "clip_norm",
                format!("needs to be above 0, but is {:?}", self.clip_norm),
                "1.0 is usual; leave it out for none",
            );
        }
        Ok(())
    }
}
