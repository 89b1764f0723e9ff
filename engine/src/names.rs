//! Names in settings, however they are written: `ReLU` is `relu`, `mse` is `MeanSquaredError`; and what was meant by one
//! that nothing has.

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::{Deserialize, Deserializer};

use crate::reading::{ReadError, Tree};
use crate::shown::shown;

/// Short names of Keras, in plain form, and what they stand for.
const SHORT: &[(&str, &str)] = &[
    ("acc", "accuracy"),
    ("sparsecategoricalaccuracy", "accuracy"),
    ("hardswish", "hardsilu"),
    ("lr", "learningrate"),
    ("kld", "kldivergence"),
    ("mae", "meanabsoluteerror"),
    ("mse", "meansquarederror"),
    ("rmse", "rootmeansquarederror"),
    ("swish", "silu"),
];

/// Least similarity of a name and a suggestion, from 0 to 1.
const ALIKE: f64 = 0.6;

/// A name without spaces and signs of ASCII, in lower case. Known names are ASCII: a page needs no tables of Unicode.
fn plain(name: &str) -> String {
    let is_kept = |character: &char| character.is_ascii_alphanumeric() || !character.is_ascii();
    name.chars().filter(is_kept).map(|character| character.to_ascii_lowercase()).collect()
}

/// The known name that is written here: the same, or the only one of the same letters and digits in any case, or the one
/// that a short name of Keras stands for.
///
/// ```
/// use manyhands_engine::names::known;
/// assert_eq!(known("ReLU", &["linear", "relu"]), Some("relu"));
/// assert_eq!(known("mse", &["MeanSquaredError"]), Some("MeanSquaredError"));
/// assert_eq!(known("sine", &["linear", "relu"]), None);
/// ```
pub fn known<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    if let Some(same) = names.iter().find(|known| **known == name) {
        return Some(same);
    }
    let written = plain(name);
    let only = |written: &str| {
        let mut found = names.iter().filter(|known| plain(known) == written);
        found.next().filter(|_| found.next().is_none()).copied()
    };
    let long = || SHORT.iter().find(|(short, _)| *short == written).map(|(_, long)| *long);
    only(&written).or_else(|| only(long()?))
}

/// The known name that is most like this one, if it may be what was meant.
///
/// ```
/// use manyhands_engine::names::nearest;
/// assert_eq!(nearest("batchsize", &["epochs", "batch_size"]), Some("batch_size"));
/// assert_eq!(nearest("x", &["epochs", "batch_size"]), None);
/// ```
pub fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let written = plain(name);
    let likeness = |known: &str| {
        let known = plain(known);
        if SHORT.contains(&(written.as_str(), known.as_str())) {
            return 1.0;
        }
        // Who cuts a name short means it as surely as who mistypes it.
        let is_cut = written.len() >= 3 && known.starts_with(&written);
        strsim::normalized_damerau_levenshtein(&written, &known).max(if is_cut { ALIKE } else { 0.0 })
    };
    // The first of those that are alike as much.
    let best = names.iter().rev().map(|known| (likeness(known), *known)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, known)| known)
}

/// Beginning of a help for an unknown name: `did you mean …? `, or nothing.
pub fn meant(name: &str, names: &[&str]) -> String {
    nearest(name, names).map_or(String::new(), |nearest| format!("did you mean `{}`? ", shown(nearest)))
}

/// Help for an unknown name: `did you mean …?`, and all known names.
///
/// `what` says what the names are: `the types are`.
pub fn help(name: &str, what: &str, names: &[&str]) -> String {
    let all = names.iter().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ");
    match (nearest(name, names), names) {
        (_, []) => "leave it out".into(),
        (Some(nearest), [_]) => format!("did you mean `{nearest}`?"),
        _ => format!("{}{what}: {all}", meant(name, names)),
    }
}

/// Reads an enum whose variants have no fields, by any writing of a name that [`known`] knows.
///
/// # Errors
/// If the value is no name, or none of the enum's.
pub fn read<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let name = String::deserialize(deserializer)?;
    let by_name = |name: &str| {
        let name: StrDeserializer<'_, ReadError> = name.into_deserializer();
        T::deserialize(name)
    };
    let read = by_name(&name).or_else(|error| match known(&name, error.known_variants(&name)) {
        Some(known) => by_name(known),
        None => Err(error),
    });
    read.map_err(ReadError::raise)
}

/// Reads what is chosen by its `type`, by any writing of it that [`known`] knows. A name alone stands for a table with no
/// other key: `"adam"`.
///
/// # Errors
/// If the value can't be read as `T`.
pub fn read_type<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    by_type(Tree::deserialize(deserializer)?).map_err(ReadError::raise)
}

fn by_type<T: DeserializeOwned>(tree: Tree) -> Result<T, ReadError> {
    let mut table = match tree {
        Tree::Text(kind) => Tree::Table(vec![("type".to_owned(), Tree::Text(kind))]),
        other => other,
    };
    let error = match T::deserialize(&table) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let kind = match &mut table {
        Tree::Table(entries) => entries.iter_mut().find(|(key, _)| key == "type").map(|(_, kind)| kind),
        _ => None,
    };
    let Some(Tree::Text(kind)) = kind else { return Err(error) };
    let Some(known) = known(kind, error.known_variants(kind)) else { return Err(error) };
    *kind = known.to_owned();
    T::deserialize(&table)
}

/// Like [`read_type`], for a setting that may be left out.
///
/// # Errors
/// As [`read_type`].
pub fn read_optional_type<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    read_type(deserializer).map(Some)
}

/// Like [`read_type`], for a list.
///
/// # Errors
/// As [`read_type`].
pub fn read_types<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let values = Vec::<Tree>::deserialize(deserializer)?;
    let read: Result<Vec<T>, _> = values.into_iter().map(by_type).collect();
    read.map_err(ReadError::raise)
}

/// Like [`read_types`], for a setting that may be left out.
///
/// # Errors
/// As [`read_type`].
pub fn read_optional_types<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    read_types(deserializer).map(Some)
}

/// Reads an enum that is a name, or a table with a name as its only key, by any writing of it that [`known`] knows.
///
/// # Errors
/// If the value can't be read as `T`.
pub fn read_variant<T: DeserializeOwned>(mut tree: Tree) -> Result<T, ReadError> {
    let error = match T::deserialize(&tree) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let name = match &mut tree {
        Tree::Text(name) => name,
        Tree::Table(entries) if entries.len() == 1 => &mut entries[0].0,
        _ => return Err(error),
    };
    let Some(known) = known(name, error.known_variants(name)) else { return Err(error) };
    *name = known.to_owned();
    T::deserialize(&tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Activation {
        Gelu,
        LeakyRelu,
    }

    #[test]
    fn a_name_is_known_however_it_is_written() {
        let names = ["relu", "leaky_relu", "MeanAbsoluteError", "accuracy"];
        for (written, expected) in [
            ("relu", Some("relu")),
            ("ReLU", Some("relu")),
            ("LeakyReLU", Some("leaky_relu")),
            ("leaky-relu", Some("leaky_relu")),
            ("mae", Some("MeanAbsoluteError")),
            ("mean_absolute_error", Some("MeanAbsoluteError")),
            ("acc", Some("accuracy")),
            ("mse", None),
            ("rel", None),
        ] {
            assert_eq!(known(written, &names), expected, "{written}");
        }
        // The same letters come before what a short name stands for.
        assert_eq!(known("CategoricalAccuracy", &["accuracy", "categorical_accuracy"]), Some("categorical_accuracy"));
        assert_eq!(known("SparseCategoricalAccuracy", &["accuracy", "categorical_accuracy"]), Some("accuracy"));
        assert_eq!(known("A_b", &["ab", "AB"]), None, "it may mean either");
        assert_eq!(known("AB", &["ab", "AB"]), Some("AB"));
    }

    #[test]
    fn the_nearest_name_is_proposed() {
        let names = ["Conv2D", "Concatenate", "MaxPooling2D", "learning_rate"];
        for (written, expected) in [
            ("Conv", Some("Conv2D")),
            ("Conv2d_", Some("Conv2D")),
            ("MaxPool2D", Some("MaxPooling2D")),
            ("learningrate", Some("learning_rate")),
            ("lr", Some("learning_rate")),
            ("leraning_rate", Some("learning_rate")),
            ("Attention", None),
        ] {
            assert_eq!(nearest(written, &names), expected, "{written}");
        }
    }

    #[test]
    fn an_enum_is_read_by_any_writing() {
        let read_activation = |text: &str| {
            let text: StrDeserializer<'_, serde_json::Error> = text.into_deserializer();
            read::<_, Activation>(text).map_err(|error| error.to_string())
        };
        assert_eq!(read_activation("GELU"), Ok(Activation::Gelu));
        assert_eq!(read_activation("leaky_relu"), Ok(Activation::LeakyRelu));
        let error = read_activation("swish").unwrap_err();
        assert!(error.starts_with("unknown variant `swish`, expected `gelu` or `leaky_relu`"), "{error}");
    }
}
