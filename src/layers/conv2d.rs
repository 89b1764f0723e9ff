//! Convolution over images.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builders::builders;
use super::dense::with_bias;
use super::depthwise_conv2d::{Depthwise, one};
use super::gradient_sums::{ROWS_HINT, sum_columns, sum_parts};
use super::windows::{ImageWindows, Padding, ones, small};
use super::{Activation, Built, Initializer, Layer, Parameter, Problem, as_built, bias, image, pair, to_config, yes};
use crate::kernels::{conv2d as kernel, dense};
use crate::names;
use crate::onnx::{Attribute, Form, Order, Value as Written};
use crate::plan::{Dispatch, Recorder, View, Word};
use crate::shape::{Shape, elements};

/// Products at most of strides and groups: the input's gradient is computed by phases and groups, which are the z of a
/// grid.
const MOST_PHASES: usize = 65_535;

/// Convolution over images: `y = activation(Σ x[window] · kernel + bias)`.
///
/// With `groups`, filters and channels are divided into as many equal parts, and filters see the channels of their own
/// part.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, height, width, channels]` | |
/// | `kernel` | `[kernel_height, kernel_width, channels / groups, filters]` | `kernel_initializer`, Glorot uniform |
/// | `bias` | `[filters]` | 0 |
/// | output | `[batch, out_height, out_width, filters]` | |
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows.
/// Kept for backward: input and output (GELU: what stands before it). Golden values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{Conv2D, Layer}};
/// let built = Conv2D::new(32, [3, 3]).build(&[Shape::new([28, 28, 1])]).unwrap();
/// assert_eq!(built.output.to_string(), "[batch, 26, 26, 32]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Conv2D {
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
    /// Pixels from one weight of the window to the next: 1 leaves no gaps. Where one is not 1, all strides are.
    #[serde(default = "ones", deserialize_with = "pair")]
    pub dilation_rate: [usize; 2],
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

impl Conv2D {
    /// A convolution of `filters` channels, stride 1, `valid`, linear, with bias.
    pub fn new(filters: usize, kernel_size: [usize; 2]) -> Self {
        Self {
            filters,
            kernel_size,
            strides: ones(),
            padding: Padding::Valid,
            dilation_rate: ones(),
            groups: 1,
            activation: Activation::Linear,
            use_bias: true,
            kernel_initializer: Initializer::default(),
        }
    }

    builders!(same, strides, dilation_rate, activation, no_bias, kernel_initializer);

    /// Divides filters and channels into groups, each by itself.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    fn windows(&self, inputs: &[Shape]) -> Result<ImageWindows, Problem> {
        check_gaps(self.strides, self.dilation_rate)?;
        ImageWindows::dilated(image(inputs)?, self.kernel_size, self.dilation_rate, self.strides, self.padding)
    }

    fn recorded(&self, rec: &Recorder<'_>) -> ConvRecording {
        let windows = as_built(self.windows(&[rec.input_shape(0)]));
        ConvRecording::new(Convolution { windows, filters: self.filters, groups: self.groups })
    }
}

/// The filters of a convolution.
pub(super) fn check_filters(filters: usize) -> Result<(), Problem> {
    if filters > 0 {
        return Ok(());
    }
    Err(Problem::new("needs at least one filter, but got 0", "set `filters`"))
}

/// Checks, as Keras does, that windows don't have both strides and gaps.
pub(super) fn check_gaps(strides: [usize; 2], dilation_rate: [usize; 2]) -> Result<(), Problem> {
    if strides == ones() || dilation_rate == ones() {
        return Ok(());
    }
    let problem =
        format!("needs strides of 1 where it has a dilation rate, but got strides {strides:?}, rate {dilation_rate:?}");
    Err(Problem::new(problem, "take one or the other, as in Keras; `DepthwiseConv2D` can have both"))
}

/// Each phase of the strides, in each group, is a product of its own.
pub(super) fn check_phases(strides: [usize; 2], groups: usize) -> Result<(), Problem> {
    if elements(&[strides[0], strides[1], groups]) <= MOST_PHASES {
        return Ok(());
    }
    let (what, got) = match groups {
        1 => ("strides whose product is", format!("{strides:?}")),
        _ => ("strides and groups whose product is", format!("strides {strides:?} and {groups} groups")),
    };
    let problem = format!("needs {what} at most {MOST_PHASES}, but got {got}");
    Err(Problem::new(problem, "take a smaller picture"))
}

impl Layer for Conv2D {
    fn kind(&self) -> &'static str {
        "Conv2D"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let windows = self.windows(inputs)?;
        Convolution { windows, filters: self.filters, groups: self.groups }.check()?;
        let [kernel_height, kernel_width] = self.kernel_size;
        let mut parameters = vec![Parameter {
            name: "kernel",
            shape: vec![kernel_height, kernel_width, windows.input[2] / self.groups, self.filters],
            initializer: self.kernel_initializer,
        }];
        parameters.extend(bias(self.use_bias, self.filters));
        let output = Shape::new([windows.out[0], windows.out[1], self.filters]);
        Ok(Built { output, parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).forward(rec, self.activation, self.use_bias);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        self.recorded(rec).backward(rec, self.activation, self.use_bias);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let windows = as_built(self.windows(std::slice::from_ref(form.input_shape(0))));
        let convolution = Convolution { windows, filters: self.filters, groups: self.groups };
        convolution.onnx(form, self.activation, self.use_bias);
        Ok(())
    }
}

/// Kernels of a layer: filters over all channels of a group, or over one channel.
pub(super) enum ConvRecording {
    Filters(Convolution),
    Depthwise(Depthwise),
}

impl ConvRecording {
    pub(super) fn new(convolution: Convolution) -> Self {
        let Convolution { windows, filters, groups } = convolution;
        if groups > 1 && groups == windows.input[2] {
            // The same weights in the same order, without products of one channel.
            return Self::Depthwise(Depthwise::of(windows, filters / groups));
        }
        Self::Filters(convolution)
    }

    /// Records the output of a layer with the parameters `kernel` and, if it is used, `bias`.
    pub(super) fn forward(&self, rec: &mut Recorder<'_>, activation: Activation, use_bias: bool) {
        let (x, w) = (rec.input(0), rec.parameter("kernel"));
        let bias = use_bias.then(|| rec.parameter("bias"));
        activation.after(rec, |rec, y| match self {
            Self::Filters(convolution) => convolution.forward(rec, [x, w], bias, y),
            Self::Depthwise(depthwise) => depthwise.forward(rec, [x, w], bias, y),
        });
    }

    /// Records the gradients of that layer.
    pub(super) fn backward(&self, rec: &mut Recorder<'_>, activation: Activation, use_bias: bool) {
        let dz = activation.gradient_before(rec);
        if use_bias {
            let shape = rec.output_shape();
            sum_columns(rec, dz, shape.positions(), shape.last(), "bias");
        }
        let x = rec.input(0);
        match self {
            Self::Filters(convolution) => convolution.backward_weights(rec, [x, dz], "kernel"),
            Self::Depthwise(depthwise) => depthwise.backward_weights(rec, [x, dz], "kernel"),
        }
        if let Some(dx) = rec.input_gradient(0) {
            let w = rec.parameter("kernel");
            match self {
                Self::Filters(convolution) => drop(convolution.backward_input(rec, [dz, w], None, dx)),
                Self::Depthwise(depthwise) => depthwise.backward_input(rec, [dz, w], dx),
            }
        }
    }
}

/// A convolution as several layers record it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convolution {
    pub windows: ImageWindows,
    pub filters: usize,
    pub groups: usize,
}

impl Convolution {
    /// Filters and groups that go with the channels.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let (channels, filters, groups) = (self.windows.input[2], self.filters, self.groups);
        check_filters(filters)?;
        let is_divided = |by: usize| by > 0 && channels.is_multiple_of(by) && filters.is_multiple_of(by);
        if !is_divided(groups) {
            return Err(Problem::new(
                format!(
                    "needs groups that divide its channels and filters, but got {groups} groups, {channels} channels and \
                     {filters} filters"
                ),
                "let `groups` divide both",
            ));
        }
        check_phases(self.windows.strides, groups)
    }

    fn form(&self) -> kernel::ConvForm {
        kernel::ConvForm { groups: small(self.groups), dilation: self.windows.dilation.map(small) }
    }

    fn params(&self, splits: u32) -> kernel::Params {
        let ImageWindows { input, size, strides, out, before, .. } = self.windows;
        kernel::Params {
            rows: 0,
            in_h: small(input[0]),
            in_w: small(input[1]),
            in_c: small(input[2]),
            out_h: small(out[0]),
            out_w: small(out[1]),
            out_c: small(self.filters),
            k_h: small(size[0]),
            k_w: small(size[1]),
            stride_h: small(strides[0]),
            stride_w: small(strides[1]),
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
        let grid = params.forward_grid(self.form(), Word::Rows);
        let dispatch = with_bias(rec, &kernel::FORWARD, params.record(), [x, w], bias, y, grid);
        dispatch.constants.extend(self.form().constants());
        dispatch
    }

    /// Writes a layer with the parameters `kernel`, of 1 or 2 axes before channels and filters, and perhaps `bias`.
    pub(super) fn onnx(&self, form: &mut Form<'_>, activation: Activation, use_bias: bool) {
        let x = form.channels_first(0);
        let w = filters_onnx(form, "kernel");
        let bias = if use_bias { form.tensor("bias") } else { Written::NONE };
        let mut settings = self.windows.onnx(form.input_shape(0).rank() - 1);
        settings.push(("group", Attribute::size(self.groups)));
        let y = form.op("Conv", &[&x, &w, &bias], &settings);
        let y = activation.onnx(form, y, Order::First);
        form.output(y, Order::First);
    }

    /// Records the gradient of a parameter from the input and the gradient before the activation.
    pub(super) fn backward_weights(&self, rec: &mut Recorder<'_>, [x, dz]: [View; 2], parameter: &str) {
        let [height, width] = self.windows.out;
        let taps = elements(&self.windows.size) * self.windows.input[2] / self.groups;
        // The tiles of all groups.
        let columns = match self.groups {
            1 => self.filters,
            groups => elements(&[groups, (self.filters / groups).next_multiple_of(TILE)]),
        };
        let splits = dense::splits(taps, columns, elements(&[ROWS_HINT, height, width]));
        sum_parts(rec, parameter, splits, |rec, splits, partials| {
            let params = self.params(splits);
            let grid = params.backward_weights_grid(self.form(), Word::Rows);
            let dispatch = rec.dispatch(&kernel::BACKWARD_WEIGHTS, params.record(), [x, dz], [partials], grid);
            dispatch.constants.extend(self.form().constants());
        });
    }

    /// Records the gradient of the input, or, with a bias, a transposed convolution.
    pub(super) fn backward_input<'r>(
        &self,
        rec: &'r mut Recorder<'_>,
        [dz, w]: [View; 2],
        bias: Option<View>,
        dx: View,
    ) -> &'r mut Dispatch {
        let params = self.params(1);
        let grid = params.backward_input_grid(self.form(), Word::Rows);
        let inputs = [dz, w, bias.unwrap_or(w)];
        let dispatch = rec.dispatch(&kernel::BACKWARD_INPUT, params.record(), inputs, [dx], grid);
        if bias.is_some() {
            dispatch.constants.push(("USE_BIAS", 1.0));
        }
        dispatch.constants.extend(self.form().constants());
        dispatch
    }
}

/// Side of a tile of a product: a group has one at least.
const TILE: usize = 64;

/// Writes weights `[..., channels, filters]` as `[filters, channels, ...]`.
pub(super) fn filters_onnx(form: &mut Form<'_>, name: &str) -> Written {
    let axes = form.dims(name).to_vec();
    let n = axes.len();
    let order: Vec<usize> = [n - 1, n - 2].into_iter().chain(0..n - 2).collect();
    let dims: Vec<usize> = order.iter().map(|axis| axes[*axis]).collect();
    form.transposed(name, &axes, &order, &dims)
}
