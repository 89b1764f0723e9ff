//! Rows as they stand in the data, in the graph of an ONNX file: columns of a table, bytes of pictures, classes by name.
//!
//! `columns.rs`: the columns of an input, and their elements; `dates.rs`: dates; `answers.rs`: what a loss makes of the
//! outputs; `operators.rs`: what these share. [`Model::export_raw`](crate::Model::export_raw) brings them together.
//!
//! A graph can't refuse a row. One that the reader of tables would refuse gets outputs that are no numbers, and an empty label.

mod answers;
mod columns;
mod dates;
mod operators;

pub(crate) use answers::{Answer, answer};

use crate::onnx::{Attribute, FLOAT, Form, Graph, GraphValue, UINT8, Value};
use crate::schema::{ArrayRange, Field, Format, Schema};
use crate::{Result, Shape};

/// The preparation of rows, for the file's metadata.
pub(crate) const NOTE: &str = "none: the inputs are columns of the table, without blanks around their fields, or bytes of the pictures as they are";
/// Largest byte of a picture.
const WHITE: f32 = 255.0;

/// Inputs of a graph, which gives the model's own.
#[derive(Debug)]
pub(crate) struct RawInputs {
    /// The graph's inputs.
    pub inputs: Vec<GraphValue>,
    /// Whether each row is one that the reader of tables would refuse, `[batch, 1]`.
    pub unreadable: Option<Value>,
}

/// Whether a graph can take rows of this schema as they stand in the data.
pub(crate) fn is_raw(schema: &Schema, inputs: &[(&str, &Shape)]) -> bool {
    match schema.format {
        Format::Csv { .. } => schema.inputs.len() == inputs.len(),
        Format::Idx | Format::Cifar10 | Format::ImageFolder { .. } => inputs.len() == 1,
        Format::Numpy { ref values } => inputs.len() == 1 && values[..] == [ArrayRange::Bytes],
        _ => false,
    }
}

/// Names of the inputs that are texts, which the graph takes as numbers of tokens.
pub(crate) fn encoded<'m>(schema: &Schema, inputs: &[(&'m str, &Shape)]) -> Vec<&'m str> {
    let named = schema.inputs.iter().zip(inputs);
    named.filter(|(field, _)| field.text.is_some()).map(|(_, (name, _))| *name).collect()
}

/// Begins a graph: its inputs, and the operators that make the model's inputs of them.
///
/// # Errors
/// If a date has a form that no operator can read, or a column has two kinds.
pub(crate) fn begin(graph: &mut Graph, schema: &Schema, inputs: &[(&str, &Shape)]) -> Result<RawInputs> {
    if !matches!(schema.format, Format::Csv { .. }) {
        let inputs: Vec<GraphValue> = inputs.iter().map(|(name, shape)| picture(graph, name, shape)).collect();
        return Ok(RawInputs { inputs, unreadable: None });
    }
    let mut table = columns::Table::new(schema);
    for (field, (name, shape)) in schema.inputs.iter().zip(inputs) {
        let value =
            if is_encoded(field) { table.plain(graph, name, shape) } else { table.input(graph, field, name, shape)? };
        graph.know(value.name());
    }
    Ok(table.end(graph))
}

/// Whether an input has no form but its elements.
fn is_encoded(field: &Field) -> bool {
    field.text.is_some() || field.columns.is_empty()
}

/// An input of bytes, channels last.
fn picture(graph: &mut Graph, name: &str, shape: &Shape) -> GraphValue {
    let input = GraphValue { name: graph.unique(name), kind: UINT8, row: shape.axes().to_vec() };
    let mut form = Form::new(graph, [name, name], Vec::new(), shape.clone());
    let bytes = Value::named(&input.name);
    let numbers = form.op("Cast", &[&bytes], &[("to", Attribute::Int(FLOAT))]);
    let numbers = form.op_with("Div", &numbers, WHITE);
    graph.know(numbers.name());
    input
}

/// Fields that are missing ones in a table of this schema.
fn missing_values(schema: &Schema) -> Vec<String> {
    let given = if let Format::Csv { missing_values, .. } = &schema.format { missing_values.as_deref() } else { None };
    crate::data::csv::missing_values(given)
}
