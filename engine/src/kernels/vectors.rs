//! Functions of many numbers that compilers turn into vectors: no calls, no branches; and the widest vectors that a processor has.

/// Compiles a function three times: for any processor of the family, for AVX2 and for AVX-512. A call takes what the processor has.
///
/// None of them fuses a multiplication and an addition, so all give the same bits. Loops must be `for` loops: the closure of a
/// long `for_each` is a function of its own, which is compiled once.
macro_rules! widest {
    (
        $(#[$note:meta])*
        $shown:vis fn $name:ident $(<$($type:ident: $bound:path),+ $(; const $size:ident: usize)?>)?
            ($($given:ident: $of:ty),* $(,)?) $(-> $result:ty)? $body:block
    ) => {
        $(#[$note])*
        $shown fn $name $(<$($type: $bound,)+ $(const $size: usize)?>)? ($($given: $of),*) $(-> $result)? {
            #[inline(always)]
            fn any $(<$($type: $bound,)+ $(const $size: usize)?>)? ($($given: $of),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$($type: $bound,)+ $(const $size: usize)?>)? ($($given: $of),*) $(-> $result)? {
                    any $(::<$($type,)+ $($size)?>)? ($($given),*)
                }

                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512 $(<$($type: $bound,)+ $(const $size: usize)?>)? ($($given: $of),*) $(-> $result)? {
                    any $(::<$($type,)+ $($size)?>)? ($($given),*)
                }

                if $crate::kernels::vectors::has_avx512() {
                    // SAFETY: the processor has the instructions that the function is compiled for.
                    #[allow(unsafe_code, reason = "a call of code for another processor; the line above asks for it")]
                    return unsafe { avx512 $(::<$($type,)+ $($size)?>)? ($($given),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: as above.
                    #[allow(unsafe_code, reason = "a call of code for another processor; the line above asks for it")]
                    return unsafe { avx2 $(::<$($type,)+ $($size)?>)? ($($given),*) };
                }
            }
            any $(::<$($type,)+ $($size)?>)? ($($given),*)
        }
    };
}

pub(super) use widest;

/// Whether the processor has the parts of AVX-512 that [`widest`] is compiled for.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// Adding it rounds a small number to a whole one, which the lowest bits then hold: 1.5 · 2^23.
const ROUNDING: f32 = 12_582_912.0;

/// `exp(x)` within 2e-7 of itself; 0 below -87, infinite where it is too large.
#[inline(always)]
#[allow(clippy::excessive_precision, reason = "the coefficients as their source has them: Cephes' expf")]
pub(super) fn exp(x: f32) -> f32 {
    let bounded = x.clamp(-87.0, 89.0);
    let shifted = bounded * std::f32::consts::LOG2_E + ROUNDING;
    let power = shifted - ROUNDING;
    // ln 2 in two parts, the first of which has so few bits that its product is exact.
    let rest = bounded - power * 0.693_359_375 - power * -2.121_944_4e-4;
    let mut sum = 1.987_569_15e-4;
    for coefficient in [1.398_199_95e-3, 8.333_451_9e-3, 4.166_579_6e-2, 1.666_666_55e-1, 5.000_000_1e-1] {
        sum = sum * rest + coefficient;
    }
    let value = sum * rest * rest + rest + 1.0;
    // 2^128 is no f32: one factor of two stands apart where the power is above 0.
    let above = u32::from(power > 0.0);
    let factor = f32::from_bits((shifted.to_bits().wrapping_sub(above) << 23).wrapping_add(0x3f80_0000));
    let rest = f32::from_bits((above << 23).wrapping_add(0x3f80_0000));
    // A NaN stays one.
    let mask = u32::from(x < -87.0).wrapping_sub(1);
    f32::from_bits((value * factor * rest).to_bits() & mask)
}

/// `tanh(x)` within 5e-7: the rational function of Eigen and XLA, and ±1 where it is that.
#[inline(always)]
#[allow(clippy::excessive_precision, reason = "the coefficients as their source has them")]
pub(super) fn tanh(x: f32) -> f32 {
    let bounded = x.clamp(-7.905_311, 7.905_311);
    let square = bounded * bounded;
    let mut above = -2.760_768_4e-16;
    for coefficient in [2.000_188e-13, -8.604_672e-11, 5.122_297e-8, 1.485_722_4e-5, 6.372_619_3e-4, 4.893_524_6e-3] {
        above = above * square + coefficient;
    }
    let mut below = 1.198_258_4e-6;
    for coefficient in [1.185_347e-4, 2.268_434_6e-3, 4.893_525_2e-3] {
        below = below * square + coefficient;
    }
    if x.abs() >= 7.905_311 { x.signum() } else { bounded * above / below }
}

widest! {
    /// `1 / (1 + exp(-x))` in place, within 3e-7: half of one plus the tangent of half of `x`.
    pub(super) fn sigmoid_all(values: &mut [f32]) {
        for x in values {
            *x = 0.5 + 0.5 * tanh(0.5 * *x);
        }
    }
}

/// Numbers that are folded side by side.
const LANES: usize = 16;

widest! {
    /// The largest of the values and `least`.
    pub(super) fn largest(values: &[f32], least: f32) -> f32 {
        let mut lanes = [least; LANES];
        let chunks = values.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *lane = if *x > *lane { *x } else { *lane };
            }
        }
        lanes.iter().chain(rest).fold(least, |largest, x| if *x > largest { *x } else { largest })
    }
}

widest! {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_within_a_few_roundings() {
        for x in (-86_999_i32..88_722).map(|x| x as f32 * 1e-3) {
            let expected = f64::from(x).exp();
            assert!((f64::from(exp(x)) / expected - 1.0).abs() < 2e-7, "exp({x}) is not {}", exp(x));
        }
        assert_eq!([exp(-87.1), exp(-3e38), exp(0.0)], [0.0, 0.0, 1.0]);
        assert_eq!([exp(88.8), exp(3e38), exp(f32::INFINITY)], [f32::INFINITY; 3]);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tangents_and_sigmoids_are_within_a_few_roundings() {
        let points: Vec<f32> = (-40_000_i32..=40_000).map(|i| i as f32 * 1e-3).collect();
        let mut sigmoids = points.clone();
        sigmoid_all(&mut sigmoids);
        for (x, sigmoid) in points.iter().zip(&sigmoids) {
            let (tangent, x) = (tanh(*x), f64::from(*x));
            assert!((f64::from(tangent) - x.tanh()).abs() < 5e-7, "tanh({x}) is not {tangent}");
            assert!((f64::from(*sigmoid) - 1.0 / (1.0 + (-x).exp())).abs() < 3e-7, "sigmoid({x}) is not {sigmoid}");
        }
        assert_eq!([tanh(f32::INFINITY), tanh(-50.0)], [1.0, -1.0]);
        assert!(tanh(f32::NAN).is_nan());
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

    /// Compares the function that this processor gets with the one for any.
    #[test]
    fn wider_vectors_give_the_same_bits() {
        let points: Vec<f32> = (-900_i32..900).map(|i| i as f32 * 0.1).collect();
        let mut widest = points.clone();
        sigmoid_all(&mut widest);
        let narrow = |x: f32| 0.5 + 0.5 * tanh(0.5 * std::hint::black_box(x));
        assert!(points.iter().zip(&widest).all(|(x, y)| y.to_bits() == narrow(*x).to_bits()));
    }
}
