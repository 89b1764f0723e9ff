//! Transposed convolution over images: what makes them larger with weights to learn.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builders::builders;
use super::conv2d::{Convolution, check_filters, check_gaps, check_phases, filters_onnx};
use super::gradient_sums::sum_columns;
use super::windows::{ImageWindows, Padding, ones};
use super::{
    Activation, Built, Initializer, Layer, Parameter, Problem, as_built, bias, image, optional_pair, pair, to_config,
    yes,
};
use crate::names;
use crate::onnx::{Attribute, Form, Order, Value as Written};
use crate::plan::Recorder;
use crate::shape::Shape;

/// Transposed convolution over images: each pixel adds a window of its own to the output, `strides` apart.
///
/// It maps as the gradient of a [`Conv2D`](super::Conv2D) with respect to its input does. Along an axis of `size`
/// pixels, the output has
///
/// | `padding` | without `output_padding` | with `output_padding` |
/// | --- | --- | --- |
/// | `valid` | `(size - 1) * stride + max(window, stride)` | `(size - 1) * stride + window + output_padding` |
/// | `same` | `size * stride` | `(size - 1) * stride + window % 2 + output_padding` |
///
/// pixels, where `window` is `(kernel_size - 1) * dilation_rate + 1`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, height, width, channels]` | |
/// | `kernel` | `[kernel_height, kernel_width, filters, channels]` | `kernel_initializer`, Glorot uniform |
/// | `bias` | `[filters]` | 0 |
/// | output | `[batch, out_height, out_width, filters]` | |
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows.
/// Kept for backward: input and output (GELU: what stands before it). Source: Zeiler et al. 2010, CVPR; sizes are those of
/// Keras. Golden values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{Conv2DTranspose, Layer}};
/// let built = Conv2DTranspose::new(8, [3, 3]).same().strides([2, 2]).build(&[Shape::new([7, 7, 16])]).unwrap();
/// assert_eq!(built.output.to_string(), "[batch, 14, 14, 8]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Conv2DTranspose {
    /// Channels of the output.
    pub filters: usize,
    /// Height and width of the window.
    #[serde(deserialize_with = "pair")]
    pub kernel_size: [usize; 2],
    /// Pixels of the output from window to window.
    #[serde(default = "ones", deserialize_with = "pair")]
    pub strides: [usize; 2],
    /// Cut at the border: none, or as much that the size is multiplied by the strides.
    #[serde(default, deserialize_with = "names::read")]
    pub padding: Padding,
    /// Pixels more at the end, less than the strides.
    #[serde(default, deserialize_with = "optional_pair", skip_serializing_if = "Option::is_none")]
    pub output_padding: Option<[usize; 2]>,
    /// Pixels from one weight of the window to the next: 1 leaves no gaps. Where one is not 1, all strides are.
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
    pub kernel_initializer: Initializer,
}

impl Conv2DTranspose {
    /// `filters` channels, stride 1, `valid`, linear, with bias.
    pub fn new(filters: usize, kernel_size: [usize; 2]) -> Self {
        Self {
            filters,
            kernel_size,
            strides: ones(),
            padding: Padding::Valid,
            output_padding: None,
            dilation_rate: ones(),
            activation: Activation::Linear,
            use_bias: true,
            kernel_initializer: Initializer::default(),
        }
    }

    builders!(same, strides, dilation_rate, activation, no_bias, kernel_initializer);

    /// Size of the output along an axis, and what is cut off before it.
    fn axis(&self, axis: usize, size: usize) -> Option<[usize; 2]> {
        let stride = self.strides[axis];
        let window = (self.kernel_size[axis] - 1).checked_mul(self.dilation_rate[axis])?.checked_add(1)?;
        let more = self.output_padding.map(|padding| padding[axis]);
        let reach = (size - 1).checked_mul(stride)?;
        if self.padding == Padding::Valid {
            let last = more.map_or(Some(window.max(stride)), |more| window.checked_add(more))?;
            return Some([reach.checked_add(last)?, 0]);
        }
        let last = more.map_or(Some(stride), |more| (window % 2).checked_add(more))?;
        // Zeros around the input, of which Keras puts the odd one first; at most as many as a window reaches.
        let zeros = window.checked_add(last)?.saturating_sub(2);
        Some([reach.checked_add(last)?, window - 1 - zeros.div_ceil(2).min(window - 1)])
    }

    /// The convolution of which this is the transposed one: it maps the output to the input.
    fn convolution(&self, inputs: &[Shape]) -> Result<Convolution, Problem> {
        let [height, width, channels] = image(inputs)?;
        // Sides and sizes of windows, as for any convolution.
        ImageWindows::dilated(
            [height, width, channels],
            self.kernel_size,
            self.dilation_rate,
            self.strides,
            Padding::Same,
        )?;
        check_gaps(self.strides, self.dilation_rate)?;
        check_phases(self.strides, 1)?;
        if let Some(padding) =
            self.output_padding.filter(|padding| (0..2).any(|axis| padding[axis] >= self.strides[axis]))
        {
            return Err(Problem::new(
                format!("needs output padding below its strides {:?}, but got {padding:?}", self.strides),
                "leave `output_padding` out for the size that Keras chooses",
            ));
        }
        let axes = [self.axis(0, height), self.axis(1, width)];
        let [Some([out_h, top]), Some([out_w, left])] = axes else {
            return Err(Problem::new(
                "needs an output that can be counted, but it is too large",
                "take smaller strides",
            ));
        };
        if out_h == 0 || out_w == 0 {
            let problem = format!("needs an output of at least 1 × 1, but it would be {out_h} × {out_w}");
            return Err(Problem::new(problem, "take a larger `output_padding`, or an odd window"));
        }
        let windows = ImageWindows {
            input: [out_h, out_w, self.filters],
            size: self.kernel_size,
            strides: self.strides,
            out: [height, width],
            before: [top, left],
            dilation: self.dilation_rate,
        };
        Ok(Convolution { windows, filters: channels, groups: 1 })
    }

    fn recorded(&self, rec: &Recorder<'_>) -> Convolution {
        as_built(self.convolution(&[rec.input_shape(0)]))
    }
}

impl Layer for Conv2DTranspose {
    fn kind(&self) -> &'static str {
        "Conv2DTranspose"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let convolution = self.convolution(inputs)?;
        check_filters(self.filters)?;
        let [kernel_height, kernel_width] = self.kernel_size;
        let mut parameters = vec![Parameter {
            name: "kernel",
            shape: vec![kernel_height, kernel_width, self.filters, convolution.filters],
            initializer: self.kernel_initializer,
        }];
        parameters.extend(bias(self.use_bias, self.filters));
        Ok(Built { output: Shape::new(convolution.windows.input), parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, w, convolution) = (rec.input(0), rec.parameter("kernel"), self.recorded(rec));
        let bias = self.use_bias.then(|| rec.parameter("bias"));
        self.activation.after(rec, |rec, y| convolution.backward_input(rec, [x, w], bias, y));
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dz, convolution) = (self.activation.gradient_before(rec), self.recorded(rec));
        if self.use_bias {
            sum_columns(rec, dz, rec.output_shape().positions(), self.filters, "bias");
        }
        let x = rec.input(0);
        convolution.backward_weights(rec, [dz, x], "kernel");
        if let Some(dx) = rec.input_gradient(0) {
            let w = rec.parameter("kernel");
            convolution.forward(rec, [dz, w], None, dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let Convolution { windows, .. } = as_built(self.convolution(std::slice::from_ref(form.input_shape(0))));
        let x = form.channels_first(0);
        let w = filters_onnx(form, "kernel");
        let bias = if self.use_bias { form.tensor("bias") } else { Written::NONE };
        // Pixels up to which windows reach, and those of them that are not cut off before: the others are cut off behind, or
        // zeros are added there.
        let reach = |axis: usize| {
            let window = (windows.size[axis] - 1) * windows.dilation[axis] + 1;
            ((windows.out[axis] - 1) * windows.strides[axis] + window, windows.before[axis] + windows.input[axis])
        };
        let reaches = [reach(0), reach(1)];
        let cut = reaches.map(|(reach, end)| reach.saturating_sub(end));
        let added = reaches.map(|(reach, end)| end.saturating_sub(reach));
        let settings = [
            ("kernel_shape", Attribute::sizes(windows.size)),
            ("strides", Attribute::sizes(windows.strides)),
            ("dilations", Attribute::sizes(windows.dilation)),
            ("pads", Attribute::sizes(windows.before.into_iter().chain(cut))),
            ("output_padding", Attribute::sizes(added)),
        ];
        let y = form.op("ConvTranspose", &[&x, &w, &bias], &settings);
        let y = self.activation.onnx(form, y, Order::First);
        form.output(y, Order::First);
        Ok(())
    }
}
