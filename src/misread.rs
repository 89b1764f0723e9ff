//! Errors of settings in plain words: file, line and key, what is needed, what was found.
//!
//! **Unstable**: for the packages of this repository. Names and behaviour change with any version.
//!
//! serde tells it in words of Rust: `invalid type: string "ten", expected usize`.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, Result};
use crate::names;
use crate::{shown, thousands};

/// Problem of a value, with its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// The key that is not known, or not there; `None` where the message names none.
    pub key: Option<String>,
    /// Sentence whose subject is the key: `needs a number, but got "x"`.
    pub problem: String,
    /// Remedy, if the message has one.
    pub help: Option<String>,
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
];

/// Remedy for a path with `\`.
const PATH_HELP: &str = "write a path of Windows in single quotes, as in 'C:\\data\\a.csv', or with `/`";

/// Reads settings from the TOML of a file. Where nothing better is known, `help` helps.
///
/// # Errors
/// If the text is no TOML, or not that of a `T`: file, line and key, and what they need.
pub fn read<T: DeserializeOwned>(text: &str, file: &str, help: &str) -> Result<T> {
    check_paths(text, file)?;
    toml::from_str(text).map_err(|error| refuse(text, file, &error, help))
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

/// Position of layer `layer_idx` of the table `[model]`, or of that key of it.
pub fn layer_offset(text: &str, layer_idx: usize, key: Option<&str>) -> Option<usize> {
    let whole = DeTable::parse(text).ok()?;
    let layers = whole.get_ref().get("model")?.get_ref().get("layers")?.get_ref().as_array()?;
    let layer = layers.get(layer_idx)?;
    let keys = layer.get_ref().as_table()?;
    let key = key.and_then(|key| keys.keys().find(|known| known.get_ref() == key));
    // A table under its own header begins with it.
    Some(key.map_or(layer.span().start, |key| key.span().start))
}

/// Position of a key of a table of the file, if it is there.
pub fn key_offset(text: &str, table: &str, key: &str) -> Option<usize> {
    let whole = DeTable::parse(text).ok()?;
    let keys = whole.get_ref().get(table)?.get_ref().as_table()?;
    keys.keys().find(|known| known.get_ref() == key).map(|key| key.span().start)
}

fn refuse(text: &str, file: &str, error: &toml::de::Error, help: &str) -> Error {
    let message = error.message().lines().next().unwrap_or_default();
    let misread = explain(message);
    let is_missing = message.starts_with("missing field");
    // What is missing from the whole file stands in no line.
    let Some(span) = error.span().filter(|span| span.start > 0 || !is_missing) else {
        let help = misread.help.unwrap_or_else(|| help.to_owned());
        return Error::setting(format!("`{}`", shown(file)), misread.problem, help);
    };
    let begin = line_of_culprit(text, &span, message).unwrap_or(span.start);
    let line_start = text.get(..begin).unwrap_or(text).rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
    if is_syntax(message) && has_backslash(line) {
        let problem = "has a `\\` between double quotes, where it begins an escape such as `\\t`".to_owned();
        return at(
            text,
            file,
            line_start,
            &key_of(line),
            Misread { key: None, problem, help: Some(PATH_HELP.into()) },
            help,
        );
    }
    let what = match &misread.key {
        // The nearest place is the table that lacks it.
        Some(_) if is_missing => key_of(line),
        Some(key) => format!("key `{}`", shown(key)),
        None => key_of(line),
    };
    at(text, file, line_start, &what, misread, help)
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

/// Whether a message comes from the parser of TOML, and not from a reader of values.
fn is_syntax(message: &str) -> bool {
    explain(message).problem.starts_with("can't be read: ")
}

fn has_backslash(line: &str) -> bool {
    line.split('"').skip(1).step_by(2).any(|value| value.contains('\\'))
}

/// Refuses paths in which double quotes made a tab or a line end of `\t` and `\n`.
fn check_paths(text: &str, file: &str) -> Result<()> {
    let Ok(whole) = DeTable::parse(text) else { return Ok(()) };
    check_table(whole.get_ref(), text, file)
}

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
            let misread = Misread { key: None, problem, help: Some(PATH_HELP.into()) };
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

/// A message of serde in plain words.
///
/// ```
/// use manyhands::misread::explain;
/// let misread = explain("invalid type: string \"ten\", expected usize");
/// assert_eq!(misread.problem, "needs a whole number from 0 up, but got \"ten\"");
/// ```
pub fn explain(message: &str) -> Misread {
    let say = |key: Option<&str>, problem: String, help: Option<String>| Misread {
        key: key.map(String::from),
        problem,
        help,
    };
    let name = message.split('`').nth(1).unwrap_or_default();
    let expected = || names::expected(message).unwrap_or_default();
    if message.starts_with("unknown field ") {
        let elsewhere = ELSEWHERE.iter().find(|(key, _)| *key == name).map(|(_, help)| (*help).to_owned());
        let help = elsewhere.unwrap_or_else(|| names::help(name, "the keys are", &expected()));
        return say(Some(name), "is not known here".into(), Some(help));
    }
    if message.starts_with("unknown variant ") {
        let help = names::help(name, "the names are", &expected());
        return say(None, format!("needs a known name, but got `{}`", shown(name)), Some(help));
    }
    if message.starts_with("missing field ") {
        return say(Some(name), format!("needs `{name}`, but has none"), Some(format!("add `{name}`")));
    }
    if message.starts_with("duplicate field ") || message.starts_with("duplicate key") {
        return say(None, "appears twice".into(), Some("keep one of them".into()));
    }
    if message.starts_with("needs ") {
        return say(None, message.to_owned(), None);
    }
    // What an untagged enum expects is all that it tells.
    if message.starts_with("a ") || message.starts_with("an ") {
        return say(None, format!("needs {message}"), None);
    }
    let Some((got, expected)) = message
        .strip_prefix("invalid ")
        .and_then(|rest| rest.split_once(", expected "))
        .map(|(got, expected)| (got, expected.trim()))
    else {
        return say(None, format!("can't be read: {message}"), None);
    };
    say(None, format!("needs {}, but got {}", type_words(expected), value_words(got)), None)
}

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
        Some(("internally", _)) => "a table with a `type`".into(),
        _ => expected.to_owned(),
    }
}

/// The value and its kind: `integer 3` behind "type", `string "x"` behind "value", `length 3`.
fn value_words(got: &str) -> String {
    if let Some(length) = got.strip_prefix("length ") {
        return format!("{} of them", length.parse::<u64>().map_or(length.to_owned(), thousands));
    }
    let value = got.split_once(": ").map_or(got, |(_, value)| value);
    match value {
        "sequence" => return "a list".into(),
        "map" => return "a table".into(),
        // JSON, through which some settings go, has neither of the two.
        "null" => return "`nan`, `inf` or nothing".into(),
        "unit value" | "Option value" => return "nothing".into(),
        _ => {}
    }
    if let Some(text) = value.strip_prefix("string ") {
        return text.to_owned();
    }
    value.split('`').nth(1).map_or_else(|| value.to_owned(), str::to_owned)
}

/// Line of the value that a message is about, from a position on. Under a key `type`, only the message tells it.
fn line_of_culprit(text: &str, span: &Range<usize>, message: &str) -> Option<usize> {
    let culprit = culprit(message)?;
    let mut start = span.start;
    text.get(span.start..)?.split_inclusive('\n').find_map(|line| {
        let begin = start;
        start += line.len();
        culprit.is_in(line).then_some(begin)
    })
}

/// Subject of a message.
enum Culprit<'a> {
    Key(&'a str),
    Value(String),
}

fn culprit(message: &str) -> Option<Culprit<'_>> {
    let quoted = |text: &'_ str| -> Option<(usize, usize)> {
        let begin = text.find('`')? + 1;
        Some((begin, begin + text[begin..].find('`')?))
    };
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return quoted(rest).map(|(begin, end)| Culprit::Key(&rest[begin..end]));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return quoted(rest).map(|(begin, end)| Culprit::Value(format!("\"{}\"", &rest[begin..end])));
    }
    let rest = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "))?;
    let value = rest.split(", expected").next()?;
    if let Some(text) = value.strip_prefix("string ") {
        return Some(Culprit::Value(text.to_owned()));
    }
    quoted(value).map(|(begin, end)| Culprit::Value(value[begin..end].to_owned()))
}

impl Culprit<'_> {
    fn is_in(&self, line: &str) -> bool {
        match self {
            Self::Key(key) => {
                let name = line.trim_start().trim_start_matches('[').trim_end().trim_end_matches(']');
                name.split('=').next().is_some_and(|name| name.trim() == *key)
            }
            Self::Value(value) => {
                line.split_once('=').is_some_and(|(_, rest)| rest.trim_start().starts_with(value.as_str()))
            }
        }
    }
}
