//! Element-wise functions, as layers and as the last part of `Dense` and `Conv2D`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Built, Layer, MaskUse, Problem, only, to_config};
use crate::kernels::activation_functions::{self as functions, Function, FunctionNumbers};
use crate::kernels::{Library, activation as kernel, rows_grid, softmax, whole};
use crate::names;
use crate::onnx::{Attribute, Form, Order, Value as Written};
use crate::plan::{Dispatch, Grid, Length, Recorder, View, length_word, vectors_word};
use crate::shape::Shape;

/// An activation function, by its Keras name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x`.
    #[default]
    Linear,
    /// `max(x, 0)`; the layer `ReLU` has settings.
    Relu,
    /// `max(x, 0)`, at most 6.
    Relu6,
    /// `x` above 0, `0.2 x` below, as the Keras function; the layer `LeakyReLU` sets its own slope.
    LeakyRelu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `tanh(x)`.
    Tanh,
    /// `x Φ(x)`, exact. Hendrycks & Gimpel 2016, arXiv:1606.08415.
    Gelu,
    /// `x / (1 + exp(-x))`, also called swish. Elfwing et al. 2017, arXiv:1702.03118.
    Silu,
    /// `x` times the hard sigmoid of `x`, also called hard swish. Howard et al. 2019, arXiv:1905.02244.
    HardSilu,
    /// `x / 6 + 1 / 2`, between 0 and 1.
    HardSigmoid,
    /// `x` above 0, `exp(x) - 1` below; the layer `ELU` sets its own factor. Clevert et al. 2015, arXiv:1511.07289.
    Elu,
    /// ELU with factors that keep mean and variance. Klambauer et al. 2017, arXiv:1706.02515.
    Selu,
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `x / (1 + |x|)`.
    Softsign,
    /// `x tanh(ln(1 + exp(x)))`. Misra 2019, arXiv:1908.08681.
    Mish,
    /// `exp(x)`.
    Exponential,
    /// `ln(x)`.
    Log,
    /// `√x`.
    Sqrt,
    /// `1 / x`.
    Reciprocal,
    /// `exp(x) / Σ exp(x)` over the last axis.
    Softmax,
}

impl Activation {
    /// The element-wise function; `None` for none, and for the softmax.
    pub(super) fn function(self) -> Option<Function> {
        use functions::Activation as Named;
        let plain = match self {
            Self::Linear | Self::Softmax => return None,
            Self::LeakyRelu => return Some(Function::sloped(Named::LeakyRelu, 0.2)),
            Self::Elu => return Some(Function::sloped(Named::Elu, 1.0)),
            Self::Relu6 => return Some(Relu { max_value: Some(6.0), ..Relu::default() }.function_of_settings()),
            Self::Relu => Named::Relu,
            Self::Sigmoid => Named::Sigmoid,
            Self::Tanh => Named::Tanh,
            Self::Gelu => Named::Gelu,
            Self::Silu => Named::Silu,
            Self::HardSilu => Named::HardSilu,
            Self::HardSigmoid => Named::HardSigmoid,
            Self::Selu => Named::Selu,
            Self::Softplus => Named::Softplus,
            Self::Softsign => Named::Softsign,
            Self::Mish => Named::Mish,
            Self::Exponential => Named::Exponential,
            Self::Log => Named::Log,
            Self::Sqrt => Named::Sqrt,
            Self::Reciprocal => Named::Reciprocal,
        };
        Some(Function::plain(plain))
    }

    /// Records what stands before the activation with `record`, which is given where to write and returns its
    /// dispatch, and the activation: fused into that dispatch where its derivative can be taken from its output.
    pub(super) fn after(
        self,
        rec: &mut Recorder<'_>,
        record: impl for<'r> FnOnce(&'r mut Recorder<'_>, View) -> &'r mut Dispatch,
    ) {
        self.after_parts(rec, |rec, y| {
            record(rec, y);
        });
    }

    /// [`after`](Self::after) several dispatches, each of which writes a part.
    pub(super) fn after_parts(self, rec: &mut Recorder<'_>, record: impl FnOnce(&mut Recorder<'_>, View)) {
        let fused = self.function().filter(|function| !function.activation.slope_needs_input());
        if self == Self::Linear || fused.is_some() {
            let output = rec.output();
            let first = rec.n_commands();
            record(rec, output);
            if let Some(function) = fused {
                let applies = |dispatch: &&mut Dispatch| dispatch.kernel.uses.contains(&Library::Activation);
                let dispatches = rec.dispatches_since(first).filter(applies);
                dispatches.for_each(|dispatch| dispatch.constants.extend(function.constants()));
            }
            return;
        }
        self.apart(rec, record);
    }

    /// Records what stands before the activation with `record`, which is given where to write, and the activation in a
    /// dispatch of its own.
    pub(super) fn apart(self, rec: &mut Recorder<'_>, record: impl FnOnce(&mut Recorder<'_>, View)) {
        if self == Self::Linear {
            let output = rec.output();
            return record(rec, output);
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

impl Activation {
    /// Writes it behind a value.
    pub(super) fn onnx(self, form: &mut Form<'_>, x: Written, order: Order) -> Written {
        match self.function() {
            Some(function) => function_onnx(form, function, &x),
            None if self == Self::Softmax => softmax_onnx(form, &x, order),
            None => x,
        }
    }
}

/// Writes a softmax over the channels of a value.
pub(super) fn softmax_onnx(form: &mut Form<'_>, x: &Written, order: Order) -> Written {
    if form.output_shape().rank() == 0 {
        // Of one number it is 1.
        let zero = form.op("Sub", &[x, x], &[]);
        return form.op("Exp", &[&zero], &[]);
    }
    let axis = if order == Order::First { 1 } else { -1 };
    form.op("Softmax", &[x], &[("axis", Attribute::Int(axis))])
}

/// Writes an element-wise function of the input.
pub(super) fn element_onnx(form: &mut Form<'_>, function: Function) {
    let order = form.order(0);
    let x = form.input_in(0, order);
    let y = function_onnx(form, function, &x);
    form.output(y, order);
}

/// Writes an element-wise function of a value.
pub(super) fn function_onnx(form: &mut Form<'_>, function: Function, x: &Written) -> Written {
    use functions::Activation as Named;
    let FunctionNumbers { slope, offset, .. } = function.numbers;
    let alpha = [("alpha", Attribute::Float(slope))];
    match function.activation {
        Named::None => x.clone(),
        Named::Relu => form.op("Relu", &[x], &[]),
        Named::LeakyRelu => form.op("LeakyRelu", &[x], &alpha),
        Named::Sigmoid => form.op("Sigmoid", &[x], &[]),
        Named::Tanh => form.op("Tanh", &[x], &[]),
        Named::Affine => {
            let scaled = form.op_with("Mul", x, slope);
            form.op_with("Add", &scaled, offset)
        }
        Named::BoundedRelu => bounded_relu_onnx(form, function.numbers, x),
        Named::Elu => form.op("Elu", &[x], &alpha),
        // Its factors are the operator's defaults.
        Named::Selu => form.op("Selu", &[x], &[]),
        Named::Exponential => form.op("Exp", &[x], &[]),
        Named::Log => form.op("Log", &[x], &[]),
        Named::Sqrt => form.op("Sqrt", &[x], &[]),
        Named::Reciprocal => form.op("Reciprocal", &[x], &[]),
        Named::Softplus => form.op("Softplus", &[x], &[]),
        Named::Softsign => form.op("Softsign", &[x], &[]),
        Named::HardSigmoid => {
            form.op("HardSigmoid", &[x], &[("alpha", Attribute::Float(1.0 / 6.0)), ("beta", Attribute::Float(0.5))])
        }
        Named::Gelu => {
            let inner = form.op_with("Mul", x, std::f32::consts::FRAC_1_SQRT_2);
            let inner = form.op("Erf", &[&inner], &[]);
            gated_onnx(form, x, &inner)
        }
        Named::GeluTanh => {
            let square = form.op("Mul", &[x, x], &[]);
            let factor = form.op_with("Mul", &square, 0.044_715);
            let factor = form.op_with("Add", &factor, 1.0);
            let inner = form.op("Mul", &[x, &factor], &[]);
            // √(2/π)
            let inner = form.op_with("Mul", &inner, 0.797_884_6);
            let inner = form.op("Tanh", &[&inner], &[]);
            gated_onnx(form, x, &inner)
        }
        Named::Silu => {
            let gate = form.op("Sigmoid", &[x], &[]);
            form.op("Mul", &[x, &gate], &[])
        }
        Named::HardSilu => form.op("HardSwish", &[x], &[]),
        Named::Mish => {
            let gate = form.op("Softplus", &[x], &[]);
            let gate = form.op("Tanh", &[&gate], &[]);
            form.op("Mul", &[x, &gate], &[])
        }
    }
}

/// Writes `x / 2 (1 + inner)`.
fn gated_onnx(form: &mut Form<'_>, x: &Written, inner: &Written) -> Written {
    let gate = form.op_with("Add", inner, 1.0);
    let gate = form.op_with("Mul", &gate, 0.5);
    form.op("Mul", &[x, &gate], &[])
}

fn bounded_relu_onnx(form: &mut Form<'_>, numbers: FunctionNumbers, x: &Written) -> Written {
    let FunctionNumbers { slope, offset, limit } = numbers;
    let most = (limit >= 0.0).then_some(limit);
    if let (Some(limit), true) = (most, offset == 0.0 && slope == 0.0) {
        let ends = [0.0, limit].map(|end| form.scalar(end));
        return form.op("Clip", &[x, &ends[0], &ends[1]], &[]);
    }
    let above = most.map_or_else(|| x.clone(), |limit| form.op_with("Min", x, limit));
    let below = form.op_with("Sub", x, offset);
    let below = form.op_with("Mul", &below, slope);
    let is_above = form.op_with("Greater", x, offset);
    form.op("Where", &[&is_above, &above, &below], &[])
}

/// Records a function of each element of a view.
pub(super) fn forward(rec: &mut Recorder<'_>, function: Function, x: View, y: View) {
    let (len, grid) = (length_word(y.len), Grid::Elements(vectors_word(y.len)));
    let dispatch = rec.dispatch(&kernel::FORWARD, kernel::Record { len }, [x], [y], grid);
    dispatch.constants.extend(function.constants());
}

/// Records the gradient before a function of the node's output, from what the function's slope follows from.
pub(super) fn backward(rec: &mut Recorder<'_>, function: Function, saved: View, dx: View) {
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

/// Any activation function as a layer; `ReLU`, `LeakyReLU`, `ELU` and `GELU` with settings have layers of their own.
///
/// | tensor | shape |
/// | --- | --- |
/// | input, output | `[batch, ...]`, the same |
///
/// **Across adapters** nothing changes: each element stands alone (softmax: each row).
/// Kept for backward: the output, or the input for `gelu`, `silu`, `hard_silu` and `mish`. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
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

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let order = form.order(0);
        let x = form.input_in(0, order);
        let y = self.activation.onnx(form, x, order);
        form.output(y, order);
        Ok(())
    }
}

pub(super) fn element_forward(rec: &mut Recorder<'_>, function: Function) {
    let (x, y) = (rec.input(0), rec.output());
    forward(rec, function, x, y);
}

pub(super) fn element_backward(rec: &mut Recorder<'_>, function: Function) {
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
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

            fn masking(&self) -> MaskUse {
                MaskUse::Passes
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

            fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
                let function: fn(&Self) -> Function = $function;
                element_onnx(form, function(self));
                Ok(())
            }
        }
    };
}

element_layer! {
    /// Rectified linear unit: `max(x, 0)`, or as far as the settings bend it. Kept for backward: the output.
    Relu {
        /// Largest value; none if it is left out. 6 makes it `relu6`.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_value: Option<f32> = None,
        /// Slope below `threshold`; at least 0.
        negative_slope: f32 = 0.0,
        /// Value up to which `negative_slope * (x - threshold)` takes the place of `x`; at least 0.
        threshold: f32 = 0.0
    }, "ReLU", Self::function_of_settings, |layer| {
        let max_value = layer.max_value.unwrap_or(0.0);
        let settings = [("max_value", max_value), ("negative_slope", layer.negative_slope), ("threshold", layer.threshold)];
        settings.into_iter().try_for_each(|(name, value)| at_least_zero(name, value, "leave it out, or set it to 0 or more"))
    }
}

impl Relu {
    fn function_of_settings(&self) -> Function {
        let Self { max_value, negative_slope: slope, threshold: offset } = *self;
        match max_value {
            None if offset == 0.0 && slope == 0.0 => Function::plain(functions::Activation::Relu),
            None if offset == 0.0 => Function::sloped(functions::Activation::LeakyRelu, slope),
            _ => {
                let numbers =
                    FunctionNumbers { slope, offset, limit: max_value.unwrap_or(FunctionNumbers::NONE.limit) };
                Function { activation: functions::Activation::BoundedRelu, numbers }
            }
        }
    }
}

/// Backward tells from the output on which side of a kink the input was.
fn at_least_zero(name: &str, value: f32, help: &str) -> Result<(), Problem> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Problem::new(format!("needs `{name}` of at least 0, but got {value}"), help))
}

element_layer! {
    /// Leaky rectified linear unit: `x` above 0, `negative_slope * x` below. Kept for backward: the output.
    LeakyRelu {
        /// Slope below 0; at least 0.
        negative_slope: f32 = 0.3
    }, "LeakyReLU", |layer| Function::sloped(functions::Activation::LeakyRelu, layer.negative_slope), |layer| {
        at_least_zero("negative_slope", layer.negative_slope, "0.3 is the default of Keras")
    }
}

element_layer! {
    /// Exponential linear unit: `x` above 0, `alpha (exp(x) - 1)` below. Kept for backward: the output.
    Elu {
        /// Negative of the limit below 0; at least 0.
        alpha: f32 = 1.0
    }, "ELU", |layer| Function::sloped(functions::Activation::Elu, layer.alpha), |layer| {
        at_least_zero("alpha", layer.alpha, "1 is the default of Keras")
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
