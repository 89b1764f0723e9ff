//! Rectified linear unit whose slope below 0 is learned.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::merge::{parameter_backward, parameter_forward, parameter_onnx};
use super::{Built, Initializer, Layer, MaskUse, Parameter, Problem, only, to_config};
use crate::kernels::merge::{Alignment, Operation};
use crate::names;
use crate::onnx::Form;
use crate::plan::Recorder;
use crate::shape::Shape;

/// Rectified linear unit whose slope below 0 is learned: `x` above 0, `alpha x` below.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[batch, ...]`, the same | |
/// | `alpha` | `[...]`, 1 for each of `shared_axes` | `alpha_initializer`, 0 |
///
/// **Across adapters** nothing changes: each row stands alone, the gradient of `alpha` is a sum over rows.
/// Kept for backward: the input. Source: He et al. 2015, arXiv:1502.01852. Golden values: Keras 3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Prelu {
    /// Initial values of `alpha`.
    #[serde(deserialize_with = "names::read")]
    pub alpha_initializer: Initializer,
    /// Axes along which elements share a slope, the first after the batch being 1: `[1, 2]` for one slope a channel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared_axes: Vec<usize>,
}

impl Default for Prelu {
    fn default() -> Self {
        Self { alpha_initializer: Initializer::Zeros, shared_axes: Vec::new() }
    }
}

impl Prelu {
    fn alpha(&self, input: &Shape) -> Vec<usize> {
        let axes = (1..).zip(input.axes());
        axes.map(|(axis, len)| if self.shared_axes.contains(&axis) { 1 } else { *len }).collect()
    }
}

impl Layer for Prelu {
    fn kind(&self) -> &'static str {
        "PReLU"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        let alpha = self.alpha(input);
        let is_axis = |axis: &usize| (1..=input.rank()).contains(axis);
        let fits = Alignment::new(input.axes(), &alpha).is_some_and(|alignment| alignment.is_able());
        if !self.shared_axes.iter().all(is_axis) || !fits {
            return Err(Problem::new(
                format!("needs `shared_axes` from 1 to {}, but got {:?}", input.rank(), self.shared_axes),
                "the first axis after the batch is 1: `shared_axes = [1, 2]` for one slope a channel of an image",
            ));
        }
        let alpha = Parameter { name: "alpha", shape: alpha, initializer: self.alpha_initializer };
        Ok(Built { output: input.clone(), parameters: vec![alpha], statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let alpha = self.alpha(&rec.input_shape(0));
        parameter_forward(rec, Operation::Prelu, ("alpha", &alpha));
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let alpha = self.alpha(&rec.input_shape(0));
        parameter_backward(rec, Operation::Prelu, ("alpha", &alpha));
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let alpha = self.alpha(form.input_shape(0));
        parameter_onnx(form, "PRelu", ("alpha", &alpha));
        Ok(())
    }
}
