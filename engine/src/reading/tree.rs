//! Values of TOML and JSON in one form.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use toml::de::{DeFloat, DeInteger, DeTable, DeValue};

use super::error::PathStep;

/// A value of TOML or JSON. It has what either has: `nan` and `inf`, and `null`.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// JSON's `null`.
    Nothing,
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number from -2^63 to 2^64 - 1.
    Integer(i128),
    /// Another number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// A table, in the order of the reader.
    Table(Vec<(String, Self)>),
    /// A value that no setting has, in words: a date.
    Odd(&'static str),
}

/// Words for a number that no type of a setting holds.
const TOO_LARGE: &str = "a number that is too large";

impl Tree {
    /// The elements' steps.
    pub(super) fn steps(&self) -> Vec<PathStep> {
        match self {
            Self::List(items) => (0..items.len()).map(PathStep::Index).collect(),
            Self::Table(entries) => entries.iter().map(|(key, _)| PathStep::Key(key.clone())).collect(),
            _ => Vec::new(),
        }
    }

    /// The element at a step.
    pub(super) fn get(&self, step: &PathStep) -> Option<&Self> {
        match (self, step) {
            (Self::List(items), PathStep::Index(index)) => items.get(*index),
            (Self::Table(entries), PathStep::Key(key)) => {
                entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// The value at a path.
    pub(super) fn at(&self, path: &[PathStep]) -> Option<&Self> {
        path.iter().try_fold(self, |tree, step| tree.get(step))
    }

    /// The value at a path, to change it.
    pub(super) fn at_mut(&mut self, path: &[PathStep]) -> Option<&mut Self> {
        path.iter().try_fold(self, |tree, step| match (tree, step) {
            (Self::List(items), PathStep::Index(index)) => items.get_mut(*index),
            (Self::Table(entries), PathStep::Key(key)) => {
                entries.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value)
            }
            _ => None,
        })
    }

    /// Takes an element out.
    pub(super) fn remove(&mut self, step: &PathStep) {
        match (self, step) {
            (Self::List(items), PathStep::Index(index)) => drop(items.remove(*index)),
            (Self::Table(entries), PathStep::Key(key)) => entries.retain(|(known, _)| known != key),
            _ => {}
        }
    }
}

impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Nothing,
            Value::Bool(value) => Self::Boolean(value),
            Value::Number(number) => match number.as_i128() {
                Some(whole) => Self::Integer(whole),
                None => number.as_f64().map_or(Self::Odd(TOO_LARGE), Self::Float),
            },
            Value::String(text) => Self::Text(text),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(entries) => Self::Table(entries.into_iter().map(|(key, it)| (key, it.into())).collect()),
        }
    }
}

impl From<&DeValue<'_>> for Tree {
    fn from(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.clone().into_owned()),
            DeValue::Integer(whole) => integer(whole),
            DeValue::Float(number) => float(number),
            DeValue::Boolean(value) => Self::Boolean(*value),
            DeValue::Datetime(_) => Self::Odd("a date"),
            DeValue::Array(items) => Self::List(items.iter().map(|item| item.get_ref().into()).collect()),
            DeValue::Table(table) => table.into(),
        }
    }
}

impl From<&DeTable<'_>> for Tree {
    fn from(table: &DeTable<'_>) -> Self {
        Self::Table(
            table.iter().map(|(key, value)| (key.get_ref().clone().into_owned(), value.get_ref().into())).collect(),
        )
    }
}

fn integer(whole: &DeInteger<'_>) -> Tree {
    let is_held = |whole: &i128| (i64::MIN.into()..=u64::MAX.into()).contains(whole);
    let read = i128::from_str_radix(whole.as_str(), whole.radix()).ok().filter(is_held);
    read.map_or(Tree::Odd(TOO_LARGE), Tree::Integer)
}

/// TOML's floats are Rust's, and only `inf` is infinite.
fn float(number: &DeFloat<'_>) -> Tree {
    let is_held = |read: &f64| read.is_finite() || !number.as_str().contains(|it: char| it.is_ascii_digit());
    number.as_str().parse().ok().filter(is_held).map_or(Tree::Odd(TOO_LARGE), Tree::Float)
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyTree)
    }
}

struct AnyTree;

impl<'de> Visitor<'de> for AnyTree {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Nothing)
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Boolean(value))
    }

    fn visit_i64<E: Error>(self, whole: i64) -> Result<Tree, E> {
        Ok(Tree::Integer(whole.into()))
    }

    fn visit_u64<E: Error>(self, whole: u64) -> Result<Tree, E> {
        Ok(Tree::Integer(whole.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Tree, E> {
        Ok(Tree::Float(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element()? {
            read.push(item);
        }
        Ok(Tree::List(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut read = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            read.push(entry);
        }
        Ok(Tree::Table(read))
    }
}
