//! Matrix products on the CPU, shared by the fast versions of dense and convolution.
//!
//! Work is cut by size alone, never by the number of threads: results have the same bits on any machine with the same
//! processor.

use std::cell::RefCell;

use half::f16;
use half::slice::HalfFloatSliceExt;
use ndarray::{ArrayView1, ArrayView2, ArrayViewMut2, Axis, ShapeBuilder};

use crate::runtime::threads;

use super::activation_functions::{Activation, Function};
use super::gemm::general_mat_mul;
use super::{Call, Twin};

/// Multiplications that one task does: some 50 µs, well above what handing it to a thread costs.
pub(super) const TASK: usize = 1 << 22;

/// Tasks are cut to blocks of this many rows or columns, so that packing the other factor pays.
const BLOCK: usize = 192;

/// The constant of a product that rounds both factors to 16-bit floats, to the nearest, before it multiplies them: 1, or 0,
/// which is its default. Sums stay in 32 bits. A plan sets it for the training passes of `precision = "mixed_float16"`, in
/// kernels that list it.
pub const HALF_FACTORS: &str = "HALF_FACTORS";

/// Whether a product with these constants rounds its factors to 16-bit floats.
pub fn is_of_halves(constants: &[(&'static str, f64)]) -> bool {
    constants.iter().any(|(name, value)| *name == HALF_FACTORS && *value != 0.0)
}

/// Values that a thread rounds before another may take over.
const ROUNDED: usize = 1 << 16;

/// Values that are rounded at a time, on the stack.
const HALVES: usize = 1 << 9;

/// Runs `product` with both factors, inputs 0 and 1, as the constant [`HALF_FACTORS`] wants them.
///
/// Rounded copies are kept between calls, so that a training step allocates nothing once it has run.
pub fn with_factors(call: &Call<'_>, outputs: &mut [&mut [f32]], product: Twin) {
    thread_local!(static ROUNDED_FACTORS: RefCell<[Vec<f32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) });
    if !is_of_halves(call.constants) {
        return product(call, outputs);
    }
    // Taken, not borrowed: a thread that waits for others may take up another product meanwhile.
    let mut factors = ROUNDED_FACTORS.take();
    for (rounded, factor) in factors.iter_mut().zip(call.inputs) {
        rounded.resize(factor.len(), 0.0);
        // To round a value takes as long as some multiplications.
        let work = 16 * factor.len();
        for_each_chunk(rounded, ROUNDED, work, |index, rounded| to_halves(&factor[index * ROUNDED..], rounded));
    }
    let rounded = factors.iter().map(Vec::as_slice);
    let inputs: Vec<&[f32]> = rounded.chain(call.inputs.iter().skip(2).copied()).collect();
    product(&Call { inputs: &inputs, ..*call }, outputs);
    ROUNDED_FACTORS.set(factors);
}

/// Runs `fast` unless sums are split, else `twin`: a CPU splits none, and answers to tests alone. The number of parts is the last word of
/// the params.
pub(super) fn unsplit(call: &Call<'_>, outputs: &mut [&mut [f32]], [fast, twin]: [Twin; 2]) {
    if call.params.last().is_some_and(|splits| *splits > 1) { twin(call, outputs) } else { fast(call, outputs) }
}

/// Writes the 16-bit floats that are nearest to the first values, one for each place of `rounded`.
fn to_halves(values: &[f32], rounded: &mut [f32]) {
    let mut halves = [f16::ZERO; HALVES];
    for (values, rounded) in values.chunks(HALVES).zip(rounded.chunks_mut(HALVES)) {
        let halves = &mut halves[..rounded.len()];
        halves.convert_from_f32_slice(&values[..rounded.len()]);
        halves.convert_to_f32_slice(rounded);
    }
}

/// Values of the result before the product is added, and the function applied after it.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// Added to each row; nothing is added without it.
    pub bias: Option<ArrayView1<'a, f32>>,
    /// Applied to each result.
    pub function: Function,
}

impl<'a> Epilogue<'a> {
    /// Neither bias nor activation.
    pub const NONE: Self = Self { bias: None, function: Function::plain(Activation::None) };

    /// From the constants of a call: those of the function, and `USE_BIAS`; `bias` has `n` values.
    pub fn of_call(call: &Call<'a>, bias: &'a [f32], n: usize) -> Self {
        let has_bias = call.constant("USE_BIAS", 1.0) != 0.0;
        Self { bias: has_bias.then(|| ArrayView1::from(&bias[..n])), function: Function::of_call(call) }
    }

    /// That of a gradient, which has a bias only where it is used as a transposed convolution: `USE_BIAS` is 0 unless
    /// it is set.
    pub fn of_transposed(call: &Call<'a>, bias: &'a [f32], n: usize) -> Self {
        let has_bias = call.constant("USE_BIAS", 0.0) != 0.0;
        let epilogue = Self::of_call(call, bias, if has_bias { n } else { 0 });
        if has_bias { epilogue } else { Self { bias: None, ..epilogue } }
    }

    /// That of some columns.
    #[must_use]
    pub fn columns(self, first: usize, len: usize) -> Self {
        Self { bias: self.bias.map(|bias| bias.split_at(Axis(0), first).1.split_at(Axis(0), len).0), ..self }
    }
}

/// Rows of a matrix that lie `stride` elements apart.
///
/// # Panics
/// If the slice ends before the last row does; plans are checked against that.
#[allow(clippy::expect_used, reason = "a plan's views are checked when it is built")]
pub fn matrix(data: &[f32], rows: usize, columns: usize, stride: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((rows, columns).strides((stride, 1)), data).expect("the view holds the matrix")
}

/// [`matrix`], to be written.
///
/// # Panics
/// If the slice ends before the last row does, or rows overlap; plans are checked against that.
#[allow(clippy::expect_used, reason = "a plan's views are checked when it is built")]
pub fn matrix_mut(data: &mut [f32], rows: usize, columns: usize, stride: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((rows, columns).strides((stride, 1)), data).expect("the view holds the matrix")
}

/// `c = epilogue(a b)`, on as many threads as the size is worth.
pub fn multiply(a: ArrayView2<'_, f32>, b: ArrayView2<'_, f32>, c: ArrayViewMut2<'_, f32>, epilogue: Epilogue<'_>) {
    let (m, n) = c.dim();
    if m * n * a.ncols() <= TASK || m.max(n) < 2 * BLOCK {
        return multiply_here(&a, &b, c, epilogue);
    }
    if m >= n {
        let half = (m / 2).next_multiple_of(64);
        let (a0, a1) = a.split_at(Axis(0), half);
        let (c0, c1) = c.split_at(Axis(0), half);
        threads::join(|| multiply(a0, b, c0, epilogue), || multiply(a1, b, c1, epilogue));
    } else {
        let half = (n / 2).next_multiple_of(64);
        let (b0, b1) = b.split_at(Axis(1), half);
        let (c0, c1) = c.split_at(Axis(1), half);
        let (e0, e1) = (epilogue.columns(0, half), epilogue.columns(half, n - half));
        threads::join(|| multiply(a, b0, c0, e0), || multiply(a, b1, c1, e1));
    }
}

/// [`multiply`] on this thread.
pub fn multiply_here(
    a: &ArrayView2<'_, f32>,
    b: &ArrayView2<'_, f32>,
    mut c: ArrayViewMut2<'_, f32>,
    epilogue: Epilogue<'_>,
) {
    let keep = if let Some(bias) = epilogue.bias {
        c.assign(&bias);
        1.0
    } else {
        0.0
    };
    if a.ncols() == 0 {
        c.map_inplace(|value| *value *= keep);
    } else {
        general_mat_mul(1.0, a, b, keep, &mut c);
    }
    if epilogue.function.activation != Activation::None {
        for mut row in c.rows_mut() {
            if let Some(values) = row.as_slice_mut() {
                epilogue.function.activate_all(values);
            }
        }
    }
}

/// `c += a b` on this thread.
pub fn accumulate(a: &ArrayView2<'_, f32>, b: &ArrayView2<'_, f32>, c: &mut ArrayViewMut2<'_, f32>) {
    if a.ncols() > 0 {
        general_mat_mul(1.0, a, b, 1.0, c);
    }
}

/// Runs `each(index, chunk)` over chunks of `data`, on several threads if `work` multiplications are worth it.
pub fn for_each_chunk(data: &mut [f32], chunk: usize, work: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
    if work <= TASK || data.len() <= chunk {
        data.chunks_mut(chunk).enumerate().for_each(|(index, chunk)| each(index, chunk));
    } else {
        threads::chunks(data, chunk, each);
    }
}

/// Gives `each` this thread's scratch memory, `len` values of any content.
///
/// It is kept between calls, so that a training step allocates nothing once it has run. `each` must not use
/// other threads: a thread that waits may take up another task, which would want the same scratch.
pub fn with_scratch<R>(len: usize, each: impl FnOnce(&mut [f32]) -> R) -> R {
    thread_local!(static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) });
    SCRATCH.with(|scratch| {
        let mut scratch = scratch.borrow_mut();
        if scratch.len() < len {
            scratch.resize(len, 0.0);
        }
        each(&mut scratch[..len])
    })
}

/// Splits of a sum of about `k_hint` terms for a result `[m, n]`: a power of two up to 64.
///
/// Enough to fill a large GPU with about 512 workgroups when the result has few tiles, 1 when it has 192 or more,
/// and never so many that a split has under 128 terms: the partial sums have to be written, read and added too, which for
/// a large result costs more than idle units do.
pub fn splits(m: usize, n: usize, k_hint: usize) -> u32 {
    const WORKGROUPS: usize = 512;
    const ENOUGH: usize = 192;
    const TERMS: usize = 128;
    const TILE: usize = 64;
    let tiles = (m.div_ceil(TILE) * n.div_ceil(TILE)).max(1);
    if tiles >= ENOUGH {
        return 1;
    }
    let most = (WORKGROUPS / tiles).min(k_hint / TERMS);
    [64, 32, 16, 8, 4, 2].into_iter().find(|splits| *splits as usize <= most).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_fill_a_gpu_and_no_more() {
        assert_eq!(splits(64, 64, 100_000), 64);
        assert_eq!(splits(512, 512, 100_000), 8);
        assert_eq!(splits(512, 960, 100_000), 4);
        assert_eq!(splits(2304, 256, 100_000), 2);
        assert_eq!(splits(768, 1024, 100_000), 1);
        assert_eq!(splits(4096, 4096, 100_000), 1);
        assert_eq!(splits(64, 64, 600), 4);
        assert_eq!(splits(64, 64, 32), 1);
    }
}
