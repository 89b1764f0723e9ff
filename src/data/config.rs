//! Which data to use, as a settings file says it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::csv::{self, Column, CsvSettings, TargetKind};
use super::images::{self, ImageFiles, ImageFolder, ImageSettings};
use super::{ByteImages, Channels, Dataset, Synthetic, cifar, digits, idx};
use crate::{Error, Result};

/// Which data to use; the table `[data]` of a settings file.
///
/// ```toml
/// type = "csv"
/// train = "iris.csv"
/// target = "species"
/// target_kind = "classes"
/// ```
///
/// ```
/// use manyhands::data::DataConfig;
/// # fn main() -> manyhands::Result<()> {
/// let config: DataConfig = toml::from_str("type = 'digits'").unwrap();
/// let data = config.open()?;
/// assert_eq!(data.train.len(), 1437);
/// assert_eq!(data.test.map(|test| test.len()), Some(360));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum DataConfig {
    /// The [`digits`] that are part of the crate.
    Digits {},
    /// A folder with MNIST's four files, or files of its kind ([`idx::open_folder`]).
    Idx {
        /// The folder.
        folder: PathBuf,
    },
    /// IDX files by name ([`idx::open_pair`]).
    IdxFiles {
        /// Training images.
        train_images: PathBuf,
        /// Their labels.
        train_labels: PathBuf,
        /// Test images.
        test_images: Option<PathBuf>,
        /// Their labels.
        test_labels: Option<PathBuf>,
    },
    /// The folder of CIFAR-10's binary version ([`cifar::open`]).
    Cifar10 {
        /// The folder.
        folder: PathBuf,
    },
    /// Tables ([`csv::open`]); the fields are those of [`CsvSettings`].
    Csv {
        /// Training table.
        train: PathBuf,
        /// Test table.
        test: Option<PathBuf>,
        /// Target column, or several.
        target: OneOrMany<Column>,
        /// `classes` or `values`.
        target_kind: TargetKind,
        /// Columns that are no input.
        #[serde(default)]
        ignore: Vec<Column>,
        /// Column of the sample weights.
        sample_weight: Option<Column>,
        /// Whether there is a header; found out if not said.
        header: Option<bool>,
        /// What stands between fields; a comma if not said.
        delimiter: Option<char>,
    },
    /// A folder of images for each class ([`ImageFolder`]).
    ImageFolder {
        /// Folder of the training images.
        train: PathBuf,
        /// Folder of the test images.
        test: Option<PathBuf>,
        /// Height that images get.
        height: usize,
        /// Width that images get.
        width: usize,
        /// 1 or 3.
        #[serde(default)]
        channels: Channels,
    },
    /// Made-up data ([`Synthetic`]).
    Synthetic {
        /// Shape of a row.
        shape: Vec<usize>,
        /// Number of classes.
        classes: usize,
        /// Training rows.
        rows: usize,
        /// Test rows.
        #[serde(default)]
        test_rows: usize,
        /// Seed of the rule and the rows.
        #[serde(default)]
        seed: u64,
    },
}

/// A value, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "a column's name or index, or a list of them")]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T: Clone> OneOrMany<T> {
    fn to_vec(&self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value.clone()],
            Self::Many(values) => values.clone(),
        }
    }
}

/// Data to train on, and to test with.
#[derive(Clone)]
pub struct DataPair {
    /// Rows to train on.
    pub train: Arc<dyn Dataset>,
    /// Rows to test with, of the same shapes.
    pub test: Option<Arc<dyn Dataset>>,
    /// Names of the classes by label, where they are known.
    pub classes: Option<Vec<String>>,
}

impl DataPair {
    fn new<D: Dataset + 'static>((train, test): (D, Option<D>), classes: Option<Vec<String>>) -> Result<Self> {
        if let Some(test) = &test {
            same_shapes(&train, test)?;
        }
        Ok(Self { train: Arc::new(train), test: test.map(|test| Arc::new(test) as Arc<dyn Dataset>), classes })
    }
}

/// Rows without targets, for a model to predict from.
#[derive(Clone)]
pub struct Inputs {
    /// The rows.
    pub dataset: Arc<dyn Dataset>,
    /// Names of the classes by label, where the training data has them.
    pub classes: Option<Vec<String>>,
    /// Name of each row, where rows have one: the file of an image, as [`ImageFiles::names`] gives it.
    pub names: Option<Vec<String>>,
}

impl Inputs {
    fn new<D: Dataset + 'static>(dataset: D, classes: Option<Vec<String>>, names: Option<Vec<String>>) -> Self {
        Self { dataset: Arc::new(dataset), classes, names }
    }
}

fn same_shapes(train: &dyn Dataset, test: &dyn Dataset) -> Result<()> {
    let shapes = |data: &dyn Dataset| (data.input_shapes(), data.target_shapes());
    if shapes(train) == shapes(test) {
        return Ok(());
    }
    let ((inputs, targets), (test_inputs, test_targets)) = (shapes(train), shapes(test));
    Err(Error::data(
        "the test data",
        format!("needs inputs {inputs:?} and targets {targets:?}, but has {test_inputs:?} and {test_targets:?}"),
        "the test data must have the shapes of the training data",
    ))
}

impl DataConfig {
    /// Reads or lists the data. Paths that are not absolute start at the current folder.
    ///
    /// # Errors
    ///
    /// When a file is missing or damaged, or the test data has other shapes than the training data.
    pub fn open(&self) -> Result<DataPair> {
        match self {
            Self::Digits {} => {
                let names = (0..digits::CLASSES).map(|digit| digit.to_string()).collect();
                DataPair::new((digits::train()?, Some(digits::test()?)), Some(names))
            }
            Self::Idx { folder } => DataPair::new(idx::open_folder(folder)?, None),
            Self::IdxFiles { train_images, train_labels, test_images, test_labels } => {
                let train = idx::open_pair(train_images, train_labels)?;
                DataPair::new((train, test_files(test_images.as_ref(), test_labels.as_ref())?), None)
            }
            Self::Cifar10 { folder } => {
                DataPair::new(cifar::open(folder)?, Some(cifar::CLASSES.map(String::from).to_vec()))
            }
            Self::Csv { train, test, target, target_kind, ignore, sample_weight, header, delimiter } => {
                let weight = sample_weight.as_ref();
                let settings = csv_settings(target, *target_kind, ignore, weight, *header, *delimiter);
                let train = csv::open(train, &settings)?;
                let test = test.as_ref().map(|test| csv::open_like(test, &settings, &train)).transpose()?;
                DataPair::new((train.dataset, test.map(|test| test.dataset)), train.classes)
            }
            &Self::ImageFolder { ref train, ref test, height, width, channels } => {
                let settings = ImageSettings { height, width, channels };
                let train = ImageFolder::open(train, settings)?;
                let classes = train.classes().to_vec();
                let open_test = |test| ImageFolder::open_with_classes(test, settings, &classes);
                let test = test.as_deref().map(open_test).transpose()?;
                DataPair::new((train, test), Some(classes))
            }
            &Self::Synthetic { ref shape, classes, rows, test_rows, seed } => {
                let part = |rows| Synthetic::new(shape.clone(), classes, rows, seed);
                let test = (test_rows > 0).then(|| part(rows..rows.saturating_add(test_rows))).transpose()?;
                DataPair::new((part(0..rows)?, test), None)
            }
        }
    }

    /// Reads or lists data without targets, of the kind that the training data is.
    ///
    /// | type | `path` is | of the training data is read |
    /// | --- | --- | --- |
    /// | `csv` | a table with the input columns ([`csv::open_inputs`]) | the table: columns and classes |
    /// | `image_folder` | an image, or a folder of them ([`ImageFiles`]) | the names of the classes |
    /// | `idx`, `idx_files` | a file of images ([`idx::open_images`]) | nothing |
    ///
    /// Whether the rows have the shape that a model needs is found when it predicts.
    ///
    /// # Errors
    ///
    /// When the data is of another type, a file is missing or damaged, or an input column is not there.
    ///
    /// ```
    /// use manyhands::data::DataConfig;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let (train, new) = (folder.path().join("train.csv"), folder.path().join("new.csv"));
    /// std::fs::write(&train, "width,height,kind\n1,2,pear\n3,1,plum\n")?;
    /// std::fs::write(&new, "height,id,width\n5,a17,4\n")?;
    /// let settings = format!("type = 'csv'\ntrain = '{}'\ntarget = 'kind'\ntarget_kind = 'classes'", train.display());
    /// let config: DataConfig = toml::from_str(&settings)?;
    /// let inputs = config.open_inputs(&new)?;
    /// assert_eq!(inputs.dataset.len(), 1);
    /// assert_eq!(inputs.classes.unwrap(), ["pear", "plum"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_inputs(&self, path: &Path) -> Result<Inputs> {
        match self {
            Self::Csv { train, test: _, target, target_kind, ignore, sample_weight, header, delimiter } => {
                let weight = sample_weight.as_ref();
                let settings = csv_settings(target, *target_kind, ignore, weight, *header, *delimiter);
                let train = csv::open(train, &settings)?;
                Ok(Inputs::new(csv::open_inputs(path, &settings, &train)?, train.classes, None))
            }
            &Self::ImageFolder { ref train, test: _, height, width, channels } => {
                let classes = images::class_names(train)?;
                let images = ImageFiles::open(path, ImageSettings { height, width, channels })?;
                let names = images.names();
                Ok(Inputs::new(images, Some(classes), Some(names)))
            }
            Self::Idx { .. } | Self::IdxFiles { .. } => Ok(Inputs::new(idx::open_images(path)?, None, None)),
            Self::Digits {} => Err(takes_no_input(path, "digits")),
            Self::Cifar10 { .. } => Err(takes_no_input(path, "cifar10")),
            Self::Synthetic { .. } => Err(takes_no_input(path, "synthetic")),
        }
    }
}

fn csv_settings(
    target: &OneOrMany<Column>,
    target_kind: TargetKind,
    ignore: &[Column],
    sample_weight: Option<&Column>,
    header: Option<bool>,
    delimiter: Option<char>,
) -> CsvSettings {
    CsvSettings {
        target: target.to_vec(),
        target_kind,
        ignore: ignore.to_vec(),
        sample_weight: sample_weight.cloned(),
        header,
        delimiter: delimiter.unwrap_or(','),
    }
}

fn takes_no_input(path: &Path, kind: &str) -> Error {
    Error::data(
        format!("the input `{}`", path.display()),
        format!("needs data of type `csv`, `image_folder`, `idx` or `idx_files`, but the data is of type `{kind}`"),
        "name settings whose data is of such a type; for any other data `Predictor` takes a `Dataset`",
    )
}

fn test_files(images: Option<&PathBuf>, labels: Option<&PathBuf>) -> Result<Option<ByteImages>> {
    match (images, labels) {
        (Some(images), Some(labels)) => idx::open_pair(images, labels).map(Some),
        (None, None) => Ok(None),
        _ => Err(Error::setting(
            "`test_images` and `test_labels`",
            "are needed together, but only one is there",
            "name both files, or neither",
        )),
    }
}
