//! Settings of a table's reader.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::schema::{Field, Format, Missing, Schema, TableColumn};
use crate::vocabulary::TokenSettings;

/// A column, by its name in the header or by its index, from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "needs a column's name, or its index from 0")]
pub enum Column {
    /// By index, from 0.
    Index(usize),
    /// By name.
    Name(String),
}

impl From<&str> for Column {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

impl From<usize> for Column {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Contents of the target columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// One column of class names or numbers. Sorted (by value, if all are numbers), they become the
    /// labels 0, 1, 2 …; the target has the shape `[batch]`.
    Classes,
    /// Numbers to predict; the target has the shape `[batch, columns]`.
    Values,
}

/// Kind of an input column: how its fields become numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(!try_from, !into, rename_all = "snake_case"))]
#[serde(try_from = "String", into = "String")]
pub enum ColumnKind {
    /// Numbers, also with a decimal comma and with groups of three digits.
    Number,
    /// Names: an element for each category.
    Category,
    /// Names as one whole number, for a model that begins with an `Embedding`: the categories count from 1, any other is 0.
    Index,
    /// `true` and `false`, `yes` and `no`, `t` and `f`, `y` and `n`.
    Boolean,
    /// Dates, with or without a time. A form as of `strftime`, such as `%d/%m/%Y`, in place of `date` settles it.
    #[cfg_attr(feature = "schema", schemars(untagged, with = "String", title = "date"))]
    Date(Option<String>),
}

impl TryFrom<String> for ColumnKind {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match &*name {
            "number" => Ok(Self::Number),
            "category" => Ok(Self::Category),
            "index" => Ok(Self::Index),
            "boolean" => Ok(Self::Boolean),
            "date" => Ok(Self::Date(None)),
            _ if name.contains('%') => Ok(Self::Date(Some(name))),
            _ => Err(format!(
                "a kind of column is `number`, `category`, `index`, `boolean`, `date` or a form of dates such as \
                 `%d/%m/%Y`, not `{name}`"
            )),
        }
    }
}

impl From<ColumnKind> for String {
    fn from(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Number => "number".into(),
            ColumnKind::Category => "category".into(),
            ColumnKind::Index => "index".into(),
            ColumnKind::Boolean => "boolean".into(),
            ColumnKind::Date(form) => form.unwrap_or_else(|| "date".into()),
        }
    }
}

/// Scale of the columns of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NumberScale {
    /// Mean 0 and standard deviation 1 in the training rows.
    #[default]
    Standardize,
    /// From 0 to 1 in the training rows.
    MinMax,
    /// As they stand in the table.
    Unchanged,
}

/// A value, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "needs a column's name or index, or a list of them")]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// All of them.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

/// The columns of one input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InputColumns {
    /// The model's input that they are for.
    pub name: String,
    /// The columns, in the order of the input's elements.
    pub columns: Vec<Column>,
    /// For a column of texts: tokens of a row. Longer texts are cut, shorter ones are followed by zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_sequence_length: Option<usize>,
    /// For a column of texts: settings of their tokens. Inputs of equal settings share one vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenSettings>,
    /// For a column of texts: `tokenizer.json` of a model as BERT or MiniLM, in place of `tokens`. Its word pieces are kept in the model
    /// file; cut texts keep the token of their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
}

impl InputColumns {
    /// Columns of numbers.
    pub fn new(name: impl Into<String>, columns: impl Into<Vec<Column>>) -> Self {
        Self { name: name.into(), columns: columns.into(), output_sequence_length: None, tokens: None, tokenizer: None }
    }

    /// A column of texts, of which `length` tokens count.
    pub fn text(name: impl Into<String>, column: Column, length: usize, tokens: TokenSettings) -> Self {
        Self { output_sequence_length: Some(length), tokens: Some(tokens), ..Self::new(name, [column]) }
    }
}

/// The columns of one output's target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OutputColumns {
    /// Name of the model's output; may be left out if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Target column, or several.
    pub target: OneOrMany<Column>,
    /// `classes` or `values`.
    pub target_kind: TargetKind,
}

/// Settings of a table's reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvSettings {
    /// The inputs. If empty, all otherwise unused columns are the one input.
    pub inputs: Vec<InputColumns>,
    /// The targets.
    pub outputs: Vec<OutputColumns>,
    /// Columns that are not inputs, such as a row's name.
    pub ignore: Vec<Column>,
    /// The column of each row's weight in the loss.
    pub sample_weight: Option<Column>,
    /// Whether the first line is a header; by default it is one if none of its fields is a number, or if the numbers are years or places
    /// beside names.
    pub header: Option<bool>,
    /// Character between two fields; by default the one of comma, semicolon, tab and bar that divides the lines evenly.
    pub delimiter: Option<char>,
    /// Decimal sign: a point or a comma; by default the one that the numbers have.
    pub decimal: Option<char>,
    /// Kinds of input columns by name, or by index as text; by default they follow from the fields.
    pub kinds: BTreeMap<String, ColumnKind>,
    /// Scale of the columns of numbers.
    pub numbers: NumberScale,
    /// Treatment of missing fields.
    pub missing: Missing,
    /// Fields that are missing ones beside the empty field. Default: [`MISSING_VALUES`](super::MISSING_VALUES).
    pub missing_values: Option<Vec<String>>,
    /// Most categories of a column: rarer ones count as none of them.
    pub max_categories: usize,
    /// Places of the inputs that an `Embedding` reads: their columns of whole numbers are taken unchanged.
    pub embedded: Vec<usize>,
}

/// Most categories of a column by default.
pub(crate) const MAX_CATEGORIES: usize = 32;

impl CsvSettings {
    /// One target column, and the defaults for the rest.
    pub fn new(target: impl Into<Column>, target_kind: TargetKind) -> Self {
        Self::of_outputs(vec![OutputColumns { name: None, target: OneOrMany::One(target.into()), target_kind }])
    }

    /// These targets, and the defaults for the rest.
    pub fn of_outputs(outputs: Vec<OutputColumns>) -> Self {
        Self {
            inputs: Vec::new(),
            outputs,
            ignore: Vec::new(),
            sample_weight: None,
            header: None,
            delimiter: None,
            decimal: None,
            kinds: BTreeMap::new(),
            numbers: NumberScale::default(),
            missing: Missing::default(),
            missing_values: None,
            max_categories: MAX_CATEGORIES,
            embedded: Vec::new(),
        }
    }

    /// Settings by which the table of a schema was read; `None` if it was no table.
    pub fn of_schema(schema: &Schema) -> Option<Self> {
        let Format::Csv { header, ref sample_weight, ref missing_values, missing, .. } = schema.format else {
            return None;
        };
        let output = |field: &Field| OutputColumns {
            name: field.name.clone(),
            target: OneOrMany::Many(field.columns.iter().map(Column::of).collect()),
            target_kind: if field.classes.is_empty() { TargetKind::Values } else { TargetKind::Classes },
        };
        let outputs = schema.targets.iter().map(output).collect();
        let sample_weight = sample_weight.as_ref().map(Column::of);
        let missing_values = missing_values.clone();
        Some(Self { sample_weight, header, missing_values, missing, ..Self::of_outputs(outputs) })
    }
}

impl Column {
    pub(super) fn of(column: &TableColumn) -> Self {
        column.name.clone().map_or(Self::Index(column.index), Self::Name)
    }
}
