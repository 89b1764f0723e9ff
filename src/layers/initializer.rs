//! Initial values of parameters, under the names and with the semantics of Keras 3.

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::shape::elements;

/// How a parameter is filled before training.
///
/// Fans are those of Keras: for `[in, out]` they are `in` and `out`; for `[kh, kw, in, out]` both are multiplied by
/// `kh * kw`. Source: Glorot & Bengio 2010 (AISTATS); He et al. 2015, arXiv:1502.01852.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initializer {
    /// Uniform in `±√(6 / (fan_in + fan_out))`.
    #[default]
    GlorotUniform,
    /// Normal, cut at two standard deviations, of variance `2 / (fan_in + fan_out)`.
    GlorotNormal,
    /// Uniform in `±√(6 / fan_in)`.
    HeUniform,
    /// Normal, cut at two standard deviations, of variance `2 / fan_in`.
    HeNormal,
    /// 0.
    Zeros,
    /// 1.
    Ones,
    /// A number that the layer sets.
    #[serde(skip)]
    Constant(Constant),
}

/// A number, which is equal to another where its bits are.
#[derive(Clone, Copy, Debug)]
pub struct Constant(f32);

impl From<f32> for Constant {
    fn from(value: f32) -> Self {
        Self(value)
    }
}

impl PartialEq for Constant {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Constant {}

/// Standard deviation of a standard normal that is cut at ±2.
const CUT_NORMAL_STD: f64 = 0.879_625_661_034_239_8;

impl Initializer {
    /// Values for a parameter of a shape.
    pub fn fill(self, shape: &[usize], rng: &mut impl Rng, values: &mut [f32]) {
        let (fan_in, fan_out) = fans(shape);
        match self {
            Self::Zeros => values.fill(0.0),
            Self::Ones => values.fill(1.0),
            Self::Constant(constant) => values.fill(constant.0),
            Self::GlorotUniform => uniform((6.0 / (fan_in + fan_out)).sqrt(), rng, values),
            Self::HeUniform => uniform((6.0 / fan_in).sqrt(), rng, values),
            Self::GlorotNormal => normal((2.0 / (fan_in + fan_out)).sqrt(), rng, values),
            Self::HeNormal => normal((2.0 / fan_in).sqrt(), rng, values),
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "fans are far below 2^52")]
fn fans(shape: &[usize]) -> (f64, f64) {
    match shape {
        [] => (1.0, 1.0),
        [len] => (*len as f64, *len as f64),
        [window @ .., input, output] => {
            let window = elements(window) as f64;
            (*input as f64 * window, *output as f64 * window)
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "values are rounded to f32 on purpose")]
fn uniform(limit: f64, rng: &mut impl Rng, values: &mut [f32]) {
    for value in values {
        *value = (limit * (2.0 * rng.random::<f64>() - 1.0)) as f32;
    }
}

#[allow(clippy::cast_possible_truncation, reason = "values are rounded to f32 on purpose")]
fn normal(std: f64, rng: &mut impl Rng, values: &mut [f32]) {
    for value in values {
        *value = (std / CUT_NORMAL_STD * cut_normal(rng)) as f32;
    }
}

/// A standard normal number in ±2, by Box and Muller 1958; draws beyond are drawn again.
fn cut_normal(rng: &mut impl Rng) -> f64 {
    loop {
        let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
        let z = radius * (std::f64::consts::TAU * rng.random::<f64>()).cos();
        if z.abs() <= 2.0 {
            return z;
        }
    }
}
