//! Description of the data in the first lines of a run.

use std::fmt::{self, Display, Formatter};

use super::Dataset;
use super::labels::labels;
use crate::schema::{Field, few};
use crate::table::wrap;
use crate::{Result, Shape, shown, thousands};

/// Contents of a data set: rows, shapes, classes with their counts, and notes of its reader.
///
/// As text it has lines of at most 80 columns, or of the formatter's precision.
///
/// ```
/// use manyhands::data::{Description, digits};
/// # fn main() -> manyhands::Result<()> {
/// let text = Description::of("test data", &digits::test()?)?.to_string();
/// assert!(text.starts_with("test data: 360 rows of [8, 8, 1]\n  10 classes: 0 (36), 1 (36), 2 (35), "));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Name of the rows' purpose: `training data`.
    pub name: String,
    /// Number of rows.
    pub rows: usize,
    /// Shape and columns of each input.
    pub inputs: Vec<(Shape, Field)>,
    /// Columns of each target, and the rows of each class, if it has classes.
    pub targets: Vec<(Field, Vec<ClassCount>)>,
    /// Notes of the reader: [`Dataset::notes`].
    pub notes: Vec<String>,
}

/// A class, and how many rows it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassCount {
    /// The class's name, or its label if it has none.
    pub name: String,
    /// Its rows.
    pub rows: usize,
}

/// Classes that are listed one by one, at most.
const MOST_CLASSES: usize = 20;
/// Factor between the most frequent class and the rarest, from which data count as imbalanced.
const IMBALANCE: usize = 5;
/// Columns of a line without a precision.
const WIDTH: usize = 80;

impl Description {
    /// Describes a data set. Its targets are read, its inputs are not.
    ///
    /// # Errors
    ///
    /// When a target can't be read.
    pub fn of(name: impl Into<String>, dataset: &dyn Dataset) -> Result<Self> {
        let schema = dataset.schema();
        let mut targets = Vec::new();
        for target in 0..dataset.target_shapes().len() {
            let field = schema.targets.get(target).cloned().unwrap_or_default();
            let counts = class_counts(dataset, target, &field)?;
            targets.push((field, counts));
        }
        let fields = schema.inputs.into_iter().chain(std::iter::repeat(Field::default()));
        let inputs = dataset.input_shapes().into_iter().zip(fields).collect();
        Ok(Self { name: name.into(), rows: dataset.len(), inputs, targets, notes: dataset.notes() })
    }
}

/// Rows of each class; none if the target is no class.
fn class_counts(dataset: &dyn Dataset, target: usize, field: &Field) -> Result<Vec<ClassCount>> {
    let Some(labels) = labels(dataset, target)? else { return Ok(Vec::new()) };
    let classes = labels.iter().map(|label| label + 1).max().unwrap_or(0).max(field.classes.len());
    let mut counts = vec![0; classes];
    labels.iter().for_each(|label| counts[*label] += 1);
    let name = |label: usize| field.classes.get(label).cloned().unwrap_or_else(|| label.to_string());
    let counted = counts.into_iter().enumerate().map(|(label, rows)| ClassCount { name: name(label), rows });
    Ok(counted.collect())
}

impl Display for Description {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = if self.rows == 1 { "row" } else { "rows" };
        let inputs: Vec<String> = self.inputs.iter().map(|(shape, field)| input(shape, field)).collect();
        let head = format!("{}: {} {rows} of {}", self.name, thousands(self.rows), inputs.join("; "));
        let targets = self.targets.iter().filter_map(|(field, counts)| target(field, counts));
        let rest = targets.chain(self.notes.iter().cloned()).map(|text| format!("\n  {text}"));
        f.write_str(&wrap(&format!("{head}{}", rest.collect::<String>()), f.precision().unwrap_or(WIDTH)))
    }
}

fn input(shape: &Shape, field: &Field) -> String {
    let names = field.column_names();
    if let Some(text) = &field.text {
        let of = if names.is_empty() { "text".into() } else { format!("text `{}`", few(&names)) };
        let (length, tokens) = (thousands(text.output_sequence_length), thousands(text.vocabulary.tokens().len()));
        return format!("{of}: {length} tokens, {tokens} different ones");
    }
    let name = field.name.as_ref().map_or_else(String::new, |name| format!("`{}` ", shown(name)));
    match &names[..] {
        [] => format!("{name}{:?}", shape.axes()),
        [only] => format!("{name}1 input column: {}", shown(only)),
        _ if shape.len() == names.len() => format!("{name}{} input columns: {}", thousands(names.len()), few(&names)),
        _ => {
            let (columns, numbers) = (thousands(names.len()), thousands(shape.len()));
            format!("{name}{columns} input columns as {numbers} numbers: {}", few(&names))
        }
    }
}

fn target(field: &Field, counts: &[ClassCount]) -> Option<String> {
    let names = field.column_names();
    let of = if names.is_empty() { String::new() } else { format!(" of `{}`", few(&names)) };
    if counts.is_empty() {
        return (!names.is_empty()).then(|| format!("to predict: {}", few(&names)));
    }
    let count = |class: &ClassCount| format!("{} ({})", shown(&class.name), thousands(class.rows));
    let text = if counts.len() <= MOST_CLASSES {
        counts.iter().map(count).collect::<Vec<_>>().join(", ")
    } else {
        let by_rows = |class: &&ClassCount| class.rows;
        let (most, fewest) = (counts.iter().max_by_key(by_rows)?, counts.iter().min_by_key(by_rows)?);
        format!("most rows in {}, fewest in {}", count(most), count(fewest))
    };
    let classes = if counts.len() == 1 { "class" } else { "classes" };
    let imbalance = imbalance(counts).map_or_else(String::new, |text| format!("\n  {text}"));
    Some(format!("{} {classes}{of}: {text}{imbalance}", thousands(counts.len())))
}

/// A sentence about a class that has most of the rows, beside a rare one.
#[allow(clippy::cast_precision_loss, reason = "shown with few digits")]
fn imbalance(counts: &[ClassCount]) -> Option<String> {
    let with_rows = || counts.iter().filter(|class| class.rows > 0);
    let (most, fewest) = (with_rows().max_by_key(|class| class.rows)?, with_rows().min_by_key(|class| class.rows)?);
    let all: usize = counts.iter().map(|class| class.rows).sum();
    (2 * most.rows > all && most.rows >= IMBALANCE * fewest.rows).then(|| {
        let part = 100.0 * most.rows as f64 / all as f64;
        format!(
            "imbalanced: a model that always says `{}` is right in {part:.1} % of the rows; `class_weight = \"balanced\"` makes \
             rare classes count more",
            shown(&most.name)
        )
    })
}
