//! Signs of a table: delimiter, decimal sign, header. Those that no setting gives are found in its first lines.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ::csv::{ErrorKind, Reader, ReaderBuilder, StringRecord, Trim};

use super::place::{line_of, named};
use super::settings::CsvSettings;
use crate::schema::Format;
use crate::{Error, Result};

/// Most bytes of a row: a longer one has an unclosed quote, or the file is no table.
pub const MAX_ROW_BYTES: u64 = 16 << 20;

/// Fields that are missing ones: those of pandas' `read_csv`, and `?` and `.` alone.
pub const MISSING_VALUES: [&str; 18] = [
    "", "#N/A", "#NA", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?", ".", "-",
    "NaT",
];

/// Delimiters that are looked for, in this order.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Bytes at the start of a file that are looked at.
const SAMPLE_BYTES: u64 = 256 << 10;
/// Digits of a group in `1,234,567`.
const GROUP: usize = 3;

/// Signs of a table, and its head.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    pub delimiter: u8,
    /// `.` or `,`.
    pub decimal: char,
    pub head: Head,
    /// Fields that are missing ones.
    pub missing: BTreeSet<String>,
    pub width: usize,
}

/// The first line.
#[derive(Clone, Debug)]
pub(super) enum Head {
    /// A row.
    Row,
    /// Names of the columns.
    Names(StringRecord),
    /// Numbers of rows and columns and the names of the classes, by the numbers in the last column: the head of the tables
    /// that scikit-learn ships.
    Classes(Vec<String>),
}

impl Dialect {
    /// Looks at the start of a table. `like` is the format of the table that a model was trained on: its signs are taken
    /// where they fit.
    pub fn of(path: &Path, settings: &CsvSettings, like: Option<&Format>) -> Result<Self> {
        let like = match like {
            Some(Format::Csv { delimiter, decimal, .. }) => Some((*delimiter, *decimal)),
            _ => None,
        };
        let mut sample = Vec::new();
        let file = File::open(path).map_err(|source| Error::reading(path, source))?;
        file.take(SAMPLE_BYTES).read_to_end(&mut sample).map_err(|source| Error::reading(path, source))?;
        let preferred = like.and_then(|(delimiter, _)| u8::try_from(delimiter).ok());
        let delimiter = match settings.delimiter {
            Some(given) => ascii(given)?,
            None => delimiter(&sample, preferred),
        };
        let records = records(&sample, delimiter);
        let decimal = match settings.decimal {
            Some(given @ ('.' | ',')) => given,
            Some(other) => {
                let problem = format!("needs `.` or `,`, but is `{other}`");
                return Err(Error::setting("`decimal`", problem, "leave it out: it is found by itself"));
            }
            None => decimal(&records, delimiter, like.map(|(_, decimal)| decimal)),
        };
        let empty =
            || Error::data(named(path), "needs at least one row, but has none", "check that it is the right file");
        // Bytes that are no text have no record here; reading them is an error with a line.
        let first = match records.first() {
            Some(first) => first.clone(),
            None if sample.iter().all(u8::is_ascii_whitespace) => return Err(empty()),
            None => StringRecord::new(),
        };
        let head = match settings.header {
            Some(true) => Head::Names(first.clone()),
            Some(false) => Head::Row,
            None => head(&records, &first, decimal),
        };
        let width = match &head {
            Head::Classes(_) => records.get(1).map_or(0, StringRecord::len),
            _ => first.len(),
        };
        let missing = settings.missing_values.clone();
        let missing = missing.unwrap_or_else(|| MISSING_VALUES.map(String::from).to_vec()).into_iter().collect();
        Ok(Self { delimiter, decimal, head, missing, width })
    }

    pub fn header(&self) -> Option<&StringRecord> {
        if let Head::Names(names) = &self.head { Some(names) } else { None }
    }

    /// The number of a field: a finite f32.
    pub fn number(&self, field: &str) -> Option<f32> {
        self.numeral(field).filter(|number| number.is_finite())
    }

    /// The number of a field that has the form of one; infinite where it is too large for an f32.
    pub fn numeral(&self, field: &str) -> Option<f32> {
        plain(field, self.decimal)?.parse().ok()
    }

    pub fn is_missing(&self, field: &str) -> bool {
        self.missing.contains(field)
    }

    /// Calls `each` with every row, in order.
    pub fn for_each_row(&self, path: &Path, mut each: impl FnMut(&StringRecord) -> Result<()>) -> Result<()> {
        let file = File::open(path).map_err(|source| Error::reading(path, source))?;
        let since = Cell::new(0);
        let mut reader = reader(self.delimiter).from_reader(RowLimit { file, since: &since });
        let mut is_head = !matches!(self.head, Head::Row);
        for record in reader.records() {
            since.set(0);
            let record = record.map_err(|error| unreadable(path, &error))?;
            if std::mem::take(&mut is_head) {
                continue;
            }
            if record.len() != self.width {
                return Err(Error::data(
                    line_of(path, record.position()),
                    format!("needs {} fields as the first line has, but has {}", self.width, record.len()),
                    LINE_HELP,
                ));
            }
            each(&record)?;
        }
        Ok(())
    }
}

const LINE_HELP: &str = "check the line, and that `delimiter` is the character between fields";

fn ascii(delimiter: char) -> Result<u8> {
    u8::try_from(delimiter).ok().filter(u8::is_ascii).ok_or_else(|| {
        let problem = format!("needs an ASCII character, but is `{delimiter}`");
        Error::setting("`delimiter`", problem, "use `,`, `;` or a tab, or leave it out")
    })
}

fn reader(delimiter: u8) -> ReaderBuilder {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).delimiter(delimiter).trim(Trim::All).flexible(true);
    builder
}

/// The whole records of a sample.
fn records(sample: &[u8], delimiter: u8) -> Vec<StringRecord> {
    let mut reader: Reader<&[u8]> = reader(delimiter).from_reader(sample);
    let mut records: Vec<StringRecord> = reader.records().filter_map(Result::ok).collect();
    // The last one may be cut off.
    if sample.len() as u64 >= SAMPLE_BYTES && records.len() > 1 {
        records.pop();
    }
    records
}

/// The delimiter that divides most lines into as many fields as the first.
fn delimiter(sample: &[u8], preferred: Option<u8>) -> u8 {
    let score = |delimiter: &u8| {
        let records = records(sample, *delimiter);
        let Some(first) = records.first() else { return (0, 0) };
        // The head of scikit-learn's tables is shorter than the rows.
        let width = if class_names(&records).is_some() { records[1].len() } else { first.len() };
        if width < 2 { (0, 0) } else { (records.iter().filter(|record| record.len() == width).count(), width) }
    };
    if let Some(preferred) = preferred
        && (score(&preferred).0 > 0 || DELIMITERS.iter().all(|other| score(other).0 == 0))
    {
        return preferred;
    }
    // The first of the best.
    DELIMITERS.into_iter().rev().max_by_key(score).unwrap_or(DELIMITERS[0])
}

/// The decimal sign that the fields have.
fn decimal(records: &[StringRecord], delimiter: u8, preferred: Option<char>) -> char {
    let (mut commas, mut grouped_commas, mut points) = (0, 0, 0);
    for field in records.iter().flat_map(StringRecord::iter) {
        let digits = field.trim_start_matches(['+', '-']);
        let is_numeral = digits.starts_with(|it: char| it.is_ascii_digit() || it == ',' || it == '.')
            && digits.chars().all(|it| it.is_ascii_digit() || ",.eE+-".contains(it));
        if !is_numeral {
            continue;
        }
        let is_point = digits.contains('.') && !digits.contains(',') && field.parse::<f64>().is_ok();
        // Which of both `1.234` has can't be told.
        points += usize::from(is_point && ungrouped(digits, '.').is_none());
        if plain(field, ',').is_some() && digits.contains(',') {
            let can_be_groups = ungrouped(digits, ',').is_some();
            commas += usize::from(!can_be_groups);
            grouped_commas += usize::from(can_be_groups);
        }
    }
    match (commas, grouped_commas, points) {
        (0, 0, 0) => preferred.unwrap_or('.'),
        (1.., _, 0) => ',',
        // Semicolons divide where commas are decimal signs.
        (0, 1.., 0) if preferred == Some(',') || (preferred.is_none() && delimiter == b';') => ',',
        _ => '.',
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
fn plain(field: &str, decimal: char) -> Option<Cow<'_, str>> {
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

/// The use of the first line.
fn head(records: &[StringRecord], first: &StringRecord, decimal: char) -> Head {
    if let Some(names) = class_names(records) {
        return Head::Classes(names);
    }
    let has_number = first.iter().any(|field| plain(field, decimal).is_some());
    if has_number || first.is_empty() { Head::Row } else { Head::Names(first.clone()) }
}

/// Names of the classes from `178,13,class_0,class_1,class_2`: rows, inputs, names. The rows hold numbers alone.
fn class_names(records: &[StringRecord]) -> Option<Vec<String>> {
    let [first, second, ..] = records else { return None };
    let (rows, inputs): (usize, usize) = (first.get(0)?.parse().ok()?, first.get(1)?.parse().ok()?);
    let names: Vec<String> = first.iter().skip(2).map(str::to_owned).collect();
    let is_number = |field: &str| field.parse::<f64>().is_ok();
    let is_head = rows + 1 >= records.len() && second.len() == inputs + 1 && second.iter().all(is_number);
    (is_head && !names.is_empty() && names.iter().all(|name| !name.is_empty() && !is_number(name))).then_some(names)
}

/// A file that limits the length of rows.
struct RowLimit<'a> {
    file: File,
    /// Bytes since the last whole row.
    since: &'a Cell<u64>,
}

impl Read for RowLimit<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.since.get() > MAX_ROW_BYTES {
            return Err(std::io::Error::other(format!(
                "a row has more than {MAX_ROW_BYTES} bytes: is a quote not closed?"
            )));
        }
        let read = self.file.read(to)?;
        self.since.set(self.since.get() + read as u64);
        Ok(read)
    }
}

fn unreadable(path: &Path, error: &::csv::Error) -> Error {
    let problem = match error.kind() {
        ErrorKind::Utf8 { .. } => "needs UTF-8 text, but has other bytes".into(),
        _ => format!("can't be read: {error}"),
    };
    Error::data(line_of(path, error.position()), problem, LINE_HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delimiter_of(text: &str) -> char {
        delimiter(text.as_bytes(), None).into()
    }

    #[test]
    fn the_delimiter_divides_most_lines_alike() {
        for (text, expected) in [
            ("a,b\n1,2\n", ','),
            ("a;b\n1,5;2\n", ';'),
            ("a\tb\n1\t2;3\n", '\t'),
            ("a|b|c\n1|2|3\n", '|'),
            ("a,b\n\"1;2\",2\n", ','),
            ("a,b,c\n1,2,3\n4,5\n", ','),
            ("a\n1\n", ','),
            ("2,3,x,y\n1,2,3,0\n4,5,6,1\n", ','),
        ] {
            assert_eq!(delimiter_of(text), expected, "{text:?}");
        }
        // A lone row of decimal commas reads as the training table was read.
        assert_eq!(delimiter(b"1,5;2,5\n", Some(b';')), b';');
        assert_eq!(delimiter(b"1\t2\n", Some(b';')), b'\t');
    }

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
        let of = |text: &str, delimiter: u8| decimal(&records(text.as_bytes(), delimiter), delimiter, None);
        assert_eq!(of("1,5;2\n", b';'), ',');
        assert_eq!(of("1.234,5;2\n", b';'), ',');
        assert_eq!(of("0,500;a\n", b';'), ',');
        assert_eq!(of("1,234;2,345\n", b';'), ',');
        assert_eq!(of("1,234\t2,345\n", b'\t'), '.');
        assert_eq!(of("1,234;2.5\n", b';'), '.');
        assert_eq!(of("\"1,234\",2.5\n", b','), '.');
        assert_eq!(of("a,b\n1,2\n", b','), '.');
    }

    #[test]
    fn the_head_of_scikit_learn_names_classes() {
        let of = |text: &str| class_names(&records(text.as_bytes(), b','));
        assert_eq!(of("2,3,x,y\n1,2,3,0\n4,5,6,1\n"), Some(vec!["x".into(), "y".into()]));
        assert_eq!(of("150,4,a,b,c,d,e,f\n1,2,3,4,0\n").map(|names| names.len()), Some(6));
        assert_eq!(of("178,13,class_0\n1,2\n"), None);
        assert_eq!(of("2,3,x,y\n1,2,x,y\n"), None);
        assert_eq!(of("1,3,x,y\n1,2,3,0\n4,5,6,1\n"), None, "more rows than it says");
    }
}
