//! Optimizers and learning-rate schedules, under Keras' names and with its semantics.
//!
//! [`Optimizer`] holds one of the structs below, or an [`UpdateRule`] of your own: see [`extend`](crate::extend).
//! [`Schedule`] changes the learning rate over the steps. Over several adapters the update runs once, on the host; one
//! adapter alone updates its weights itself.

// Files: one for each optimizer: settings, their ranges, kernel. `table.rs`: `OPTIMIZERS`, the one table; `rule.rs`: the trait,
// and the macro that implements it for the crate's own; `tensor.rs`: a parameter for rules of whole tensors; `clipping.rs`, `decay.rs`,
// `ema.rs`, `groups.rs`, `accumulation.rs`: settings that every optimizer can have; `schedule.rs`: learning-rate schedules.

mod accumulation;
mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod clipping;
mod decay;
mod ema;
mod ftrl;
mod groups;
mod lion;
mod muon;
mod nadam;
mod rmsprop;
mod rule;
mod schedule;
mod sgd;
pub(crate) mod table;
mod tensor;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Problem, Result};
use crate::kernels::ema as ema_kernel;
use crate::kind::{Named, SharedOrStatic};
use crate::plan::{Scalars, Word};
use crate::reading::ReadError;

pub use crate::kind::Settings;
use accumulation::Accumulation;
pub use adadelta::Adadelta;
pub use adafactor::Adafactor;
pub use adagrad::Adagrad;
pub use adam::{Adam, AdamW};
pub use adamax::Adamax;
pub use clipping::Clipping;
use decay::DecayExclusion;
pub use ema::Ema;
pub use ftrl::Ftrl;
use groups::ParameterGroup;
pub use lion::Lion;
pub use muon::Muon;
pub use nadam::Nadam;
pub use rmsprop::RmsProp;
pub use rule::{Entry, LEARNING_RATE, Range, UpdateRule, entry};
pub use schedule::Schedule;
pub use sgd::Sgd;
pub use table::OPTIMIZERS;
pub use tensor::WholeTensor;

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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(schema_with = "described"))]
pub struct Optimizer {
    rule: SharedOrStatic<dyn UpdateRule>,
    clipping: Option<Clipping>,
    ema: Option<Ema>,
    exclusion: Option<DecayExclusion>,
    groups: Vec<ParameterGroup>,
    accumulation: Option<Accumulation>,
}

/// The rule of a parameter, and the place of its numbers among those of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedRule<'a> {
    /// The rule.
    pub rule: &'a dyn UpdateRule,
    first: usize,
}

impl PlacedRule<'_> {
    /// Params of the update of `len` elements.
    pub fn params(&self, len: u32) -> Vec<Word> {
        let first = u32::try_from(self.first).unwrap_or(u32::MAX);
        let placed = |word: Word| if let Word::Hyper(number) = word { Word::Hyper(first + number) } else { word };
        self.rule.params(len).into_iter().map(placed).collect()
    }

    /// The learning rate of a step, and behind it the numbers of the rule.
    pub fn numbers<'s>(&self, scalars: &'s Scalars) -> &'s [f32] {
        &scalars.hyper[self.first..=self.first + self.rule.step_numbers(1).len()]
    }
}

/// The optimizers of the table.
#[cfg(feature = "schema")]
fn described(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let shared = [
        Clipping::described(generator),
        Ema::described(generator),
        DecayExclusion::described(generator),
        ParameterGroup::described(generator),
        Accumulation::described(generator),
    ];
    manyhands_engine::described::kinds(generator, table::DESCRIBED, &shared)
}

impl<R: UpdateRule + 'static> From<R> for Optimizer {
    fn from(rule: R) -> Self {
        Self {
            rule: SharedOrStatic::Shared(Arc::new(rule)),
            clipping: None,
            ema: None,
            exclusion: None,
            groups: Vec::new(),
            accumulation: None,
        }
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
    pub fn read(mut named: Named, own: &[Entry]) -> Result<Self, ReadError> {
        let clipping = Clipping::take(&mut named.settings)?;
        let ema = Ema::take(&mut named.settings)?;
        let accumulation = Accumulation::take(&mut named.settings)?;
        let has = |name: &str| named.settings.iter().any(|(known, _)| known == name);
        if has(decay::NAME) && has(groups::NAME) {
            let problem =
                "needs `exclude_from_weight_decay` or `groups`, but has both: give a group a `weight_decay` of 0";
            return Err(problem.to_owned().into());
        }
        let exclusion = DecayExclusion::take(&mut named, own)?;
        let groups = ParameterGroup::take(&mut named, own)?;
        let rule = SharedOrStatic::Shared(named.make(own, OPTIMIZERS, table::KINDS)?);
        Ok(Self { rule, clipping, ema, exclusion, groups, accumulation })
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

    /// Averages the weights over the steps, as `use_ema` of Keras.
    ///
    /// ```
    /// use manyhands::Optimizer;
    /// use manyhands::optimizers::Ema;
    ///
    /// let averaged = Optimizer::adam(1e-3).use_ema(Ema { momentum: 0.999, ..Ema::default() });
    /// assert_eq!(averaged.state_names(), ["momentum", "velocity", "average"]);
    /// ```
    #[must_use]
    pub fn use_ema(self, ema: Ema) -> Self {
        Self { ema: Some(ema), ..self }
    }

    /// Updates by the mean gradient of so many steps, after the last of them, as `gradient_accumulation_steps` of Keras.
    ///
    /// Schedules count steps, and the sums go on over epochs and checkpoints: an epoch may end between two updates. The host updates,
    /// also for one adapter. For larger batches in less memory, without other steps, there are
    /// [micro-batches](crate::Fit::micro_batches).
    ///
    /// ```
    /// use manyhands::Optimizer;
    ///
    /// let optimizer = Optimizer::adam(1e-3).gradient_accumulation_steps(4);
    /// assert_eq!(optimizer.state_names(), ["momentum", "velocity", "gradient_accumulator"]);
    /// ```
    #[must_use]
    pub fn gradient_accumulation_steps(self, steps: u32) -> Self {
        Self { accumulation: Some(Accumulation { steps }), ..self }
    }

    /// Leaves parameters out of the weight decay, as `exclude_from_weight_decay` of Keras: those of these names, such as
    /// `dense/bias`, or whose last part is one of them, such as `bias`.
    ///
    /// # Errors
    /// If the rule is one of your own: it has no `weight_decay` that is known here.
    ///
    /// ```
    /// use manyhands::Optimizer;
    /// use manyhands::optimizers::AdamW;
    ///
    /// let optimizer = Optimizer::from(AdamW::default()).exclude_from_weight_decay(["bias"])?;
    /// assert!(!optimizer.decays("dense/bias") && optimizer.decays("dense/kernel"));
    /// # Ok::<(), manyhands::Error>(())
    /// ```
    pub fn exclude_from_weight_decay<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Result<Self> {
        let names = names.into_iter().map(Into::into).collect();
        let named = Named { kind: self.name().into(), settings: self.rule.config() };
        let exclusion = DecayExclusion::of(names, named, &[]).map_err(|problem| {
            let help = "write the exclusion into your rule";
            Error::setting(format!("optimizer `{}`", self.name()), format!("can't exclude parameters: {problem}"), help)
        })?;
        Ok(Self { exclusion: Some(exclusion), ..self })
    }

    /// Whether weight decay, if there is any, reaches the parameter of this name.
    pub fn decays(&self, parameter: &str) -> bool {
        !self.exclusion.as_ref().is_some_and(|exclusion| exclusion.holds(parameter))
    }

    /// The average of the weights, if there is one.
    pub fn ema(&self) -> Option<Ema> {
        self.ema
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

    /// The rule for the parameter of this name.
    pub(crate) fn rule_of(&self, parameter: &str) -> PlacedRule<'_> {
        let excluded = self.exclusion.as_ref().filter(|exclusion| exclusion.holds(parameter));
        let whole = excluded.map_or(&*self.rule, DecayExclusion::rule);
        // Behind the numbers of the rule and the average.
        let mut first = 1 + whole.step_numbers(1).len() + self.ema.map_or(0, |ema| ema.step_numbers(1).len());
        for group in &self.groups {
            if group.holds(parameter) {
                return PlacedRule { rule: group.rule(), first };
            }
            first += group.numbers(0.0, 1).count();
        }
        PlacedRule { rule: whole, first: 0 }
    }

    /// Whether one rule updates both parameters.
    pub(crate) fn updates_alike(&self, one: &str, other: &str) -> bool {
        self.decays(one) == self.decays(other) && self.rule_of(one).first == self.rule_of(other).first
    }

    /// Whether the host alone can update, also for one adapter: rules of whole tensors have no kernel, and it keeps sums of gradients.
    pub(crate) fn needs_host(&self) -> bool {
        self.rule.kernel().is_none() || self.accumulation.is_some()
    }

    /// The number of steps whose gradients are added, and the place of their sums among the states.
    pub(crate) fn accumulation(&self) -> Option<(u32, usize)> {
        self.accumulation.map(|accumulation| (accumulation.steps, self.rule.state_names().len()))
    }

    /// Whether a step of these numbers updates; otherwise its gradients are only added.
    pub(crate) fn updates(&self, scalars: &Scalars) -> bool {
        self.accumulation.is_none() || scalars.hyper.last() == Some(&1.0)
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
        Self { rule: SharedOrStatic::Shared(self.rule.with_learning_rate(rate)), ..self.clone() }
    }

    /// Names of the state that each parameter has, as in Keras: those of the rule, sums of gradients, then the average of the weights.
    pub fn state_names(&self) -> Vec<&'static str> {
        let sums = self.accumulation.map(|_| Accumulation::STATE);
        self.rule.state_names().iter().copied().chain(sums).chain(self.ema.map(|_| Ema::STATE)).collect()
    }

    /// Params of the average's update of `len` parameters.
    #[doc(hidden)]
    pub fn ema_params(&self, len: u32) -> Vec<Word> {
        // Its numbers stand behind the learning rate and those of the rule.
        let first = u32::try_from(1 + self.rule.step_numbers(1).len()).unwrap_or(u32::MAX);
        ema_kernel::Record { len: len.into(), momentum: Word::Hyper(first), overwrites: Word::Hyper(first + 1) }.into()
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// If one is out of its range.
    pub fn check(&self) -> Result<()> {
        let problem = self.rule.ranges().into_iter().find_map(|(name, value, range)| range.problem(name, value));
        let problem = problem.or_else(|| self.clipping.and_then(Clipping::problem));
        let problem = problem.or_else(|| self.ema.and_then(Ema::problem));
        let problem = problem.or_else(|| self.accumulation.and_then(Accumulation::problem));
        let problem = problem.or_else(|| self.groups.iter().find_map(ParameterGroup::problem));
        problem.map_or(Ok(()), |Problem { problem, help }| {
            Err(Error::setting(format!("optimizer `{}`", self.name()), problem, help))
        })
    }

    /// The numbers of a step: what the update's `Word::Hyper`s stand for. `step` counts from 1.
    #[doc(hidden)]
    pub fn hyper(&self, learning_rate: f32, step: u64) -> Vec<f32> {
        let (step, updates) = self.accumulation.map_or((step, None), |accumulation| {
            let (update, is_complete) = accumulation.update_of(step);
            (update, Some(f32::from(u8::from(is_complete))))
        });
        let of_ema = self.ema.into_iter().flat_map(|ema| ema.step_numbers(step));
        let of_groups = self.groups.iter().flat_map(|group| group.numbers(learning_rate, step));
        let of_rule = std::iter::once(learning_rate).chain(self.rule.step_numbers(step));
        of_rule.chain(of_ema).chain(of_groups).chain(updates).collect()
    }

    /// Whether the weights take over their average in a step of these numbers.
    pub(crate) fn overwrites(&self, scalars: &Scalars) -> bool {
        // The second number of the average.
        self.ema.is_some() && scalars.hyper.get(2 + self.rule.step_numbers(1).len()) == Some(&1.0)
    }

    fn named(&self) -> Named {
        let mut settings = self.rule.config();
        self.clipping.into_iter().for_each(|clipping| settings.append(clipping.settings()));
        self.ema.into_iter().for_each(|ema| settings.append(ema.settings()));
        self.exclusion.iter().for_each(|exclusion| settings.append(exclusion.settings()));
        self.accumulation.into_iter().for_each(|accumulation| settings.append(accumulation.settings()));
        if !self.groups.is_empty() {
            settings.append(ParameterGroup::settings(&self.groups));
        }
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
        Self::read(Named::deserialize(deserializer)?, &[]).map_err(ReadError::raise)
    }
}
