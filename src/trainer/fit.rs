//! The settings of a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::save_settings::SaveSettings;
use crate::data::{Augment, Augmentation, Dataset, LoaderSettings};

/// Settings of a run of training.
#[derive(Clone)]
#[non_exhaustive]
pub struct Fit {
    /// Number of the last epoch. A run that resumes at epoch 3 of 10 trains 7 more.
    pub epochs: u64,
    /// Rows of a batch, over all adapters.
    pub batch_size: usize,
    /// Data for validation after each epoch.
    pub validation: Option<Arc<dyn Dataset>>,
    /// Weights of the classes in training, by label; 1 where none is given. Validation counts each row once.
    pub class_weight: BTreeMap<usize, f32>,
    /// Random changes of the training images, in order. Validation sees them unchanged.
    pub augment: Vec<Augmentation>,
    /// Whether rows are shuffled in each epoch.
    pub shuffle: bool,
    /// Whether a short last batch is left out.
    pub drop_remainder: bool,
    /// Micro-batches in which each adapter computes its rows, one after the other, before one update: less memory for
    /// the same batch. The result is the same, except with batch normalization, whose statistics are then those of each
    /// micro-batch.
    pub micro_batches: u32,
    /// Number of threads that decode data; 0 decodes between steps.
    pub workers: usize,
    /// Batches that are decoded ahead.
    pub prefetch: usize,
    /// Path and interval of checkpoints.
    pub save: Option<SaveSettings>,
    /// File for a trace of all work, for Perfetto; written at the end, also after an error.
    pub trace: Option<PathBuf>,
    /// Flag that ends the run after the current step, with a checkpoint.
    pub stop: Arc<AtomicBool>,
}

impl Default for Fit {
    fn default() -> Self {
        Self {
            epochs: 1,
            batch_size: 32,
            validation: None,
            class_weight: BTreeMap::new(),
            augment: Vec::new(),
            shuffle: true,
            drop_remainder: false,
            micro_batches: 1,
            workers: LoaderSettings::default().workers,
            prefetch: LoaderSettings::default().prefetch,
            save: None,
            trace: None,
            stop: Arc::new(AtomicBool::new(false)),
        }
    }
}

impl Fit {
    /// Trains up to this epoch, with Keras' defaults: batches of 32 rows, shuffled.
    ///
    /// ```
    /// use manyhands::{Fit, data::digits};
    /// # fn main() -> manyhands::Result<()> {
    /// let fit = Fit::new(10).batch_size(64).validation(digits::test()?);
    /// assert_eq!((fit.epochs, fit.batch_size), (10, 64));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(epochs: u64) -> Self {
        Self { epochs, ..Self::default() }
    }

    /// Rows of a batch, over all adapters.
    #[must_use]
    pub fn batch_size(mut self, rows: usize) -> Self {
        self.batch_size = rows;
        self
    }

    /// Data for validation after each epoch.
    #[must_use]
    pub fn validation(mut self, dataset: impl Dataset + 'static) -> Self {
        self.validation = Some(Arc::new(dataset));
        self
    }

    /// Weights of the classes in training, as `class_weight` of Keras: rows of a class count so many times in the loss.
    ///
    /// ```
    /// use manyhands::Fit;
    /// let fit = Fit::new(5).class_weight([(0, 1.0), (1, 20.0)]);
    /// assert_eq!(fit.class_weight[&1], 20.0);
    /// ```
    #[must_use]
    pub fn class_weight(mut self, weights: impl IntoIterator<Item = (usize, f32)>) -> Self {
        self.class_weight = weights.into_iter().collect();
        self
    }

    /// Changes the training images at random, as with Keras' layers of these names; other images in each epoch.
    #[must_use]
    pub fn augment(mut self, changes: impl IntoIterator<Item = Augmentation>) -> Self {
        self.augment = changes.into_iter().collect();
        self
    }

    /// Leaves out a short last batch.
    #[must_use]
    pub fn drop_remainder(mut self) -> Self {
        self.drop_remainder = true;
        self
    }

    /// Keeps the rows in their order.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.shuffle = false;
        self
    }

    /// Number of the last epoch. A run that resumes at epoch 3 of 10 trains 7 more.
    #[must_use]
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = epochs;
        self
    }

    /// Parts in which each adapter computes its rows, one after the other, before the one update: less memory for the
    /// same batch.
    #[must_use]
    pub fn micro_batches(mut self, parts: u32) -> Self {
        self.micro_batches = parts;
        self
    }

    /// Sets the number of threads that decode data; 0 decodes between steps.
    #[must_use]
    pub fn workers(mut self, n_workers: usize) -> Self {
        self.workers = n_workers;
        self
    }

    /// Batches that are decoded ahead.
    #[must_use]
    pub fn prefetch(mut self, n_batches: usize) -> Self {
        self.prefetch = n_batches;
        self
    }

    /// Ends the run after the current step, with a checkpoint, once the flag is set.
    #[must_use]
    pub fn stop(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stop = flag;
        self
    }

    /// Saves by these settings: also after some steps, or over another run's file.
    #[must_use]
    pub fn save_with(mut self, settings: SaveSettings) -> Self {
        self.save = Some(settings);
        self
    }

    /// Saves a checkpoint after each epoch and at the end, to a new file or to the one that the run was resumed from.
    #[must_use]
    pub fn save(mut self, path: impl Into<PathBuf>) -> Self {
        self.save = Some(SaveSettings::new(path));
        self
    }

    /// Writes a trace of all work, for Perfetto.
    #[must_use]
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }

    pub(super) fn loader(&self, seed: u64) -> LoaderSettings {
        LoaderSettings {
            batch_size: self.batch_size,
            shuffle: self.shuffle.then_some(seed),
            drop_remainder: self.drop_remainder,
            workers: self.workers,
            prefetch: self.prefetch,
            augment: (!self.augment.is_empty()).then(|| Augment { changes: self.augment.clone(), seed }),
        }
    }
}
