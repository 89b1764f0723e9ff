//! Exponential moving average of the weights, beside any optimizer.

use serde::Serialize;
use serde_json::Value;

use crate::error::Problem;
use crate::kind::Settings;

/// Exponential moving average of the weights, as `use_ema` of Keras' optimizers.
///
/// After each step `average = momentum * average + (1 - momentum) * weight`, for every trainable parameter; after the first step the
/// average is the weight. At the end of [`fit`](crate::Trainer::fit) the model gets the averages, as in Keras; validation
/// before that, and steps on batches of your own, have the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ema {
    /// Part of the average that stays in each step, from 0 to 1.
    pub momentum: f32,
    /// Number of steps after which the weights take over the average, again and again; `None` for the end of training alone.
    pub overwrite_frequency: Option<u64>,
}

impl Default for Ema {
    fn default() -> Self {
        Self { momentum: 0.99, overwrite_frequency: None }
    }
}

/// As it stands among the settings of an optimizer.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct WrittenEma {
    /// Keeps an exponential moving average of the weights.
    use_ema: bool,
    /// Part of the average that stays in each step; `0.99` if not given.
    ema_momentum: f32,
    /// Steps after which the weights take over the average, again and again.
    #[serde(skip_serializing_if = "Option::is_none")]
    ema_overwrite_frequency: Option<u64>,
}

impl Ema {
    /// The settings beside those of the rule.
    #[cfg(feature = "schema")]
    pub(super) fn described(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        generator.subschema_for::<WrittenEma>()
    }

    /// Name of the average among the states of an optimizer, as in Keras.
    pub(crate) const STATE: &str = "average";

    /// Takes it out of the settings of an optimizer.
    ///
    /// # Errors
    /// If a setting has another type, or the others stand there without `use_ema`. In the words of serde.
    pub(super) fn take(settings: &mut Settings) -> Result<Option<Self>, String> {
        let mut given = |name: &str| settings.take(name).filter(|value| !value.is_null());
        let [wanted, momentum, frequency] = ["use_ema", "ema_momentum", "ema_overwrite_frequency"].map(&mut given);
        let wrong = |name: &str, needed: &str, value: &Value| format!("needs {needed} as `{name}`, but got {value}");
        let is_wanted = match &wanted {
            Some(Value::Bool(is_wanted)) => *is_wanted,
            Some(other) => return Err(wrong("use_ema", "`true` or `false`", other)),
            None if momentum.is_some() || frequency.is_some() => {
                return Err("needs `use_ema = true` beside other settings of the average, but lacks it".into());
            }
            None => false,
        };
        let mut ema = Self::default();
        if let Some(value) = momentum {
            let number = value.as_f64().ok_or_else(|| wrong("ema_momentum", "a number", &value))?;
            #[allow(clippy::cast_possible_truncation, reason = "settings are f32")]
            let number = number as f32;
            ema.momentum = number;
        }
        if let Some(value) = frequency {
            let steps = value.as_u64().ok_or_else(|| wrong("ema_overwrite_frequency", "a number of steps", &value))?;
            ema.overwrite_frequency = Some(steps);
        }
        Ok(is_wanted.then_some(ema))
    }

    /// As settings of an optimizer.
    pub(super) fn settings(self) -> Settings {
        let Self { momentum, overwrite_frequency } = self;
        Settings::of(&WrittenEma {
            use_ema: true,
            ema_momentum: momentum,
            ema_overwrite_frequency: overwrite_frequency,
        })
    }

    /// Problem of its values, if they have one.
    pub(super) fn problem(self) -> Option<Problem> {
        if !(0.0..=1.0).contains(&self.momentum) {
            let problem = format!("needs `ema_momentum` of at least 0 and at most 1, but got {}", self.momentum);
            return Some(Problem::new(problem, "leave it out to take the default of Keras"));
        }
        let is_never = self.overwrite_frequency == Some(0);
        let problem =
            || Problem::new("needs `ema_overwrite_frequency` of at least 1, but got 0", "leave it out for none");
        is_never.then(problem)
    }

    /// The numbers of a step, counted from 1: the part of the old average, and whether the weights take it over.
    pub(super) fn step_numbers(self, step: u64) -> [f32; 2] {
        let overwrites = self.overwrite_frequency.is_some_and(|frequency| step.is_multiple_of(frequency));
        [if step > 1 { self.momentum } else { 0.0 }, f32::from(u8::from(overwrites))]
    }
}
