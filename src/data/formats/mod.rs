//! The choice of data in a settings file.
//!
//! A type of data is a file here with its settings and their [`DataFormat`], and a row in [`DataConfig`]; if a model file can name it, also
//! one in `OF_SCHEMA`.

mod arrays;
mod folder;
mod made_up;
mod pictures;
mod table;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Aside;
use super::pair::DataPair;
use super::{Dataset, source};
use crate::schema::Schema;
use crate::{Error, Result, shown};

pub use arrays::{NpyConfig, NpzConfig, SafetensorsConfig};
pub use folder::FolderConfig;
pub use made_up::{DigitsConfig, SyntheticConfig};
pub use pictures::{CifarConfig, IdxConfig, IdxFilesConfig};
pub use table::TableConfig;
pub use text::TextConfig;

/// A choice of data; the table `[data]` of a settings file.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum DataConfig {
    /// Handwritten digits that are part of the program: 8 × 8 pixels, 10 classes.
    Digits(DigitsConfig),
    /// A folder with MNIST's four files, or files of its kind.
    Idx(IdxConfig),
    /// IDX files by name.
    IdxFiles(IdxFilesConfig),
    /// The folder of CIFAR-10's binary version.
    Cifar10(CifarConfig),
    /// Tables.
    Csv(TableConfig),
    /// A folder of images for each class.
    ImageFolder(FolderConfig),
    /// Arrays of NumPy, a file each.
    Npy(NpyConfig),
    /// Arrays of NumPy in one file, such as Keras' `mnist.npz`.
    Npz(NpzConfig),
    /// Tensors in one file, such as PyTorch's.
    Safetensors(SafetensorsConfig),
    /// Texts, whose next token is predicted at each position.
    Text(TextConfig),
    /// Made-up data.
    Synthetic(SyntheticConfig),
}

/// Reads data of a type, by its settings.
trait DataFormat {
    /// Reads or lists the data. What is fitted to the rows, as the means of columns, is fitted to those that are not set aside.
    /// With the schema of the data that a model was trained on they are read as those were.
    fn open(&self, trained: Option<&Schema>, aside: Option<Aside>) -> Result<DataPair>;

    /// Reads or lists data without targets: see [`DataConfig::open_inputs`]. `None` if there are none of this type.
    fn open_inputs(&self, _path: &Path, _trained: Option<&Schema>) -> Result<Option<Inputs>> {
        Ok(None)
    }

    /// The files and folders that are read.
    fn paths(&mut self) -> Vec<&mut PathBuf>;

    /// See [`DataConfig::for_embeddings`].
    fn embed(&mut self, _names: &[String]) {}

    /// See [`DataConfig::in_order`].
    fn order(&mut self, _inputs: &[&str], _outputs: &[&str]) -> Result<()> {
        Ok(())
    }
}

/// Settings for data at a path, if those that a model was trained on are of a type.
type OfSchema = fn(&Schema, &Path) -> Result<Option<DataConfig>>;

const OF_SCHEMA: &[OfSchema] =
    &[made_up::of_schema, pictures::of_schema, arrays::of_schema, folder::of_schema, text::of_schema, table::of_schema];

/// Rows without targets, for a model to predict from.
#[derive(Clone)]
pub struct Inputs {
    /// The rows.
    pub dataset: Arc<dyn Dataset>,
    /// Meaning of the training data's values, such as names of classes.
    pub trained: Schema,
    /// Name of each row, where rows have one: the file of an image, as [`ImageFiles::names`](super::ImageFiles::names) gives it.
    pub names: Option<Vec<String>>,
}

/// The settings of a type behind a [`DataConfig`], borrowed as it is.
macro_rules! format_of {
    ($config:expr) => {
        match $config {
            DataConfig::Digits(format) => format,
            DataConfig::Idx(format) => format,
            DataConfig::IdxFiles(format) => format,
            DataConfig::Cifar10(format) => format,
            DataConfig::Csv(format) => format,
            DataConfig::ImageFolder(format) => format,
            DataConfig::Npy(format) => format,
            DataConfig::Npz(format) => format,
            DataConfig::Safetensors(format) => format,
            DataConfig::Text(format) => format,
            DataConfig::Synthetic(format) => format,
        }
    };
}

impl DataConfig {
    fn format(&self) -> &dyn DataFormat {
        format_of!(self)
    }

    fn format_mut(&mut self) -> &mut dyn DataFormat {
        format_of!(self)
    }

    /// Reads or lists the data. Paths that are not absolute start at the current folder.
    ///
    /// # Errors
    ///
    /// When a file is missing or damaged, or the test data has other shapes than the training data.
    pub fn open(&self) -> Result<DataPair> {
        self.open_aside(None)
    }

    /// Reads or lists data of which [`split`](super::split) then sets a part aside: what is fitted to the rows, as the means
    /// of columns, is fitted to the others.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_aside(&self, aside: Option<Aside>) -> Result<DataPair> {
        self.format().open(None, aside)
    }

    /// Reads or lists the data for a model that was trained on data of this schema: tables with its columns, in its
    /// order, and labels by its classes' names.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); also when a column is not there, or a class is not among the schema's.
    pub fn open_like(&self, trained: &Schema) -> Result<DataPair> {
        self.format().open(Some(trained), None)
    }

    /// Settings for data at `path`, of the kind that a model was trained on. A table, or a folder of images, is then the
    /// training data.
    ///
    /// # Errors
    ///
    /// When the schema does not name the kind.
    pub fn of_schema(trained: &Schema, path: &Path) -> Result<Self> {
        for of_schema in OF_SCHEMA {
            if let Some(config) = of_schema(trained, path)? {
                return Ok(config);
            }
        }
        Err(Error::data(
            format!("`{}`", shown(path)),
            "needs data of a kind that the model file names, but it names none",
            "say in a settings file what the data are: `--config run.toml`",
        ))
    }

    /// Reads or lists data without targets, of the kind that the training data is.
    ///
    /// | type | `path` is | read from the training data without `trained` |
    /// | --- | --- | --- |
    /// | `csv` | a table with the input columns ([`csv::open_inputs`](super::csv::open_inputs)) | the table: columns and classes |
    /// | `image_folder` | an image, or a folder of them ([`ImageFiles`](super::ImageFiles)) | the names of the classes |
    /// | `text` | a text file, or a folder of them | the text: its vocabulary |
    /// | `idx`, `idx_files` | a file of images ([`idx::open_images`](super::idx::open_images)) | nothing |
    /// | `npy`, `npz`, `safetensors` | an `.npy`, or `x`, `x_test` or the only array of an `.npz` or `.safetensors` | nothing |
    ///
    /// `trained` is the schema of the model's training data, if its file keeps it. Whether the rows have the shape that
    /// a model needs is found when it predicts.
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
    /// let inputs = config.open_inputs(&new, None)?;
    /// assert_eq!(inputs.dataset.len(), 1);
    /// assert_eq!(inputs.trained.classes(0), ["pear", "plum"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Inputs> {
        let inputs = self.format().open_inputs(path, trained)?;
        inputs.ok_or_else(|| takes_no_input(path, &self.type_name()))
    }

    /// The `type` of a settings file.
    fn type_name(&self) -> String {
        let written = serde_json::to_value(self).unwrap_or_default();
        written["type"].as_str().unwrap_or_default().to_owned()
    }

    /// The files and folders that are read. A folder includes all its files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.clone().format_mut().paths().into_iter().map(|path| path.clone()).collect()
    }

    /// Makes relative paths start at a folder.
    #[must_use]
    pub fn rooted_at(mut self, folder: &Path) -> Self {
        self.format_mut().paths().into_iter().for_each(|path| *path = folder.join(&*path));
        self
    }

    /// Keeps columns of whole numbers as they are in the inputs of these names, which an `Embedding` reads.
    #[must_use]
    pub fn for_embeddings(mut self, names: &[String]) -> Self {
        self.format_mut().embed(names);
        self
    }

    /// Brings inputs and outputs into a model's order.
    ///
    /// # Errors
    ///
    /// When the data name an input or an output that the model does not have.
    pub fn in_order(mut self, inputs: &[&str], outputs: &[&str]) -> Result<Self> {
        self.format_mut().order(inputs, outputs)?;
        Ok(self)
    }
}

/// Refuses tables and texts that are no regular files, before they are read.
fn check_regular(format: &(impl DataFormat + Clone)) -> Result<()> {
    format.clone().paths().into_iter().try_for_each(|file| source::check_regular(file))
}

/// Refuses data without targets of a type that has none.
fn takes_no_input(path: &Path, kind: &str) -> Error {
    Error::data(
        format!("the input `{}`", shown(path)),
        format!(
            "needs data of type `csv`, `text`, `image_folder`, `idx`, `idx_files`, `npy`, `npz` or `safetensors`, but the data \
             is of type `{kind}`"
        ),
        "name settings whose data is of such a type; for any other data `Predictor` takes a `Dataset`",
    )
}

/// Two settings that are needed together.
fn both<'a>(
    first: Option<&'a Path>,
    second: Option<&'a Path>,
    names: [&str; 2],
) -> Result<Option<(&'a Path, &'a Path)>> {
    match (first, second) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        _ => Err(Error::setting(
            format!("`{}` and `{}`", names[0], names[1]),
            "are needed together, but only one is given",
            "name both files, or neither",
        )),
    }
}
