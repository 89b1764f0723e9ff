//! Element-wise functions, as layers and as the last part of `Dense` and `Conv2D`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, Problem, only, to_config};
use crate::kernels::activation_functions::{self as functions, Function};
use crate::kernels::{activation as kernel, rows_grid, softmax, whole};
use crate::names;
use crate::plan::{Dispatch, Grid, Length, Recorder, View, length_word, vectors_word};
use crate::shape::Shape;

/// An activation function, by its Keras name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x`.
    #[default]
    Linear,
    /// `max(x, 0)`.
    Relu,
    /// `x` above 0, `0.2 x` below, as the Keras function; the layer [`LeakyRelu`] sets its own slope.
    LeakyRelu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `tanh(x)`.
    Tanh,
    /// `x Φ(x)`, exact. Hendrycks & Gimpel 2016, arXiv:1606.08415.
    Gelu,
    /// `exp(x) / Σ exp(x)` over the last axis.
    Softmax,
}

impl Activation {
    /// The element-wise function; `None` for none, and for the softmax.
    fn function(self) -> Option<Function> {
        match self {
            Self::Linear | Self::Softmax => None,
            Self::Relu => Some(Function::plain(functions::Activation::Relu)),
            Self::LeakyRelu => Some(leaky_relu(0.2)),
            Self::Sigmoid => Some(Function::plain(functions::Activation::Sigmoid)),
            Self::Tanh => Some(Function::plain(functions::Activation::Tanh)),
            Self::Gelu => Some(Function::plain(functions::Activation::Gelu)),
        }
    }

    /// Records what stands before the activation with `record`, which is given where to write and returns its
    /// dispatch, and the activation: fused into that dispatch where its derivative can be taken from its output.
    pub(super) fn after(
        self,
        rec: &mut Recorder<'_>,
        record: impl for<'r> FnOnce(&'r mut Recorder<'_>, View) -> &'r mut Dispatch,
    ) {
        let fused = self.function().filter(|function| !function.activation.slope_needs_input());
        if self == Self::Linear || fused.is_some() {
            let output = rec.output();
            let dispatch = record(rec, output);
            if let Some(function) = fused {
                dispatch.constants.extend(function.constants());
            }
            return;
        }
        let before = rec.scratch("before_activation", Length::per_row(rec.output_shape().len()));
        record(rec, before);
        rec.keep("before_activation", before);
        let output = rec.output();
        match self.function() {
            Some(function) => forward(rec, function, before, output),
            None => softmax_forward(rec, before, output),
        }
    }

    /// The gradient with respect to what stands before the activation.
    pub(super) fn gradient_before(self, rec: &mut Recorder<'_>) -> View {
        if self == Self::Linear {
            return rec.output_gradient();
        }
        let gradient = rec.scratch("before_activation_gradient", Length::per_row(rec.output_shape().len()));
        match self.function() {
            None => softmax_backward(rec, gradient),
            Some(function) => {
                let needs_input = function.activation.slope_needs_input();
                let saved = if needs_input { rec.kept("before_activation") } else { rec.output() };
                backward(rec, function, saved, gradient);
            }
        }
        gradient
    }
}

fn leaky_relu(slope: f32) -> Function {
    Function { activation: functions::Activation::LeakyRelu, slope }
}

fn forward(rec: &mut Recorder<'_>, function: Function, x: View, y: View) {
    let (len, grid) = (length_word(y.len), Grid::Elements(vectors_word(y.len)));
    let dispatch = rec.dispatch(&kernel::FORWARD, kernel::Record { len }, [x], [y], grid);
    dispatch.constants.extend(function.constants());
}

fn backward(rec: &mut Recorder<'_>, function: Function, saved: View, dx: View) {
    let (len, grid) = (length_word(dx.len), Grid::Elements(vectors_word(dx.len)));
    let dy = rec.output_gradient();
    let dispatch = rec.dispatch(&kernel::BACKWARD, kernel::Record { len }, [saved, dy], [dx], grid);
    dispatch.constants.extend(function.constants());
}

/// Records a softmax over the last axis of the node's output shape.
pub(super) fn softmax_forward(rec: &mut Recorder<'_>, x: View, y: View) {
    let (shape, params) = softmax_params(rec);
    let (grid, lanes) = rows_grid(shape.positions(), shape.last());
    rec.dispatch(&softmax::FORWARD, params, [x], [y], grid).constants.push(lanes);
}

/// Records the softmax's gradient from the node's output and its gradient.
pub(super) fn softmax_backward(rec: &mut Recorder<'_>, dx: View) {
    let (shape, params) = softmax_params(rec);
    let (grid, lanes) = rows_grid(shape.positions(), shape.last());
    let (y, dy) = (rec.output(), rec.output_gradient());
    rec.dispatch(&softmax::BACKWARD, params, [y, dy], [dx], grid).constants.push(lanes);
}

fn softmax_params(rec: &Recorder<'_>) -> (Shape, softmax::Record) {
    let shape = rec.output_shape();
    let rows = length_word(Length::per_row(shape.positions()));
    let cols = whole(shape.last());
    (shape, softmax::Record { rows, cols })
}

/// Any activation function as a layer.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, ...]`, the same |
///
/// **Across adapters** nothing changes: each element stands alone (softmax: each row).
/// Kept for backward: the output, or the input for GELU. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationLayer {
    /// The function.
    #[serde(deserialize_with = "names::read")]
    pub activation: Activation,
}

impl Layer for ActivationLayer {
    fn kind(&self) -> &'static str {
        "Activation"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        Ok(Built::plain(only(inputs)?.clone()))
    }

    fn function(&self) -> Option<Function> {
        self.activation.function()
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        match self.activation.function() {
            Some(function) => element_forward(rec, function),
            None if self.activation == Activation::Softmax => {
                let (x, y) = (rec.input(0), rec.output());
                softmax_forward(rec, x, y);
            }
            None => rec.pass_value(),
        }
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        match self.activation.function() {
            Some(function) => element_backward(rec, function),
            None if self.activation == Activation::Softmax => {
                if let Some(dx) = rec.input_gradient(0) {
                    softmax_backward(rec, dx);
                }
            }
            None => rec.pass_gradient(0),
        }
    }
}

fn element_forward(rec: &mut Recorder<'_>, function: Function) {
    let (x, y) = (rec.input(0), rec.output());
    forward(rec, function, x, y);
}

fn element_backward(rec: &mut Recorder<'_>, function: Function) {
    let saved = if function.activation.slope_needs_input() { rec.input(0) } else { rec.output() };
    if let Some(dx) = rec.input_gradient(0) {
        backward(rec, function, saved, dx);
    }
}

macro_rules! element_layer {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr),* }, $kind:literal, $function:expr $(, $check:expr)?) => {
        $(#[$doc])*
        ///
        /// | tensor | shape |
        /// | --- | --- |
        /// | input, output | `[batch, ...]`, the same |
        ///
        /// **Across adapters** nothing changes: each element stands alone. Golden values: Keras 3.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Layer for $name {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn config(&self) -> Value {
                to_config(self)
            }

            fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
                $(
                    let check: fn(&Self) -> Result<(), Problem> = $check;
                    check(self)?;
                )?
                Ok(Built::plain(only(inputs)?.clone()))
            }

            fn function(&self) -> Option<Function> {
                let function: fn(&Self) -> Function = $function;
                Some(function(self))
            }

            fn forward(&self, rec: &mut Recorder<'_>) {
                let function: fn(&Self) -> Function = $function;
                element_forward(rec, function(self));
            }

            fn backward(&self, rec: &mut Recorder<'_>) {
                let function: fn(&Self) -> Function = $function;
                element_backward(rec, function(self));
            }
        }
    };
}

element_layer! {
    /// Rectified linear unit: `max(x, 0)`. Kept for backward: the output.
    Relu {}, "ReLU", |_| Function::plain(functions::Activation::Relu)
}

element_layer! {
    /// Leaky rectified linear unit: `x` above 0, `negative_slope * x` below. Kept for backward: the output.
    LeakyRelu {
        /// Slope below 0; at least 0.
        negative_slope: f32 = 0.3
    }, "LeakyReLU", |layer| leaky_relu(layer.negative_slope), |layer| {
        let slope = layer.negative_slope;
        // Backward tells from the output on which side of 0 the input was.
        if slope >= 0.0 && slope.is_finite() {
            return Ok(());
        }
        Err(Problem::new(format!("needs `negative_slope` of at least 0, but got {slope}"), "0.3 is the default of Keras"))
    }
}

element_layer! {
    /// Gaussian error linear unit: `x Φ(x)`. Hendrycks & Gimpel 2016, arXiv:1606.08415. Kept for backward: the input.
    Gelu {
        /// Take the tanh approximation of the paper.
        approximate: bool = false
    }, "GELU", |layer| Function::plain(
        if layer.approximate { functions::Activation::GeluTanh } else { functions::Activation::Gelu }
    )
}

element_layer! {
    /// Logistic function: `1 / (1 + exp(-x))`. Kept for backward: the output.
    Sigmoid {}, "Sigmoid", |_| Function::plain(functions::Activation::Sigmoid)
}

element_layer! {
    /// Hyperbolic tangent. Kept for backward: the output.
    Tanh {}, "Tanh", |_| Function::plain(functions::Activation::Tanh)
}
