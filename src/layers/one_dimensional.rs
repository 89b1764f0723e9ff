//! Convolution, pooling and copies along time: the layers of pictures, for pictures of one line.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::builders::builders;
use super::conv2d::{ConvRecording, Convolution, check_gaps};
use super::depthwise_conv2d::one;
use super::mask::{mean, mean_backward, mean_onnx};
use super::merge::sum_repeated;
use super::pooling::{GlobalAverage, GlobalMax, Pooling, reduce_onnx};
use super::recurrence::sequence_and_mask;
use super::remap::{copy, crop, crop_onnx, pad, pad_onnx};
use super::up_sampling::resize_onnx;
use super::windows::{ImageWindows, Padding};
use super::{
    Activation, BothWays, Built, Initializer, Layer, MaskUse, Parameter, Problem, as_built, bias, only, to_config, yes,
};
use crate::kernels::remap::Axis;
use crate::names;
use crate::onnx::{Attribute, Form};
use crate::plan::Recorder;
use crate::shape::Shape;

/// Steps and features of a sequence.
fn sequence(inputs: &[Shape]) -> Result<[usize; 2], Problem> {
    match only(inputs)?.axes() {
        &[time, features] => Ok([time, features]),
        _ => Err(Problem::new(
            format!("needs an input [batch, time, features], but got {}", inputs[0]),
            "a sequence of single numbers has one feature: [batch, time, 1]. `Reshape` adds an axis",
        )),
    }
}

/// A sequence as an image of one line, with the steps and features that `build` found.
fn line(shape: &Shape) -> [usize; 3] {
    [1, shape.positions(), shape.last()]
}

/// Windows over a sequence.
fn windows(inputs: &[Shape], size: usize, stride: usize, padding: Padding) -> Result<ImageWindows, Problem> {
    let [time, features] = sequence(inputs)?;
    ImageWindows::new([1, time, features], [1, size], [1, stride], padding).map_err(|problem| match padding {
        Padding::Valid if size > time && size > 0 && stride > 0 => too_short(size, time),
        _ => problem,
    })
}

fn too_short(window: usize, time: usize) -> Problem {
    Problem::new(
        format!("needs a sequence of at least {window} steps, but got {time}"),
        "use padding `same`, a smaller window, or longer sequences",
    )
}

/// Padding at the ends of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Padding1D {
    /// Nothing: windows lie within the sequence.
    #[default]
    Valid,
    /// Zeros on both sides, so that the output is `ceil(time / stride)` long; what is odd goes to the end, as in Keras.
    Same,
    /// Zeros before the sequence alone: no output sees what comes after it.
    Causal,
}

/// Convolution along time: `y = activation(Σ x[window] · kernel + bias)`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, time, channels]` | |
/// | `kernel` | `[kernel_size, channels / groups, filters]` | `kernel_initializer`, Glorot uniform |
/// | `bias` | `[filters]` | 0 |
/// | output | `[batch, out_time, filters]` | |
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows.
/// Kept for backward: input and output (GELU: what stands before it). Golden values: Keras 3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Conv1D {
    /// Channels of the output.
    pub filters: usize,
    /// Steps of the window.
    pub kernel_size: usize,
    /// Steps from one window to the next.
    #[serde(default = "one")]
    pub strides: usize,
    /// Padding at the ends.
    #[serde(default, deserialize_with = "names::read")]
    pub padding: Padding1D,
    /// Steps from one weight of the window to the next: 1 leaves no gaps. Where it is not 1, `strides` is.
    #[serde(default = "one")]
    pub dilation_rate: usize,
    /// Equal parts of filters and channels, each by itself.
    #[serde(default = "one")]
    pub groups: usize,
    /// Activation of the sum.
    #[serde(default, deserialize_with = "names::read")]
    pub activation: Activation,
    /// Whether a bias is added. Switch it off before a batch normalization.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// Initial values of `kernel`.
    #[serde(default, deserialize_with = "names::read")]
    pub kernel_initializer: Initializer,
}

impl Conv1D {
    /// A convolution of `filters` channels, stride 1, `valid`, linear, with bias.
    pub fn new(filters: usize, kernel_size: usize) -> Self {
        Self {
            filters,
            kernel_size,
            strides: 1,
            padding: Padding1D::Valid,
            dilation_rate: 1,
            groups: 1,
            activation: Activation::Linear,
            use_bias: true,
            kernel_initializer: Initializer::default(),
        }
    }

    /// Sets another padding.
    #[must_use]
    pub fn padding(mut self, padding: Padding1D) -> Self {
        self.padding = padding;
        self
    }

    /// Steps from one window to the next.
    #[must_use]
    pub fn strides(mut self, strides: usize) -> Self {
        self.strides = strides;
        self
    }

    builders!(activation, no_bias, kernel_initializer);

    fn convolution(&self, inputs: &[Shape]) -> Result<Convolution, Problem> {
        let (strides, dilation) = ([1, self.strides], [1, self.dilation_rate]);
        check_gaps(strides, dilation)?;
        let [time, channels] = sequence(inputs)?;
        let reach = self.kernel_size.saturating_sub(1).saturating_mul(self.dilation_rate);
        // A causal window is a valid one over a sequence that begins earlier.
        let (before, padding) = match self.padding {
            Padding1D::Causal => (reach, Padding::Valid),
            Padding1D::Same => (0, Padding::Same),
            Padding1D::Valid => (0, Padding::Valid),
        };
        let padded = time.saturating_add(before);
        if padding == Padding::Valid && reach >= padded {
            return Err(too_short(reach.saturating_add(1), time));
        }
        let mut windows =
            ImageWindows::dilated([1, padded, channels], [1, self.kernel_size], dilation, strides, padding)?;
        windows.input = [1, time, channels];
        windows.before[1] += before;
        Ok(Convolution { windows, filters: self.filters, groups: self.groups })
    }

    fn recorded(&self, rec: &Recorder<'_>) -> ConvRecording {
        ConvRecording::new(as_built(self.convolution(&[rec.input_shape(0)])))
    }
}

impl Layer for Conv1D {
    fn kind(&self) -> &'static str {
        "Conv1D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let convolution = self.convolution(inputs)?;
        convolution.check()?;
        let windows = convolution.windows;
        let mut parameters = vec![Parameter {
            name: "kernel",
            shape: vec![self.kernel_size, windows.input[2] / self.groups, self.filters],
            initializer: self.kernel_initializer,
        }];
        parameters.extend(bias(self.use_bias, self.filters));
        Ok(Built { output: Shape::new([windows.out[1], self.filters]), parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).forward(rec, self.activation, self.use_bias);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).backward(rec, self.activation, self.use_bias);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        as_built(self.convolution(std::slice::from_ref(form.input_shape(0)))).onnx(
            form,
            self.activation,
            self.use_bias,
        );
        Ok(())
    }
}

macro_rules! pooling_of_steps {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $pooling:ident) => {
        $(#[$doc])*
        ///
        /// | tensor | shape |
        /// | --- | --- |
        /// | input | `[batch, time, features]` |
        /// | output | `[batch, out_time, features]` |
        ///
        /// **Across adapters** nothing changes. Golden values: Keras 3.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            /// Steps of the window.
            pub pool_size: usize,
            /// Steps from one window to the next; as many as it has if not given.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub strides: Option<usize>,
            /// Padding at the ends.
            #[serde(deserialize_with = "names::read")]
            pub padding: Padding,
        }

        impl Default for $name {
            fn default() -> Self {
                Self { pool_size: 2, strides: None, padding: Padding::Valid }
            }
        }

        impl $name {
            fn windows(&self, inputs: &[Shape]) -> Result<ImageWindows, Problem> {
                windows(inputs, self.pool_size, self.strides.unwrap_or(self.pool_size), self.padding)
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
                let windows = self.windows(inputs)?;
                Ok(Built::plain(Shape::new([windows.out[1], windows.input[2]])))
            }

            fn forward(&self, rec: &mut Recorder<'_>) {
                Pooling::$pooling.forward(rec, &as_built(self.windows(&[rec.input_shape(0)])));
            }

            fn backward(&self, rec: &mut Recorder<'_>) {
                Pooling::$pooling.backward(rec, &as_built(self.windows(&[rec.input_shape(0)])));
            }

            fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
                Pooling::$pooling.onnx(form, &as_built(self.windows(std::slice::from_ref(form.input_shape(0)))));
                Ok(())
            }
        }
    };
}

pooling_of_steps! {
    /// The largest value of each window of steps. Kept for backward: input and output; the first maximum takes the
    /// gradient.
    MaxPooling1D, "MaxPooling1D", Max
}

pooling_of_steps! {
    /// The mean of each window of steps; padding is not counted. Nothing is kept for backward.
    AveragePooling1D, "AveragePooling1D", Average
}

macro_rules! pooling_of_all_steps {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $masking:expr, $sizes:expr, $forward:expr, $backward:expr, $onnx:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            /// Whether the axis of time is kept, with length 1.
            pub keepdims: bool,
        }

        impl Layer for $name {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn config(&self) -> Value {
                to_config(self)
            }

            fn masking(&self) -> MaskUse {
                $masking
            }

            fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
                let sizes: fn(&[Shape]) -> Result<[usize; 2], Problem> = $sizes;
                let [_, features] = sizes(inputs)?;
                Ok(Built::plain(Shape::new(if self.keepdims { vec![1, features] } else { vec![features] })))
            }

            fn forward(&self, rec: &mut Recorder<'_>) {
                let forward: fn(&mut Recorder<'_>) = $forward;
                forward(rec);
            }

            fn backward(&self, rec: &mut Recorder<'_>) {
                let backward: fn(&mut Recorder<'_>) = $backward;
                backward(rec);
            }

            fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
                let onnx: fn(&mut Form<'_>, i64) = $onnx;
                onnx(form, self.keepdims.into());
                Ok(())
            }
        }
    };
}

pooling_of_all_steps! {
    /// The mean over all steps of each feature; with a mask, over the steps that count.
    ///
    /// | tensor | shape |
    /// | --- | --- |
    /// | input | `[batch, time, features]`, and perhaps a mask `[batch, time]` |
    /// | output | `[batch, features]`, or `[batch, 1, features]` |
    ///
    /// Where no step counts it is 0; Keras divides by 0. **Across adapters** nothing changes. Nothing is kept for backward.
    /// Golden values: Keras 3.
    GlobalAveragePooling1D, "GlobalAveragePooling1D", MaskUse::Ends { behind: 1 }, sequence_and_mask,
    |rec| if rec.n_inputs() > 1 { mean(rec) } else { GlobalAverage::forward(rec) },
    |rec| if rec.n_inputs() > 1 { mean_backward(rec) } else { GlobalAverage::backward(rec) },
    |form, keepdims| match form.n_inputs() {
        1 => reduce_onnx(form, "ReduceMean", keepdims),
        _ => mean_onnx(form, Attribute::Int(keepdims)),
    }
}

pooling_of_all_steps! {
    /// The largest value over all steps of each feature.
    ///
    /// | tensor | shape |
    /// | --- | --- |
    /// | input | `[batch, time, features]` |
    /// | output | `[batch, features]`, or `[batch, 1, features]` |
    ///
    /// It takes no mask, as in Keras: steps of padding count, too. **Across adapters** nothing changes. Kept for backward: input,
    /// output, and how many steps have the largest value: they share the gradient. Golden values: Keras 3.
    GlobalMaxPooling1D, "GlobalMaxPooling1D", MaskUse::Drops, sequence, GlobalMax::forward, GlobalMax::backward,
    |form, keepdims| reduce_onnx(form, "ReduceMax", keepdims)
}

/// Reads `[before, after]`, or one number for both.
fn ends<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[usize; 2], D::Error> {
    BothWays::deserialize(deserializer).map(|ends| ends.0)
}

/// Zeros before and after a sequence.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, time, features]` |
/// | output | `[batch, before + time + after, features]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ZeroPadding1D {
    /// `[before, after]`, or one number for both.
    #[serde(deserialize_with = "ends")]
    pub padding: [usize; 2],
}

impl Default for ZeroPadding1D {
    fn default() -> Self {
        Self { padding: [1, 1] }
    }
}

impl Layer for ZeroPadding1D {
    fn kind(&self) -> &'static str {
        "ZeroPadding1D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [time, features] = sequence(inputs)?;
        let padded = self.padding.iter().fold(time, |time, more| time.saturating_add(*more));
        Ok(Built::plain(Shape::new([padded, features])))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, inner) = (rec.input(0), rec.output(), line(&rec.input_shape(0)));
        pad(rec, inner, [[0, 0], self.padding], x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dy, outer) = (rec.output_gradient(), line(&rec.output_shape()));
        if let Some(dx) = rec.input_gradient(0) {
            crop(rec, outer, [[0, 0], self.padding], dy, dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        pad_onnx(form, [[0, 0], self.padding]);
        Ok(())
    }
}

/// A sequence without its ends.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, time, features]` |
/// | output | `[batch, time - before - after, features]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Cropping1D {
    /// `[before, after]`, or one number for both.
    #[serde(deserialize_with = "ends")]
    pub cropping: [usize; 2],
}

impl Default for Cropping1D {
    fn default() -> Self {
        Self { cropping: [1, 1] }
    }
}

impl Layer for Cropping1D {
    fn kind(&self) -> &'static str {
        "Cropping1D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [time, features] = sequence(inputs)?;
        let [before, after] = self.cropping;
        match time.checked_sub(before.saturating_add(after)) {
            Some(left @ 1..) => Ok(Built::plain(Shape::new([left, features]))),
            _ => Err(Problem::new(
                format!("needs more steps than it takes away, {:?}, but got {time}", self.cropping),
                "take away less: `cropping = [before, after]`",
            )),
        }
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, outer) = (rec.input(0), rec.output(), line(&rec.input_shape(0)));
        crop(rec, outer, [[0, 0], self.cropping], x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dy, inner) = (rec.output_gradient(), line(&rec.output_shape()));
        if let Some(dx) = rec.input_gradient(0) {
            pad(rec, inner, [[0, 0], self.cropping], dy, dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        crop_onnx(form, [[0, 0], self.cropping]);
        Ok(())
    }
}

/// Each step of a sequence several times.
///
/// | tensor | shape |
/// | --- | --- |
/// | input | `[batch, time, features]` |
/// | output | `[batch, time * size, features]` |
///
/// **Across adapters** nothing changes. Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct UpSampling1D {
    /// Number of repetitions.
    pub size: usize,
}

impl Default for UpSampling1D {
    fn default() -> Self {
        Self { size: 2 }
    }
}

impl Layer for UpSampling1D {
    fn kind(&self) -> &'static str {
        "UpSampling1D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let [time, features] = sequence(inputs)?;
        if self.size == 0 {
            return Err(Problem::new("needs a factor of at least 1, but got 0", "`size = 2` doubles the steps"));
        }
        Ok(Built::plain(Shape::new([time.saturating_mul(self.size), features])))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, shape) = (rec.input(0), rec.output(), rec.input_shape(0));
        let [_, time, features] = line(&shape);
        let axes = [Axis::full(time, features), Axis::full(self.size, 0), Axis::full(features, 1)];
        copy(rec, &axes, (0, shape.len()), x, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let [_, time, features] = line(&rec.input_shape(0));
        sum_repeated(rec, &[time, self.size, features], &[time, 1, features]);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        resize_onnx(form, "nearest", &[self.size]);
        Ok(())
    }
}
