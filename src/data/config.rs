//! The choice of data in a settings file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::csv::{
    self, Aside, Column, ColumnKind, CsvSettings, InputColumns, MAX_CATEGORIES, NumberScale, OneOrMany, OutputColumns,
    TargetKind,
};
use super::images::{self, ImageFiles, ImageFolder, ImageSettings, Unreadable};
use super::pair::DataPair;
use super::text::{Texts, Windows};
use super::{ByteImages, Channels, Dataset, LabelMode, Synthetic, cifar, digits, idx, numpy, source};
use crate::schema::{Format, Missing, Schema, Text, few};
use crate::vocabulary::{TokenSettings, Vocabulary};
use crate::{Error, Result, shown};

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
    /// Tables ([`csv::open`]).
    Csv(TableConfig),
    /// A folder of images for each class ([`ImageFolder`]).
    ImageFolder(FolderConfig),
    /// Arrays of NumPy, a file each ([`numpy`](super::numpy)).
    Npy {
        /// Inputs to train on.
        x_train: PathBuf,
        /// Their targets.
        y_train: PathBuf,
        /// Inputs to test with.
        x_test: Option<PathBuf>,
        /// Their targets.
        y_test: Option<PathBuf>,
    },
    /// Arrays of NumPy in one file, such as Keras' `mnist.npz` ([`numpy`](super::numpy)).
    Npz {
        /// The file.
        file: PathBuf,
        /// Name of the inputs to train on; `x_train` or `x` if not given.
        x_train: Option<String>,
        /// Name of their targets; `y_train` or `y` if not given.
        y_train: Option<String>,
        /// Name of the inputs to test with; `x_test`, if there is one, if not given.
        x_test: Option<String>,
        /// Name of their targets; `y_test`, if there is one, if not given.
        y_test: Option<String>,
    },
    /// Texts, whose next token is predicted at each position ([`Texts`]).
    Text(TextConfig),
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

/// Tables; the fields are those of [`CsvSettings`].
///
/// One input and one output take `target` and `target_kind`; all other columns are the input. Several are named as the
/// model's inputs and outputs are:
///
/// ```toml
/// type = "csv"
/// train = "houses.csv"
/// inputs = [
///   { name = "place", columns = ["north", "east"] },
///   { name = "house", columns = ["area", "rooms"] },
/// ]
/// outputs = [
///   { name = "price", target = "price", target_kind = "values" },
///   { name = "kind", target = "kind", target_kind = "classes" },
/// ]
/// ```
///
/// Strings, missing fields and dates need no setting: see [`csv`](super::csv).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TableConfig {
    /// Training table.
    pub train: PathBuf,
    /// Test table.
    pub test: Option<PathBuf>,
    /// Target column, or several, of the one output.
    pub target: Option<OneOrMany<Column>>,
    /// `classes` or `values`.
    pub target_kind: Option<TargetKind>,
    /// Columns of each input; by default all otherwise unused columns are the one input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputColumns>,
    /// Target columns of each output, in place of `target`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputColumns>,
    /// Columns that are no input.
    #[serde(default)]
    pub ignore: Vec<Column>,
    /// Column of the sample weights.
    pub sample_weight: Option<Column>,
    /// Whether there is a header; detected by default.
    pub header: Option<bool>,
    /// Character between fields; detected by default.
    pub delimiter: Option<char>,
    /// Decimal sign, `.` or `,`; detected by default.
    pub decimal: Option<char>,
    /// Kinds of input columns whose own is not meant: `{ class = "category", day = "%d/%m/%Y" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<String, ColumnKind>,
    /// Scale of the columns of numbers.
    #[serde(default)]
    pub numbers: NumberScale,
    /// Treatment of missing fields.
    #[serde(default)]
    pub missing: Missing,
    /// Fields that are missing ones; by default the empty field, `NA`, `NaN`, `null`, `?` and their like.
    pub missing_values: Option<Vec<String>>,
    /// Most categories of a column: rarer ones count as none of them.
    #[serde(default = "max_categories")]
    pub max_categories: usize,
    /// Places of the inputs that an `Embedding` reads: [`DataConfig::for_embeddings`].
    #[serde(skip)]
    embedded: Vec<usize>,
}

fn max_categories() -> usize {
    MAX_CATEGORIES
}

impl TableConfig {
    fn settings(&self) -> Result<CsvSettings> {
        let outputs = match (&self.target, self.target_kind, &self.outputs[..]) {
            (Some(target), Some(target_kind), []) => {
                vec![OutputColumns { name: None, target: target.clone(), target_kind }]
            }
            (None, None, [_, ..]) => self.outputs.clone(),
            _ => {
                return Err(Error::setting(
                    "`[data]`",
                    "needs either `target` and `target_kind`, or `outputs`",
                    "one output: `target = \"species\"` and `target_kind = \"classes\"`; several: `[[data.outputs]]` with \
                     `name`, `target` and `target_kind`",
                ));
            }
        };
        Ok(CsvSettings {
            inputs: self.inputs.clone(),
            outputs,
            ignore: self.ignore.clone(),
            sample_weight: self.sample_weight.clone(),
            header: self.header,
            delimiter: self.delimiter,
            decimal: self.decimal,
            kinds: self.kinds.clone(),
            numbers: self.numbers,
            missing: self.missing,
            missing_values: self.missing_values.clone(),
            max_categories: self.max_categories,
            embedded: self.embedded.clone(),
        })
    }

    /// Settings of a table that was read before.
    fn of_settings(train: PathBuf, settings: CsvSettings) -> Self {
        let CsvSettings { inputs, outputs, ignore, sample_weight, header, delimiter, decimal, .. } = settings;
        let CsvSettings { kinds, numbers, missing, missing_values, max_categories, .. } = settings;
        Self {
            train,
            test: None,
            target: None,
            target_kind: None,
            inputs,
            outputs,
            ignore,
            sample_weight,
            header,
            delimiter,
            decimal,
            kinds,
            numbers,
            missing,
            missing_values,
            max_categories,
            embedded: Vec::new(),
        }
    }
}

/// Texts for a language model: a row is a window of tokens, its target the tokens that follow each of them.
///
/// ```toml
/// type = "text"
/// train = "books"                    # a text file, or a folder of `.txt` files
/// sequence_length = 128
/// tokens = { split = "character" }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    /// Training text: a file, or a folder whose `.txt` files are read in the order of their names.
    pub train: PathBuf,
    /// Test text.
    pub test: Option<PathBuf>,
    /// Tokens of a row.
    pub sequence_length: usize,
    /// Tokens from the start of a row to that of the next; by default there is no gap and no overlap.
    pub sequence_stride: Option<usize>,
    /// Settings of the tokens that the text is split into.
    #[serde(default)]
    pub tokens: TokenSettings,
}

impl TextConfig {
    fn windows(&self) -> Result<Windows> {
        Windows::new(self.sequence_length)?.stride(self.sequence_stride.unwrap_or(self.sequence_length))
    }

    /// Reads the texts, with the vocabulary of a schema, or else with that of the training text.
    fn open(&self, trained: Option<&Schema>) -> Result<DataPair> {
        let train = Texts::read(&self.train)?;
        let texts = || train.iter().map(String::as_str);
        let known = trained.and_then(|schema| schema.inputs.first()?.text.as_ref());
        let vocabulary = known.map_or_else(|| Vocabulary::adapt(self.tokens, texts()), |text| text.vocabulary.clone());
        let windows = self.windows()?;
        let open = |texts: Vec<String>, path: &Path| {
            Texts::new(vocabulary.clone(), texts, windows)
                .map_err(|error| Error::data(format!("`{}`", shown(path)), error.problem(), error.help()))
        };
        let test = self.test.as_deref().map(|test| open(Texts::read(test)?, test)).transpose()?;
        DataPair::of((open(train, &self.train)?, test))
    }
}

/// Folders of images; the fields are those of [`ImageSettings`].
///
/// ```toml
/// type = "image_folder"
/// train = "flowers"                  # flowers/rose/1.jpg, flowers/tulip/1.jpg, …
/// height = 128
/// width = 128
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FolderConfig {
    /// Folder of the training images.
    pub train: PathBuf,
    /// Folder of the test images.
    pub test: Option<PathBuf>,
    /// Height that images get.
    pub height: usize,
    /// Width that images get.
    pub width: usize,
    /// Number of channels: 1 or 3.
    #[serde(default)]
    pub channels: Channels,
    /// Targets: `int`, or `categorical` for `CategoricalCrossentropy` and `MixUp`.
    #[serde(default)]
    pub label_mode: LabelMode,
    /// Treatment of unreadable images: `error` (the default) or `skip` ([`Unreadable`]).
    #[serde(default)]
    pub unreadable: Unreadable,
}

impl FolderConfig {
    fn settings(&self) -> ImageSettings {
        let &Self { height, width, channels, label_mode, unreadable, .. } = self;
        ImageSettings { height, width, channels, label_mode, unreadable }
    }

    /// Lists the images, with these classes, or else with those of the training images.
    fn open(&self, classes: &[String]) -> Result<DataPair> {
        let with = |path: &Path, classes: &[String]| ImageFolder::open_with_classes(path, self.settings(), classes);
        let train = if classes.is_empty() {
            ImageFolder::open(&self.train, self.settings())
        } else {
            with(&self.train, classes)
        }?;
        let test = self.test.as_deref().map(|test| with(test, train.classes())).transpose()?;
        DataPair::of((train, test))
    }
}

/// Rows without targets, for a model to predict from.
#[derive(Clone)]
pub struct Inputs {
    /// The rows.
    pub dataset: Arc<dyn Dataset>,
    /// Meaning of the training data's values, such as names of classes.
    pub trained: Schema,
    /// Name of each row, where rows have one: the file of an image, as [`ImageFiles::names`] gives it.
    pub names: Option<Vec<String>>,
}

impl DataConfig {
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
        if let Self::Csv(_) | Self::Text(_) = self {
            self.files().iter().try_for_each(|file| source::check_regular(file))?;
        }
        match self {
            Self::Digits {} => DataPair::of((digits::train()?, Some(digits::test()?))),
            Self::Idx { folder } => DataPair::of(idx::open_folder(folder)?),
            Self::IdxFiles { train_images, train_labels, test_images, test_labels } => {
                let train = idx::open_pair(train_images, train_labels)?;
                DataPair::of((train, test_files(test_images.as_ref(), test_labels.as_ref())?))
            }
            Self::Cifar10 { folder } => DataPair::of(cifar::open(folder)?),
            Self::Text(config) => config.open(None),
            Self::Npy { x_train, y_train, x_test, y_test } => {
                let test = both(x_test.as_deref(), y_test.as_deref(), ["x_test", "y_test"])?;
                let test = test.map(|(x, y)| numpy::open_pair(x, y)).transpose()?;
                DataPair::new(numpy::open_pair(x_train, y_train)?, test)
            }
            Self::Npz { file, x_train, y_train, x_test, y_test } => {
                let names = [x_train, y_train, x_test, y_test].map(Option::as_deref);
                numpy::open_npz(file, names)
            }
            Self::Csv(table) => {
                let settings = table.settings()?;
                let train = csv::open_aside(&table.train, &settings, aside)?.dataset;
                let schema = train.schema();
                let open_test = |test| Ok(csv::open_like(test, &settings, &schema)?.dataset);
                let test = table.test.as_deref().map(open_test).transpose()?;
                DataPair::of((train, test))
            }
            Self::ImageFolder(folder) => folder.open(&[]),
            &Self::Synthetic { ref shape, classes, rows, test_rows, seed } => {
                let part = |rows| Synthetic::new(shape.clone(), classes, rows, seed);
                let test = (test_rows > 0).then(|| part(rows..rows.saturating_add(test_rows))).transpose()?;
                DataPair::of((part(0..rows)?, test))
            }
        }
    }

    /// Reads or lists the data for a model that was trained on data of this schema: tables with its columns, in its
    /// order, and labels by its classes' names.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); also when a column is not there, or a class is not among the schema's.
    pub fn open_like(&self, trained: &Schema) -> Result<DataPair> {
        match self {
            Self::Csv(table) if matches!(trained.format, Format::Csv { .. }) => {
                let settings = table.settings()?;
                let open = |path: &Path| Ok(csv::open_like(path, &settings, trained)?.dataset);
                DataPair::of((open(&table.train)?, table.test.as_deref().map(open).transpose()?))
            }
            Self::Text(config) => config.open(Some(trained)),
            Self::ImageFolder(folder) => folder.open(trained.classes(0)),
            _ => self.open(),
        }
    }

    /// Settings for data at `path`, of the kind that a model was trained on. A table, or a folder of images, is then the
    /// training data.
    ///
    /// # Errors
    ///
    /// When the schema does not name the kind.
    pub fn of_schema(trained: &Schema, path: &Path) -> Result<Self> {
        let folder = path.to_path_buf();
        match trained.format {
            Format::Digits => Ok(Self::Digits {}),
            Format::Idx => Ok(Self::Idx { folder }),
            Format::Cifar10 => Ok(Self::Cifar10 { folder }),
            Format::Numpy => Ok(Self::Npz { file: folder, x_train: None, y_train: None, x_test: None, y_test: None }),
            Format::ImageFolder { height, width, channels, label_mode } => {
                let channels = Channels::try_from(channels).map_err(|problem| {
                    Error::data("the model's images", problem, "the model file is damaged, or of a newer version")
                })?;
                let (test, unreadable) = (None, Unreadable::Error);
                Ok(Self::ImageFolder(FolderConfig {
                    train: folder,
                    test,
                    height,
                    width,
                    channels,
                    label_mode,
                    unreadable,
                }))
            }
            Format::Text { sequence_stride } => {
                let text = text_of(trained)?;
                Ok(Self::Text(TextConfig {
                    train: folder,
                    test: None,
                    sequence_length: text.output_sequence_length,
                    sequence_stride: Some(sequence_stride),
                    tokens: text.vocabulary.settings(),
                }))
            }
            Format::Csv { .. } | Format::Other => match CsvSettings::of_schema(trained) {
                Some(settings) => Ok(Self::Csv(TableConfig::of_settings(folder, settings))),
                None => Err(Error::data(
                    format!("`{}`", shown(path)),
                    "needs data of a kind that the model file names, but it names none",
                    "say in a settings file what the data are: `--config run.toml`",
                )),
            },
        }
    }

    /// Reads or lists data without targets, of the kind that the training data is.
    ///
    /// | type | `path` is | read from the training data without `trained` |
    /// | --- | --- | --- |
    /// | `csv` | a table with the input columns ([`csv::open_inputs`]) | the table: columns and classes |
    /// | `image_folder` | an image, or a folder of them ([`ImageFiles`]) | the names of the classes |
    /// | `text` | a text file, or a folder of them | the text: its vocabulary |
    /// | `idx`, `idx_files` | a file of images ([`idx::open_images`]) | nothing |
    /// | `npy`, `npz` | an array, or `x`, `x_test` or the only array of an `.npz` | nothing |
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
        match self {
            Self::Csv(table) => {
                let settings = table.settings()?;
                let trained = match trained.filter(|trained| matches!(trained.format, Format::Csv { .. })) {
                    Some(trained) => trained.clone(),
                    None => csv::open(&table.train, &settings)?.dataset.schema(),
                };
                let dataset = Arc::new(csv::open_inputs(path, &settings, &trained)?);
                Ok(Inputs { dataset, trained, names: None })
            }
            Self::ImageFolder(folder) => {
                let settings = folder.settings();
                let images = match folder.unreadable {
                    // A row for each file, so that an unreadable file does not stop the others.
                    Unreadable::Error => ImageFiles::open_all(path, settings)?,
                    Unreadable::Skip => ImageFiles::open(path, settings)?,
                };
                let trained = match trained {
                    Some(trained) => trained.clone(),
                    None => Schema::with_classes(images.schema().format, images::class_names(&folder.train)?),
                };
                let names = Some(images.names());
                Ok(Inputs { dataset: Arc::new(images), trained, names })
            }
            Self::Idx { .. } | Self::IdxFiles { .. } => {
                let trained = trained.cloned().unwrap_or_default();
                Ok(Inputs { dataset: Arc::new(idx::open_images(path)?), trained, names: None })
            }
            Self::Npy { .. } | Self::Npz { .. } => {
                let trained = trained.cloned().unwrap_or_default();
                Ok(Inputs { dataset: numpy::open_inputs(path)?, trained, names: None })
            }
            Self::Digits {} => Err(takes_no_input(path, "digits")),
            Self::Cifar10 { .. } => Err(takes_no_input(path, "cifar10")),
            Self::Text(config) => {
                let trained = match trained.filter(|trained| matches!(trained.format, Format::Text { .. })) {
                    Some(trained) => trained.clone(),
                    None => config.open(None)?.train.schema(),
                };
                let Text { output_sequence_length, vocabulary } = text_of(&trained)?.clone();
                let windows = Windows::new(output_sequence_length)?;
                let dataset = Arc::new(Texts::without_targets(vocabulary, Texts::read(path)?, windows)?);
                Ok(Inputs { dataset, trained, names: None })
            }
            Self::Synthetic { .. } => Err(takes_no_input(path, "synthetic")),
        }
    }

    /// The files and folders that are read. A folder includes all its files.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        self.clone().each_path(&mut |path| files.push(path.clone()));
        files
    }

    /// Makes relative paths start at a folder.
    #[must_use]
    pub fn rooted_at(mut self, folder: &Path) -> Self {
        self.each_path(&mut |path| *path = folder.join(&*path));
        self
    }

    /// Every path that the data are read from.
    fn each_path(&mut self, visit: &mut dyn FnMut(&mut PathBuf)) {
        match self {
            Self::Digits {} | Self::Synthetic { .. } => {}
            Self::Idx { folder } | Self::Cifar10 { folder } => visit(folder),
            Self::IdxFiles { train_images, train_labels, test_images, test_labels } => {
                [train_images, train_labels].into_iter().chain(test_images).chain(test_labels).for_each(visit);
            }
            Self::Npy { x_train, y_train, x_test, y_test } => {
                [x_train, y_train].into_iter().chain(x_test).chain(y_test).for_each(visit);
            }
            Self::Npz { file, .. } => visit(file),
            Self::Csv(TableConfig { train, test, .. })
            | Self::Text(TextConfig { train, test, .. })
            | Self::ImageFolder(FolderConfig { train, test, .. }) => {
                [train].into_iter().chain(test).for_each(visit);
            }
        }
    }

    /// Keeps columns of whole numbers as they are in the inputs of these names, which an `Embedding` reads.
    #[must_use]
    pub fn for_embeddings(mut self, names: &[String]) -> Self {
        if let Self::Csv(table) = &mut self {
            let is_embedded = |input: &InputColumns| names.contains(&input.name);
            table.embedded = match &table.inputs[..] {
                [] => names.first().map(|_| 0).into_iter().collect(),
                inputs => (0..inputs.len()).filter(|place| is_embedded(&inputs[*place])).collect(),
            };
        }
        self
    }

    /// Brings inputs and outputs into a model's order.
    ///
    /// # Errors
    ///
    /// When the data name an input or an output that the model does not have.
    pub fn in_order(mut self, inputs: &[&str], outputs: &[&str]) -> Result<Self> {
        let Self::Csv(table) = &mut self else { return Ok(self) };
        for (kind, names, of_model) in [
            ("input", table.inputs.iter().map(|input| Some(&input.name)).collect::<Vec<_>>(), inputs),
            ("output", table.outputs.iter().map(|output| output.name.as_ref()).collect(), outputs),
        ] {
            let is_known = |name: &String| of_model.contains(&name.as_str());
            if let Some(name) = names.into_iter().flatten().find(|name| !is_known(name)) {
                return Err(Error::setting(
                    format!("`[data]`, {kind} `{name}`,"),
                    format!("needs to be an {kind} of the model, but the model has {}", few(of_model)),
                    format!("name each {kind} as the model does"),
                ));
            }
        }
        let place = |names: &[&str], name: Option<&str>| names.iter().position(|known| Some(*known) == name);
        table.inputs.sort_by_key(|input| place(inputs, Some(&input.name)));
        table.outputs.sort_by_key(|output| place(outputs, output.name.as_deref()));
        Ok(self)
    }
}

/// The text that a model was trained on.
fn text_of(trained: &Schema) -> Result<&Text> {
    let text = trained.inputs.first().and_then(|field| field.text.as_ref());
    text.ok_or_else(|| Error::data("the model's text", "needs a vocabulary, but has none", "the model file is damaged"))
}

fn takes_no_input(path: &Path, kind: &str) -> Error {
    Error::data(
        format!("the input `{}`", shown(path)),
        format!(
            "needs data of type `csv`, `text`, `image_folder`, `idx`, `idx_files`, `npy` or `npz`, but the data is of type \
             `{kind}`"
        ),
        "name settings whose data is of such a type; for any other data `Predictor` takes a `Dataset`",
    )
}

fn test_files(images: Option<&PathBuf>, labels: Option<&PathBuf>) -> Result<Option<ByteImages>> {
    let test = both(images.map(PathBuf::as_path), labels.map(PathBuf::as_path), ["test_images", "test_labels"])?;
    test.map(|(images, labels)| idx::open_pair(images, labels)).transpose()
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
