//! Arithmetic of formulas that are written once, for the f64 of twins and the f32 of fast versions.

use std::convert::identity;
use std::f64::consts::FRAC_2_SQRT_PI;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{rounding, vectors};

/// A floating-point number.
pub trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The nearest number to a constant.
    fn of(value: f64) -> Self;
    /// `e^x`; for f32 within 2e-7 of itself.
    fn exp(self) -> Self;
    /// `e^x - 1`, exact near 0.
    fn exp_m1(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// `ln(1 + x)`, exact near 0.
    fn ln_1p(self) -> Self;
    /// Hyperbolic tangent; for f32 within 5e-7.
    fn tanh(self) -> Self;
    /// The error function: for f64 to its full accuracy, for f32 as the shader computes it.
    fn erf(self) -> Self;
    /// `|x|`.
    fn abs(self) -> Self;
    /// The larger of two numbers; that which is none is left out.
    fn max(self, other: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// A power of a number of at least 0.
    fn powf(self, exponent: Self) -> Self;
    /// Between two bounds; a NaN stays one.
    fn clamp(self, low: f64, high: f64) -> Self;
    /// Itself; for f32 0 in place of a subnormal number, which takes CPUs long.
    fn normal(self) -> Self;
    /// The nearest f32.
    fn single(self) -> f32;
}

macro_rules! real {
    ($float:ident, $exp:path, $tanh:path, $erf:path, $normal:path, $single:path) => {
        impl Real for $float {
            #[allow(clippy::cast_possible_truncation, clippy::cast_lossless, reason = "rounding is what it is for")]
            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }

            #[inline(always)]
            fn exp_m1(self) -> Self {
                Self::exp_m1(self)
            }

            #[inline(always)]
            fn ln(self) -> Self {
                Self::ln(self)
            }

            fn ln_1p(self) -> Self {
                Self::ln_1p(self)
            }

            #[inline(always)]
            fn tanh(self) -> Self {
                $tanh(self)
            }

            #[inline(always)]
            fn erf(self) -> Self {
                $erf(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                Self::abs(self)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Self::max(self, other)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                Self::sqrt(self)
            }

            #[inline(always)]
            fn powf(self, exponent: Self) -> Self {
                Self::powf(self, exponent)
            }

            #[inline(always)]
            fn clamp(self, low: f64, high: f64) -> Self {
                Self::clamp(self, Self::of(low), Self::of(high))
            }

            #[inline(always)]
            fn normal(self) -> Self {
                $normal(self)
            }

            #[inline(always)]
            fn single(self) -> f32 {
                $single(self)
            }
        }
    };
}

real!(f64, f64::exp, f64::tanh, erf, identity, rounding::single);
real!(f32, vectors::exp, vectors::tanh, erf_f32, rounding::normal, identity);

/// The error function, to about 1e-15.
///
/// Below 3 the series `erf x = 2/√π exp(-x²) Σ 2ⁿ x²ⁿ⁺¹ / (1·3·…·(2n+1))`, whose terms are all positive; above,
/// Lentz's continued fraction of erfc. Source: Abramowitz, Stegun 1964, 7.1.6 and 7.1.14.
pub fn erf(x: f64) -> f64 {
    let magnitude = x.abs();
    let value = if magnitude < 3.0 { erf_series(magnitude) } else { 1.0 - erfc_fraction(magnitude) };
    value.copysign(x)
}

fn erf_series(x: f64) -> f64 {
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term > sum * 1e-17 {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

fn erfc_fraction(x: f64) -> f64 {
    // 1/(x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …)))), from the far end; 60 levels are enough from 3 on.
    let tail = (1..=60).rev().fold(x, |below, level| x + f64::from(level) / 2.0 / below);
    (-x * x).exp() * 0.5 * FRAC_2_SQRT_PI / tail
}

/// The shader's `erf`, within 4e-7: an odd rational function on [-4, 4], from Eigen and XLA; ±1 outside.
#[inline(always)]
pub fn erf_f32(x: f32) -> f32 {
    const P: [f32; 7] =
        [-2.726_142_3e-10, 2.770_681_4e-8, -2.101_024e-6, -5.692_506_4e-5, -7.349_906e-4, -2.954_6e-3, -1.609_603_3e-2];
    const Q: [f32; 5] = [-1.456_607_2e-5, -2.133_740_5e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2];
    let x = x.clamp(-4.0, 4.0);
    let polynomial = |list: &[f32]| list.iter().fold(0.0f32, |sum, term| sum * (x * x) + term);
    if x.abs() >= 4.0 { x.signum() } else { x * polynomial(&P) / polynomial(&Q) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of erf from Abramowitz, Stegun 1964, table 7.1, and of erfc(4) from table 7.3.
    #[test]
    fn erf_has_the_tabulated_values() {
        for (x, expected) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (1.5, 0.966_105_146_5),
            (2.0, 0.995_322_265_0),
            (2.9, 0.999_958_902_1),
            (3.1, 0.999_988_351_3),
            (4.0, 0.999_999_984_58),
        ] {
            assert!((erf(x) - expected).abs() < 1e-10, "erf({x}) = {}", erf(x));
            assert!((erf(-x) + expected).abs() < 1e-10);
        }
        assert!((erf_series(3.0) - (1.0 - erfc_fraction(3.0))).abs() < 1e-14);
        for i in -6000i16..6000 {
            let x = f32::from(i) * 1e-3;
            assert!((f64::from(erf_f32(x)) - erf(f64::from(x))).abs() < 4e-7, "erf_f32({x})");
        }
    }
}
