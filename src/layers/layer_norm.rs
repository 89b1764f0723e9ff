//! Normalization of each position, or of whole rows, by itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::axes::Axes;
use super::group_norm::{Normalized, check_epsilon, parameters};
use super::{Built, Layer, MaskUse, Problem, as_built, only, to_config, yes};
use crate::onnx::{Attribute, Form, Order, Value as Written};
use crate::plan::Recorder;
use crate::shape::{Shape, elements};

/// Normalizes the last axis of each position to mean 0 and variance 1, then scales and shifts each element.
///
/// `y = gamma * (x - mean) / sqrt(variance + epsilon) + beta`, with the biased variance.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[batch, ..., features]` | |
/// | `gamma` (if `scale`) | `[features]`; the lengths of the axes, if there are several | 1 |
/// | `beta` (if `center`) | as `gamma` | 0 |
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows. Kept for backward: input, and
/// mean and deviation of each position. Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450. Golden values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{Layer, LayerNormalization}};
/// let built = LayerNormalization::default().build(&[Shape::new([10, 64])]).unwrap();
/// assert_eq!(built.parameters[0].shape, [64]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LayerNormalization {
    /// The last axis, or several last ones, over which mean and variance are taken.
    #[serde(default)]
    pub axis: Axes,
    /// Added to the variance.
    #[serde(default = "epsilon")]
    pub epsilon: f32,
    /// Whether `beta` is added.
    #[serde(default = "yes")]
    pub center: bool,
    /// Whether the result is multiplied by `gamma`.
    #[serde(default = "yes")]
    pub scale: bool,
}

fn epsilon() -> f32 {
    1e-3
}

impl Default for LayerNormalization {
    fn default() -> Self {
        Self { axis: Axes::default(), epsilon: epsilon(), center: true, scale: true }
    }
}

impl LayerNormalization {
    /// Keras' defaults.
    pub fn new() -> Self {
        Self::default()
    }

    fn recorded(&self, rec: &Recorder<'_>) -> Normalized {
        let gamma = self.scale.then_some("gamma");
        let beta = self.center.then_some("beta");
        Normalized { is_centered: true, gamma, beta, ..along(&self.axis, &rec.input_shape(0), self.epsilon) }
    }
}

/// The axes of an input, each position before them by itself.
fn along(axes: &Axes, input: &Shape, epsilon: f32) -> Normalized {
    let [items, width] = axes.split(input);
    Normalized { items, positions: 1, groups: 1, width, epsilon, is_centered: false, gamma: None, beta: None }
}

impl Layer for LayerNormalization {
    fn kind(&self) -> &'static str {
        "LayerNormalization"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        let shape = self.axis.of(input)?;
        check_epsilon(self.epsilon, epsilon())?;
        let names = [(self.scale, "gamma"), (self.center, "beta")];
        Ok(Built { output: input.clone(), parameters: parameters(names, shape), statistics: Vec::new() })
    }

    fn can_fuse(&self) -> bool {
        true
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).forward(rec);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).backward(rec);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let shape = form.input_shape(0).clone();
        let axes = as_built(self.axis.of(&shape)).to_vec();
        let x = form.input(0);
        let gamma = if self.scale { form.tensor("gamma") } else { form.floats(&axes, &vec![1.0; elements(&axes)]) };
        let beta = if self.center { form.tensor("beta") } else { Written::NONE };
        let settings =
            [("axis", Attribute::size(shape.rank() + 1 - axes.len())), ("epsilon", Attribute::Float(self.epsilon))];
        let y = form.op("LayerNormalization", &[&x, &gamma, &beta], &settings);
        form.output(y, Order::Last);
        Ok(())
    }
}

/// Divides the last axis of each position by its root mean square, then scales each element.
///
/// `y = scale * x / sqrt(mean of x² + epsilon)`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[batch, ..., features]` | |
/// | `scale` | `[features]`; the lengths of the axes, if there are several | 1 |
///
/// Its output has no mask, as in Keras.
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows. Kept for backward: input, and
/// root mean square of each position. Source: Zhang & Sennrich 2019, arXiv:1910.07467. Golden values: Keras 3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RmsNormalization {
    /// The last axis, or several last ones, over which the mean is taken.
    #[serde(default)]
    pub axis: Axes,
    /// Added to the mean square.
    #[serde(default = "rms_epsilon")]
    pub epsilon: f32,
}

fn rms_epsilon() -> f32 {
    1e-6
}

impl Default for RmsNormalization {
    fn default() -> Self {
        Self { axis: Axes::default(), epsilon: rms_epsilon() }
    }
}

impl RmsNormalization {
    fn recorded(&self, rec: &Recorder<'_>) -> Normalized {
        Normalized { gamma: Some("scale"), ..along(&self.axis, &rec.input_shape(0), self.epsilon) }
    }
}

impl Layer for RmsNormalization {
    fn kind(&self) -> &'static str {
        "RMSNormalization"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        let shape = self.axis.of(input)?;
        check_epsilon(self.epsilon, rms_epsilon())?;
        let parameters = parameters([(true, "scale"), (false, "")], shape);
        Ok(Built { output: input.clone(), parameters, statistics: Vec::new() })
    }

    fn can_fuse(&self) -> bool {
        true
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).forward(rec);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).backward(rec);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let shape = form.input_shape(0).clone();
        let n_axes = as_built(self.axis.of(&shape)).len();
        let x = form.input(0);
        let square = form.op("Mul", &[&x, &x], &[]);
        let axes = Attribute::sizes(shape.rank() + 1 - n_axes..=shape.rank());
        let mean = form.op("ReduceMean", &[&square], &[("axes", axes)]);
        let mean = form.op_with("Add", &mean, self.epsilon);
        let root = form.op("Sqrt", &[&mean], &[]);
        let y = form.op("Div", &[&x, &root], &[]);
        let scale = form.tensor("scale");
        let y = form.op("Mul", &[&y, &scale], &[]);
        form.output(y, Order::Last);
        Ok(())
    }
}
