//! Tables of comma-separated values.
//!
//! One row a line; a column is an input unless it is named as a target, as the weight or to be left
//! out. UTF-8, with or without a byte-order mark; lines end with LF or CRLF; fields may be quoted. Delimiter, decimal sign
//! and header are found in the first lines where no setting says them; the head of the tables that scikit-learn ships, with
//! the names of the classes, is known, too.
//!
//! A column becomes elements of an input by its [kind](ColumnKind), which follows from its fields: numbers are brought to mean 0
//! and standard deviation 1, categories get an element each, yes and no become 1 and 0, dates become years and circles
//! ([`Code`](crate::schema::Code)). A missing field counts as the mean or the most frequent value, and one element more
//! says that it is missing. All of this is fitted to the training rows and kept in the schema, for later tables. Free text,
//! numbers of rows and columns of one value are left out; [`Dataset::notes`](super::Dataset::notes) tells so.

mod classes;
mod dates;
mod dialect;
mod drift;
mod encode;
mod header;
mod layout;
mod nearly;
mod notes;
mod numerals;
mod origin;
mod quotes;
mod settings;
mod signs;
pub mod sketch;
mod source;
mod survey;

use std::path::Path;

use ::csv::{Position, StringRecord};
use ndarray::{Array1, Array2};

#[cfg(feature = "onnx")]
pub(crate) use self::classes::{number, numbers};
#[cfg(feature = "onnx")]
pub(crate) use self::dates::{DAYS_OF_YEAR, elements as date_elements};
pub use self::dialect::MISSING_VALUES;
#[cfg(feature = "onnx")]
pub(crate) use self::dialect::missing_values;
pub use self::quotes::MAX_ROW_BYTES;
pub(crate) use self::settings::MAX_CATEGORIES;
pub use self::settings::{
    Column, ColumnKind, CsvSettings, InputColumns, NumberScale, OneOrMany, OutputColumns, TargetKind,
};

use self::classes::{ClassLabels, relabel, sorted};
use self::dialect::{Dialect, FirstLine};
use self::encode::{Fields, single, spread_of};
use self::layout::{ArrayColumns, ColumnLayout, TableTargets, TextPart, inputs_like};
use self::origin::TableFile;
use self::signs::settle;
use self::source::TableSource;
use self::survey::Survey;
#[cfg(feature = "onnx")]
pub(crate) use self::survey::{NO, YES};
use super::InMemory;
use super::digest::Digest;
use super::labels::label_index;
use super::subset::{Aside, left_rows};
use crate::schema::{Encoding, Missing, Schema, Seen, Text};
use crate::vocabulary::Vocabulary;
use crate::{Error, Result, thousands};

/// A table that was read.
#[derive(Clone, Debug)]
pub struct CsvTable {
    /// Its rows: each input is `[batch, elements]`. Its schema names columns and classes.
    pub dataset: InMemory,
}

/// Reads a whole table, and fits the encodings of its columns to all rows.
///
/// # Errors
///
/// When a column is not there, a line has another number of fields, or a field is not of its column's kind; the error names
/// the line and the column.
pub fn open(path: impl AsRef<Path>, settings: &CsvSettings) -> Result<CsvTable> {
    open_aside(path.as_ref(), settings, None)
}

/// Reads a whole table, and fits the encodings of its columns to the rows that are not set aside.
///
/// # Errors
///
/// As [`open`]; also when no row is left.
pub fn open_aside(path: &Path, settings: &CsvSettings, aside: Option<Aside>) -> Result<CsvTable> {
    let source = TableSource::open(path)?;
    let mut dialect = Dialect::of(&source, settings, None)?;
    let survey = Survey::of(&source, &mut dialect)?;
    let layout = ColumnLayout::new(&source.named(), settings, &dialect, &survey)?;
    survey.warn_of_signs(&source.named(), &dialect, layout.numbers());
    ReadTable::read(&source, settings, None, dialect, layout)?.finish(settings, aside)
}

/// Reads a table like another one whose schema is `train`: with its encodings, its classes and its input columns, in its
/// order.
///
/// Where both have a header, the input columns are found by name, in any order, and others are left out. Else the table
/// needs as many columns as the other, with the same uses.
///
/// # Errors
///
/// As [`open`]; also when an input column is not there, or a class is not among those of `train`.
pub fn open_like(path: &Path, settings: &CsvSettings, train: &Schema) -> Result<CsvTable> {
    let source = TableSource::open(path)?;
    let mut dialect = Dialect::of(&source, settings, Some(&train.format))?;
    let inputs = inputs_like(&source.named(), train, &dialect, TableTargets::Needed)?;
    let mut layout = ColumnLayout::with_inputs(&source.named(), settings, &dialect, |_| Ok(inputs))?;
    for (part, field) in layout.targets.iter_mut().zip(&train.targets) {
        part.seen = field.columns.iter().map(|column| column.seen.clone()).collect();
    }
    let parts: Vec<ArrayColumns> = layout.inputs.iter().chain(&layout.targets).cloned().collect();
    settle(&mut dialect, &source, &train.format, &parts)?;
    ReadTable::read(&source, settings, Some(train), dialect, layout)?.finish(settings, None)
}

/// Reads a table to predict from: the input columns of `train`, without targets and weights.
///
/// Where both tables have a header, columns are found by name, in any order, and others are left out. Else the table
/// needs the input columns alone, in their order, or as many columns as `train` has, with the same uses.
///
/// # Errors
///
/// When an input column is not there, a line has another number of fields, or an input is not of its column's kind;
/// the error names the line and the column.
pub fn open_inputs(path: &Path, settings: &CsvSettings, train: &Schema) -> Result<InMemory> {
    let settings = CsvSettings { outputs: Vec::new(), sample_weight: None, ..settings.clone() };
    let source = TableSource::open(path)?;
    let mut dialect = Dialect::of(&source, &settings, Some(&train.format))?;
    let inputs = inputs_like(&source.named(), train, &dialect, TableTargets::None)?;
    settle(&mut dialect, &source, &train.format, &inputs)?;
    let layout = ColumnLayout::of_inputs(inputs, &dialect);
    Ok(ReadTable::read(&source, &settings, None, dialect, layout)?.finish(&settings, None)?.dataset)
}

/// A table as far as it is read.
struct ReadTable<'a> {
    source: &'a TableSource,
    dialect: Dialect,
    layout: ColumnLayout,
    rows: usize,
    /// Rows that are left out because a target is missing.
    without_target: usize,
    missing: Missing,
    inputs: Vec<InputFields>,
    targets: Vec<TargetValues>,
    weights: Vec<f32>,
    /// Hash of the fields that are used, row by row.
    digest: Digest,
    /// Start of the last row, in bytes.
    last_row: u64,
    /// Rows of several lines, and the start of the first.
    broken_rows: usize,
    first_broken: Option<Position>,
}

/// The fields of one input.
enum InputFields {
    Columns(Vec<Fields>),
    Texts(Vec<String>),
}

/// The values of one target.
enum TargetValues {
    Values(Vec<f64>),
    Classes(ClassLabels),
}

impl<'a> ReadTable<'a> {
    /// `like` holds the known classes.
    fn read(
        source: &'a TableSource,
        settings: &CsvSettings,
        like: Option<&Schema>,
        dialect: Dialect,
        layout: ColumnLayout,
    ) -> Result<Self> {
        let mut table = Self::new(source, dialect.clone(), layout, settings, like);
        dialect.for_each_row(source, |record| table.push(record))?;
        if table.rows == 0 {
            let problem = match table.without_target {
                0 => "needs at least one row, but has none".into(),
                rows => format!("needs at least one row with a target, but has none in {} rows", thousands(rows)),
            };
            return Err(Error::data(source.named(), problem, "check that it is the right file"));
        }
        quotes::check_last_quote(source, dialect.delimiter, table.last_row)?;
        Ok(table)
    }

    fn new(
        source: &'a TableSource,
        dialect: Dialect,
        layout: ColumnLayout,
        settings: &CsvSettings,
        like: Option<&Schema>,
    ) -> Self {
        let target = |(output, at): (&OutputColumns, usize)| match output.target_kind {
            TargetKind::Values => TargetValues::Values(Vec::new()),
            TargetKind::Classes => {
                let known = like.map(|schema| schema.classes(at)).filter(|classes| !classes.is_empty());
                let met = known.unwrap_or_default().iter().cloned().zip(0..).collect();
                TargetValues::Classes(ClassLabels { labels: Vec::new(), met, known: known.map(<[String]>::to_vec) })
            }
        };
        Self {
            source,
            inputs: layout.inputs.iter().map(InputFields::new).collect(),
            targets: settings.outputs.iter().zip(0..).map(target).collect(),
            dialect,
            layout,
            rows: 0,
            without_target: 0,
            missing: settings.missing,
            weights: Vec::new(),
            digest: Digest::default(),
            last_row: 0,
            broken_rows: 0,
            first_broken: None,
        }
    }

    fn push(&mut self, record: &StringRecord) -> Result<()> {
        self.last_row = record.position().map_or(0, Position::byte);
        let is_text =
            |column: usize| self.layout.inputs.iter().any(|part| part.text.is_some() && part.columns == [column]);
        if (0..record.len()).any(|column| record[column].contains(['\n', '\r']) && !is_text(column)) {
            self.broken_rows += 1;
            self.first_broken = self.first_broken.take().or_else(|| record.position().cloned());
        }
        let mut targets = self.layout.targets.iter().flat_map(|part| &part.columns);
        if self.missing == Missing::Fill && targets.any(|column| self.dialect.is_missing(&record[*column])) {
            self.without_target += 1;
            return Ok(());
        }
        self.rows += 1;
        self.reserve()?;
        self.push_inputs(record)?;
        let parts = self.layout.inputs.iter().chain(&self.layout.targets).flat_map(|part| &part.columns);
        parts.chain(&self.layout.weight).for_each(|column| self.digest.add_bytes(record[*column].as_bytes()));
        let (source, layout) = (self.source, &self.layout);
        let number = |column: usize| match self.dialect.number(&record[column]) {
            Some(number) => Ok(number),
            None => Err(layout.bad_field(source, record, column, "needs a finite number")),
        };
        if let Some(column) = layout.weight {
            self.weights.push(single(number(column)?));
        }
        for (part, target) in layout.targets.iter().zip(&mut self.targets) {
            for &column in &part.columns {
                match target {
                    TargetValues::Values(values) => values.push(number(column)?),
                    TargetValues::Classes(classes) => classes
                        .push(class_name(&self.dialect, record, column))
                        .map_err(|needed| layout.bad_field(source, record, column, &needed))?,
                }
            }
        }
        Ok(())
    }

    fn push_inputs(&mut self, record: &StringRecord) -> Result<()> {
        let (source, layout, dialect) = (self.source, &self.layout, &self.dialect);
        for (part, input) in layout.inputs.iter().zip(&mut self.inputs) {
            match input {
                InputFields::Texts(texts) => texts.extend(part.columns.iter().map(|column| record[*column].to_owned())),
                InputFields::Columns(columns) => {
                    for ((fields, reading), column) in columns.iter_mut().zip(&part.readings).zip(&part.columns) {
                        fields
                            .push(&record[*column], reading, dialect)
                            .map_err(|needed| layout.bad_input(source, record, (*column, reading), &needed))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes room for a row: a table may be larger than memory.
    fn reserve(&mut self) -> Result<()> {
        let has_room = self.inputs.iter_mut().all(|input| match input {
            InputFields::Columns(columns) => columns.iter_mut().all(Fields::has_room),
            InputFields::Texts(texts) => texts.try_reserve(1).is_ok(),
        });
        if has_room { Ok(()) } else { Err(super::no_memory(&self.source.named())) }
    }

    fn finish(mut self, settings: &CsvSettings, aside: Option<Aside>) -> Result<CsvTable> {
        let rows = match aside {
            Some(aside) => left_rows(self.rows, self.labels().as_deref(), &aside)?,
            None => (0..self.rows).collect(),
        };
        self.fit(settings, &rows);
        self.look_at_targets(&rows);
        let mut notes = notes::notes(&self, &rows);
        let texts = self.texts();
        let origins = self.source.file().and_then(TableFile::of).map(|file| self.origins(file).shared());
        let mut arrays = Vec::new();
        for (input, (part, text)) in
            std::mem::take(&mut self.inputs).into_iter().zip(self.layout.inputs.iter().zip(&texts))
        {
            let values = match (input, text) {
                (InputFields::Texts(rows), Some(text)) => {
                    let (values, cut) = self.encoded(&rows, text)?;
                    notes.extend(notes::cut(part.name.as_deref(), cut, rows.len(), text));
                    values
                }
                (InputFields::Columns(columns), _) => self.elements(part, columns, &mut notes)?,
                (InputFields::Texts(_), None) => Vec::new(),
            };
            arrays.push(self.array(values)?);
        }
        let mut arrays = arrays.into_iter();
        let first = arrays.next().unwrap_or_else(|| Array2::zeros((self.rows, 0)));
        let mut dataset = InMemory::without_targets(first)?;
        for values in arrays {
            dataset = dataset.with_input(values)?;
        }
        let mut names = Vec::new();
        for target in std::mem::take(&mut self.targets) {
            match target {
                TargetValues::Values(values) => {
                    dataset = dataset.with_target(self.array(values.into_iter().map(single).collect())?)?;
                    names.push(Vec::new());
                }
                TargetValues::Classes(classes) => {
                    let sorted = self.classes(&classes);
                    dataset = dataset.with_target(relabel(&classes.labels, &classes.met, &sorted))?;
                    names.push(sorted);
                }
            }
        }
        if self.layout.weight.is_some() {
            dataset = dataset.with_sample_weights(Array1::from_vec(self.weights))?;
        }
        let schema = self.layout.schema(settings, &self.dialect, texts, names);
        Ok(CsvTable {
            dataset: dataset.with_schema(schema).with_notes(notes).with_origins(origins).with_digest(self.digest),
        })
    }

    /// Way back from the rows to the file.
    fn origins(&self, file: TableFile) -> TableFile {
        let columns = self.layout.inputs.iter().flat_map(|part| &part.columns);
        let targets = self.layout.targets.iter().filter(|_| self.missing == Missing::Fill);
        TableFile {
            delimiter: self.dialect.delimiter,
            has_head: !matches!(self.dialect.head, FirstLine::Row),
            columns: columns.map(|column| (*column, self.layout.column(*column).to_string())).collect(),
            targets: targets.flat_map(|part| part.columns.iter().copied()).collect(),
            missing: self.dialect.missing.clone(),
            rows: self.rows,
            ..file
        }
    }

    /// Fits the encodings that are not known to the rows to train on.
    fn fit(&mut self, settings: &CsvSettings, rows: &[usize]) {
        for (place, (part, input)) in self.layout.inputs.iter_mut().zip(&self.inputs).enumerate() {
            let InputFields::Columns(columns) = input else { continue };
            let is_embedded = settings.embedded.contains(&place);
            let known = |(fields, reading): (&Fields, &encode::ColumnReading)| match &reading.known {
                Some(known) => known.clone(),
                None if is_embedded && reading.kind == ColumnKind::Number && fields.are_whole_numbers() => {
                    Encoding::UNCHANGED
                }
                None => fields.fit(&reading.kind, settings, rows),
            };
            part.encodings = columns.iter().zip(&part.readings).map(known).collect();
            if part.seen.is_empty() {
                let seen = |(fields, encoding): (&Fields, &Encoding)| Some(fields.seen(encoding, rows));
                part.seen = columns.iter().zip(&part.encodings).map(seen).collect();
            }
        }
    }

    /// Compares the targets with those of the training rows; keeps what is in them if these are the training rows.
    fn look_at_targets(&mut self, rows: &[usize]) {
        let layout = &self.layout;
        let names: Vec<Vec<String>> = layout.targets.iter().map(|part| names_of(layout, part)).collect();
        for ((part, target), names) in self.layout.targets.iter_mut().zip(&self.targets).zip(&names) {
            let TargetValues::Values(values) = target else { continue };
            let stride = part.columns.len();
            let of = |at: usize| values.iter().skip(at).step_by(stride).copied();
            if part.seen.is_empty() {
                let of_rows = |at: usize| spread_of(|| Box::new(rows.iter().map(move |row| values[row * stride + at])));
                part.seen = (0..stride).map(|at| Some(Seen { rows: rows.len(), ..of_rows(at) })).collect();
                continue;
            }
            for (at, (seen, name)) in part.seen.iter().zip(names).enumerate() {
                let who = format!("{}, column `{}`", self.source.named(), crate::shown(name));
                drift::numbers(&who, of(at), seen.as_ref());
            }
        }
    }

    /// The tokens of texts, row by row, and the number of texts that have more.
    fn encoded(&self, rows: &[String], text: &Text) -> Result<(Vec<f32>, usize)> {
        let mut cut = 0;
        let length = text.output_sequence_length;
        let mut values = Vec::new();
        let reserved = values.try_reserve_exact(rows.len().saturating_mul(length));
        reserved.map_err(|_| super::no_memory(&self.source.named()))?;
        for row in rows {
            let (tokens, count) = text.vocabulary.padded_and_count(row, length);
            cut += usize::from(count > length);
            values.extend(tokens);
        }
        Ok((values, cut))
    }

    /// The elements of an input, row by row. Each column's fields are given free once they are written.
    fn elements(&self, part: &ArrayColumns, columns: Vec<Fields>, notes: &mut Vec<String>) -> Result<Vec<f32>> {
        let stride: usize = part.encodings.iter().map(Encoding::width).sum();
        let mut values = Vec::new();
        let n_values = self.rows.saturating_mul(stride);
        values.try_reserve_exact(n_values).map_err(|_| super::no_memory(&self.source.named()))?;
        values.resize(n_values, 0.0);
        let mut first = 0;
        for ((((fields, encoding), seen), reading), column) in
            columns.into_iter().zip(&part.encodings).zip(&part.seen).zip(&part.readings).zip(&part.columns)
        {
            let lost = fields.write(encoding, &mut values, first, stride);
            first += encoding.width();
            let name = self.layout.column(*column).to_string();
            match reading.known {
                Some(_) => {
                    let who = format!("{}, column `{}`", self.source.named(), crate::shown(&name));
                    drift::check(&who, &fields, &lost, (encoding, seen.as_ref()))?;
                }
                None => notes.extend(notes::rare(&name, &lost, seen.as_ref())),
            }
        }
        Ok(values)
    }

    /// The names of a target's classes, by label.
    fn classes(&self, of: &ClassLabels) -> Vec<String> {
        of.known.clone().unwrap_or_else(|| self.order(sorted(&of.met)))
    }

    /// The label of each row in the first target, if that has classes.
    fn labels(&self) -> Option<Vec<usize>> {
        let TargetValues::Classes(classes) = self.targets.first()? else { return None };
        let labels = relabel(&classes.labels, &classes.met, &self.classes(classes));
        Some(labels.iter().map(|label| label_index(*label)).collect())
    }

    /// Class names in the order of the head of scikit-learn's tables, where there is one.
    fn order(&self, sorted: Vec<String>) -> Vec<String> {
        match &self.dialect.head {
            FirstLine::Classes(names) if sorted.iter().all(|class| names.contains(class)) => names.clone(),
            _ => sorted,
        }
    }

    /// Lengths and vocabularies of the inputs that are texts: those of the training table, if they are known. Inputs of
    /// equal settings share a vocabulary.
    fn texts(&self) -> Vec<Option<Text>> {
        let parts = || self.layout.inputs.iter().zip(&self.inputs);
        let vocabulary = |text: &TextPart| {
            let is_like = |part: &ArrayColumns| part.text.as_ref().is_some_and(|other| other.tokens == text.tokens);
            let texts = parts().filter(|(part, _)| is_like(part)).flat_map(|(_, input)| match input {
                InputFields::Texts(texts) => &texts[..],
                InputFields::Columns(_) => &[],
            });
            Vocabulary::adapt(text.tokens, texts.map(String::as_str))
        };
        let mut adapted: Vec<Vocabulary> = Vec::new();
        let mut text_of = |text: &TextPart| {
            let is_like = |vocabulary: &&Vocabulary| vocabulary.settings() == text.tokens;
            let found = text.known.as_ref().or_else(|| adapted.iter().find(is_like)).cloned();
            let vocabulary = found.unwrap_or_else(|| {
                adapted.push(vocabulary(text));
                adapted[adapted.len() - 1].clone()
            });
            Text { output_sequence_length: text.length, vocabulary }
        };
        self.layout.inputs.iter().map(|part| part.text.as_ref().map(&mut text_of)).collect()
    }

    /// The values of the rows as an array, one row each.
    fn array(&self, values: Vec<f32>) -> Result<Array2<f32>> {
        Array2::from_shape_vec((self.rows, values.len() / self.rows.max(1)), values).map_err(|error| {
            Error::data(self.source.named(), format!("can't become an array: {error}"), "please report this")
        })
    }
}

impl InputFields {
    fn new(part: &ArrayColumns) -> Self {
        if part.text.is_some() {
            return Self::Texts(Vec::new());
        }
        Self::Columns(part.readings.iter().map(|reading| Fields::new(&reading.kind)).collect())
    }
}

fn names_of(layout: &ColumnLayout, part: &ArrayColumns) -> Vec<String> {
    part.columns.iter().map(|column| layout.column(*column).to_string()).collect()
}

/// The class that a field names: by its number, where the head has the names.
fn class_name<'a>(dialect: &'a Dialect, record: &'a StringRecord, column: usize) -> &'a str {
    let field = &record[column];
    match &dialect.head {
        FirstLine::Classes(names) if column + 1 == record.len() => {
            field.parse().ok().and_then(|label: usize| names.get(label)).map_or(field, String::as_str)
        }
        _ => field,
    }
}
