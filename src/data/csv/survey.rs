//! First reading of a table: the kind of each column.

use std::collections::BTreeSet;
use std::path::Path;

use super::dates::Forms;
use super::dialect::Dialect;
use super::settings::ColumnKind;
use crate::Result;

/// Different fields of a column that are counted, at most.
const MOST_LEVELS: usize = 1000;
/// Different fields that a column of names has at least to be free text.
const FEWEST_OF_TEXT: usize = 20;
/// Rows from which on a column of rising numbers can be theirs.
const FEWEST_NUMBERED: usize = 10;
/// Part of a column's fields that are numbers where the others are mistakes.
const MOSTLY: f64 = 0.9;
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
    whole: usize,
    booleans: usize,
    forms: Forms,
    /// Different fields; `None` if they are too many.
    levels: Levels,
    /// The last whole number, if they rise from row to row.
    rising: Option<Option<u64>>,
    pub lowest: f32,
    pub highest: f32,
}

#[derive(Clone, Debug)]
struct Levels(Option<BTreeSet<String>>);

impl Default for Levels {
    fn default() -> Self {
        Self(Some(BTreeSet::new()))
    }
}

/// Reason why a column is no input unless it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NoInput {
    FreeText,
    RowNumbers,
    OneValue,
    NoValue,
    UnclearDate,
}

impl Survey {
    pub fn of(path: &Path, dialect: &Dialect) -> Result<Self> {
        let mut this = Self { rows: 0, columns: vec![Profile::default(); dialect.width] };
        dialect.for_each_row(path, |record| {
            this.rows += 1;
            this.columns.iter_mut().zip(record).for_each(|(column, field)| column.add(field, dialect));
            Ok(())
        })?;
        Ok(this)
    }
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
            if number.is_finite() {
                let is_first = self.numbers == 1;
                self.lowest = if is_first { number } else { self.lowest.min(number) };
                self.highest = if is_first { number } else { self.highest.max(number) };
                self.whole += usize::from(number.fract() == 0.0);
            }
        }
        self.booleans += usize::from(boolean(field).is_some());
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
        #[allow(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^52")]
        let part = self.numbers as f64 / self.there.max(1) as f64;
        self.numbers == self.there || (self.there >= FEWEST_MISTAKEN && part >= MOSTLY)
    }

    /// The kind of its fields.
    pub fn kind(&self) -> ColumnKind {
        match self.forms.left() {
            _ if self.is_mostly_numbers() => ColumnKind::Number,
            _ if self.booleans == self.there => ColumnKind::Boolean,
            [] => ColumnKind::Category,
            [form, ..] => ColumnKind::Date(Some(form.clone())),
        }
    }

    /// The forms in which all fields are dates.
    pub fn forms(&self) -> &[String] {
        self.forms.left()
    }

    /// Reason for which it is no input, unless it is asked for. `name` is the column's, if it has one.
    pub fn no_input(&self, name: Option<&str>) -> Option<NoInput> {
        let is_number = self.kind() == ColumnKind::Number;
        let is_one = self.n_levels() == Some(1) && self.missing == 0 && self.there > 1;
        match (self.n_levels(), self.kind()) {
            _ if self.there == 0 => Some(NoInput::NoValue),
            _ if is_one && !is_number => Some(NoInput::OneValue),
            _ if is_number => (self.numbers_rows() && name.is_some_and(names_rows)).then_some(NoInput::RowNumbers),
            (_, ColumnKind::Date(_)) => (self.forms().len() > 1).then_some(NoInput::UnclearDate),
            (None, ColumnKind::Category) => Some(NoInput::FreeText),
            (Some(levels), ColumnKind::Category) => {
                (levels > FEWEST_OF_TEXT && levels * 2 > self.there).then_some(NoInput::FreeText)
            }
            _ => None,
        }
    }

    /// Whether it rises from row to row, in whole numbers.
    fn numbers_rows(&self) -> bool {
        self.there + self.missing >= FEWEST_NUMBERED && self.rising.flatten().is_some()
    }
}

/// Whether a column of this name may hold numbers of rows; other programs write them without a name.
fn names_rows(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["", "index", "row", "rownames", "unnamed: 0", "no", "nr"].contains(&&*name)
        || name.ends_with("id")
        || name.ends_with("number")
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

/// The value of a field of a column of yes and no.
pub(super) fn boolean(field: &str) -> Option<bool> {
    let is = |words: [&str; 4]| words.iter().any(|word| field.eq_ignore_ascii_case(word));
    match field {
        _ if is(["true", "yes", "t", "y"]) => Some(true),
        _ if is(["false", "no", "f", "n"]) => Some(false),
        _ => None,
    }
}
