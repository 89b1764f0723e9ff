//! Outputs of a graph as `manyhands predict` has them: labels and probabilities where the loss takes logits.

use super::operators::cast;
use crate::Shape;
use crate::losses::Head;
use crate::onnx::{Attribute, FLOAT, Form, Graph, GraphValue, INT64, STRING, Value};
use crate::schema::Field;

/// An output of the model, before it has its form.
pub(crate) struct Answer<'a> {
    /// Its name, and before those of its values where there are several outputs.
    pub name: &'a str,
    pub prefix: String,
    /// Its value in the graph, channels last.
    pub value: Value,
    pub shape: &'a Shape,
    /// Meaning of its numbers for the loss; `None` if no loss is known.
    pub head: Option<Head>,
    /// The target in the schema.
    pub field: Option<&'a Field>,
}

/// Adds the operators behind an output; gives the graph's outputs. Rows that are `unreadable` get no numbers.
pub(crate) fn answer(graph: &mut Graph, answer: &Answer<'_>, unreadable: Option<&Value>) -> Vec<GraphValue> {
    let width = answer.shape.len();
    let mut form = Form::new(graph, [answer.name, answer.name], Vec::new(), answer.shape.clone());
    let flat = |form: &mut Form<'_>| match answer.shape.rank() {
        1 => answer.value.clone(),
        _ => form.reshape(&answer.value, &[width]),
    };
    // As many as the loss tells apart, or numbers.
    let named_alike =
        |count: usize| answer.field.filter(|field| count != 2 || width != 1 || field.classes.len() == count);
    let classes = |count: usize| Field::class_names(named_alike(count), count);
    let (label, numbers, what, row) = match answer.head {
        Some(Head::Softmax) if answer.shape.positions() == 1 => {
            let logits = flat(&mut form);
            let numbers = form.op("Softmax", &[&logits], &[("axis", Attribute::Int(-1))]);
            let keepdims = ("keepdims", Attribute::Int(0));
            let class = form.op("ArgMax", &[&logits], &[("axis", Attribute::Int(1)), keepdims]);
            (Some(named(&mut form, &class, classes(width), unreadable)), numbers, "probabilities", vec![width])
        }
        Some(Head::Sigmoid) if width == 1 => {
            let logit = flat(&mut form);
            let no = form.op("Neg", &[&logit], &[]);
            let [yes, no] = [&logit, &no].map(|logit| form.op("Sigmoid", &[logit], &[]));
            let numbers = form.op("Concat", &[&no, &yes], &[("axis", Attribute::Int(1))]);
            let class = form.op_with("Greater", &logit, 0.0);
            let class = cast(&mut form, &class, INT64);
            let class = form.reshape(&class, &[]);
            (Some(named(&mut form, &class, classes(2), unreadable)), numbers, "probabilities", vec![2])
        }
        Some(Head::Sigmoid) => {
            let numbers = form.op("Sigmoid", &[&answer.value], &[]);
            (None, numbers, "probabilities", answer.shape.axes().to_vec())
        }
        Some(_) => (None, answer.value.clone(), "values", answer.shape.axes().to_vec()),
        None => (None, answer.value.clone(), "", answer.shape.axes().to_vec()),
    };
    let numbers = match unreadable {
        Some(unreadable) => {
            let unreadable =
                if row.len() == 1 { unreadable.clone() } else { form.reshape(unreadable, &vec![1; row.len()]) };
            let none = form.scalar(f32::NAN);
            form.op("Where", &[&unreadable, &none, &numbers], &[])
        }
        None => numbers,
    };
    let mut output = |value: &Value, what: &str, kind: i64, row: Vec<usize>| {
        let name = if what.is_empty() { answer.name.to_owned() } else { format!("{}{what}", answer.prefix) };
        GraphValue { name: graph.name_output(value.name(), &name), kind, row }
    };
    let label = label.map(|label| output(&label, "label", STRING, Vec::new()));
    label.into_iter().chain([output(&numbers, what, FLOAT, row)]).collect()
}

/// Names of classes by their numbers `[batch]`; an empty name for a row that can't be read.
fn named(form: &mut Form<'_>, class: &Value, mut names: Vec<String>, unreadable: Option<&Value>) -> Value {
    let mut class = class.clone();
    if let Some(unreadable) = unreadable {
        let unreadable = form.reshape(unreadable, &[]);
        let none = form.sizes([names.len()]);
        class = form.op("Where", &[&unreadable, &none, &class], &[]);
        names.push(String::new());
    }
    let names = form.names(names);
    form.op("Gather", &[&names, &class], &[])
}
