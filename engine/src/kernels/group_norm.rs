//! Normalization of each row by itself, in groups of channels: layer, group, instance and RMS normalization.
//!
//! An item is `[positions, groups, width]`. Group normalization takes a row for an item; layer normalization takes one
//! position with one group. Backward: [`BACKWARD_SUMS`] and
//! [`batch_norm::BACKWARD_PARAMETERS`](super::batch_norm::BACKWARD_PARAMETERS) for `gamma` and `beta`,
//! [`BACKWARD_INPUT`] for `x`.

mod cases;
mod fast;
mod twins;

use super::Kernel;
use super::family::family;
use super::rounding::index;
use crate::size::{Grid, Length, length_word};

crate::params! {
    /// Items, each of which is normalized by itself.
    items: u32,
    /// Positions of an item, such as height × width.
    positions: u32,
    /// Groups of channels, each with a mean and a variance.
    groups: u32,
    /// Channels of a group.
    width: u32,
    /// Added to the variance.
    epsilon: f32,
    /// Number of slabs of `backward_sums`; not read by the others.
    splits: u32,
}

family!("group_norm", [Grid, Reduce, Activation]);

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD_SUMS, &BACKWARD_INPUT];

/// `x [items, positions, groups, width]`, `gamma`, `beta [groups, width]` → `y`, `statistics [items, groups, 2]`: mean,
/// 1 / √(variance + epsilon).
///
/// Constants: `LANES`, from [`grid`]; those of a fused [`Function`](super::activation_functions::Function); `USE_MEAN`, `USE_SCALE`, `USE_CENTER` (1 unless set; with
/// 0, the mean is 0, and `gamma` or `beta` is not read and may be any buffer). Grid: [`grid`].
pub static FORWARD: Kernel = kernel(
    "forward",
    [
        &["x", "gamma", "beta"],
        &["y", "statistics"],
        &["LANES", "ACTIVATION", "SLOPE", "OFFSET", "LIMIT", "USE_MEAN", "USE_SCALE", "USE_CENTER"],
    ],
    (twins::forward, fast::forward),
    // inverseSqrt at 2 units, division at 2.5, sums of up to 4096 by 64 lanes, and the activation.
    1e-5,
    cases::forward,
);

/// `x`, `dy`, `saved_statistics` → `partial_sums [splits, 2, groups * width]`: Σ dy and Σ dy x̂ of each slab of pixels.
///
/// dy is the gradient before the activation. Grid: `Elements(splits * groups * width)`. How many slabs:
/// [`reduce::splits`](super::reduce::splits)`(groups * width)`.
pub static BACKWARD_SUMS: Kernel = kernel(
    "backward_sums",
    [&["x", "dy", "saved_statistics"], &["partial_sums"], &[]],
    (twins::backward_sums, fast::backward_sums),
    // Sums of up to 4096 normal numbers of both signs, about 60 in size.
    1e-4,
    cases::backward_sums,
);

/// `x`, `dy`, `saved_statistics`, `saved_gamma` → `d_x`.
///
/// Constants: `LANES`, from [`grid`]; `USE_MEAN`, `USE_SCALE`. Grid: [`grid`].
pub static BACKWARD_INPUT: Kernel = kernel(
    "backward_input",
    [&["x", "dy", "saved_statistics", "saved_gamma"], &["d_x"], &["LANES", "USE_MEAN", "USE_SCALE"]],
    (twins::backward_input, fast::backward_input),
    // As forward, with two more sums.
    2e-5,
    cases::backward_input,
);

/// Invocations that share a group of `size` elements.
fn lanes(size: usize) -> u32 {
    match size {
        0..=16 => 1,
        17..=256 => 16,
        _ => 64,
    }
}

/// The grid for `groups` groups a row, over all its items, of `size` elements each, and the constant `LANES`.
pub fn grid(groups: usize, size: usize) -> (Grid, (&'static str, f64)) {
    let lanes = lanes(size);
    let count = length_word(Length::per_row(groups * index(lanes)));
    (Grid::Elements(count), ("LANES", f64::from(lanes)))
}

/// The sizes of a call, as indices.
#[derive(Clone, Copy, Debug)]
struct GroupNormSizes {
    items: usize,
    positions: usize,
    groups: usize,
    width: usize,
    channels: usize,
    splits: usize,
}

impl GroupNormSizes {
    fn of(params: &Params) -> Self {
        let [items, positions, groups, width, splits] =
            [params.items, params.positions, params.groups, params.width, params.splits].map(index);
        Self { items, positions, groups, width, channels: groups * width, splits }
    }

    /// Elements of an item.
    fn item(&self) -> usize {
        self.positions * self.channels
    }

    /// Elements of a group.
    fn group(&self) -> usize {
        self.positions * self.width
    }
}

#[cfg(test)]
mod tests {
    use super::super::Call;
    use super::*;

    const PARAMS: Params = Params { items: 2, positions: 3, groups: 2, width: 2, epsilon: 1e-3, splits: 4 };

    fn run(kernel: &Kernel, params: &Params, rms: bool, inputs: &[&[f32]], lens: &[usize]) -> Vec<Vec<f32>> {
        let mut outputs: Vec<Vec<f32>> = lens.iter().map(|len| vec![8.0; *len]).collect();
        let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let constants: &[(&str, f64)] = if rms { &[("USE_MEAN", 0.0)] } else { &[] };
        (kernel.twin)(&Call { params: &params.words(), constants, inputs }, &mut slices);
        outputs
    }

    #[test]
    fn statistics_of_a_ladder() {
        // One item: group 0 holds 0, 1, 4, 5, 8, 9 (mean 4.5, variance 65.5 / 6), group 1 twice 7, 7, 7.
        let x = [0.0, 1.0, 7.0, 7.0, 4.0, 5.0, 7.0, 7.0, 8.0, 9.0, 7.0, 7.0];
        let params = Params { items: 1, epsilon: 6.0, ..PARAMS };
        let told = run(&FORWARD, &params, false, &[&x, &[1.0; 4], &[0.0; 4]], &[12, 4]);
        assert_eq!(told[1][0], 4.5);
        assert!((told[1][1] - 1.0 / (65.5f32 / 6.0 + 6.0).sqrt()).abs() < 1e-7);
        assert_eq!(told[0][2..4], [0.0, 0.0]);
        // Root mean square of group 0: (0 + 1 + 16 + 25 + 64 + 81) / 6 = 187 / 6.
        let told = run(&FORWARD, &params, true, &[&x, &[1.0; 4], &[0.0; 4]], &[12, 4]);
        assert_eq!(told[1][0], 0.0);
        assert!((told[0][9] - 9.0 / (187.0f32 / 6.0 + 6.0).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn backward_is_the_difference_quotient_of_forward() {
        let x: Vec<f32> = (0..24u16).map(|i| f32::from(i * i % 11) / 4.0).collect();
        let dy: Vec<f32> = (0..24u16).map(|i| f32::from(i * 5 % 7) / 2.0 - 1.0).collect();
        let (gamma, beta) = ([1.5, -0.5, 0.75, 1.0], [0.25, 2.0, -1.0, 0.0]);
        for rms in [false, true] {
            let forward = |x: &[f32], gamma: &[f32]| run(&FORWARD, &PARAMS, rms, &[x, gamma, &beta], &[24, 8]);
            let loss = |x: &[f32], gamma: &[f32]| {
                let y = forward(x, gamma).remove(0);
                y.iter().zip(&dy).map(|(y, dy)| f64::from(y * dy)).sum::<f64>()
            };
            let saved = forward(&x, &gamma).remove(1);
            let d_x = run(&BACKWARD_INPUT, &PARAMS, rms, &[&x, &dy, &saved, &gamma], &[24]).remove(0);
            let sums = run(&BACKWARD_SUMS, &PARAMS, rms, &[&x, &dy, &saved], &[32]).remove(0);
            let h = 1.0 / 64.0;
            let quotient = |values: &[f32], i: usize, loss: &dyn Fn(&[f32]) -> f64| {
                let (mut up, mut down) = (values.to_vec(), values.to_vec());
                (up[i], down[i]) = (up[i] + h, down[i] - h);
                (loss(&up) - loss(&down)) / f64::from(2.0 * h)
            };
            for (i, told) in d_x.iter().enumerate() {
                let measured = quotient(&x, i, &|x| loss(x, &gamma));
                assert!((measured - f64::from(*told)).abs() < 2e-3, "d_x[{i}]: {measured} {told}");
            }
            for channel in 0..4 {
                let measured = quotient(&gamma, channel, &|gamma| loss(&x, gamma));
                let told: f32 = (0..4).map(|split| sums[split * 8 + 4 + channel]).sum();
                assert!((measured - f64::from(told)).abs() < 1e-3, "gamma[{channel}]: {measured} {told}");
                let needed: f32 = dy.iter().skip(channel).step_by(4).sum();
                let told: f32 = (0..4).map(|split| sums[split * 8 + channel]).sum();
                assert!((needed - told).abs() < 1e-5, "beta[{channel}]: {needed} {told}");
            }
        }
    }
}
