//! Language models of others: texts in, texts out, and factors of low rank that are trained beside their weights.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manyhands::callbacks::{Callback, EarlyStopping, EpochEnd, Flow, Mode, Monitor};
use manyhands::layers::Lora;
use manyhands::logs::StepLog;
use manyhands::{Error, Fit, Precision, Result};
use manyhands_engine::shown::counted;
use manyhands_text::adapter::{Adapter, write_adapter, write_merged};
use manyhands_text::examples::{LENGTH, RowRules};
use manyhands_text::generate::{self, Cached, Generation, Sampling};
use manyhands_text::network::{self, Factors, Output};
use manyhands_text::packing::LeftOut;
use manyhands_text::rows::Reader;
use manyhands_text::training::{LEARNING_RATE, Steps, check_learning_rate, compile};
use manyhands_text::{ChatTemplate, Encoding, Examples, ModelFiles, Tokenizer};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::adapters::chosen;
use crate::errors::{detached, exception};
use crate::trainer::{Rig, listed};
use crate::{log, model};

/// Settings of the factors, in Python's form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoraSettings {
    r: usize,
    alpha: f32,
    dropout: f32,
    layers: Option<Vec<String>>,
}

/// Settings of a run, in Python's form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FitSettings {
    epochs: usize,
    batch_size: usize,
    learning_rate: f32,
    length: Option<usize>,
    validation: f64,
    seed: u64,
    precision: Precision,
    recompute: bool,
    join_texts: bool,
}

/// Settings of a text, in Python's form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextSettings {
    max_new_tokens: usize,
    temperature: f64,
    top_k: Option<usize>,
    top_p: f64,
    stop: Vec<String>,
    seed: u64,
    adapters: String,
}

/// Texts to train on: a file or a folder, or rows as JSON.
#[derive(FromPyObject)]
enum Texts {
    Rows(Vec<String>),
    Path(PathBuf),
}

/// Parts of a model that change.
#[derive(Default)]
struct State {
    /// The trained or loaded adapter.
    adapter: Option<Adapter>,
    /// The model that writes, with the choice of its adapter, until the weights change.
    cached: Option<(String, Cached)>,
}

/// A language model from a Hugging Face folder or a GGUF file.
#[pyclass(frozen, module = "manyhands_ml._native")]
pub(crate) struct LanguageModel {
    path: PathBuf,
    files: ModelFiles,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    lora: LoraSettings,
    state: Mutex<State>,
}

#[pymethods]
impl LanguageModel {
    /// Opens a model; the settings of its factors are JSON.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, lora: &str) -> PyResult<Self> {
        log::install();
        let lora: LoraSettings = model::read(py, "lora", lora)?;
        detached(py, || {
            let files = ModelFiles::open(&path)?;
            let tokenizer = Tokenizer::of(&files)?;
            let template = ChatTemplate::of(&files, &tokenizer)?;
            let opened = Self { path, files, tokenizer, template, lora, state: Mutex::default() };
            opened.factors().check(opened.files.architecture()).map(drop)?;
            Ok(opened)
        })
    }

    /// Trains factors; gives the numbers of each epoch. `on_epoch` is called after each with them, and ends training where it gives
    /// something true.
    fn fit(
        &self,
        py: Python<'_>,
        texts: Texts,
        settings: &str,
        rig: &str,
        on_epoch: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Numbers>> {
        let settings: FitSettings = model::read(py, "the settings of fit", settings)?;
        let rig: Rig = model::read(py, "the adapters", rig)?;
        let mut epochs = Epochs { on_epoch, ..Epochs::default() };
        let trained = py.detach(|| self.train(&texts, &settings, rig, &mut epochs));
        match (epochs.raised, trained) {
            (Some(raised), _) => Err(raised),
            (None, trained) => trained.map(|()| epochs.numbers).map_err(|error| exception(py, &error)),
        }
    }

    /// Perplexity over all tokens of texts that are to be learned.
    fn perplexity(
        &self,
        py: Python<'_>,
        texts: Texts,
        length: Option<usize>,
        batch_size: usize,
        adapters: &str,
    ) -> PyResult<f64> {
        detached(py, || {
            let examples = self.examples(&texts, RowRules { most: self.most(length)?, ..RowRules::default() })?;
            let mut model = network::build(&self.files, examples.length, Output::Logits)?;
            if let Some(adapter) = &self.lock().adapter {
                adapter.merge(&mut model)?;
            }
            let trainer = manyhands::Trainer::new(model, compile(0.0, Steps::of(1, 1, 1), 0))?;
            let mut trainer = trainer.on(chosen(adapters)?);
            let values = trainer.evaluate(examples.train.dataset(examples.length)?, batch_size)?;
            Ok(values.get("perplexity").unwrap_or(f64::NAN))
        })
    }

    /// Writes a text behind a prompt, or an answer to it as a message, or to several messages, which are JSON.
    fn generate(&self, py: Python<'_>, prompt: &str, form: &str, settings: &str) -> PyResult<String> {
        let settings: TextSettings = model::read(py, "the settings of generate", settings)?;
        let mut raised = None;
        let mut show = |_: &str| {
            let checked = Python::attach(|py| py.check_signals());
            checked.map_err(|error| {
                raised = Some(error);
                Error::setting("`generate`", "was interrupted", "call it again")
            })
        };
        let written = py.detach(|| self.write(prompt, form, settings, &mut show));
        match raised {
            Some(raised) => Err(raised),
            None => written.map_err(|error| exception(py, &error)),
        }
    }

    /// Writes the adapter as PEFT reads it.
    fn save_adapter(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        detached(py, || write_adapter(&folder, self.files.architecture(), self.trained(&self.lock())?))
    }

    /// Takes the adapter of a folder.
    fn load_adapter(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        detached(py, || {
            let adapter = Adapter::read(&folder, self.files.architecture())?;
            self.set(adapter);
            Ok(())
        })
    }

    /// Writes the model with its adapter merged.
    fn save_merged(&self, py: Python<'_>, path: PathBuf, encoding: Option<&str>) -> PyResult<()> {
        detached(py, || {
            let unknown = |name: &str| {
                Error::setting(
                    "`type`",
                    format!("needs to be F32, F16, BF16 or Q8_0, but is `{name}`"),
                    "leave it out for the usual one",
                )
            };
            let encoding = encoding.map(|name| Encoding::of_name(name).ok_or_else(|| unknown(name))).transpose()?;
            write_merged(&path, &self.files, self.trained(&self.lock())?, encoding).map(drop)
        })
    }
}

/// Numbers of an epoch by name.
type Numbers = Vec<(String, f64)>;

impl LanguageModel {
    /// Never while the interpreter's lock is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, adapter: Adapter) {
        *self.lock() = State { adapter: Some(adapter), cached: None };
    }

    fn trained<'a>(&self, state: &'a State) -> Result<&'a Adapter> {
        let lacks = || {
            Error::model(
                "the language model",
                "needs an adapter, but has none",
                "train one by `fit`, or take one by `load_adapter`",
            )
        };
        state.adapter.as_ref().ok_or_else(lacks)
    }

    fn factors(&self) -> Factors {
        let LoraSettings { r, alpha, dropout, layers } = &self.lora;
        let lora = Lora::new(*r).alpha(*alpha).dropout(*dropout);
        Factors { lora, parts: layers.clone(), setting: "`layers` of `lora`" }
    }

    /// Most tokens of a row.
    fn most(&self, length: Option<usize>) -> Result<usize> {
        network::row_length(self.files.architecture(), "`length`", length, LENGTH)
    }

    /// Rows of tokens.
    fn examples(&self, texts: &Texts, rules: RowRules) -> Result<Examples> {
        let reader = Reader { tokenizer: &self.tokenizer, template: self.template.as_ref() };
        let examples = match texts {
            Texts::Path(path) => Examples::read(&reader, path, &rules)?,
            Texts::Rows(rows) => Examples::of("`rows`", &self.tokenizer, &reader.parse(rows)?, &rules)?,
        };
        let LeftOut { count, longest, unlearned, .. } = examples.left_out;
        let left_out = |count: usize| {
            let texts = counted(count, if examples.divided > 0 { "row" } else { "text" });
            format!("{texts} {} left out", if count == 1 { "is" } else { "are" })
        };
        if count > 0 {
            let most = rules.most;
            ::log::warn!(target: "manyhands", "{}, longer than {most} tokens: the longest has {longest}", left_out(count));
        }
        if unlearned > 0 {
            ::log::warn!(target: "manyhands", "{}, with nothing to learn", left_out(unlearned));
        }
        Ok(examples)
    }

    fn train(&self, texts: &Texts, settings: &FitSettings, rig: Rig, epochs: &mut Epochs) -> Result<()> {
        let FitSettings {
            epochs: n_epochs,
            batch_size,
            learning_rate,
            length,
            validation,
            seed,
            precision,
            recompute,
            join_texts,
        } = *settings;
        check_learning_rate("`learning_rate`", learning_rate, LEARNING_RATE)?;
        let rules = RowRules { most: self.most(length)?, are_joined: join_texts, held_out: validation, seed };
        let examples = self.examples(texts, rules)?;
        let mut state = self.lock();
        let output = if join_texts { Output::LogitsByDocument } else { Output::Logits };
        let mut model = network::build(&self.files, examples.length, output)?;
        let factors = self.factors();
        let lora = match &state.adapter {
            Some(adapter) => {
                adapter.add(&mut model)?;
                adapter.lora()
            }
            None => {
                factors.add(&mut model, self.files.architecture(), seed)?;
                factors.lora
            }
        };
        let rows = examples.train.ids.len() / examples.length;
        let compile = compile(learning_rate, Steps::of(rows, batch_size, n_epochs), seed)
            .precision(precision)
            .recompute(recompute);
        let mut trainer = rig.trainer(model, compile)?.1;
        let mut fit = Fit::new(n_epochs as u64).batch_size(batch_size).stop(epochs.stop.clone());
        // It never stops, and keeps the best epoch.
        let mut best = EarlyStopping::new(Monitor::new("val_loss").mode(Mode::Min), u32::MAX);
        let mut callbacks: Vec<&mut dyn Callback> = vec![epochs];
        if !examples.held_out.ids.is_empty() {
            fit = fit.validation(examples.held_out.dataset(examples.length)?);
            callbacks.push(&mut best);
        }
        trainer.fit_with(examples.train.dataset(examples.length)?, &fit, &mut callbacks)?;
        let adapter = Adapter::of(trainer.model(), lora, &self.path)?;
        *state = State { adapter: Some(adapter), cached: None };
        Ok(())
    }

    fn write(
        &self,
        prompt: &str,
        form: &str,
        settings: TextSettings,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<String> {
        let TextSettings { max_new_tokens: max_tokens, temperature, top_k, top_p, stop: stops, seed, adapters } =
            settings;
        let template = self.template.as_ref().filter(|_| form != "text");
        let reader = Reader { tokenizer: &self.tokenizer, template };
        let prompt = if form == "messages" { reader.conversation_so_far(prompt)? } else { reader.prompt(prompt)? };
        let needed = prompt.len().saturating_add(max_tokens);
        let mut state = self.lock();
        let State { adapter, cached } = &mut *state;
        let fits = |(choice, model): &(String, Cached)| *choice == adapters && model.has_room(needed);
        if !cached.as_ref().is_some_and(fits) {
            let devices = chosen(&adapters)?;
            let first = devices.into_iter().next().ok_or_else(|| {
                Error::setting("`adapters`", "needs an adapter, but names none", "`manyhands_ml.adapters()` lists them")
            })?;
            generate::warn_of_unapplied(&self.files)?;
            *cached = Some((adapters, Cached::open(&self.files, adapter.as_ref(), needed, first)?));
        }
        let sampling = Sampling { temperature, top_k, top_p };
        let settings = Generation { max_tokens, sampling, seed, ends: self.tokenizer.ends().to_vec(), stops };
        let Some((_, model)) = cached else { return Ok(String::new()) };
        let written = generate::generate(model, &|ids| self.tokenizer.text(ids), &prompt, &settings, show)?;
        Ok(written.text)
    }
}

/// Numbers of epochs, which Python hears of.
#[derive(Default)]
struct Epochs {
    on_epoch: Option<Py<PyAny>>,
    numbers: Vec<Numbers>,
    stop: Arc<AtomicBool>,
    /// An exception of Python's, such as an interrupt.
    raised: Option<PyErr>,
}

impl Epochs {
    /// Whether Python goes on; if it raised an exception, training ends after this step.
    fn hears(&mut self, call: impl FnOnce(Python<'_>, &Self) -> PyResult<bool>) -> Flow {
        let heard = Python::attach(|py| call(py, self));
        let is_enough = heard.unwrap_or_else(|error| {
            self.raised = Some(error);
            true
        });
        if self.raised.is_some() {
            self.stop.store(true, Ordering::Relaxed);
        }
        if is_enough { Flow::Stop } else { Flow::Continue }
    }
}

impl Callback for Epochs {
    fn on_step(&mut self, _: &StepLog) -> Result<()> {
        self.hears(|py, _| py.check_signals().map(|()| false));
        Ok(())
    }

    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        let numbers = listed(&end.log.values);
        let epoch = self.numbers.len();
        self.numbers.push(numbers.clone());
        Ok(self.hears(|py, own| match &own.on_epoch {
            Some(on_epoch) => on_epoch.call1(py, (epoch, numbers))?.is_truthy(py),
            None => Ok(false),
        }))
    }
}
