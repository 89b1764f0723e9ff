//! Meaning of a row's values: the names of columns and classes, and the settings of the reader.
//!
//! **Unstable**: for the packages of this repository. Names and behaviour change with any version.
//!
//! A data set knows its [`Schema`]; a model file keeps that of the data it was trained on.

use serde::{Deserialize, Serialize};

use crate::vocabulary::Vocabulary;
use crate::{shown, thousands};

/// Meaning of the inputs and targets of a row. Unknown parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Schema {
    /// Settings of the reader.
    pub format: Format,
    /// The inputs, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Field>,
    /// The targets, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Field>,
    /// The rows that were set aside, if these are what was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out: Option<HeldOut>,
    /// Pixels that the model expects, where it comes from another program. Models of this one expect them from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pixels: Option<Pixels>,
}

/// Pixels that a trained network expects of its images. Data have red, green and blue from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Pixels {
    /// From 0 to 1, as they are.
    #[serde(rename = "0..1")]
    Unit,
    /// From -1 to 1: Keras' `MobileNet`, `MobileNetV2`, `ResNetV2`, `Xception`, `Inception` and `NASNet`, whose mode is `tf`.
    #[serde(rename = "-1..1")]
    Centered,
    /// From 0 to 255: Keras' `EfficientNet`, `ConvNeXt`, `MobileNetV3` and `RegNet`, whose first layers divide them.
    #[serde(rename = "0..255")]
    Bytes,
    /// Less the mean of the channels of `ImageNet`, by their deviation: torchvision's networks and Keras' `DenseNet`.
    #[serde(rename = "torch")]
    Torch,
    /// Blue, green and red from 0 to 255, less their means in `ImageNet`: Keras' `VGG` and `ResNet`.
    #[serde(rename = "caffe")]
    Caffe,
}

impl std::fmt::Display for Pixels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unit => "0..1",
            Self::Centered => "-1..1",
            Self::Bytes => "0..255",
            Self::Torch => "torch",
            Self::Caffe => "caffe",
        })
    }
}

/// An input or a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Field {
    /// The model's input or output that it is meant for, where one is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The columns of its table, in the order of its elements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<TableColumn>,
    /// Names of the classes by label, where it holds labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Settings of the tokens that its elements are, where it is a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
}

/// An input of numbers of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// Tokens of a row.
    pub output_sequence_length: usize,
    /// The tokens by number.
    pub vocabulary: Vocabulary,
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableColumn {
    /// Its place, from 0.
    pub index: usize,
    /// Its name in the header, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Elements that its fields become, for an input. Without it they are finite numbers, taken unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// Contents of the training rows, by which later tables are judged. Files of older versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
}

/// Contents of a column in the training rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Number of the rows.
    pub rows: usize,
    /// Rows without a value.
    pub missing: usize,
    /// Rows whose category is so rare that it has no element.
    pub others: usize,
    /// The lowest and the highest number; of dates, in days since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// Mean of the numbers.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// Whether all are whole numbers.
    pub is_whole: bool,
}

/// Elements of an input that the fields of a column become. It is fitted to the training rows, and kept for all later ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Encoding {
    /// Elements of a field that is there.
    pub code: Code,
    /// Value of a missing field: a number, 0 or 1, the place of a category, or days since 1970. Without it, a missing
    /// field is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<f64>,
    /// Whether one element more is 1 where the field is missing, else 0.
    #[serde(default)]
    pub indicator: bool,
}

/// Elements of a field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Code {
    /// One element: `(x - offset) / scale`.
    Number {
        /// The number that becomes 0.
        offset: f64,
        /// Distance of the number that becomes 1.
        scale: f64,
    },
    /// One element: 1 for yes or true, 0 for no or false.
    Boolean,
    /// One element a category: 1 for that of the field, 0 for the others. A field of another category has zeros alone.
    Category {
        /// Names of the categories.
        categories: Vec<String>,
    },
    /// One element: the place of the category, from 1 on, 0 for any other one; an index for an `Embedding`.
    Index {
        /// Names of the categories.
        categories: Vec<String>,
    },
    /// The date in years as `(x - offset) / scale`, sine and cosine of the part of its year and of its week; where the
    /// format has hours, sine and cosine of the part of its day, too.
    Date {
        /// The form of the field, as of `strftime`.
        format: String,
        /// The date, in years, that becomes 0.
        offset: f64,
        /// Years that become 1.
        scale: f64,
    },
}

impl Encoding {
    /// A number that is taken unchanged, and must be there.
    pub const UNCHANGED: Self = Self { code: Code::Number { offset: 0.0, scale: 1.0 }, fill: None, indicator: false };

    /// Number of its elements.
    pub fn width(&self) -> usize {
        usize::from(self.indicator)
            + match &self.code {
                Code::Number { .. } | Code::Boolean | Code::Index { .. } => 1,
                Code::Category { categories } => categories.len(),
                Code::Date { format, .. } => 5 + 2 * usize::from(format.contains("%H")),
            }
    }
}

/// Treatment of missing fields of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// A missing input counts as the mean of its column, or as its most frequent value; an element more says that it is
    /// missing. Rows without a target are left out.
    #[default]
    Fill,
    /// A missing field is an error that names its line and column.
    Error,
}

/// Targets of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LabelMode {
    /// The index of the class: `[batch]`, for `SparseCategoricalCrossentropy`.
    #[default]
    Int,
    /// A number for each class, of which that of the row's own is 1 and the others 0: `[batch, classes]`, for
    /// `CategoricalCrossentropy`.
    Categorical,
}

/// Values of an input that was an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayRange {
    /// Bytes of images, which are read from 0 to 1.
    Bytes,
    /// Other numbers of three axes or more, from 0 to 1.
    Unit,
    /// Any numbers, which are read as they are.
    Any,
}

/// Settings of a reader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Format {
    /// The digits that are part of the crate.
    Digits,
    /// IDX files.
    Idx,
    /// CIFAR-10's binary files.
    Cifar10,
    /// Arrays of NumPy.
    Numpy {
        /// Values of each input. Files of older versions lack this.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        values: Vec<ArrayRange>,
    },
    /// A table.
    Csv {
        /// Columns of the training table.
        width: usize,
        /// Whether there is a header, if the settings say so, or its names are numbers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        header: Option<bool>,
        /// Character between the fields of the training table. Another table may have another one.
        delimiter: char,
        /// Decimal sign of the training table: a point or a comma. Another table may have the other one.
        #[serde(default = "point")]
        decimal: char,
        /// Fields that are missing ones, if the settings say so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing_values: Option<Vec<String>>,
        /// Treatment of rows without a target.
        #[serde(default)]
        missing: Missing,
        /// Column of the sample weights.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sample_weight: Option<TableColumn>,
    },
    /// Windows of texts.
    Text {
        /// Tokens from the start of a row to that of the next.
        sequence_stride: usize,
    },
    /// Files of images, all brought to one size.
    ImageFolder {
        /// Height in pixels.
        height: usize,
        /// Width in pixels.
        width: usize,
        /// 1 or 3.
        channels: u8,
        /// Targets. Files of older versions lack this.
        #[serde(default)]
        label_mode: LabelMode,
    },
    /// Arrays, or anything else that no file tells how to read.
    #[default]
    #[serde(other)]
    Other,
}

/// A format, as command and exporter see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatFacts {
    /// The data, in a message on what a model was trained on.
    pub description: String,
    /// The way from a row of the data to the inputs of a model, in words; empty where it is not known.
    pub encoding: String,
    /// Place of other data of this format.
    pub place: DataPlace,
    /// Whether the images are photographs, as a rule, which may be mirrored.
    pub has_photographs: bool,
}

/// Place of the data of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPlace {
    /// In the program: no path names them.
    Program,
    /// At a path, with training and test data.
    Pair,
    /// At a path, alone.
    Single,
    /// At no path that a model file could tell.
    Unknown,
}

fn point() -> char {
    '.'
}

/// One of several folds of the rows, of which each row is in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    /// Its number, from 1.
    pub number: usize,
    /// Number of folds.
    pub of: usize,
    /// Seed of the choice.
    pub seed: u64,
}

/// Rows that `data::split` or `data::fold` set aside.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// The part of the rows; 0 where a fold alone was set aside.
    pub fraction: f64,
    /// Seed of the choice.
    pub seed: u64,
    /// Rows before any were set aside.
    pub rows: usize,
    /// Whether each class gave the same part. Files of older versions lack this.
    #[serde(default)]
    pub stratified: bool,
    /// The fold that was set aside before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fold: Option<Fold>,
}

impl Schema {
    /// One input and one target whose labels have names.
    pub fn with_classes<S: Into<String>>(format: Format, classes: impl IntoIterator<Item = S>) -> Self {
        let classes = classes.into_iter().map(Into::into).collect();
        let targets = vec![Field { classes, ..Field::default() }];
        Self { format, inputs: vec![Field::default()], targets, ..Self::default() }
    }

    /// The format, as command and exporter see it.
    pub fn facts(&self) -> FormatFacts {
        let bytes = "channels last, each byte divided by 255";
        let columns = |fields: &[Field]| -> Vec<String> { fields.iter().flat_map(Field::column_names).collect() };
        let (place, description, encoding) = match &self.format {
            Format::Digits => (DataPlace::Program, "other data".into(), "an image of 8 x 8 pixels from 0 to 1".into()),
            Format::Idx => (DataPlace::Pair, "IDX files".into(), format!("an image, {bytes}")),
            Format::Cifar10 => (DataPlace::Pair, "CIFAR-10".into(), format!("an image, {bytes}")),
            Format::Numpy { .. } => {
                let encoding = "arrays as they are, but bytes of images divided by 255";
                (DataPlace::Single, "arrays in files".into(), encoding.into())
            }
            Format::Csv { .. } => {
                let (inputs, targets) = (columns(&self.inputs), columns(&self.targets));
                let description = format!("a table with the columns {} and the target {}", few(&inputs), few(&targets));
                let names: Vec<String> = self.inputs.iter().map(|input| input.column_names().join(", ")).collect();
                let encoding = format!("columns of a table, encoded as `manyhands.schema` says: {}", names.join("; "));
                (DataPlace::Single, description, encoding)
            }
            Format::Text { .. } => {
                let encoding = "numbers of tokens, as floats; `manyhands.schema` has the vocabulary";
                (DataPlace::Single, "text".into(), encoding.into())
            }
            Format::ImageFolder { height, width, channels, .. } => {
                let color = if *channels == 1 { "gray" } else { "red, green and blue" };
                let encoding = format!("an image scaled to {height} x {width} pixels, {color}, {bytes}");
                (DataPlace::Single, format!("a folder of images for each of {}", few(self.classes(0))), encoding)
            }
            Format::Other => (DataPlace::Unknown, "other data".into(), String::new()),
        };
        let has_photographs = matches!(self.format, Format::ImageFolder { .. });
        FormatFacts { description, encoding, place, has_photographs }
    }

    /// Names of the classes of a target, by label; empty where they are not known.
    pub fn classes(&self, target: usize) -> &[String] {
        self.targets.get(target).map_or(&[], |field| &field.classes)
    }
}

impl Field {
    /// Names of the columns; `column 3` where one has none.
    pub fn column_names(&self) -> Vec<String> {
        self.columns.iter().map(ToString::to_string).collect()
    }

    /// Names of the classes of an output of this many units, or of two if it is a single one that says yes or no. They are
    /// numbers where a target has no names, or others than so many.
    pub fn class_names(target: Option<&Self>, n_classes: usize) -> Vec<String> {
        let known = target.map_or(&[][..], |field| &field.classes);
        if known.is_empty() || known.len() > n_classes {
            return (0..n_classes).map(|class| class.to_string()).collect();
        }
        // A unit without a class has no number of its own, which could be the name of a class.
        let more = (known.len()..n_classes).map(|unit| format!("unit {unit}"));
        known.iter().cloned().chain(more).collect()
    }
}

impl std::fmt::Display for TableColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) if !name.is_empty() => f.write_str(name),
            _ => write!(f, "column {}", self.index),
        }
    }
}

/// Names in a message: a handful, and how many others there are. They are escaped as `shown` does.
///
/// ```
/// use manyhands::schema::few;
/// assert_eq!(few(&["a", "b\u{1b}"]), r"a, b\u{1b}");
/// let many: Vec<String> = (0..9_998).map(|class| class.to_string()).collect();
/// assert_eq!(few(&many), "0, 1, 2, 3, 4, 5, 6, 7 … and 9,990 others");
/// ```
pub fn few<S: AsRef<str>>(names: &[S]) -> String {
    const MOST: usize = 8;
    // One more takes no more room than to say that it is left out.
    let most = if names.len() == MOST + 1 { MOST + 1 } else { MOST };
    let text = names.iter().take(most).map(|name| shown(name.as_ref()).to_string()).collect::<Vec<_>>().join(", ");
    if names.len() > most { format!("{text} … and {} others", thousands(names.len() - most)) } else { text }
}
