//! Gradients of several steps in one update.

use serde::Serialize;

use crate::error::Problem;
use crate::kind::Settings;

const NAME: &str = "gradient_accumulation_steps";

/// Number of steps whose mean gradient makes an update, as `gradient_accumulation_steps` of Keras' optimizers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Accumulation {
    /// The number.
    pub steps: u32,
}

/// As it stands among the settings of an optimizer.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct WrittenAccumulation {
    /// Number of steps whose mean gradient makes an update.
    gradient_accumulation_steps: u32,
}

impl Accumulation {
    /// Name of the sums among the states of an optimizer, as in Keras.
    pub(crate) const STATE: &str = "gradient_accumulator";

    /// The settings beside those of the rule.
    #[cfg(feature = "schema")]
    pub(super) fn described(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        generator.subschema_for::<WrittenAccumulation>()
    }

    /// Takes it out of the settings of an optimizer.
    ///
    /// # Errors
    /// If it is no number of steps. In the words of serde.
    pub(super) fn take(settings: &mut Settings) -> Result<Option<Self>, String> {
        let Some(value) = settings.take(NAME).filter(|value| !value.is_null()) else { return Ok(None) };
        let steps = value.as_u64().and_then(|steps| u32::try_from(steps).ok());
        steps
            .map(|steps| Some(Self { steps }))
            .ok_or_else(|| format!("needs a number of steps as `{NAME}`, but got {value}"))
    }

    /// As settings of an optimizer.
    pub(super) fn settings(self) -> Settings {
        Settings::of(&WrittenAccumulation { gradient_accumulation_steps: self.steps })
    }

    /// Problem of its value, if it has one.
    pub(super) fn problem(self) -> Option<Problem> {
        let problem = || {
            Problem::new(
                format!("needs `{NAME}` of at least 2, but got {}", self.steps),
                "leave it out for an update in each step",
            )
        };
        (self.steps < 2).then(problem)
    }

    /// The update that a step belongs to, both counted from 1, and whether the step completes it.
    pub(super) fn update_of(self, step: u64) -> (u64, bool) {
        let steps = u64::from(self.steps.max(1));
        (step.div_ceil(steps), step.is_multiple_of(steps))
    }
}
