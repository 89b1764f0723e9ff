//! Learned factors of channels, as in `ConvNeXt`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::merge::{parameter_backward, parameter_forward, parameter_onnx};
use super::{Built, Initializer, Layer, Parameter, Problem, only, to_config};
use crate::kernels::merge::Operation;
use crate::onnx::Form;
use crate::plan::Recorder;
use crate::shape::Shape;

/// A learned factor for each channel, which starts small: `y = gamma x`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[batch, ..., projection_dim]` | |
/// | `gamma` | `[projection_dim]` | `init_values` |
///
/// **Across adapters** nothing changes: each row stands alone, the gradient of `gamma` is a sum over rows.
/// Kept for backward: the input. Source: Touvron et al. 2021, arXiv:2103.17239. Golden values: Keras 3
/// (`keras.applications.convnext`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LayerScale {
    /// Initial value of each factor.
    #[serde(default = "init_values")]
    pub init_values: f32,
    /// Channels.
    pub projection_dim: usize,
}

fn init_values() -> f32 {
    1e-6
}

impl LayerScale {
    /// Factors of so many channels that start at 1e-6.
    pub fn new(projection_dim: usize) -> Self {
        Self { init_values: init_values(), projection_dim }
    }
}

impl Layer for LayerScale {
    fn kind(&self) -> &'static str {
        "LayerScale"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        if input.rank() == 0 || input.last() != self.projection_dim {
            return Err(Problem::new(
                format!("needs {} channels, but got {input}", self.projection_dim),
                "let `projection_dim` be the length of the last axis",
            ));
        }
        let initializer = Initializer::Constant(self.init_values.into());
        let gamma = Parameter { name: "gamma", shape: vec![self.projection_dim], initializer };
        Ok(Built { output: input.clone(), parameters: vec![gamma], statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        parameter_forward(rec, Operation::Multiply, ("gamma", &[self.projection_dim]));
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        parameter_backward(rec, Operation::Multiply, ("gamma", &[self.projection_dim]));
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        parameter_onnx(form, "Mul", ("gamma", &[self.projection_dim]));
        Ok(())
    }
}
