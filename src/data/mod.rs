//! Data: sets of rows, formats of files, and the loader that makes batches.
//!
//! | you have | use |
//! | --- | --- |
//! | arrays | [`InMemory`] |
//! | no data yet | [`digits`], which is part of the crate, or [`Synthetic`] |
//! | MNIST, Fashion-MNIST and their like | [`idx`] |
//! | CIFAR-10 | [`cifar`] |
//! | a table, of numbers, categories, dates and texts, with gaps | [`csv`] |
//! | arrays of NumPy in files | [`numpy`] |
//! | tensors of PyTorch in files | [`safetensors`] |
//! | text to learn to write | [`Texts`] |
//! | a folder of images for each class | [`ImageFolder`] |
//! | data without targets, to predict from | [`DataConfig::open_inputs`], [`InMemory::without_targets`] |
//! | anything else | your own [`Dataset`] |
//!
//! [`split`] sets rows aside for validation. A [`Loader`] shuffles, changes images at random ([`Augmentation`]), and reads
//! batches ahead in threads.
//!
//! ```
//! use std::sync::Arc;
//! use manyhands::data::{Loader, LoaderSettings, digits};
//!
//! # fn main() -> manyhands::Result<()> {
//! let settings = LoaderSettings { batch_size: 64, shuffle: Some(7), ..Default::default() };
//! let mut loader = Loader::new(Arc::new(digits::train()?), settings)?;
//! let mut rows = 0;
//! while let Some(batch) = loader.next()? {
//!     rows += batch.rows;
//! }
//! assert_eq!(rows, 1437);
//! # Ok(())
//! # }
//! ```

// Files: one for each format; `csv/`: tables (`csv/dialect.rs`: delimiters and head, `csv/survey.rs`: kinds of columns, `csv/encode.rs`:
// columns as elements); `images/`: folders of images (`images/decode.rs` decodes, turns, resizes). `csv/sketch.rs`, `images/sketch.rs`:
// data at first sight, for `init`. `formats/`: data of a settings file; `loader.rs`, `batch.rs`, `buffers.rs`: batches, read by
// threads; `augment/`: random changes; `labels.rs`, `class_weight.rs`: classes; `subset.rs`, `pair.rs`: parts of data; `description.rs`:
// data in words; `digest.rs`: whether data are those of before; `source.rs`: bytes of data files, also from pipes; `origin.rs`: where a row stands in its file.

pub mod augment;
pub(crate) mod batch;
pub(crate) mod buffers;
mod bytes;
#[cfg(feature = "files")]
pub mod cifar;
mod class_weight;
#[cfg(feature = "files")]
pub mod csv;
mod description;
mod digest;
pub mod digits;
#[cfg(feature = "files")]
mod formats;
pub mod idx;
#[cfg(feature = "files")]
pub mod images;
mod labels;
mod loader;
mod memory;
#[cfg(feature = "files")]
pub mod numpy;
mod origin;
#[cfg(feature = "files")]
mod pair;
#[cfg(feature = "files")]
pub mod safetensors;
#[cfg(feature = "files")]
pub mod source;
mod subset;
mod synthetic;
#[cfg(feature = "files")]
mod text;

#[cfg(feature = "files")]
pub use self::csv::{
    Column, ColumnKind, CsvSettings, CsvTable, InputColumns, NumberScale, OneOrMany, OutputColumns, TargetKind,
};
pub use augment::{Augment, Augmentation, Factor, FillMode, FlipMode};
pub use batch::{Batch, BatchMut, check_labels, check_probabilities};
pub(crate) use batch::{
    Numbers, RowName, check_batch_indices, check_batch_labels, check_batch_numbers, check_counted_labels,
    check_indices, check_numbers,
};
pub use buffers::Buffers;
pub use bytes::ByteImages;
pub use class_weight::ClassWeighted;
pub use description::{ClassCount, Description};
#[cfg(feature = "files")]
pub use formats::{
    CifarConfig, DataConfig, DigitsConfig, FolderConfig, IdxConfig, IdxFilesConfig, Inputs, NpyConfig, NpzConfig,
    SyntheticConfig, TableConfig, TextConfig,
};
#[cfg(feature = "files")]
pub use images::{Channels, ImageFiles, ImageFolder, ImageSettings, Unreadable};
pub(crate) use labels::{class_parts, column_means};
pub(crate) use loader::Part;
pub use loader::{Loader, LoaderSettings, Position};
pub use memory::InMemory;
pub use origin::Origin;
#[cfg(feature = "files")]
pub use pair::DataPair;
pub use subset::{Aside, Subset, fold, held_out, split, trained_on};
pub use synthetic::Synthetic;
#[cfg(feature = "files")]
pub use text::{Texts, Windows};

pub use crate::schema::{
    Code, Encoding, Field, Fold, Format, HeldOut, LabelMode, Missing, Schema, Seen, TableColumn, Text,
};
pub use crate::vocabulary::{Split, Standardize, TokenSettings, Vocabulary};

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::{Result, Shape};

/// Rows for training or testing a model.
///
/// A row has one value for each input and each target, flat, row-major, as f32. Class labels are
/// whole numbers of shape `[]`, one element a row. Rows may be read in any order, by several
/// threads at once, and a row must give the same values each time.
pub trait Dataset: Send + Sync {
    /// Number of rows.
    fn len(&self) -> usize;

    /// Whether there is no row.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shape of one row of each input.
    fn input_shapes(&self) -> Vec<Shape>;

    /// Shape of one row of each target; none for data to predict from.
    fn target_shapes(&self) -> Vec<Shape>;

    /// Whether each row has a weight in the loss.
    fn has_sample_weights(&self) -> bool {
        false
    }

    /// Meaning of the values: names of columns and classes, and settings of the reader. A model keeps it in its file.
    fn schema(&self) -> Schema {
        Schema::default()
    }

    /// Notes of the reader at the start of a run: files that are left out, inputs that should be scaled.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Requested rows that are unreadable, with the reason: their values are zeros, unless that is an error.
    fn unreadable(&self) -> Vec<(usize, String)> {
        Vec::new()
    }

    /// Origins of these rows, in their order: files, lines, fields. Empty where they are not known.
    fn origins(&self, _rows: &[usize]) -> Vec<Origin> {
        Vec::new()
    }

    /// Hash of all rows in their order, where it is found without decoding them: a resumed run compares it with that of before.
    fn digest(&self) -> Option<u64> {
        None
    }

    /// Writes the values of `rows`, in their order, into the slices of `batch`.
    ///
    /// Each slice holds `rows.len()` rows without gaps and must be filled whole: it may hold values of an earlier batch. An
    /// unwanted part, for example the inputs when labels are checked, is an empty slice: loops over its
    /// chunks then do nothing. Every entry of `rows` is less than [`len`](Self::len).
    ///
    /// # Errors
    ///
    /// When a row can't be read or decoded; the error names the file or the row.
    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()>;
}

/// A shared dataset is a dataset, too: clone the `Arc` to use it several times.
impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        (**self).input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        (**self).target_shapes()
    }

    fn has_sample_weights(&self) -> bool {
        (**self).has_sample_weights()
    }

    fn schema(&self) -> Schema {
        (**self).schema()
    }

    fn notes(&self) -> Vec<String> {
        (**self).notes()
    }

    fn unreadable(&self) -> Vec<(usize, String)> {
        (**self).unreadable()
    }

    fn origins(&self, rows: &[usize]) -> Vec<Origin> {
        (**self).origins(rows)
    }

    fn digest(&self) -> Option<u64> {
        (**self).digest()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        (**self).fetch(rows, batch)
    }
}

/// Error if memory does not suffice for a file.
#[cfg(feature = "files")]
fn no_memory(who: &str) -> crate::Error {
    crate::Error::data(who, "needs more memory than the system gives", "close other programs, or use fewer rows")
}

/// Purpose of a stream of random numbers, so that the streams of one seed are independent.
#[derive(Clone, Copy)]
enum Purpose {
    EpochOrder = 1,
    Split = 2,
    Prototypes = 3,
    SyntheticRow = 4,
    Augment = 5,
    MixUp = 6,
    Fold = 7,
}

/// `ChaCha8` generator of (purpose, seed, index): the same numbers on every machine.
fn generator(purpose: Purpose, seed: u64, index: u64) -> ChaCha8Rng {
    generator_of_row(purpose, seed, index, 0)
}

/// `ChaCha8` generator of (purpose, seed, epoch, row).
fn generator_of_row(purpose: Purpose, seed: u64, epoch: u64, row: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&epoch.to_le_bytes());
    key[16] = purpose as u8;
    key[24..].copy_from_slice(&row.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// The target value of a label.
#[allow(clippy::cast_precision_loss, reason = "numbers of classes are far below 2^24, where f32 is exact")]
pub fn label_value(label: usize) -> f32 {
    label as f32
}
