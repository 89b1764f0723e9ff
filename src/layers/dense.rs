//! Fully connected layer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builders::builders;
use super::gradient_sums::{ROWS_HINT, sum_columns, sum_parts};
use super::{Activation, Built, Initializer, Layer, MaskUse, Parameter, Problem, bias, only, to_config, yes};
use crate::kernels::{Kernel, dense as kernel, whole};
use crate::names;
use crate::onnx::{Form, Order, Value as Written};
use crate::plan::{Dispatch, Grid, Length, Recorder, View, Word, length_word};
use crate::shape::{Shape, elements};

/// Fully connected layer over the last axis: `y = activation(x · kernel + bias)`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, ..., inputs]` | |
/// | `kernel` | `[inputs, units]` | `kernel_initializer`, Glorot uniform |
/// | `bias` | `[units]` | 0 |
/// | output | `[batch, ..., units]` | |
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows.
/// Kept for backward: input and output (GELU: what stands before it). Golden values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{Dense, Layer}};
/// let built = Dense::new(10).build(&[Shape::new([64])]).unwrap();
/// assert_eq!(built.parameters[0].shape, [64, 10]);
/// assert_eq!(built.output.to_string(), "[batch, 10]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Dense {
    /// Features of the output.
    pub units: usize,
    /// Activation of the sum.
    #[serde(default, deserialize_with = "names::read")]
    pub activation: Activation,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// Initial values of `kernel`.
    #[serde(default, deserialize_with = "names::read")]
    pub kernel_initializer: Initializer,
}

impl Dense {
    /// A layer of `units` features, linear, with bias.
    pub fn new(units: usize) -> Self {
        Self { units, activation: Activation::Linear, use_bias: true, kernel_initializer: Initializer::default() }
    }

    builders!(activation, no_bias, kernel_initializer);
}

impl Layer for Dense {
    fn kind(&self) -> &'static str {
        "Dense"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        if input.rank() == 0 || self.units == 0 {
            return Err(Problem::new(
                format!("needs an input with features and at least one unit, but got {input} and {} units", self.units),
                "set `units`, and give each row at least one axis",
            ));
        }
        let mut parameters = vec![Parameter {
            name: "kernel",
            shape: vec![input.last(), self.units],
            initializer: self.kernel_initializer,
        }];
        parameters.extend(bias(self.use_bias, self.units));
        Ok(Built { output: input.with_last(self.units), parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, w, linear) = (rec.input(0), rec.parameter("kernel"), self.recorded(rec));
        let bias = self.use_bias.then(|| rec.parameter("bias"));
        self.activation.after(rec, |rec, y| linear.forward(rec, [x, w], bias, y));
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let (dz, linear) = (self.activation.gradient_before(rec), self.recorded(rec));
        if self.use_bias {
            sum_columns(rec, dz, linear.positions, self.units, "bias");
        }
        let x = rec.input(0);
        linear.backward_weights(rec, [x, dz], "kernel");
        if let Some(dx) = rec.input_gradient(0) {
            let w = rec.parameter("kernel");
            linear.backward_input(rec, [dz, w], dx);
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let (x, rank) = (form.input(0), form.input_shape(0).rank());
        let w = form.tensor("kernel");
        let bias = self.use_bias.then(|| form.tensor("bias"));
        let y = linear_onnx(form, (&x, rank), &w, bias.as_ref());
        let y = self.activation.onnx(form, y, Order::Last);
        form.output(y, Order::Last);
        Ok(())
    }
}

impl Dense {
    fn recorded(&self, rec: &Recorder<'_>) -> Linear {
        let shape = rec.input_shape(0);
        Linear { positions: shape.positions(), inputs: shape.last(), units: self.units }
    }
}

/// A product with weights as several layers record it: `[rows * positions, inputs] · [inputs, units]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    /// Positions of a row.
    pub positions: usize,
    pub inputs: usize,
    pub units: usize,
}

impl Linear {
    /// Rows of the product, units, and inputs.
    fn sizes(self) -> (Word, Word, Word) {
        (length_word(Length::per_row(self.positions)), whole(self.units), whole(self.inputs))
    }

    pub(super) fn forward<'r>(
        self,
        rec: &'r mut Recorder<'_>,
        [x, w]: [View; 2],
        bias: Option<View>,
        y: View,
    ) -> &'r mut Dispatch {
        let (m, n, k) = self.sizes();
        let params = product(m, n, k);
        with_bias(rec, &kernel::FORWARD, params, [x, w], bias, y, params.grid())
    }

    /// Records the gradient of a parameter from the input and the gradient before the activation.
    pub(super) fn backward_weights(self, rec: &mut Recorder<'_>, [x, dz]: [View; 2], parameter: &str) {
        let (m, n, k) = self.sizes();
        let splits = kernel::splits(self.inputs, self.units, elements(&[ROWS_HINT, self.positions]));
        sum_parts(rec, parameter, splits, |rec, splits, partials| {
            let params = kernel::Record { splits: Word::U32(splits), ..strided(product(k, n, m), k, n) };
            let grid = params.split_grid(splits);
            rec.dispatch(&kernel::BACKWARD_WEIGHTS, params, [x, dz], [partials], grid);
        });
    }

    pub(super) fn backward_input(self, rec: &mut Recorder<'_>, [dz, w]: [View; 2], dx: View) {
        let (m, n, k) = self.sizes();
        let params = strided_transposed(product(m, k, n), n);
        rec.dispatch(&kernel::BACKWARD_INPUT, params, [dz, w], [dx], params.grid());
    }
}

/// Writes a product with weights, of a value whose rows have so many axes.
pub(super) fn linear_onnx(
    form: &mut Form<'_>,
    (x, rank): (&Written, usize),
    w: &Written,
    bias: Option<&Written>,
) -> Written {
    if rank == 1 {
        let inputs: Vec<&Written> = [x, w].into_iter().chain(bias).collect();
        return form.op("Gemm", &inputs, &[]);
    }
    let y = form.op("MatMul", &[x, w], &[]);
    bias.map_or_else(|| y.clone(), |bias| form.op("Add", &[&y, bias], &[]))
}

/// Dispatches a kernel of `x`, weights and a bias, which it adds unless there is none.
pub(super) fn with_bias<'r>(
    rec: &'r mut Recorder<'_>,
    kernel: &'static Kernel,
    params: impl Into<Vec<Word>>,
    [x, w]: [View; 2],
    bias: Option<View>,
    y: View,
    grid: Grid,
) -> &'r mut Dispatch {
    let dispatch = rec.dispatch(kernel, params, [x, w, bias.unwrap_or(w)], [y], grid);
    if bias.is_none() {
        dispatch.constants.push(("USE_BIAS", 0.0));
    }
    dispatch
}

/// `[m, k] · [k, n]` without gaps.
fn product(m: Word, n: Word, k: Word) -> kernel::Record {
    let zero = Word::U32(0);
    kernel::Record {
        m,
        n,
        k,
        a_offset: zero,
        a_stride: k,
        b_offset: zero,
        b_stride: n,
        y_offset: zero,
        y_stride: n,
        splits: Word::U32(1),
    }
}

/// Row strides of `xᵀ · dy`: both are stored by rows of the batch.
fn strided(record: kernel::Record, x_cols: Word, dy_cols: Word) -> kernel::Record {
    kernel::Record { a_stride: x_cols, b_stride: dy_cols, ..record }
}

/// Row strides of `dy · wᵀ`: `w` is stored `[inputs, units]`.
fn strided_transposed(record: kernel::Record, units: Word) -> kernel::Record {
    kernel::Record { b_stride: units, ..record }
}
