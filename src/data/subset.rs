//! Some rows of a dataset.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use rand::seq::SliceRandom;

use super::digest::Digest;
use super::labels::labels;
use super::{BatchMut, Dataset, Origin, Purpose, generator};
use crate::schema::{Fold, HeldOut, Schema};
use crate::{Error, Result, Shape};

/// Rows that are set aside, first a fold and then a part of the others, as [`fold`] and [`split`] do: what is fitted is fitted to
/// the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aside {
    /// The fold.
    pub fold: Option<Fold>,
    /// The part of the other rows.
    pub fraction: Option<f64>,
    /// Seed of the part.
    pub seed: u64,
}

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
/// Where the first target is a class, each class gives the same fraction of its rows, as with `stratify` of scikit-learn's
/// `train_test_split`; a class of one row stays in the rest, if it can. Both parts keep the order of the rows. The same seed
/// and targets give the same parts.
///
/// # Errors
///
/// When a part would be empty.
///
/// ```
/// use manyhands::data::{Dataset, digits, split};
/// # fn main() -> manyhands::Result<()> {
/// let (train, validation) = split(digits::train()?, 0.1, 42)?;
/// assert_eq!((train.len(), validation.len()), (1293, 144));
/// # Ok(())
/// # }
/// ```
pub fn split(dataset: impl Dataset + 'static, fraction: f64, seed: u64) -> Result<(Subset, Subset)> {
    let classes = labels(&dataset, 0)?;
    split_by(Arc::new(dataset), classes.as_deref(), fraction, seed)
}

fn split_by(
    dataset: Arc<dyn Dataset>,
    classes: Option<&[usize]>,
    fraction: f64,
    seed: u64,
) -> Result<(Subset, Subset)> {
    let parts = split_rows(dataset.len(), classes, fraction, seed)?;
    let of_fold = dataset.schema().held_out.filter(|of| of.fold.is_some());
    let (rows, fold) = of_fold.map_or((dataset.len(), None), |of| (of.rows, of.fold));
    Ok(parted(dataset, parts, HeldOut { fraction, seed, rows, stratified: classes.is_some(), fold }))
}

/// The rest, which knows the rows that were held out, and these.
fn parted(dataset: Arc<dyn Dataset>, (rest, rows): (Vec<usize>, Vec<usize>), of: HeldOut) -> (Subset, Subset) {
    let rest = Subset { dataset: Arc::clone(&dataset), rows: rest, held_out: Some(of) };
    (rest, Subset { dataset, rows, held_out: None })
}

/// Sets one of several folds of the rows aside, chosen by seed: `(the rest, the fold)`.
///
/// Each row is in one of the folds, whose sizes differ by one row at most. Where the first target is a class, so do the rows of
/// each class, as in `StratifiedKFold` of scikit-learn. Both parts keep the order of the rows.
///
/// # Errors
///
/// When there are fewer than two folds, fewer rows than folds, or no fold of that number.
///
/// ```
/// use std::sync::Arc;
/// use manyhands::data::{Dataset, Fold, digits, fold};
/// # fn main() -> manyhands::Result<()> {
/// let (train, test) = fold(Arc::new(digits::train()?), Fold { number: 2, of: 5, seed: 0 })?;
/// assert_eq!((train.len(), test.len()), (1149, 288));
/// # Ok(())
/// # }
/// ```
pub fn fold(dataset: Arc<dyn Dataset>, fold: Fold) -> Result<(Subset, Subset)> {
    let classes = labels(dataset.as_ref(), 0)?;
    let parts = fold_rows(dataset.len(), classes.as_deref(), fold)?;
    let (seed, rows, stratified) = (fold.seed, dataset.len(), classes.is_some());
    Ok(parted(dataset, parts, HeldOut { fraction: 0.0, seed, rows, stratified, fold: Some(fold) }))
}

/// The rows that [`fold`] leaves, and those of the fold, in order.
///
/// Source: `StratifiedKFold` of scikit-learn. The rows, sorted by class, go to the folds in turn.
fn fold_rows(len: usize, classes: Option<&[usize]>, fold: Fold) -> Result<(Vec<usize>, Vec<usize>)> {
    let Fold { number, of, seed } = fold;
    if of < 2 || of > len || !(1..=of).contains(&number) {
        return Err(Error::setting(
            format!("fold {number} of {of}"),
            format!("needs from 2 folds to as many as there are rows, which are {len}, and a number from 1 on"),
            "5 folds are usual",
        ));
    }
    let mut rows: Vec<usize> = (0..len).collect();
    rows.shuffle(&mut generator(Purpose::Fold, seed, 0));
    if let Some(classes) = classes {
        // Classes come in the order in which the shuffled rows name them, so that their numbers change nothing.
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        for row in &rows {
            let next = places.len();
            places.entry(classes[*row]).or_insert(next);
        }
        rows.sort_by_key(|row| places.get(&classes[*row]).copied());
    }
    let mut parts = (Vec::new(), Vec::new());
    for (at, row) in rows.into_iter().enumerate() {
        if at % of == number - 1 { parts.1.push(row) } else { parts.0.push(row) }
    }
    parts.0.sort_unstable();
    parts.1.sort_unstable();
    Ok(parts)
}

/// The rows that are left where a fold and then a part of the others are set aside. `classes` has the class of each row.
#[cfg(feature = "files")]
pub(super) fn left_rows(len: usize, classes: Option<&[usize]>, aside: &Aside) -> Result<Vec<usize>> {
    let rows = match aside.fold {
        Some(fold) => fold_rows(len, classes, fold)?.0,
        None => (0..len).collect(),
    };
    let Some(fraction) = aside.fraction else { return Ok(rows) };
    let classes: Option<Vec<usize>> = classes.map(|classes| rows.iter().map(|row| classes[*row]).collect());
    let (rest, _) = split_rows(rows.len(), classes.as_deref(), fraction, aside.seed)?;
    Ok(rest.into_iter().map(|at| rows[at]).collect())
}

/// The rows that [`split`] leaves, and those that it sets aside, in order. `classes` has the class of each row.
fn split_rows(len: usize, classes: Option<&[usize]>, fraction: f64, seed: u64) -> Result<(Vec<usize>, Vec<usize>)> {
    let aside = rounded(fraction, len).filter(|&aside| aside > 0 && aside < len).ok_or_else(|| {
        Error::setting(
            "the split",
            format!("needs at least one row on each side, but {fraction} of {len} rows was asked for"),
            "use a fraction between 0 and 1, such as 0.1",
        )
    })?;
    let mut rows: Vec<usize> = (0..len).collect();
    rows.shuffle(&mut generator(Purpose::Split, seed, 0));
    let (mut rest, mut rows) = match classes {
        None => (rows.split_off(aside), rows),
        Some(classes) => {
            let mut left = shares(classes, &rows, aside);
            rows.into_iter().partition(|row| {
                let left = left.entry(classes[*row]).or_default();
                let stays = *left == 0;
                *left = left.saturating_sub(1);
                stays
            })
        }
    };
    rows.sort_unstable();
    rest.sort_unstable();
    Ok((rest, rows))
}

/// The rows that each class gives: its part of `aside`, rounded by largest remainder. Equal remainders are served in the
/// order in which `shuffled` first names their classes.
fn shares(classes: &[usize], shuffled: &[usize], aside: usize) -> BTreeMap<usize, usize> {
    let mut sizes: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (place, row) in shuffled.iter().enumerate() {
        sizes.entry(classes[*row]).or_insert((0, place)).0 += 1;
    }
    let mut shares: BTreeMap<usize, usize> =
        sizes.iter().map(|(class, (size, _))| (*class, size * aside / classes.len())).collect();
    let mut by_remainder: Vec<usize> = sizes.keys().copied().collect();
    // A class keeps its last row as long as others have rows to give.
    by_remainder.sort_by_key(|class| {
        let (size, place) = sizes[class];
        (shares[class] + 1 >= size, Reverse(size * aside % classes.len()), place)
    });
    let missing = aside - shares.values().sum::<usize>();
    for class in by_remainder.iter().take(missing) {
        *shares.entry(*class).or_default() += 1;
    }
    shares
}

/// The rows that [`split`] or [`fold`] set aside, taken again from the whole dataset.
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
    Ok(parts_again(dataset, of)?.1)
}

/// The rows that [`split`] or [`fold`] left to train on, taken again from the whole dataset.
///
/// # Errors
///
/// When the number of rows of the dataset has changed.
pub fn trained_on(dataset: Arc<dyn Dataset>, of: HeldOut) -> Result<Subset> {
    Ok(parts_again(dataset, of)?.0)
}

fn parts_again(dataset: Arc<dyn Dataset>, of: HeldOut) -> Result<(Subset, Subset)> {
    if dataset.len() != of.rows {
        return Err(Error::data(
            "the rows that were held out",
            format!("need the {} rows that they were drawn from, but the data have {}", of.rows, dataset.len()),
            "name the training data of before; to evaluate on other data, name them as test data",
        ));
    }
    let dataset = match of.fold.map(|of| fold(Arc::clone(&dataset), of)).transpose()? {
        Some(parts) if of.fraction == 0.0 => return Ok(parts),
        Some((rest, _)) => Arc::new(rest),
        None => dataset,
    };
    let classes = if of.stratified { labels(dataset.as_ref(), 0)? } else { None };
    split_by(dataset, classes.as_deref(), of.fraction, of.seed)
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

    fn origins(&self, rows: &[usize]) -> Vec<Origin> {
        let rows: Vec<usize> = rows.iter().filter_map(|&row| self.rows.get(row).copied()).collect();
        self.dataset.origins(&rows)
    }

    /// That of the whole data, too: which rows are chosen can depend on all of them.
    fn digest(&self) -> Option<u64> {
        let mut digest = Digest::default();
        digest.add(self.dataset.digest()?);
        self.rows.iter().for_each(|row| digest.add(*row as u64));
        Some(digest.value())
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        let rows: Vec<usize> = rows.iter().map(|&row| self.rows[row]).collect();
        self.dataset.fetch(&rows, batch)
    }
}
