//! A product with weights, as several layers record it.

use std::ops::Range;

use super::gradient_sums::{ROWS_HINT, sum_parts};
use super::packed::Weights;
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
        self.forward_part(rec, [x, w], bias, y, &(0..self.units))
    }

    /// [`forward`](Self::forward) of a kernel that may be packed.
    pub(super) fn forward_of(self, rec: &mut Recorder<'_>, x: View, kernel: Weights, bias: Option<View>, y: View) {
        for part in kernel.parts(1) {
            let w = kernel.floats(rec, 1, &part);
            self.forward_part(rec, [x, w], bias, y, &part);
        }
    }

    /// Records some units, from a kernel that has no others.
    fn forward_part<'r>(
        self,
        rec: &'r mut Recorder<'_>,
        [x, w]: [View; 2],
        bias: Option<View>,
        y: View,
        units: &Range<usize>,
    ) -> &'r mut Dispatch {
        let (m, n, k) = self.sizes();
        let params = kernel::Record { y_offset: whole(units.start), y_stride: n, ..product(m, whole(units.len()), k) };
        let of_units =
            |bias: View| View { offset: bias.offset + units.start as u64, len: Length::fixed(units.len()), ..bias };
        with_bias(rec, &kernel::FORWARD, params, [x, w], bias.map(of_units), y, params.grid())
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
        self.backward_part(rec, [dz, w], dx, &(0..self.inputs));
    }

    /// [`backward_input`](Self::backward_input) of a kernel that may be packed.
    pub(super) fn backward_input_of(self, rec: &mut Recorder<'_>, dz: View, kernel: Weights, dx: View) {
        for part in kernel.parts(0) {
            let w = kernel.floats(rec, 0, &part);
            self.backward_part(rec, [dz, w], dx, &part);
        }
    }

    /// Records the gradient of some inputs, from a kernel that has no others.
    fn backward_part(self, rec: &mut Recorder<'_>, [dz, w]: [View; 2], dx: View, inputs: &Range<usize>) {
        let (m, n, k) = self.sizes();
        let params = kernel::Record {
            y_offset: whole(inputs.start),
            y_stride: k,
            ..strided_transposed(product(m, whole(inputs.len()), n), n)
        };
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
