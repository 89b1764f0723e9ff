//! Penalties that weights and outputs of layers add to the loss.

use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::names;

/// A penalty that is added to the loss: `l1 · Σ |v| + l2 · Σ v²`, as `L1`, `L2` and `L1L2` of Keras.
///
/// In a file it is `{ l2 = 0.01 }`, `{ l1 = 0.01, l2 = 0.001 }`, or a name with Keras' default, `"l2"`. Of weights it counts
/// once, however a batch is split; of outputs it is divided by the rows of the whole batch. The reported loss includes
/// it. Source: Keras 3, `keras.regularizers`.
///
/// ```
/// use manyhands::Sequential;
/// use manyhands::layers::{Configure, Dense, Regularizer};
/// # fn main() -> manyhands::Result<()> {
/// let dense = Dense::new(10).kernel_regularizer(Regularizer::l2(0.01)).activity_regularizer(Regularizer::l1(1e-4));
/// let model = Sequential::new([4]).add(dense).build(0)?;
/// # assert_eq!(model.config().layers[0].settings["kernel_regularizer"]["l2"], 0.01);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(schema_with = "described"))]
pub struct Regularizer {
    /// Factor of the values' sizes.
    #[serde(skip_serializing_if = "is_zero", serialize_with = "shortest")]
    pub l1: f32,
    /// Factor of the values' squares.
    #[serde(skip_serializing_if = "is_zero", serialize_with = "shortest")]
    pub l2: f32,
}

/// A name, or a table.
#[cfg(feature = "schema")]
fn described(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let factor = schemars::json_schema!({ "type": "number", "minimum": 0 });
    schemars::json_schema!({ "anyOf": [
        { "enum": ["l1", "l2", "l1_l2"] },
        { "type": "object", "properties": { "l1": factor, "l2": factor }, "additionalProperties": false },
    ] })
}

/// Keras' default for a factor.
const DEFAULT: f32 = 0.01;

impl Regularizer {
    /// `l1 · Σ |v|`.
    pub fn l1(l1: f32) -> Self {
        Self { l1, l2: 0.0 }
    }

    /// `l2 · Σ v²`.
    pub fn l2(l2: f32) -> Self {
        Self { l1: 0.0, l2 }
    }

    /// `l1 · Σ |v| + l2 · Σ v²`.
    pub fn l1_l2(l1: f32, l2: f32) -> Self {
        Self { l1, l2 }
    }

    /// Problem of its settings, if they have one.
    pub(crate) fn problem(self) -> Option<String> {
        let is_right = |factor: f32| factor >= 0.0 && factor.is_finite();
        (!is_right(self.l1) || !is_right(self.l2))
            .then(|| format!("needs factors of at least 0, but got l1 = {} and l2 = {}", self.l1, self.l2))
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(factor: &f32) -> bool {
    *factor == 0.0
}

/// The shortest number that means the same f32.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn shortest<S: serde::Serializer>(factor: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(serde_json::from_str(&factor.to_string()).unwrap_or_else(|_| f64::from(*factor)))
}

impl<'de> Deserialize<'de> for Regularizer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Regularizer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`l1`, `l2` or `l1_l2`, or a table of `l1` and `l2`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Regularizer, E> {
                let known = ["l1", "l2", "l1_l2"];
                match names::known(name, &known) {
                    Some("l1") => Ok(Regularizer::l1(DEFAULT)),
                    Some("l2") => Ok(Regularizer::l2(DEFAULT)),
                    Some(_) => Ok(Regularizer::l1_l2(DEFAULT, DEFAULT)),
                    None => Err(E::unknown_variant(name, &["l1", "l2", "l1_l2"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Regularizer, A::Error> {
                let mut read = Regularizer::default();
                while let Some(name) = map.next_key::<String>()? {
                    match names::known(&name, &["l1", "l2"]) {
                        Some("l1") => read.l1 = map.next_value()?,
                        Some(_) => read.l2 = map.next_value()?,
                        None => return Err(de::Error::unknown_field(&name, &["l1", "l2"])),
                    }
                }
                Ok(read)
            }
        }
        deserializer.deserialize_any(Form)
    }
}

#[cfg(test)]
mod tests {
    use super::Regularizer;

    #[test]
    fn forms_of_a_file() {
        let read = |json: &str| serde_json::from_str::<Regularizer>(json).map_err(|error| error.to_string());
        assert_eq!(read(r#""L2""#), Ok(Regularizer::l2(0.01)));
        assert_eq!(read(r#""l1_l2""#), Ok(Regularizer::l1_l2(0.01, 0.01)));
        assert_eq!(read(r#"{"L1": 0.5}"#), Ok(Regularizer::l1(0.5)));
        assert_eq!(read(r#"{"l1": 0.5, "l2": 0.25}"#), Ok(Regularizer::l1_l2(0.5, 0.25)));
        assert!(read(r#""l3""#).unwrap_err().starts_with("unknown variant `l3`, expected one of `l1`, `l2`, `l1_l2`"));
        assert!(read(r#"{"l3": 1}"#).unwrap_err().starts_with("unknown field `l3`, expected `l1` or `l2`"));
        assert_eq!(serde_json::to_string(&Regularizer::l2(0.01)).unwrap(), r#"{"l2":0.01}"#);
    }
}
