//! Settings of a table's reader.

use serde::{Deserialize, Serialize};

use crate::schema::{Field, Format, Schema, TableColumn};
use crate::vocabulary::TokenSettings;

/// A column, by its name in the header or by its index, from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a column's name, or its index from 0")]
pub enum Column {
    /// By index, from 0.
    Index(usize),
    /// By name.
    Name(String),
}

/// Contents of the target columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// One column of class names or numbers. Sorted (by value, if all are numbers), they become the
    /// labels 0, 1, 2 …; the target has the shape `[batch]`.
    Classes,
    /// Numbers to predict; the target has the shape `[batch, columns]`.
    Values,
}

/// A value, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "a column's name or index, or a list of them")]
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
}

impl InputColumns {
    /// Columns of numbers.
    pub fn new(name: impl Into<String>, columns: impl Into<Vec<Column>>) -> Self {
        Self { name: name.into(), columns: columns.into(), output_sequence_length: None, tokens: None }
    }

    /// A column of texts, of which `length` tokens count.
    pub fn text(name: impl Into<String>, column: Column, length: usize, tokens: TokenSettings) -> Self {
        Self { output_sequence_length: Some(length), tokens: Some(tokens), ..Self::new(name, [column]) }
    }
}

/// The columns of one output's target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Whether the first line is a header; by default it is one if none of its fields is a number.
    pub header: Option<bool>,
    /// Character between two fields. Default: a comma.
    pub delimiter: char,
}

impl CsvSettings {
    /// One target column, and the defaults for the rest.
    pub fn new(target: Column, target_kind: TargetKind) -> Self {
        Self::of_outputs(vec![OutputColumns { name: None, target: OneOrMany::One(target), target_kind }])
    }

    /// These targets, and the defaults for the rest.
    pub fn of_outputs(outputs: Vec<OutputColumns>) -> Self {
        Self { inputs: Vec::new(), outputs, ignore: Vec::new(), sample_weight: None, header: None, delimiter: ',' }
    }

    /// Settings by which the table of a schema was read; `None` if it was no table.
    pub fn of_schema(schema: &Schema) -> Option<Self> {
        let Format::Csv { header, delimiter, ref sample_weight, .. } = schema.format else { return None };
        let output = |field: &Field| OutputColumns {
            name: field.name.clone(),
            target: OneOrMany::Many(field.columns.iter().map(Column::of).collect()),
            target_kind: if field.classes.is_empty() { TargetKind::Values } else { TargetKind::Classes },
        };
        let sample_weight = sample_weight.as_ref().map(Column::of);
        let outputs = schema.targets.iter().map(output).collect();
        Some(Self { sample_weight, header, delimiter, ..Self::of_outputs(outputs) })
    }
}

impl Column {
    pub(super) fn of(column: &TableColumn) -> Self {
        column.name.clone().map_or(Self::Index(column.index), Self::Name)
    }
}
