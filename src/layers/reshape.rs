//! Other axes for the same elements.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, Problem, only, to_config};
use crate::onnx::{Form, Order};
use crate::plan::Recorder;
use crate::shape::Shape;

/// Other axes for the same elements of a row. Nothing is copied.
///
/// **Across adapters** nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Reshape {
    /// Axes of a row, without the batch axis.
    pub target_shape: Vec<usize>,
}

impl Reshape {
    /// A reshape to these axes.
    pub fn new(target_shape: impl Into<Vec<usize>>) -> Self {
        Self { target_shape: target_shape.into() }
    }
}

impl Layer for Reshape {
    fn kind(&self) -> &'static str {
        "Reshape"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let (input, output) = (only(inputs)?, Shape::new(self.target_shape.clone()));
        if input.len() != output.len() {
            return Err(Problem::new(
                format!(
                    "needs {} elements a row for {output}, but its input {input} has {}",
                    output.len(),
                    input.len()
                ),
                "let the product of `target_shape` be that of the input's axes",
            ));
        }
        Ok(Built::plain(output))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        rec.pass_value();
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        rec.pass_gradient(0);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let (x, shape) = (form.elements(0), form.output_shape().clone());
        let y = form.reshape(&x, shape.axes());
        form.output(y, Order::Last);
        Ok(())
    }
}
