//! Softmax over the last axis.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation::{softmax_backward, softmax_forward, softmax_onnx};
use super::{Built, Layer, Problem, only, to_config};
use crate::onnx::Form;
use crate::plan::Recorder;
use crate::shape::Shape;

/// Softmax over the last axis: `y[c] = exp(x[c]) / Σ exp(x)`.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, ..., classes]` |
///
/// The cross-entropy losses take logits and apply it themselves: leave it out of a model that trains with them.
/// **Across adapters** nothing changes: each row stands alone. Kept for backward: the output. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Softmax {}

impl Layer for Softmax {
    fn kind(&self) -> &'static str {
        "Softmax"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        Ok(Built::plain(only(inputs)?.clone()))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y) = (rec.input(0), rec.output());
        softmax_forward(rec, x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        if let Some(dx) = rec.input_gradient(0) {
            softmax_backward(rec, dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let order = form.order(0);
        let x = form.input_in(0, order);
        let y = softmax_onnx(form, &x, order);
        form.output(y, order);
        Ok(())
    }
}
