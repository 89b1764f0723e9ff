//! Reads types of Rust from trees; errors get the keys and indices that lead to the value.

use std::iter::Enumerate;
use std::slice::Iter;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{self, DeserializeSeed, Error, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

use super::error::{PathStep, ReadError};
use super::tree::Tree;

impl<'de> Deserializer<'de> for &'de Tree {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self {
            Tree::Nothing => visitor.visit_unit(),
            Tree::Boolean(value) => visitor.visit_bool(*value),
            Tree::Integer(whole) => match (u64::try_from(*whole), i64::try_from(*whole)) {
                (Ok(whole), _) => visitor.visit_u64(whole),
                (_, Ok(whole)) => visitor.visit_i64(whole),
                _ => visitor.visit_i128(*whole),
            },
            Tree::Float(number) => visitor.visit_f64(*number),
            Tree::Text(text) => visitor.visit_borrowed_str(text),
            Tree::List(items) => list(items, visitor),
            Tree::Table(entries) => visitor.visit_map(TreeEntries { rest: entries.iter(), value: None }),
            Tree::Odd(words) => Err(ReadError::invalid_type(Unexpected::Other(words), &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self {
            Tree::Nothing => visitor.visit_none(),
            some => visitor.visit_some(some),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self {
            Tree::Text(name) => {
                let name: StrDeserializer<'_, ReadError> = name.as_str().into_deserializer();
                visitor.visit_enum(name)
            }
            Tree::Table(entries) => match &entries[..] {
                [(name, value)] => visitor.visit_enum(Variant { name, value }),
                _ => Err(ReadError::invalid_length(entries.len(), &"a table with a name as its only key")),
            },
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

/// Reads a list, all of it.
fn list<'de, V: Visitor<'de>>(items: &'de [Tree], visitor: V) -> Result<V::Value, ReadError> {
    let mut access = TreeItems { rest: items.iter().enumerate() };
    let read = visitor.visit_seq(&mut access)?;
    match access.rest.len() {
        0 => Ok(read),
        more => {
            let needed = format!("a list of {} values", items.len() - more);
            Err(ReadError::invalid_length(items.len(), &needed.as_str()))
        }
    }
}

/// Elements of a list that are still to be read.
struct TreeItems<'de> {
    rest: Enumerate<Iter<'de, Tree>>,
}

impl<'de> de::SeqAccess<'de> for TreeItems<'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        let read = self.rest.next().map(|(index, item)| {
            let read = seed.deserialize(item);
            read.map_err(|error| error.within(PathStep::Index(index)))
        });
        read.transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// Entries of a table that are still to be read, and the one whose value is.
struct TreeEntries<'de> {
    rest: Iter<'de, (String, Tree)>,
    value: Option<&'de (String, Tree)>,
}

impl<'de> de::MapAccess<'de> for TreeEntries<'de> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        self.value = self.rest.next();
        let read = self.value.map(|(key, _)| seed.deserialize(BorrowedStrDeserializer::new(key)));
        read.transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let Some((key, value)) = self.value.take() else {
            return Err(ReadError::custom("a value was asked for before its key"));
        };
        seed.deserialize(value).map_err(|error| error.within(key.as_str().into()))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A variant of an enum, by its name, with its value.
struct Variant<'de> {
    name: &'de str,
    value: &'de Tree,
}

impl<'de> de::EnumAccess<'de> for Variant<'de> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ReadError> {
        let name: Result<S::Value, ReadError> = seed.deserialize(BorrowedStrDeserializer::new(self.name));
        Ok((name?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'de> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.value {
            Tree::Table(entries) if entries.is_empty() => Ok(()),
            value => self.located(<()>::deserialize(value)),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        self.located(seed.deserialize(self.value))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.located(self.value.deserialize_any(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.located(self.value.deserialize_any(visitor))
    }
}

impl Variant<'_> {
    fn located<T>(&self, read: Result<T, ReadError>) -> Result<T, ReadError> {
        read.map_err(|error| error.within(self.name.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde::de::DeserializeOwned;
    use serde_json::json;
    use toml::de::DeTable;

    use super::super::{ReadReason, Tree, read};

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Form {
        Plain,
        Sized(u8),
        Pair(u8, u8),
        Named { length: u8 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "type", deny_unknown_fields)]
    enum Tagged {
        One { rate: f32 },
        Other(Flat),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Flat {
        name: Option<String>,
        #[serde(flatten)]
        rest: BTreeMap<String, serde_json::Value>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum OneOrTwo {
        One(f32),
        Two([f32; 2]),
    }

    /// Reads as `serde_json` does.
    fn compare<T: DeserializeOwned + PartialEq + std::fmt::Debug>(value: &serde_json::Value) {
        let (ours, theirs) = (read::<T>(&value.clone().into()), serde_json::from_value::<T>(value.clone()));
        assert_eq!(ours.as_ref().ok(), theirs.as_ref().ok(), "{value}: {ours:?}, {theirs:?}");
    }

    #[test]
    fn values_are_read_as_serde_json_reads_them() {
        for value in [json!("plain"), json!({"plain": null}), json!({"sized": 3}), json!({"sized": 300}), json!(3)] {
            compare::<Form>(&value);
        }
        for value in [json!({"pair": [1, 2]}), json!({"named": {"length": 1}}), json!({}), json!({"a": 1, "b": 2})] {
            compare::<Form>(&value);
        }
        for value in [json!({"type": "One", "rate": 1}), json!({"type": "Other", "a": [1, null]}), json!({"rate": 1})] {
            compare::<Tagged>(&value);
        }
        for value in [json!({"name": null, "a": 1.5}), json!({"name": "b", "c": {"d": true}}), json!([])] {
            compare::<Flat>(&value);
        }
        for value in [json!(1), json!(0.5), json!([1, 2.5]), json!([1]), json!("x")] {
            compare::<OneOrTwo>(&value);
        }
        for value in [json!(u64::MAX), json!(-1), json!(i64::MIN), json!(1.0), json!(null)] {
            compare::<u64>(&value);
            compare::<i64>(&value);
            compare::<f64>(&value);
            compare::<Option<f32>>(&value);
        }
        for value in [json!([1, 2]), json!([1, 2, 3]), json!([1])] {
            compare::<(u8, u8)>(&value);
            compare::<[u8; 2]>(&value);
        }
    }

    #[test]
    fn toml_has_more_numbers_than_json() {
        let text = "a = inf\nb = -inf\nc = nan\nd = 0xff\ne = 18446744073709551615\nf = 1e999\ng = 1979-05-27";
        let document = DeTable::parse(text).unwrap();
        let tree = Tree::from(document.get_ref());
        let at = |key: &str| tree.get(&key.into()).unwrap();
        assert_eq!(
            read::<Vec<f64>>(&Tree::List(vec![at("a").clone(), at("b").clone()])).unwrap()[1],
            f64::NEG_INFINITY
        );
        assert!(read::<f64>(at("c")).unwrap().is_nan());
        assert_eq!((read::<u8>(at("d")).unwrap(), read::<u64>(at("e")).unwrap()), (255, u64::MAX));
        for (key, found) in [("f", "a number that is too large"), ("g", "a date")] {
            let ReadReason::Type { found: other, .. } = read::<f64>(at(key)).unwrap_err().reason else {
                panic!("{key}")
            };
            assert_eq!(other, super::super::Found::Other(found.into()));
        }
    }
}
