//! Positions of a sequence as angles by which features are turned.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, MaskUse, Problem, Statistic, Values, as_built, only, to_config};
use crate::kernels::{rotary_embedding as kernel, whole};
use crate::onnx::{Attribute, Form, Order};
use crate::plan::{Grid, Length, Recorder, View, Word, length_word};
use crate::shape::{Shape, elements};

/// Rotary positions: turns pairs of features by angles that grow with the position, so that the product of two such vectors
/// depends on the distance of their positions alone.
///
/// Feature `k` of a vector and feature `features / 2 + k` are a pair. At position `t` it is turned by the angle
/// `t / scaling_factor * f[k]` with the frequency `f[k] = max_wavelength^(-2k / features)`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[batch, time, features]` or `[batch, time, heads, features]`; `features` is even | |
/// | `turns` (not trained) | `[time, features]` | cosines, then sines, of each position's angles |
///
/// With the four settings of Llama 3.1, frequencies below `low_freq_factor / pretraining_sequence_length` turns a position
/// are divided by `frequency_adjustment_factor`, those above `high_freq_factor / pretraining_sequence_length` stay, and
/// those between go over from one to the other.
///
/// **Across adapters** nothing changes: each vector stands alone. Nothing is kept for backward, which turns gradients back.
/// Source: Su et al. 2021, arXiv:2104.09864; `KerasHub`'s `RotaryEmbedding` and `LlamaRotaryEmbedding`, whose halves are
/// those of Hugging Face's Llama. Golden values: their definition in operations of Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{Layer, RotaryEmbedding}};
/// let built = RotaryEmbedding::default().build(&[Shape::new([10, 4, 16])]).unwrap();
/// assert_eq!(built.statistics[0].shape, [10, 16]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RotaryEmbedding {
    /// The longest wave, divided by 2π; `rope_theta` of Hugging Face.
    pub max_wavelength: f32,
    /// Number by which positions are divided.
    pub scaling_factor: f32,
    /// Number by which low frequencies are divided; 8 in Llama 3.1. The four settings from here on belong together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_adjustment_factor: Option<f32>,
    /// Turns in `pretraining_sequence_length` positions below which a frequency is low.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_freq_factor: Option<f32>,
    /// Turns in `pretraining_sequence_length` positions above which a frequency stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_freq_factor: Option<f32>,
    /// Positions of the sequences on which the model was trained at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretraining_sequence_length: Option<usize>,
}

impl Default for RotaryEmbedding {
    fn default() -> Self {
        Self {
            max_wavelength: 10_000.0,
            scaling_factor: 1.0,
            frequency_adjustment_factor: None,
            low_freq_factor: None,
            high_freq_factor: None,
            pretraining_sequence_length: None,
        }
    }
}

/// Rule by which low frequencies become lower.
struct Adjustment {
    factor: f64,
    low: f64,
    high: f64,
    positions: f64,
}

impl Adjustment {
    fn of(&self, frequency: f64) -> f64 {
        let turns = self.positions * frequency / TAU;
        // 0 for a low frequency, 1 for one that stays.
        let part = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        frequency * (part + (1.0 - part) / self.factor)
    }
}

/// Axes of an input.
struct Vectors {
    time: usize,
    inner: usize,
    features: usize,
}

impl Vectors {
    fn of(inputs: &[Shape]) -> Result<Self, Problem> {
        match *only(inputs)?.axes() {
            [time, features] if features % 2 == 0 => Ok(Self { time, inner: 1, features }),
            [time, inner, features] if features % 2 == 0 => Ok(Self { time, inner, features }),
            _ => Err(Problem::new(
                format!(
                    "needs an input [batch, time, features] or [batch, time, heads, features] with an even number of \
                     features, but got {}",
                    inputs[0]
                ),
                "`Reshape` makes heads of features",
            )),
        }
    }

    fn recorded(rec: &Recorder<'_>) -> Self {
        as_built(Self::of(&[rec.output_shape()]))
    }

    fn pairs(&self) -> usize {
        elements(&[self.time, self.inner, self.features / 2])
    }
}

impl RotaryEmbedding {
    /// The settings of Llama 3.1, if they are there.
    #[allow(clippy::cast_precision_loss, reason = "positions are far below 2^52")]
    fn adjustment(&self) -> Result<Option<Adjustment>, Problem> {
        let [factor, low, high] =
            [self.frequency_adjustment_factor, self.low_freq_factor, self.high_freq_factor].map(|it| it.map(f64::from));
        match (factor, low, high, self.pretraining_sequence_length) {
            (None, None, None, None) => Ok(None),
            (Some(factor), Some(low), Some(high), Some(positions)) if factor > 0.0 && low < high => {
                Ok(Some(Adjustment { factor, low, high, positions: positions as f64 }))
            }
            (Some(factor), Some(low), Some(high), Some(_)) => Err(Problem::new(
                format!(
                    "needs a positive `frequency_adjustment_factor`, and `low_freq_factor` below `high_freq_factor`, but got \
                     {factor}, {low} and {high}"
                ),
                "Llama 3.1 has 8, 1 and 4",
            )),
            _ => Err(Problem::new(
                "needs all of `frequency_adjustment_factor`, `low_freq_factor`, `high_freq_factor` and \
                 `pretraining_sequence_length`, or none, but got some of them",
                "Llama 3.1 has 8, 1, 4 and 8192",
            )),
        }
    }

    /// Cosines and sines, `[time, features]`.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "angles, which are rounded")]
    fn turns(&self, vectors: &Vectors) -> Result<Vec<f32>, Problem> {
        let (half, adjustment) = (vectors.features / 2, self.adjustment()?);
        let frequency = |k: usize| {
            let frequency = f64::from(self.max_wavelength).powf(-2.0 * k as f64 / vectors.features as f64);
            adjustment.as_ref().map_or(frequency, |it| it.of(frequency))
        };
        let frequencies: Vec<f64> = (0..half).map(frequency).collect();
        let mut turns = Vec::with_capacity(vectors.time * vectors.features);
        for t in 0..vectors.time {
            let angles = || frequencies.iter().map(|f| t as f64 / f64::from(self.scaling_factor) * f);
            turns.extend(angles().map(|angle| angle.cos() as f32));
            turns.extend(angles().map(|angle| angle.sin() as f32));
        }
        Ok(turns)
    }

    /// Turns `x` into `y`, by 1 in this direction or by -1 in the other.
    fn turn(rec: &mut Recorder<'_>, direction: f32, x: View, y: View) {
        let (vectors, turns) = (Vectors::recorded(rec), rec.statistic("turns"));
        let pairs = length_word(Length::per_row(vectors.pairs()));
        let params = kernel::Record {
            pairs,
            half: whole(vectors.features / 2),
            inner: whole(vectors.inner),
            time: whole(vectors.time),
            direction: Word::F32(direction),
        };
        rec.dispatch(&kernel::FORWARD, params, [turns, x], [y], Grid::Elements(pairs));
    }
}

impl Layer for RotaryEmbedding {
    fn kind(&self) -> &'static str {
        "RotaryEmbedding"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let vectors = Vectors::of(inputs)?;
        let is_positive = |value: f32| value > 0.0 && value.is_finite();
        if !is_positive(self.max_wavelength) || !is_positive(self.scaling_factor) {
            return Err(Problem::new(
                format!(
                    "needs a positive `max_wavelength` and `scaling_factor`, but got {} and {}",
                    self.max_wavelength, self.scaling_factor
                ),
                "10,000 and 1 are usual",
            ));
        }
        let initial = Values::Each(self.turns(&vectors)?);
        let turns = Statistic { name: "turns", shape: vec![vectors.time, vectors.features], initial };
        Ok(Built { output: inputs[0].clone(), parameters: Vec::new(), statistics: vec![turns] })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y) = (rec.input(0), rec.output());
        Self::turn(rec, 1.0, x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        if let Some(d_x) = rec.input_gradient(0) {
            let dy = rec.output_gradient();
            Self::turn(rec, -1.0, dy, d_x);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let shape = form.input_shape(0).clone();
        let Vectors { time, features, .. } = as_built(Vectors::of(std::slice::from_ref(&shape)));
        let (half, last) = (features / 2, shape.rank());
        let dims: &[usize] = if last == 3 { &[time, 1, features] } else { &[time, features] };
        let cosines =
            form.arranged("turns", "cosines", dims, move |turns| of_each(turns, features, |[cos, _]| [cos, cos]));
        let sines =
            form.arranged("turns", "sines", dims, move |turns| of_each(turns, features, |[_, sin]| [-sin, sin]));
        let x = form.input(0);
        let [first, second] = [[0, half], [half, features]].map(|places| form.slice(&x, last, places));
        let crossed = form.op("Concat", &[&second, &first], &[("axis", Attribute::Int(-1))]);
        let (x, crossed) = (form.op("Mul", &[&x, &cosines], &[]), form.op("Mul", &[&crossed, &sines], &[]));
        let y = form.op("Add", &[&x, &crossed], &[]);
        form.output(y, Order::Last);
        Ok(())
    }
}

/// A number for each feature, made by a function for both features of a pair, from its cosine and sine.
fn of_each(turns: &[f32], features: usize, both: fn([f32; 2]) -> [f32; 2]) -> Vec<f32> {
    let half = features / 2;
    let at = |position: &[f32], k: usize| both([position[k % half], position[half + k % half]])[k / half];
    turns.chunks_exact(features).flat_map(|position| (0..features).map(move |k| at(position, k))).collect()
}
