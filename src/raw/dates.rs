//! Dates in a graph: strings of a form are split into numbers, and those become the elements of `data/csv/dates.rs`.

use std::f64::consts::TAU;

use super::operators::{cast, concat, in_any_case, look_up};
use crate::data::csv::DAYS_OF_YEAR;
use crate::onnx::{Attribute, DOUBLE, FLOAT, Form, INT64, Value};

/// Names of months, as of `%b`.
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
/// Days of a year of 365 before each month, and days of each month.
const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const LENGTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
/// Years of a whole turn of the calendar. That many are added, so that no number below is negative.
const TURN: i64 = 400;
/// Days from the year 0, [`TURN`] years earlier, to 1970.
const DAYS_TO_1970: i64 = 865_624;
/// 1970-01-01 was a Thursday, the fourth day from Monday on.
const THURSDAY: i64 = 3;
const SECONDS_OF_DAY: f64 = 86_400.0;

/// Regular expressions of the zero in front of a short number: it is there, or may be left out.
const ALL_DIGITS: &str = "0";
const ANY_DIGITS: &str = "0?";

/// A part of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Year,
    /// Of two digits: from 1969 to 2068.
    ShortYear,
    Month,
    /// By its name's first three letters.
    MonthName,
    Day,
    Hour,
    Minute,
    Second,
    /// With or without a fraction.
    FractionalSecond,
    /// Of the time zone, which is not looked at.
    Offset,
}

impl Part {
    /// The part of a directive of `strftime`, which a form begins with, and the rest of the form.
    fn read(form: &str) -> Option<(Self, &str)> {
        const PARTS: [(&str, Part); 10] = [
            ("%Y", Part::Year),
            ("%y", Part::ShortYear),
            ("%m", Part::Month),
            ("%b", Part::MonthName),
            ("%d", Part::Day),
            ("%H", Part::Hour),
            ("%M", Part::Minute),
            ("%S%.f", Part::FractionalSecond),
            ("%S", Part::Second),
            ("%:z", Part::Offset),
        ];
        PARTS.iter().find_map(|(directive, part)| Some((*part, form.strip_prefix(directive)?)))
    }

    /// A regular expression for it, with [`ALL_DIGITS`] or [`ANY_DIGITS`] as that of a zero in front.
    fn pattern(self, zero: &str) -> String {
        match self {
            Self::Year if zero == ALL_DIGITS => "[0-9]{4}".into(),
            Self::Year => "[0-9]{1,4}".into(),
            Self::ShortYear => format!("(?:{zero}[0-9]|[1-9][0-9])"),
            Self::Month => format!("(?:{zero}[1-9]|1[0-2])"),
            Self::MonthName => format!("(?i:{})", MONTHS.join("|")),
            Self::Day => format!("(?:{zero}[1-9]|[12][0-9]|3[01])"),
            Self::Hour => format!("(?:{zero}[0-9]|1[0-9]|2[0-3])"),
            Self::Minute | Self::Second => format!("(?:{zero}[0-9]|[1-5][0-9])"),
            Self::FractionalSecond => format!("(?:{zero}[0-9]|[1-5][0-9])(?:\\.[0-9]{{1,9}})?"),
            Self::Offset => "[+-][0-9]{2}:[0-9]{2}".into(),
        }
    }

    /// Digits that it has in a run of numbers.
    fn digits(self) -> Option<u32> {
        match self {
            Self::Year => Some(4),
            Self::ShortYear | Self::Month | Self::Day | Self::Hour | Self::Minute | Self::Second => Some(2),
            _ => None,
        }
    }

    /// A value that it can have.
    fn example(self) -> &'static str {
        match self {
            Self::Year => "2000",
            Self::MonthName => "Jan",
            Self::Offset => "+00:00",
            _ => "01",
        }
    }
}

/// Parts that follow each other at once, and the text behind them.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    parts: Vec<Part>,
    text: String,
}

/// A form of dates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DateForm {
    /// Text before the first part.
    text: String,
    runs: Vec<Run>,
    /// Whether it has a time, as the reader sees it.
    pub has_time: bool,
}

impl DateForm {
    /// The form of `strftime`; `None` if operators can't read it.
    pub fn of(format: &str) -> Option<Self> {
        let mut this = Self { text: String::new(), runs: Vec::new(), has_time: format.contains("%H") };
        let (mut rest, mut was_part) = (format, false);
        while let Some(letter) = rest.chars().next() {
            if letter == '%' {
                let (part, behind) = Part::read(rest)?;
                match this.runs.last_mut() {
                    Some(run) if was_part => run.parts.push(part),
                    _ => this.runs.push(Run { parts: vec![part], text: String::new() }),
                }
                (rest, was_part) = (behind, true);
            } else {
                this.runs.last_mut().map_or(&mut this.text, |run| &mut run.text).push(letter);
                (rest, was_part) = (&rest[letter.len_utf8()..], false);
            }
        }
        this.is_readable().then_some(this)
    }

    /// Whether each part is there once, and runs can be taken apart.
    fn is_readable(&self) -> bool {
        let parts: Vec<Part> = self.runs.iter().flat_map(|run| run.parts.iter().copied()).collect();
        let has = |of: &[Part]| parts.iter().filter(|part| of.contains(part)).count();
        let is_apart = |run: &Run| match run.parts.as_slice() {
            [_] | [Part::Second | Part::FractionalSecond, Part::Offset] => true,
            parts => parts.iter().all(|part| part.digits().is_some()),
        };
        // The text behind a part begins where the part ends.
        let is_ended = |run: &Run| {
            let has = |part: Part| run.parts.contains(&part);
            !run.text.starts_with(|letter: char| {
                letter.is_ascii_digit()
                    || (has(Part::MonthName) && letter.is_ascii_alphabetic())
                    || (has(Part::FractionalSecond) && letter == '.')
                    || (has(Part::Offset) && ['+', '-', ':'].contains(&letter))
            })
        };
        let once = [&[Part::Hour][..], &[Part::Minute], &[Part::Second, Part::FractionalSecond], &[Part::Offset]];
        has(&[Part::Year, Part::ShortYear]) == 1
            && has(&[Part::Month, Part::MonthName]) == 1
            && has(&[Part::Day]) == 1
            && once.into_iter().all(|of| has(of) <= 1)
            && self.runs.iter().all(|run| is_apart(run) && is_ended(run))
    }

    /// A regular expression for the whole field.
    fn pattern(&self) -> String {
        let mut pattern = escaped(&self.text);
        for run in &self.runs {
            // Where another number follows at once, each has all its digits.
            let is_run = run.parts.len() > 1 && !run.parts.contains(&Part::Offset);
            let zero = if is_run { ALL_DIGITS } else { ANY_DIGITS };
            run.parts.iter().for_each(|part| pattern += &part.pattern(zero));
            pattern += &escaped(&run.text);
        }
        pattern
    }

    /// A field of this form.
    fn example(&self) -> String {
        let run = |run: &Run| run.parts.iter().map(|part| part.example()).collect::<String>() + &run.text;
        self.text.clone() + &self.runs.iter().map(run).collect::<String>()
    }

    /// Whether fields `[batch, 1]` are dates, and their elements: the date itself, then all sines, then all cosines.
    pub fn elements(&self, form: &mut Form<'_>, fields: &Value, [offset, scale]: [f64; 2]) -> (Value, Value) {
        let has_form = form.op("RegexFullMatch", &[fields], &[("pattern", Attribute::Name(self.pattern()))]);
        let example = form.names(vec![self.example()]);
        let fields = form.op("Where", &[&has_form, fields, &example], &[]);
        let parts = self.parts(form, &fields);
        let date = Date::of(form, &parts);
        let valid = form.op("And", &[&has_form, &date.exists], &[]);
        (valid, date.elements(form, [offset, scale]))
    }

    /// Numbers of the parts of fields that have this form.
    fn parts(&self, form: &mut Form<'_>, fields: &Value) -> Vec<(Part, Value)> {
        let (mut rest, mut parts) = (fields.clone(), Vec::new());
        if !self.text.is_empty() {
            rest = split(form, &rest, &self.text, 1);
        }
        for run in &self.runs {
            let mut piece = rest.clone();
            if !run.text.is_empty() {
                piece = split(form, &rest, &run.text, 0);
                rest = split(form, &rest, &run.text, 1);
            }
            if run.parts.contains(&Part::Offset) {
                piece = split(form, &piece, "+", 0);
                piece = split(form, &piece, "-", 0);
            }
            parts.extend(numbers(form, &run.parts, &piece));
        }
        parts
    }
}

/// The text before (0) or behind (1) the first of a delimiter.
fn split(form: &mut Form<'_>, fields: &Value, delimiter: &str, at: i64) -> Value {
    let attributes = [("delimiter", Attribute::Name(delimiter.into())), ("maxsplit", Attribute::Int(1))];
    let pieces = form.ops("StringSplit", &[fields], &attributes, 2).swap_remove(0);
    let at = form.whole(at);
    form.op("Gather", &[&pieces, &at], &[("axis", Attribute::Int(2))])
}

/// The numbers of parts that follow each other at once.
fn numbers(form: &mut Form<'_>, parts: &[Part], piece: &Value) -> Vec<(Part, Value)> {
    match parts {
        [Part::MonthName] => {
            let names = MONTHS.into_iter().zip(1..);
            let names = names.flat_map(|(name, month)| in_any_case(name).map(move |name| (name, month)));
            vec![(Part::MonthName, look_up(form, piece, names, 1))]
        }
        [Part::Offset] => Vec::new(),
        [part @ (Part::Second | Part::FractionalSecond), ..] if parts.len() == 1 || parts[1] == Part::Offset => {
            vec![(*part, cast(form, piece, DOUBLE))]
        }
        [part] => vec![(*part, cast(form, piece, INT64))],
        _ => {
            let mut rest = cast(form, piece, INT64);
            let mut numbers = Vec::new();
            for part in parts.iter().rev() {
                let base = form.whole(10_i64.pow(part.digits().unwrap_or_default()));
                numbers.push((*part, form.op("Mod", &[&rest, &base], &[])));
                rest = form.op("Div", &[&rest, &base], &[]);
            }
            numbers
        }
    }
}

/// Texts of a form as a regular expression.
fn escaped(text: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_punctuation() { format!("\\{letter}") } else { letter.to_string() };
    text.chars().map(letter).collect()
}

/// Dates, as whole numbers `[batch, 1]`.
struct Date {
    /// From the first day of its year on.
    day_of_year: Value,
    /// Days of its year.
    year_length: Value,
    /// From 1970 on.
    days: Value,
    /// Part of the day that has passed, as a 64-bit float, where there are hours.
    part_of_day: Option<Value>,
    /// Whether its month has such a day.
    exists: Value,
}

impl Date {
    /// Source of the number of days: the leap years of the Gregorian calendar, every fourth year, but of the hundreds every fourth.
    fn of(form: &mut Form<'_>, parts: &[(Part, Value)]) -> Self {
        let find = |of: &[Part]| parts.iter().find(|(part, _)| of.contains(part)).map(|(_, value)| value.clone());
        let zero = form.whole(0);
        let [month, day] =
            [&[Part::Month, Part::MonthName][..], &[Part::Day]].map(|of| find(of).unwrap_or(zero.clone()));
        let year = find(&[Part::Year]).or_else(|| Some(long_year(form, &find(&[Part::ShortYear])?)));
        let year = with(form, "Add", &year.unwrap_or(zero), TURN);
        let before = with(form, "Sub", &year, 1);
        let (leaps, leaps_before) = (leap_years(form, &year), leap_years(form, &before));
        let leap = form.op("Sub", &[&leaps, &leaps_before], &[]);
        let at = with(form, "Sub", &month, 1);
        let [of_month, length] = [BEFORE, LENGTHS].map(|table| {
            let table = form.ints(&table);
            form.op("Gather", &[&table, &at], &[])
        });
        let is_later = with(form, "Greater", &month, 2);
        let is_february = with(form, "Equal", &month, 2);
        let [passed, longer] = [is_later, is_february].map(|is| {
            let is = cast(form, &is, INT64);
            form.op("Mul", &[&is, &leap], &[])
        });
        let length = form.op("Add", &[&length, &longer], &[]);
        let exists = form.op("LessOrEqual", &[&day, &length], &[]);
        let day_of_year = form.op("Add", &[&of_month, &passed], &[]);
        let day_of_year = form.op("Add", &[&day_of_year, &day], &[]);
        let day_of_year = with(form, "Sub", &day_of_year, 1);
        let days = with(form, "Mul", &year, 365);
        let days = form.op("Add", &[&days, &leaps_before], &[]);
        let days = form.op("Add", &[&days, &day_of_year], &[]);
        let days = with(form, "Sub", &days, DAYS_TO_1970);
        let year_length = with(form, "Add", &leap, 365);
        let part_of_day = find(&[Part::Hour]).map(|hour| part_of_day(form, &hour, &find));
        Self { day_of_year, year_length, days, part_of_day, exists }
    }

    fn elements(&self, form: &mut Form<'_>, [offset, scale]: [f64; 2]) -> Value {
        let with_part = |form: &mut Form<'_>, days: &Value| {
            let days = cast(form, days, DOUBLE);
            match &self.part_of_day {
                Some(part) => form.op("Add", &[&days, part], &[]),
                None => days,
            }
        };
        let days = with_part(form, &self.days);
        let years = with_double(form, "Div", &days, DAYS_OF_YEAR);
        let years = with_double(form, "Sub", &years, offset);
        let years = with_double(form, "Div", &years, scale);
        let weekday = with(form, "Add", &self.days, DAYS_TO_1970 + THURSDAY + DAYS_TO_MONDAY);
        let weekday = with(form, "Mod", &weekday, 7);
        let [of_year, of_week] = [&self.day_of_year, &weekday].map(|days| with_part(form, days));
        let year_length = cast(form, &self.year_length, DOUBLE);
        let of_year = form.op("Div", &[&of_year, &year_length], &[]);
        let of_week = with_double(form, "Div", &of_week, 7.0);
        let mut circles = vec![of_year, of_week];
        circles.extend(self.part_of_day.clone());
        let circles = concat(form, &circles);
        let circles = with_double(form, "Mul", &circles, TAU);
        let [sines, cosines] = ["Sin", "Cos"].map(|kind| form.op(kind, &[&circles], &[]));
        let elements = concat(form, &[years, sines, cosines]);
        cast(form, &elements, FLOAT)
    }
}

/// Days that bring [`DAYS_TO_1970`] to whole weeks.
const DAYS_TO_MONDAY: i64 = 7 - DAYS_TO_1970 % 7;

/// The part of the day that has passed.
fn part_of_day(form: &mut Form<'_>, hour: &Value, find: &impl Fn(&[Part]) -> Option<Value>) -> Value {
    let parts = [(&[Part::Minute][..], 60.0), (&[Part::Second, Part::FractionalSecond], 1.0)];
    let hour = cast(form, hour, DOUBLE);
    let mut sum = with_double(form, "Mul", &hour, 3600.0);
    for (of, seconds) in parts {
        let Some(value) = find(of) else { continue };
        let value = cast(form, &value, DOUBLE);
        let value = with_double(form, "Mul", &value, seconds);
        sum = form.op("Add", &[&sum, &value], &[]);
    }
    with_double(form, "Div", &sum, SECONDS_OF_DAY)
}

/// The year of two digits: from 1969 to 2068.
fn long_year(form: &mut Form<'_>, short: &Value) -> Value {
    let is_old = with(form, "Greater", short, 68);
    let [old, new] = [1900, 2000].map(|century| with(form, "Add", short, century));
    form.op("Where", &[&is_old, &old, &new], &[])
}

/// Leap years up to this one.
fn leap_years(form: &mut Form<'_>, year: &Value) -> Value {
    let [fourths, hundreds, turns] = [4, 100, TURN].map(|years| with(form, "Div", year, years));
    let few = form.op("Sub", &[&fourths, &hundreds], &[]);
    form.op("Add", &[&few, &turns], &[])
}

fn with(form: &mut Form<'_>, kind: &'static str, value: &Value, number: i64) -> Value {
    let number = form.whole(number);
    form.op(kind, &[value, &number], &[])
}

fn with_double(form: &mut Form<'_>, kind: &'static str, value: &Value, number: f64) -> Value {
    let number = form.doubles(&[number]);
    form.op(kind, &[value, &number], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_that_can_be_taken_apart_are_known() {
        for form in [
            "%Y-%m-%d",
            "%b %d %Y",
            "%d/%m/%y %H:%M",
            "%Y%m%d",
            "%Y-%m-%dT%H:%M:%S%.f%:z",
            "%Y年%m月%d日",
            "am %d.%m.%Y",
        ] {
            assert!(DateForm::of(form).is_some(), "{form}");
        }
        for form in [
            "%A %d %b %Y",
            "%Y-%m",
            "%Y-%m-%d %d",
            "%b%d%Y",
            "%d%b%Y",
            "%Y0%m0%d",
            "%-d.%m.%Y",
            "%d %bx %Y",
            "%Y-%m-%d %H:%M:%S%.f.",
            "%",
        ] {
            assert_eq!(DateForm::of(form), None, "{form}");
        }
    }

    #[test]
    fn a_form_is_a_pattern_and_an_example() {
        let of = |form: &str| DateForm::of(form).map(|form| (form.pattern(), form.example()));
        let (month, day) = ("(?:0?[1-9]|1[0-2])", "(?:0?[1-9]|[12][0-9]|3[01])");
        assert_eq!(of("%d.%m.%Y"), Some((format!("{day}\\.{month}\\.[0-9]{{1,4}}"), "01.01.2000".into())));
        let joined = "[0-9]{4}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])";
        assert_eq!(of("%Y%m%d"), Some((joined.into(), "20000101".into())));
    }
}
