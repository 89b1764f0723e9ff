//! Parameters that weight decay leaves out.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::rule::{Entry, UpdateRule};
use super::table::{KINDS, OPTIMIZERS};
use crate::kind::{Named, Settings};
use crate::reading::ReadError;

/// Name of the setting.
pub(super) const NAME: &str = "exclude_from_weight_decay";

/// Parameters without weight decay, and the optimizer's rule as it is for them.
#[derive(Clone)]
pub(super) struct DecayExclusion {
    names: Vec<String>,
    rule: Arc<dyn UpdateRule>,
}

/// As it stands among the settings of an optimizer.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct WrittenDecay<'a> {
    /// Parameters without weight decay: names such as `dense/bias`, or their last parts, such as `bias`.
    exclude_from_weight_decay: &'a [String],
}

/// Whether names or last parts of names, such as `bias`, name a parameter.
pub(super) fn names_parameter(names: &[String], parameter: &str) -> bool {
    let last = parameter.rsplit('/').next().unwrap_or(parameter);
    names.iter().any(|name| name == parameter || name == last)
}

/// Settings that are a decay.
const DECAYS: [&str; 3] = ["weight_decay", "l2_decay", "adam_weight_decay"];

impl DecayExclusion {
    /// The settings beside those of the rule.
    #[cfg(feature = "schema")]
    pub(super) fn described(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        generator.subschema_for::<WrittenDecay<'_>>()
    }

    /// Takes it out of the settings of an optimizer.
    ///
    /// # Errors
    /// If it is no list of names, or the rule can't be made.
    pub(super) fn take(named: &mut Named, own: &[Entry]) -> Result<Option<Self>, ReadError> {
        let names = match named.settings.take(NAME) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|_| format!("needs a list of names as `{NAME}`, but got {value}"))?,
        };
        Self::of(names, named.clone(), own).map(Some)
    }

    /// Of these names, for a rule by its kind and settings.
    ///
    /// # Errors
    /// If the rule can't be made.
    pub(super) fn of(names: Vec<String>, named: Named, own: &[Entry]) -> Result<Self, ReadError> {
        // With those that a file leaves out: `AdamW` decays by default.
        let mut settings = named.clone().make(own, OPTIMIZERS, KINDS)?.config();
        for decay in DECAYS {
            if settings.take(decay).is_some() {
                settings.append(Settings::of(&HashMap::from([(decay, 0.0)])));
            }
        }
        Ok(Self { names, rule: Named { settings, ..named }.make(own, OPTIMIZERS, KINDS)? })
    }

    /// Whether the parameter of a name is one of them.
    pub(super) fn holds(&self, parameter: &str) -> bool {
        names_parameter(&self.names, parameter)
    }

    /// The rule for these parameters.
    pub(super) fn rule(&self) -> &dyn UpdateRule {
        &*self.rule
    }

    /// As settings of an optimizer.
    pub(super) fn settings(&self) -> Settings {
        Settings::of(&WrittenDecay { exclude_from_weight_decay: &self.names })
    }
}
