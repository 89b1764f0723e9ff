//! Classes of the rows of a dataset, by their targets.

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

/// The label that a target value is.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "labels are whole numbers up to 1e5")]
pub(super) fn label_index(value: f32) -> usize {
    value as usize
}
