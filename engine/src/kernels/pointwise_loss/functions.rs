//! Functions of a prediction and a target, with their slopes.

use super::Call;

/// Keras' `epsilon`.
const EPSILON: f64 = 1e-7;

/// Function of a prediction `y` and a target `t`; the discriminant is the shader's `LOSS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointwiseFunction {
    /// `(y - t)²`
    SquaredError = 0,
    /// `|y - t|`
    AbsoluteError = 1,
    /// A parabola up to `delta`, straight beyond.
    Huber = 2,
    /// `ln cosh(y - t)`
    LogCosh = 3,
    /// `y - t ln(y + 1e-7)`
    Poisson = 4,
    /// `t ln(t / y)`, both between 1e-7 and 1; a row has its sum.
    KlDivergence = 5,
    /// `max(1 - t y, 0)`; a target of 0 is one of -1.
    Hinge = 6,
    /// The square of that.
    SquaredHinge = 7,
    /// Cross-entropy of the sigmoid of `y`.
    BinaryCrossentropy = 8,
    /// Cross-entropy of the sigmoid of `y`, with less weight for what is right already.
    BinaryFocalCrossentropy = 9,
}

/// Settings of a [`PointwiseFunction`]; each has its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointwiseSettings {
    /// Label smoothing, of the binary ones.
    pub smoothing: f64,
    /// End of Huber's parabola.
    pub delta: f64,
    /// Focus on what is not yet right, of the focal one.
    pub gamma: f64,
    /// Factor of targets that are 1, of the focal one.
    pub positive: f64,
    /// Factor of targets that are 0, of the focal one.
    pub negative: f64,
}

impl Default for PointwiseSettings {
    fn default() -> Self {
        Self { smoothing: 0.0, delta: 1.0, gamma: 2.0, positive: 1.0, negative: 1.0 }
    }
}

/// 1 above 0, and a half at 0.
fn gate(value: f64) -> f64 {
    if value == 0.0 { 0.5 } else { f64::from(u8::from(value > 0.0)) }
}

fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

fn entropy(z: f64, q: f64) -> [f64; 2] {
    [z.max(0.0) - z * q + (-z.abs()).exp().ln_1p(), sigmoid(z) - q]
}

fn focal(settings: &PointwiseSettings, z: f64, q: f64) -> [f64; 2] {
    let farthest = ((1.0 - EPSILON) / EPSILON).ln();
    let (yes, no) = (sigmoid(z), sigmoid(-z));
    let missed = (q * no + (1.0 - q) * yes).max(1e-37);
    let factor = (q * settings.positive + (1.0 - q) * settings.negative) * missed.powf(settings.gamma);
    let [bounded, _] = entropy(z.clamp(-farthest, farthest), q);
    let inner = if z.abs() < farthest { yes - q } else { 0.0 };
    let outer = settings.gamma * (1.0 - 2.0 * q) * bounded * (yes * no / missed);
    [factor * bounded, factor * (inner + outer)]
}

fn log_cosh(e: f64) -> [f64; 2] {
    [e.abs() + (-2.0 * e.abs()).exp().ln_1p() - std::f64::consts::LN_2, e.tanh()]
}

fn divergence(y: f64, t: f64) -> [f64; 2] {
    let (p, q) = (y.clamp(EPSILON, 1.0), t.clamp(EPSILON, 1.0));
    [q * (q / p).ln(), -q / p * gate(y - EPSILON) * gate(1.0 - y)]
}

fn hinge(y: f64, t: f64) -> [f64; 2] {
    let sign = if t == 0.0 { -1.0 } else { t };
    let margin = 1.0 - sign * y;
    [margin.max(0.0), -sign * gate(margin)]
}

impl PointwiseFunction {
    /// Every function, by code.
    pub const ALL: [Self; 10] = [
        Self::SquaredError,
        Self::AbsoluteError,
        Self::Huber,
        Self::LogCosh,
        Self::Poisson,
        Self::KlDivergence,
        Self::Hinge,
        Self::SquaredHinge,
        Self::BinaryCrossentropy,
        Self::BinaryFocalCrossentropy,
    ];

    /// The code, as the constant `LOSS` takes it.
    pub fn code(self) -> f64 {
        f64::from(self as u8)
    }

    pub(super) fn of_call(call: &Call<'_>) -> Self {
        let code = call.constant("LOSS", 0.0);
        Self::ALL.into_iter().find(|known| known.code().to_bits() == code.to_bits()).unwrap_or(Self::SquaredError)
    }

    /// Whether its score is the part of the columns on the right side of 0: those that decide between two classes.
    pub fn counts_hits(self) -> bool {
        self.code() >= Self::Hinge.code()
    }

    /// The value for a prediction and a target, and its derivative by the prediction.
    pub fn at(self, settings: &PointwiseSettings, y: f64, t: f64) -> [f64; 2] {
        if y.is_nan() {
            // A maximum or a bound would hide it.
            return [y, y];
        }
        let (e, q) = (y - t, t * (1.0 - settings.smoothing) + 0.5 * settings.smoothing);
        match self {
            Self::SquaredError => [e * e, 2.0 * e],
            Self::AbsoluteError => [e.abs(), if e == 0.0 { 0.0 } else { e.signum() }],
            Self::Huber if e.abs() <= settings.delta => [0.5 * e * e, e],
            Self::Huber => [settings.delta * (e.abs() - 0.5 * settings.delta), settings.delta * e.signum()],
            Self::LogCosh => log_cosh(e),
            Self::Poisson => [y - t * (y + EPSILON).ln(), 1.0 - t / (y + EPSILON)],
            Self::KlDivergence => divergence(y, t),
            Self::Hinge => hinge(y, t),
            Self::SquaredHinge => {
                let [value, slope] = hinge(y, t);
                [value * value, 2.0 * value * slope]
            }
            Self::BinaryCrossentropy => entropy(y, q),
            Self::BinaryFocalCrossentropy => focal(settings, y, q),
        }
    }
}
