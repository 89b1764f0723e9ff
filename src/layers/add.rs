//! Sum of several tensors.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, Problem, to_config};
use crate::kernels::add as kernel;
use crate::plan::{Grid, Recorder, length_word};
use crate::shape::Shape;

/// Element-wise sum of two or more inputs of one shape: the join of a residual connection.
///
/// | tensor | shape |
/// | --- | --- |
/// | each input, output | `[batch, ...]`, all the same |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {}

/// The shapes of a layer that merges two or more inputs.
pub(super) fn several(inputs: &[Shape]) -> Result<(&Shape, &[Shape]), Problem> {
    match inputs {
        [first, rest @ ..] if !rest.is_empty() => Ok((first, rest)),
        _ => Err(Problem::new(
            format!("needs two inputs or more, but got {}", inputs.len()),
            "name at least two tensors as its inputs",
        )),
    }
}

impl Layer for Add {
    fn kind(&self) -> &'static str {
        "Add"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let (first, rest) = several(inputs)?;
        if let Some(other) = rest.iter().find(|shape| *shape != first) {
            return Err(Problem::new(
                format!("needs inputs of one shape, but got {first} and {other}"),
                "bring them to one shape first, for example with a 1 × 1 `Conv2D` on the shorter branch",
            ));
        }
        Ok(Built::plain(first.clone()))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let y = rec.output();
        let len = length_word(y.len);
        let (a, b) = (rec.input(0), rec.input(1));
        rec.dispatch(&kernel::FORWARD, kernel::Record { len }, [a, b], [y], Grid::Elements(len));
        for i in 2..rec.n_inputs() {
            let x = rec.input(i);
            rec.dispatch(&kernel::ACCUMULATE, kernel::Record { len }, [x], [y], Grid::Elements(len));
        }
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let dy = rec.output_gradient();
        let len = length_word(dy.len);
        for i in 1..rec.n_inputs() {
            if let Some(dx) = rec.input_gradient(i) {
                rec.dispatch(&kernel::COPY, kernel::Record { len }, [dy], [dx], Grid::Elements(len));
            }
        }
        // Last, since a later sum into this gradient writes into the output's, which the copies above read.
        rec.pass_gradient(0);
    }
}
