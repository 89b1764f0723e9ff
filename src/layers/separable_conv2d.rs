//! Convolution over images in two steps: over each channel, then over the channels of each pixel.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builders::builders;
use super::conv2d::{check_filters, filters_onnx};
use super::dense::Linear;
use super::depthwise_conv2d::{Depthwise, one};
use super::gradient_sums::sum_columns;
use super::windows::{ImageWindows, Padding, ones};
use super::{Activation, Built, Initializer, Layer, Parameter, Problem, as_built, bias, image, pair, to_config, yes};
use crate::names;
use crate::onnx::{Form, Order, Value as Written};
use crate::plan::{Length, Recorder};
use crate::shape::{Shape, elements};

/// Convolution over images in two steps: windows over each channel, then filters over the channels of each pixel.
///
/// `y = activation((x through depthwise_kernel) · pointwise_kernel + bias)`: a
/// [`DepthwiseConv2D`](super::DepthwiseConv2D) and a 1 × 1 [`Conv2D`](super::Conv2D) with nothing between them.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, height, width, channels]` | |
/// | `depthwise_kernel` | `[kernel_height, kernel_width, channels, depth_multiplier]` | `depthwise_initializer`, Glorot uniform |
/// | `pointwise_kernel` | `[1, 1, channels * depth_multiplier, filters]` | `pointwise_initializer`, Glorot uniform |
/// | `bias` | `[filters]` | 0 |
/// | output | `[batch, out_height, out_width, filters]` | |
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows.
/// Kept for backward: input, what stands between the steps, and output (GELU: what stands before it). Source: Chollet 2017,
/// arXiv:1610.02357. Golden values: Keras 3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SeparableConv2D {
    /// Channels of the output.
    pub filters: usize,
    /// Height and width of the window.
    #[serde(deserialize_with = "pair")]
    pub kernel_size: [usize; 2],
    /// Steps of the window.
    #[serde(default = "ones", deserialize_with = "pair")]
    pub strides: [usize; 2],
    /// Padding at the border.
    #[serde(default, deserialize_with = "names::read")]
    pub padding: Padding,
    /// Pixels from one weight of the window to the next: 1 leaves no gaps.
    #[serde(default = "ones", deserialize_with = "pair")]
    pub dilation_rate: [usize; 2],
    /// Channels between the steps for each of the input.
    #[serde(default = "one")]
    pub depth_multiplier: usize,
    /// Activation of the sum.
    #[serde(default, deserialize_with = "names::read")]
    pub activation: Activation,
    /// Whether a bias is added. Switch it off before a batch normalization.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// Initial values of `depthwise_kernel`.
    #[serde(default, deserialize_with = "names::read")]
    pub depthwise_initializer: Initializer,
    /// Initial values of `pointwise_kernel`.
    #[serde(default, deserialize_with = "names::read")]
    pub pointwise_initializer: Initializer,
}

impl SeparableConv2D {
    /// `filters` channels, stride 1, `valid`, linear, with bias.
    pub fn new(filters: usize, kernel_size: [usize; 2]) -> Self {
        Self {
            filters,
            kernel_size,
            strides: ones(),
            padding: Padding::Valid,
            dilation_rate: ones(),
            depth_multiplier: 1,
            activation: Activation::Linear,
            use_bias: true,
            depthwise_initializer: Initializer::default(),
            pointwise_initializer: Initializer::default(),
        }
    }

    builders!(same, strides, dilation_rate, activation, no_bias);

    fn steps(&self, inputs: &[Shape]) -> Result<(Depthwise, Linear), Problem> {
        let image = image(inputs)?;
        let windows = ImageWindows::dilated(image, self.kernel_size, self.dilation_rate, self.strides, self.padding)?;
        let depthwise = Depthwise::new(windows, self.depth_multiplier)?;
        let (positions, inputs) = (depthwise.pixels(), depthwise.channels());
        Ok((depthwise, Linear { positions, inputs, units: self.filters }))
    }

    fn recorded(&self, rec: &Recorder<'_>) -> (Depthwise, Linear) {
        as_built(self.steps(&[rec.input_shape(0)]))
    }
}

/// Elements of a row between the steps.
fn between(linear: Linear) -> Length {
    Length::per_row(elements(&[linear.positions, linear.inputs]))
}

/// Elements of a row between the steps at most: all of them are counted in 32 bits.
const MOST_BETWEEN: usize = 1 << 28;

impl Layer for SeparableConv2D {
    fn kind(&self) -> &'static str {
        "SeparableConv2D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let (depthwise, linear) = self.steps(inputs)?;
        check_filters(self.filters)?;
        let len = elements(&[linear.positions, linear.inputs]);
        if len > MOST_BETWEEN {
            let problem =
                format!("needs at most {MOST_BETWEEN} elements a row between its steps, but would have {len}");
            return Err(Problem::new(problem, "take a smaller `depth_multiplier`"));
        }
        let initializers = [self.depthwise_initializer, self.pointwise_initializer];
        let shapes = [depthwise.kernel_shape(), vec![1, 1, linear.inputs, self.filters]];
        let names = ["depthwise_kernel", "pointwise_kernel"].into_iter().zip(shapes).zip(initializers);
        let mut parameters: Vec<Parameter> =
            names.map(|((name, shape), initializer)| Parameter { name, shape, initializer }).collect();
        parameters.extend(bias(self.use_bias, self.filters));
        Ok(Built { output: depthwise.output().with_last(self.filters), parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let ((depthwise, linear), x) = (self.recorded(rec), rec.input(0));
        let kernels = ["depthwise_kernel", "pointwise_kernel"].map(|name| rec.parameter(name));
        let bias = self.use_bias.then(|| rec.parameter("bias"));
        let middle = rec.scratch("depthwise", between(linear));
        rec.keep("depthwise", middle);
        depthwise.forward(rec, [x, kernels[0]], None, middle);
        self.activation.after(rec, |rec, y| linear.forward(rec, [middle, kernels[1]], bias, y));
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let ((depthwise, linear), dz) = (self.recorded(rec), self.activation.gradient_before(rec));
        if self.use_bias {
            sum_columns(rec, dz, linear.positions, self.filters, "bias");
        }
        let kernels = ["depthwise_kernel", "pointwise_kernel"].map(|name| rec.parameter(name));
        let (x, middle) = (rec.input(0), rec.kept("depthwise"));
        linear.backward_weights(rec, [middle, dz], "pointwise_kernel");
        let slopes = rec.scratch("depthwise_gradient", between(linear));
        linear.backward_input(rec, [dz, kernels[1]], slopes);
        depthwise.backward_weights(rec, [x, slopes], "depthwise_kernel");
        if let Some(dx) = rec.input_gradient(0) {
            depthwise.backward_input(rec, [slopes, kernels[0]], dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let (depthwise, _) = as_built(self.steps(std::slice::from_ref(form.input_shape(0))));
        let x = form.channels_first(0);
        let middle = depthwise.onnx(form, &x, "depthwise_kernel", &Written::NONE);
        let w = filters_onnx(form, "pointwise_kernel");
        let bias = if self.use_bias { form.tensor("bias") } else { Written::NONE };
        let y = form.op("Conv", &[&middle, &w, &bias], &[]);
        let y = self.activation.onnx(form, y, Order::First);
        form.output(y, Order::First);
        Ok(())
    }
}
