//! Decimal signs and groups of digits: which of both a table has.

use std::borrow::Cow;

use ::csv::StringRecord;

use super::dialect::Dialect;
use super::layout::Part;
use super::settings::ColumnKind;
use super::source::Source;
use crate::schema::{Code, Encoding, Format, Seen, TableColumn};
use crate::{Error, Result, shown};

/// Digits of a group in `1,234,567`.
const GROUP: usize = 3;
/// Standard deviations around the mean that stand for the range of the training rows where the model file has none.
const OLD_RANGE: f64 = 4.0;

/// What the numbers of a table say of its decimal sign.
#[derive(Default)]
struct Signs {
    /// Numbers that only a decimal comma explains, as `1,5`.
    commas: usize,
    /// Numbers that only a decimal point explains.
    points: usize,
    /// Numbers that both explain, as `1,234` and `1.234`.
    grouped_commas: usize,
    grouped_points: usize,
}

/// What one field says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Comma,
    Point,
    GroupedComma,
    GroupedPoint,
}

impl Signs {
    fn of<'a>(fields: impl Iterator<Item = &'a str>) -> Self {
        let mut signs = Self::default();
        fields.filter_map(sign).for_each(|sign| signs.add(sign));
        signs
    }

    fn add(&mut self, sign: Sign) {
        match sign {
            Sign::Comma => self.commas += 1,
            Sign::Point => self.points += 1,
            Sign::GroupedComma => self.grouped_commas += 1,
            Sign::GroupedPoint => self.grouped_points += 1,
        }
    }

    /// The decimal sign, where one number settles it.
    fn settled(&self) -> Option<char> {
        match (self.commas, self.points) {
            (0, 0) => None,
            (1.., 0) => Some(','),
            _ => Some('.'),
        }
    }

    /// Whether every number can be read either way.
    fn is_unclear(&self) -> bool {
        self.settled().is_none() && self.grouped_commas + self.grouped_points > 0
    }
}

/// The decimal sign that tables of a delimiter mostly have: semicolons divide where commas are decimal signs.
fn usual(delimiter: u8) -> Option<char> {
    match delimiter {
        b',' => Some('.'),
        b';' => Some(','),
        _ => None,
    }
}

/// The decimal sign that the fields have.
pub(super) fn decimal(records: &[StringRecord], delimiter: u8, preferred: Option<char>) -> char {
    let signs = Signs::of(records.iter().flat_map(StringRecord::iter));
    let unclear = || match (signs.grouped_commas, delimiter) {
        (1.., b';') if preferred.is_none() => ',',
        _ => preferred.unwrap_or('.'),
    };
    signs.settled().unwrap_or_else(unclear)
}

fn sign(field: &str) -> Option<Sign> {
    let digits = field.trim_start_matches(['+', '-']);
    let is_numeral = digits.starts_with(|it: char| it.is_ascii_digit() || it == ',' || it == '.')
        && digits.chars().all(|it| it.is_ascii_digit() || ",.eE+-".contains(it));
    if !is_numeral {
        return None;
    }
    match (digits.contains(','), digits.contains('.')) {
        (false, true) if ungrouped(digits, '.').is_none() => field.parse::<f64>().is_ok().then_some(Sign::Point),
        (true, false) if ungrouped(digits, ',').is_none() => plain(field, ',').map(|_| Sign::Comma),
        // Two signs of one kind are no decimal signs.
        (false, true) => Some(if digits.matches('.').count() > 1 { Sign::Comma } else { Sign::GroupedPoint }),
        (true, false) => Some(if digits.matches(',').count() > 1 { Sign::Point } else { Sign::GroupedComma }),
        (true, true) if plain(field, ',').is_some() => Some(Sign::Comma),
        (true, true) if plain(field, '.').is_some() => Some(Sign::Point),
        _ => None,
    }
}

/// Digits without the signs between their groups of three; `None` without such groups. `0,500` has none.
fn ungrouped(digits: &str, sign: char) -> Option<String> {
    let mut groups = digits.split(sign);
    let first = groups.next().filter(|it| (1..=GROUP).contains(&it.len()) && *it != "0")?;
    let mut rest = groups.peekable();
    rest.peek()?;
    let all_digits = |it: &str| it.chars().all(|letter| letter.is_ascii_digit());
    let is_whole = all_digits(first) && rest.clone().all(|group| group.len() == GROUP && all_digits(group));
    is_whole.then(|| digits.replace(sign, ""))
}

/// The form of a number that Rust reads; `None` if the field is no number.
pub(super) fn plain(field: &str, decimal: char) -> Option<Cow<'_, str>> {
    let other = if decimal == '.' { ',' } else { '.' };
    let is_float = |text: &str| text.parse::<f64>().is_ok();
    if decimal == '.' && is_float(field) {
        return Some(field.into());
    }
    let sign_len = field.len() - field.trim_start_matches(['+', '-']).len();
    let (sign, digits) = field.split_at(sign_len);
    let (whole, rest) = match digits.find(decimal) {
        Some(at) => digits.split_at(at),
        None => (digits, ""),
    };
    let rest = rest.replacen(decimal, ".", 1);
    let ungrouped = ungrouped(whole, other);
    // A point in a number of a table with decimal commas, such as `1.5`.
    let whole = ungrouped.unwrap_or_else(|| whole.to_owned());
    let text = format!("{sign}{whole}{rest}");
    is_float(&text).then_some(text.into())
}

/// A column of numbers of a later table, and what the training rows had in it.
struct Trained {
    column: usize,
    name: String,
    low: f64,
    high: f64,
    is_whole: bool,
    /// Numbers that can be read either way, of which so many lie in the range of training with a decimal point or a comma.
    unclear: usize,
    inside: [usize; 2],
    /// Distances from that range, in widths of it.
    outside: [f64; 2],
    example: String,
}

impl Trained {
    fn new(column: usize, name: String, encoding: Option<&Encoding>, seen: Option<&Seen>) -> Self {
        let (low, high) = match (seen.and_then(|seen| seen.range), encoding.map(|encoding| &encoding.code)) {
            (Some([low, high]), _) => (low, high),
            (None, Some(Code::Number { offset, scale })) if (*offset, *scale) != (0.0, 1.0) => {
                (offset - OLD_RANGE * scale, offset + OLD_RANGE * scale)
            }
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let is_whole = seen.is_some_and(|seen| seen.is_whole);
        let example = String::new();
        Self { column, name, low, high, is_whole, unclear: 0, inside: [0; 2], outside: [0.0; 2], example }
    }

    /// Compares a number that can be read either way with the training rows.
    fn add(&mut self, field: &str) {
        self.unclear += 1;
        if self.example.is_empty() {
            self.example = field.into();
        }
        for (at, decimal) in ['.', ','].into_iter().enumerate() {
            let Some(number) = plain(field, decimal).and_then(|text| text.parse::<f64>().ok()) else { continue };
            let fits = !self.is_whole || number.fract() == 0.0;
            let distance = (self.low - number).max(number - self.high).max(0.0);
            self.inside[at] += usize::from(fits && distance == 0.0);
            let width = if self.high > self.low { self.high - self.low } else { self.high.abs() };
            // A fraction where all were whole numbers is as strange as a number twice as far away.
            self.outside[at] += if fits { 0.0 } else { 2.0 } + if distance > 0.0 { distance / width } else { 0.0 };
        }
    }
}

/// The sign by which numbers that can be read either way are like those of the training rows.
fn likely(columns: &[Trained]) -> Option<char> {
    let unclear: usize = columns.iter().map(|column| column.unclear).sum();
    let inside = [0, 1].map(|at| columns.iter().map(|column| column.inside[at]).sum::<usize>());
    let outside = [0, 1].map(|at| columns.iter().map(|column| column.outside[at]).sum::<f64>());
    let is_better = |one: usize, other: usize| {
        let most_are_inside = inside[one] * 2 > unclear && inside[other] * 10 <= inside[one];
        let others_are_far = inside == [0, 0] && outside[one] * 10.0 < outside[other];
        most_are_inside || others_are_far
    };
    match (is_better(0, 1), is_better(1, 0)) {
        (true, false) => Some('.'),
        (false, true) => Some(','),
        _ => None,
    }
}

/// Finds the decimal sign of a table like another one, by its numbers; where all of them can be read either way, by the numbers of
/// the training rows.
pub(super) fn settle(dialect: &mut Dialect, source: &Source, format: &Format, parts: &[Part]) -> Result<()> {
    let &Format::Csv { delimiter: trained_delimiter, decimal: trained, .. } = format else { return Ok(()) };
    if dialect.is_decimal_given {
        return Ok(());
    }
    let mut columns = numeric(dialect, parts);
    let mut signs = Signs::default();
    dialect.for_each_row(source, |record| {
        for column in &mut columns {
            let field = &record[column.column];
            let Some(sign) = sign(field) else { continue };
            signs.add(sign);
            if matches!(sign, Sign::GroupedComma | Sign::GroupedPoint) {
                column.add(field);
            }
        }
        Ok(())
    })?;
    if !signs.is_unclear() {
        dialect.decimal = signs.settled().unwrap_or(dialect.decimal);
        return Ok(());
    }
    let has_same_delimiter = char::from(dialect.delimiter) == trained_delimiter;
    let is_usual = has_same_delimiter || usual(dialect.delimiter) == Some(trained);
    match likely(&columns).or(is_usual.then_some(trained)) {
        Some(decimal) => dialect.decimal = decimal,
        None => return Err(unclear(source, &columns)),
    }
    Ok(())
}

/// The columns whose fields are numbers: inputs, and targets to predict.
fn numeric(dialect: &Dialect, parts: &[Part]) -> Vec<Trained> {
    let name = |column: usize| {
        let name = dialect.header().and_then(|header| header.get(column)).map(str::to_owned);
        TableColumn { index: column, name, ..TableColumn::default() }.to_string()
    };
    let of_part = |part: &Part| {
        let seen = part.seen.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        let columns = part.columns.iter().zip(&part.readings).zip(seen);
        let columns = columns.filter(|((_, reading), _)| reading.kind == ColumnKind::Number);
        let trained = |((column, reading), seen): ((&usize, &super::encode::Reading), Option<&Seen>)| {
            Trained::new(*column, name(*column), reading.known.as_ref(), seen)
        };
        columns.map(trained).collect::<Vec<_>>()
    };
    parts.iter().flat_map(of_part).collect()
}

fn unclear(source: &Source, columns: &[Trained]) -> Error {
    let column = columns.iter().find(|column| column.unclear > 0);
    let (name, example) = column.map_or(("", ""), |column| (&*column.name, &*column.example));
    let either = ['.', ','].map(|decimal| plain(example, decimal).unwrap_or_default());
    Error::data(
        format!("{}, column `{}`", source.named(), shown(name)),
        format!(
            "needs numbers that can be read in one way, but `{example}` can be {} and {}, and the training table had such \
             numbers of both sizes",
            either[0], either[1]
        ),
        "write numbers as in the training table; or say by `decimal` in `[data]` which sign they have, and name the settings by \
         `--config`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_either_sign() {
        for (field, decimal, expected) in [
            ("1.5", '.', Some("1.5")),
            ("-1,234.5", '.', Some("-1234.5")),
            ("1,234,567", '.', Some("1234567")),
            ("1,23", '.', None),
            ("1,5", ',', Some("1.5")),
            ("-1.234,5", ',', Some("-1234.5")),
            ("1.234", ',', Some("1234")),
            ("1.5", ',', Some("1.5")),
            ("1,5e3", ',', Some("1.5e3")),
            ("1,2,3", ',', None),
            ("x", ',', None),
            ("", ',', None),
        ] {
            assert_eq!(plain(field, decimal).as_deref(), expected, "{field} {decimal}");
        }
    }

    #[test]
    fn the_decimal_sign_is_that_of_the_numbers() {
        let of = |fields: &[&str], delimiter: u8| decimal(&[StringRecord::from(fields.to_vec())], delimiter, None);
        assert_eq!(of(&["1,5", "2"], b';'), ',');
        assert_eq!(of(&["1.234,5", "2"], b';'), ',');
        assert_eq!(of(&["0,500", "a"], b';'), ',');
        assert_eq!(of(&["1,234", "2,345"], b';'), ',');
        assert_eq!(of(&["1,234", "2,345"], b'\t'), '.');
        assert_eq!(of(&["1,234", "2.5"], b';'), '.');
        assert_eq!(of(&["1,234", "2.5"], b','), '.');
        assert_eq!(of(&["1,234,567", "2,345"], b';'), '.');
        assert_eq!(of(&["1.234.567", "2.345"], b'\t'), ',');
        assert_eq!(of(&["1", "2"], b','), '.');
    }
}
