//! Settings files: TOML with the tables `[data]`, `[model]`, `[loss]`, `[optimizer]`, `[schedule]`, `[training]`.

mod as_run;
#[cfg(test)]
mod described;
mod early_stopping;
mod mistaken;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use manyhands::adapters::MemoryLimits;
use manyhands::callbacks::EarlyStopping;
use manyhands::data::{self, Aside, Augmentation, DataConfig, DataPair, Dataset, LoaderSettings};
use manyhands::misread::{self, Misread};
use manyhands::model::{InputConfig, LayerConfig};
use manyhands::reading::{PathStep, ReadError, Tree};
use manyhands::{
    BatchStatistics, Compile, CpuFallback, Error, ErrorKind, Fit, GradientCompression, Loss, Metric, Model,
    ModelConfig, NonFinite, Optimizer, Placement, Precision, Reduction, Result, Schedule, Shape, SplitMode, Trainer,
};
use manyhands_engine::{files, names, shown::shown};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

pub use self::early_stopping::ModeSetting;

use self::early_stopping::EarlyStoppingTable;
use super::DataChoice;
pub use as_run::{SettingChange, as_run, with_value};

/// The default settings without a file; also the example to copy.
pub const DIGITS: &str = include_str!("digits.toml");

/// Help without a better hint.
const HELP: &str =
    "`manyhands train --print-config` shows a whole file, to copy from; `docs/settings.md` lists all settings";

/// Problem of a learning rate beside a schedule that has rates of its own.
pub const OTHER_RATES: &str = "needs a schedule that starts from the optimizer's rate, but `PiecewiseConstantDecay` has all rates in its `values`";
pub const OTHER_RATES_HELP: &str = "change its `values`, and leave out the rate";

/// A whole settings file.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SettingsFile {
    #[serde(deserialize_with = "names::read_type")]
    pub data: DataConfig,
    pub model: ModelSource,
    #[serde(default, deserialize_with = "names::read_optional_type")]
    loss: Option<Loss>,
    #[serde(default, deserialize_with = "names::read_optional_types")]
    losses: Option<Vec<Loss>>,
    #[serde(default = "adam", deserialize_with = "names::read_type")]
    pub optimizer: Optimizer,
    #[serde(default, deserialize_with = "names::read_type")]
    pub schedule: Schedule,
    #[serde(default)]
    pub training: TrainingTable,
    /// The file of the settings; empty for the digits.
    #[serde(skip)]
    file: String,
    /// Text of the file.
    #[serde(skip)]
    text: String,
    /// The data, if they were opened to see the shape of a row, and the seed.
    #[serde(skip)]
    opened: RefCell<Option<(u64, DataPair)>>,
}

/// Refuses layers whose settings can't be read, with their line.
fn check_layers(config: &ModelConfig, text: &str, file: &str) -> Result<()> {
    let Some((idx, misread)) = config.misread(&[]) else { return Ok(()) };
    let layer = &config.layers[idx];
    let label = layer.name.as_deref().or(layer.kind.as_deref()).unwrap_or("?");
    let key = misread.key().map_or(String::new(), |key| format!(", key `{}`", shown(key)));
    let what = format!("layer {idx} `{}`{key}", shown(label));
    let offset = misread::offset(text, &[&layer_path(idx), &misread.path[..]].concat()).unwrap_or(0);
    Err(misread::at(text, file, offset, &what, misread, HELP))
}

/// Path to a layer of the table `[model]`.
fn layer_path(idx: usize) -> [PathStep; 3] {
    ["model".into(), "layers".into(), idx.into()]
}

/// Refuses a learning rate that the schedule ignores.
fn check_rate(schedule: &Schedule, text: &str, file: &str) -> Result<()> {
    if schedule.starts_from_rate() {
        return Ok(());
    }
    let path = ["optimizer".into(), "learning_rate".into()];
    let Some(offset) = misread::offset(text, &path) else { return Ok(()) };
    let misread = Misread { path: path.into(), problem: OTHER_RATES.into(), help: Some(OTHER_RATES_HELP.into()) };
    Err(misread::at(text, file, offset, "key `learning_rate`", misread, HELP))
}

/// The place in the file's list of the layer that an error is about: ``layer 3 `norm1` (…)``.
fn layer_of(config: &ModelConfig, who: &str) -> Option<usize> {
    let (number, rest) = who.strip_prefix("layer ")?.split_once(' ')?;
    let name = rest.split('`').nth(1);
    let named = config.layers.iter().position(|layer| layer.name.is_some() && layer.name.as_deref() == name);
    // With shared layers, the model counts differently.
    let has_reuse = config.layers.iter().any(|layer| layer.reuse.is_some());
    named.or_else(|| number.parse().ok().filter(|_| !has_reuse))
}

fn adam() -> Optimizer {
    Optimizer::adam(1e-3)
}

/// The table `[training]`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TrainingTable {
    /// Epochs of the run, counted from its start.
    pub epochs: u64,
    /// Rows of a batch, over all adapters.
    pub batch_size: usize,
    /// Seed of initial weights, shuffling and dropout.
    pub seed: Option<u64>,
    /// Data on which each epoch is evaluated: `"test"`, `"none"`, or a part of the training rows, such as `0.1`: drawn
    /// by `seed`, the same part of each class.
    #[cfg_attr(test, schemars(extend("default" = "test")))]
    validation: Validation,
    /// Adapters to train on: `"all"`, `"0,1"`, `"nvidia,cpu"`. Default: all GPUs, or the CPU if there is none.
    pub adapters: Option<String>,
    /// Folder for all that the run gives: settings, log, checkpoints (best and last), and `report.html`.
    pub run: Option<PathBuf>,
    /// Most memory for the model on adapters: `0=6GB,cpu=2GB`, by position, name or kind. Positions count in the order of
    /// `adapters`, from 0. Where a batch takes more, an adapter gets fewer rows; rows that fit nowhere run in pieces, as with
    /// `micro_batches`.
    pub memory: Option<MemoryLimits>,
    /// Split of each batch: `learned` from speed, `even`, or proportions such as `3:1`.
    #[serde(deserialize_with = "split")]
    #[cfg_attr(test, schemars(with = "String", extend("default" = "learned")))]
    pub split: SplitMode,
    /// Global norm above which gradients are scaled down.
    clip_norm: Option<f32>,
    /// Weights of classes in training, by name or number: `{ rose = 2.0, tulip = 0.5 }`. Default: 1 each.
    class_weight: BTreeMap<String, f32>,
    /// Names of the layers that are trained; all others are frozen. Default: all.
    trainable: Option<Vec<String>>,
    /// Format of gradients on their way to the host, and between processes: `"none"`, or `"fp16"`, half the bytes.
    #[serde(deserialize_with = "names::read")]
    gradient_compression: GradientCompression,
    /// Rows over which batch normalization takes mean and variance: `"shard"`, each adapter's own, or `"batch"`, the
    /// whole batch: then every adapter waits twice a layer for the slowest. Not with `micro_batches`.
    #[serde(deserialize_with = "names::read")]
    batch_statistics: BatchStatistics,
    /// Numbers with which training computes: `"float32"`, or `"mixed_float16"`: products round both factors to 16-bit
    /// floats and add in 32 bits.
    #[serde(deserialize_with = "names::read")]
    precision: Precision,
    /// Whether a short last batch is left out.
    pub drop_remainder: bool,
    /// Parts in which each adapter computes its rows, for one update: more parts need less memory. Gradients are added
    /// on the adapter and sent once.
    pub micro_batches: u32,
    /// Adapters that compute the layers: `"replicas"`, `"auto"`, or a list of stages such as `[{ layers = ["..conv3"],
    /// adapters = [0] }, { layers = ["conv4.."], adapters = [1] }]`.
    pub placement: Placement,
    /// Random changes of the training images, in order.
    #[serde(deserialize_with = "names::read_types")]
    augment: Vec<Augmentation>,
    /// Whether rows are shuffled in each epoch.
    pub shuffle: bool,
    /// Threads that read data. Default: one for each core, at most 8.
    #[cfg_attr(test, schemars(skip_serializing_if = "described::is_of_machine"))]
    pub workers: usize,
    /// Batches that are read ahead.
    pub prefetch: usize,
    /// Metrics of the one output, or a list for each output. Default: those of the loss.
    metrics: Metrics,
    /// Weights of the losses of several outputs.
    loss_weights: Vec<f32>,
    /// Reduction of the rows' losses to one.
    #[serde(deserialize_with = "names::read")]
    reduction: Reduction,
    /// Batch size for which the learning rate was chosen: other batch sizes scale the rate in proportion.
    learning_rate_batch: Option<usize>,
    /// Treatment of a step whose gradient is not finite: `"stop"`, or `"skip"`, which continues with the next step.
    /// Such a step is never applied.
    #[serde(deserialize_with = "names::read")]
    non_finite: NonFinite,
    /// Ends training when a number no longer improves: `{ monitor = "val_loss", patience = 3 }`. The model then gets
    /// the best weights.
    early_stopping: Option<EarlyStoppingTable>,
    /// Whether the CPU takes over when every adapter is lost.
    cpu_fallback: bool,
    /// Seconds after which a process that does not answer counts as hung, where several train together.
    pub process_timeout: u64,
}

impl Default for TrainingTable {
    fn default() -> Self {
        Self {
            epochs: 10,
            batch_size: 32,
            seed: None,
            validation: Validation::Test,
            adapters: None,
            run: None,
            memory: None,
            split: SplitMode::default(),
            class_weight: BTreeMap::new(),
            clip_norm: None,
            trainable: None,
            gradient_compression: GradientCompression::None,
            batch_statistics: BatchStatistics::default(),
            precision: Precision::default(),
            drop_remainder: false,
            micro_batches: 1,
            placement: Placement::default(),
            augment: Vec::new(),
            shuffle: true,
            workers: LoaderSettings::default().workers,
            prefetch: LoaderSettings::default().prefetch,
            metrics: Metrics::Default,
            loss_weights: Vec::new(),
            reduction: Reduction::default(),
            learning_rate_batch: None,
            non_finite: NonFinite::default(),
            early_stopping: None,
            cpu_fallback: true,
            process_timeout: 600,
        }
    }
}

/// Rows for training, and rows for validation.
type TrainAndValidation = (Arc<dyn Dataset>, Option<Arc<dyn Dataset>>);

impl SettingsFile {
    /// The settings of a file, or of the digits.
    pub fn of(file: Option<&Path>) -> Result<Self> {
        match file {
            None => Self::parse(DIGITS, "the settings of the digits")
                .map(|settings| Self { file: String::new(), ..settings }),
            Some(path) => {
                let text = files::read_text(path);
                let settings = text.and_then(|text| Self::parse(&text, &path.display().to_string()));
                settings.map_err(|error| mistaken::explain(path, error))
            }
        }
    }

    /// Settings of a trained model's data and losses.
    pub fn of_choice(choice: &DataChoice) -> Result<Self> {
        let mut settings = Self::of(choice.config.as_deref())?;
        settings.start_paths_at(choice.data_folder.as_deref());
        Ok(settings)
    }

    /// Checks that a text is a whole settings file.
    pub fn check_text(text: &str) -> Result<()> {
        Self::parse(text, "the new settings").map(drop)
    }

    /// Reads the text of a file, by whose name errors call it.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        let mut settings: Self = misread::read(text, file, HELP)?;
        if let ModelSource::Layers(config) | ModelSource::Start { config, .. } = &settings.model {
            check_layers(config, text, file)?;
        }
        check_rate(&settings.schedule, text, file)?;
        settings.file = file.to_owned();
        settings.text = text.to_owned();
        settings.training.check(file)?;
        Ok(settings)
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether these settings come from no file.
    pub fn are_built_in(&self) -> bool {
        self.file.is_empty()
    }

    /// Makes relative paths of the data start at a folder.
    pub fn start_paths_at(&mut self, folder: Option<&Path>) {
        if let Some(folder) = folder {
            self.data = self.data.clone().rooted_at(folder);
        }
    }

    /// The files that are read: the data's, and the model's.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = self.data.files();
        if let ModelSource::File(path) | ModelSource::Start { start: path, .. } = &self.model {
            files.push(path.clone());
        }
        files
    }

    /// Whether rows for validation are drawn from the training rows.
    pub fn draws_validation(&self) -> bool {
        matches!(self.training.validation, Validation::Fraction(_))
    }

    /// Whether the model is new, and not read from a file.
    pub fn is_model_new(&self) -> bool {
        matches!(self.model, ModelSource::Layers(_))
    }

    /// The model: new, or read from a file, with its layers frozen by the settings.
    pub fn build_model(&self, seed: u64) -> Result<Model> {
        let mut model = self.read_model(seed)?;
        if let Some(trainable) = &self.training.trainable {
            let frozen = model.freeze_all_but(trainable.iter().map(String::as_str));
            frozen.map_err(|error| {
                let who = format!("`{}`, key `trainable`, {}", shown(&self.file), error.who());
                Error::setting(who, error.problem(), error.help())
            })?;
        }
        Ok(model)
    }

    fn read_model(&self, seed: u64) -> Result<Model> {
        match &self.model {
            ModelSource::File(path) => Model::load(path),
            ModelSource::Start { start, until, config } => {
                let model = Model::load(start)?.with_head(until.as_deref(), &config.layers, &config.outputs, seed);
                model.map_err(|error| {
                    let who = format!("`{}`, table `model`, {}", shown(&self.file), error.who());
                    Error::model(who, error.problem(), error.help())
                })
            }
            ModelSource::Layers(config) => {
                self.with_inputs(config, seed)?.build(seed).map_err(|error| match error.kind() {
                    ErrorKind::Model if !self.are_built_in() => {
                        let who = error.who();
                        let layer = layer_of(config, who);
                        let line = layer.and_then(|idx| misread::offset(&self.text, &layer_path(idx)));
                        let line = line.map_or(String::new(), |at| format!("line {}, ", misread::line(&self.text, at)));
                        Error::model(format!("`{}`, {line}{who}", shown(&self.file)), error.problem(), error.help())
                    }
                    _ => error,
                })
            }
        }
    }

    /// The layers with inputs: those of the model, else the inputs of the data.
    fn with_inputs<'a>(&self, config: &'a ModelConfig, seed: u64) -> Result<Cow<'a, ModelConfig>> {
        if config.input.is_some() || !config.inputs.is_empty() {
            return Ok(Cow::Borrowed(config));
        }
        let pair = self.data.clone().for_embeddings(&config.embedded()).open_aside(self.aside(seed))?;
        let (shapes, fields) = (pair.train.input_shapes(), pair.train.schema().inputs);
        *self.opened.borrow_mut() = Some((seed, pair));
        let mut config = config.clone();
        match &shapes[..] {
            [shape] => config.input = Some(shape.clone()),
            _ => {
                let named = shapes.into_iter().zip(fields).filter_map(|(shape, field)| Some((field.name?, shape)));
                config.inputs = named.map(|(name, shape)| InputConfig { name, shape }).collect();
            }
        }
        Ok(Cow::Owned(config))
    }

    /// The rows that `split_data` sets aside.
    fn aside(&self, seed: u64) -> Option<Aside> {
        match self.training.validation {
            Validation::Fraction(fraction) => Some(Aside { fraction, seed }),
            _ => None,
        }
    }

    /// The data, with inputs and outputs in the model's order.
    pub fn data_of(&self, model: &Model) -> Result<DataConfig> {
        let inputs: Vec<&str> = model.inputs().iter().map(|input| input.name.as_str()).collect();
        let outputs: Vec<&str> = model.outputs().into_iter().map(|(name, _)| name).collect();
        Ok(self.data.clone().in_order(&inputs, &outputs)?.for_embeddings(&model.config().embedded()))
    }

    /// Opens the data: with the schema of the model, if its training continues, or if they have the same names. What is fitted to
    /// the rows is fitted to those that `split_data` leaves for training.
    pub fn open_data(&self, trainer: &Trainer, seed: u64) -> Result<DataPair> {
        let aside = self.aside(seed);
        let opened = self.opened.take().filter(|(of, _)| *of == seed);
        let (model, is_resumed) = (trainer.model(), trainer.progress().step > 0);
        let data = self.data_of(model)?;
        match &self.model {
            _ if is_resumed => data.open_like(model.schema()),
            // Names that the model does not know belong to a new task.
            ModelSource::File(_) => data.open_like(model.schema()).or_else(|_| data.open_aside(aside)),
            ModelSource::Layers(_) | ModelSource::Start { .. } => {
                opened.map_or_else(|| data.open_aside(aside), |(_, pair)| Ok(pair))
            }
        }
    }

    /// Settings of training: losses, metrics, optimizer and more.
    pub fn compile(&self, model: &Model, seed: u64) -> Result<Compile> {
        let training = &self.training;
        let losses = match (&self.loss, &self.losses) {
            (Some(loss), None) => vec![loss.clone()],
            (None, Some(losses)) => losses.clone(),
            (None, None) => {
                return Err(self.refuse(
                    "needs a loss, but names none",
                    "add `[loss]` with, for example, `type = \"MeanSquaredError\"`",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(self
                    .refuse("needs `[loss]` or `[[losses]]`, but has both", "keep `[[losses]]` for several outputs"));
            }
        };
        if training.loss_weights.len() > losses.len() {
            return Err(self.refuse(
                &format!("needs at most {} `loss_weights`, but has {}", losses.len(), training.loss_weights.len()),
                "give one for each output, in their order",
            ));
        }
        let outputs = model.outputs().len();
        let metrics = training.metrics.of_outputs(outputs).ok_or_else(|| {
            self.refuse(
                &format!("needs a list of metrics for each of {outputs} outputs"),
                "write `metrics = [[\"accuracy\"], []]`",
            )
        })?;
        let mut compile = Compile::with_losses(self.optimizer.clone(), losses)
            .loss_weights(training.loss_weights.clone())
            .reduction(training.reduction)
            .metrics(metrics)
            .gradient_compression(training.gradient_compression)
            .batch_statistics(training.batch_statistics)
            .precision(training.precision)
            .schedule(self.schedule.clone())
            .non_finite(training.non_finite)
            .seed(seed);
        (compile.clip_norm, compile.learning_rate_batch) = (training.clip_norm, training.learning_rate_batch);
        Ok(compile)
    }

    fn refuse(&self, problem: &str, help: &str) -> Error {
        Error::setting(format!("`{}`", self.file), problem, help)
    }

    /// Training and validation data.
    pub fn split_data(&self, pair: DataPair, seed: u64) -> Result<TrainAndValidation> {
        match self.training.validation {
            Validation::Test => Ok((pair.train, pair.test)),
            Validation::None => Ok((pair.train, None)),
            Validation::Fraction(fraction) => {
                let (train, validation) = data::split(pair.train, fraction, seed)?;
                Ok((Arc::new(train), Some(Arc::new(validation))))
            }
        }
    }
}

impl TrainingTable {
    fn check(&self, file: &str) -> Result<()> {
        let refuse = |key: &str, problem: &str, help: &str| {
            Err(Error::setting(format!("`{file}`, key `{key}`,"), problem, help))
        };
        if self.epochs == 0 {
            return refuse("epochs", "needs at least 1, but is 0", "10 is a good first choice");
        }
        if self.micro_batches == 0 {
            return refuse("micro_batches", "needs at least 1, but is 0", "1 computes a batch at once");
        }
        if self.process_timeout == 0 {
            return refuse("process_timeout", "needs at least 1 second, but is 0", "600 is usual");
        }
        if self.batch_size == 0 {
            return refuse("batch_size", "needs at least 1, but is 0", "32 is a good first choice");
        }
        Ok(())
    }

    /// The settings of a run on training data with these names of classes, without files and validation data.
    pub fn fit(&self, classes: &[String]) -> Result<Fit> {
        let mut fit = Fit::new(self.epochs)
            .batch_size(self.batch_size)
            .micro_batches(self.micro_batches)
            .workers(self.workers)
            .prefetch(self.prefetch)
            .augment(self.augment.clone());
        fit.class_weight = self.class_weight(classes)?.into_iter().collect();
        (fit.shuffle, fit.drop_remainder) = (self.shuffle, self.drop_remainder);
        Ok(fit)
    }

    /// Weights of classes by label, for training data with these names of classes.
    pub fn class_weight(&self, classes: &[String]) -> Result<Vec<(usize, f32)>> {
        let known: Vec<&str> = classes.iter().map(String::as_str).collect();
        let label = |name: &str| known.iter().position(|class| *class == name).or_else(|| name.parse().ok());
        let of = |(name, weight): (&String, &f32)| match label(name) {
            Some(label) => Ok((label, *weight)),
            None => Err(Error::setting(
                "key `class_weight`",
                format!("needs names of classes or numbers from 0 up, but names `{}`", shown(name)),
                names::help(name, "the classes are", &known),
            )),
        };
        self.class_weight.iter().map(of).collect()
    }

    /// The callback that ends training early, if it is asked for.
    pub fn early_stopping(&self, has_validation: bool) -> Result<Option<EarlyStopping>> {
        self.early_stopping.as_ref().map(|table| table.callback(has_validation)).transpose()
    }

    pub fn cpu_fallback(&self) -> CpuFallback {
        if self.cpu_fallback { CpuFallback::Allowed } else { CpuFallback::Refused }
    }
}

/// `model = "file.safetensors"`, or the table `[model]`.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "described::PathOrTable"))]
pub enum ModelSource {
    File(PathBuf),
    Layers(ModelConfig),
    /// Layers behind those of a model file, of which `until` is the last.
    Start {
        start: PathBuf,
        until: Option<String>,
        config: ModelConfig,
    },
}

/// The table `[model]`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ModelTable {
    /// A model file, whose layers with their weights stand before the new ones.
    start: Option<PathBuf>,
    /// The last layer of `start` that is used; all are, if it is left out.
    until: Option<String>,
    /// Shape of a row of the one input, which is then called `input`. Without inputs, they are those of the data.
    input: Option<Shape>,
    /// Several inputs.
    #[serde(default)]
    inputs: Vec<InputConfig>,
    /// The layers in order.
    #[cfg_attr(test, schemars(with = "Vec<described::AnyLayer>"))]
    layers: Vec<LayerConfig>,
    /// Names of the outputs.
    #[serde(default)]
    outputs: Vec<String>,
}

impl ModelTable {
    /// The source that the table tells, or what is wrong with it.
    fn source(self) -> Result<ModelSource, &'static str> {
        let Self { start, until, input, inputs, layers, outputs } = self;
        let has_inputs = input.is_some() || !inputs.is_empty();
        let config = ModelConfig { input, inputs, layers, outputs };
        match (start, until) {
            (Some(_), _) if has_inputs => Err("needs no inputs beside `start`, whose model has them"),
            (Some(start), until) => Ok(ModelSource::Start { start, until, config }),
            (None, Some(_)) => Err("needs `start`, a model file, beside `until`"),
            (None, None) => Ok(ModelSource::Layers(config)),
        }
    }
}

impl<'de> Deserialize<'de> for ModelSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source;
        impl<'de> Visitor<'de> for Source {
            type Value = ModelSource;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table of layers, or the path of a model file")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<ModelSource, E> {
                Ok(ModelSource::File(path.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelSource, A::Error> {
                let table = ModelTable::deserialize(MapAccessDeserializer::new(map))?;
                table.source().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Source)
    }
}

/// Data by which each epoch is evaluated.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(schema_with = "described::validation"))]
enum Validation {
    /// The test data, if there are any.
    Test,
    None,
    /// Training rows set aside.
    Fraction(f64),
}

impl<'de> Deserialize<'de> for Validation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source;
        impl Visitor<'_> for Source {
            type Value = Validation;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"test\", \"none\", or the fraction of the training rows to set aside, such as 0.1")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Validation, E> {
                match text {
                    "test" => Ok(Validation::Test),
                    "none" => Ok(Validation::None),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_f64<E: de::Error>(self, fraction: f64) -> Result<Validation, E> {
                Ok(Validation::Fraction(fraction))
            }
        }
        deserializer.deserialize_any(Source)
    }
}

/// Metrics: of the one output, or of each.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "Vec<described::OneOrEach>"))]
enum Metrics {
    /// Default metrics of the losses.
    Default,
    One(Vec<Metric>),
    Many(Vec<Vec<Metric>>),
}

impl Metrics {
    fn of_outputs(&self, outputs: usize) -> Option<Vec<Vec<Metric>>> {
        match self {
            Self::Default => Some(Vec::new()),
            Self::One(metrics) => (outputs == 1).then(|| vec![metrics.clone()]),
            Self::Many(metrics) => (outputs == metrics.len()).then(|| metrics.clone()),
        }
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListOfMetrics)
    }
}

struct ListOfMetrics;

impl<'de> Visitor<'de> for ListOfMetrics {
    type Value = Metrics;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of metrics")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Metrics, A::Error> {
        let (mut one, mut many) = (Vec::new(), Vec::new());
        let read = |item| names::read_variant(item).map_err(ReadError::raise);
        while let Some(item) = items.next_element()? {
            match item {
                Tree::List(metrics) => many.push(metrics.into_iter().map(read).collect::<Result<_, _>>()?),
                metric => one.push(read(metric)?),
            }
        }
        match (one.is_empty(), many.is_empty()) {
            (_, true) => Ok(Metrics::One(one)),
            (true, false) => Ok(Metrics::Many(many)),
            (false, false) => Err(de::Error::custom("needs metrics, or lists of metrics, not both")),
        }
    }
}

fn split<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SplitMode, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_split(&text).map_err(de::Error::custom)
}

/// `learned`, `even`, or proportions such as `3:1`.
pub fn parse_split(text: &str) -> Result<SplitMode, String> {
    let parts = || text.split(':').map(|part| part.trim().parse().ok()).collect::<Option<Vec<f64>>>();
    match text {
        "learned" => Ok(SplitMode::Learned),
        "even" => Ok(SplitMode::Even),
        _ => parts()
            .map(SplitMode::Fixed)
            .ok_or_else(|| format!("needs `learned`, `even` or proportions such as `3:1`, but got `{text}`")),
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
