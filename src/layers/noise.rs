//! Gaussian noise by counter-based random numbers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, MaskUse, Problem, only, to_config};
use crate::kernels::{gaussian as kernel, whole};
use crate::onnx::Form;
use crate::plan::{Grid, Recorder, View, Word, length_word};
use crate::shape::Shape;

/// Records `x (1 + relative n) + absolute n` with normal numbers `n`.
fn record(rec: &mut Recorder<'_>, [relative, absolute]: [f32; 2], x: View, y: View) {
    let len = length_word(y.len);
    let params = kernel::Record {
        len,
        row_len: whole(rec.output_shape().len()),
        first_row: Word::FirstRow,
        seed: Word::Seed,
        step: Word::Step,
        node: whole(rec.node_idx()),
        relative: Word::F32(relative),
        absolute: Word::F32(absolute),
    };
    rec.dispatch(&kernel::FORWARD, params, [x], [y], Grid::Elements(len));
}

/// In training, adds normal numbers of mean 0 and deviation `stddev`.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, ...]`, the same |
///
/// **Across adapters** the same sample gets the same noise, up to rounding, whatever the split: its key is (seed, training
/// step, node, row of the whole batch, element). Nothing is kept for backward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GaussianNoise {
    /// Standard deviation of what is added, from 0 to 1.
    pub stddev: f32,
}

impl GaussianNoise {
    fn is_on(self, rec: &Recorder<'_>) -> bool {
        rec.is_training() && self.stddev > 0.0
    }
}

impl Layer for GaussianNoise {
    fn kind(&self) -> &'static str {
        "GaussianNoise"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        if !(0.0..=1.0).contains(&self.stddev) {
            return Err(Problem::new(
                format!("needs a deviation from 0 to 1, but got {}", self.stddev),
                "scale the input to a deviation of about 1, and add a part of that",
            ));
        }
        Ok(Built::plain(only(inputs)?.clone()))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        if !self.is_on(rec) {
            return rec.pass_value();
        }
        let (x, y) = (rec.input(0), rec.output());
        record(rec, [0.0, self.stddev], x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        rec.pass_gradient(0);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        form.pass();
        Ok(())
    }
}

/// In training, multiplies by normal numbers of mean 1 and deviation `√(rate / (1 - rate))`.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, ...]`, the same |
///
/// **Across adapters** the same sample gets the same noise, up to rounding, whatever the split: its key is (seed, training
/// step, node, row of the whole batch, element). Nothing is kept for backward: the numbers are drawn again.
/// Source: Srivastava et al. 2014, JMLR 15, section 10.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GaussianDropout {
    /// Rate of the dropout of equal deviation, in `[0, 1)`.
    pub rate: f32,
}

impl GaussianDropout {
    fn deviation(self) -> f32 {
        (self.rate / (1.0 - self.rate)).sqrt()
    }

    fn is_on(self, rec: &Recorder<'_>) -> bool {
        rec.is_training() && self.rate > 0.0
    }
}

impl Layer for GaussianDropout {
    fn kind(&self) -> &'static str {
        "GaussianDropout"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        super::dropout::check_rate(self.rate)?;
        Ok(Built::plain(only(inputs)?.clone()))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        if !self.is_on(rec) {
            return rec.pass_value();
        }
        let (x, y) = (rec.input(0), rec.output());
        record(rec, [self.deviation(), 0.0], x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        if !self.is_on(rec) {
            return rec.pass_gradient(0);
        }
        let dy = rec.output_gradient();
        if let Some(dx) = rec.input_gradient(0) {
            record(rec, [self.deviation(), 0.0], dy, dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        form.pass();
        Ok(())
    }
}
