//! All axes of a row into one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, Problem, only, to_config};
use crate::onnx::{Form, Order};
use crate::plan::Recorder;
use crate::shape::Shape;

/// All axes of a row into one: `[batch, 8, 8, 16]` to `[batch, 1024]`. Nothing is copied.
///
/// **Across adapters** nothing changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Flatten {}

impl Layer for Flatten {
    fn kind(&self) -> &'static str {
        "Flatten"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        Ok(Built::plain(Shape::new([only(inputs)?.len()])))
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
