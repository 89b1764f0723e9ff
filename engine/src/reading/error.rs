//! The error of a value that can't be read.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use serde::de::{self, Expected, Unexpected};

/// Step of a path from a value to one within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// To the value of a key.
    Key(String),
    /// To an element of a list, counted from 0.
    Index(usize),
}

impl From<&str> for PathStep {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for PathStep {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl Display for PathStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => f.write_str(key),
            Self::Index(index) => index.fmt(f),
        }
    }
}

/// Value in place of the needed one: [`Unexpected`], without a lifetime.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number from 0 up.
    Unsigned(u64),
    /// A whole number below 0.
    Signed(i64),
    /// Another number.
    Float(f64),
    /// Text.
    Text(String),
    /// Nothing, JSON's `null`.
    Nothing,
    /// A list.
    List,
    /// A table.
    Table,
    /// In serde's words, or ours: `a date`.
    Other(String),
}

impl From<Unexpected<'_>> for Found {
    fn from(unexpected: Unexpected<'_>) -> Self {
        match unexpected {
            Unexpected::Bool(value) => Self::Boolean(value),
            Unexpected::Unsigned(value) => Self::Unsigned(value),
            Unexpected::Signed(value) => Self::Signed(value),
            Unexpected::Float(value) => Self::Float(value),
            Unexpected::Str(text) => Self::Text(text.to_owned()),
            Unexpected::Unit => Self::Nothing,
            Unexpected::Seq => Self::List,
            Unexpected::Map => Self::Table,
            Unexpected::Other(words) => Self::Other(words.to_owned()),
            other => Self::Other(other.to_string()),
        }
    }
}

impl Found {
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Boolean(value) => Unexpected::Bool(*value),
            Self::Unsigned(value) => Unexpected::Unsigned(*value),
            Self::Signed(value) => Unexpected::Signed(*value),
            Self::Float(value) => Unexpected::Float(*value),
            Self::Text(text) => Unexpected::Str(text),
            Self::Nothing => Unexpected::Unit,
            Self::List => Unexpected::Seq,
            Self::Table => Unexpected::Map,
            Self::Other(words) => Unexpected::Other(words),
        }
    }
}

/// Names that are known: those of an enum or a struct, or of the kinds that a caller has.
pub type KnownNames = Cow<'static, [&'static str]>;

/// Problem of a value, as serde tells it.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadReason {
    /// Another type is needed, by serde's name of it: `usize`, `a map`.
    Type {
        /// Value in its place.
        found: Found,
        /// Name of the type.
        needed: String,
    },
    /// The type is right, but not the value.
    Value {
        /// Value in its place.
        found: Found,
        /// Name of what is needed.
        needed: String,
    },
    /// Another number of elements is needed.
    Length {
        /// Number of elements in their place.
        found: usize,
        /// Name of what is needed.
        needed: String,
    },
    /// An enum, or a table of kinds, has no such name.
    UnknownVariant {
        /// Name that is not known.
        name: String,
        /// Names that are.
        known: KnownNames,
    },
    /// A table can't have this key.
    UnknownField {
        /// Name that is not known.
        name: String,
        /// Names that are.
        known: KnownNames,
    },
    /// A table lacks this key.
    MissingField(&'static str),
    /// A table has this key twice.
    DuplicateField(&'static str),
    /// In words of the type that was read.
    Custom(String),
}

/// Error of a value that can't be read: its problem, and the place.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadError {
    /// Problem of the value.
    pub reason: ReadReason,
    /// Keys and indices that lead to the value.
    pub path: Vec<PathStep>,
}

impl From<ReadReason> for ReadError {
    fn from(reason: ReadReason) -> Self {
        Self { reason, path: Vec::new() }
    }
}

/// A problem in words of the type that was read.
impl From<String> for ReadError {
    fn from(problem: String) -> Self {
        ReadReason::Custom(problem).into()
    }
}

impl ReadError {
    /// The error of a value, as one of the table or list that it stands in.
    #[must_use]
    pub fn within(mut self, step: PathStep) -> Self {
        self.path.insert(0, step);
        self
    }

    /// The names to choose from, where another one was written.
    pub fn known_variants(&self, written: &str) -> &[&'static str] {
        match &self.reason {
            ReadReason::UnknownVariant { name, known } if name == written => known,
            _ => &[],
        }
    }

    /// The problem as an error of another reader, which adds the path that it knows.
    pub fn raise<E: de::Error>(self) -> E {
        match self.reason {
            ReadReason::Type { found, needed } => E::invalid_type(found.unexpected(), &needed.as_str()),
            ReadReason::Value { found, needed } => E::invalid_value(found.unexpected(), &needed.as_str()),
            ReadReason::Length { found, needed } => E::invalid_length(found, &needed.as_str()),
            ReadReason::UnknownVariant { name, known: Cow::Borrowed(known) } => E::unknown_variant(&name, known),
            ReadReason::UnknownField { name, known: Cow::Borrowed(known) } => E::unknown_field(&name, known),
            ReadReason::MissingField(name) => E::missing_field(name),
            ReadReason::DuplicateField(name) => E::duplicate_field(name),
            ReadReason::Custom(problem) => E::custom(problem),
            other => E::custom(other),
        }
    }
}

impl de::Error for ReadError {
    fn custom<T: Display>(problem: T) -> Self {
        problem.to_string().into()
    }

    fn invalid_type(found: Unexpected<'_>, needed: &dyn Expected) -> Self {
        ReadReason::Type { found: found.into(), needed: needed.to_string() }.into()
    }

    fn invalid_value(found: Unexpected<'_>, needed: &dyn Expected) -> Self {
        ReadReason::Value { found: found.into(), needed: needed.to_string() }.into()
    }

    fn invalid_length(found: usize, needed: &dyn Expected) -> Self {
        ReadReason::Length { found, needed: needed.to_string() }.into()
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        ReadReason::UnknownVariant { name: name.to_owned(), known: Cow::Borrowed(known) }.into()
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        ReadReason::UnknownField { name: name.to_owned(), known: Cow::Borrowed(known) }.into()
    }

    fn missing_field(name: &'static str) -> Self {
        ReadReason::MissingField(name).into()
    }

    fn duplicate_field(name: &'static str) -> Self {
        ReadReason::DuplicateField(name).into()
    }
}

impl std::error::Error for ReadError {}

impl Display for ReadError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)?;
        match &self.path[..] {
            [] => Ok(()),
            path => write!(f, " (at `{}`)", path.iter().map(ToString::to_string).collect::<Vec<_>>().join(".")),
        }
    }
}

impl Display for ReadReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all = |known: &[&str]| known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match self {
            Self::Type { found, needed } => write!(f, "invalid type: {}, expected {needed}", found.unexpected()),
            Self::Value { found, needed } => write!(f, "invalid value: {}, expected {needed}", found.unexpected()),
            Self::Length { found, needed } => write!(f, "invalid length {found}, expected {needed}"),
            Self::UnknownVariant { name, known } => {
                write!(f, "unknown variant `{name}`, expected one of {}", all(known))
            }
            Self::UnknownField { name, known } => write!(f, "unknown field `{name}`, expected one of {}", all(known)),
            Self::MissingField(name) => write!(f, "missing field `{name}`"),
            Self::DuplicateField(name) => write!(f, "duplicate field `{name}`"),
            Self::Custom(problem) => f.write_str(problem),
        }
    }
}
