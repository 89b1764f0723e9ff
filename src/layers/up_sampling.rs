//! Pictures made larger by whole factors.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::merge::sum_repeated;
use super::remap::copy;
use super::{Built, Layer, Problem, image, pair, to_config};
use crate::kernels::remap::Axis;
use crate::kernels::{bilinear as kernel, whole};
use crate::names;
use crate::onnx::{Attribute, Form, Order, Value as Written};
use crate::plan::{Grid, Recorder, Word, length_word};
use crate::shape::Shape;

/// Interpolation between pixels of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The nearer pixel.
    #[default]
    Nearest,
    /// Both, by how near they are; pixels are squares whose centers are half a pixel from their borders.
    Bilinear,
}

/// A picture made larger by whole factors.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, height, width, channels]` |
/// | output | `[batch, height * size[0], width * size[1], channels]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct UpSampling2D {
    /// Factors of height and width.
    #[serde(deserialize_with = "pair")]
    pub size: [usize; 2],
    /// Interpolation between pixels of the input.
    #[serde(deserialize_with = "names::read")]
    pub interpolation: Interpolation,
}

impl Default for UpSampling2D {
    fn default() -> Self {
        Self { size: [2, 2], interpolation: Interpolation::Nearest }
    }
}

impl UpSampling2D {
    fn params(&self, shape: &Shape) -> kernel::Record {
        kernel::Record {
            rows: Word::Rows(1),
            in_h: whole(shape.axes()[0]),
            in_w: whole(shape.axes()[1]),
            channels: whole(shape.last()),
            factor_h: whole(self.size[0]),
            factor_w: whole(self.size[1]),
        }
    }
}

impl Layer for UpSampling2D {
    fn kind(&self) -> &'static str {
        "UpSampling2D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [height, width, channels] = image(inputs)?;
        let [high, wide] = self.size;
        if high == 0 || wide == 0 {
            let problem = format!("needs factors of at least 1, but got {:?}", self.size);
            return Err(Problem::new(problem, "`size = 2` doubles height and width"));
        }
        Ok(Built::plain(Shape::new([height.saturating_mul(high), width.saturating_mul(wide), channels])))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, shape) = (rec.input(0), rec.output(), rec.input_shape(0));
        if self.interpolation == Interpolation::Bilinear {
            rec.dispatch(&kernel::FORWARD, self.params(&shape), [x], [y], Grid::Elements(length_word(y.len)));
            return;
        }
        let (lines, columns, channels, [high, wide]) = (shape.axes()[0], shape.axes()[1], shape.last(), self.size);
        let line = Axis::full(lines, columns * channels);
        let column = Axis::full(columns, channels);
        let axes = [line, Axis::full(high, 0), column, Axis::full(wide, 0), Axis::full(channels, 1)];
        copy(rec, &axes, (0, shape.len()), x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let shape = rec.input_shape(0);
        if self.interpolation == Interpolation::Bilinear {
            let (dy, params) = (rec.output_gradient(), self.params(&shape));
            if let Some(dx) = rec.input_gradient(0) {
                rec.dispatch(&kernel::BACKWARD, params, [dy], [dx], Grid::Elements(length_word(dx.len)));
            }
            return;
        }
        let (lines, columns, channels, [high, wide]) = (shape.axes()[0], shape.axes()[1], shape.last(), self.size);
        sum_repeated(rec, &[lines, high, columns, wide, channels], &[lines, 1, columns, 1, channels]);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let mode = if self.interpolation == Interpolation::Bilinear { "linear" } else { "nearest" };
        resize_onnx(form, mode, &self.size);
        Ok(())
    }
}

/// Writes the input with its positions times these factors.
pub(super) fn resize_onnx(form: &mut Form<'_>, mode: &'static str, factors: &[usize]) {
    let x = form.channels_first(0);
    #[allow(clippy::cast_precision_loss, reason = "factors of sizes that are counted in 28 bits")]
    let scales: Vec<f32> = [1.0, 1.0].into_iter().chain(factors.iter().map(|factor| *factor as f32)).collect();
    let scales = form.floats(&[scales.len()], &scales);
    let transformation = if mode == "linear" { "half_pixel" } else { "asymmetric" };
    let settings = [
        ("mode", Attribute::Text(mode)),
        ("coordinate_transformation_mode", Attribute::Text(transformation)),
        ("nearest_mode", Attribute::Text("floor")),
    ];
    let y = form.op("Resize", &[&x, &Written::NONE, &scales], &settings);
    form.output(y, Order::First);
}
