//! The end of a product whose sums are split: its parts are added, then bias and activation follow, `shaders/split_sum.wgsl`.
//!
//! No layer records it: [`Plan::with_split_sums`](crate::plan::Plan::with_split_sums) does, for GPUs.

use super::activation_functions::{Activation, Function};
use super::cases::{Case, InputFill};
use super::family::family;
use super::rounding::{index, single};
use super::{Call, Kernel};

crate::params! {
    /// Elements of the result.
    len: u32,
    /// Columns of the result.
    cols: u32,
    /// Parts of each sum.
    splits: u32,
    /// First element of the output.
    y_offset: u32,
    /// Elements from row to row of the output.
    y_stride: u32,
}

family!("split_sum", [Activation, Grid]);

/// The kernel of this file.
pub static KERNELS: &[&Kernel] = &[&FINISH];

/// `parts [splits, rows, cols]`, `bias [cols]` → `y [rows, cols]`, `y = act(sum of the parts + bias)`.
///
/// Grid: `Elements(len)`. Constants: those of [`Function`]; `USE_BIAS` 0 leaves `bias` unread.
pub static FINISH: Kernel = kernel(
    "finish",
    [&["parts", "bias"], &["y"], &["ACTIVATION", "SLOPE", "OFFSET", "LIMIT", "USE_BIAS"]],
    // A CPU splits no sums.
    (twin, twin),
    // At most 64 normal numbers.
    1e-5,
    cases,
);

fn twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, cols, splits, y_offset, y_stride } = call.params();
    let [len, cols, offset, stride] = [len, cols, y_offset, y_stride].map(index);
    let (parts, bias, function) = (call.inputs[0], call.inputs[1], Function::of_call(call));
    let use_bias = call.constant("USE_BIAS", 1.0) != 0.0;
    for at in 0..len {
        let sum: f64 = (0..index(splits)).map(|split| f64::from(parts[split * len + at])).sum();
        let bias = if use_bias { f64::from(bias[at % cols]) } else { 0.0 };
        outputs[0][offset + at / cols * stride + at % cols] = single(function.activate(sum + bias));
    }
}

fn cases() -> Vec<Case> {
    let case = |[rows, cols, splits]: [u32; 3], y_stride: u32, function: Function, use_bias: bool| {
        let params = Params { len: rows * cols, cols, splits, y_offset: y_stride - cols, y_stride };
        let label =
            format!("{rows} x {cols} of {splits}, row stride {y_stride}, {:?}, bias {use_bias}", function.activation);
        let case = Case::elements(label, params.words(), rows * cols)
            .input(InputFill::Normal(index(splits * rows * cols)))
            .input(InputFill::Normal(index(cols)))
            .output(index(params.y_offset + (rows - 1) * y_stride + cols))
            .function(function);
        if use_bias { case } else { case.constant("USE_BIAS", 0.0) }
    };
    let plain = Function::plain(Activation::None);
    let sizes = [[1, 1, 2], [3, 65, 4], [65, 63, 2], [33, 257, 3], [5, 64, 64], [64, 128, 7]];
    let of_sizes = sizes.into_iter().flat_map(|size| {
        [case(size, size[1], plain, true), case(size, size[1], plain, false), case(size, size[1] + 9, plain, true)]
    });
    of_sizes.chain(Function::few_examples().map(|function| case([7, 33, 4], 33, function, true))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_added_before_bias_and_activation() {
        let params = Params { len: 4, cols: 2, splits: 2, y_offset: 1, y_stride: 3 };
        let (parts, bias) = ([1.0, -2.0, 3.0, -4.0, 10.0, -20.0, -30.0, 40.0], [0.5, -0.5]);
        let constants = [("ACTIVATION", 1.0)];
        let mut y = [9.0; 6];
        let call = Call { params: &params.words(), constants: &constants, inputs: &[&parts, &bias] };
        twin(&call, &mut [&mut y]);
        assert_eq!(y, [9.0, 11.5, 0.0, 9.0, 0.0, 35.5]);
    }
}
