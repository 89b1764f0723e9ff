//! Contents of a table before its use is settled, for `manyhands init`.

use std::path::Path;

use super::dialect::{Dialect, FirstLine};
use super::settings::{Column, ColumnKind, CsvSettings};
use super::source::TableSource;
use super::survey::Survey;
pub use super::survey::{NoInput, Suspect};
use crate::Result;
use crate::schema::TableColumn;

/// A table at first sight.
#[derive(Debug)]
pub struct Sketch {
    /// Number of rows.
    pub rows: usize,
    /// Character between cells.
    pub delimiter: char,
    /// Decimal sign of numbers.
    pub decimal: char,
    /// Its columns, in order.
    pub columns: Vec<ColumnSketch>,
    /// Names of the classes in the last column, where the first line has them.
    pub classes: Vec<String>,
}

/// A column at first sight.
#[derive(Debug)]
pub struct ColumnSketch {
    /// Its name and position.
    pub column: TableColumn,
    /// Kind of its values.
    pub kind: ColumnKind,
    /// Reason for which it is no input by itself.
    pub no_input: Option<NoInput>,
    /// Sign that it names rows.
    pub suspect: Option<Suspect>,
    /// Rows without a value.
    pub missing: usize,
    /// Different values; `None` if they are too many to count.
    pub n_values: Option<usize>,
    /// Whether it holds numbers with leading zeros, which count as categories.
    pub is_code: bool,
    /// Whether all values are whole numbers.
    pub is_whole: bool,
    /// Smallest number.
    pub lowest: f64,
    /// Largest number.
    pub highest: f64,
}

/// Looks at a table.
///
/// # Errors
///
/// When it can't be read, or a line has another number of fields.
pub fn sketch(path: &Path) -> Result<Sketch> {
    let source = TableSource::open(path)?;
    let mut dialect = Dialect::of(&source, &CsvSettings::of_outputs(Vec::new()), None)?;
    let Survey { rows, columns } = Survey::of(&source, &mut dialect)?;
    let name = |index: usize| dialect.header().and_then(|header| header.get(index)).map(str::to_owned);
    let columns = columns.into_iter().enumerate().map(|(index, profile)| ColumnSketch {
        column: TableColumn { index, name: name(index), ..TableColumn::default() },
        kind: profile.kind(),
        no_input: profile.no_input(name(index).as_deref()),
        suspect: profile.suspect(name(index).as_deref()),
        missing: profile.missing,
        n_values: profile.n_levels(),
        is_code: profile.is_code(),
        is_whole: profile.is_whole(),
        lowest: profile.lowest,
        highest: profile.highest,
    });
    let columns = columns.collect();
    let classes = if let FirstLine::Classes(names) = &dialect.head { names.clone() } else { Vec::new() };
    Ok(Sketch { rows, delimiter: dialect.delimiter.into(), decimal: dialect.decimal, columns, classes })
}

impl ColumnSketch {
    /// Its name, else its index: as the settings name it. Several columns can have an empty name.
    pub fn key(&self) -> Column {
        match &self.column {
            TableColumn { name: Some(name), index, .. } if name.is_empty() => Column::Index(*index),
            column => Column::of(column),
        }
    }

    /// Its contents, in a word or two.
    pub fn what(&self) -> &'static str {
        match (self.no_input, &self.kind) {
            (None, _) if self.suspect == Some(Suspect::Ids) => "ids",
            (None, _) if self.suspect == Some(Suspect::Shuffled) => "row numbers, shuffled",
            (None, _) if self.suspect == Some(Suspect::Codes) => "hash codes",
            (Some(NoInput::FreeText), _) => "free text",
            (Some(NoInput::RowNumbers), _) => "row numbers",
            (Some(NoInput::OneValue), _) => "one value",
            (Some(NoInput::NoValue), _) => "no value",
            (Some(NoInput::UnclearDate), _) => "date, day or month first",
            (Some(NoInput::Codes), _) => "codes that hardly repeat",
            (None, _) if self.is_code => "codes",
            (None, ColumnKind::Number) => "number",
            (None, ColumnKind::Boolean) => "yes or no",
            (None, ColumnKind::Date(_)) => "date",
            (None, ColumnKind::Category | ColumnKind::Index) => "category",
        }
    }
}
