//! Signs of a table: delimiter, decimal sign, header. Those that no setting gives are found in its first lines.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use ::csv::{ErrorKind, Position, Reader, ReaderBuilder, StringRecord, Trim};

use super::header::distinct;
use super::numerals::{decimal, plain};
use super::quotes::{MAX_ROW_BYTES, QUOTE_HELP, check_last_quote};
use super::settings::CsvSettings;
use super::source::TableSource;
use crate::schema::Format;
use crate::{Error, Result};

/// Fields that are missing ones: those of pandas' `read_csv`, and `?` and `.` alone.
pub const MISSING_VALUES: [&str; 18] = [
    "", "#N/A", "#NA", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?", ".", "-",
    "NaT",
];

/// Fields that are missing ones, where the settings give some or none. The empty field always is.
pub(crate) fn missing_values(given: Option<&[String]>) -> Vec<String> {
    match given {
        Some(given) => given.iter().cloned().chain([String::new()]).collect(),
        None => MISSING_VALUES.map(String::from).to_vec(),
    }
}

/// Delimiters that are looked for, in this order.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Bytes at the start of a file that are looked at, unless its lines are longer.
const SAMPLE_BYTES: u64 = 256 << 10;
/// Whole lines that are looked at, at least.
const FEWEST_LINES: usize = 3;
/// Most bytes at the start of a file that are looked at.
const MOST_SAMPLE_BYTES: u64 = (FEWEST_LINES as u64 + 1) * MAX_ROW_BYTES;

/// Signs of a table, and its head.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    pub delimiter: u8,
    /// `.` or `,`.
    pub decimal: char,
    /// Whether the settings say which.
    pub is_decimal_given: bool,
    /// Whether they do, or a number at the start of the table does; else later numbers can.
    pub is_decimal_settled: bool,
    pub head: FirstLine,
    /// Names as they are written, of the columns that share theirs with others.
    pub renamed: BTreeMap<usize, String>,
    /// Fields that are missing ones.
    pub missing: BTreeSet<String>,
    pub width: usize,
}

/// The first line.
#[derive(Clone, Debug)]
pub(super) enum FirstLine {
    /// A row.
    Row,
    /// Names of the columns, each of its own.
    Names(StringRecord),
    /// Numbers of rows and columns and the names of the classes, by the numbers in the last column: the head of the tables
    /// that scikit-learn ships.
    Classes(Vec<String>),
}

impl Dialect {
    /// Looks at the start of a table. `like` is the format of the table that a model was trained on: its signs are taken
    /// where they fit.
    pub fn of(source: &TableSource, settings: &CsvSettings, like: Option<&Format>) -> Result<Self> {
        let like = match like {
            Some(Format::Csv { delimiter, decimal, .. }) => Some((*delimiter, *decimal)),
            _ => None,
        };
        let sample = TableStart::of(source)?;
        let preferred = like.and_then(|(delimiter, _)| u8::try_from(delimiter).ok());
        let delimiter = match settings.delimiter {
            Some(given) => ascii(given)?,
            None => delimiter(&sample, preferred),
        };
        let records = sample.records(delimiter);
        let (decimal, is_decimal_settled) = match settings.decimal {
            Some(given @ ('.' | ',')) => (given, true),
            Some(other) => {
                let problem = format!("needs `.` or `,`, but is `{other}`");
                return Err(Error::setting("`decimal`", problem, "leave it out: it is found by itself"));
            }
            None => decimal(&records, delimiter, like.map(|(_, decimal)| decimal)),
        };
        let empty =
            || Error::data(source.named(), "needs at least one row, but has none", "check that it is the right file");
        // Bytes that are no text have no record here; reading them is an error with a line.
        let first = match records.first() {
            Some(first) => first.clone(),
            None if sample.bytes.iter().all(u8::is_ascii_whitespace) => return Err(empty()),
            None => StringRecord::new(),
        };
        let head = match settings.header {
            Some(true) => FirstLine::Names(first.clone()),
            Some(false) => FirstLine::Row,
            None => head(&records, &first, decimal),
        };
        let (head, renamed) = match head {
            FirstLine::Names(written) => {
                let (names, renamed) = distinct(&written);
                (FirstLine::Names(names), renamed)
            }
            other => (other, BTreeMap::new()),
        };
        let width = match &head {
            FirstLine::Classes(_) => records.get(1).map_or(0, StringRecord::len),
            _ => first.len(),
        };
        let missing = missing_values(settings.missing_values.as_deref()).into_iter().collect();
        let is_decimal_given = settings.decimal.is_some();
        Ok(Self { delimiter, decimal, is_decimal_given, is_decimal_settled, head, renamed, missing, width })
    }

    pub fn header(&self) -> Option<&StringRecord> {
        if let FirstLine::Names(names) = &self.head { Some(names) } else { None }
    }

    /// Whether a header has names that are numbers: such a line is one of names only beside enough rows.
    pub fn has_numbered_names(&self) -> bool {
        self.header().is_some_and(|names| names.iter().any(|name| self.numeral(name).is_some()))
    }

    /// The number of a field, if it is finite as an f32. It keeps all digits: the mean is taken off before they are rounded.
    pub fn number(&self, field: &str) -> Option<f64> {
        self.numeral(field).filter(|number| number.abs() <= f64::from(f32::MAX))
    }

    /// The number of a field that has the form of one.
    pub fn numeral(&self, field: &str) -> Option<f64> {
        numeral(field, self.decimal)
    }

    pub fn is_missing(&self, field: &str) -> bool {
        self.missing.contains(field)
    }

    /// Calls `each` with every row, in order.
    pub fn for_each_row(&self, source: &TableSource, mut each: impl FnMut(&StringRecord) -> Result<()>) -> Result<()> {
        let since = Cell::new(0);
        let mut reader = reader(self.delimiter).from_reader(RowLimit { file: source.read_from(0)?, since: &since });
        let mut is_head = !matches!(self.head, FirstLine::Row);
        let mut record = StringRecord::new();
        loop {
            let begin = reader.position().clone();
            if !reader.read_record(&mut record).map_err(|error| unreadable(source, &error, &begin))? {
                return Ok(());
            }
            since.set(0);
            if std::mem::take(&mut is_head) {
                continue;
            }
            if record.len() != self.width {
                return Err(self.uneven(source, &record));
            }
            each(&record)?;
        }
    }

    /// The error of a record with another number of fields. A quote that is not closed takes the fields behind it for its own.
    fn uneven(&self, source: &TableSource, record: &StringRecord) -> Error {
        let begin = record.position().map_or(0, Position::byte);
        let holds = |signs: &[char]| record.iter().position(|field| field.contains(signs));
        let delimiter = char::from(self.delimiter);
        if holds(&['\n', '\r', delimiter]).is_some()
            && let Err(error) = check_last_quote(source, self.delimiter, begin)
        {
            return error;
        }
        let help = match holds(&['\n', '\r']) {
            Some(column) => format!(
                "in column {column} of this line a quote opens that a later line closes: close it where its field ends; a quote within a \
                 quoted field is written twice: `\"\"`"
            ),
            None => LINE_HELP.into(),
        };
        let problem = format!("needs {} fields as the first line has, but has {}", self.width, record.len());
        Error::data(source.line_of(record.position()), problem, help)
    }
}

const ENCODING_HELP: &str = "save the table as UTF-8: spreadsheets call it \"CSV UTF-8\"";
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

/// The start of a table.
struct TableStart {
    bytes: Vec<u8>,
    /// Whether it is the whole table.
    is_whole: bool,
}

impl TableStart {
    fn of(source: &TableSource) -> Result<Self> {
        let mut file = source.read_from(0)?;
        let (mut bytes, mut most) = (Vec::new(), SAMPLE_BYTES);
        loop {
            let missing = most - bytes.len() as u64;
            file.by_ref().take(missing).read_to_end(&mut bytes).map_err(|error| source.unreadable(error))?;
            let is_whole = (bytes.len() as u64) < most;
            if is_whole || most == MOST_SAMPLE_BYTES || n_lines(&bytes) >= FEWEST_LINES {
                if names_delimiter(&bytes) {
                    return Err(for_spreadsheets(source));
                }
                return if bytes.contains(&0) { Err(no_text(source)) } else { Ok(Self { bytes, is_whole }) };
            }
            most = (2 * most).min(MOST_SAMPLE_BYTES);
        }
    }

    /// The whole records.
    fn records(&self, delimiter: u8) -> Vec<StringRecord> {
        let mut reader: Reader<&[u8]> = reader(delimiter).from_reader(&self.bytes);
        let mut records: Vec<StringRecord> = reader.records().filter_map(Result::ok).collect();
        // The last one may be cut off.
        if !self.is_whole && records.len() > 1 {
            records.pop();
        }
        records
    }
}

/// Line ends outside of quotes.
fn n_lines(text: &[u8]) -> usize {
    let (mut lines, mut is_quoted) = (0, false);
    for byte in text {
        is_quoted ^= *byte == b'"';
        lines += usize::from(!is_quoted && *byte == b'\n');
    }
    lines
}

fn no_text(source: &TableSource) -> Error {
    Error::data(source.named(), "needs to be text, but has zero bytes", ENCODING_HELP)
}

/// Whether the first line is `sep=;` or another delimiter's, by which Excel is told how to read the file.
fn names_delimiter(text: &[u8]) -> bool {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let line = text.split(|byte| b"\r\n".contains(byte)).next().unwrap_or_default();
    let line = line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\"")).unwrap_or(line);
    line.len() == 5 && line[..4].eq_ignore_ascii_case(b"sep=")
}

fn for_spreadsheets(source: &TableSource) -> Error {
    let problem = "needs names or values in its first line, but has `sep=`, which only spreadsheets read";
    Error::data(source.named(), problem, "take that line out: the delimiter is found without it")
}

/// The delimiter that divides most lines into as many fields as the first.
fn delimiter(sample: &TableStart, preferred: Option<u8>) -> u8 {
    let score = |delimiter: &u8| {
        let records = sample.records(*delimiter);
        let Some(first) = records.first() else { return (0, 0) };
        // The head of scikit-learn's tables is shorter than the rows.
        let width = if class_names(&records).is_some() { records[1].len() } else { first.len() };
        if width < 2 { (0, 0) } else { (records.iter().filter(|record| record.len() == width).count(), width) }
    };
    let scores = DELIMITERS.map(|delimiter| score(&delimiter));
    let most = scores.iter().map(|(records, _)| *records).max();
    if let Some(preferred) = preferred
        && Some(score(&preferred).0) >= most
    {
        return preferred;
    }
    // The first of the best.
    let best = DELIMITERS.into_iter().zip(scores).rev().max_by_key(|(_, score)| *score);
    best.map_or(DELIMITERS[0], |(delimiter, _)| delimiter)
}

/// The number of a field that has the form of one.
fn numeral(field: &str, decimal: char) -> Option<f64> {
    plain(field, decimal)?.parse().ok()
}

/// The use of the first line.
fn head(records: &[StringRecord], first: &StringRecord, decimal: char) -> FirstLine {
    if let Some(names) = class_names(records) {
        return FirstLine::Classes(names);
    }
    let is_number = |field: &str| numeral(field, decimal).is_some_and(f64::is_finite);
    let has_numbers = first.iter().any(is_number);
    let are_names = !has_numbers || are_numbered_names(records.get(1..).unwrap_or_default(), first, &is_number);
    if are_names && !first.is_empty() { FirstLine::Names(first.clone()) } else { FirstLine::Row }
}

/// Whether a line with numbers names columns, such as years, or places as pandas numbers them: whole numbers, each once, beside a text over a
/// column of numbers, or three or more that follow each other beside texts that no row has.
fn are_numbered_names(rows: &[StringRecord], first: &StringRecord, is_number: &impl Fn(&str) -> bool) -> bool {
    let (numbers, texts): (Vec<_>, Vec<_>) = first.iter().enumerate().partition(|(_, field)| is_number(field));
    let whole: Vec<u32> = numbers.iter().filter_map(|(_, field)| field.parse().ok()).collect();
    let mut distinct = BTreeSet::new();
    if whole.len() != numbers.len() || !whole.iter().all(|number| distinct.insert(number)) || rows.len() < 3 {
        return false;
    }
    let names: Vec<_> =
        texts.into_iter().filter(|(_, name)| !name.is_empty() && !MISSING_VALUES.contains(name)).collect();
    let below = |column: usize| {
        rows.iter().filter_map(move |row| row.get(column)).filter(|field| !MISSING_VALUES.contains(field))
    };
    let is_over_numbers = |column: usize| below(column).next().is_some() && below(column).all(is_number);
    let follow = whole.len() >= 3 && whole.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
    let recurs = |(column, name): &(usize, &str)| below(*column).any(|field| field == *name);
    names.iter().any(|(column, _)| is_over_numbers(*column)) || follow && !names.is_empty() && !names.iter().any(recurs)
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
struct RowLimit<'a, R> {
    file: R,
    /// Bytes since the last whole row.
    since: &'a Cell<u64>,
}

impl<R: Read> Read for RowLimit<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.since.get() > MAX_ROW_BYTES {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        let read = self.file.read(to)?;
        self.since.set(self.since.get() + read as u64);
        Ok(read)
    }
}

/// The error of a record, which begins at a place.
fn unreadable(source: &TableSource, error: &::csv::Error, begin: &Position) -> Error {
    match error.kind() {
        ErrorKind::Utf8 { .. } => {
            let problem = "needs UTF-8 text, but has other bytes";
            Error::data(source.line_of(error.position()), problem, ENCODING_HELP)
        }
        ErrorKind::Io(cause) if cause.kind() == std::io::ErrorKind::FileTooLarge => Error::data(
            source.line_of(Some(begin)),
            format!("begins a row of more than {MAX_ROW_BYTES} bytes: is a quote not closed?"),
            QUOTE_HELP,
        ),
        _ => Error::data(source.line_of(error.position()), format!("can't be read: {error}"), LINE_HELP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> TableStart {
        TableStart { bytes: text.into(), is_whole: true }
    }

    fn delimiter_of(text: &str) -> char {
        delimiter(&sample(text), None).into()
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
        assert_eq!(delimiter(&sample("1,5;2,5\n"), Some(b';')), b';');
        assert_eq!(delimiter(&sample("1\t2\n"), Some(b';')), b'\t');
    }

    #[test]
    fn numbers_are_names_beside_names() {
        let is_header = |text: &str| {
            let records = sample(text).records(b',');
            matches!(head(&records, &records[0], '.'), FirstLine::Names(_))
        };
        for (text, expected) in [
            ("a,b\n1,2\n", true),
            ("0,1,2,y\n5.1,3.5,1.4,a\n4.9,3.0,1.4,b\n4.7,3.2,1.3,a\n", true),
            ("country,2019,2020,2021\nA,1,2,3\nB,4,5,6\nA,7,8,9\n", true),
            ("inf,x,y\n1,2,a\n3,4,b\n5,6,a\n", true),
            ("7,x,y\n1,2,a\n3,4,b\n5,6,a\n", true),
            // Rows: a name that recurs, numbers that are no places, a gap, too few rows to tell.
            ("1,2,3,a\n4,5,6,b\n7,8,9,a\n1,1,1,b\n", false),
            ("5.1,unknown\n4.9,3.0\n4.7,3.2\n1,2\n", false),
            ("5,NA\n4,3\n4,3\n1,2\n", false),
            ("1,2,Ann\n3,4,Bo\n5,6,Cy\n7,8,Di\n", false),
            ("7,x,y\n1,2,a\n3,4,b\n", false),
            ("1,2\n3,4\n5,6\n7,8\n", false),
        ] {
            assert_eq!(is_header(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_head_of_scikit_learn_names_classes() {
        let of = |text: &str| class_names(&sample(text).records(b','));
        assert_eq!(of("2,3,x,y\n1,2,3,0\n4,5,6,1\n"), Some(vec!["x".into(), "y".into()]));
        assert_eq!(of("150,4,a,b,c,d,e,f\n1,2,3,4,0\n").map(|names| names.len()), Some(6));
        assert_eq!(of("178,13,class_0\n1,2\n"), None);
        assert_eq!(of("2,3,x,y\n1,2,x,y\n"), None);
        assert_eq!(of("1,3,x,y\n1,2,3,0\n4,5,6,1\n"), None, "more rows than it says");
    }
}
