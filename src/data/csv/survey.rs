//! First reading of a table: the kind of each column.

use std::collections::BTreeSet;

use super::dates::Forms;
use super::dialect::Dialect;
use super::header::written;
use super::nearly::{Alike, NearlyNumbers};
use super::numerals::{Sign, Signs, has_three_groups, other, plain, sign, usual};
use super::settings::ColumnKind;
use super::source::TableSource;
use crate::schema::few;
use crate::{Result, shown};

/// Different fields of a column that are counted, at most.
const MOST_LEVELS: usize = 1000;
/// Different fields that a column of names has at least to be free text.
const FEWEST_OF_TEXT: usize = 20;
/// Rows from which on a column of rising numbers can be theirs.
const FEWEST_NUMBERED: usize = 10;
/// Rows from which on numbers from 0 or 1 on are shuffled numbers of rows, and no ranks of a few.
const FEWEST_SHUFFLED: usize = 20;
/// Digits of a code with leading zeros, at least.
const FEWEST_OF_CODE: usize = 4;
/// Characters of a hash code, at least.
const FEWEST_OF_HEX: usize = 16;
/// Part of a column's fields that are numbers where the others are mistakes; part of ids that are different.
const MOSTLY: f64 = 0.9;
/// Different numbers beside which a few words are no categories of their own, but may stand for missing numbers.
const FEWEST_AMONG_WORDS: f64 = 10.0;
/// Fields of a column from which on a few can be mistakes.
const FEWEST_MISTAKEN: usize = 10;

/// Number of rows, and a profile of each column.
#[derive(Debug)]
pub(super) struct Survey {
    pub rows: usize,
    pub columns: Vec<Profile>,
}

/// The fields of a column.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    pub missing: usize,
    /// Fields that are there.
    pub there: usize,
    numbers: usize,
    nearly: NearlyNumbers,
    whole: usize,
    booleans: usize,
    forms: Forms,
    /// Different fields; `None` if they are too many.
    levels: Levels,
    /// The last whole number, if they rise from row to row.
    rising: Option<Option<u64>>,
    pub lowest: f64,
    pub highest: f64,
    /// Different numbers, counted by their hashes.
    distinct: Distinct,
    /// Sum of the hashes of whole numbers, whatever their order.
    sum: u64,
    /// Whether a field is no hash code.
    is_not_hex: bool,
    /// Whether a field is not three groups of three digits with blanks between, as the number of a firm or a phone.
    is_not_grouped: bool,
    digits: Digits,
    /// Decimal signs of the numbers, and the first number that can be read with either; counted where the table's sign is doubtful.
    signs: Signs,
    unclear: Option<String>,
}

/// Fields as digits of one length: a ZIP code is one with its leading zeros, and no quantity.
#[derive(Clone, Copy, Debug, Default)]
struct Digits {
    /// Length of the first field.
    length: usize,
    /// Whether a field has another length, or other characters.
    is_broken: bool,
    /// Whether a field begins with 0.
    is_padded: bool,
    /// Whether a field is no time as 0930, and no day as 1231.
    is_not_time: bool,
}

#[derive(Clone, Debug)]
struct Levels(Option<BTreeSet<String>>);

impl Default for Levels {
    fn default() -> Self {
        Self(Some(BTreeSet::new()))
    }
}

/// The smallest hashes of different values: their distances say how many there are.
/// Source: Bar-Yossef et al. 2002, "Counting distinct elements in a data stream", algorithm 1.
#[derive(Clone, Debug, Default)]
struct Distinct(BTreeSet<u64>);

/// Sign that a column names rows, and is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspect {
    /// Whole numbers that hardly ever repeat, in a column with the name of an id.
    Ids,
    /// All numbers from 0 or 1 on, shuffled.
    Shuffled,
    /// Hash codes.
    Codes,
}

/// Reason why a column is no input unless it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoInput {
    /// Nearly every row has a text of its own.
    FreeText,
    /// Whole numbers, nearly all different, as of rows.
    RowNumbers,
    /// One value in all rows.
    OneValue,
    /// No value in any row.
    NoValue,
    /// Dates whose day and month can't be told apart.
    UnclearDate,
    /// Numbers with leading zeros, most of which come once.
    Codes,
}

impl Survey {
    /// Looks at all rows. Where no number at the start of the table settles the decimal sign, a later one does.
    pub fn of(source: &TableSource, dialect: &mut Dialect) -> Result<Self> {
        let this = Self::read(source, dialect)?;
        match this.signs().settled() {
            Some(later) if !dialect.is_decimal_settled && later != dialect.decimal => {
                (dialect.decimal, dialect.is_decimal_settled) = (later, true);
                Self::read(source, dialect)
            }
            _ => Ok(this),
        }
    }

    fn read(source: &TableSource, dialect: &Dialect) -> Result<Self> {
        let mut this = Self { rows: 0, columns: vec![Profile::default(); dialect.width] };
        dialect.for_each_row(source, |record| {
            this.rows += 1;
            this.columns.iter_mut().zip(record).for_each(|(column, field)| column.add(field, dialect));
            Ok(())
        })?;
        Ok(this)
    }

    /// Decimal signs of all numbers.
    fn signs(&self) -> Signs {
        let mut all = Signs::default();
        self.columns.iter().for_each(|column| all.add_all(&column.signs));
        all
    }

    /// Warns of columns, by their places and names, all of whose numbers can be read with a decimal point or a comma, in a table that
    /// does not tell.
    pub fn warn_of_signs(&self, who: &str, dialect: &Dialect, columns: impl Iterator<Item = (usize, String)>) {
        let all = self.signs();
        if !is_doubtful(dialect) {
            return;
        }
        let unclear = columns.filter(|(column, _)| self.columns[*column].signs.is_unclear());
        let (places, names): (Vec<usize>, Vec<String>) = unclear.unzip();
        let first = places.first().and_then(|column| self.columns[*column].unclear.as_deref());
        let is_told = all.is_certain() && all.settled() == Some(dialect.decimal);
        let Some(example) = first.filter(|_| !is_told) else { return };
        let (decimal, other) = (dialect.decimal, other(dialect.decimal));
        let [read, else_read] = [decimal, other].map(|sign| plain(example, sign).unwrap_or_default());
        let columns = if names.len() == 1 { "column" } else { "columns" };
        log::warn!(
            "{who}, {columns} {}: numbers such as `{}` are read as {read}, but can be {else_read}: the other numbers do not tell \
             which sign is the decimal one\n  \
             help: set `decimal = \"{other}\"` in `[data]` for {else_read}, or `decimal = \"{decimal}\"` for {read}",
            few(&names),
            shown(example)
        );
    }
}

/// Whether a table has a decimal sign that was found, and that tables of its delimiter do not always have.
fn is_doubtful(dialect: &Dialect) -> bool {
    !dialect.is_decimal_given && usual(dialect.delimiter) != Some(dialect.decimal)
}

impl Profile {
    fn add(&mut self, field: &str, dialect: &Dialect) {
        self.follow(field);
        if dialect.is_missing(field) {
            self.missing += 1;
            return;
        }
        self.there += 1;
        if let Some(number) = dialect.numeral(field) {
            self.numbers += 1;
            if number.abs() <= f64::from(f32::MAX) {
                let is_first = self.numbers == 1;
                self.lowest = if is_first { number } else { self.lowest.min(number) };
                self.highest = if is_first { number } else { self.highest.max(number) };
                self.whole += usize::from(number.fract() == 0.0);
                // 0 and -0 are equal.
                let hash = mixed((number + 0.0).to_bits());
                self.distinct.add(hash);
                self.sum = self.sum.wrapping_add(hash);
            }
        } else {
            self.nearly.add(field, dialect);
        }
        if (is_doubtful(dialect) || !dialect.is_decimal_settled)
            && let Some(sign) = sign(field)
        {
            self.signs.add(sign);
            if matches!(sign, Sign::GroupedComma | Sign::GroupedPoint) && self.unclear.is_none() {
                self.unclear = Some(field.to_owned());
            }
        }
        self.booleans += usize::from(boolean(field).is_some());
        self.is_not_hex |= !is_hex(field);
        self.is_not_grouped = self.is_not_grouped || !has_three_groups(field);
        self.digits.add(field);
        self.forms.keep(field);
        self.levels.add(field);
    }

    /// Follows the numbers of rows: they rise, also where some rows are missing.
    fn follow(&mut self, field: &str) {
        let number = field.parse::<u64>().ok();
        self.rising = Some(match self.rising {
            None => number,
            Some(Some(last)) => number.filter(|number| *number > last),
            Some(None) => None,
        });
    }

    /// The number of different fields; `None` if they are too many to count.
    pub fn n_levels(&self) -> Option<usize> {
        self.levels.0.as_ref().map(BTreeSet::len)
    }

    /// Whether all fields are whole numbers.
    pub fn is_whole(&self) -> bool {
        self.whole == self.there
    }

    /// Whether it holds numbers, perhaps with a few mistakes.
    pub fn is_mostly_numbers(&self) -> bool {
        is_mostly(self.numbers, self.there)
    }

    /// A field of a column that is taken for names, but with the other decimal sign would hold numbers.
    pub fn of_other_sign(&self) -> Option<&str> {
        self.nearly_numbers(&self.nearly.of_other_sign)
    }

    /// A field of a column that is taken for names, but holds numbers with a unit.
    pub fn with_unit(&self) -> Option<&str> {
        self.nearly_numbers(&self.nearly.with_unit)
    }

    /// A field of a column that is taken for names, but holds numbers and a few words that may stand for missing ones.
    pub fn word_among_numbers(&self) -> Option<&str> {
        let is_number = self.kind() == ColumnKind::Category
            && self.numbers * 2 >= self.there
            && self.distinct.count() >= FEWEST_AMONG_WORDS;
        self.nearly.word().filter(|_| is_number)
    }

    fn nearly_numbers<'a>(&self, fields: &'a Alike) -> Option<&'a str> {
        let is_number = self.kind() == ColumnKind::Category && is_mostly(self.numbers + fields.count, self.there);
        fields.example.as_deref().filter(|_| is_number)
    }

    /// The kind of its fields.
    pub fn kind(&self) -> ColumnKind {
        match self.forms.left() {
            _ if self.is_code() => ColumnKind::Category,
            _ if self.is_mostly_numbers() => ColumnKind::Number,
            _ if self.booleans == self.there => ColumnKind::Boolean,
            [] => ColumnKind::Category,
            [form, ..] => ColumnKind::Date(Some(form.clone())),
        }
    }

    /// Whether it holds codes: digits of one length, some with leading zeros, which numbers do not have.
    pub fn is_code(&self) -> bool {
        let Digits { length, is_broken, is_padded, is_not_time } = self.digits;
        length >= FEWEST_OF_CODE && !is_broken && is_padded && (is_not_time || length != 4)
    }

    /// The forms in which all fields are dates.
    pub fn forms(&self) -> &[String] {
        self.forms.left()
    }

    /// Reason for which it is no input, unless it is asked for. `name` is the column's, if it has one.
    pub fn no_input(&self, name: Option<&str>) -> Option<NoInput> {
        let (is_number, is_code) = (self.kind() == ColumnKind::Number, self.is_code());
        let is_one_number = is_number && self.numbers == self.there && self.lowest == self.highest;
        let is_one = (self.n_levels() == Some(1) || is_one_number) && self.missing == 0 && self.there > 1;
        match (self.n_levels(), self.kind()) {
            _ if self.there == 0 => Some(NoInput::NoValue),
            _ if is_one => Some(NoInput::OneValue),
            _ if (is_number || is_code) && self.numbers_rows() && name.is_some_and(names_rows) => {
                Some(NoInput::RowNumbers)
            }
            _ if is_number => None,
            _ if is_code => self.hardly_repeats().then_some(NoInput::Codes),
            (_, ColumnKind::Date(_)) => (self.forms().len() > 1).then_some(NoInput::UnclearDate),
            (None, ColumnKind::Category) => Some(NoInput::FreeText),
            (Some(levels), ColumnKind::Category) => {
                (levels > FEWEST_OF_TEXT && levels * 2 > self.there).then_some(NoInput::FreeText)
            }
            _ => None,
        }
    }

    /// Sign that it names rows. A model would learn them by heart.
    pub fn suspect(&self, name: Option<&str>) -> Option<Suspect> {
        if self.kind() == ColumnKind::Category {
            let has_many = self.n_levels().is_none_or(|levels| levels > FEWEST_OF_TEXT);
            return (has_many && !self.is_not_hex).then_some(Suspect::Codes);
        }
        if self.kind() != ColumnKind::Number || !self.is_whole() || self.there < FEWEST_NUMBERED {
            return None;
        }
        #[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
        let is_distinct = self.distinct.count() >= MOSTLY * self.there as f64;
        let names_ids = |name: &str| names_rows(name) || names_ids(name);
        if is_distinct && (!self.is_not_grouped || name.is_some_and(names_ids)) {
            return Some(Suspect::Ids);
        }
        (self.there >= FEWEST_SHUFFLED && self.rising.flatten().is_none() && self.is_permutation())
            .then_some(Suspect::Shuffled)
    }

    /// Whether most of its numbers come once.
    fn hardly_repeats(&self) -> bool {
        let different = self.distinct.count();
        #[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
        let (fewest, there) = (FEWEST_OF_TEXT as f64, self.there as f64);
        different > fewest && different * 2.0 > there
    }

    /// Whether it holds each number from 0 or 1 on once.
    fn is_permutation(&self) -> bool {
        #[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
        let is_full = self.highest - self.lowest + 1.0 == self.there as f64;
        if self.missing > 0 || !is_full || !(self.lowest == 0.0 || self.lowest == 1.0) {
            return false;
        }
        #[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
        let needed = (0..self.there).map(|row| mixed((self.lowest + row as f64).to_bits()));
        self.sum == needed.fold(0, u64::wrapping_add)
    }

    /// Whether it rises from row to row, in whole numbers.
    fn numbers_rows(&self) -> bool {
        self.there + self.missing >= FEWEST_NUMBERED && self.rising.flatten().is_some()
    }
}

/// Whether so many fields are numbers that the others are mistakes.
#[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
fn is_mostly(numbers: usize, there: usize) -> bool {
    numbers == there || (there >= FEWEST_MISTAKEN && numbers as f64 / there.max(1) as f64 >= MOSTLY)
}

/// Whether a column of this name may hold numbers of rows; other programs write them without a name.
fn names_rows(name: &str) -> bool {
    let name = written(name).to_ascii_lowercase();
    ["", "index", "row", "rownames", "no", "nr", "obs", "observation", "case", "sample"].contains(&&*name)
        || name.starts_with("unnamed: ")
        || name.ends_with("number")
        || (name.ends_with("id") && !NO_IDS.iter().any(|word| name.ends_with(word)))
}

/// Words at the end of a column's name that end like an id, and are none.
const NO_IDS: [&str; 14] = [
    "paid", "bid", "acid", "grid", "fluid", "liquid", "solid", "humid", "mid", "covid", "void", "valid", "hybrid",
    "rapid",
];

/// Whether a name says that a column holds ids, or numbers of rows: one of its words does.
fn names_ids(name: &str) -> bool {
    let words = name.split(|letter: char| !letter.is_alphanumeric()).map(str::to_ascii_lowercase);
    let ids = ["id", "ids", "uid", "uuid", "guid", "nr", "key", "rowid", "rownum", "index", "serial"];
    words.into_iter().any(|word| ids.contains(&&*word))
}

/// Whether a field is a hash code or a UUID: long, of hexadecimal digits of both kinds.
fn is_hex(field: &str) -> bool {
    field.len() >= FEWEST_OF_HEX
        && field.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
        && field.chars().any(|letter| letter.is_ascii_digit())
}

/// A number's bits, mixed so that near numbers are far from each other. Source: Steele, Lea, Flood 2014, `SplitMix64`.
fn mixed(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Digits {
    fn add(&mut self, field: &str) {
        if self.length == 0 {
            self.length = field.len();
        }
        self.is_broken |= field.len() != self.length || !field.bytes().all(|digit| digit.is_ascii_digit());
        self.is_padded |= field.starts_with('0');
        let number = field.parse::<u32>().unwrap_or(u32::MAX);
        self.is_not_time |= number / 100 > 23 || number % 100 > 59;
    }
}

impl Distinct {
    fn add(&mut self, hash: u64) {
        if self.0.len() < MOST_LEVELS || self.0.last().is_some_and(|last| hash < *last) {
            self.0.insert(hash);
            if self.0.len() > MOST_LEVELS {
                self.0.pop_last();
            }
        }
    }

    /// Number of different values: exact up to [`MOST_LEVELS`], later by 3 %.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    fn count(&self) -> f64 {
        match self.0.last() {
            Some(last) if self.0.len() == MOST_LEVELS => (MOST_LEVELS - 1) as f64 / (*last as f64 / u64::MAX as f64),
            _ => self.0.len() as f64,
        }
    }
}

impl Levels {
    fn add(&mut self, field: &str) {
        let Some(levels) = &mut self.0 else { return };
        if levels.contains(field) {
            return;
        }
        if levels.len() < MOST_LEVELS {
            levels.insert(field.to_owned());
        } else {
            self.0 = None;
        }
    }
}

/// Words for yes and for no, in upper or lower case.
pub(crate) const YES: [&str; 4] = ["true", "yes", "t", "y"];
pub(crate) const NO: [&str; 4] = ["false", "no", "f", "n"];

/// The value of a field of a column of yes and no.
pub(super) fn boolean(field: &str) -> Option<bool> {
    let is = |words: [&str; 4]| words.iter().any(|word| field.eq_ignore_ascii_case(word));
    match field {
        _ if is(YES) => Some(true),
        _ if is(NO) => Some(false),
        _ => None,
    }
}
