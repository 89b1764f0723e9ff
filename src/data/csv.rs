//! Tables of comma-separated values.
//!
//! One row a line; a column is an input unless it is named as a target, as the weight or to be left
//! out. UTF-8, with or without a byte-order mark; lines end with LF or CRLF; fields may be quoted.

mod layout;
mod notes;
mod settings;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use ::csv::{ErrorKind, Position, ReaderBuilder, StringRecord, Trim};
use ndarray::{Array1, Array2};

pub use self::settings::{Column, CsvSettings, InputColumns, OneOrMany, OutputColumns, TargetKind};

use self::layout::{Layout, Part, Targets, TextPart, inputs_like};
use super::{InMemory, label_value};
use crate::schema::{Schema, Text, few};
use crate::vocabulary::Vocabulary;
use crate::{Error, Result, shown};

/// Most bytes of a row: a longer one has an unclosed quote, or the file is no table.
pub const MAX_ROW_BYTES: u64 = 16 << 20;

/// A table that was read.
#[derive(Clone, Debug)]
pub struct CsvTable {
    /// Its rows: each input is `[batch, columns]`. Its schema names columns and classes.
    pub dataset: InMemory,
}

/// Reads a whole table.
///
/// # Errors
///
/// When a column is not there, a line has another number of fields, or a value is missing or no
/// finite number; the error names the line and the column.
pub fn open(path: &Path, settings: &CsvSettings) -> Result<CsvTable> {
    Table::read(path, settings, None, |who, width, header| Layout::new(who, settings, width, header))?.finish(settings)
}

/// Reads a table like another one whose schema is `train`: with its classes and its input columns, in its order.
///
/// Where both have a header, the input columns are found by name, in any order, and others are left out. Else the table
/// needs as many columns as the other, with the same uses.
///
/// # Errors
///
/// As [`open`]; also when an input column is not there, or a class is not among those of `train`.
pub fn open_like(path: &Path, settings: &CsvSettings, train: &Schema) -> Result<CsvTable> {
    let layout = |who: &str, width, header: Option<StringRecord>| {
        let inputs = inputs_like(who, train, width, header.as_ref(), Targets::Needed)?;
        Layout::with_inputs(who, settings, width, header, |_| Ok(inputs))
    };
    Table::read(path, settings, Some(train), layout)?.finish(settings)
}

/// Reads a table to predict from: the input columns of `train`, without targets and weights.
///
/// Where both tables have a header, columns are found by name, in any order, and others are left out. Else the table
/// needs the input columns alone, in their order, or as many columns as `train` has, with the same uses.
///
/// # Errors
///
/// When an input column is not there, a line has another number of fields, or an input is missing or no finite number;
/// the error names the line and the column.
pub fn open_inputs(path: &Path, settings: &CsvSettings, train: &Schema) -> Result<InMemory> {
    let settings = CsvSettings { outputs: Vec::new(), sample_weight: None, ..settings.clone() };
    let layout = |who: &str, width, header: Option<StringRecord>| {
        let inputs = inputs_like(who, train, width, header.as_ref(), Targets::None)?;
        Ok(Layout { width, inputs, targets: Vec::new(), weight: None, header })
    };
    Ok(Table::read(path, &settings, None, layout)?.finish(&settings)?.dataset)
}

/// A table as far as it is read.
struct Table {
    path: PathBuf,
    layout: Layout,
    rows: usize,
    inputs: Vec<Input>,
    targets: Vec<Target>,
    weights: Vec<f32>,
    /// Start of the last row, in bytes.
    last_row: u64,
    /// Rows of several lines, and the start of the first.
    broken_rows: usize,
    first_broken: Option<Position>,
}

/// The values of one input.
enum Input {
    Numbers(Vec<f32>),
    Texts(Vec<String>),
}

/// The values of one target.
enum Target {
    Values(Vec<f32>),
    Classes(Classes),
}

/// The labels of one target, by the order in which the classes were met.
#[derive(Default)]
struct Classes {
    labels: Vec<usize>,
    met: BTreeMap<String, usize>,
    /// The only classes that may be met.
    known: Option<Vec<String>>,
}

impl Table {
    /// `like` holds the known classes. `layout` takes the table's name in errors, the number of columns, and the
    /// header.
    fn read(
        path: &Path,
        settings: &CsvSettings,
        like: Option<&Schema>,
        layout: impl FnOnce(&str, usize, Option<StringRecord>) -> Result<Layout>,
    ) -> Result<Self> {
        let who = named(path);
        let file = std::fs::File::open(path).map_err(|source| Error::reading(path, source))?;
        let delimiter = u8::try_from(settings.delimiter).map_err(|_| {
            let problem = format!("needs an ASCII character, but is `{}`", settings.delimiter);
            Error::setting("`delimiter`", problem, "use `,`, `;` or a tab")
        })?;
        let since = Cell::new(0);
        let file = RowLimit { file, since: &since };
        let mut reader = ReaderBuilder::new().has_headers(false).delimiter(delimiter).trim(Trim::All).from_reader(file);
        let mut records = reader.records().map(|record| {
            since.set(0);
            record.map_err(|error| unreadable(path, &error))
        });
        let empty = || Error::data(&who, "needs at least one row, but has none", "check that it is the right file");
        let first = records.next().ok_or_else(empty)??;
        let has_header = settings.header.unwrap_or_else(|| first.iter().all(|field| field.parse::<f64>().is_err()));
        let layout = layout(&who, first.len(), has_header.then(|| first.clone()))?;
        let mut table = Self::new(path, layout, settings, like);
        for record in (!has_header).then_some(Ok(first)).into_iter().chain(records) {
            table.push(&record?)?;
        }
        if table.rows == 0 {
            return Err(empty());
        }
        notes::check_last_quote(path, delimiter, table.last_row)?;
        Ok(table)
    }

    fn new(path: &Path, layout: Layout, settings: &CsvSettings, like: Option<&Schema>) -> Self {
        let target = |(output, at): (&OutputColumns, usize)| match output.target_kind {
            TargetKind::Values => Target::Values(Vec::new()),
            TargetKind::Classes => {
                let known = like.map(|schema| schema.classes(at)).filter(|classes| !classes.is_empty());
                let met = known.unwrap_or_default().iter().cloned().zip(0..).collect();
                Target::Classes(Classes { labels: Vec::new(), met, known: known.map(<[String]>::to_vec) })
            }
        };
        Self {
            path: path.to_path_buf(),
            inputs: layout.inputs.iter().map(Input::new).collect(),
            targets: settings.outputs.iter().zip(0..).map(target).collect(),
            layout,
            rows: 0,
            weights: Vec::new(),
            last_row: 0,
            broken_rows: 0,
            first_broken: None,
        }
    }

    fn push(&mut self, record: &StringRecord) -> Result<()> {
        self.rows += 1;
        self.last_row = record.position().map_or(0, Position::byte);
        let is_text =
            |column: usize| self.layout.inputs.iter().any(|part| part.text.is_some() && part.columns == [column]);
        if (0..record.len()).any(|column| record[column].contains(['\n', '\r']) && !is_text(column)) {
            self.broken_rows += 1;
            self.first_broken = self.first_broken.take().or_else(|| record.position().cloned());
        }
        self.reserve()?;
        let (path, layout) = (&self.path, &self.layout);
        let number = |column: &usize| layout.number(path, record, *column);
        for (part, values) in layout.inputs.iter().zip(&mut self.inputs) {
            for column in &part.columns {
                match values {
                    Input::Numbers(values) => values.push(number(column)?),
                    Input::Texts(texts) => texts.push(record[*column].to_owned()),
                }
            }
        }
        if let Some(column) = &layout.weight {
            self.weights.push(number(column)?);
        }
        for (part, target) in layout.targets.iter().zip(&mut self.targets) {
            for &column in &part.columns {
                match target {
                    Target::Values(values) => values.push(number(&column)?),
                    Target::Classes(classes) => classes
                        .push(&record[column])
                        .map_err(|needed| layout.bad_field(path, record, column, &needed))?,
                }
            }
        }
        Ok(())
    }

    /// Makes room for a row: a table may be larger than memory.
    fn reserve(&mut self) -> Result<()> {
        let inputs = self.layout.inputs.iter().map(|part| part.columns.len()).zip(&mut self.inputs);
        let has_room = inputs.into_iter().all(|(columns, values)| match values {
            Input::Numbers(values) => values.try_reserve(columns).is_ok(),
            Input::Texts(texts) => texts.try_reserve(1).is_ok(),
        });
        if has_room { Ok(()) } else { Err(super::no_memory(&named(&self.path))) }
    }

    fn finish(mut self, settings: &CsvSettings) -> Result<CsvTable> {
        let notes = notes::notes(&self);
        let texts = self.texts();
        let mut inputs =
            std::mem::take(&mut self.inputs).into_iter().zip(&texts).map(|(input, text)| match (input, text) {
                (Input::Texts(rows), Some(Text { output_sequence_length, vocabulary })) => {
                    rows.iter().flat_map(|row| vocabulary.encode_padded(row, *output_sequence_length)).collect()
                }
                (Input::Numbers(values), _) => values,
                (Input::Texts(_), None) => Vec::new(),
            });
        let mut dataset = InMemory::without_targets(self.array(inputs.next().unwrap_or_default())?)?;
        for values in inputs {
            dataset = dataset.with_input(self.array(values)?)?;
        }
        let mut names = Vec::new();
        for target in std::mem::take(&mut self.targets) {
            match target {
                Target::Values(values) => {
                    dataset = dataset.with_target(self.array(values)?)?;
                    names.push(Vec::new());
                }
                Target::Classes(classes) => {
                    let sorted = classes.known.unwrap_or_else(|| sorted(&classes.met));
                    dataset = dataset.with_target(relabel(&classes.labels, &classes.met, &sorted))?;
                    names.push(sorted);
                }
            }
        }
        if self.layout.weight.is_some() {
            dataset = dataset.with_sample_weights(Array1::from_vec(self.weights))?;
        }
        Ok(CsvTable { dataset: dataset.with_schema(self.layout.schema(settings, texts, names)).with_notes(notes) })
    }

    /// Lengths and vocabularies of the inputs that are texts: those of the training table, if they are known. Inputs of
    /// equal settings share a vocabulary.
    fn texts(&self) -> Vec<Option<Text>> {
        let parts = || self.layout.inputs.iter().zip(&self.inputs);
        let vocabulary = |text: &TextPart| {
            let is_like = |part: &Part| part.text.as_ref().is_some_and(|other| other.tokens == text.tokens);
            let texts = parts().filter(|(part, _)| is_like(part)).flat_map(|(_, input)| match input {
                Input::Texts(texts) => &texts[..],
                Input::Numbers(_) => &[],
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
            Error::data(named(&self.path), format!("can't become an array: {error}"), "please report this")
        })
    }
}

impl Input {
    fn new(part: &Part) -> Self {
        if part.text.is_some() { Self::Texts(Vec::new()) } else { Self::Numbers(Vec::new()) }
    }
}

impl Classes {
    /// Adds the class of a row; the error is what was needed.
    fn push(&mut self, name: &str) -> Result<(), String> {
        let next = self.met.len();
        let label = match (self.met.get(name), &self.known) {
            (Some(&label), _) => label,
            (None, _) if name.is_empty() => return Err("needs a class".into()),
            (None, _) if name.contains(['\n', '\r']) => {
                return Err("needs a class on one line (is a quote not closed?)".into());
            }
            (None, Some(known)) => match equal_number(name, known) {
                Some(label) => label,
                None => return Err(format!("needs one of the training table's classes ({})", few(known))),
            },
            (None, None) => {
                self.met.insert(name.into(), next);
                next
            }
        };
        self.labels.push(label);
        Ok(())
    }
}

/// The number that a class's name represents, if any.
fn number(name: &str) -> Option<f64> {
    name.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The class that is equal to `name` as a number, where all classes are numbers.
fn equal_number(name: &str, classes: &[String]) -> Option<usize> {
    let wanted = number(name)?;
    let numbers: Vec<f64> = classes.iter().map(|class| number(class)).collect::<Option<_>>()?;
    numbers.iter().position(|number| *number == wanted)
}

/// Class names sorted, by value if all are numbers; then those of equal value are one class, by its shortest name.
fn sorted(classes: &BTreeMap<String, usize>) -> Vec<String> {
    let names: Vec<&String> = classes.keys().collect();
    let Some(values) = names.iter().map(|name| number(name)).collect::<Option<Vec<f64>>>() else {
        return names.into_iter().cloned().collect();
    };
    // 0 and -0 are equal, too.
    let mut by_value: Vec<(f64, &String)> = values.into_iter().map(|value| value + 0.0).zip(names).collect();
    by_value.sort_by(|(a, a_name), (b, b_name)| {
        a.total_cmp(b).then(a_name.len().cmp(&b_name.len())).then(a_name.cmp(b_name))
    });
    by_value.dedup_by(|(a, _), (b, _)| a == b);
    by_value.into_iter().map(|(_, name)| name.clone()).collect()
}

/// Labels in the order of `names`, from labels in the order in which the classes were met.
fn relabel(labels: &[usize], classes: &BTreeMap<String, usize>, names: &[String]) -> Array1<f32> {
    let place: BTreeMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
    let mut sorted_label = vec![0.0; classes.len()];
    for (name, &met) in classes {
        if let Some(label) = place.get(name.as_str()).copied().or_else(|| equal_number(name, names)) {
            sorted_label[met] = label_value(label);
        }
    }
    labels.iter().map(|&met| sorted_label[met]).collect()
}

/// A file that limits the length of rows.
struct RowLimit<'a> {
    file: std::fs::File,
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

fn named(path: &Path) -> String {
    format!("`{}`", shown(path))
}

/// The file and the line where a record starts, counted from 1.
///
/// The reader's own line is that of the end of the record before, which blank lines keep apart, so
/// the file is read again up to there.
fn line_of(path: &Path, position: Option<&Position>) -> String {
    let Some(position) = position else { return named(path) };
    let text = std::fs::read(path).unwrap_or_default();
    let before = usize::try_from(position.byte()).unwrap_or(usize::MAX).min(text.len());
    let blank = text[before..].iter().take_while(|byte| b"\r\n".contains(byte)).count();
    let ends_line = |(at, byte): &(usize, &u8)| match byte {
        b'\n' => true,
        b'\r' => text.get(at + 1) != Some(&b'\n'),
        _ => false,
    };
    let line = 1 + text[..before + blank].iter().enumerate().filter(ends_line).count();
    format!("{} line {line}", named(path))
}

fn unreadable(path: &Path, error: &::csv::Error) -> Error {
    let problem = match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("needs {expected_len} fields as the first line has, but has {len}")
        }
        ErrorKind::Utf8 { .. } => "needs UTF-8 text, but has other bytes".into(),
        _ => format!("can't be read: {error}"),
    };
    let help = "check the line, and that `delimiter` is the character between fields";
    Error::data(line_of(path, error.position()), problem, help)
}
