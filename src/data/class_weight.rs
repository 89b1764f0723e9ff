//! Weights of classes, as weights of rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::labels::labels;
use super::{Batch, BatchMut, Dataset, Origin};
use crate::schema::Schema;
use crate::{Error, Result, Shape};

/// A dataset whose rows weigh what their class weighs, as with `class_weight` of Keras' `fit`.
///
/// The class of a row is its label, the largest of several numbers (one-hot targets), or 0 or 1 for a single number. A class
/// without a weight weighs 1.
///
/// ```
/// use std::sync::Arc;
/// use manyhands::data::{Batch, ClassWeighted, digits};
/// # fn main() -> manyhands::Result<()> {
/// let digits = ClassWeighted::new(Arc::new(digits::train()?), [(3, 2.5)])?;
/// let batch = Batch::fetch(&digits, &[0, 1, 2, 3])?;
/// let weight_of = |label: &f32| if *label == 3.0 { 2.5 } else { 1.0 };
/// let needed: Vec<f32> = batch.targets[0].iter().map(weight_of).collect();
/// assert_eq!(batch.sample_weights.unwrap().to_vec(), needed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ClassWeighted {
    dataset: Arc<dyn Dataset>,
    weights: BTreeMap<usize, f32>,
    /// Numbers of a row of the target.
    row_len: usize,
}

impl ClassWeighted {
    /// Weights by class.
    ///
    /// # Errors
    /// If a weight is no number from 0 up, or the dataset has several targets, or weights of its own.
    pub fn new(dataset: Arc<dyn Dataset>, weights: impl IntoIterator<Item = (usize, f32)>) -> Result<Self> {
        let weights: BTreeMap<usize, f32> = weights.into_iter().collect();
        let refuse = |problem: String, help: &str| Err(Error::setting("`class_weight`", problem, help));
        if let Some((class, weight)) = weights.iter().find(|(_, weight)| !(**weight >= 0.0 && weight.is_finite())) {
            return refuse(
                format!("needs finite numbers from 0 up, but class {class} has {weight}"),
                "a class of weight 2 counts as if each of its rows came twice",
            );
        }
        if dataset.has_sample_weights() {
            return refuse(
                "needs rows without weights, but the data have sample weights".into(),
                "multiply the sample weights by those of the classes, or leave one of them out",
            );
        }
        let [shape] = &dataset.target_shapes()[..] else {
            return refuse(
                format!("needs data with one target, but these have {}", dataset.target_shapes().len()),
                "give sample weights for several outputs",
            );
        };
        let row_len = shape.len();
        Ok(Self { dataset, weights, row_len })
    }

    /// The weights with which all classes count alike, whatever their rows: `rows / (classes · rows of the class)`. Classes
    /// without rows are not counted.
    ///
    /// Source: `class_weight="balanced"` of scikit-learn; King and Zeng 2001, "Logistic regression in rare events data".
    ///
    /// # Errors
    /// If the rows have no classes.
    ///
    /// ```
    /// use manyhands::data::{ClassWeighted, InMemory};
    /// use ndarray::{Array2, arr1};
    /// # fn main() -> manyhands::Result<()> {
    /// let rows = InMemory::new(Array2::zeros((4, 1)), arr1(&[0.0, 0.0, 0.0, 2.0]))?;
    /// let weights = ClassWeighted::balanced(&rows)?;
    /// assert_eq!((weights[&0], weights[&2]), (4.0 / 6.0, 2.0));
    /// # Ok(())
    /// # }
    /// ```
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "counts of rows are far below 2^52"
    )]
    pub fn balanced(dataset: &dyn Dataset) -> Result<BTreeMap<usize, f32>> {
        let Some(labels) = labels(dataset, 0)? else {
            return Err(Error::setting(
                "`class_weight = \"balanced\"`",
                "needs a target of classes, but the first target has none",
                "leave it out, or name the weight of each class",
            ));
        };
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
        let weight = |rows: usize| labels.len() as f64 / (counts.len() * rows) as f64;
        Ok(counts.iter().map(|(label, rows)| (*label, weight(*rows) as f32)).collect())
    }

    /// The weight of a row by its target.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "labels are small whole numbers")]
    fn weight(&self, target: &[f32]) -> f32 {
        let class = match target {
            [label] => label.round_ties_even() as usize,
            several => {
                // The first of the largest.
                let larger = |best: usize, at: usize| if several[at] > several[best] { at } else { best };
                (0..several.len()).fold(0, larger)
            }
        };
        self.weights.get(&class).copied().unwrap_or(1.0)
    }
}

impl Dataset for ClassWeighted {
    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.dataset.input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.dataset.target_shapes()
    }

    fn has_sample_weights(&self) -> bool {
        true
    }

    fn schema(&self) -> Schema {
        self.dataset.schema()
    }

    fn notes(&self) -> Vec<String> {
        self.dataset.notes()
    }

    fn unreadable(&self) -> Vec<(usize, String)> {
        self.dataset.unreadable()
    }

    fn origins(&self, rows: &[usize]) -> Vec<Origin> {
        self.dataset.origins(rows)
    }

    fn digest(&self) -> Option<u64> {
        self.dataset.digest()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        self.dataset.fetch(rows, batch)?;
        if batch.sample_weights().is_empty() {
            return Ok(());
        }
        let weights_of =
            |targets: &[f32]| -> Vec<f32> { targets.chunks(self.row_len.max(1)).map(|row| self.weight(row)).collect() };
        let weights = match batch.target(0) {
            [] => weights_of(&Batch::fetch(&*self.dataset, rows)?.targets[0]),
            targets => weights_of(targets),
        };
        batch.sample_weights().copy_from_slice(&weights);
        Ok(())
    }
}
