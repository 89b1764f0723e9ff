//! Errors of settings in plain words: file, line and key, what is needed, what was found.
//!
//! **Unstable**: for the packages of this repository. Names and behaviour change with any version.
//!
//! `reading` has them as data: serde's own words are those of Rust.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use crate::error::{Error, Result};
use crate::names;
use crate::reading::{self, Found, PathStep, ReadError, ReadReason, Tree};
use crate::{shown, thousands};

/// Problem of a value, with its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// Keys and indices that lead to the value.
    pub path: Vec<PathStep>,
    /// Sentence whose subject is the value: `needs a number, but got "x"`.
    pub problem: String,
    /// Remedy, if one is known.
    pub help: Option<String>,
}

impl Misread {
    /// The last key of the path.
    pub fn key(&self) -> Option<&str> {
        self.path.iter().rev().find_map(|step| match step {
            PathStep::Key(key) => Some(key.as_str()),
            PathStep::Index(_) => None,
        })
    }
}

/// Keys whose values are paths.
const PATHS: [&str; 9] =
    ["train", "test", "folder", "train_images", "train_labels", "test_images", "test_labels", "model", "file"];

/// Keys that Keras has, but with another meaning, and what to write in their place.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "gradient_accumulation_steps",
        "Keras updates after so many batches; here one batch is computed in parts: for Keras' 4 steps of 32 rows write \
         `batch_size = 128` and `micro_batches = 4`",
    ),
    ("global_clipnorm", "write `clip_norm` in `[training]`"),
    ("gradient_checkpointing", "write `recompute = true` in `[training]`"),
];

/// Remedy for a path with `\`.
const PATH_HELP: &str = "write a path of Windows in single quotes, as in 'C:\\data\\a.csv', or with `/`";

/// Reads settings from the TOML of a file. Where nothing better is known, `help` helps.
///
/// # Errors
/// If the text is no TOML, or not that of a `T`: file, line and key, and what they need.
pub fn read<T: DeserializeOwned>(text: &str, file: &str, help: &str) -> Result<T> {
    let document = DeTable::parse(text).map_err(|error| refuse_text(text, file, &error, help))?;
    check_table(document.get_ref(), text, file)?;
    let read = reading::read(&Tree::from(document.get_ref()));
    read.map_err(|error| refuse(text, file, document.get_ref(), &error, help))
}

/// Reads what a program has written to a file as JSON.
///
/// # Errors
/// As [`read`].
pub fn read_json<T: DeserializeOwned>(text: &str, file: &str, help: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        let tree = serde_json::from_str::<Tree>(text);
        let Some(refused) = tree.ok().and_then(|tree| reading::read::<T>(&tree).err()) else {
            return Error::setting(format!("`{}`", shown(file)), format!("can't be read: {error}"), help);
        };
        let misread = explain(&refused);
        let key = misread.key().map_or(String::new(), |key| format!(" key `{}`,", shown(key)));
        let who = format!("`{}`, line {},{key}", shown(file), error.line());
        Error::setting(who, misread.problem, misread.help.unwrap_or_else(|| help.to_owned()))
    })
}

/// The error of a place in a file: the line of `offset`, and what stands there.
pub fn at(text: &str, file: &str, offset: usize, what: &str, misread: Misread, help: &str) -> Error {
    let number = line(text, offset);
    let help = misread.help.unwrap_or_else(|| help.to_owned());
    Error::setting(format!("`{}`, line {number}, {what},", shown(file)), misread.problem, help)
}

/// The number of the line that a place is in.
pub fn line(text: &str, offset: usize) -> usize {
    text.get(..offset).unwrap_or(text).matches('\n').count() + 1
}

/// Position of the value at a path, if it is there: of its key, its header, or in a list its own.
pub fn offset(text: &str, path: &[PathStep]) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    place(text, document.get_ref(), path).filter(|place| place.steps == path.len()).map(|place| place.offset)
}

/// Place of a value in the text of a file.
struct Place {
    offset: usize,
    /// Steps of the path that are there.
    steps: usize,
    /// The table under a header, or the key: ``table `a.b` ``.
    what: String,
}

/// The place that a path leads to, as far as it goes.
fn place(text: &str, document: &DeTable<'_>, path: &[PathStep]) -> Option<Place> {
    let (mut found, mut table, mut list) = (None, Some(document), None);
    let mut keys = Vec::new();
    for (step, steps) in path.iter().zip(1..) {
        let (offset, value) = match step {
            PathStep::Key(name) => {
                let Some((key, value)) = table.and_then(|table| entry(table, name)) else { break };
                keys.push(name.as_str());
                (key.span().start, value)
            }
            PathStep::Index(index) => {
                let Some(value) = list.and_then(|list: &DeArray<'_>| list.get(*index)) else { break };
                (value.span().start, value)
            }
        };
        (table, list) = (value.get_ref().as_table(), value.get_ref().as_array());
        let begin = value.span().start;
        let has_header = table.is_some() && text.get(begin..).is_some_and(|rest| rest.starts_with('['));
        found = Some(match has_header {
            true => Place { offset: begin, steps, what: format!("table `{}`", shown(&keys.join("."))) },
            false => Place { offset, steps, what: format!("key `{}`", shown(keys.last().unwrap_or(&""))) },
        });
    }
    found
}

fn entry<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<(&'a Spanned<DeString<'i>>, &'a Spanned<DeValue<'i>>)> {
    table.iter().find(|(key, _)| key.get_ref() == name)
}

/// The error of a value.
fn refuse(text: &str, file: &str, document: &DeTable<'_>, error: &ReadError, help: &str) -> Error {
    let misread = explain(error);
    let Some(Place { offset, what, .. }) = place(text, document, &misread.path) else {
        let help = misread.help.unwrap_or_else(|| help.to_owned());
        return Error::setting(format!("`{}`", shown(file)), misread.problem, help);
    };
    let what = match &error.reason {
        ReadReason::UnknownField { name, .. } => format!("key `{}`", shown(name)),
        _ => what,
    };
    at(text, file, offset, &what, misread, help)
}

/// The error of a text that is no TOML.
fn refuse_text(text: &str, file: &str, error: &toml::de::Error, help: &str) -> Error {
    let span = error.span().unwrap_or_default();
    let start = text.get(..span.start).unwrap_or(text).rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
    let say = |problem: String, help: Option<String>| Misread { path: Vec::new(), problem, help };
    let misread = if has_backslash(line) {
        let problem = "has a `\\` between double quotes, where it begins an escape such as `\\t`";
        say(problem.into(), Some(PATH_HELP.into()))
    } else if is_repeated(text, &span) {
        say("appears twice".into(), Some("keep one of them".into()))
    } else {
        say(format!("can't be read: {}", error.message().lines().next().unwrap_or_default()), None)
    };
    at(text, file, start, &key_of(line), misread, help)
}

/// Whether an error is about a key that the text has before.
fn is_repeated(text: &str, span: &Range<usize>) -> bool {
    let rest = text.get(span.end..).unwrap_or_default().trim_start();
    let name = text.get(span.clone()).filter(|name| !name.is_empty() && rest.starts_with(['=', '.', ']']));
    name.is_some_and(|name| has_before(&DeTable::parse_recoverable(text).0.into_inner(), text, name, span.start))
}

fn has_before(table: &DeTable<'_>, text: &str, name: &str, end: usize) -> bool {
    table.iter().any(|(key, value)| {
        let is_it = key.span().start < end && text.get(key.span()) == Some(name);
        is_it || value.get_ref().as_table().is_some_and(|inner| has_before(inner, text, name, end))
    })
}

/// The key, or the table, that a line begins with.
fn key_of(line: &str) -> String {
    let line = line.trim();
    match line.strip_prefix('[') {
        Some(table) => {
            format!("table `{}`", shown(table.split(']').next().unwrap_or_default().trim_matches(['[', ' '])))
        }
        None => format!("key `{}`", shown(line.split('=').next().unwrap_or_default().trim())),
    }
}

fn has_backslash(line: &str) -> bool {
    line.split('"').skip(1).step_by(2).any(|value| value.contains('\\'))
}

/// Refuses paths in which double quotes made a tab or a line end of `\t` and `\n`.
fn check_table(table: &DeTable<'_>, text: &str, file: &str) -> Result<()> {
    for (key, value) in table {
        check_value(key.get_ref(), value, text, file)?;
    }
    Ok(())
}

fn check_value(key: &str, value: &Spanned<DeValue<'_>>, text: &str, file: &str) -> Result<()> {
    match value.get_ref() {
        DeValue::Table(table) => check_table(table, text, file),
        DeValue::Array(values) => values.iter().try_for_each(|value| check_value(key, value, text, file)),
        DeValue::String(path) => {
            let written = text.get(value.span()).unwrap_or_default();
            let is_path = PATHS.contains(&key) || written.get(1..).is_some_and(has_drive);
            if !(is_path && written.starts_with('"') && path.contains(char::is_control)) {
                return Ok(());
            }
            let character = path.chars().find(|character| character.is_control()).unwrap_or_default();
            let escape = character.escape_default();
            let problem = format!("needs a path, but `{escape}` between double quotes is a control character");
            let misread = Misread { path: Vec::new(), problem, help: Some(PATH_HELP.into()) };
            Err(at(text, file, value.span().start, &format!("key `{}`", shown(key)), misread, ""))
        }
        _ => Ok(()),
    }
}

/// Whether a path has a drive, `C:\`.
fn has_drive(path: &str) -> bool {
    let mut characters = path.chars();
    characters.next().is_some_and(|drive| drive.is_ascii_alphabetic()) && characters.as_str().starts_with(":\\")
}

/// An error of reading in plain words.
///
/// ```
/// use manyhands::misread::explain;
/// use manyhands::reading::read;
/// let error = read::<usize>(&serde_json::json!("ten").into()).unwrap_err();
/// assert_eq!(explain(&error).problem, "needs a whole number from 0 up, but got \"ten\"");
/// ```
pub fn explain(error: &ReadError) -> Misread {
    let (problem, help) = match &error.reason {
        ReadReason::Type { found, needed } | ReadReason::Value { found, needed } => {
            (format!("needs {}, but got {}", type_words(needed), value_words(found)), None)
        }
        ReadReason::Length { found, needed } => {
            (format!("needs {}, but got {} of them", type_words(needed), thousands(*found as u64)), None)
        }
        ReadReason::UnknownField { name, known } => {
            let elsewhere = ELSEWHERE.iter().find(|(key, _)| key == name).map(|(_, help)| (*help).to_owned());
            let help = elsewhere.unwrap_or_else(|| names::help(name, "the keys are", known));
            ("is not known here".into(), Some(help))
        }
        ReadReason::UnknownVariant { name, known } => {
            let help = names::help(name, "the names are", known);
            (format!("needs a known name, but got `{}`", shown(name)), Some(help))
        }
        ReadReason::MissingField(name) => (format!("needs `{name}`, but has none"), Some(format!("add `{name}`"))),
        ReadReason::DuplicateField(_) => ("appears twice".into(), Some("keep one of them".into())),
        // Our own types say what they need.
        ReadReason::Custom(problem) if problem.starts_with("needs ") => (problem.clone(), None),
        ReadReason::Custom(problem) => (format!("can't be read: {problem}"), None),
    };
    let mut path = error.path.clone();
    if let ReadReason::UnknownField { name, .. } = &error.reason
        && path.last() != Some(&PathStep::Key(name.clone()))
    {
        path.push(PathStep::Key(name.clone()));
    }
    Misread { path, problem, help }
}

/// A type in plain words, by serde's name of it.
fn type_words(expected: &str) -> String {
    let words = match expected {
        "u64" | "usize" => "a whole number from 0 up",
        "u32" => "a whole number from 0 to 4,294,967,295",
        "u8" => "a whole number from 0 to 255",
        "i64" | "i32" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "`true` or `false`",
        "a string" | "str" | "string" => "text in quotes",
        "path string" => "a path in quotes",
        "char" | "a character" => "one character in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        "any valid JSON value" => "text, a number, `true` or `false`, a list or a table",
        "a pair" => "a whole number from 0 up, or a list of 2 of them",
        _ => "",
    };
    if !words.is_empty() {
        return words.into();
    }
    if let Some(length) = expected.strip_prefix("an array of length ") {
        return format!("a list of {length} values");
    }
    match expected.split_once(' ') {
        Some(("struct", _)) => "a table".into(),
        Some(("enum", _)) => "a name in quotes".into(),
        Some(("internally", _)) => "a table with a `type`".into(),
        _ => expected.to_owned(),
    }
}

/// A value, or its kind.
fn value_words(found: &Found) -> String {
    match found {
        Found::Boolean(value) => value.to_string(),
        Found::Unsigned(whole) => whole.to_string(),
        Found::Signed(whole) => whole.to_string(),
        Found::Float(number) if number.is_nan() => "nan".into(),
        Found::Float(number) => format!("{number:?}"),
        Found::Text(text) => format!("{text:?}"),
        // JSON, through which some settings go, has neither of the two.
        Found::Nothing => "`nan`, `inf` or nothing".into(),
        Found::List => "a list".into(),
        Found::Table => "a table".into(),
        Found::Other(words) => words.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn mistakes_in_json_are_named_by_line_and_key() {
        let refused = |text: &str| {
            let read = read_json::<BTreeMap<String, usize>>(text, "a.json", "write it again");
            read.err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(refused("{\"epochs\": 3}"), "");
        assert_eq!(
            refused("{\n  \"epochs\": \"x\"\n}"),
            "`a.json`, line 2, key `epochs`, needs a whole number from 0 up, but got \"x\"\n  help: write it again"
        );
        assert!(refused("3").starts_with("`a.json`, line 1, needs a table, but got 3"), "{}", refused("3"));
        assert!(refused("{\n").starts_with("`a.json` can't be read: "), "{}", refused("{\n"));
    }
}
