//! The exponential function that compilers turn into vectors: no calls, no branches.

/// Adding it rounds a small number to a whole one, which the lowest bits then hold: 1.5 · 2^23.
const ROUNDING: f32 = 12_582_912.0;

/// `exp(x)` within 2e-7 of itself, for x up to 88; 0 below -87.
#[inline(always)]
#[allow(clippy::excessive_precision, reason = "the coefficients as their source has them: Cephes' expf")]
pub(super) fn exp(x: f32) -> f32 {
    let bounded = x.clamp(-87.0, 88.0);
    let shifted = bounded * std::f32::consts::LOG2_E + ROUNDING;
    let power = shifted - ROUNDING;
    // ln 2 in two parts, the first of which has so few bits that its product is exact.
    let rest = bounded - power * 0.693_359_375 - power * -2.121_944_4e-4;
    let mut sum = 1.987_569_15e-4;
    for coefficient in [1.398_199_95e-3, 8.333_451_9e-3, 4.166_579_6e-2, 1.666_666_55e-1, 5.000_000_1e-1] {
        sum = sum * rest + coefficient;
    }
    let value = sum * rest * rest + rest + 1.0;
    let factor = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    let mask = u32::from(x >= -87.0).wrapping_neg();
    f32::from_bits((value * factor).to_bits() & mask)
}

/// Numbers that are folded side by side.
const LANES: usize = 16;

/// The largest of the values and `least`.
pub(super) fn largest(values: &[f32], least: f32) -> f32 {
    let mut lanes = [least; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane = if *x > *lane { *x } else { *lane });
    }
    lanes.iter().chain(rest).fold(least, |largest, x| if *x > largest { *x } else { largest })
}

/// `exp(x - shift)` in place; gives their sum.
pub(super) fn exponentiate(values: &mut [f32], shift: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let mut chunks = values.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *x = exp(*x - shift);
            *lane += *x;
        }
    }
    let mut sum: f32 = lanes.iter().sum();
    for x in chunks.into_remainder() {
        *x = exp(*x - shift);
        sum += *x;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_within_a_few_roundings() {
        for x in (-86_999_i32..88_000).map(|x| x as f32 * 1e-3) {
            let expected = f64::from(x).exp();
            assert!((f64::from(exp(x)) / expected - 1.0).abs() < 2e-7, "exp({x}) is not {}", exp(x));
        }
        assert_eq!([exp(-87.1), exp(-3e38), exp(0.0)], [0.0, 0.0, 1.0]);
    }

    #[test]
    fn sums_and_largest_are_those_of_all() {
        for len in [1, 15, 16, 17, 40] {
            let mut values: Vec<f32> = (0..len).map(|x| ((x * 7) % len) as f32 * 0.1).collect();
            let last = (len - 1) as f32 * 0.1;
            let expected: f64 = values.iter().map(|x| f64::from(*x - last).exp()).sum();
            assert_eq!(largest(&values, -1.0), values.iter().copied().fold(-1.0, f32::max));
            assert_eq!(largest(&values, 99.0), 99.0);
            assert!((f64::from(exponentiate(&mut values, last)) / expected - 1.0).abs() < 1e-6);
        }
    }
}
