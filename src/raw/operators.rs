//! Operators that columns, dates and outputs share.

use std::collections::BTreeSet;

use crate::onnx::{Attribute, Form, Value};

/// A value as another type.
pub(super) fn cast(form: &mut Form<'_>, value: &Value, kind: i64) -> Value {
    form.op("Cast", &[value], &[("to", Attribute::Int(kind))])
}

/// Values behind each other in a row.
pub(super) fn concat(form: &mut Form<'_>, values: &[Value]) -> Value {
    match values {
        [one] => one.clone(),
        _ => form.op("Concat", &values.iter().collect::<Vec<_>>(), &[("axis", Attribute::Int(1))]),
    }
}

/// The number of each field, by a table of fields; of equal ones, the first counts. Fields are also known with a blank in front,
/// behind, or both: our reader takes blanks away, others keep them.
pub(super) fn look_up(
    form: &mut Form<'_>,
    fields: &Value,
    known: impl IntoIterator<Item = (String, i64)>,
    other: i64,
) -> Value {
    let (mut met, mut keys, mut values) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (field, value) in known.into_iter().flat_map(|(field, value)| with_blanks(field).map(|field| (field, value))) {
        if met.insert(field.clone()) {
            keys.push(field);
            values.push(value);
        }
    }
    let attributes = [
        ("keys_strings", Attribute::Names(keys)),
        ("values_int64s", Attribute::Ints(values)),
        ("default_int64", Attribute::Int(other)),
    ];
    form.op("LabelEncoder", &[fields], &attributes)
}

/// A field as it may stand between delimiters. More blanks than one have no end; the file's metadata say that they are to be taken away.
fn with_blanks(field: String) -> [String; 4] {
    [format!(" {field}"), format!("{field} "), format!(" {field} "), field]
}

/// A word of ASCII letters, each of them in upper and lower case.
pub(super) fn in_any_case(word: &str) -> impl Iterator<Item = String> {
    let letters: Vec<char> = word.chars().collect();
    let cased = |letter: char, upper: usize| match upper & 1 {
        1 => letter.to_ascii_uppercase(),
        _ => letter.to_ascii_lowercase(),
    };
    (0..1_usize << letters.len())
        .map(move |upper| letters.iter().enumerate().map(|(at, letter)| cased(*letter, upper >> at)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_on_either_side_is_no_other_field() {
        assert_eq!(with_blanks("a b".into()), [" a b", "a b ", " a b ", "a b"]);
    }
}
