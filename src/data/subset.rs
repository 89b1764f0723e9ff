//! Some rows of a dataset.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::seq::SliceRandom;

use super::{BatchMut, Dataset, Purpose, generator};
use crate::schema::{HeldOut, Schema};
use crate::{Error, Result, Shape};

/// Some rows of another dataset, in any order. Copies no values.
#[derive(Clone)]
pub struct Subset {
    dataset: Arc<dyn Dataset>,
    rows: Vec<usize>,
    held_out: Option<HeldOut>,
}

impl Subset {
    /// The rows to show, in this order; a row may come twice.
    ///
    /// # Errors
    ///
    /// When a row is not there.
    pub fn new(dataset: Arc<dyn Dataset>, rows: Vec<usize>) -> Result<Self> {
        match rows.iter().find(|&&row| row >= dataset.len()) {
            None => Ok(Self { dataset, rows, held_out: None }),
            Some(row) => Err(Error::data(
                "the subset",
                format!("needs rows below {}, but got row {row}", dataset.len()),
                "rows count from 0",
            )),
        }
    }
}

/// Sets a fraction of the rows aside, chosen by seed: `(the rest, the fraction)`.
///
/// Both parts keep the order of the rows. The same seed and number of rows give the same parts.
///
/// # Errors
///
/// When a part would be empty.
///
/// ```
/// use std::sync::Arc;
/// use manyhands::data::{Dataset, digits, split};
/// # fn main() -> manyhands::Result<()> {
/// let (train, validation) = split(Arc::new(digits::train()?), 0.1, 42)?;
/// assert_eq!((train.len(), validation.len()), (1293, 144));
/// # Ok(())
/// # }
/// ```
pub fn split(dataset: Arc<dyn Dataset>, fraction: f64, seed: u64) -> Result<(Subset, Subset)> {
    let (rest, rows) = split_rows(dataset.len(), fraction, seed)?;
    let held_out = Some(HeldOut { fraction, seed, rows: dataset.len() });
    Ok((Subset { dataset: Arc::clone(&dataset), rows: rest, held_out }, Subset { dataset, rows, held_out: None }))
}

/// The rows that [`split`] leaves, and those that it sets aside, in order.
pub(super) fn split_rows(len: usize, fraction: f64, seed: u64) -> Result<(Vec<usize>, Vec<usize>)> {
    let aside = rounded(fraction, len).filter(|&aside| aside > 0 && aside < len).ok_or_else(|| {
        Error::setting(
            "the split",
            format!("needs at least one row on each side, but {fraction} of {len} rows was asked for"),
            "use a fraction between 0 and 1, such as 0.1",
        )
    })?;
    let mut rows: Vec<usize> = (0..len).collect();
    rows.shuffle(&mut generator(Purpose::Split, seed, 0));
    let mut rest = rows.split_off(aside);
    rows.sort_unstable();
    rest.sort_unstable();
    Ok((rest, rows))
}

/// The rows that [`split`] set aside, taken again from the whole dataset.
///
/// # Errors
///
/// When the number of rows of the dataset has changed.
///
/// ```
/// use std::sync::Arc;
/// use manyhands::data::{Dataset, digits, held_out, split};
/// # fn main() -> manyhands::Result<()> {
/// let data: Arc<dyn Dataset> = Arc::new(digits::train()?);
/// let (train, validation) = split(data.clone(), 0.1, 42)?;
/// let again = held_out(data, train.schema().held_out.unwrap())?;
/// assert_eq!(again.len(), validation.len());
/// # Ok(())
/// # }
/// ```
pub fn held_out(dataset: Arc<dyn Dataset>, of: HeldOut) -> Result<Subset> {
    if dataset.len() != of.rows {
        return Err(Error::data(
            "the rows that were held out",
            format!("need the {} rows that they were drawn from, but the data have {}", of.rows, dataset.len()),
            "name the training data of before",
        ));
    }
    Ok(split(dataset, of.fraction, of.seed)?.1)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the fraction is between 0 and 1, so the product is a row count"
)]
fn rounded(fraction: f64, len: usize) -> Option<usize> {
    (fraction > 0.0 && fraction < 1.0).then(|| (fraction * len as f64).round() as usize)
}

impl Dataset for Subset {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.dataset.input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.dataset.target_shapes()
    }

    fn has_sample_weights(&self) -> bool {
        self.dataset.has_sample_weights()
    }

    fn schema(&self) -> Schema {
        let schema = self.dataset.schema();
        Schema { held_out: self.held_out.or(schema.held_out), ..schema }
    }

    fn notes(&self) -> Vec<String> {
        self.dataset.notes()
    }

    fn unreadable(&self) -> Vec<(usize, String)> {
        let of_dataset: BTreeMap<usize, String> = self.dataset.unreadable().into_iter().collect();
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(row, of)| Some((row, of_dataset.get(of)?.clone()))).collect()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        let rows: Vec<usize> = rows.iter().map(|&row| self.rows[row]).collect();
        self.dataset.fetch(&rows, batch)
    }
}
