//! Optimizers, under Keras' names and with its semantics: the settings, and how one step updates the parameters.
//!
//! The same kernels serve both places where an update can run: their twins on the host, over several adapters, and
//! the shaders on the device, with one.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kernels::{Kernel, adam, rmsprop, sgd};
use crate::plan::Word;

/// How gradients become new parameters.
///
/// `weight_decay` is decoupled, as in Keras: each step first takes `weight_decay * learning_rate * w` off each
/// parameter. **Across adapters** the update runs once, on the summed gradients, and all adapters get the same bits.
/// Golden values: Keras 3.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Optimizer {
    /// Gradient descent with momentum. Sutskever et al. 2013 for Nesterov's form.
    #[serde(rename = "SGD")]
    Sgd {
        /// Step size.
        #[serde(default = "default::sgd_rate")]
        learning_rate: f32,
        /// Part of the last step that is taken again.
        #[serde(default)]
        momentum: f32,
        /// Look ahead along the momentum?
        #[serde(default)]
        nesterov: bool,
        /// Decoupled weight decay.
        #[serde(default)]
        weight_decay: f32,
    },
    /// Kingma & Ba 2014, arXiv:1412.6980.
    Adam {
        /// Step size.
        #[serde(default = "default::rate")]
        learning_rate: f32,
        /// Decay of the mean of gradients.
        #[serde(default = "default::beta_1")]
        beta_1: f32,
        /// Decay of the mean of squared gradients.
        #[serde(default = "default::beta_2")]
        beta_2: f32,
        /// Added to the root of the mean square.
        #[serde(default = "default::epsilon")]
        epsilon: f32,
    },
    /// Adam with decoupled weight decay: Loshchilov & Hutter 2017, arXiv:1711.05101.
    AdamW {
        /// Step size.
        #[serde(default = "default::rate")]
        learning_rate: f32,
        /// Decay of the mean of gradients.
        #[serde(default = "default::beta_1")]
        beta_1: f32,
        /// Decay of the mean of squared gradients.
        #[serde(default = "default::beta_2")]
        beta_2: f32,
        /// Added to the root of the mean square.
        #[serde(default = "default::epsilon")]
        epsilon: f32,
        /// Decoupled weight decay.
        #[serde(default = "default::weight_decay")]
        weight_decay: f32,
    },
    /// Tieleman & Hinton 2012, lecture 6e; `centered` after Graves 2013, arXiv:1308.0850.
    #[serde(rename = "RMSprop")]
    RmsProp {
        /// Step size.
        #[serde(default = "default::rate")]
        learning_rate: f32,
        /// Decay of the mean of squared gradients.
        #[serde(default = "default::beta_1")]
        rho: f32,
        /// Part of the last step that is taken again.
        #[serde(default)]
        momentum: f32,
        /// Added under the root.
        #[serde(default = "default::epsilon")]
        epsilon: f32,
        /// Divide by the variance instead of the mean square?
        #[serde(default)]
        centered: bool,
        /// Decoupled weight decay.
        #[serde(default)]
        weight_decay: f32,
    },
}

mod default {
    pub fn sgd_rate() -> f32 {
        0.01
    }
    pub fn rate() -> f32 {
        1e-3
    }
    pub fn beta_1() -> f32 {
        0.9
    }
    pub fn beta_2() -> f32 {
        0.999
    }
    pub fn epsilon() -> f32 {
        1e-7
    }
    pub fn weight_decay() -> f32 {
        4e-3
    }
}

/// Index in `Scalars::hyper` of the learning rate.
pub(crate) const HYPER_RATE: u32 = 0;
/// Index of `1 - beta_1^t`.
pub(crate) const HYPER_CORRECTION_1: u32 = 1;
/// Index of `1 - beta_2^t`.
pub(crate) const HYPER_CORRECTION_2: u32 = 2;

impl Optimizer {
    /// Adam with Keras' defaults and a learning rate.
    pub fn adam(learning_rate: f32) -> Self {
        Self::Adam { learning_rate, beta_1: default::beta_1(), beta_2: default::beta_2(), epsilon: default::epsilon() }
    }

    /// SGD with a learning rate and momentum.
    pub fn sgd(learning_rate: f32, momentum: f32) -> Self {
        Self::Sgd { learning_rate, momentum, nesterov: false, weight_decay: 0.0 }
    }

    /// Its name in Keras.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sgd { .. } => "SGD",
            Self::Adam { .. } => "Adam",
            Self::AdamW { .. } => "AdamW",
            Self::RmsProp { .. } => "RMSprop",
        }
    }

    /// The learning rate before any schedule.
    pub fn learning_rate(self) -> f32 {
        match self {
            Self::Sgd { learning_rate, .. }
            | Self::Adam { learning_rate, .. }
            | Self::AdamW { learning_rate, .. }
            | Self::RmsProp { learning_rate, .. } => learning_rate,
        }
    }

    /// The same with another learning rate.
    #[must_use]
    pub fn with_learning_rate(mut self, rate: f32) -> Self {
        match &mut self {
            Self::Sgd { learning_rate, .. }
            | Self::Adam { learning_rate, .. }
            | Self::AdamW { learning_rate, .. }
            | Self::RmsProp { learning_rate, .. } => *learning_rate = rate,
        }
        self
    }

    /// Names of the state that each parameter has, as in Keras.
    pub fn state_names(self) -> &'static [&'static str] {
        match self {
            Self::Sgd { .. } => &["momentum"],
            Self::Adam { .. } | Self::AdamW { .. } => &["momentum", "velocity"],
            Self::RmsProp { .. } => &["velocity", "momentum", "average_gradient"],
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// If one is out of its range.
    pub fn check(self) -> Result<()> {
        let rate = self.learning_rate();
        if !(rate >= 0.0 && rate.is_finite()) {
            return Err(self.refuse(format!("needs a learning rate of at least 0, but got {rate}")));
        }
        let decays: &[(&str, f32)] = &match self {
            Self::Sgd { momentum, .. } => [("momentum", momentum), ("momentum", momentum)],
            Self::Adam { beta_1, beta_2, .. } | Self::AdamW { beta_1, beta_2, .. } => {
                [("beta_1", beta_1), ("beta_2", beta_2)]
            }
            Self::RmsProp { rho, momentum, .. } => [("rho", rho), ("momentum", momentum)],
        };
        if let Some((name, decay)) = decays.iter().find(|(_, decay)| !(0.0..1.0).contains(decay)) {
            return Err(self.refuse(format!("needs `{name}` of at least 0 and below 1, but got {decay}")));
        }
        let (epsilon, weight_decay) = match self {
            Self::Sgd { weight_decay, .. } => (1.0, weight_decay),
            Self::Adam { epsilon, .. } | Self::RmsProp { epsilon, .. } => (epsilon, 0.0),
            Self::AdamW { epsilon, weight_decay, .. } => (epsilon, weight_decay),
        };
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            // A gradient that was 0 all along would be divided by 0.
            return Err(self.refuse(format!("needs `epsilon` above 0, but got {epsilon}")));
        }
        if !(weight_decay >= 0.0 && weight_decay.is_finite()) {
            return Err(self.refuse(format!("needs `weight_decay` of at least 0, but got {weight_decay}")));
        }
        Ok(())
    }

    fn refuse(self, problem: String) -> Error {
        Error::setting(format!("optimizer `{}`", self.name()), problem, "leave it out to take the default of Keras")
    }

    /// The numbers of a step: what the update's `Word::Hyper`s stand for. `step` counts from 1.
    #[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose; steps beyond 2^31 give 1 anyway")]
    pub fn hyper(self, learning_rate: f32, step: u64) -> Vec<f32> {
        let (beta_1, beta_2) = match self {
            Self::Adam { beta_1, beta_2, .. } | Self::AdamW { beta_1, beta_2, .. } => (beta_1, beta_2),
            _ => (0.0, 0.0),
        };
        let power = i32::try_from(step).unwrap_or(i32::MAX);
        let correction = |beta: f32| (1.0 - f64::from(beta).powi(power)) as f32;
        vec![learning_rate, correction(beta_1), correction(beta_2)]
    }

    /// The kernel of the update.
    pub fn kernel(self) -> &'static Kernel {
        match self {
            Self::Sgd { .. } => &sgd::UPDATE,
            Self::Adam { .. } | Self::AdamW { .. } => &adam::UPDATE,
            Self::RmsProp { .. } => &rmsprop::UPDATE,
        }
    }

    /// `Params` of the update of `len` elements.
    pub fn params(self, len: u32) -> Vec<Word> {
        let (len, learning_rate) = (Word::U32(len), Word::Hyper(HYPER_RATE));
        match self {
            Self::Sgd { momentum, weight_decay, .. } => {
                sgd::Record { len, learning_rate, momentum: momentum.into(), weight_decay: weight_decay.into() }.into()
            }
            Self::Adam { beta_1, beta_2, epsilon, .. } => {
                adam_params(len, learning_rate, [beta_1, beta_2, epsilon, 0.0]).into()
            }
            Self::AdamW { beta_1, beta_2, epsilon, weight_decay, .. } => {
                adam_params(len, learning_rate, [beta_1, beta_2, epsilon, weight_decay]).into()
            }
            Self::RmsProp { rho, momentum, epsilon, weight_decay, .. } => rmsprop::Record {
                len,
                learning_rate,
                rho: rho.into(),
                momentum: momentum.into(),
                epsilon: epsilon.into(),
                weight_decay: weight_decay.into(),
            }
            .into(),
        }
    }

    /// `override` constants of the update.
    pub fn constants(self) -> Vec<(&'static str, f64)> {
        match self {
            Self::Sgd { nesterov: true, .. } => vec![("NESTEROV", 1.0)],
            Self::RmsProp { centered: true, .. } => vec![("CENTERED", 1.0)],
            _ => Vec::new(),
        }
    }
}

fn adam_params(len: Word, learning_rate: Word, [beta_1, beta_2, epsilon, weight_decay]: [f32; 4]) -> adam::Record {
    adam::Record {
        len,
        learning_rate,
        beta_1: beta_1.into(),
        beta_2: beta_2.into(),
        epsilon: epsilon.into(),
        correction_1: Word::Hyper(HYPER_CORRECTION_1),
        correction_2: Word::Hyper(HYPER_CORRECTION_2),
        weight_decay: weight_decay.into(),
    }
}

/// How the learning rate goes over the steps of a run, under Keras' names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Schedule {
    /// The optimizer's own, always.
    #[default]
    Constant,
    /// One rate up to each boundary: `values[i]` for steps up to and with `boundaries[i]`, the last one after.
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
        /// What the rate is multiplied by.
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
