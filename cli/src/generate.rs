//! `manyhands generate`.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use manyhands::data::{Format, Text};
use manyhands::{Error, Model, Result};
use manyhands_engine::adapters::Info;
use manyhands_engine::files;
use manyhands_engine::runtime;
use manyhands_engine::shown::shown;
use manyhands_text::adapter::{Adapter, base_of, is_adapter};
use manyhands_text::generate::{self, Cached, Ended, Generated, Generation, NextToken, Rows, Sampling};
use manyhands_text::rows::Reader;
use manyhands_text::{ChatTemplate, ModelFiles, Tokenizer};
use serde_json::json;

use super::run_folder::{RunFolder, model_path};
use super::settings::PackedWeights;
use super::terminal::Terminal;
use super::{AdapterChoice, adapters, at_least_one};

/// Tokens that a model trained on a text must not write: padding, and the one for tokens that it does not know.
const RESERVED: [u32; 2] = [0, 1];

#[derive(Args)]
pub struct GenerateArgs {
    /// Language model: a Hugging Face folder, a GGUF file, what `train` made of a text (the folder of its run, or a model file), or what
    /// `finetune` made: the folder of its run, or its adapter, where the model that it was trained for is still in its place.
    #[arg(value_parser = model_path())]
    model: PathBuf,
    /// Text to continue; for a chat model, the message to answer.
    prompt: String,
    /// Folder with a LoRA adapter, as PEFT or `finetune` wrote it.
    #[arg(long, value_name = "FOLDER")]
    adapter: Option<PathBuf>,
    /// Keep the model's kernels and its table of tokens in 8 or 4 bits, or as a GGUF file has them [default: as floats].
    #[arg(long, value_name = "BITS", value_enum)]
    packed: Option<PackedWeights>,
    /// Most tokens to write.
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value = "256")]
    max_tokens: usize,
    /// Divides the logits: below 1, likely tokens come more often. 0 always takes the likeliest.
    #[arg(long, value_name = "T", default_value_t = 0.7)]
    temperature: f64,
    /// Choose among the N likeliest tokens only.
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,
    /// Choose among the likeliest tokens that have this probability together.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f64,
    /// Seed of the choices: another one gives another text.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// End before this text. May be given several times.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Take the prompt for a message to a chat model. Default for models that have a chat template.
    #[arg(long, conflicts_with = "raw")]
    chat: bool,
    /// Continue the prompt itself, without the model's chat template.
    #[arg(long)]
    raw: bool,
    /// Adapter that computes: the first of the choice, since a token is no work for several.
    #[command(flatten)]
    adapters: AdapterChoice,
    /// Print a JSON object at the end, in place of the text as it comes.
    #[arg(long)]
    json: bool,
}

/// Writes a text.
pub fn run(args: &GenerateArgs, terminal: &Terminal) -> Result<()> {
    let chosen = adapters::choose(args.adapters.adapters.as_deref(), None)?;
    let adapter = chosen.into_iter().next().unwrap_or_else(Info::cpu);
    let Named { model, lora } = Named::of(args)?;
    if is_language_model(&model)? {
        of_files(args, (&model, lora.as_deref()), adapter, terminal)
    } else {
        of_trained(args, adapter, terminal)
    }
}

/// The model that writes, and the folder of its LoRA adapter.
struct Named {
    model: PathBuf,
    lora: Option<PathBuf>,
}

impl Named {
    /// As they were named; where an adapter, or a run of `finetune`, takes the model's place, the model is that which the adapter names.
    fn of(args: &GenerateArgs) -> Result<Self> {
        // The folder of a run stands for its newest model. Others may have an adapter beside their model that nobody asked for.
        let folder = if args.model.is_dir() { Some(args.model.as_path()) } else { args.model.parent() };
        let run = folder.map(RunFolder::new).filter(|run| run.settings().is_file());
        let folders = [Some(args.model.clone()), run.map(|run| run.adapter())];
        let tuned = folders.into_iter().flatten().find(|folder| is_adapter(folder));
        let Some(folder) = tuned.filter(|_| args.adapter.is_none()) else {
            return Ok(Self { model: args.model.clone(), lora: args.adapter.clone() });
        };
        let base = base_of(&folder)?;
        let model = PathBuf::from(&base);
        if !model.exists() {
            return Err(Error::setting(
                format!("the adapter `{}`", shown(&folder)),
                format!("needs the model that it was trained for, `{}`, but it is not here", shown(&base)),
                format!("name the model, and the adapter by `--adapter {}`", shown(&folder)),
            ));
        }
        Ok(Self { model, lora: Some(folder) })
    }
}

/// Whether a path is a model of others: a folder or a GGUF file. What is not there is refused as one.
fn is_language_model(path: &Path) -> Result<bool> {
    if path.is_dir() || !path.exists() {
        return Ok(true);
    }
    let mut magic = [0; 4];
    let is_read = files::open(path)?.read_exact(&mut magic).is_ok();
    Ok(is_read && magic == *b"GGUF")
}

/// Writes with a language model of others.
fn of_files(
    args: &GenerateArgs,
    (model, lora): (&Path, Option<&Path>),
    adapter: Info,
    terminal: &Terminal,
) -> Result<()> {
    let files = PackedWeights::files(args.packed, model)?;
    let lora = lora.map(|folder| Adapter::read(folder, files.architecture())).transpose()?;
    let tokenizer = Tokenizer::of(&files)?;
    let prompt = prompt_of(args, &files, &tokenizer, terminal)?;
    generate::warn_of_unapplied(&files)?;
    let mut model = Cached::open(&files, lora.as_ref(), prompt.len().saturating_add(args.max_tokens), adapter)?;
    write(args, &mut model, &|ids| tokenizer.text(ids), &prompt, tokenizer.ends().to_vec(), terminal)
}

/// Tokens of the prompt, in the model's chat template if it has one.
fn prompt_of(args: &GenerateArgs, files: &ModelFiles, tokenizer: &Tokenizer, terminal: &Terminal) -> Result<Vec<u32>> {
    let template = if args.raw { None } else { ChatTemplate::of(files, tokenizer)? };
    if args.chat && template.is_none() {
        let problem = "needs a model with a chat template, but this one has none";
        return Err(Error::setting("`--chat`", problem, "leave it out"));
    }
    if template.is_some() && !args.chat && !terminal.is_quiet() {
        terminal.note("the prompt is a message to a chat model; `--raw` continues it as a text");
    }
    Reader { tokenizer, template: template.as_ref() }.prompt(&args.prompt)
}

/// Writes with a model that was trained here on a text.
fn of_trained(args: &GenerateArgs, adapter: Info, terminal: &Terminal) -> Result<()> {
    let model = Model::load(&args.model)?;
    model.check_finite()?;
    let refuse = |what: &str, problem: &str, help: &str| Err(Error::setting(what, problem, help));
    let flags =
        [(args.chat, "`--chat`"), (args.adapter.is_some(), "`--adapter`"), (args.packed.is_some(), "`--packed`")];
    if let Some((_, flag)) = flags.iter().find(|(is_given, _)| *is_given) {
        return refuse(
            flag,
            "needs a Hugging Face folder or a GGUF file, but got a model file of `train`",
            "leave it out",
        );
    }
    let schema = model.schema();
    let text = schema.inputs.first().and_then(|field| field.text.clone());
    let Some(Text { vocabulary, .. }) = text.filter(|_| matches!(schema.format, Format::Text { .. })) else {
        let help = "`manyhands init FOLDER` writes settings that train a model on the texts of a folder";
        let what = format!("the model `{}`", args.model.display());
        return refuse(&what, "needs to be trained on a text, but was trained on other data", help);
    };
    let prompt = vocabulary.encode(&args.prompt);
    let unknown = prompt.iter().filter(|token| RESERVED.contains(token)).count();
    if unknown > 0 {
        log::warn!("{unknown} of {} tokens of the prompt did not occur in the training text", prompt.len());
    }
    let mut rows = Rows::new(model, adapter, RESERVED.to_vec())?;
    write(args, &mut rows, &|ids| Ok(vocabulary.decode(ids)), &prompt, Vec::new(), terminal)
}

fn write(
    args: &GenerateArgs,
    model: &mut dyn NextToken,
    decode: &dyn Fn(&[u32]) -> Result<String>,
    prompt: &[u32],
    ends: Vec<u32>,
    terminal: &Terminal,
) -> Result<()> {
    let sampling = Sampling { temperature: args.temperature, top_k: args.top_k, top_p: args.top_p };
    let settings =
        Generation { max_tokens: args.max_tokens, sampling, seed: args.seed, ends, stops: args.stop.clone() };
    let clock = runtime::system();
    let (begin_ms, mut first_ms) = (clock.now_ms(), None);
    let mut is_closed = false;
    let mut show = |piece: &str| {
        first_ms.get_or_insert_with(|| clock.now_ms());
        if args.json {
            return Ok(());
        }
        Terminal::piece(piece).map_err(|error| {
            is_closed = error.kind() == ErrorKind::BrokenPipe;
            Error::writing("stdout", error)
        })
    };
    let written = generate::generate(model, decode, prompt, &settings, &mut show);
    // A reader that has seen enough, such as `head`, is no error.
    if is_closed {
        return Ok(());
    }
    let written = written?;
    let end_ms = clock.now_ms();
    // The first token waits for the prompt and for the adapter.
    #[allow(clippy::cast_precision_loss, reason = "a count of tokens")]
    let per_second =
        written.tokens.len().saturating_sub(1) as f64 / (end_ms - first_ms.unwrap_or(begin_ms)).max(1e-3) * 1e3;
    if args.json {
        let Generated { tokens, text, ended } = written;
        terminal.verbatim(json!({
            "text": text,
            "tokens": tokens,
            "prompt_tokens": prompt,
            "ended": ended.name(),
            "tokens_per_second": per_second,
        }));
        return Ok(());
    }
    if !written.text.ends_with('\n') {
        Terminal::piece("\n").map_err(|error| Error::writing("stdout", error))?;
    }
    if !terminal.is_quiet() {
        terminal.note(format_args!("{} tokens, {per_second:.1} a second{}", written.tokens.len(), cut(written.ended)));
    }
    Ok(())
}

/// The end of a text that the model did not end itself.
fn cut(ended: Ended) -> &'static str {
    match ended {
        Ended::MaxTokens => "; `--max-tokens` allows more",
        Ended::Full => "; the model reads no longer texts",
        Ended::Token | Ended::Stop => "",
    }
}
