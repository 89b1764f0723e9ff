//! Several tensors side by side along an axis.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::axes::axis_of;
use super::merge::{any_order, several};
use super::{Built, Layer, MaskUse, Problem, to_config};
use crate::kernels::{concatenate as kernel, whole};
use crate::onnx::{Attribute, Form};
use crate::plan::{Grid, Length, Recorder, length_word};
use crate::shape::{Shape, elements};

/// Two or more inputs side by side along an axis.
///
/// | tensor | shape |
/// | --- | --- |
/// | input `i` | `[batch, ..., size_i, ...]` |
/// | output | `[batch, ..., Σ size_i, ...]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Concatenate {
    /// The axis: 1 is the first after the batch, -1 the last.
    pub axis: i64,
}

impl Default for Concatenate {
    fn default() -> Self {
        Self { axis: -1 }
    }
}

/// One input's place among the columns of the output.
struct InputPlace {
    params: kernel::Record,
    grid: Grid,
}

impl Concatenate {
    /// The axis of a row, from 0.
    fn axis_of(self, shape: &Shape) -> Option<usize> {
        axis_of(self.axis, shape.rank())
    }

    /// Axes from this one on are columns: those of all inputs stand side by side.
    fn parts(self, rec: &Recorder<'_>) -> Vec<InputPlace> {
        let output = rec.output_shape();
        let Some(axis) = self.axis_of(&output) else { unreachable!("`build` checks the axis") };
        let columns = |shape: &Shape| elements(&shape.axes()[axis..]);
        let mut offset = 0;
        let parts = (0..rec.n_inputs()).map(|i| {
            let shape = rec.input_shape(i);
            let rows = length_word(Length::per_row(elements(&shape.axes()[..axis])));
            let cols = columns(&shape);
            let params =
                kernel::Record { rows, cols: whole(cols), total: whole(columns(&output)), offset: whole(offset) };
            offset += cols;
            InputPlace { params, grid: Grid::Elements(length_word(Length::per_row(shape.len()))) }
        });
        parts.collect()
    }
}

impl Layer for Concatenate {
    fn kind(&self) -> &'static str {
        "Concatenate"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        if matches!(self.axis, 1 | -2) { MaskUse::Joins } else { MaskUse::Merges }
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let (first, rest) = several(inputs)?;
        let Some(axis) = self.axis_of(first) else {
            return Err(Problem::new(
                format!(
                    "needs an axis from 1 to {} or from -{} to -1, but got {}",
                    first.rank(),
                    first.rank(),
                    self.axis
                ),
                "-1 is the last axis; rows of a batch can't be put together",
            ));
        };
        let without = |shape: &Shape| {
            let mut axes = shape.axes().to_vec();
            axes.get_mut(axis).map(|size| *size = 0).map(|()| axes)
        };
        if let Some(other) = rest.iter().find(|shape| without(shape) != without(first)) {
            let but = if axis + 1 == first.rank() { "the last".to_owned() } else { format!("axis {}", axis + 1) };
            return Err(Problem::new(
                format!("needs inputs that agree in all axes but {but}, but got {first} and {other}"),
                "bring them to one height and width first, for example with pooling or strides",
            ));
        }
        let mut axes = first.axes().to_vec();
        axes[axis] = inputs.iter().map(|shape| shape.axes()[axis]).fold(0, usize::saturating_add);
        Ok(Built::plain(Shape::new(axes)))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let y = rec.output();
        for (i, part) in self.parts(rec).into_iter().enumerate() {
            let x = rec.input(i);
            rec.dispatch(&kernel::FORWARD, part.params, [x], [y], part.grid);
        }
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let dy = rec.output_gradient();
        for (i, part) in self.parts(rec).into_iter().enumerate() {
            if let Some(dx) = rec.input_gradient(i) {
                rec.dispatch(&kernel::BACKWARD, part.params, [dy], [dx], part.grid);
            }
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let shape = form.output_shape().clone();
        let Some(axis) = self.axis_of(&shape) else { unreachable!("`build` checks the axis") };
        let order = any_order(form);
        let inputs: Vec<_> = (0..form.n_inputs()).map(|i| form.input_in(i, order)).collect();
        let axis = Form::axis(order, axis, shape.rank());
        let y = form.op("Concat", &inputs.iter().collect::<Vec<_>>(), &[("axis", Attribute::size(axis))]);
        form.output(y, order);
        Ok(())
    }
}
