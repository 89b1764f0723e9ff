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
use super::text::{Texts, Windows};
use super::{ByteImages, Channels, Dataset, Synthetic, cifar, digits, idx};
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
    ImageFolder {
        /// Folder of the training images.
        train: PathBuf,
        /// Folder of the test images.
        test: Option<PathBuf>,
        /// Height that images get.
        height: usize,
        /// Width that images get.
        width: usize,
        /// Number of channels: 1 or 3.
        #[serde(default)]
        channels: Channels,
        /// Treatment of unreadable images: `error` (the default) or `skip` ([`Unreadable`]).
        #[serde(default)]
        unreadable: Unreadable,
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
        DataPair::new((open(train, &self.train)?, test))
    }
}

/// Data to train on, and to test with.
#[derive(Clone)]
pub struct DataPair {
    /// Rows to train on.
    pub train: Arc<dyn Dataset>,
    /// Rows to test with, of the same shapes.
    pub test: Option<Arc<dyn Dataset>>,
}

impl DataPair {
    fn new<D: Dataset + 'static>((train, test): (D, Option<D>)) -> Result<Self> {
        if let Some(test) = &test {
            same_shapes(&train, test)?;
        }
        Ok(Self { train: Arc::new(train), test: test.map(|test| Arc::new(test) as Arc<dyn Dataset>) })
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
        self.open_aside(None)
    }

    /// Reads or lists data of which [`split`](super::split) then sets a part aside: what is fitted to the rows, as the means
    /// of columns, is fitted to the others.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_aside(&self, aside: Option<Aside>) -> Result<DataPair> {
        match self {
            Self::Digits {} => DataPair::new((digits::train()?, Some(digits::test()?))),
            Self::Idx { folder } => DataPair::new(idx::open_folder(folder)?),
            Self::IdxFiles { train_images, train_labels, test_images, test_labels } => {
                let train = idx::open_pair(train_images, train_labels)?;
                DataPair::new((train, test_files(test_images.as_ref(), test_labels.as_ref())?))
            }
            Self::Cifar10 { folder } => DataPair::new(cifar::open(folder)?),
            Self::Text(config) => config.open(None),
            Self::Csv(table) => {
                let settings = table.settings()?;
                let train = csv::open_aside(&table.train, &settings, aside)?.dataset;
                let schema = train.schema();
                let open_test = |test| Ok(csv::open_like(test, &settings, &schema)?.dataset);
                let test = table.test.as_deref().map(open_test).transpose()?;
                DataPair::new((train, test))
            }
            &Self::ImageFolder { ref train, ref test, height, width, channels, unreadable } => {
                let settings = ImageSettings { height, width, channels, unreadable };
                let train = ImageFolder::open(train, settings)?;
                let open_test = |test| ImageFolder::open_with_classes(test, settings, train.classes());
                let test = test.as_deref().map(open_test).transpose()?;
                DataPair::new((train, test))
            }
            &Self::Synthetic { ref shape, classes, rows, test_rows, seed } => {
                let part = |rows| Synthetic::new(shape.clone(), classes, rows, seed);
                let test = (test_rows > 0).then(|| part(rows..rows.saturating_add(test_rows))).transpose()?;
                DataPair::new((part(0..rows)?, test))
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
        let classes = trained.classes(0);
        match self {
            Self::Csv(table) if matches!(trained.format, Format::Csv { .. }) => {
                let settings = table.settings()?;
                let open = |path: &Path| Ok(csv::open_like(path, &settings, trained)?.dataset);
                DataPair::new((open(&table.train)?, table.test.as_deref().map(open).transpose()?))
            }
            Self::Text(config) => config.open(Some(trained)),
            &Self::ImageFolder { ref train, ref test, height, width, channels, unreadable } if !classes.is_empty() => {
                let settings = ImageSettings { height, width, channels, unreadable };
                let open = |path: &Path| ImageFolder::open_with_classes(path, settings, classes);
                DataPair::new((open(train)?, test.as_deref().map(open).transpose()?))
            }
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
            Format::ImageFolder { height, width, channels } => {
                let channels = Channels::try_from(channels).map_err(|problem| {
                    Error::data("the model's images", problem, "the model file is damaged, or of a newer version")
                })?;
                Ok(Self::ImageFolder {
                    train: folder,
                    test: None,
                    height,
                    width,
                    channels,
                    unreadable: Unreadable::Error,
                })
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
            &Self::ImageFolder { ref train, test: _, height, width, channels, unreadable } => {
                let settings = ImageSettings { height, width, channels, unreadable };
                let images = match unreadable {
                    // A row for each file, so that an unreadable file does not stop the others.
                    Unreadable::Error => ImageFiles::open_all(path, settings)?,
                    Unreadable::Skip => ImageFiles::open(path, settings)?,
                };
                let trained = match trained {
                    Some(trained) => trained.clone(),
                    None => Schema::with_classes(images.schema().format, images::class_names(train)?),
                };
                let names = Some(images.names());
                Ok(Inputs { dataset: Arc::new(images), trained, names })
            }
            Self::Idx { .. } | Self::IdxFiles { .. } => {
                let trained = trained.cloned().unwrap_or_default();
                Ok(Inputs { dataset: Arc::new(idx::open_images(path)?), trained, names: None })
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
            Self::Csv(TableConfig { train, test, .. })
            | Self::Text(TextConfig { train, test, .. })
            | Self::ImageFolder { train, test, .. } => {
                [train].into_iter().chain(test).for_each(visit);
            }
        }
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
            "needs data of type `csv`, `text`, `image_folder`, `idx` or `idx_files`, but the data is of type `{kind}`"
        ),
        "name settings whose data is of such a type; for any other data `Predictor` takes a `Dataset`",
    )
}

fn test_files(images: Option<&PathBuf>, labels: Option<&PathBuf>) -> Result<Option<ByteImages>> {
    match (images, labels) {
        (Some(images), Some(labels)) => idx::open_pair(images, labels).map(Some),
        (None, None) => Ok(None),
        _ => Err(Error::setting(
            "`test_images` and `test_labels`",
            "are needed together, but only one is given",
            "name both files, or neither",
        )),
    }
}
