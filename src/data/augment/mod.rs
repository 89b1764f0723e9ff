//! Random changes of training images, so that a model never sees the same ones twice.
//!
//! A change is drawn from the run's seed, the epoch and the row alone: any number of reading threads, any split over adapters
//! and a resumed run give the same images, bit by bit.

mod affine;
mod colour;
mod draws;
mod kinds;
mod places;

use std::sync::Arc;

pub use self::affine::{Affine, Fill, FillMode};
pub use self::colour::{brightness, contrast, saturation};
pub use self::kinds::{Augmentation, Factor, FlipMode};

use self::draws::Draws;
use super::buffers::Buffers;
use super::{Batch, Dataset, Purpose, generator_of_row};
use crate::runtime::threads;
use crate::{Error, Result, Shape};

/// Size of an image.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Rows of pixels.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
    /// Numbers of a pixel.
    pub channels: usize,
}

/// The changes of a run's training images.
#[derive(Clone, Debug, PartialEq)]
pub struct Augment {
    /// The changes, in order.
    pub changes: Vec<Augmentation>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Augment {
    /// Checks the settings, and that they fit a dataset.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range, or the dataset has no images, or labels that can't be mixed.
    pub fn check(&self, dataset: &dyn Dataset) -> Result<()> {
        let size = self.size(&dataset.input_shapes())?;
        for (place, change) in self.changes.iter().enumerate() {
            let refuse =
                |problem: String, help: &str| Err(Error::setting(format!("`{}`", change.name()), problem, help));
            for (name, [least, most], [lowest, highest]) in change.ranges() {
                if !(lowest <= least && least <= most && most <= highest) {
                    return refuse(
                        format!("needs numbers from {lowest} to {highest} by `{name}`, but gets {least} to {most}"),
                        "`docs/settings.md` says what the numbers mean",
                    );
                }
            }
            if let Some([low, high]) = change.value_range()
                && !(low < high && (high - low).is_finite())
            {
                return refuse(
                    format!("needs a `value_range` from small to large, but gets {low} to {high}"),
                    "0 to 1 is usual",
                );
            }
            match change {
                Augmentation::RandomSaturation { .. } if size.channels != 3 => {
                    return refuse(
                        format!("needs colour images, but these have {} channels", size.channels),
                        "leave it out",
                    );
                }
                Augmentation::MixUp { .. } if place + 1 < self.changes.len() => {
                    return refuse(
                        "needs to be the last change, but others follow".into(),
                        "move it to the end: it mixes images as the other changes leave them",
                    );
                }
                Augmentation::MixUp { .. } if dataset.target_shapes().iter().any(|shape| shape.rank() == 0) => {
                    return refuse(
                        "needs a number for each class as the target, but the data give labels".into(),
                        "set `label_mode = \"categorical\"` in `[data]`, and the loss `CategoricalCrossentropy`",
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The size of the images, which are the one input.
    pub(super) fn size(&self, inputs: &[Shape]) -> Result<Size> {
        if let [shape] = inputs
            && let &[height, width, channels] = shape.axes()
        {
            return Ok(Size { height, width, channels });
        }
        let shapes = inputs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Err(Error::setting(
            "`augment`",
            format!("needs images, [batch, height, width, channels], as the one input, but the data give {shapes}"),
            "leave it out: it changes images alone",
        ))
    }

    /// Changes images, each by itself, which are those `rows` of the dataset.
    pub(super) fn change(&self, images: &mut [f32], size: Size, rows: &[usize], epoch: u64) {
        let row_len = size.height * size.width * size.channels;
        let each: Vec<_> = images.chunks_exact_mut(row_len).zip(rows).collect();
        threads::for_each(each, |(image, &row)| {
            let mut draws = Draws(generator_of_row(Purpose::Augment, self.seed, epoch, row as u64));
            for change in &self.changes {
                change.change(image, size, &mut draws);
            }
        });
    }

    /// Mixes each row of a batch with another one, by a part of its own, if [`Augmentation::MixUp`] is among the changes. A row
    /// that counts nothing is not mixed into others.
    pub(super) fn mix(&self, batch: &mut Batch, buffers: &Buffers, rows: &[usize], epoch: u64) {
        let Some(&Augmentation::MixUp { alpha }) = self.changes.last() else { return };
        let n_rows = rows.len();
        let weights = batch.sample_weights.clone();
        let counts = |row: usize| weights.as_ref().is_none_or(|weights| weights[row] > 0.0);
        let draw = |&row: &usize| {
            let mut draws = Draws(generator_of_row(Purpose::MixUp, self.seed, epoch, row as u64));
            let part = draws.beta(alpha);
            (part, draws.below(n_rows))
        };
        let partners: Vec<(f32, usize)> = rows.iter().map(draw).collect();
        for values in batch.inputs.iter_mut().chain(&mut batch.targets) {
            let new = buffers.take(values.len());
            let before = std::mem::replace(values, new);
            let row_len = before.len() / n_rows.max(1);
            // It has one owner: nothing is copied here.
            let mixed = Arc::make_mut(values);
            mixed.copy_from_slice(&before);
            for (to, &(part, partner)) in mixed.chunks_exact_mut(row_len.max(1)).zip(&partners) {
                if counts(partner) {
                    let others = &before[partner * row_len..][..row_len];
                    to.iter_mut().zip(others).for_each(|(to, other)| *to = part * *to + (1.0 - part) * other);
                }
            }
            buffers.keep(&before);
        }
    }
}
