//! Dropout by counter-based random numbers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, Problem, only, to_config};
use crate::kernels::{dropout as kernel, whole};
use crate::plan::{Grid, Recorder, View, Word, length_word};
use crate::shape::Shape;

/// In training, sets a part `rate` of the elements to 0 and scales the others by `1 / (1 - rate)`.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, ...]`, the same |
///
/// **Across adapters** the same sample gets the same mask whatever the split: its key is (seed, training step,
/// node, row of the whole batch, element). Nothing is kept for backward: the mask is drawn again.
/// Source: Srivastava et al. 2014, JMLR 15.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Part of the elements that is dropped, in `[0, 1)`.
    pub rate: f32,
}

impl Dropout {
    /// Drops a part `rate`.
    pub fn new(rate: f32) -> Self {
        Self { rate }
    }

    fn record(self, rec: &mut Recorder<'_>, x: View, y: View) {
        let len = length_word(y.len);
        let params = kernel::Record {
            len,
            row_len: whole(rec.output_shape().len()),
            first_row: Word::FirstRow,
            seed: Word::Seed,
            step: Word::Step,
            node: whole(rec.node_idx()),
            rate: Word::F32(self.rate),
        };
        rec.dispatch(&kernel::FORWARD, params, [x], [y], Grid::Elements(len));
    }
}

impl Layer for Dropout {
    fn kind(&self) -> &'static str {
        "Dropout"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        if !(0.0..1.0).contains(&self.rate) {
            return Err(Problem::new(
                format!("needs a rate of at least 0 and below 1, but got {}", self.rate),
                "the rate is the part that is dropped: 0.5 drops half",
            ));
        }
        Ok(Built::plain(only(inputs)?.clone()))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        if self.rate == 0.0 || !rec.is_training() {
            rec.pass_value();
            return;
        }
        let (x, y) = (rec.input(0), rec.output());
        self.record(rec, x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        if self.rate == 0.0 {
            rec.pass_gradient(0);
            return;
        }
        let dy = rec.output_gradient();
        if let Some(dx) = rec.input_gradient(0) {
            self.record(rec, dy, dx);
        }
    }
}
