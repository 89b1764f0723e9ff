//! Kinds in files, `{ type = "Adam", learning_rate = 0.001 }`: settings, tables of kinds, and handles.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{Error as _, MapAccess, Unexpected, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::names;
use crate::reading::{KnownNames, ReadError, ReadReason};

/// The settings of an optimizer or a loss in a file, in the order of their struct.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(Vec<(String, Value)>);

impl Settings {
    /// Settings of a plain struct, which always serialises. Floats get the value of their shortest text.
    pub fn of(settings: &impl Serialize) -> Self {
        serde_json::to_string(settings).and_then(|text| serde_json::from_str(&text)).unwrap_or_default()
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Takes a setting out.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Adds settings behind the others.
    pub fn append(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    fn into_value(self) -> Value {
        Value::Object(self.0.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Settings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of settings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
                let mut entries: Vec<(String, Value)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    entries.push((name, value));
                }
                match twice(&entries) {
                    Some(name) => Err(A::Error::custom(format!("duplicate field `{name}`"))),
                    None => Ok(Settings(entries)),
                }
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A name that stands before two values.
fn twice(entries: &[(String, Value)]) -> Option<&str> {
    let repeats = |at: usize| entries[..at].iter().any(|(name, _)| *name == entries[at].0);
    (0..entries.len()).find(|at| repeats(*at)).map(|at| entries[at].0.as_str())
}

/// A kind and its settings in a file: what is read before it is known whose kind it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// The value of `type`.
    pub kind: String,
    /// The other keys.
    pub settings: Settings,
}

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.settings.0.len()))?;
        map.serialize_entry("type", &self.kind)?;
        for (name, value) in self.settings.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = Settings::deserialize(deserializer)?;
        let at = settings.0.iter().position(|(name, _)| name == "type");
        match at.map(|at| settings.0.remove(at).1) {
            Some(Value::String(kind)) => Ok(Self { kind, settings }),
            Some(other) => Err(D::Error::invalid_type(Unexpected::Other(&other.to_string()), &"a string as `type`")),
            None => Err(D::Error::missing_field("type")),
        }
    }
}

impl Named {
    /// Makes it, by the first entry of its kind: those of your own go before the crate's, whose names are `kinds`.
    ///
    /// # Errors
    /// If no entry has the kind, or the settings are not those of it.
    pub fn make<T: ?Sized>(
        self,
        own: &[Entry<T>],
        table: &[Entry<T>],
        kinds: &'static [&'static str],
    ) -> Result<Arc<T>, ReadError> {
        let Self { kind: name, settings } = self;
        let known = known_names(own, kinds);
        let kind = names::known(&name, &known);
        match own.iter().chain(table).find(|entry| Some(entry.kind) == kind) {
            Some(entry) => (entry.from_config)(settings.into_value()),
            None => Err(ReadReason::UnknownVariant { name, known }.into()),
        }
    }
}

/// The names of entries of your own, and behind them the crate's.
pub fn known_names<T: ?Sized>(own: &[Entry<T>], kinds: &'static [&'static str]) -> KnownNames {
    match own {
        [] => kinds.into(),
        own => own.iter().map(|entry| entry.kind).chain(kinds.iter().copied()).collect(),
    }
}

/// A kind of `T` that can be read from a file.
pub struct Entry<T: ?Sized> {
    /// Name of the kind.
    pub kind: &'static str,
    /// Function that makes it from its settings.
    pub from_config: fn(Value) -> Result<Arc<T>, ReadError>,
}

impl<T: ?Sized> Clone for Entry<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Entry<T> {}

impl<T: ?Sized> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)
    }
}

/// Declares the table of the kinds that can be read from a file, their names, and, with the feature `schema`, their schemas.
#[macro_export]
macro_rules! table_of_kinds {
    ($(#[$doc:meta])* $table:ident { $($type:ident => $kind:literal,)* }) => {
        $(#[$doc])*
        pub static $table: &[Entry] = &[$(entry::<$type>($kind),)*];

        /// Their names.
        pub(crate) const KINDS: &[&str] = &[$($kind,)*];

        #[cfg(feature = "schema")]
        pub(crate) const DESCRIBED: &[(&str, manyhands_engine::described::Describe)] =
            &[$(($kind, |generator| generator.subschema_for::<$type>()),)*];
    };
}

/// A shared `T`, or one that lives as long as the program: so that handles can be constants.
pub enum SharedOrStatic<T: ?Sized + 'static> {
    /// Lives as long as the program.
    Static(&'static T),
    /// Shared by its holders.
    Shared(Arc<T>),
}

impl<T: ?Sized> Clone for SharedOrStatic<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Static(it) => Self::Static(it),
            Self::Shared(it) => Self::Shared(it.clone()),
        }
    }
}

impl<T: ?Sized> Deref for SharedOrStatic<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Static(it) => it,
            Self::Shared(it) => it,
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SharedOrStatic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Rates {
        second: f32,
        first: f32,
    }

    #[test]
    fn text_has_the_order_of_the_struct_and_short_floats() {
        let settings = Settings::of(&Rates { second: 1e-3, first: 0.1 });
        let named = Named { kind: "Rates".into(), settings };
        let text = serde_json::to_string(&named).unwrap();
        assert_eq!(text, r#"{"type":"Rates","second":0.001,"first":0.1}"#);
        assert_eq!(serde_json::from_str::<Named>(&text).unwrap(), named);
    }

    #[test]
    fn what_is_no_table_of_a_kind_is_refused() {
        let refused = |text: &str| serde_json::from_str::<Named>(text).unwrap_err().to_string();
        assert!(refused(r#"{"rate": 1}"#).starts_with("missing field `type`"));
        assert!(refused(r#"{"type": 1}"#).starts_with("invalid type: 1, expected a string as `type`"));
        assert!(refused(r#"{"type": "A", "rate": 1, "rate": 2}"#).starts_with("duplicate field `rate`"));
        assert!(refused("3").starts_with("invalid type: integer `3`, expected a table of settings"));
    }
}
