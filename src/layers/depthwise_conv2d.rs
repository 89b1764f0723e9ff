//! Convolution over images in which each channel has windows of its own.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builders::builders;
use super::dense::with_bias;
use super::gradient_sums::{ROWS_HINT, sum_columns, sum_parts};
use super::windows::{ImageWindows, Padding, ones, small};
use super::{Activation, Built, Initializer, Layer, Parameter, Problem, as_built, bias, image, pair, to_config, yes};
use crate::kernels::{depthwise_conv2d as kernel, depthwise_conv2d_fours as fours};
use crate::names;
use crate::onnx::{Attribute, Form, Order, Value as Written};
use crate::plan::{Dispatch, Recorder, View, Word};
use crate::shape::{Shape, elements};

/// Convolution over images in which each channel has windows of its own.
///
/// `y[channel * depth_multiplier + m] = activation(Σ x[window, channel] · kernel[.., channel, m] + bias)`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, height, width, channels]` | |
/// | `kernel` | `[kernel_height, kernel_width, channels, depth_multiplier]` | `depthwise_initializer`, Glorot uniform |
/// | `bias` | `[channels * depth_multiplier]` | 0 |
/// | output | `[batch, out_height, out_width, channels * depth_multiplier]` | |
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows.
/// Kept for backward: input and output (GELU: what stands before it). Source: Howard et al. 2017, arXiv:1704.04861. Golden
/// values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{DepthwiseConv2D, Layer}};
/// let built = DepthwiseConv2D::new([3, 3]).build(&[Shape::new([28, 28, 16])]).unwrap();
/// assert_eq!(built.parameters[0].shape, [3, 3, 16, 1]);
/// assert_eq!(built.output.to_string(), "[batch, 26, 26, 16]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DepthwiseConv2D {
    /// Height and width of the window.
    #[serde(deserialize_with = "pair")]
    pub kernel_size: [usize; 2],
    /// Steps of the window.
    #[serde(default = "ones", deserialize_with = "pair")]
    pub strides: [usize; 2],
    /// Padding at the border.
    #[serde(default, deserialize_with = "names::read")]
    pub padding: Padding,
    /// Channels of the output for each of the input.
    #[serde(default = "one")]
    pub depth_multiplier: usize,
    /// Pixels from one weight of the window to the next: 1 leaves no gaps.
    #[serde(default = "ones", deserialize_with = "pair")]
    pub dilation_rate: [usize; 2],
    /// Activation of the sum.
    #[serde(default, deserialize_with = "names::read")]
    pub activation: Activation,
    /// Whether a bias is added. Switch it off before a batch normalization.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// Initial values of `kernel`.
    #[serde(default, deserialize_with = "names::read")]
    pub depthwise_initializer: Initializer,
}

/// Default of a multiplier.
pub(super) fn one() -> usize {
    1
}

impl DepthwiseConv2D {
    /// A channel of the output for each of the input, stride 1, `valid`, linear, with bias.
    pub fn new(kernel_size: [usize; 2]) -> Self {
        Self {
            kernel_size,
            strides: ones(),
            padding: Padding::Valid,
            depth_multiplier: 1,
            dilation_rate: ones(),
            activation: Activation::Linear,
            use_bias: true,
            depthwise_initializer: Initializer::default(),
        }
    }

    builders!(same, strides, dilation_rate, activation, no_bias);

    fn depthwise(&self, inputs: &[Shape]) -> Result<Depthwise, Problem> {
        let image = image(inputs)?;
        let windows = ImageWindows::dilated(image, self.kernel_size, self.dilation_rate, self.strides, self.padding)?;
        Depthwise::new(windows, self.depth_multiplier)
    }

    fn recorded(&self, rec: &Recorder<'_>) -> Depthwise {
        as_built(self.depthwise(&[rec.input_shape(0)]))
    }
}

impl Layer for DepthwiseConv2D {
    fn kind(&self) -> &'static str {
        "DepthwiseConv2D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let depthwise = self.depthwise(inputs)?;
        let shape = depthwise.kernel_shape();
        let mut parameters = vec![Parameter { name: "kernel", shape, initializer: self.depthwise_initializer }];
        parameters.extend(bias(self.use_bias, depthwise.channels()));
        Ok(Built { output: depthwise.output(), parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, w, depthwise) = (rec.input(0), rec.parameter("kernel"), self.recorded(rec));
        let bias = self.use_bias.then(|| rec.parameter("bias"));
        self.activation.after(rec, |rec, y| depthwise.forward(rec, [x, w], bias, y));
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dz, depthwise) = (self.activation.gradient_before(rec), self.recorded(rec));
        if self.use_bias {
            sum_columns(rec, dz, depthwise.pixels(), depthwise.channels(), "bias");
        }
        let x = rec.input(0);
        depthwise.backward_weights(rec, [x, dz], "kernel");
        if let Some(dx) = rec.input_gradient(0) {
            let w = rec.parameter("kernel");
            depthwise.backward_input(rec, [dz, w], dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let depthwise = as_built(self.depthwise(std::slice::from_ref(form.input_shape(0))));
        let x = form.channels_first(0);
        let bias = if self.use_bias { form.tensor("bias") } else { Written::NONE };
        let y = depthwise.onnx(form, &x, "kernel", &bias);
        let y = self.activation.onnx(form, y, Order::First);
        form.output(y, Order::First);
        Ok(())
    }
}

/// A depthwise convolution as several layers record it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depthwise {
    windows: ImageWindows,
    multiplier: usize,
}

impl Depthwise {
    pub(super) fn new(windows: ImageWindows, multiplier: usize) -> Result<Self, Problem> {
        if multiplier == 0 {
            return Err(Problem::new("needs a depth multiplier of at least 1, but got 0", "Keras' default is 1"));
        }
        Ok(Self::of(windows, multiplier))
    }

    /// The convolution of a multiplier that was checked.
    pub(super) fn of(windows: ImageWindows, multiplier: usize) -> Self {
        Self { windows, multiplier }
    }

    /// `[kernel_height, kernel_width, channels, multiplier]`.
    pub(super) fn kernel_shape(&self) -> Vec<usize> {
        vec![self.windows.size[0], self.windows.size[1], self.windows.input[2], self.multiplier]
    }

    pub(super) fn output(&self) -> Shape {
        Shape::new([self.windows.out[0], self.windows.out[1], self.channels()])
    }

    /// Channels of the output.
    pub(super) fn channels(&self) -> usize {
        elements(&[self.windows.input[2], self.multiplier])
    }

    /// Pixels of an image of the output.
    pub(super) fn pixels(&self) -> usize {
        self.windows.out[0] * self.windows.out[1]
    }

    fn params(&self, splits: u32) -> kernel::Params {
        let ImageWindows { input, size, strides, out, before, dilation } = self.windows;
        kernel::Params {
            rows: 0,
            in_h: small(input[0]),
            in_w: small(input[1]),
            channels: small(input[2]),
            multiplier: small(self.multiplier),
            out_h: small(out[0]),
            out_w: small(out[1]),
            k_h: small(size[0]),
            k_w: small(size[1]),
            stride_h: small(strides[0]),
            stride_w: small(strides[1]),
            dilation_h: small(dilation[0]),
            dilation_w: small(dilation[1]),
            pad_top: small(before[0]),
            pad_left: small(before[1]),
            splits,
        }
    }

    pub(super) fn forward<'r>(
        &self,
        rec: &'r mut Recorder<'_>,
        [x, w]: [View; 2],
        bias: Option<View>,
        y: View,
    ) -> &'r mut Dispatch {
        let params = self.params(1);
        let Some(sizes) = params.in_fours() else {
            let grid = params.forward_grid(Word::Rows);
            return with_bias(rec, &kernel::FORWARD, params.record(), [x, w], bias, y, grid);
        };
        let grid = sizes.forward_grid(Word::Rows);
        let dispatch = with_bias(rec, &fours::FORWARD, params.record(), [x, w], bias, y, grid);
        dispatch.constants.extend(params.of_fours());
        dispatch
    }

    /// Records the gradient of a parameter from the input and the gradient before the activation.
    pub(super) fn backward_weights(&self, rec: &mut Recorder<'_>, [x, dz]: [View; 2], parameter: &str) {
        let lines = elements(&[ROWS_HINT, self.windows.out[0]]);
        let splits = kernel::splits(self.windows.size, self.channels(), lines);
        sum_parts(rec, parameter, splits, |rec, splits, partials| {
            let params = self.params(splits);
            let (kernel, grid, constants) = match params.in_fours() {
                Some(sizes) => (&fours::BACKWARD_WEIGHTS, sizes.backward_weights_grid(), &params.of_fours()[..]),
                None => (&kernel::BACKWARD_WEIGHTS, params.backward_weights_grid(), &[][..]),
            };
            let dispatch = rec.dispatch(kernel, params.record(), [x, dz], [partials], grid);
            dispatch.constants.push(("ACROSS", f64::from(params.across())));
            dispatch.constants.extend(constants);
        });
    }

    pub(super) fn backward_input(&self, rec: &mut Recorder<'_>, [dz, w]: [View; 2], dx: View) {
        let params = self.params(1);
        let Some(sizes) = params.in_fours() else {
            let grid = params.backward_input_grid(Word::Rows);
            rec.dispatch(&kernel::BACKWARD_INPUT, params.record(), [dz, w], [dx], grid);
            return;
        };
        let grid = sizes.backward_input_grid(Word::Rows);
        let dispatch = rec.dispatch(&fours::BACKWARD_INPUT, params.record(), [dz, w], [dx], grid);
        dispatch.constants.extend(params.of_fours());
    }

    /// Writes it behind a value, channels first. Filters of a channel stand side by side, as in ONNX.
    pub(super) fn onnx(&self, form: &mut Form<'_>, x: &Written, kernel: &str, bias: &Written) -> Written {
        let (axes, [height, width]) = (self.kernel_shape(), self.windows.size);
        let w = form.transposed(kernel, &axes, &[2, 3, 0, 1], &[self.channels(), 1, height, width]);
        let mut settings = self.windows.onnx(2);
        settings.push(("group", Attribute::size(self.windows.input[2])));
        form.op("Conv", &[x, &w, bias], &settings)
    }
}
