//! Settings that are one number, or one for each channel.

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// One number for all, or one for each place of an axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Values {
    /// One for all.
    One(f32),
    /// One for each place.
    Each(Vec<f32>),
}

impl Default for Values {
    fn default() -> Self {
        Self::One(0.0)
    }
}

impl From<f32> for Values {
    fn from(value: f32) -> Self {
        Self::One(value)
    }
}

impl<const N: usize> From<[f32; N]> for Values {
    fn from(values: [f32; N]) -> Self {
        Self::Each(values.into())
    }
}

impl Values {
    /// Number of given values.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Each(values) => values.len(),
        }
    }

    /// Fills what has a place for each of the numbers.
    pub(crate) fn fill(&self, places: &mut [f32]) {
        match self {
            Self::One(value) => places.fill(*value),
            Self::Each(values) => places.iter_mut().zip(values).for_each(|(place, value)| *place = *value),
        }
    }

    /// A number for each of `n` places; `None` if another number of them is given.
    pub(super) fn for_each(&self, n: usize) -> Option<Vec<f32>> {
        match self {
            Self::One(value) => Some(vec![*value; n]),
            Self::Each(values) if values.len() == 1 => Some(vec![values[0]; n]),
            Self::Each(values) => (values.len() == n).then(|| values.clone()),
        }
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Values;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number, or a list of them")
            }

            #[allow(clippy::cast_possible_truncation, reason = "settings are f32")]
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Values, E> {
                Ok(Values::One(value as f32))
            }

            #[allow(clippy::cast_precision_loss, reason = "settings are f32")]
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Values, E> {
                Ok(Values::One(value as f32))
            }

            #[allow(clippy::cast_precision_loss, reason = "settings are f32")]
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Values, E> {
                Ok(Values::One(value as f32))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Values, A::Error> {
                let mut read = Vec::new();
                while let Some(value) = values.next_element()? {
                    read.push(value);
                }
                Ok(Values::Each(read))
            }
        }
        deserializer.deserialize_any(Read)
    }
}
