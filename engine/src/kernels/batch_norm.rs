//! Batch normalization over all axes but the last.
//!
//! In training: [`STATISTICS`], [`COMBINE_STATISTICS`], (an exchange of the moments, if they are to be those of the
//! whole batch), [`FORWARD`]; backward: [`BACKWARD_SUMS`], [`BACKWARD_PARAMETERS`], (an exchange of the sums),
//! [`BACKWARD_INPUT`]. At inference: [`INFERENCE`], and [`BACKWARD_INFERENCE`] for layers behind which others train. Source: Ioffe, Szegedy 2015, arXiv:1502.03167.
//!
//! Moments are `[2, channels]`: the mean, then M2, the sum of squared deviations from it.

mod cases;
mod fast;
mod twins;

use super::Kernel;
use super::family::family;

crate::params! {
    /// Values of a channel in this run: rows × height × width.
    pixels: u32,
    /// Channels.
    channels: u32,
    /// Values of a channel that the moments and sums stand for: of this run, or of the whole batch.
    count: u32,
    /// Added to the variance.
    epsilon: f32,
    /// Share of the moving statistics that an update keeps.
    momentum: f32,
    /// Number of slabs.
    splits: u32,
    /// Subtracted from `count` in the divisor of the new moving variance: 1 for the unbiased variance.
    correction: u32,
}

family!("batch_norm", [Grid, Activation]);

/// The family.
pub static KERNELS: &[&Kernel] = &[
    &STATISTICS,
    &COMBINE_STATISTICS,
    &FORWARD,
    &INFERENCE,
    &BACKWARD_SUMS,
    &BACKWARD_PARAMETERS,
    &BACKWARD_INPUT,
    &BACKWARD_INFERENCE,
    &UPDATE,
];

/// Pixels for which [`FORWARD`], [`INFERENCE`], [`BACKWARD_INPUT`] and [`BACKWARD_INFERENCE`] have as many invocations as
/// there are channels: each takes four vectors of four elements.
pub const PIXELS: u32 = 16;

/// `values [pixels, channels]`, which is x → `partials [splits, 2, channels]`: mean and M2 of each slab's pixels.
///
/// Grid: `Elements(splits * channels)`. How many slabs: [`reduce::splits`](super::reduce::splits)`(channels)`.
pub static STATISTICS: Kernel = kernel(
    "statistics",
    [&["values"], &["partials"], &[]],
    (twins::statistics, fast::statistics),
    // M2 of 4096 values near 4096, by blocks of eight: some hundred roundings of 6e-8 that partly cancel.
    2e-5,
    cases::statistics,
);

/// `slab_moments [splits, 2, channels]` → `merged_moments [2, channels]`.
///
/// Sizes of the slabs follow from `pixels` and `splits`; empty slabs add nothing. Grid: `Elements(channels)`.
pub static COMBINE_STATISTICS: Kernel = kernel(
    "combine_statistics",
    [&["slab_moments"], &["merged_moments"], &[]],
    (twins::combine_statistics, twins::combine_statistics),
    // Sums of 128 positive terms.
    1e-5,
    cases::combine_statistics,
);

/// `x`, `moments [2, channels]`, `gamma [channels]`, `beta [channels]` → `y [pixels, channels]`.
///
/// The variance is M2 / `count`. Constants: those of [`Function`](super::activation_functions::Function) (fused), `USE_SCALE`, `USE_CENTER` (1 unless set;
/// with 0, `gamma` or `beta` is not read and may be any buffer).
/// Grid: `Elements(ceil(pixels / PIXELS) * channels)`.
pub static FORWARD: Kernel = kernel(
    "forward",
    [
        &["x", "moments", "gamma", "beta"],
        &["y"],
        &["ACTIVATION", "SLOPE", "OFFSET", "LIMIT", "USE_SCALE", "USE_CENTER"],
    ],
    (twins::forward, fast::forward),
    // inverseSqrt at 2 units, division at 2.5, and the activation.
    1e-5,
    cases::forward,
);

/// `x`, `moving_mean`, `moving_variance`, `inference_gamma`, `inference_beta` (all `[channels]`) → `inference_y`.
///
/// Constants as [`FORWARD`]. Grid: `Elements(ceil(pixels / PIXELS) * channels)`.
pub static INFERENCE: Kernel = kernel(
    "inference",
    [
        &["x", "moving_mean", "moving_variance", "inference_gamma", "inference_beta"],
        &["inference_y"],
        &["ACTIVATION", "SLOPE", "OFFSET", "LIMIT", "USE_SCALE", "USE_CENTER"],
    ],
    (twins::inference, fast::inference),
    // As forward.
    1e-5,
    cases::inference,
);

/// `values`, `slopes` (x and dy), `saved_moments [2, channels]` → `partial_sums [splits, 2, channels]`: Σ dy and Σ dy x̂ of
/// each slab.
///
/// dy is the gradient before the activation. Grid: `Elements(splits * channels)`.
pub static BACKWARD_SUMS: Kernel = kernel(
    "backward_sums",
    [&["values", "slopes", "saved_moments"], &["partial_sums"], &[]],
    (twins::backward_sums, fast::backward_sums),
    // Sums of up to 4096 normal numbers of both signs, by blocks of eight, about 60 in size.
    1e-4,
    cases::backward_sums,
);

/// `slab_sums [splits, 2, channels]` → `sums [2, channels]`, `gamma_gradient [channels]`, `beta_gradient [channels]`.
///
/// `sums` holds Σ dy, then Σ dy x̂; the gradients are the same numbers, for the flat gradient buffer.
/// Grid: `Elements(channels)`.
pub static BACKWARD_PARAMETERS: Kernel = kernel(
    "backward_parameters",
    [&["slab_sums"], &["sums", "gamma_gradient", "beta_gradient"], &[]],
    (twins::backward_parameters, twins::backward_parameters),
    // 128 terms of both signs.
    2e-5,
    cases::backward_parameters,
);

/// `x`, `dy`, `saved_moments`, `saved_gamma [channels]`, `whole_sums [2, channels]` → `d_x [pixels, channels]`.
///
/// `whole_sums` are those over the `count` values of the moments. Constant: `USE_SCALE`.
/// Grid: `Elements(ceil(pixels / PIXELS) * channels)`.
pub static BACKWARD_INPUT: Kernel = kernel(
    "backward_input",
    [&["x", "dy", "saved_moments", "saved_gamma", "whole_sums"], &["d_x"], &["USE_SCALE"]],
    (twins::backward_input, fast::backward_input),
    // As forward, with two more products.
    2e-5,
    cases::backward_input,
);

/// `slope [pixels, channels]`, `fixed_variance [channels]`, `fixed_gamma [channels]` → `slope_x [pixels, channels]`: the
/// gradient of what [`INFERENCE`] computes, with respect to x.
///
/// `slope` is the gradient before the activation. Constant: `USE_SCALE`. Grid: `Elements(ceil(pixels / PIXELS) * channels)`.
pub static BACKWARD_INFERENCE: Kernel = kernel(
    "backward_inference",
    [&["slope", "fixed_variance", "fixed_gamma"], &["slope_x"], &["USE_SCALE"]],
    (twins::backward_inference, fast::backward_inference),
    // inverseSqrt at 2 units, and two products.
    1e-5,
    cases::backward_inference,
);

/// `batch_moments [2, channels]`, `control [4]` → `new_mean [channels]`, `new_variance [channels]`, in place.
///
/// `moving = moving * momentum + new * (1 - momentum)`; nothing if `control[1]` or `count` is 0.
/// Grid: `Elements(channels)`.
pub static UPDATE: Kernel = kernel(
    "update",
    [&["batch_moments", "control"], &["new_mean", "new_variance"], &[]],
    (twins::update, twins::update),
    // Half a dozen roundings.
    2e-6,
    cases::update,
);

#[cfg(test)]
mod tests {
    use super::super::Call;
    use super::*;

    const PARAMS: Params =
        Params { pixels: 7, channels: 2, count: 7, epsilon: 1e-3, momentum: 0.75, splits: 3, correction: 0 };

    fn run(kernel: &Kernel, params: &Params, inputs: &[&[f32]], lens: &[usize]) -> Vec<Vec<f32>> {
        let mut outputs: Vec<Vec<f32>> = lens.iter().map(|len| vec![8.0; *len]).collect();
        let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        (kernel.twin)(&Call { params: &params.words(), constants: &[], inputs }, &mut slices);
        outputs
    }

    fn moments(x: &[f32]) -> Vec<f32> {
        let partials = run(&STATISTICS, &PARAMS, &[x], &[12]);
        run(&COMBINE_STATISTICS, &PARAMS, &[&partials[0]], &[4]).remove(0)
    }

    #[test]
    fn moments_of_a_ladder() {
        // Channel 0 holds 0..7: mean 3, M2 28. Channel 1 holds 1e6: mean 1e6, M2 0.
        let x: Vec<f32> = (0..7u16).flat_map(|pixel| [f32::from(pixel), 1e6]).collect();
        assert_eq!(moments(&x), [3.0, 1e6, 28.0, 0.0]);
    }

    #[test]
    fn no_values_give_no_nan() {
        let params = Params { pixels: 0, count: 0, ..PARAMS };
        let partials = run(&STATISTICS, &params, &[&[]], &[12]).remove(0);
        assert_eq!(partials, [0.0; 12]);
        assert_eq!(run(&COMBINE_STATISTICS, &params, &[&partials], &[4])[0], [0.0; 4]);
        let moved = run(&UPDATE, &params, &[&[0.0; 4], &[1.0, 1.0, 0.0, 0.0]], &[2, 2]);
        assert_eq!(moved, [[8.0; 2], [8.0; 2]]);
    }

    #[test]
    fn update_keeps_its_share() {
        // 8 * 0.75 + 3 * 0.25; the variance is 28 / 7.
        let moved = run(&UPDATE, &PARAMS, &[&[3.0, 0.0, 28.0, 7.0], &[1.0, 1.0, 0.0, 0.0]], &[2, 2]);
        assert_eq!(moved, [[6.75, 6.0], [7.0, 6.25]]);
        // The unbiased variance is 24 / 6.
        let unbiased = Params { correction: 1, ..PARAMS };
        let moved = run(&UPDATE, &unbiased, &[&[3.0, 0.0, 24.0, 6.0], &[1.0, 1.0, 0.0, 0.0]], &[2, 2]);
        assert_eq!(moved, [[6.75, 6.0], [7.0, 6.25]]);
        // A single value has no unbiased variance: its sum of squared deviations counts, which is 0.
        let single = Params { count: 1, ..unbiased };
        let moved = run(&UPDATE, &single, &[&[3.0, 0.0, 0.0, 0.0], &[1.0, 1.0, 0.0, 0.0]], &[2, 2]);
        assert_eq!(moved, [[6.75, 6.0], [6.0, 6.0]]);
        let held = run(&UPDATE, &PARAMS, &[&[3.0, 0.0, 28.0, 7.0], &[1.0, 0.0, 0.0, 0.0]], &[2, 2]);
        assert_eq!(held, [[8.0; 2], [8.0; 2]]);
    }

    #[test]
    fn backward_is_the_difference_quotient_of_forward() {
        let x: Vec<f32> = (0..14u16).map(|i| f32::from(i * i % 11) / 4.0).collect();
        let dy: Vec<f32> = (0..14u16).map(|i| f32::from(i * 5 % 7) / 2.0 - 1.0).collect();
        let (gamma, beta) = ([1.5, -0.5], [0.25, 2.0]);
        let loss = |x: &[f32], gamma: &[f32], beta: &[f32]| {
            let y = run(&FORWARD, &PARAMS, &[x, &moments(x), gamma, beta], &[14]).remove(0);
            y.iter().zip(&dy).map(|(y, dy)| f64::from(y * dy)).sum::<f64>()
        };
        let saved = moments(&x);
        let partials = run(&BACKWARD_SUMS, &PARAMS, &[&x, &dy, &saved], &[12]).remove(0);
        let sums = run(&BACKWARD_PARAMETERS, &PARAMS, &[&partials], &[4, 2, 2]);
        let d_x = run(&BACKWARD_INPUT, &PARAMS, &[&x, &dy, &saved, &gamma, &sums[0]], &[14]).remove(0);
        let h = 1.0 / 64.0;
        let quotient = |values: &[f32], i: usize, loss: &dyn Fn(&[f32]) -> f64| {
            let (mut up, mut down) = (values.to_vec(), values.to_vec());
            (up[i], down[i]) = (up[i] + h, down[i] - h);
            (loss(&up) - loss(&down)) / f64::from(2.0 * h)
        };
        for (i, told) in d_x.iter().enumerate() {
            let measured = quotient(&x, i, &|x| loss(x, &gamma, &beta));
            assert!((measured - f64::from(*told)).abs() < 2e-3, "d_x[{i}]: {measured} {told}");
        }
        for channel in 0..2 {
            let measured = quotient(&gamma, channel, &|gamma| loss(&x, gamma, &beta));
            assert!((measured - f64::from(sums[1][channel])).abs() < 1e-3, "gamma {measured} {:?}", sums[1]);
            let measured = quotient(&beta, channel, &|beta| loss(&x, &gamma, beta));
            assert!((measured - f64::from(sums[2][channel])).abs() < 1e-3, "beta {measured} {:?}", sums[2]);
        }
    }
}
