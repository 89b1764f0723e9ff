//! Names of an output's numbers, and the class that they give.

use manyhands::data::Field;
use manyhands::losses::Head;

/// Names of an output's numbers.
pub struct Names {
    /// Name of each column.
    pub columns: Vec<String>,
    /// Name of each class that a row can be of.
    pub classes: Vec<String>,
}

impl Names {
    pub fn of(head: Head, width: usize, field: Option<&Field>) -> Self {
        let numbers = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>();
        let known = field.map_or(&[][..], |field| &field.classes);
        let targets = field.map(Field::column_names).filter(|names| names.len() == width && known.is_empty());
        match head {
            Head::Softmax if !known.is_empty() && known.len() <= width => {
                let classes = Field::class_names(field, width);
                Self { columns: classes.clone(), classes }
            }
            Head::Sigmoid if width == 1 && known.len() == 2 => {
                Self { columns: vec![known[1].clone()], classes: known.to_vec() }
            }
            Head::Sigmoid | Head::Values if targets.is_some() => {
                Self { columns: targets.unwrap_or_default(), classes: numbers(2) }
            }
            _ => Self { columns: numbers(width), classes: numbers(width.max(2)) },
        }
    }
}

/// The first of the largest values.
pub fn largest(values: &[f32]) -> usize {
    (0..values.len()).rev().max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap_or(0)
}

pub fn softmax(values: &[f32]) -> Vec<f32> {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = values.iter().map(|value| (value - largest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}
