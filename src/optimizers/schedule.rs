//! Learning-rate schedules.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Learning rate over the steps of a run, under Keras' names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Schedule {
    /// The optimizer's own, always.
    #[default]
    Constant,
    /// One rate up to each boundary: `values[i]` for steps up to and with `boundaries[i]`, the last one after. The
    /// optimizer's own counts for nothing; a settings file that names it, too, is refused.
    PiecewiseConstantDecay {
        /// Steps, rising.
        boundaries: Vec<u64>,
        /// Rates, one more than boundaries.
        values: Vec<f32>,
    },
    /// Linear warm-up from 0 to the optimizer's rate, then half a cosine down to `alpha` of it.
    /// Loshchilov & Hutter 2016, arXiv:1608.03983.
    CosineDecay {
        /// Steps of the cosine, after the warm-up.
        decay_steps: u64,
        /// Part of the rate that stays at the end.
        #[serde(default)]
        alpha: f32,
        /// Steps of the warm-up.
        #[serde(default)]
        warmup_steps: u64,
    },
    /// The rate times `factor` whenever the watched value has not improved for `patience` epochs.
    ReduceLROnPlateau {
        /// Factor of the rate.
        #[serde(default = "plateau::factor")]
        factor: f32,
        /// Epochs without improvement before that.
        #[serde(default = "plateau::patience")]
        patience: u32,
        /// Least change that counts as one.
        #[serde(default = "plateau::min_delta")]
        min_delta: f64,
        /// Rate below which it does not go.
        #[serde(default)]
        min_lr: f32,
    },
}

mod plateau {
    pub fn factor() -> f32 {
        0.1
    }
    pub fn patience() -> u32 {
        10
    }
    pub fn min_delta() -> f64 {
        1e-4
    }
}

impl Schedule {
    /// Checks the settings.
    ///
    /// # Errors
    /// If boundaries and values do not go together, or a number is out of its range.
    pub fn check(&self) -> Result<()> {
        let refuse = |problem: String, help: &str| Err(Error::setting("learning-rate schedule", problem, help));
        match self {
            Self::PiecewiseConstantDecay { boundaries, values } if values.len() != boundaries.len() + 1 => refuse(
                format!("needs one value more than boundaries, but got {} and {}", values.len(), boundaries.len()),
                "the last value holds after the last boundary",
            ),
            Self::PiecewiseConstantDecay { boundaries, .. } if !boundaries.is_sorted() => {
                refuse(format!("needs rising boundaries, but got {boundaries:?}"), "sort them")
            }
            Self::CosineDecay { decay_steps: 0, .. } => {
                refuse("needs at least one decay step, but got 0".into(), "set `decay_steps` to the steps of the run")
            }
            Self::ReduceLROnPlateau { factor, .. } if !(0.0..1.0).contains(factor) => {
                refuse(format!("needs a factor below 1, but got {factor}"), "0.1 is usual")
            }
            _ => Ok(()),
        }
    }

    /// Whether it starts from the optimizer's rate. Otherwise it has all rates itself, and the optimizer's is ignored.
    pub fn starts_from_rate(&self) -> bool {
        !matches!(self, Self::PiecewiseConstantDecay { .. })
    }

    /// The rate of a step, counted from 0, where `base` is the optimizer's own (or what a plateau has left of it).
    #[allow(clippy::cast_precision_loss, reason = "steps are far below 2^52")]
    #[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
    pub fn rate(&self, base: f32, step: u64) -> f32 {
        match self {
            Self::Constant | Self::ReduceLROnPlateau { .. } => base,
            Self::PiecewiseConstantDecay { boundaries, values } => {
                values[boundaries.iter().filter(|boundary| step > **boundary).count()]
            }
            Self::CosineDecay { warmup_steps, .. } if step < *warmup_steps => {
                (f64::from(base) * step as f64 / *warmup_steps as f64) as f32
            }
            Self::CosineDecay { decay_steps, alpha, warmup_steps } => {
                let part = ((step - warmup_steps) as f64 / *decay_steps as f64).min(1.0);
                let cosine = 0.5 * (1.0 + (std::f64::consts::PI * part).cos());
                (f64::from(base) * ((1.0 - f64::from(*alpha)) * cosine + f64::from(*alpha))) as f32
            }
        }
    }
}
