//! Initial values of parameters, under the names and with the semantics of Keras 3.

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::shape::elements;

/// Initial values of a parameter.
///
/// Fans are those of Keras: for `[in, out]` they are `in` and `out`; for `[kh, kw, in, out]` both are multiplied by
/// `kh * kw`. Source: Glorot & Bengio 2010 (AISTATS); He et al. 2015, arXiv:1502.01852.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Uniform in ±0.05.
    RandomUniform,
    /// Rows or columns, whichever are fewer, of length 1 and at right angles. Saxe et al. 2014, arXiv:1312.6120.
    Orthogonal,
    /// 0.
    Zeros,
    /// 1.
    Ones,
    /// 0, and 1 in the second of four equal parts: the forget gate of an LSTM begins open.
    #[serde(skip)]
    ForgetGate,
    /// A number that the layer sets.
    #[serde(skip)]
    Constant(Constant),
    /// Uniform between a number that the layer sets and its negative.
    #[serde(skip)]
    Within(Constant),
    /// Normal, cut at two standard deviations, of a standard deviation that the layer sets.
    #[serde(skip)]
    Deviating(Constant),
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
    /// This initializer for a parameter whose fans do not follow from its shape, but are given.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "fans are far below 2^52")]
    pub(super) fn with_fans(self, [fan_in, fan_out]: [usize; 2]) -> Self {
        let (fan_in, fan_out) = (fan_in as f64, fan_out as f64);
        let constant = |square: f64| Constant::from(square.sqrt() as f32);
        match self {
            Self::GlorotUniform => Self::Within(constant(6.0 / (fan_in + fan_out))),
            Self::HeUniform => Self::Within(constant(6.0 / fan_in)),
            Self::GlorotNormal => Self::Deviating(constant(2.0 / (fan_in + fan_out))),
            Self::HeNormal => Self::Deviating(constant(2.0 / fan_in)),
            other => other,
        }
    }

    /// Values for a parameter of a shape.
    pub fn fill(self, shape: &[usize], rng: &mut impl Rng, values: &mut [f32]) {
        let (fan_in, fan_out) = fans(shape);
        match self {
            Self::Zeros => values.fill(0.0),
            Self::Ones => values.fill(1.0),
            Self::ForgetGate => {
                values.fill(0.0);
                let quarter = values.len() / 4;
                values[quarter..2 * quarter].fill(1.0);
            }
            Self::Constant(constant) => values.fill(constant.0),
            Self::Within(limit) => uniform(limit.0.into(), rng, values),
            Self::Deviating(std) => normal(std.0.into(), rng, values),
            Self::GlorotUniform => uniform((6.0 / (fan_in + fan_out)).sqrt(), rng, values),
            Self::HeUniform => uniform((6.0 / fan_in).sqrt(), rng, values),
            Self::GlorotNormal => normal((2.0 / (fan_in + fan_out)).sqrt(), rng, values),
            Self::HeNormal => normal((2.0 / fan_in).sqrt(), rng, values),
            Self::RandomUniform => uniform(0.05, rng, values),
            Self::Orthogonal => orthogonal(shape.last().copied().unwrap_or(1), rng, values),
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

/// Fills a matrix of `cols` columns by Gram and Schmidt, each vector twice, so that rounding leaves no angle.
#[allow(clippy::cast_possible_truncation, reason = "values are rounded to f32 on purpose")]
fn orthogonal(cols: usize, rng: &mut impl Rng, values: &mut [f32]) {
    let rows = values.len() / cols.max(1);
    let (count, len) = (rows.min(cols), rows.max(cols));
    let mut vectors: Vec<f64> = (0..count * len).map(|_| standard_normal(rng)).collect();
    for at in 0..count {
        let (done, rest) = vectors.split_at_mut(at * len);
        let vector = &mut rest[..len];
        for _ in 0..2 {
            for other in done.chunks_exact(len) {
                let along: f64 = other.iter().zip(&*vector).map(|(a, b)| a * b).sum();
                vector.iter_mut().zip(other).for_each(|(value, other)| *value -= along * other);
            }
            let norm = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
            vector.iter_mut().for_each(|value| *value /= norm);
        }
    }
    for (at, value) in values.iter_mut().enumerate() {
        let (row, col) = (at / cols, at % cols);
        *value = (if rows <= cols { vectors[row * len + col] } else { vectors[col * len + row] }) as f32;
    }
}

/// A standard normal number, by Box and Muller 1958.
fn standard_normal(rng: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// A standard normal number in ±2; draws beyond are drawn again.
fn cut_normal(rng: &mut impl Rng) -> f64 {
    loop {
        let z = standard_normal(rng);
        if z.abs() <= 2.0 {
            return z;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn orthogonal_vectors_have_length_1_and_no_product() {
        for [rows, cols] in [[5, 5], [3, 8], [8, 3], [1, 1], [64, 256]] {
            let mut values = vec![0.0; rows * cols];
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
            Initializer::Orthogonal.fill(&[rows, cols], &mut rng, &mut values);
            let at = |vector: usize, i: usize| {
                f64::from(if rows <= cols { values[vector * cols + i] } else { values[i * cols + vector] })
            };
            let pairs = (0..rows.min(cols)).flat_map(|a| (0..=a).map(move |b| (a, b)));
            for (a, b) in pairs {
                let product: f64 = (0..rows.max(cols)).map(|i| at(a, i) * at(b, i)).sum();
                let needed = f64::from(u8::from(a == b));
                assert!((product - needed).abs() < 1e-6, "{rows} x {cols}: {a} {b} {product}");
            }
        }
    }
}
