//! Several tensors side by side along the last axis.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::add::several;
use super::{Built, Layer, Problem, to_config};
use crate::kernels::{concatenate as kernel, whole};
use crate::plan::{Grid, Length, Recorder, length_word};
use crate::shape::Shape;

/// Two or more inputs side by side along the last axis.
///
/// | tensor | shape |
/// | --- | --- |
/// | input `i` | `[batch, ..., features_i]` |
/// | output | `[batch, ..., Σ features_i]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concatenate {}

/// One input's place among the columns of the output.
struct Part {
    params: kernel::Record,
    grid: Grid,
}

impl Concatenate {
    fn parts(rec: &Recorder<'_>) -> Vec<Part> {
        let output = rec.output_shape();
        let mut offset = 0;
        let parts = (0..rec.n_inputs()).map(|i| {
            let shape = rec.input_shape(i);
            let rows = length_word(Length::per_row(shape.positions()));
            let cols = shape.last();
            let params = kernel::Record { rows, cols: whole(cols), total: whole(output.last()), offset: whole(offset) };
            offset += cols;
            Part { params, grid: Grid::Elements(length_word(Length::per_row(shape.len()))) }
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

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let (first, rest) = several(inputs)?;
        if let Some(other) = rest.iter().find(|shape| shape.with_last(0) != first.with_last(0) || shape.rank() == 0) {
            return Err(Problem::new(
                format!("needs inputs that agree in all axes but the last, but got {first} and {other}"),
                "bring them to one height and width first, for example with pooling or strides",
            ));
        }
        let width = inputs.iter().map(Shape::last).fold(0, usize::saturating_add);
        Ok(Built::plain(first.with_last(width)))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let y = rec.output();
        for (i, part) in Self::parts(rec).into_iter().enumerate() {
            let x = rec.input(i);
            rec.dispatch(&kernel::FORWARD, part.params, [x], [y], part.grid);
        }
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let dy = rec.output_gradient();
        for (i, part) in Self::parts(rec).into_iter().enumerate() {
            if let Some(dx) = rec.input_gradient(i) {
                rec.dispatch(&kernel::BACKWARD, part.params, [dy], [dx], part.grid);
            }
        }
    }
}
