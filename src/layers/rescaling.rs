//! Fixed factors and offsets.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation::{element_backward, element_forward, element_onnx};
use super::merge::{fixed_backward, fixed_forward, with_tensor_onnx};
use super::{Built, Layer, MaskUse, Problem, Statistic, Values, only, to_config};
use crate::kernels::activation_functions::{Activation, Function, FunctionNumbers};
use crate::kernels::merge::Operation;
use crate::onnx::Form;
use crate::plan::{Length, Recorder};
use crate::shape::Shape;

/// Fixed factors and offsets: `y = scale x + offset`.
///
/// | tensor | shape | value |
/// | --- | --- | --- |
/// | input, output | `[batch, ..., channels]` | |
/// | `scale`, `offset` (if either is a list) | `[channels]` | as set |
///
/// **Across adapters** nothing changes: each element stands alone. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Rescaling {
    /// Factor, or one for each channel: 1 / 255 brings bytes between 0 and 1.
    pub scale: Values,
    /// Number added afterwards, or one for each channel.
    #[serde(default)]
    pub offset: Values,
}

impl Rescaling {
    /// The factor and the offset of all channels; `None` where channels differ.
    fn of_all(&self) -> Option<Function> {
        let (Values::One(slope), Values::One(offset)) = (&self.scale, &self.offset) else { return None };
        let numbers = FunctionNumbers { slope: *slope, offset: *offset, ..FunctionNumbers::NONE };
        Some(Function { activation: Activation::Affine, numbers })
    }
}

impl Layer for Rescaling {
    fn kind(&self) -> &'static str {
        "Rescaling"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        if self.of_all().is_some() {
            return Ok(Built::plain(input.clone()));
        }
        let channels = input.last();
        let each = |name: &'static str, values: &Values| {
            let initial = values.for_each(channels).filter(|_| input.rank() > 0).ok_or_else(|| {
                Problem::new(
                    format!(
                        "needs a number or one for each channel in `{name}`, but got {} for {input}",
                        values.count()
                    ),
                    "give as many numbers as the last axis is long",
                )
            })?;
            Ok(Statistic { name, shape: vec![channels], initial: Values::Each(initial) })
        };
        let statistics = vec![each("scale", &self.scale)?, each("offset", &self.offset)?];
        Ok(Built { output: input.clone(), parameters: Vec::new(), statistics })
    }

    fn function(&self) -> Option<Function> {
        self.of_all()
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        if let Some(function) = self.of_all() {
            return element_forward(rec, function);
        }
        let (x, y, channels) = (rec.input(0), rec.output(), [rec.input_shape(0).last()]);
        let scaled = rec.scratch("scaled", Length::per_row(rec.output_shape().len()));
        fixed_forward(rec, Operation::Multiply, ("scale", &channels), [x, scaled]);
        fixed_forward(rec, Operation::Add, ("offset", &channels), [scaled, y]);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        if let Some(function) = self.of_all() {
            return element_backward(rec, function);
        }
        let channels = [rec.input_shape(0).last()];
        fixed_backward(rec, Operation::Multiply, ("scale", &channels));
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        if let Some(function) = self.of_all() {
            element_onnx(form, function);
            return Ok(());
        }
        let (order, channels) = (form.order(0), [form.input_shape(0).last()]);
        let x = form.input_in(0, order);
        let scaled = with_tensor_onnx(form, "Mul", (&x, order), ("scale", &channels));
        let y = with_tensor_onnx(form, "Add", (&scaled, order), ("offset", &channels));
        form.output(y, order);
        Ok(())
    }
}
