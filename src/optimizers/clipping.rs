//! Clipping of each parameter's gradient by itself.

use serde::Serialize;
use serde_json::Value;

use crate::error::Problem;
use crate::kind::Settings;

/// Clipping of the gradient of each parameter by itself, before the update. `norm`s and `value`s are above 0.
///
/// The global norm is [`Compile::clip_norm`](crate::Compile::clip_norm). As in Keras, one of the three is used at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clipping {
    /// `clipnorm` of Keras: where the norm of a parameter's gradient is larger, it is scaled down to this.
    Norm(f32),
    /// `clipvalue` of Keras: each value of a gradient is brought between this and its negative.
    Value(f32),
}

/// As it stands among the settings of an optimizer.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct WrittenClipping {
    /// Norm to which the gradient of each parameter is scaled down where it is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    clipnorm: Option<f32>,
    /// Value that no value of a gradient exceeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    clipvalue: Option<f32>,
}

impl Clipping {
    /// The settings beside those of the rule.
    #[cfg(feature = "schema")]
    pub(super) fn described(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        generator.subschema_for::<WrittenClipping>()
    }

    /// Takes it out of the settings of an optimizer.
    ///
    /// # Errors
    /// If it is no number, or both ways are there. In the words of serde.
    pub(super) fn take(settings: &mut Settings) -> Result<Option<Self>, String> {
        let mut number = |name: &str| match settings.take(name) {
            None | Some(Value::Null) => Ok(None),
            #[allow(clippy::cast_possible_truncation, reason = "settings are f32")]
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number as f32)),
                None => Err(format!("needs a number as `{name}`, but got {value}")),
            },
        };
        match (number("clipnorm")?, number("clipvalue")?) {
            (None, None) => Ok(None),
            (Some(norm), None) => Ok(Some(Self::Norm(norm))),
            (None, Some(value)) => Ok(Some(Self::Value(value))),
            (Some(_), Some(_)) => Err("needs `clipnorm` or `clipvalue`, but has both".into()),
        }
    }

    /// As settings of an optimizer.
    pub(super) fn settings(self) -> Settings {
        let (clipnorm, clipvalue) = match self {
            Self::Norm(norm) => (Some(norm), None),
            Self::Value(value) => (None, Some(value)),
        };
        Settings::of(&WrittenClipping { clipnorm, clipvalue })
    }

    /// Problem of its value, if it has one.
    pub(super) fn problem(self) -> Option<Problem> {
        let (name, limit) = match self {
            Self::Norm(norm) => ("clipnorm", norm),
            Self::Value(value) => ("clipvalue", value),
        };
        let is_right = limit > 0.0 && limit.is_finite();
        (!is_right).then(|| {
            Problem::new(format!("needs `{name}` above 0, but got {limit}"), "1.0 is usual; leave it out for none")
        })
    }
}
