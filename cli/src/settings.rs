//! Settings files: TOML with the tables `[data]`, `[model]`, `[loss]`, `[optimizer]`, `[schedule]`, `[training]`.

mod as_run;
#[cfg(test)]
mod described;
mod early_stopping;
mod language;
mod mistaken;
mod model;
mod pixels;
mod training;

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use manyhands::data::{self, Aside, DataConfig, DataPair, Dataset, Fold};
use manyhands::misread::{self, Misread};
use manyhands::model::InputConfig;
use manyhands::reading::PathStep;
use manyhands::{Compile, Error, ErrorKind, Loss, Model, ModelConfig, Optimizer, Result, Schedule, Trainer};
use manyhands_engine::{files, names, shown::shown};
#[cfg(feature = "text")]
use manyhands_text::training::Steps;
use serde::Deserialize;

pub use self::as_run::{SettingChange, as_run, with_value};
pub use self::early_stopping::ModeSetting;
#[cfg(feature = "text")]
pub use self::language::{LanguageTable, PackedWeights};
pub use self::model::ModelSource;
pub use self::training::{TrainingTable, parse_split};

use self::training::Validation;
use super::DataChoice;

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

/// The rows of a run.
pub struct RunRows {
    pub train: Arc<dyn Dataset>,
    pub validation: Option<Arc<dyn Dataset>>,
    /// The fold that is held out.
    pub fold: Option<Arc<dyn Dataset>>,
}

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

    /// Sets the number of epochs. The schedule of a language model whose steps are those of its epochs becomes as long, as in transformers.
    pub fn set_epochs(&mut self, epochs: u64) {
        #[cfg(feature = "text")]
        self.stretch_schedule(epochs);
        self.training.epochs = epochs;
    }

    #[cfg(feature = "text")]
    fn stretch_schedule(&mut self, epochs: u64) {
        let (ModelSource::Language(_), Schedule::CosineDecay { decay_steps, alpha, warmup_steps }) =
            (&self.model, &self.schedule)
        else {
            return;
        };
        let (steps, alpha) = (Steps { warmup: *warmup_steps, decay: *decay_steps }, *alpha);
        let Some(Steps { warmup, decay }) = steps.stretched(self.training.epochs, epochs).filter(|_| alpha == 0.0)
        else {
            return;
        };
        for (key, value) in [("decay_steps", decay), ("warmup_steps", warmup)] {
            let path = ["schedule".to_owned(), key.to_owned()];
            self.text = with_value(&self.text, &path, &value.to_string()).unwrap_or_else(|| self.text.clone());
        }
        self.schedule = Schedule::CosineDecay { decay_steps: decay, alpha, warmup_steps: warmup };
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
        if let ModelSource::Language(language) = &self.model {
            files.push(language.path.clone());
        }
        files
    }

    /// Whether rows for validation, or a fold, are drawn from the training rows.
    pub fn draws_rows(&self) -> bool {
        self.aside(0).is_some()
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
            ModelSource::File(path) => {
                let model = Model::load(path)?;
                pixels::check(&self.data, &model, true).map_err(|error| self.of_model(&error))?;
                Ok(model)
            }
            ModelSource::Language(language) => language.build(seed),
            ModelSource::Start { start, until, pixels, config } => {
                let trunk = pixels::in_front(&self.data, Model::load(start)?, *pixels);
                let model =
                    trunk.and_then(|trunk| trunk.with_head(until.as_deref(), &config.layers, &config.outputs, seed));
                model.map_err(|error| self.of_model(&error))
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

    /// Refuses a model whose images have other pixels than these data.
    pub fn check_pixels(data: &DataConfig, model: &Model) -> Result<()> {
        pixels::check(data, model, false)
    }

    /// An error of the table `[model]`, with the file.
    fn of_model(&self, error: &Error) -> Error {
        let who = format!("`{}`, table `model`, {}", shown(&self.file), error.who());
        Error::model(who, error.problem(), error.help())
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

    /// Whether the rows of the fold are also those by which each epoch is validated.
    pub fn validates_by_fold(&self) -> bool {
        self.training.fold.is_some() && matches!(self.training.validation, Validation::Test)
    }

    /// The rows that `split_data` sets aside.
    fn aside(&self, seed: u64) -> Option<Aside> {
        let fraction = match self.training.validation {
            Validation::Fraction(fraction) => Some(fraction),
            Validation::Test | Validation::None => None,
        };
        let fold = self.training.fold.map(|(number, of)| Fold { number, of, seed });
        (fraction.is_some() || fold.is_some()).then_some(Aside { fold, fraction, seed })
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
            ModelSource::Layers(_) | ModelSource::Start { .. } | ModelSource::Language(_) => {
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
            .metrics_by_output(metrics)
            .gradient_compression(training.gradient_compression)
            .batch_statistics(training.batch_statistics)
            .precision(training.precision)
            .recompute(training.recompute)
            .schedule(self.schedule.clone())
            .non_finite(training.non_finite)
            .seed(seed);
        (compile.clip_norm, compile.learning_rate_batch) = (training.clip_norm, training.learning_rate_batch);
        Ok(compile)
    }

    fn refuse(&self, problem: &str, help: &str) -> Error {
        Error::setting(format!("`{}`", self.file), problem, help)
    }

    /// Training and validation data, and the fold that is held out.
    pub fn split_data(&self, pair: DataPair, seed: u64) -> Result<RunRows> {
        let (train, fold): (Arc<dyn Dataset>, Option<Arc<dyn Dataset>>) = match self.training.fold {
            None => (pair.train, None),
            Some((number, of)) => {
                let (train, fold) = data::fold(pair.train, Fold { number, of, seed })?;
                (Arc::new(train), Some(Arc::new(fold)))
            }
        };
        match self.training.validation {
            Validation::Test => Ok(RunRows { train, validation: fold.clone().or(pair.test), fold }),
            Validation::None => Ok(RunRows { train, validation: None, fold }),
            Validation::Fraction(fraction) => {
                let (train, validation) = data::split(train, fraction, seed)?;
                Ok(RunRows { train: Arc::new(train), validation: Some(Arc::new(validation)), fold })
            }
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
