//! Optimizers and learning-rate schedules, under Keras' names and with its semantics.
//!
//! [`Optimizer`] holds one of the structs below, or an [`UpdateRule`] of your own: see [`extend`](crate::extend).
//! [`Schedule`] changes the learning rate over the steps. Over several adapters the update runs once, on the host; one
//! adapter alone updates its weights itself.

mod adam;
mod clipping;
mod rmsprop;
mod rule;
mod schedule;
mod sgd;
pub(crate) mod table;

use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Problem, Result};
use crate::kind::{Handle, Named};

pub use crate::kind::Settings;
pub use adam::{Adam, AdamW};
pub use clipping::Clipping;
pub use rmsprop::RmsProp;
pub use rule::{Entry, LEARNING_RATE, Range, UpdateRule, entry};
pub use schedule::Schedule;
pub use sgd::Sgd;
pub(crate) use table::OPTIMIZERS;

/// Rule that updates parameters: one of [`optimizers`](self), or an [`UpdateRule`] of your own. Clones share it.
///
/// `weight_decay` is decoupled, as in Keras: each step first takes `weight_decay * learning_rate * w` off each
/// parameter. Parameters that no loss reaches stay as they are. **Across adapters** the update runs once, on the summed
/// gradients, and all adapters get the same bits. Golden values: Keras 3.
///
/// ```
/// use manyhands::Optimizer;
/// use manyhands::optimizers::Sgd;
///
/// let momentum: Optimizer = Sgd { momentum: 0.9, nesterov: true, ..Sgd::default() }.into();
/// assert_eq!(momentum.learning_rate(), 0.01);
/// assert_eq!(Optimizer::adam(3e-3).name(), "Adam");
/// ```
#[derive(Clone)]
pub struct Optimizer {
    rule: Handle<dyn UpdateRule>,
    clipping: Option<Clipping>,
}

impl<R: UpdateRule + 'static> From<R> for Optimizer {
    fn from(rule: R) -> Self {
        Self { rule: Handle::Shared(Arc::new(rule)), clipping: None }
    }
}

impl Optimizer {
    /// Adam with Keras' defaults and a learning rate.
    pub fn adam(learning_rate: f32) -> Self {
        Adam { learning_rate, ..Adam::default() }.into()
    }

    /// SGD with a learning rate and momentum.
    pub fn sgd(learning_rate: f32, momentum: f32) -> Self {
        Sgd { learning_rate, momentum, ..Sgd::default() }.into()
    }

    /// One of a file, where optimizers of your own may stand, too.
    ///
    /// # Errors
    /// If the kind is unknown, or its settings can't be read.
    pub fn read(mut named: Named, own: &[Entry]) -> Result<Self, String> {
        let clipping = Clipping::take(&mut named.settings)?;
        named.make(own, OPTIMIZERS).map(|rule| Self { rule: Handle::Shared(rule), clipping })
    }

    /// Scales the gradient of each parameter down to this norm where it is above it, as `clipnorm` of Keras.
    #[must_use]
    pub fn clipnorm(self, norm: f32) -> Self {
        Self { clipping: Some(Clipping::Norm(norm)), ..self }
    }

    /// Brings each value of a gradient between this and its negative, as `clipvalue` of Keras.
    #[must_use]
    pub fn clipvalue(self, value: f32) -> Self {
        Self { clipping: Some(Clipping::Value(value)), ..self }
    }

    /// Clipping of the gradient of each parameter by itself.
    pub fn clipping(&self) -> Option<Clipping> {
        self.clipping
    }

    /// The rule behind it.
    #[doc(hidden)]
    pub fn rule(&self) -> &dyn UpdateRule {
        &*self.rule
    }

    /// Name in Keras.
    pub fn name(&self) -> &'static str {
        self.rule.kind()
    }

    /// The learning rate before any schedule.
    pub fn learning_rate(&self) -> f32 {
        self.rule.learning_rate()
    }

    /// A copy with another learning rate.
    #[must_use]
    pub fn with_learning_rate(&self, rate: f32) -> Self {
        Self { rule: Handle::Shared(self.rule.with_learning_rate(rate)), clipping: self.clipping }
    }

    /// Names of the state that each parameter has, as in Keras.
    pub fn state_names(&self) -> &'static [&'static str] {
        self.rule.state_names()
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// If one is out of its range.
    pub fn check(&self) -> Result<()> {
        let problem = self.rule.ranges().into_iter().find_map(|(name, value, range)| range.problem(name, value));
        let problem = problem.or_else(|| self.clipping.and_then(Clipping::problem));
        problem.map_or(Ok(()), |Problem { problem, help }| {
            Err(Error::setting(format!("optimizer `{}`", self.name()), problem, help))
        })
    }

    /// The numbers of a step: what the update's `Word::Hyper`s stand for. `step` counts from 1.
    #[doc(hidden)]
    pub fn hyper(&self, learning_rate: f32, step: u64) -> Vec<f32> {
        std::iter::once(learning_rate).chain(self.rule.step_numbers(step)).collect()
    }

    fn named(&self) -> Named {
        let mut settings = self.rule.config();
        self.clipping.into_iter().for_each(|clipping| settings.append(clipping.settings()));
        Named { kind: self.name().into(), settings }
    }
}

impl fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)
    }
}

/// Optimizers are equal if kind and settings are.
impl PartialEq for Optimizer {
    fn eq(&self, other: &Self) -> bool {
        self.named() == other.named()
    }
}

impl Serialize for Optimizer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.named().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Optimizer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(Named::deserialize(deserializer)?, &[]).map_err(D::Error::custom)
    }
}
