//! Roles of a table's columns.

use std::collections::{BTreeMap, BTreeSet};

use ::csv::StringRecord;

use super::dialect::Dialect;
use super::encode::ColumnReading;
use super::header::written;
use super::numerals::other;
use super::settings::{Column, ColumnKind, CsvSettings, InputColumns, OutputColumns, TargetKind};
use super::source::TableSource;
use super::survey::{NoInput, Profile, Survey};
use crate::data::text::MOST_TOKENS;
use crate::names;
use crate::schema::{Encoding, Field, Format, Missing, Schema, Seen, TableColumn, Text, few};
use crate::vocabulary::{TokenSettings, Vocabulary};
use crate::{Error, Result, shown};

/// Whether a table has targets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TableTargets {
    Needed,
    None,
}

/// Positions in another table of the training table's input columns.
pub(super) fn inputs_like(
    who: &str,
    train: &Schema,
    dialect: &Dialect,
    targets: TableTargets,
) -> Result<Vec<ArrayColumns>> {
    let (width, header) = (dialect.width, dialect.header());
    let train_width = if let Format::Csv { width, .. } = train.format { width } else { 0 };
    let all = || train.inputs.iter().flat_map(|field| &field.columns);
    let places = |place: &dyn Fn(&TableColumn) -> Result<usize>| -> Result<Vec<ArrayColumns>> {
        let part = |field: &Field| {
            let columns = field.columns.iter().map(place).collect::<Result<_>>()?;
            let text = field.text.as_ref().map(|text| {
                let length = text.output_sequence_length;
                check_length(|| format!("{who}, input `{}`,", shown(field.name.as_deref().unwrap_or(""))), length)?;
                Ok(TextPart { length, tokens: text.vocabulary.settings(), known: Some(text.vocabulary.clone()) })
            });
            let text = text.transpose()?;
            let readings = field.columns.iter().map(|column| ColumnReading::of(column.encoding.as_ref())).collect();
            let seen = field.columns.iter().map(|column| column.seen.clone()).collect();
            Ok(ArrayColumns { name: field.name.clone(), columns, readings, encodings: Vec::new(), seen, text })
        };
        train.inputs.iter().map(part).collect()
    };
    let is_named = all().all(|column| column.name.is_some());
    if let (Some(header), true) = (header, is_named) {
        // Model files of earlier versions have names as they are written, also where several columns share one.
        let is_there = |column: &TableColumn| {
            let in_file = dialect.renamed.get(&column.index).map(String::as_str);
            column.name.is_some() && [header.get(column.index), in_file].contains(&column.name.as_deref())
        };
        if width == train_width && all().all(is_there) {
            return places(&|column| Ok(column.index));
        }
        let found = places(&|column| find(who, &Column::of(column), width, Some(header)))?;
        let indices = found.iter().flat_map(|part| &part.columns).copied();
        check_apart(who, &all().zip(indices).collect::<Vec<_>>(), dialect)?;
        return Ok(found);
    }
    let inputs: BTreeSet<usize> = all().map(|column| column.index).collect();
    if targets == TableTargets::None && width == inputs.len() {
        return places(&|column| Ok(inputs.range(..column.index).count()));
    }
    if width == train_width {
        return places(&|column| Ok(column.index));
    }
    let needed = match targets {
        TableTargets::None => format!("{} columns, or {train_width} as the training table", inputs.len()),
        TableTargets::Needed => format!("{train_width} columns as the training table"),
    };
    let names: Vec<String> = all().map(ToString::to_string).collect();
    Err(Error::data(
        who,
        format!("needs {needed}, but has {width}"),
        format!("without names in both tables columns count by place; the inputs are {}", few(&names)),
    ))
}

/// Refuses one column for several of the training table, which shared its name. Warns where names that columns share are told apart by
/// their order.
fn check_apart(who: &str, found: &[(&TableColumn, usize)], dialect: &Dialect) -> Result<()> {
    let mut taken = BTreeMap::new();
    for (column, at) in found {
        if *taken.entry(*at).or_insert(column.index) != column.index {
            let problem = format!(
                "needs several columns `{}`, as the training table had, but has one",
                shown(&column.to_string())
            );
            return Err(Error::data(
                who,
                problem,
                "give the columns of both tables names of their own, and train again",
            ));
        }
    }
    let numbered: Vec<String> =
        found.iter().filter(|(_, at)| dialect.renamed.contains_key(at)).map(|(column, _)| column.to_string()).collect();
    if !numbered.is_empty() {
        log::warn!("{who}: columns of one name are taken in their order: {}", few(&numbered));
    }
    Ok(())
}

/// Indices of columns by their use.
#[derive(Clone, Debug)]
pub(super) struct ColumnLayout {
    pub width: usize,
    pub inputs: Vec<ArrayColumns>,
    pub targets: Vec<ArrayColumns>,
    pub weight: Option<usize>,
    pub header: Option<StringRecord>,
    /// Columns that are no input by themselves, and why.
    pub left_out: Vec<(NoInput, usize)>,
    /// Inputs that seem to name rows.
    pub suspects: Vec<usize>,
    /// Inputs of numbers that count as categories, since they have leading zeros.
    pub codes: Vec<usize>,
}

/// Columns that become one array.
#[derive(Clone, Debug, Default)]
pub(super) struct ArrayColumns {
    pub name: Option<String>,
    pub columns: Vec<usize>,
    /// Reading of each column, for an input or a target of numbers.
    pub readings: Vec<ColumnReading>,
    /// The encoding of each column, once it is found.
    pub encodings: Vec<Encoding>,
    /// Contents of the training rows in each column, once they are known.
    pub seen: Vec<Option<Seen>>,
    /// For a column of texts.
    pub text: Option<TextPart>,
}

/// Settings of a column of texts.
#[derive(Clone, Debug)]
pub(super) struct TextPart {
    pub length: usize,
    pub tokens: TokenSettings,
    /// The vocabulary of the training table, or of a tokenizer.
    pub known: Option<Vocabulary>,
}

/// Refuses rows of more numbers than memory has, before any is read.
fn check_length(who: impl Fn() -> String, length: usize) -> Result<()> {
    if length <= MOST_TOKENS {
        return Ok(());
    }
    Err(Error::data(
        who(),
        format!("needs `output_sequence_length` up to {MOST_TOKENS}, but has {length}"),
        "longer texts are cut off; most are told apart by their first few hundred tokens",
    ))
}

impl TextPart {
    /// The settings of an input's columns; `None` for numbers.
    fn of(who: &str, input: &InputColumns) -> Result<Option<Self>> {
        let who = || format!("{who}, input `{}`,", input.name);
        match (input.output_sequence_length, input.tokens, &input.tokenizer) {
            (None, None, None) => Ok(None),
            (_, Some(_), Some(_)) => Err(Error::data(
                who(),
                "needs `tokens` or `tokenizer`, but has both",
                "a tokenizer says itself how it divides texts: leave `tokens` out",
            )),
            (Some(length), tokens, tokenizer) if length > 0 && input.columns.len() == 1 => {
                check_length(who, length)?;
                let known = tokenizer.as_deref().map(Vocabulary::word_pieces).transpose()?;
                Ok(Some(Self { length, tokens: tokens.unwrap_or_default(), known }))
            }
            (Some(length), ..) => Err(Error::data(
                who(),
                format!(
                    "needs one column of texts and at least 1 token, but has {} columns and {length}",
                    input.columns.len()
                ),
                "give each column of texts an input of its own",
            )),
            (None, ..) => Err(Error::data(
                who(),
                format!(
                    "needs `output_sequence_length` beside `{}`, but has none",
                    if input.tokenizer.is_some() { "tokenizer" } else { "tokens" }
                ),
                "say how many tokens of each text count: `output_sequence_length = 100`",
            )),
        }
    }
}

impl ColumnLayout {
    pub fn new(who: &str, settings: &CsvSettings, dialect: &Dialect, survey: &Survey) -> Result<Self> {
        let (width, header) = (dialect.width, dialect.header());
        let find = |column: &Column| find(who, column, width, header);
        let ignored = settings.ignore.iter().map(find).collect::<Result<Vec<_>>>()?;
        let kinds = Kinds::of(who, settings, dialect, survey)?;
        kinds.warn_of_numbers(dialect.decimal, &ignored);
        let mut left_out = Vec::new();
        let inputs = |used: &[usize]| {
            if settings.inputs.is_empty() {
                let is_free = |column: &usize| !used.contains(column) && !ignored.contains(column);
                let mut columns: Vec<usize> = (0..width).filter(is_free).collect();
                columns.retain(|column| match kinds.no_input(*column) {
                    Some(reason) => {
                        left_out.push((reason, *column));
                        false
                    }
                    None => true,
                });
                let readings = columns.iter().map(|column| kinds.reading(*column)).collect::<Result<_>>()?;
                return Ok(vec![ArrayColumns { columns, readings, ..ArrayColumns::default() }]);
            }
            let part = |input: &InputColumns| {
                let columns = input.columns.iter().map(find).collect::<Result<Vec<_>>>()?;
                if let Some(column) = columns.iter().find(|column| used.contains(column)) {
                    let problem = format!("needs columns that are no target and no weight, but has column {column}");
                    let who = format!("{who}, input `{}`,", input.name);
                    return Err(Error::data(who, problem, "a column is an input or a target, not both"));
                }
                let text = TextPart::of(who, input)?;
                let readings = match text {
                    Some(_) => Vec::new(),
                    None => columns.iter().map(|column| kinds.named_reading(*column)).collect::<Result<_>>()?,
                };
                Ok(ArrayColumns { name: Some(input.name.clone()), columns, readings, text, ..ArrayColumns::default() })
            };
            settings.inputs.iter().map(part).collect()
        };
        let this = Self::with_inputs(who, settings, dialect, inputs).map_err(|error| {
            // Where the settings name no inputs, these are what could be some.
            let names: Vec<String> = left_out.iter().map(|(_, column)| kinds.names[*column].to_string()).collect();
            if names.is_empty() || !error.problem().starts_with("has 0 input columns") {
                return error;
            }
            let help = format!("left out are {}; an entry in `kinds` makes one an input", few(&names));
            Error::data(error.who(), error.problem(), help)
        })?;
        let suspects = this.inputs.iter().filter(|part| part.text.is_none()).flat_map(|part| &part.columns).copied();
        let (suspects, codes) = (suspects.clone(), suspects.filter(|column| kinds.is_code(*column)).collect());
        let suspects = suspects.filter(|column| kinds.is_suspect(*column)).collect();
        Ok(Self { left_out, suspects, codes, ..this })
    }

    /// Inputs alone, to predict from.
    pub fn of_inputs(inputs: Vec<ArrayColumns>, dialect: &Dialect) -> Self {
        let (targets, left_out, suspects, codes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let header = dialect.header().cloned();
        Self { width: dialect.width, inputs, targets, weight: None, header, left_out, suspects, codes }
    }

    /// `inputs` takes the columns that are targets and weights.
    pub fn with_inputs(
        who: &str,
        settings: &CsvSettings,
        dialect: &Dialect,
        inputs: impl FnOnce(&[usize]) -> Result<Vec<ArrayColumns>>,
    ) -> Result<Self> {
        let (width, header) = (dialect.width, dialect.header().cloned());
        let find = |column: &Column| find(who, column, width, header.as_ref());
        let target = |output: &OutputColumns| {
            let columns = output.target.as_slice().iter().map(find).collect::<Result<Vec<_>>>()?;
            let is_number = output.target_kind == TargetKind::Values;
            let number = || ColumnReading::new(ColumnKind::Number, Missing::Error);
            let readings = columns.iter().filter(|_| is_number).map(|_| number()).collect();
            Ok(ArrayColumns { name: output.name.clone(), columns, readings, ..ArrayColumns::default() })
        };
        let targets: Vec<ArrayColumns> = settings.outputs.iter().map(target).collect::<Result<_>>()?;
        let weight = settings.sample_weight.as_ref().map(find).transpose()?;
        let used: Vec<usize> = targets.iter().flat_map(|part| &part.columns).chain(&weight).copied().collect();
        let inputs = inputs(&used)?;
        let is_whole = |(part, output): (&ArrayColumns, &OutputColumns)| match output.target_kind {
            TargetKind::Classes => part.columns.len() == 1,
            TargetKind::Values => !part.columns.is_empty(),
        };
        let has_inputs = !inputs.is_empty() && inputs.iter().all(|part| !part.columns.is_empty());
        if !has_inputs || targets.is_empty() || !targets.iter().zip(&settings.outputs).all(is_whole) {
            let count = |parts: &[ArrayColumns]| parts.iter().map(|part| part.columns.len()).sum::<usize>();
            let problem = format!("has {} input columns and {} target columns", count(&inputs), count(&targets));
            let help = "at least one input is needed, and one target: several only if its kind is `values`";
            return Err(Error::data(who, problem, help));
        }
        let (left_out, suspects, codes) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { width, inputs, targets, weight, header, left_out, suspects, codes })
    }

    /// Meaning of the columns.
    ///
    /// `texts` has an entry for each input, `classes` for each target.
    pub fn schema(
        &self,
        settings: &CsvSettings,
        dialect: &Dialect,
        texts: Vec<Option<Text>>,
        classes: Vec<Vec<String>>,
    ) -> Schema {
        let field = |part: &ArrayColumns| {
            let encodings = part.encodings.iter().cloned().map(Some).chain(std::iter::repeat(None));
            let seen = part.seen.iter().cloned().chain(std::iter::repeat(None));
            let column = |((&index, encoding), seen)| TableColumn { encoding, seen, ..self.column(index) };
            let columns = part.columns.iter().zip(encodings).zip(seen).map(column).collect();
            Field { name: part.name.clone(), columns, ..Field::default() }
        };
        Schema {
            format: Format::Csv {
                width: self.width,
                header: settings.header.or_else(|| dialect.has_numbered_names().then_some(true)),
                delimiter: dialect.delimiter.into(),
                decimal: dialect.decimal,
                missing_values: settings.missing_values.clone(),
                missing: settings.missing,
                sample_weight: self.weight.map(|index| self.column(index)),
            },
            inputs: self.inputs.iter().zip(texts).map(|(part, text)| Field { text, ..field(part) }).collect(),
            targets: self.targets.iter().zip(classes).map(|(part, classes)| Field { classes, ..field(part) }).collect(),
            held_out: None,
            pixels: None,
        }
    }

    /// Places and names of the columns that are read as numbers.
    pub fn numbers(&self) -> impl Iterator<Item = (usize, String)> {
        let columns = self.inputs.iter().chain(&self.targets).flat_map(|part| part.columns.iter().zip(&part.readings));
        let numbers = columns.filter(|(_, reading)| reading.kind == ColumnKind::Number);
        numbers.map(|(column, _)| (*column, self.column(*column).to_string()))
    }

    pub fn column(&self, index: usize) -> TableColumn {
        let name = self.header.as_ref().and_then(|header| header.get(index));
        TableColumn { index, name: name.map(str::to_owned), ..TableColumn::default() }
    }

    /// Error about a field, by line and column.
    pub fn bad_field(&self, source: &TableSource, record: &StringRecord, column: usize, needed: &str) -> Error {
        let name = self.header.as_ref().map_or_else(String::new, |_| format!(" (`{}`)", self.column(column)));
        let got =
            if record[column].is_empty() { "is empty".into() } else { format!("holds `{}`", shown(&record[column])) };
        let help = match self.targets[..] {
            [] => "mend the field, or leave the line out",
            _ => "mend the field, leave the line out, or name the column in `ignore` if it is no input",
        };
        let who = format!("{}, column {column}{name}", source.line_of(record.position()));
        Error::data(who, format!("{needed}, but {got}"), help)
    }

    /// Error about a field of an input. Where the kind of the column was found by itself, the field may be a name for a missing
    /// one.
    pub fn bad_input(
        &self,
        source: &TableSource,
        record: &StringRecord,
        at: (usize, &ColumnReading),
        needed: &str,
    ) -> Error {
        let (column, reading) = at;
        let error = self.bad_field(source, record, column, needed);
        if reading.known.is_some() || record[column].is_empty() || reading.kind != ColumnKind::Number {
            return error;
        }
        let help = format!(
            "mend the field; or, in `[data]`, name it in `missing_values`, say that the column holds names by `kinds = {{ {} \
             = \"category\" }}`, or name the column in `ignore`",
            key(&self.column(column))
        );
        Error::data(error.who(), error.problem(), help)
    }
}

/// The kinds of all columns: those of the settings, else those that were found.
struct Kinds<'a> {
    who: &'a str,
    given: Vec<Option<ColumnKind>>,
    found: &'a [Profile],
    names: Vec<TableColumn>,
    missing: Missing,
    /// Whether numbers with leading zeros are categories. An `Embedding` reads them as they are.
    has_codes: bool,
}

impl<'a> Kinds<'a> {
    fn of(who: &'a str, settings: &CsvSettings, dialect: &Dialect, survey: &'a Survey) -> Result<Self> {
        let header = dialect.header();
        let mut given = vec![None; dialect.width];
        for (name, kind) in &settings.kinds {
            let is_name = header.is_some_and(|header| header.iter().any(|it| it == name));
            let index = name.parse().ok().filter(|_| !is_name);
            let column = index.map_or_else(|| Column::Name(name.clone()), Column::Index);
            given[find(&format!("{who}, key `kinds`,"), &column, dialect.width, header)?] = Some(kind.clone());
        }
        let name = |index: usize| header.and_then(|header| header.get(index)).map(str::to_owned);
        let names = (0..dialect.width)
            .map(|index| TableColumn { index, name: name(index), ..TableColumn::default() })
            .collect();
        let has_codes = settings.embedded.is_empty();
        Ok(Self { who, given, found: &survey.columns, names, missing: settings.missing, has_codes })
    }

    /// Warns of columns of names that are nearly numbers.
    fn warn_of_numbers(&self, decimal: char, ignored: &[usize]) {
        let warn = |field: &dyn Fn(&'a Profile) -> Option<&'a str>, why: &str, help: &str| {
            let is_looked_at = |column: &usize| self.given[*column].is_none() && !ignored.contains(column);
            let columns = (0..self.found.len()).filter(is_looked_at);
            let found: Vec<_> = columns.filter_map(|column| Some((column, field(&self.found[column])?))).collect();
            let names: Vec<String> = found.iter().map(|(column, _)| self.names[*column].to_string()).collect();
            if let Some((first, example)) = found.first() {
                let columns = if names.len() == 1 { "column" } else { "columns" };
                log::warn!(
                    "{}, {columns} {}: values such as `{}` {why}, so the column does not count as numbers\n  \
                     help: {help}; if they are names, say so: `kinds = {{ {} = \"category\" }}`",
                    self.who,
                    few(&names),
                    shown(*example),
                    key(&self.names[*first])
                );
            }
        };
        let why = format!(
            "would be numbers with the decimal sign `{}`, but that of the table is `{decimal}`",
            other(decimal)
        );
        warn(&Profile::of_other_sign, &why, "write all numbers with one sign, or set `decimal` in `[data]`");
        let missing = "if it stands for a missing number, name all such values in `missing_values`: `[\"NA\", …]`";
        warn(&Profile::word_among_numbers, "stand among numbers", missing);
        warn(&Profile::with_unit, "have a unit or brackets around a number", "write the number alone");
    }

    fn no_input(&self, column: usize) -> Option<NoInput> {
        let reason =
            self.found[column].no_input(self.names[column].name.as_deref()).filter(|_| self.given[column].is_none())?;
        // Where missing fields are errors, so is a column of them.
        let is_meant = match reason {
            NoInput::NoValue => self.missing == Missing::Error,
            NoInput::Codes => !self.has_codes,
            _ => false,
        };
        (!is_meant).then_some(reason)
    }

    /// Whether a column counts as categories by its leading zeros alone.
    fn is_code(&self, column: usize) -> bool {
        self.has_codes && self.given[column].is_none() && self.found[column].is_code()
    }

    /// Whether a column seems to name rows, and no kind says that it is an input all the same.
    fn is_suspect(&self, column: usize) -> bool {
        let name = self.names[column].name.as_deref();
        self.given[column].is_none() && self.found[column].suspect(name).is_some()
    }

    fn reading(&self, column: usize) -> Result<ColumnReading> {
        let found = &self.found[column];
        let kind = match &self.given[column] {
            Some(ColumnKind::Date(None)) => match found.forms() {
                [form] => ColumnKind::Date(Some(form.clone())),
                [] => {
                    return Err(
                        self.refuse(column, "needs dates of one form, but no known form fits all of its fields")
                    );
                }
                _ => return Err(self.refuse(column, "needs dates of one form, but days and months can be confused")),
            },
            Some(kind) => kind.clone(),
            None if found.is_code() && !self.has_codes => ColumnKind::Number,
            None => found.kind(),
        };
        Ok(ColumnReading::new(kind, self.missing))
    }

    /// The reading of a column that the settings name as an input.
    fn named_reading(&self, column: usize) -> Result<ColumnReading> {
        match self.no_input(column) {
            Some(NoInput::FreeText) => {
                Err(self.refuse(column, "needs numbers, dates or categories, but holds free text"))
            }
            Some(NoInput::UnclearDate) => {
                Err(self.refuse(column, "needs dates of one form, but days and months can be confused"))
            }
            _ => self.reading(column),
        }
    }

    fn refuse(&self, column: usize, problem: &str) -> Error {
        let name = &self.names[column];
        let help = format!(
            "say in `[data]` what it holds: `kinds = {{ {} = \"%d/%m/%Y\" }}`, or \"category\"; a text of which tokens count is an \
             input with `output_sequence_length`",
            key(name)
        );
        Error::data(format!("{}, column {} (`{name}`)", self.who, name.index), problem, help)
    }
}

/// A column's key in `kinds`.
fn key(column: &TableColumn) -> String {
    let name = column.name.clone().unwrap_or_else(|| column.index.to_string());
    let is_bare = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter));
    if is_bare && !name.is_empty() { name } else { format!("{:?}", shown(&name).to_string()) }
}

/// Names of the columns that share this name, each with its number.
fn numbered<'a>(name: &str, header: &'a StringRecord) -> Vec<&'a str> {
    header.iter().filter(|own| written(own) == name).collect()
}

fn find(who: &str, column: &Column, n_columns: usize, header: Option<&StringRecord>) -> Result<usize> {
    let (wanted, found) = match column {
        Column::Index(index) => (format!("column {index}"), (0..n_columns).filter(|at| at == index).collect()),
        Column::Name(name) => {
            let matches = |at: &usize| header.and_then(|header| header.get(*at)) == Some(name);
            (format!("a column `{}`", shown(name)), (0..n_columns).filter(matches).collect::<Vec<_>>())
        }
    };
    if let [index] = found[..] {
        return Ok(index);
    }
    let numbered: Vec<&str> = match column {
        Column::Name(name) if found.is_empty() => header.map_or_else(Vec::new, |header| numbered(name, header)),
        _ => Vec::new(),
    };
    if !numbered.is_empty() {
        let help = format!("columns of one name are numbered in their order: name one, {}", few(&numbered));
        return Err(Error::data(who, format!("needs {wanted}, but has {}", numbered.len()), help));
    }
    let has = if found.is_empty() { "has none".into() } else { format!("has {}", found.len()) };
    let help = header.map_or_else(
        || format!("the table has no header and {n_columns} columns; their indices count from 0"),
        |header| {
            let names: Vec<&str> = header.iter().collect();
            match column {
                Column::Name(name) if found.is_empty() => {
                    format!("{}its columns are {}", names::meant(name, &names), few(&names))
                }
                _ => format!("its columns are {}", few(&names)),
            }
        },
    );
    Err(Error::data(who, format!("needs {wanted}, but {has}"), help))
}
