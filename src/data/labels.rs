//! Classes of the rows of a dataset, by their targets.

#[cfg(feature = "files")]
use std::collections::BTreeMap;

use super::Dataset;
use super::batch::first_target_that;
use crate::Result;

/// Labels above this count as numbers to predict.
const MOST_LABELS: f32 = 1e5;

/// The class of each row: its label, or the largest of one number for each class. `None` if a target is no class.
///
/// Targets are read, inputs are not.
pub(super) fn labels(dataset: &dyn Dataset, target: usize) -> Result<Option<Vec<usize>>> {
    let Some(shape) = dataset.target_shapes().get(target).cloned() else { return Ok(None) };
    let field = dataset.schema().targets.get(target).cloned().unwrap_or_default();
    let classes = field.classes.len();
    let is_of_table = !field.columns.is_empty();
    if (is_of_table && classes == 0) || (shape.len() != 1 && shape.len() != classes) {
        return Ok(None);
    }
    let mut labels = Vec::with_capacity(dataset.len());
    let (mut place, mut most) = (0, 0.0);
    let is_no_label = |value: f32| {
        if shape.len() == 1 {
            let is_label = (0.0..=MOST_LABELS).contains(&value) && value.fract() == 0.0;
            labels.push(label_index(value));
            return !is_label;
        }
        if place == 0 {
            labels.push(0);
            most = value;
        } else if value > most {
            if let Some(label) = labels.last_mut() {
                *label = place;
            }
            most = value;
        }
        place = (place + 1) % shape.len();
        false
    };
    let other = first_target_that(dataset, target, is_no_label)?;
    Ok(other.is_none().then_some(labels))
}

/// Names that differ only in upper and lower case or in blanks, group by group.
#[cfg(feature = "files")]
pub(super) fn lookalikes<'a>(names: impl Iterator<Item = &'a String>) -> Vec<Vec<&'a str>> {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        let folded = name.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        groups.entry(folded).or_default().push(name);
    }
    groups.into_values().filter(|names| names.len() > 1).collect()
}

/// The part of the labels of a target that are of each class, without those of a class that the loss ignores. Labels have been
/// checked.
pub(crate) fn class_parts(
    dataset: &dyn Dataset,
    target: usize,
    classes: usize,
    ignored: Option<f32>,
) -> Result<Vec<f32>> {
    let mut counts = vec![0.0; classes];
    each_value(dataset, target, |_, label| {
        if ignored != Some(label)
            && let Some(count) = counts.get_mut(label_index(label))
        {
            *count += 1.0;
        }
    })?;
    let all = counts.iter().sum();
    Ok(parts(counts, all))
}

/// The mean of a target in each of so many columns, its last axis.
#[allow(clippy::cast_precision_loss, reason = "rows are far below 2^52")]
pub(crate) fn column_means(dataset: &dyn Dataset, target: usize, columns: usize) -> Result<Vec<f32>> {
    let (mut sums, mut values) = (vec![0.0; columns.max(1)], 0);
    each_value(dataset, target, |at, value| {
        sums[at % columns.max(1)] += f64::from(value);
        values = at + 1;
    })?;
    Ok(parts(sums, values as f64 / columns.max(1) as f64))
}

#[allow(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
fn parts(sums: Vec<f64>, count: f64) -> Vec<f32> {
    sums.into_iter().map(|sum| if count > 0.0 { (sum / count) as f32 } else { 0.0 }).collect()
}

/// Calls `each` with the place and value of every number of a target, row by row.
fn each_value(dataset: &dyn Dataset, target: usize, mut each: impl FnMut(usize, f32)) -> Result<()> {
    let mut at = 0;
    let is_refused = |value: f32| {
        each(at, value);
        at += 1;
        false
    };
    first_target_that(dataset, target, is_refused).map(drop)
}

/// The label that a target value is.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "labels are whole numbers up to 1e5")]
pub(super) fn label_index(value: f32) -> usize {
    value as usize
}
