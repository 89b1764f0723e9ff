//! Tables of comma-separated values.
//!
//! One row a line; a column is an input unless it is named as a target, as the weight or to be left
//! out. UTF-8, with or without a byte-order mark; lines end with LF or CRLF; fields may be quoted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::csv::{ErrorKind, Position, ReaderBuilder, StringRecord, Trim};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};

use super::{InMemory, label_value};
use crate::{Error, Result};

/// A column, by its name in the header or by its index, from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a column's name, or its index from 0")]
pub enum Column {
    /// By index, from 0.
    Index(usize),
    /// By name.
    Name(String),
}

/// What the target columns hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// One column of class names or numbers. Sorted (by value, if all are numbers), they become the
    /// labels 0, 1, 2 …; the target has the shape `[batch]`.
    Classes,
    /// Numbers to predict; the target has the shape `[batch, columns]`.
    Values,
}

/// How a table is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvSettings {
    /// The target columns.
    pub target: Vec<Column>,
    /// What they hold.
    pub target_kind: TargetKind,
    /// Columns that are no input, such as a row's name.
    pub ignore: Vec<Column>,
    /// The column of each row's weight in the loss.
    pub sample_weight: Option<Column>,
    /// Whether the first line is a header; by default it is one if none of its fields is a number.
    pub header: Option<bool>,
    /// What stands between two fields. Default: a comma.
    pub delimiter: char,
}

impl CsvSettings {
    /// One target column, and the defaults for the rest.
    pub fn new(target: Column, target_kind: TargetKind) -> Self {
        let target = vec![target];
        Self { target, target_kind, ignore: Vec::new(), sample_weight: None, header: None, delimiter: ',' }
    }
}

/// A table that was read.
#[derive(Clone, Debug)]
pub struct CsvTable {
    /// Its rows: input 0 is `[batch, columns.len()]`.
    pub dataset: InMemory,
    /// Names of the input columns, or `column 3` where there is no header.
    pub columns: Vec<String>,
    /// Names of the classes, by label.
    pub classes: Option<Vec<String>>,
    layout: Layout,
}

/// Reads a whole table.
///
/// # Errors
///
/// When a column is not there, a line has another number of fields, or a value is missing or no
/// finite number; the error names the line and the column.
pub fn open(path: &Path, settings: &CsvSettings) -> Result<CsvTable> {
    Table::read(path, settings, None, |who, n_columns, header| Layout::new(who, settings, n_columns, header))?.finish()
}

/// Reads a table for testing: with the classes of `train`, and the same input columns.
///
/// # Errors
///
/// As [`open`]; also when the input columns differ, or a class is not among those of `train`.
pub fn open_like(path: &Path, settings: &CsvSettings, train: &CsvTable) -> Result<CsvTable> {
    let layout = |who: &str, n_columns, header| Layout::new(who, settings, n_columns, header);
    let table = Table::read(path, settings, train.classes.as_deref(), layout)?;
    let columns = table.layout.columns();
    if columns != train.columns {
        return Err(Error::data(
            named(path),
            format!("needs the input columns of the training table, but has {}", columns.join(", ")),
            format!("the training table has {}", train.columns.join(", ")),
        ));
    }
    table.finish()
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
pub fn open_inputs(path: &Path, settings: &CsvSettings, train: &CsvTable) -> Result<InMemory> {
    let layout = |who: &str, n_columns, header| Layout::of_inputs(who, &train.layout, n_columns, header);
    Ok(Table::read(path, settings, None, layout)?.finish()?.dataset)
}

/// Indices of columns by their use.
#[derive(Clone, Debug)]
struct Layout {
    n_columns: usize,
    inputs: Vec<usize>,
    targets: Targets,
    weight: Option<usize>,
    header: Option<StringRecord>,
}

/// Indices of the target columns.
#[derive(Clone, Debug)]
enum Targets {
    /// A table to predict from.
    None,
    /// Names of classes.
    Class(usize),
    /// Numbers.
    Values(Vec<usize>),
}

impl Layout {
    fn new(who: &str, settings: &CsvSettings, n_columns: usize, header: Option<StringRecord>) -> Result<Self> {
        let find = |column: &Column| find(who, column, n_columns, header.as_ref());
        let targets = settings.target.iter().map(find).collect::<Result<Vec<_>>>()?;
        let weight = settings.sample_weight.as_ref().map(find).transpose()?;
        let ignored = settings.ignore.iter().map(find).collect::<Result<Vec<_>>>()?;
        let used = [&targets[..], &ignored, weight.as_slice()].concat();
        let inputs: Vec<usize> = (0..n_columns).filter(|column| !used.contains(column)).collect();
        let targets = match (settings.target_kind, &targets[..]) {
            (TargetKind::Classes, &[target]) if !inputs.is_empty() => Targets::Class(target),
            (TargetKind::Values, [_, ..]) if !inputs.is_empty() => Targets::Values(targets),
            _ => {
                let problem = format!("has {} input columns and {} target columns", inputs.len(), targets.len());
                let help = "at least one input is needed, and one target: several only if its kind is `values`";
                return Err(Error::data(who, problem, help));
            }
        };
        Ok(Self { n_columns, inputs, targets, weight, header })
    }

    /// Where the input columns of the training table stand in another.
    fn of_inputs(who: &str, train: &Self, n_columns: usize, header: Option<StringRecord>) -> Result<Self> {
        let inputs = match (&header, &train.header) {
            // Also where a name stands twice.
            (Some(header), Some(names)) if header == names => train.inputs.clone(),
            (Some(_), Some(_)) => {
                let find = |name: String| find(who, &Column::Name(name), n_columns, header.as_ref());
                train.columns().into_iter().map(find).collect::<Result<_>>()?
            }
            _ if n_columns == train.inputs.len() => (0..n_columns).collect(),
            _ if n_columns == train.n_columns => train.inputs.clone(),
            _ => {
                let (inputs, all) = (train.inputs.len(), train.n_columns);
                let problem = format!("needs {inputs} columns, or {all} as the training table, but has {n_columns}");
                let columns = train.columns().join(", ");
                let help = format!("without names in both tables columns count by place; the inputs are {columns}");
                return Err(Error::data(who, problem, help));
            }
        };
        Ok(Self { n_columns, inputs, targets: Targets::None, weight: None, header })
    }

    /// Names of the input columns.
    fn columns(&self) -> Vec<String> {
        self.inputs.iter().map(|&column| self.name(column)).collect()
    }

    /// The column's name in the header, or `column 3`.
    fn name(&self, column: usize) -> String {
        let name = self.header.as_ref().and_then(|header| header.get(column));
        name.map_or_else(|| format!("column {column}"), str::to_owned)
    }

    /// What is wrong with a field, by line and column.
    fn bad_field(&self, path: &Path, record: &StringRecord, column: usize, needed: &str) -> Error {
        let name = self.header.as_ref().map_or_else(String::new, |_| format!(" (`{}`)", self.name(column)));
        let got = if record[column].is_empty() { "is empty".into() } else { format!("holds `{}`", &record[column]) };
        let help = match self.targets {
            Targets::None => "mend the field, or leave the line out",
            _ => "mend the field, leave the line out, or name the column in `ignore` if it is no input",
        };
        let who = format!("{}, column {column}{name}", line_of(path, record.position()));
        Error::data(who, format!("{needed}, but {got}"), help)
    }

    fn number(&self, path: &Path, record: &StringRecord, column: usize) -> Result<f32> {
        let number = record[column].parse().ok().filter(|number: &f32| number.is_finite());
        number.ok_or_else(|| self.bad_field(path, record, column, "needs a finite number"))
    }
}

fn find(who: &str, column: &Column, n_columns: usize, header: Option<&StringRecord>) -> Result<usize> {
    let (wanted, found) = match column {
        Column::Index(index) => (format!("column {index}"), (0..n_columns).filter(|at| at == index).collect()),
        Column::Name(name) => {
            let matches = |at: &usize| header.and_then(|header| header.get(*at)) == Some(name);
            (format!("a column `{name}`"), (0..n_columns).filter(matches).collect::<Vec<_>>())
        }
    };
    if let [index] = found[..] {
        return Ok(index);
    }
    let has = if found.is_empty() { "has none".into() } else { format!("has {}", found.len()) };
    let help = header.map_or_else(
        || format!("the table has no header and {n_columns} columns; their indices count from 0"),
        |header| format!("its columns are {}", header.iter().collect::<Vec<_>>().join(", ")),
    );
    Err(Error::data(who, format!("needs {wanted}, but {has}"), help))
}

/// A table as far as it is read.
struct Table {
    path: PathBuf,
    layout: Layout,
    rows: usize,
    inputs: Vec<f32>,
    targets: Vec<f32>,
    weights: Vec<f32>,
    labels: Vec<usize>,
    /// Class names in the order in which they were met.
    classes: BTreeMap<String, usize>,
    /// The only classes that may be met.
    known_classes: Option<Vec<String>>,
}

impl Table {
    /// `layout` takes the table's name in errors, the number of columns, and the header.
    fn read(
        path: &Path,
        settings: &CsvSettings,
        known_classes: Option<&[String]>,
        layout: impl FnOnce(&str, usize, Option<StringRecord>) -> Result<Layout>,
    ) -> Result<Self> {
        let who = named(path);
        let file = std::fs::File::open(path).map_err(|source| Error::reading(path, source))?;
        let delimiter = u8::try_from(settings.delimiter).map_err(|_| {
            let problem = format!("needs an ASCII character, but is `{}`", settings.delimiter);
            Error::setting("`delimiter`", problem, "use `,`, `;` or a tab")
        })?;
        let mut reader = ReaderBuilder::new().has_headers(false).delimiter(delimiter).trim(Trim::All).from_reader(file);
        let mut records = reader.records().map(|record| record.map_err(|error| unreadable(path, &error)));
        let empty = || Error::data(&who, "needs at least one row, but has none", "check that it is the right file");
        let first = records.next().ok_or_else(empty)??;
        let has_header = settings.header.unwrap_or_else(|| first.iter().all(|field| field.parse::<f64>().is_err()));
        let layout = layout(&who, first.len(), has_header.then(|| first.clone()))?;
        let mut table = Self::new(path, layout, known_classes);
        for record in (!has_header).then_some(Ok(first)).into_iter().chain(records) {
            table.push(&record?)?;
        }
        if table.rows == 0 { Err(empty()) } else { Ok(table) }
    }

    fn new(path: &Path, layout: Layout, known_classes: Option<&[String]>) -> Self {
        Self {
            path: path.to_path_buf(),
            layout,
            rows: 0,
            inputs: Vec::new(),
            targets: Vec::new(),
            weights: Vec::new(),
            labels: Vec::new(),
            classes: known_classes.unwrap_or_default().iter().cloned().zip(0..).collect(),
            known_classes: known_classes.map(<[String]>::to_vec),
        }
    }

    fn push(&mut self, record: &StringRecord) -> Result<()> {
        self.rows += 1;
        let number = |column: &usize| self.layout.number(&self.path, record, *column);
        for column in &self.layout.inputs {
            self.inputs.push(number(column)?);
        }
        if let Some(column) = &self.layout.weight {
            self.weights.push(number(column)?);
        }
        match &self.layout.targets {
            Targets::None => {}
            Targets::Class(column) => {
                let label = self.label(record, *column)?;
                self.labels.push(label);
            }
            Targets::Values(columns) => {
                for column in columns {
                    self.targets.push(number(column)?);
                }
            }
        }
        Ok(())
    }

    fn label(&mut self, record: &StringRecord, column: usize) -> Result<usize> {
        let name = &record[column];
        let next = self.classes.len();
        if let Some(&label) = self.classes.get(name) {
            return Ok(label);
        }
        if name.is_empty() {
            return Err(self.layout.bad_field(&self.path, record, column, "needs a class"));
        }
        if let Some(known) = &self.known_classes {
            let needed = format!("needs one of the training table's classes ({})", known.join(", "));
            return Err(self.layout.bad_field(&self.path, record, column, &needed));
        }
        self.classes.insert(name.into(), next);
        Ok(next)
    }

    fn finish(mut self) -> Result<CsvTable> {
        let columns = self.layout.columns();
        let (inputs, targets) = (std::mem::take(&mut self.inputs), std::mem::take(&mut self.targets));
        let inputs = self.array(inputs, columns.len())?;
        let (mut dataset, classes) = match &self.layout.targets {
            Targets::None => (InMemory::without_targets(inputs)?, None),
            Targets::Values(columns) => {
                let targets = self.array(targets, columns.len())?;
                (InMemory::new(inputs, targets)?, None)
            }
            Targets::Class(_) => {
                let classes = self.known_classes.take().unwrap_or_else(|| sorted(&self.classes));
                let labels = relabel(&self.labels, &self.classes, &classes);
                (InMemory::new(inputs, labels)?, Some(classes))
            }
        };
        if self.layout.weight.is_some() {
            dataset = dataset.with_sample_weights(Array1::from_vec(self.weights))?;
        }
        Ok(CsvTable { dataset, columns, classes, layout: self.layout })
    }

    fn array(&self, values: Vec<f32>, columns: usize) -> Result<Array2<f32>> {
        Array2::from_shape_vec((self.rows, columns), values).map_err(|error| {
            Error::data(named(&self.path), format!("can't become an array: {error}"), "please report this")
        })
    }
}

/// Class names sorted, by value if all are numbers.
fn sorted(classes: &BTreeMap<String, usize>) -> Vec<String> {
    let mut names: Vec<String> = classes.keys().cloned().collect();
    let values: Option<Vec<f64>> = names.iter().map(|name| name.parse().ok()).collect();
    if let Some(values) = values {
        let mut by_value: Vec<(f64, String)> = values.into_iter().zip(names).collect();
        by_value.sort_by(|a, b| a.0.total_cmp(&b.0));
        names = by_value.into_iter().map(|(_, name)| name).collect();
    }
    names
}

/// Labels in the order of `names`, from labels in the order in which the classes were met.
fn relabel(labels: &[usize], classes: &BTreeMap<String, usize>, names: &[String]) -> Array1<f32> {
    let mut sorted_label = vec![0.0; classes.len()];
    for (label, name) in names.iter().enumerate() {
        if let Some(&met) = classes.get(name) {
            sorted_label[met] = label_value(label);
        }
    }
    labels.iter().map(|&met| sorted_label[met]).collect()
}

fn named(path: &Path) -> String {
    format!("`{}`", path.display())
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
    let help = "check the line, and that `delimiter` is what stands between fields";
    Error::data(line_of(path, error.position()), problem, help)
}
