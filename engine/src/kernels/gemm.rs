//! Products of two matrices on one thread, by the library `gemm`, which has code for AVX2, AVX-512 and Neon.
//!
//! Sums of more than 512 terms are cut, by the sizes of the processor's caches.

#[cfg(not(target_arch = "wasm32"))]
use ndarray::{ArrayView2, ArrayViewMut2};

// In the page the CPU is one adapter of several, and bytes count: `ndarray` brings a product with it.
#[cfg(target_arch = "wasm32")]
pub(super) use ndarray::linalg::general_mat_mul;

/// `c = alpha a b + beta c`; what `c` held is not read if `beta` is 0.
///
/// # Panics
/// If the shapes don't fit.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn general_mat_mul(
    alpha: f32,
    a: &ArrayView2<'_, f32>,
    b: &ArrayView2<'_, f32>,
    beta: f32,
    c: &mut ArrayViewMut2<'_, f32>,
) {
    let (m, n, k) = (a.nrows(), b.ncols(), a.ncols());
    assert_eq!((b.nrows(), c.dim()), (k, (m, n)), "a product needs matrices that fit");
    let ([a_row, a_column], [b_row, b_column]) = (strides(a.strides()), strides(b.strides()));
    let [c_row, c_column] = strides(c.strides());
    let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    let product = gemm_f32::gemm::f32::get_gemm_fn();
    // The library expects columns without gaps, but rows have none here: it multiplies the transposed matrices.
    // SAFETY: three views hold all places that their shapes and strides name, and `c` overlaps neither of the others.
    #[allow(unsafe_code, reason = "the library takes pointers; the views above have checked all places")]
    unsafe {
        product(
            n,
            m,
            k,
            c,
            c_row,
            c_column,
            beta != 0.0,
            b,
            b_row,
            b_column,
            a,
            a_row,
            a_column,
            beta,
            alpha,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn strides(all: &[isize]) -> [isize; 2] {
    [all[0], all[1]]
}
