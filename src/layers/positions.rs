//! Positions of a sequence: learned vectors, and sines.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gradient_sums::sum_columns_of_first;
use super::merge::repeated;
use super::{Built, Initializer, Layer, MaskUse, Parameter, Problem, Statistic, Values, as_built, only, to_config};
use crate::names;
use crate::onnx::{Form, Order, Value as Written};
use crate::plan::Recorder;
use crate::shape::Shape;

/// Positions and features of a sequence.
fn sequence(inputs: &[Shape]) -> Result<[usize; 2], Problem> {
    match *only(inputs)?.axes() {
        [time, features] => Ok([time, features]),
        _ => Err(Problem::new(
            format!("needs an input [batch, time, features], but got {}", inputs[0]),
            "put it behind an `Embedding`: its output has positions and features",
        )),
    }
}

/// A learned vector for each position of a sequence, the same for each row: `y[t] = embeddings[t]`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, time, features]`, of which only the shape matters | |
/// | `embeddings` | `[sequence_length, features]` | `embeddings_initializer`, Glorot uniform |
/// | output | `[batch, time, features]` | |
///
/// `Add` brings input and output together. Vectors of positions that a shorter sequence lacks stay as they are.
/// **Across adapters** nothing changes: the gradient is a sum over rows. Nothing is kept for backward. Source:
/// `KerasHub`'s layer of this name. Golden values: its definition in operations of Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PositionEmbedding {
    /// Most positions of a sequence.
    pub sequence_length: usize,
    /// Initial values of the vectors.
    #[serde(default, deserialize_with = "names::read")]
    pub embeddings_initializer: Initializer,
}

impl PositionEmbedding {
    /// Vectors for so many positions.
    pub fn new(sequence_length: usize) -> Self {
        Self { sequence_length, embeddings_initializer: Initializer::default() }
    }
}

impl Layer for PositionEmbedding {
    fn kind(&self) -> &'static str {
        "PositionEmbedding"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [time, features] = sequence(inputs)?;
        if time > self.sequence_length {
            return Err(Problem::new(
                format!("needs at most {} positions, but got {}", self.sequence_length, inputs[0]),
                "set `sequence_length` to the longest sequence",
            ));
        }
        let shape = vec![self.sequence_length, features];
        let embeddings = Parameter { name: "embeddings", shape, initializer: self.embeddings_initializer };
        Ok(Built { output: inputs[0].clone(), parameters: vec![embeddings], statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (embeddings, y) = (rec.parameter("embeddings"), rec.output());
        repeated(rec, embeddings, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dy, len) = (rec.output_gradient(), rec.output_shape().len());
        sum_columns_of_first(rec, dy, len, "embeddings");
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let (x, [time, _]) = (form.input(0), as_built(sequence(std::slice::from_ref(form.input_shape(0)))));
        let mut vectors = form.tensor("embeddings");
        if time < self.sequence_length {
            vectors = form.slice(&vectors, 0, [0, time]);
        }
        repeated_onnx(form, &x, &vectors);
        Ok(())
    }
}

/// Sines and cosines of a position, the same for each row.
///
/// `y[t, 2i] = sin(t / max_wavelength^(2i / features))`, `y[t, 2i + 1] = cos(…)` of the same.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, time, features]`, of which only the shape matters | |
/// | `encodings` (not trained) | `[time, features]` | the formula's |
/// | output | `[batch, time, features]` | |
///
/// `Add` brings input and output together. **Across adapters** nothing changes. Nothing is kept for backward. Source:
/// Vaswani et al. 2017, arXiv:1706.03762, 3.5; `KerasHub`'s layer of this name. Golden values: its definition in
/// operations of Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SinePositionEncoding {
    /// The longest wave, divided by 2π.
    pub max_wavelength: f32,
}

impl Default for SinePositionEncoding {
    fn default() -> Self {
        Self { max_wavelength: 10_000.0 }
    }
}

impl SinePositionEncoding {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "angles, which are rounded")]
    fn encodings(self, [time, features]: [usize; 2]) -> Vec<f32> {
        let number = |at: usize| {
            let (t, c) = (at / features, at % features);
            let power = (c / 2 * 2) as f64 / features as f64;
            let angle = t as f64 * f64::from(self.max_wavelength).powf(-power);
            (if c % 2 == 0 { angle.sin() } else { angle.cos() }) as f32
        };
        (0..time * features).map(number).collect()
    }
}

impl Layer for SinePositionEncoding {
    fn kind(&self) -> &'static str {
        "SinePositionEncoding"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [time, features] = sequence(inputs)?;
        if self.max_wavelength.is_nan() || self.max_wavelength <= 0.0 {
            return Err(Problem::new(
                format!("needs a positive `max_wavelength`, but got {}", self.max_wavelength),
                "10,000 is usual",
            ));
        }
        let initial = Values::Each(self.encodings([time, features]));
        let encodings = Statistic { name: "encodings", shape: vec![time, features], initial };
        Ok(Built { output: inputs[0].clone(), parameters: Vec::new(), statistics: vec![encodings] })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (encodings, y) = (rec.statistic("encodings"), rec.output());
        repeated(rec, encodings, y);
    }

    fn backward(&self, _rec: &mut Recorder<'_>) {}

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let (x, encodings) = (form.input(0), form.tensor("encodings"));
        repeated_onnx(form, &x, &encodings);
        Ok(())
    }
}

/// Writes vectors of positions as the values of each row of an input.
fn repeated_onnx(form: &mut Form<'_>, x: &Written, vectors: &Written) {
    let shape = form.op("Shape", &[x], &[]);
    let y = form.op("Expand", &[vectors, &shape], &[]);
    form.output(y, Order::Last);
}
