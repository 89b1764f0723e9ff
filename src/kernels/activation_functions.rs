//! The functions of `lib/activation.wgsl` in Rust: f64 for twins, f32 for fast versions.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

/// An activation function; the discriminant is the shader's `ACTIVATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Activation {
    /// `y = x`
    #[default]
    None = 0,
    /// `y = max(x, 0)`
    Relu = 1,
    /// `y = x` above 0, `slope x` below
    LeakyRelu = 2,
    /// `y = 1 / (1 + exp(-x))`
    Sigmoid = 3,
    /// `y = tanh(x)`
    Tanh = 4,
    /// `y = x / 2 (1 + erf(x / √2))`; Hendrycks, Gimpel 2016, arXiv:1606.08415
    Gelu = 5,
    /// `y = x / 2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`, from the same paper
    GeluTanh = 6,
}

/// √(2/π), of the tanh form of GELU.
const SQRT_2_OVER_PI: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

impl Activation {
    /// Every activation function, by code.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Relu, Self::LeakyRelu, Self::Sigmoid, Self::Tanh, Self::Gelu, Self::GeluTanh];

    /// The function of a code, as the constant `ACTIVATION` holds it; an unknown code is [`Activation::None`].
    pub fn of_code(code: f64) -> Self {
        Self::ALL.into_iter().find(|known| known.code().to_bits() == code.to_bits()).unwrap_or_default()
    }

    /// The code, as the constant `ACTIVATION` takes it.
    pub fn code(self) -> f64 {
        f64::from(self as u8)
    }

    /// Must the backward pass keep the input? If not, the output says enough.
    pub fn slope_needs_input(self) -> bool {
        matches!(self, Self::Gelu | Self::GeluTanh)
    }

    /// `y` at `x`; `slope` is that of [`Activation::LeakyRelu`].
    pub fn activate(self, slope: f64, x: f64) -> f64 {
        match self {
            Self::None => x,
            Self::Relu if x < 0.0 => 0.0,
            Self::LeakyRelu if x <= 0.0 => slope * x,
            Self::Relu | Self::LeakyRelu => x,
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Tanh => x.tanh(),
            Self::Gelu => 0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2)),
            Self::GeluTanh => 0.5 * x * (1.0 + gelu_inner(x).tanh()),
        }
    }

    /// `dy/d_x` from `y`, for a function whose slope does not need its input; 1 for the others.
    pub fn slope_from_output(self, slope: f64, y: f64) -> f64 {
        match self {
            Self::Relu if y <= 0.0 => 0.0,
            Self::LeakyRelu if y <= 0.0 => slope,
            Self::Sigmoid => y * (1.0 - y),
            Self::Tanh => 1.0 - y * y,
            _ => 1.0,
        }
    }

    /// `dy/d_x` from `x`, for a function whose slope needs its input; 1 for the others.
    pub fn slope_from_input(self, x: f64) -> f64 {
        match self {
            Self::Gelu => {
                let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
                0.5 * (1.0 + erf(x * FRAC_1_SQRT_2)) + x * density
            }
            Self::GeluTanh => {
                let t = gelu_inner(x).tanh();
                let inner_slope = SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044_715 * x * x);
                0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope
            }
            _ => 1.0,
        }
    }

    /// [`activate`](Self::activate) in place and in f32, as the shader computes it.
    pub fn activate_all(self, slope: f32, values: &mut [f32]) {
        let each = |values: &mut [f32], f: &dyn Fn(f32) -> f32| values.iter_mut().for_each(|x| *x = f(*x));
        match self {
            Self::None => {}
            // Outside the closures' dynamic call, so that the loop is vectorised.
            Self::Relu => values.iter_mut().for_each(|x| *x = if *x < 0.0 { 0.0 } else { *x }),
            Self::LeakyRelu => values.iter_mut().for_each(|x| *x = if *x <= 0.0 { slope * *x } else { *x }),
            Self::Sigmoid => each(values, &|x| 1.0 / (1.0 + (-x).exp())),
            Self::Tanh => each(values, &f32::tanh),
            Self::Gelu => values.iter_mut().for_each(|x| *x = 0.5 * *x * (1.0 + erf_f32(*x * 0.707_106_77))),
            Self::GeluTanh => each(values, &|x| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())),
        }
    }
}

/// An activation function as a kernel takes it: with the number that some need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Function {
    /// Which function is applied.
    pub activation: Activation,
    /// Slope below 0 of [`Activation::LeakyRelu`]; 0 for the others.
    pub slope: f32,
}

impl Function {
    /// A function that needs no number.
    pub const fn plain(activation: Activation) -> Self {
        Self { activation, slope: 0.0 }
    }

    /// Values of the `override` constants that choose it.
    pub fn constants(self) -> impl Iterator<Item = (&'static str, f64)> {
        let slope = (self.slope != 0.0).then_some(("SLOPE", f64::from(self.slope)));
        std::iter::once(("ACTIVATION", self.activation.code())).chain(slope)
    }
}

fn gelu_inner(x: f64) -> f64 {
    SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)
}

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

    #[test]
    fn slopes_are_those_of_the_functions() {
        for activation in Activation::ALL {
            for x in [-20.0, -3.0, -0.7, 0.4, 1.3, 5.0, 20.0] {
                let h = 1e-6;
                let f = |x: f64| activation.activate(0.2, x);
                let measured = (f(x + h) - f(x - h)) / (2.0 * h);
                let told = if activation.slope_needs_input() {
                    activation.slope_from_input(x)
                } else {
                    activation.slope_from_output(0.2, f(x))
                };
                assert!((measured - told).abs() < 1e-8, "{activation:?} at {x}: {measured} {told}");
            }
        }
    }

    #[test]
    fn f32_agrees_with_f64_and_keeps_nan() {
        for activation in Activation::ALL {
            let points: Vec<f32> = (-400i16..=400).map(|i| f32::from(i) * 0.25).collect();
            let mut values = points.clone();
            activation.activate_all(0.1, &mut values);
            for (x, y) in points.iter().zip(&values) {
                let expected = activation.activate(f64::from(0.1f32), f64::from(*x));
                assert!((f64::from(*y) - expected).abs() <= 5e-7 * (1.0 + expected.abs()), "{activation:?} {x} {y}");
            }
            let mut nan = [f32::NAN];
            activation.activate_all(0.1, &mut nan);
            assert!(nan[0].is_nan() && activation.activate(0.1, f64::NAN).is_nan());
        }
    }
}
