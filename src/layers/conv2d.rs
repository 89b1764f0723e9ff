//! Convolution over images.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gradient_sums::{ROWS_HINT, sum_columns, sum_parts};
use super::windows::{Padding, Windows};
use super::{Activation, Built, Initializer, Layer, Parameter, Problem, image, pair, to_config, yes};
use crate::kernels::{conv2d as kernel, dense};
use crate::names;
use crate::plan::{Recorder, Word};
use crate::shape::{Shape, elements};

/// Strides' product at most: the input's gradient is computed by phases, which are the z of a grid.
const MOST_PHASES: usize = 65_535;

/// Convolution over images: `y = activation(Σ x[window] · kernel + bias)`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, height, width, channels]` | |
/// | `kernel` | `[kernel_height, kernel_width, channels, filters]` | `kernel_initializer`, Glorot uniform |
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
    /// What stands beyond the border.
    #[serde(default, deserialize_with = "names::read")]
    pub padding: Padding,
    /// What is applied to the sum.
    #[serde(default, deserialize_with = "names::read")]
    pub activation: Activation,
    /// Add a bias? Switch it off before a batch normalization.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// Initial values of `kernel`.
    #[serde(default, deserialize_with = "names::read")]
    pub kernel_initializer: Initializer,
}

fn ones() -> [usize; 2] {
    [1, 1]
}

impl Conv2D {
    /// A convolution of `filters` channels, stride 1, `valid`, linear, with bias.
    pub fn new(filters: usize, kernel_size: [usize; 2]) -> Self {
        Self {
            filters,
            kernel_size,
            strides: ones(),
            padding: Padding::Valid,
            activation: Activation::Linear,
            use_bias: true,
            kernel_initializer: Initializer::default(),
        }
    }

    /// The same with `same` padding.
    #[must_use]
    pub fn same(mut self) -> Self {
        self.padding = Padding::Same;
        self
    }

    /// The same with other strides.
    #[must_use]
    pub fn strides(mut self, strides: [usize; 2]) -> Self {
        self.strides = strides;
        self
    }

    /// The same with an activation.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// The same without bias.
    #[must_use]
    pub fn no_bias(mut self) -> Self {
        self.use_bias = false;
        self
    }

    fn windows(&self, inputs: &[Shape]) -> Result<Windows, Problem> {
        Windows::new(image(inputs)?, self.kernel_size, self.strides, self.padding)
    }

    fn recorded_windows(&self, rec: &Recorder<'_>) -> Windows {
        // The same call succeeded in `build`.
        self.windows(&[rec.input_shape(0)]).unwrap_or_else(|problem| unreachable!("{}", problem.problem))
    }

    fn params(&self, windows: &Windows, splits: u32) -> kernel::Params {
        kernel::Params {
            rows: 0,
            in_h: small(windows.input[0]),
            in_w: small(windows.input[1]),
            in_c: small(windows.input[2]),
            out_h: small(windows.out[0]),
            out_w: small(windows.out[1]),
            out_c: small(self.filters),
            k_h: small(self.kernel_size[0]),
            k_w: small(self.kernel_size[1]),
            stride_h: small(self.strides[0]),
            stride_w: small(self.strides[1]),
            pad_top: small(windows.before[0]),
            pad_left: small(windows.before[1]),
            splits,
        }
    }
}

/// A size of a model, which its build check keeps within 32 bits.
fn small(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
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
        if self.filters == 0 {
            return Err(Problem::new("needs at least one filter, but got 0", "set `filters`"));
        }
        if elements(&self.strides) > MOST_PHASES {
            let problem = format!("needs strides whose product is at most {MOST_PHASES}, but got {:?}", self.strides);
            return Err(Problem::new(problem, "take a smaller picture"));
        }
        let [kernel_height, kernel_width] = self.kernel_size;
        let mut parameters = vec![Parameter {
            name: "kernel",
            shape: vec![kernel_height, kernel_width, windows.input[2], self.filters],
            initializer: self.kernel_initializer,
        }];
        if self.use_bias {
            parameters.push(Parameter { name: "bias", shape: vec![self.filters], initializer: Initializer::Zeros });
        }
        let output = Shape::new([windows.out[0], windows.out[1], self.filters]);
        Ok(Built { output, parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, w) = (rec.input(0), rec.parameter("kernel"));
        let bias = if self.use_bias { rec.parameter("bias") } else { w };
        let windows = self.recorded_windows(rec);
        let (params, use_bias) = (self.params(&windows, 1), self.use_bias);
        let grid = params.forward_grid(Word::Rows);
        self.activation.after(rec, |rec, y| {
            let dispatch = rec.dispatch(&kernel::FORWARD, params.record(), [x, w, bias], [y], grid);
            if !use_bias {
                dispatch.constants.push(("USE_BIAS", 0.0));
            }
            dispatch
        });
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let dz = self.activation.gradient_before(rec);
        let windows = self.recorded_windows(rec);
        if self.use_bias {
            sum_columns(rec, dz, windows.out[0] * windows.out[1], self.filters, "bias");
        }
        let x = rec.input(0);
        let taps = self.kernel_size[0] * self.kernel_size[1] * windows.input[2];
        sum_parts(
            rec,
            "kernel",
            dense::splits(taps, self.filters, elements(&[ROWS_HINT, windows.out[0], windows.out[1]])),
            |rec, splits, partials| {
                let params = self.params(&windows, splits);
                let grid = params.backward_weights_grid(Word::Rows);
                rec.dispatch(&kernel::BACKWARD_WEIGHTS, params.record(), [x, dz], [partials], grid);
            },
        );
        if let Some(dx) = rec.input_gradient(0) {
            let w = rec.parameter("kernel");
            let params = self.params(&windows, 1);
            rec.dispatch(
                &kernel::BACKWARD_INPUT,
                params.record(),
                [dz, w],
                [dx],
                params.backward_input_grid(Word::Rows),
            );
        }
    }
}
