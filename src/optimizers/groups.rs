//! Groups of parameters with settings of their own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decay::names_parameter;
use super::rule::{Entry, Range, UpdateRule};
use super::table::{KINDS, OPTIMIZERS};
use crate::error::Problem;
use crate::kind::{Named, Settings};
use crate::reading::ReadError;

/// Name of the setting.
pub(super) const NAME: &str = "groups";

/// Parameters with settings of their own, as a group of PyTorch's optimizers.
#[derive(Clone)]
pub(super) struct ParameterGroup {
    written: WrittenGroup,
    /// The optimizer's rule with these settings.
    rule: Arc<dyn UpdateRule>,
}

/// As it stands among the settings of an optimizer.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct WrittenGroup {
    /// Names of parameters such as `dense/bias`, or their last parts, such as `bias`.
    parameters: Vec<String>,
    /// Factor of the learning rate.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    learning_rate_factor: f32,
    /// Steps of the optimizer that these parameters did not take part in, such as while they were frozen: Adam counts theirs alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    missed_steps: u64,
    /// Settings that differ from the optimizer's.
    #[serde(flatten)]
    settings: serde_json::Map<String, Value>,
}

/// The groups as they stand among the settings of an optimizer.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct WrittenGroups<'a> {
    /// Parameters with settings of their own: `parameters`, by name, `learning_rate_factor`, `missed_steps`, and settings of the optimizer.
    groups: Vec<&'a WrittenGroup>,
}

fn one() -> f32 {
    1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(value: &f32) -> bool {
    *value == 1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(steps: &u64) -> bool {
    *steps == 0
}

impl ParameterGroup {
    /// The settings beside those of the rule.
    #[cfg(feature = "schema")]
    pub(super) fn described(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        generator.subschema_for::<WrittenGroups<'_>>()
    }

    /// Takes them out of the settings of an optimizer.
    ///
    /// # Errors
    /// If they are no groups, or a rule can't be made.
    pub(super) fn take(named: &mut Named, own: &[Entry]) -> Result<Vec<Self>, ReadError> {
        let groups = match named.settings.take(NAME) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(value) => serde_json::from_value::<Vec<WrittenGroup>>(value)
                .map_err(|error| format!("needs a list of tables with `parameters` as `{NAME}`: {error}"))?,
        };
        let rule = named.clone().make(own, OPTIMIZERS, KINDS)?;
        groups.into_iter().map(|written| Self::of(written, named, &*rule, own)).collect()
    }

    fn of(written: WrittenGroup, named: &Named, whole: &dyn UpdateRule, own: &[Entry]) -> Result<Self, ReadError> {
        if written.settings.contains_key("learning_rate") {
            return Err(format!("needs `learning_rate_factor` in `{NAME}`, but got `learning_rate`").into());
        }
        let mut settings = whole.config();
        for name in written.settings.keys() {
            settings.take(name);
        }
        settings.append(Settings::of(&written.settings));
        let rule = Named { settings, ..named.clone() }.make(own, OPTIMIZERS, KINDS)?;
        if rule.state_names() != whole.state_names() {
            return Err(format!("needs the same state for all `{NAME}`, such as one value of `amsgrad`").into());
        }
        Ok(Self { written, rule })
    }

    /// Whether the parameter of a name is one of them.
    pub(super) fn holds(&self, parameter: &str) -> bool {
        names_parameter(&self.written.parameters, parameter)
    }

    /// The rule for these parameters.
    pub(super) fn rule(&self) -> &dyn UpdateRule {
        &*self.rule
    }

    /// The numbers of a step: the learning rate, and those of the rule.
    pub(super) fn numbers(&self, learning_rate: f32, step: u64) -> impl Iterator<Item = f32> {
        // Steps count from 1.
        let own_step = step.saturating_sub(self.written.missed_steps).max(1);
        std::iter::once(learning_rate * self.written.learning_rate_factor).chain(self.rule.step_numbers(own_step))
    }

    /// Problem of its settings, if they have one.
    pub(super) fn problem(&self) -> Option<Problem> {
        let of_factor = Range::AtLeastZero.problem("learning_rate_factor", self.written.learning_rate_factor);
        of_factor.or_else(|| self.rule.ranges().into_iter().find_map(|(name, value, range)| range.problem(name, value)))
    }

    /// As settings of an optimizer.
    pub(super) fn settings(groups: &[Self]) -> Settings {
        Settings::of(&WrittenGroups { groups: groups.iter().map(|group| &group.written).collect() })
    }
}
