//! Columns of a table as inputs of a graph, and the operators that make elements of them, as `data/csv/encode.rs` does.

use std::collections::BTreeMap;

use super::dates::DateForm;
use super::operators::{cast, concat, in_any_case, look_up};
use super::{RawInputs, missing_values};
use crate::data::csv::{NO, YES, date_elements, number, numbers};
use crate::onnx::{Attribute, BOOL, DOUBLE, FLOAT, Form, Graph, GraphValue, STRING, Value};
use crate::schema::{Code, Encoding, Field, Schema, TableColumn};
use crate::{Error, Result, Shape, shown};

/// Place of a field of no known category, and of one that can't be read.
const OTHER: i64 = -1;
const UNREADABLE: i64 = -2;

/// The columns of a table, and what the graph's inputs are so far.
pub(super) struct Table {
    missing: Vec<String>,
    /// The inputs of columns, by the column's place.
    columns: BTreeMap<usize, GraphValue>,
    inputs: Vec<GraphValue>,
    /// Whether rows can't be read, for each column or some of them.
    unreadable: Vec<Value>,
}

/// Some elements of an input, and their places in it.
struct Elements {
    value: Value,
    places: Vec<usize>,
}

/// A column in an input.
struct Column<'a> {
    encoding: &'a Encoding,
    name: String,
    /// The graph's input, `[batch, 1]`.
    value: Value,
    /// Place of its first element.
    first: usize,
}

impl Column<'_> {
    /// Places of its elements but that of the indicator.
    fn places(&self) -> Vec<usize> {
        (self.first..self.first + self.encoding.width() - usize::from(self.encoding.indicator)).collect()
    }

    fn indicator(&self) -> usize {
        self.first + self.encoding.width() - 1
    }

    /// The category that a missing field counts as.
    fn fill(&self, n_categories: usize) -> Option<usize> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the place of a category")]
        self.encoding.fill.map(|fill| fill as usize).filter(|place| *place < n_categories)
    }
}

impl Table {
    pub fn new(schema: &Schema) -> Self {
        Self { missing: missing_values(schema), columns: BTreeMap::new(), inputs: Vec::new(), unreadable: Vec::new() }
    }

    /// An input of elements, as the model takes them.
    pub fn plain(&mut self, graph: &mut Graph, name: &str, shape: &Shape) -> Value {
        let input = GraphValue { name: graph.unique(name), kind: FLOAT, row: shape.axes().to_vec() };
        let value = Value::named(&input.name);
        self.inputs.push(input);
        value
    }

    /// The model's input of this name, of columns.
    pub fn input(&mut self, graph: &mut Graph, field: &Field, name: &str, shape: &Shape) -> Result<Value> {
        let (mut columns, mut first) = (Vec::new(), 0);
        for column in &field.columns {
            let encoding = column.encoding.as_ref().unwrap_or(&Encoding::UNCHANGED);
            let value = self.column(graph, column, encoding)?;
            columns.push(Column { encoding, name: column.to_string(), value, first });
            first += encoding.width();
        }
        let (numbers, others): (Vec<Column<'_>>, Vec<Column<'_>>) =
            columns.into_iter().partition(|column| matches!(column.encoding.code, Code::Number { .. }));
        let mut elements = Vec::new();
        if !numbers.is_empty() {
            let mut form = Form::new(graph, [name, name], Vec::new(), shape.clone());
            elements.extend(self.numbers(&mut form, &numbers));
        }
        for column in &others {
            let mut form = Form::new(graph, [&column.name, &column.name], Vec::new(), shape.clone());
            elements.extend(self.elements(&mut form, column)?);
        }
        let mut form = Form::new(graph, [name, name], Vec::new(), shape.clone());
        let value = in_order(&mut form, &elements);
        Ok(if shape.rank() == 1 { value } else { form.reshape(&value, shape.axes()) })
    }

    /// Ends the inputs.
    pub fn end(self, graph: &mut Graph) -> RawInputs {
        let mut form = Form::new(graph, ["rows", "rows"], Vec::new(), Shape::new([1]));
        let unreadable = (!self.unreadable.is_empty()).then(|| {
            let all = concat(&mut form, &self.unreadable);
            let all = cast(&mut form, &all, FLOAT);
            let any = form.op("ReduceMax", &[&all], &[("axes", Attribute::Ints(vec![1]))]);
            cast(&mut form, &any, BOOL)
        });
        RawInputs { inputs: self.inputs, unreadable }
    }

    /// The graph's input of a column.
    fn column(&mut self, graph: &mut Graph, column: &TableColumn, encoding: &Encoding) -> Result<Value> {
        let kind = match &encoding.code {
            Code::Number { .. } => DOUBLE,
            Code::Category { categories } | Code::Index { categories } if numbers(categories).is_some() => DOUBLE,
            _ => STRING,
        };
        if let Some(known) = self.columns.get(&column.index) {
            if known.kind == kind {
                return Ok(Value::named(&known.name));
            }
            return Err(Error::model(
                format!("column `{}`", shown(&column.to_string())),
                "is numbers for one input and names for another, but an input of ONNX has one type",
                "export the encoded form (`--encoded`)",
            ));
        }
        let input = GraphValue { name: graph.unique(&column.to_string()), kind, row: vec![1] };
        let value = Value::named(&input.name);
        self.columns.insert(column.index, input.clone());
        self.inputs.push(input);
        Ok(value)
    }

    /// Elements of all columns of numbers: computed in 64 bits, then rounded, as the reader does.
    fn numbers(&mut self, form: &mut Form<'_>, columns: &[Column<'_>]) -> Vec<Elements> {
        let values: Vec<Value> = columns.iter().map(|column| column.value.clone()).collect();
        let mut x = concat(form, &values);
        let missing = self.missing_numbers(form, &x);
        if columns.iter().any(|column| column.encoding.fill.is_some()) {
            let fills: Vec<f64> = columns.iter().map(|column| column.encoding.fill.unwrap_or(f64::NAN)).collect();
            let fills = form.doubles(&fills);
            x = form.op("Where", &[&missing, &fills, &x], &[]);
        }
        self.unreadable.push(beyond_floats(form, &x));
        let scaling = columns.iter().map(|column| match column.encoding.code {
            Code::Number { offset, scale } => (offset, scale),
            _ => (0.0, 1.0),
        });
        let (offsets, scales): (Vec<f64>, Vec<f64>) = scaling.unzip();
        if offsets.iter().chain(&scales).any(|number| *number != 0.0 && *number != 1.0) {
            let [offsets, scales] = [offsets, scales].map(|numbers| form.doubles(&numbers));
            x = form.op("Sub", &[&x, &offsets], &[]);
            x = form.op("Div", &[&x, &scales], &[]);
        }
        let value = cast(form, &x, FLOAT);
        let mut elements = vec![Elements { value, places: columns.iter().map(|column| column.first).collect() }];
        let is_shown = |at: &usize| columns[*at].encoding.indicator;
        let shown: Vec<usize> = (0..columns.len()).filter(is_shown).collect();
        if !shown.is_empty() {
            let places = shown.iter().map(|at| columns[*at].indicator()).collect();
            let at = form.sizes(shown);
            let missing = form.op("Gather", &[&missing, &at], &[("axis", Attribute::Int(1))]);
            elements.push(Elements { value: cast(form, &missing, FLOAT), places });
        }
        elements
    }

    /// Whether numbers are missing: NaN, or a number that stands for that, such as -999.
    fn missing_numbers(&self, form: &mut Form<'_>, numbers: &Value) -> Value {
        let mut missing = form.op("IsNaN", &[numbers], &[]);
        let listed: Vec<f64> = self.missing.iter().filter_map(|field| number(field)).collect();
        for value in listed {
            let value = form.doubles(&[value]);
            let equal = form.op("Equal", &[numbers, &value], &[]);
            missing = form.op("Or", &[&missing, &equal], &[]);
        }
        missing
    }

    /// Elements of a column of another kind. Each kind gives them, and whether fields are missing.
    fn elements(&mut self, form: &mut Form<'_>, column: &Column<'_>) -> Result<Vec<Elements>> {
        let (value, missing) = match &column.encoding.code {
            Code::Number { .. } => return Ok(Vec::new()),
            Code::Boolean => self.boolean(form, column),
            Code::Category { categories } | Code::Index { categories } => match numbers(categories) {
                Some(numbers) => self.numeric_categories(form, column, &numbers),
                None => self.categories(form, column, categories),
            },
            Code::Date { format, offset, scale } => self.date(form, column, (format, *offset, *scale))?,
        };
        let mut elements = vec![Elements { value, places: column.places() }];
        if let Code::Date { format, .. } = &column.encoding.code {
            elements[0].places = date_places(column.first, format.contains("%H"));
        }
        if column.encoding.indicator {
            elements.push(Elements { value: cast(form, &missing, FLOAT), places: vec![column.indicator()] });
        }
        Ok(elements)
    }

    /// Whether fields are missing ones, as 0 or 1.
    fn is_missing(&self, form: &mut Form<'_>, fields: &Value) -> Value {
        let missing = self.missing.iter().map(|field| (field.clone(), 1));
        look_up(form, fields, missing, 0)
    }

    /// 1 for yes, 0 for no.
    fn boolean(&mut self, form: &mut Form<'_>, column: &Column<'_>) -> (Value, Value) {
        let words = YES.map(|word| (word, 1)).into_iter().chain(NO.map(|word| (word, 0)));
        let words = words.flat_map(|(word, value)| in_any_case(word).map(move |word| (word, value)));
        let fill = column.encoding.fill.map(|fill| i64::from(fill > 0.0));
        let missing = self.missing.iter().filter_map(|field| Some((field.clone(), fill?)));
        let known: Vec<(String, i64)> = words.chain(missing).collect();
        let n_words = known.len() - fill.map_or(0, |_| self.missing.len());
        let is_missing = known.iter().enumerate().map(|(at, (field, _))| (field.clone(), i64::from(at >= n_words)));
        let missing = look_up(form, &column.value, is_missing.collect::<Vec<_>>(), 0);
        let value = look_up(form, &column.value, known, UNREADABLE);
        self.refuse(form, &value);
        (cast(form, &value, FLOAT), missing)
    }

    /// Categories that are names: an element each, or their place.
    fn categories(&mut self, form: &mut Form<'_>, column: &Column<'_>, categories: &[String]) -> (Value, Value) {
        let is_missing = self.is_missing(form, &column.value);
        let is_index = matches!(column.encoding.code, Code::Index { .. });
        let fill = match (column.encoding.fill, is_index) {
            (None, _) => UNREADABLE,
            (Some(_), true) => OTHER,
            (Some(_), false) => column.fill(categories.len()).map_or(OTHER, place),
        };
        let missing = self.missing.iter().map(|field| (field.clone(), fill));
        let known = categories.iter().enumerate().map(|(at, name)| (name.clone(), place(at)));
        let value = look_up(form, &column.value, missing.chain(known), OTHER);
        if column.encoding.fill.is_none() {
            self.refuse(form, &value);
        }
        if is_index {
            let one = form.whole(1);
            let value = form.op("Add", &[&value, &one], &[]);
            return (cast(form, &value, FLOAT), is_missing);
        }
        let places: Vec<i64> = (0..categories.len()).map(place).collect();
        let places = form.ints(&places);
        let equal = form.op("Equal", &[&value, &places], &[]);
        (cast(form, &equal, FLOAT), is_missing)
    }

    /// Categories that are all numbers: a column of numbers, of which equal ones are one category.
    fn numeric_categories(&mut self, form: &mut Form<'_>, column: &Column<'_>, numbers: &[f64]) -> (Value, Value) {
        let missing = self.missing_numbers(form, &column.value);
        let is_index = matches!(column.encoding.code, Code::Index { .. });
        let fill = column.fill(numbers.len()).filter(|_| !is_index).map_or(f64::NAN, |at| numbers[at]);
        let fill = form.doubles(&[fill]);
        let x = form.op("Where", &[&missing, &fill, &column.value], &[]);
        if column.encoding.fill.is_none() {
            self.unreadable.push(missing.clone());
        }
        let known = form.doubles(numbers);
        let equal = form.op("Equal", &[&x, &known], &[]);
        let mut value = cast(form, &equal, FLOAT);
        if is_index {
            #[allow(clippy::cast_precision_loss, reason = "numbers of categories are far below 2^24")]
            let places: Vec<f32> = (1..=numbers.len()).map(|at| at as f32).collect();
            let places = form.floats(&[numbers.len(), 1], &places);
            value = form.op("MatMul", &[&value, &places], &[]);
        }
        (value, missing)
    }

    fn date(
        &mut self,
        form: &mut Form<'_>,
        column: &Column<'_>,
        (format, offset, scale): (&str, f64, f64),
    ) -> Result<(Value, Value)> {
        let dates = DateForm::of(format).ok_or_else(|| {
            Error::model(
                format!("column `{}`", shown(&column.name)),
                format!("has dates of the form `{}`, which no operator of ONNX can read", shown(format)),
                "export the encoded form (`--encoded`), or train on dates of a form such as `%Y-%m-%d %H:%M:%S`",
            )
        })?;
        let (valid, elements) = dates.elements(form, &column.value, [offset, scale]);
        let is_none = form.op("Not", &[&valid], &[]);
        let Some(fill) = column.encoding.fill else {
            self.unreadable.push(is_none.clone());
            return Ok((elements, is_none));
        };
        let missing = self.is_missing(form, &column.value);
        let missing = cast(form, &missing, BOOL);
        let known = form.op("Or", &[&valid, &missing], &[]);
        self.unreadable.push(form.op("Not", &[&known], &[]));
        let mut of_fill: Vec<f64> = date_elements(fill, dates.has_time).collect();
        of_fill[0] = (of_fill[0] - offset) / scale;
        let of_fill: Vec<f32> = date_places(0, dates.has_time).into_iter().map(|at| single(of_fill[at])).collect();
        let of_fill = form.floats(&[of_fill.len()], &of_fill);
        let elements = form.op("Where", &[&is_none, &of_fill, &elements], &[]);
        Ok((elements, is_none))
    }

    /// Remembers the rows whose fields can't be read.
    fn refuse(&mut self, form: &mut Form<'_>, places: &Value) {
        let unreadable = form.whole(UNREADABLE);
        self.unreadable.push(form.op("Equal", &[places, &unreadable], &[]));
    }
}

/// Places of the elements of a date, which come as itself, all sines, all cosines.
fn date_places(first: usize, has_time: bool) -> Vec<usize> {
    let circles = 2 + usize::from(has_time);
    let of = |shift: usize| (0..circles).map(move |circle| first + shift + 2 * circle);
    std::iter::once(first).chain(of(1)).chain(of(2)).collect()
}

#[allow(clippy::cast_possible_truncation, reason = "elements are f32")]
fn single(value: f64) -> f32 {
    value as f32
}

fn place(at: usize) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

/// Whether 64-bit numbers are none, or beyond what 32 bits hold.
fn beyond_floats(form: &mut Form<'_>, x: &Value) -> Value {
    let size = form.op("Abs", &[x], &[]);
    let most = form.doubles(&[f64::from(f32::MAX)]);
    let is_finite = form.op("LessOrEqual", &[&size, &most], &[]);
    form.op("Not", &[&is_finite], &[])
}

/// Elements in the order of their places.
fn in_order(form: &mut Form<'_>, elements: &[Elements]) -> Value {
    let values: Vec<Value> = elements.iter().map(|elements| elements.value.clone()).collect();
    let value = concat(form, &values);
    let places: Vec<usize> = elements.iter().flat_map(|elements| elements.places.iter().copied()).collect();
    if places.is_sorted() {
        return value;
    }
    let mut order = vec![0; places.len()];
    places.into_iter().enumerate().for_each(|(at, place)| order[place] = at);
    let order = form.sizes(order);
    form.op("Gather", &[&value, &order], &[("axis", Attribute::Int(1))])
}
