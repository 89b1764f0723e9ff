//! Made-up data of any size, for benchmarks and tests.

use rand::RngExt;

use super::{BatchMut, Dataset, Purpose, generator, label_value};
use crate::{Error, Result, Shape};

/// Most values of all classes' prototypes together: 800 MB, enough for a thousand of `[224, 224, 3]`.
const MOST_VALUES: usize = 200_000_000;

/// Rows made from a seed on request, with a rule that can be learnt.
///
/// Each class has a prototype of uniform values. A row has a random label, and its input is
///
/// ```text
/// x = (prototype[label] + noise) / 2        prototype, noise uniform in [0, 1)
/// ```
///
/// Only the prototypes take memory. Source: ours.
///
/// ```
/// use manyhands::data::{Dataset, Synthetic};
/// # fn main() -> manyhands::Result<()> {
/// let train = Synthetic::new([32, 32, 3], 10, 0..50_000, 1)?;
/// let test = Synthetic::new([32, 32, 3], 10, 50_000..60_000, 1)?;
/// assert_eq!((train.len(), test.len()), (50_000, 10_000));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Synthetic {
    shape: Shape,
    rows: std::ops::Range<usize>,
    seed: u64,
    classes: usize,
    prototypes: Vec<f32>,
}

impl Synthetic {
    /// Rows of a shape. Sets of one seed have the same rule; other ranges of `rows` are other rows of it.
    ///
    /// # Errors
    ///
    /// When there would be no row, no element or no class, or prototypes of more than 800 MB.
    pub fn new(shape: impl Into<Shape>, classes: usize, rows: std::ops::Range<usize>, seed: u64) -> Result<Self> {
        let shape = shape.into();
        if shape.len() == 0 || classes == 0 || rows.is_empty() {
            return Err(Error::setting(
                "synthetic data",
                format!("needs elements, classes and rows, but got {shape}, {classes} classes, rows {rows:?}"),
                "each must be at least 1",
            ));
        }
        let elements = classes.saturating_mul(shape.len());
        let mut prototypes = Vec::new();
        if elements > MOST_VALUES || prototypes.try_reserve_exact(elements).is_err() {
            return Err(Error::setting(
                "synthetic data",
                format!("needs memory for a prototype of each class, but got {classes} classes of shape {shape}"),
                format!("take fewer classes, or smaller rows: {MOST_VALUES} values are the limit of all prototypes"),
            ));
        }
        let mut numbers = generator(Purpose::Prototypes, seed, 0);
        prototypes.extend((0..elements).map(|_| numbers.random::<f32>()));
        Ok(Self { shape, rows, seed, classes, prototypes })
    }
}

impl Dataset for Synthetic {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn target_shapes(&self) -> Vec<Shape> {
        vec![Shape::new([])]
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        let row_len = self.shape.len();
        let (inputs, targets) = batch.parts();
        for (position, row) in rows.iter().enumerate() {
            let mut numbers = generator(Purpose::SyntheticRow, self.seed, (self.rows.start + row) as u64);
            let label = numbers.random_range(0..self.classes);
            if let Some(target) = targets.first_mut() {
                target[position] = label_value(label);
            }
            if let Some(input) = inputs.first_mut() {
                let prototype = &self.prototypes[label * row_len..][..row_len];
                for (to, from) in input[position * row_len..][..row_len].iter_mut().zip(prototype) {
                    *to = f32::midpoint(*from, numbers.random::<f32>());
                }
            }
        }
        Ok(())
    }
}
