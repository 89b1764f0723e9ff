//! A product with weights, as several layers record it.

use super::gradient_sums::{ROWS_HINT, sum_parts};
use crate::kernels::{Kernel, dense as kernel, whole};
use crate::onnx::{Form, Value as Written};
use crate::plan::{Dispatch, Grid, Length, Recorder, View, Word, length_word};
use crate::shape::elements;

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
