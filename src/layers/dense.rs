//! Fully connected layer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builders::builders;
use super::gradient_sums::sum_columns;
pub(super) use super::linear::{Linear, linear_onnx, with_bias};
use super::lora::{Lora, LowRank, changed, check_lora};
use super::packed::Weights;
use super::{
    Activation, Built, Initializer, Layer, MaskUse, Parameter, Problem, bias, is_yes, is_zero, only, to_config, yes,
};
use crate::names;
use crate::onnx::{Form, Order};
use crate::packed::BlockAxis;
use crate::plan::Recorder;
use crate::shape::Shape;

/// Fully connected layer over the last axis: `y = activation(x · kernel + bias)`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, ..., inputs]` | |
/// | `kernel` | `[inputs, units]` | `kernel_initializer`, Glorot uniform |
/// | `bias` | `[units]` | 0 |
/// | `lora_kernel_a` (with `lora_rank`) | `[inputs, lora_rank]` | He uniform |
/// | `lora_kernel_b` (with `lora_rank`) | `[lora_rank, units]` | 0 |
/// | output | `[batch, ..., units]` | |
///
/// With `lora_rank`, the kernel is frozen, and the product of two thin trainable factors stands beside it:
/// `x · kernel + lora_alpha / lora_rank · dropout(x) · lora_kernel_a · lora_kernel_b`. Hu et al. 2021, arXiv:2106.09685.
/// [`Model::merge_lora`](crate::Model::merge_lora) adds the product to the kernel.
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows.
/// Kept for backward: input and output (GELU: what stands before it). Golden values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{Dense, Layer}};
/// let built = Dense::new(10).build(&[Shape::new([64])]).unwrap();
/// assert_eq!(built.parameters[0].shape, [64, 10]);
/// assert_eq!(built.output.to_string(), "[batch, 10]");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Dense {
    /// Features of the output.
    pub units: usize,
    /// Activation of the sum.
    #[serde(default, deserialize_with = "names::read")]
    pub activation: Activation,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// Initial values of `kernel`.
    #[serde(default, deserialize_with = "names::read")]
    pub kernel_initializer: Initializer,
    /// Rank of the trainable factors beside the kernel, which is then frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_rank: Option<usize>,
    /// Factor of their product, times `lora_rank`; if not given, the product is added as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_alpha: Option<f32>,
    /// Part of the input's elements that are dropped before `lora_kernel_a` in training, in `[0, 1)`. Keras has none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lora_dropout: f32,
    /// Whether the bias is trained beside the factors, as in Keras. PEFT freezes it.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub lora_trains_bias: bool,
}

impl Dense {
    /// A layer of `units` features, linear, with bias.
    pub fn new(units: usize) -> Self {
        Self {
            units,
            activation: Activation::Linear,
            use_bias: true,
            kernel_initializer: Initializer::default(),
            lora_rank: None,
            lora_alpha: None,
            lora_dropout: 0.0,
            lora_trains_bias: true,
        }
    }

    builders!(activation, no_bias, kernel_initializer);

    /// Freezes the kernel, with trainable factors beside it.
    #[must_use]
    pub fn lora(mut self, lora: Lora) -> Self {
        self.set_lora(Some(lora));
        self
    }

    fn set_lora(&mut self, lora: Option<Lora>) {
        self.lora_rank = lora.map(|it| it.rank);
        self.lora_alpha = lora.map(|it| it.alpha);
        self.lora_dropout = lora.map_or(0.0, |it| it.dropout);
        self.lora_trains_bias = lora.is_none_or(|it| it.trains_bias);
    }

    /// The factors beside the kernel.
    fn low_rank(&self) -> Option<LowRank> {
        let lora = Lora::of_settings(self.lora_rank, self.lora_alpha, self.lora_dropout)?;
        let lora = Lora { trains_bias: self.lora_trains_bias, ..lora };
        Some(LowRank { kernel: "kernel", first: 0, a: "lora_kernel_a", b: "lora_kernel_b", lora })
    }
}

impl Layer for Dense {
    fn kind(&self) -> &'static str {
        "Dense"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        if input.rank() == 0 || self.units == 0 {
            return Err(Problem::new(
                format!("needs an input with features and at least one unit, but got {input} and {} units", self.units),
                "set `units`, and give each row at least one axis",
            ));
        }
        check_lora(self.lora_rank, self.lora_alpha, self.lora_dropout)?;
        let mut parameters = vec![Parameter {
            name: "kernel",
            shape: vec![input.last(), self.units],
            initializer: self.kernel_initializer,
        }];
        parameters.extend(bias(self.use_bias, self.units));
        parameters.extend(self.low_rank().into_iter().flat_map(|it| it.parameters([input.last(), self.units])));
        Ok(Built { output: input.with_last(self.units), parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, kernel, linear) = (rec.input(0), self.kernel(rec), self.recorded(rec));
        let bias = self.use_bias.then(|| rec.parameter("bias"));
        let Some(low_rank) = self.low_rank() else {
            return self.activation.after_parts(rec, |rec, y| linear.forward_of(rec, x, kernel, bias, y));
        };
        self.activation.apart(rec, |rec, y| {
            let frozen = rec.scratch("frozen", y.len);
            linear.forward_of(rec, x, kernel, bias, frozen);
            let hidden = low_rank.forward_input(rec, x, linear);
            low_rank.forward_output(rec, [frozen, hidden], linear, y);
        });
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dz, linear) = (self.activation.gradient_before(rec), self.recorded(rec));
        let low_rank = self.low_rank();
        if self.use_bias && !low_rank.is_some_and(|it| it.freezes("bias")) {
            sum_columns(rec, dz, linear.positions, self.units, "bias");
        }
        if low_rank.is_none() {
            let x = rec.input(0);
            linear.backward_weights(rec, [x, dz], "kernel");
        }
        if let Some(dx) = rec.input_gradient(0) {
            let kernel = self.kernel(rec);
            linear.backward_input_of(rec, dz, kernel, dx);
        }
        if let Some(low_rank) = low_rank {
            let d_hidden = low_rank.backward_output(rec, dz, linear);
            low_rank.backward_input(rec, d_hidden, linear);
        }
    }

    fn block_axis(&self, parameter: &str) -> Option<BlockAxis> {
        (parameter == "kernel").then_some(BlockAxis::First)
    }

    fn low_ranks(&self) -> Vec<LowRank> {
        self.low_rank().into_iter().collect()
    }

    fn with_lora(&self, lora: Option<Lora>) -> Option<Arc<dyn Layer>> {
        Some(changed(self, |dense| dense.set_lora(lora)))
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let (x, rank) = (form.input(0), form.input_shape(0).rank());
        let w = form.tensor("kernel");
        let bias = self.use_bias.then(|| form.tensor("bias"));
        let y = linear_onnx(form, (&x, rank), &w, bias.as_ref());
        let y = self.activation.onnx(form, y, Order::Last);
        form.output(y, Order::Last);
        Ok(())
    }
}

impl Dense {
    fn kernel(&self, rec: &Recorder<'_>) -> Weights {
        Weights::of(rec, "kernel", [rec.input_shape(0).last(), self.units])
    }

    fn recorded(&self, rec: &Recorder<'_>) -> Linear {
        let shape = rec.input_shape(0);
        Linear { positions: shape.positions(), inputs: shape.last(), units: self.units }
    }
}
