//! The objective of training: a loss for each output, and the optimizer.

use super::{Model, OutputMask};
use crate::error::{Error, Result};
use crate::losses::{Head, Loss};
use crate::optimizers::Optimizer;
use crate::plan::{Accumulation, BatchStatistics, GradientCompression, Precision};

/// Settings of the training pass: a loss for each output, and the optimizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Loss of each output, in order.
    pub losses: Vec<Loss>,
    /// Rule that updates the parameters.
    pub optimizer: Optimizer,
    /// Global norm above which gradients are scaled down; 0 switches it off.
    pub clip_norm: f32,
    /// Format of gradients sent to the host.
    pub gradient_compression: GradientCompression,
    /// Place where the gradients of an adapter's micro-batches are added.
    pub accumulation: Accumulation,
    /// Rows over which batch normalization takes its statistics.
    pub batch_statistics: BatchStatistics,
    /// Numbers with which training computes.
    pub precision: Precision,
    /// Whether values are computed again for backward where that takes less memory.
    pub recompute: bool,
    /// Whether outputs whose logits never exist at once in training can be predicted, too: then they have room as a whole.
    pub predicts: bool,
    /// Outputs that are reported, beside their losses: those with metrics that need them. In order.
    pub reported_outputs: Vec<usize>,
}

impl Objective {
    /// Losses and an optimizer; gradients are neither clipped nor compressed.
    pub fn new(losses: Vec<Loss>, optimizer: Optimizer) -> Self {
        Self {
            losses,
            optimizer,
            clip_norm: 0.0,
            gradient_compression: GradientCompression::None,
            accumulation: Accumulation::default(),
            batch_statistics: BatchStatistics::default(),
            precision: Precision::Float32,
            recompute: false,
            predicts: true,
            reported_outputs: Vec::new(),
        }
    }

    /// With gradients that are added where that takes the fewest bytes, for so many micro-batches.
    #[must_use]
    pub(crate) fn for_micro_batches(self, micro_batches: u32) -> Self {
        let accumulation = if micro_batches > 1 { Accumulation::Adapter } else { Accumulation::Host };
        Self { accumulation, ..self }
    }
}

impl Model {
    /// Checks that losses and outputs go together, and the optimizer's settings.
    ///
    /// # Errors
    /// If they don't.
    pub(super) fn check_objective(&self, objective: &Objective) -> Result<()> {
        self.check_losses(&objective.losses)?;
        objective.optimizer.check()
    }

    fn check_losses(&self, losses: &[Loss]) -> Result<()> {
        if losses.len() != self.outputs.len() {
            return Err(Error::setting(
                "losses",
                format!("need one for each of {} outputs, but got {}", self.outputs.len(), losses.len()),
                "give the losses in the order of the model's outputs",
            ));
        }
        for (idx, (loss, output)) in losses.iter().zip(&self.outputs).enumerate() {
            loss.check()?;
            self.check_logits(loss, *output)?;
            if self.output_masks[idx] == OutputMask::Computed {
                return Err(Error::model(
                    format!("output `{}`", self.tensor_name(*output)),
                    "needs a mask that an input alone decides, but its mask depends on what a layer computes",
                    "let `Masking` or `Embedding` read an input, or give the mask as an input of its own",
                ));
            }
        }
        Ok(())
    }

    /// Cross-entropies apply their own softmax or sigmoid; with a second one training is bad, without an error.
    fn check_logits(&self, loss: &Loss, output: usize) -> Result<()> {
        let Some(node) = output.checked_sub(self.inputs.len()).map(|idx| &self.nodes[idx]) else { return Ok(()) };
        let named = &self.layers[node.layer_idx];
        let config = named.layer.config();
        let activation = config.get("activation").and_then(|value| value.as_str()).unwrap_or(named.layer.kind());
        let ends_in = activation.to_ascii_lowercase();
        let doubled = match loss.head() {
            Head::Values => false,
            Head::Sigmoid => ends_in == "sigmoid",
            Head::Softmax => ends_in == "softmax",
        };
        if !doubled {
            return Ok(());
        }
        Err(Error::model(
            Self::who(node.layer_idx, named),
            format!(
                "needs to give logits, since the loss `{}` applies its own {ends_in}, but it ends in {ends_in}",
                loss.name()
            ),
            format!("remove the {ends_in}; apply it to the predictions where you need probabilities"),
        ))
    }
}
