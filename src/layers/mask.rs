//! Masks of sequences: which positions count.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, Problem, only, to_config};
use crate::kernels::{mask as kernel, whole};
use crate::onnx::{Attribute, BOOL, FLOAT, Form, Order, Value as Written};
use crate::plan::{Grid, Length, Recorder, View, Word, length_word};
use crate::shape::Shape;

/// Use of the mask of a layer's input, as in Keras.
///
/// A mask tells which positions of a sequence count. A model that is built keeps it as a tensor of its own, which a
/// layer that takes a mask reads as its second input: [`ModelBuilder`](crate::ModelBuilder) adds it where it is not
/// named.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MaskUse {
    /// The output has no mask.
    #[default]
    Drops,
    /// Its output has that of its first input.
    Passes,
    /// Its output has one: positions of its input count unless all their numbers are `value`.
    Makes {
        /// Value of padded positions.
        value: f32,
    },
    /// The layer takes the mask of its first input behind so many inputs, and its output has it, too.
    Takes {
        /// Inputs before the mask.
        behind: usize,
    },
    /// The layer takes the mask of its first input behind so many inputs, and its output has none.
    Ends {
        /// Inputs before the mask.
        behind: usize,
    },
    /// The output has a mask if all inputs have one: positions count that count in any of them.
    Merges,
    /// Its output has those of its inputs one behind the other, as it has the inputs.
    Joins,
    /// The layer takes the masks of its sequences behind them: of the first one, the queries, and of the others, the keys,
    /// or of the keys alone. Its output has that of the queries.
    Attends,
}

/// Mask of a sequence: 1 if any number of a position is not `mask_value`, else 0.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, time]`, or `[batch, time, features]` |
/// | output | `[batch, time]` |
///
/// What Keras computes as the mask of `Embedding` and `Masking`. Layers that take a mask read it as their second input;
/// where they name none, it is added for them. **Across adapters** nothing changes. It has no gradient. Golden values:
/// closed form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ComputeMask {
    /// Value of padded positions.
    pub mask_value: f32,
}

/// A sequence, or an error.
fn sequence(inputs: &[Shape]) -> Result<[usize; 2], Problem> {
    match *only(inputs)?.axes() {
        [time] => Ok([time, 1]),
        [time, features] => Ok([time, features]),
        _ => Err(Problem::new(
            format!("needs an input [batch, time] or [batch, time, features], but got {}", inputs[0]),
            "`Reshape` makes a sequence of other shapes",
        )),
    }
}

/// Params for a sequence, whose shape was checked by `build`.
fn params(rec: &Recorder<'_>, value: f32) -> kernel::Record {
    let [time, cols] = sequence(&[rec.input_shape(0)]).unwrap_or_default();
    kernel::Record {
        positions: length_word(Length::per_row(time)),
        cols: whole(cols),
        steps: whole(time),
        value: Word::F32(value),
    }
}

fn compute(rec: &mut Recorder<'_>, params: kernel::Record, x: View, mask: View) {
    rec.dispatch(&kernel::COMPUTE, params, [x], [mask], Grid::Elements(params.positions));
}

fn apply(rec: &mut Recorder<'_>, params: kernel::Record, [x, mask]: [View; 2], y: View) {
    rec.dispatch(&kernel::APPLY, params, [x, mask], [y], Grid::Elements(length_word(y.len)));
}

/// Records the mean over the steps that the mask, the second input, keeps.
pub(super) fn mean(rec: &mut Recorder<'_>) {
    let (x, mask, y, params) = (rec.input(0), rec.input(1), rec.output(), params(rec, 0.0));
    rec.dispatch(&kernel::MEAN, params, [x, mask], [y], Grid::Elements(length_word(y.len)));
}

/// Writes whether positions of a mask count.
pub(super) fn counts_onnx(form: &mut Form<'_>, mask: &Written) -> Written {
    form.op_with("GreaterOrEqual", mask, 0.5)
}

/// Writes 1 where a number of the input is not the value, else 0.
fn counted_onnx(form: &mut Form<'_>, value: f32) -> Written {
    let x = form.input(0);
    let is_padding = form.op_with("Equal", &x, value);
    let counts = form.op("Not", &[&is_padding], &[]);
    form.op("Cast", &[&counts], &[("to", Attribute::Int(FLOAT))])
}

/// Writes the mean over the steps that the mask, the second input, keeps.
pub(super) fn mean_onnx(form: &mut Form<'_>, keepdims: Attribute) {
    let (x, mask) = (form.input(0), form.input(1));
    let mask = form.unsqueeze(&mask, &[2]);
    let counts = counts_onnx(form, &mask);
    let (zero, axes) = (form.scalar(0.0), form.ints(&[1]));
    let kept = form.op("Where", &[&counts, &x, &zero], &[]);
    let sum = form.op("ReduceSum", &[&kept, &axes], &[("keepdims", keepdims.clone())]);
    let ones = form.op("Cast", &[&counts], &[("to", Attribute::Int(FLOAT))]);
    let count = form.op("ReduceSum", &[&ones, &axes], &[("keepdims", keepdims)]);
    let count = form.op_with("Max", &count, 1.0);
    let y = form.op("Div", &[&sum, &count], &[]);
    form.output(y, Order::Last);
}

/// Records the gradient of the sequence of that mean.
pub(super) fn mean_backward(rec: &mut Recorder<'_>) {
    let (dy, mask, params) = (rec.output_gradient(), rec.input(1), params(rec, 0.0));
    if let Some(dx) = rec.input_gradient(0) {
        rec.dispatch(&kernel::BACKWARD_MEAN, params, [dy, mask], [dx], Grid::Elements(length_word(dx.len)));
    }
}

impl Layer for ComputeMask {
    fn kind(&self) -> &'static str {
        "ComputeMask"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        Ok(Built::plain(Shape::new([sequence(inputs)?[0]])))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, params) = (rec.input(0), rec.output(), params(rec, self.mask_value));
        compute(rec, params, x, y);
    }

    fn backward(&self, _rec: &mut Recorder<'_>) {}

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let counts = counted_onnx(form, self.mask_value);
        let y = match form.input_shape(0).rank() {
            1 => counts,
            _ => {
                form.op("ReduceMax", &[&counts], &[("axes", Attribute::Ints(vec![2])), ("keepdims", Attribute::Int(0))])
            }
        };
        form.output(y, Order::Last);
        Ok(())
    }
}

/// A sequence of which recurrent layers behind pass over each position whose numbers are all `mask_value`. Such
/// positions are 0.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, time, features]`, the same |
///
/// **Across adapters** nothing changes. Kept for backward: the mask. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Masking {
    /// Value of padded positions.
    pub mask_value: f32,
}

impl Layer for Masking {
    fn kind(&self) -> &'static str {
        "Masking"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Makes { value: self.mask_value }
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        sequence(inputs)?;
        Ok(Built::plain(inputs[0].clone()))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, params) = (rec.input(0), rec.output(), params(rec, self.mask_value));
        let time = sequence(&[rec.input_shape(0)]).unwrap_or_default()[0];
        let mask = rec.scratch("mask", Length::per_row(time));
        rec.keep("mask", mask);
        compute(rec, params, x, mask);
        apply(rec, params, [x, mask], y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dy, mask, params) = (rec.output_gradient(), rec.kept("mask"), params(rec, self.mask_value));
        if let Some(dx) = rec.input_gradient(0) {
            apply(rec, params, [dy, mask], dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let mut counts = counted_onnx(form, self.mask_value);
        if form.input_shape(0).rank() > 1 {
            counts = form.op("ReduceMax", &[&counts], &[("axes", Attribute::Ints(vec![2]))]);
        }
        let counts = form.op("Cast", &[&counts], &[("to", Attribute::Int(BOOL))]);
        let (x, zero) = (form.input(0), form.scalar(0.0));
        let y = form.op("Where", &[&counts, &x, &zero], &[]);
        form.output(y, Order::Last);
        Ok(())
    }
}
