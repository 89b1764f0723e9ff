//! Fields that would be numbers with the other decimal sign, or without their unit, and words among numbers.

use std::collections::BTreeSet;

use super::dialect::Dialect;
use super::numerals::{other, plain};

/// Different words among numbers that may stand for missing ones, at most.
const MOST_WORDS: usize = 3;
/// Most characters of a unit.
const MOST_OF_UNIT: usize = 8;

/// Fields of a column that are nearly numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct NearlyNumbers {
    /// Fields that are numbers with the other decimal sign alone.
    pub of_other_sign: Alike,
    /// Fields that are numbers with the unit of the first.
    pub with_unit: Alike,
    /// Different fields that are no numbers, up to one more than [`MOST_WORDS`].
    words: BTreeSet<String>,
    /// The characters before and behind the first number.
    unit: Option<[String; 2]>,
}

/// Fields of one kind: their number, and the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Alike {
    pub count: usize,
    pub example: Option<String>,
}

impl Alike {
    fn add(&mut self, field: &str) {
        self.count += 1;
        self.example.get_or_insert_with(|| field.to_owned());
    }
}

impl NearlyNumbers {
    /// A field that is no number, where all of these are a few words, such as `k.A.` and `n.a.`
    pub fn word(&self) -> Option<&str> {
        let are_words = self.words.len() <= MOST_WORDS && self.of_other_sign.count + self.with_unit.count == 0;
        self.words.first().filter(|_| are_words).map(String::as_str)
    }

    /// Counts a field that is no number.
    pub fn add(&mut self, field: &str, dialect: &Dialect) {
        if self.words.len() <= MOST_WORDS && !self.words.contains(field) {
            self.words.insert(field.to_owned());
        }
        let is_numeral = field.starts_with(|it: char| it.is_ascii_digit() || "+-.,".contains(it));
        if is_numeral && plain(field, other(dialect.decimal)).is_some() {
            self.of_other_sign.add(field);
            return;
        }
        let Some((before, number, behind)) = parts(field) else { return };
        let unit = self.unit.get_or_insert_with(|| [before.to_owned(), behind.to_owned()]);
        let is_number = [dialect.decimal, other(dialect.decimal)].iter().any(|sign| plain(number, *sign).is_some());
        if is_number && unit[0] == before && unit[1] == behind {
            self.with_unit.add(field);
        }
    }
}

/// A unit before a number, the number, and a unit behind it: `$ 1,234`, `12 %`, `(12)`. Letters at a number's start, as in `A12`, are a
/// code's.
fn parts(field: &str) -> Option<(&str, &str, &str)> {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let (start, end) = (field.find(is_digit)?, field.rfind(is_digit)? + 1);
    let (before, number, behind) = (&field[..start], &field[start..end], &field[end..]);
    let is_code = before.ends_with(char::is_alphanumeric);
    let [before, behind] = [before, behind].map(|unit| unit.trim_matches(['+', '-', ' ', '\u{a0}', '\u{202f}']));
    let is_unit = |unit: &str| unit.chars().count() <= MOST_OF_UNIT;
    let has_unit = !before.is_empty() || !behind.is_empty();
    (has_unit && !is_code && is_unit(before) && is_unit(behind)).then_some((before, number, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_stand_before_and_behind() {
        for (field, needed) in [
            ("$1,234", Some(("$", "1,234", ""))),
            ("CHF 1'234.50", Some(("CHF", "1'234.50", ""))),
            ("-4,5 €", Some(("", "4,5", "€"))),
            ("12\u{a0}%", Some(("", "12", "%"))),
            ("3kg", Some(("", "3", "kg"))),
            ("(7)", Some(("(", "7", ")"))),
            ("A12", None),
            ("Dr", None),
            ("12", None),
            ("3 persons or more", None),
        ] {
            assert_eq!(parts(field), needed, "{field}");
        }
    }
}
