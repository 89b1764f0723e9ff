//! Forms of numbers: decimal signs, and groups of three digits, which blanks and apostrophes divide whatever the decimal sign is.

use std::borrow::Cow;

use ::csv::StringRecord;

/// Digits of a group in `1,234,567`.
const GROUP: usize = 3;

/// Signs between groups that are no decimal signs anywhere: blanks (common, no-break, narrow no-break, thin) and apostrophes, as in
/// French, Scandinavian and Swiss tables.
const DIVIDERS: [char; 6] = [' ', '\u{a0}', '\u{202f}', '\u{2009}', '\'', '\u{2019}'];

/// Counts of the numbers that settle a table's decimal sign, and of those that leave it open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// Numbers that only a decimal comma explains, as `1,5`.
    commas: usize,
    /// Numbers that only a decimal point explains.
    points: usize,
    /// Numbers that both explain, as `1,234` and `1.234`.
    grouped_commas: usize,
    grouped_points: usize,
}

/// Decimal sign of one field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
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

    pub fn add(&mut self, sign: Sign) {
        match sign {
            Sign::Comma => self.commas += 1,
            Sign::Point => self.points += 1,
            Sign::GroupedComma => self.grouped_commas += 1,
            Sign::GroupedPoint => self.grouped_points += 1,
        }
    }

    /// The decimal sign, where one number settles it.
    pub fn settled(&self) -> Option<char> {
        match (self.commas, self.points) {
            (0, 0) => None,
            (1.., 0) => Some(','),
            _ => Some('.'),
        }
    }

    /// Whether every number can be read either way.
    pub fn is_unclear(&self) -> bool {
        self.settled().is_none() && self.grouped_commas + self.grouped_points > 0
    }

    /// Whether no number speaks against the sign that settles it.
    pub fn is_certain(&self) -> bool {
        (self.commas > 0) != (self.points > 0)
    }

    pub fn add_all(&mut self, other: &Self) {
        self.commas += other.commas;
        self.points += other.points;
        self.grouped_commas += other.grouped_commas;
        self.grouped_points += other.grouped_points;
    }

    /// Whether a comma stands in any number.
    pub fn has_commas(&self) -> bool {
        self.commas + self.grouped_commas > 0
    }
}

/// The decimal sign that tables of a delimiter mostly have: semicolons divide where commas are decimal signs.
pub(super) fn usual(delimiter: u8) -> Option<char> {
    match delimiter {
        b',' => Some('.'),
        b';' => Some(','),
        _ => None,
    }
}

/// The decimal sign that the fields have, and whether one of them settles it.
pub(super) fn decimal(records: &[StringRecord], delimiter: u8, preferred: Option<char>) -> (char, bool) {
    let signs = Signs::of(records.iter().flat_map(StringRecord::iter));
    let unclear = || match (signs.grouped_commas, delimiter) {
        (1.., b';') if preferred.is_none() => ',',
        _ => preferred.unwrap_or('.'),
    };
    (signs.settled().unwrap_or_else(unclear), signs.settled().is_some())
}

/// The sign that is no decimal one where this one is.
pub(super) fn other(decimal: char) -> char {
    if decimal == '.' { ',' } else { '.' }
}

pub(super) fn sign(field: &str) -> Option<Sign> {
    let field = &*undivided(field);
    let digits = field.trim_start_matches(['+', '-']);
    let is_numeral = digits.starts_with(|it: char| it.is_ascii_digit() || it == ',' || it == '.')
        && digits.chars().all(|it| it.is_ascii_digit() || ",.eE+-".contains(it));
    if !is_numeral {
        return None;
    }
    match (digits.contains(','), digits.contains('.')) {
        (false, true) if ungrouped(digits, '.').is_none() => field.parse::<f64>().is_ok().then_some(Sign::Point),
        (true, false) if ungrouped(digits, ',').is_none() => plain(field, ',').map(|_| Sign::Comma),
        (false, true) if is_address(digits) => None,
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

/// Whether a field is three groups of three digits with blanks between. A quantity has shorter numbers, too.
pub(super) fn has_three_groups(field: &str) -> bool {
    let groups = || field.split(DIVIDERS);
    groups().count() == 3 && groups().all(|group| group.len() == GROUP && group.bytes().all(|it| it.is_ascii_digit()))
}

/// A number without the blanks or apostrophes between its groups, such as `1 234,5` or `1'234.5`; anything else unchanged. Digits that begin
/// with 0, such as a phone number's, are no such number.
fn undivided(field: &str) -> Cow<'_, str> {
    let (sign, digits) = field.split_at(field.len() - field.trim_start_matches(['+', '-']).len());
    if !digits.starts_with(|it: char| ('1'..='9').contains(&it)) {
        return field.into();
    }
    let (whole, rest) = digits.split_at(digits.find(['.', ',']).unwrap_or(digits.len()));
    let joined = whole.chars().find(|it| DIVIDERS.contains(it)).and_then(|divider| ungrouped(whole, divider));
    joined.map_or(field.into(), |whole| format!("{sign}{whole}{rest}").into())
}

/// Whether digits are an IP address, such as `192.168.100.105`, which settles no decimal sign.
fn is_address(digits: &str) -> bool {
    digits.split('.').count() == 4 && digits.split('.').all(|byte| byte.parse::<u8>().is_ok())
}

/// The form of a number that Rust reads; `None` if the field is no number.
pub(super) fn plain(field: &str, decimal: char) -> Option<Cow<'_, str>> {
    let other = other(decimal);
    let is_float = |text: &str| text.parse::<f64>().is_ok();
    if decimal == '.' && is_float(field) {
        return Some(field.into());
    }
    let field = match undivided(field) {
        Cow::Borrowed(same) => same,
        Cow::Owned(joined) => return plain(&joined, decimal).map(|number| number.into_owned().into()),
    };
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
            ("1 234", '.', Some("1234")),
            ("-1 234 567,5", ',', Some("-1234567.5")),
            ("12\u{202f}345,5", ',', Some("12345.5")),
            ("1\u{a0}234.5", '.', Some("1234.5")),
            ("1'234'567.5", '.', Some("1234567.5")),
            ("1\u{2019}234", ',', Some("1234")),
            ("1 234,567", ',', Some("1234.567")),
            ("1 234'567", '.', None),
            ("1 23", '.', None),
            ("044 123 456", '.', None),
            ("2020 12", '.', None),
            ("1234 567", '.', None),
            ("x", ',', None),
            ("", ',', None),
        ] {
            assert_eq!(plain(field, decimal).as_deref(), expected, "{field} {decimal}");
        }
    }

    #[test]
    fn the_decimal_sign_is_that_of_the_numbers() {
        let of = |fields: &[&str], delimiter: u8| decimal(&[StringRecord::from(fields.to_vec())], delimiter, None).0;
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
        assert_eq!(of(&["192.168.100.105", "2"], b','), '.', "an address");
        assert_eq!(of(&["1.234.567.890", "2"], b'\t'), ',');
        assert_eq!(of(&["1 234,567", "2"], b'\t'), ',', "blanks are between the groups");
        assert_eq!(of(&["1'234.567", "2"], b';'), '.');
    }
}
