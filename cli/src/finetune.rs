//! `manyhands finetune`.

// Files: `classes.rs`: models that tell the class of a text; `settings.rs`: the settings file of a run.

mod classes;
mod settings;

use std::path::{Path, PathBuf};

use clap::Args;
use manyhands::callbacks::{Mode, Monitor};
use manyhands::processes::Group;
use manyhands::{Error, ErrorKind, Existing, Model, Result};
use manyhands_engine::shown::{counted, shown, thousands};
use manyhands_text::adapter::{Adapter, write_adapter};
use manyhands_text::examples::{LENGTH, NOT_LEARNED, RowRules, Rows};
use manyhands_text::network;
use manyhands_text::packing::LeftOut;
use manyhands_text::rows::Reader;
use manyhands_text::{ChatTemplate, Examples, ModelFiles, Tokenizer};

use super::init::{TABLES, has_extension};
use super::report::best_of_log;
use super::run_folder::RunFolder;
use super::settings::{LanguageTable, ModelSource, PackedWeights, SettingsFile};
use super::terminal::Terminal;
use super::train::{self, TrainArgs};
use super::{AdapterChoice, MemoryChoice, at_least_one};

/// Characters of the first row that are shown.
const SHOWN: usize = 600;

#[derive(Args)]
pub struct FinetuneArgs {
    /// Language model: a Hugging Face folder or a GGUF file of Llama, SmolLM2, Mistral, Qwen 2 and 3, Gemma 3, or GPT-2; or a
    /// folder of BERT or MiniLM, which learns to tell the classes of texts.
    #[arg(required_unless_present = "resume")]
    model: Option<PathBuf>,
    /// Texts: JSON lines with `messages`, `prompt` and `completion`, or `text`; or a `.txt` file, or a folder of them. For BERT and MiniLM: a
    /// table with a column of texts and one of their classes.
    #[arg(required_unless_present = "resume")]
    texts: Option<PathBuf>,
    /// Folder for all that the run gives: settings, texts, log, checkpoints, report, and `adapter/` [default: `runs/1`, `runs/2` and so on].
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    /// Go on with the run of `--run`, or with the latest.
    #[arg(long, conflicts_with_all = ["model", "texts", "overwrite"])]
    resume: bool,
    /// Replace the files of an earlier run.
    #[arg(long)]
    overwrite: bool,
    /// Column of a table with the texts, by its name or its index from 0 [default: the first of free text].
    #[arg(long, value_name = "COLUMN", conflicts_with = "resume")]
    text: Option<String>,
    /// Column of a table with the classes of its texts [default: one whose name says so, else the last].
    #[arg(long, value_name = "COLUMN", conflicts_with = "resume")]
    target: Option<String>,
    /// Most tokens of a row [default: 512; of a table, as many as 95 % of the texts have]. Longer texts are left out, those of a table cut.
    #[arg(long, value_parser = at_least_one)]
    length: Option<usize>,
    /// Put several short texts in a row, where each sees itself alone: less padding (`packing` in TRL). A row then counts as one of a batch.
    #[arg(long, conflicts_with = "resume")]
    join_texts: bool,
    /// Rank of the trained factors.
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    rank: usize,
    /// Factor of their product, times the rank.
    #[arg(long, default_value_t = 16.0)]
    alpha: f32,
    /// Part of the inputs that training drops before the factors.
    #[arg(long, default_value_t = 0.0)]
    dropout: f32,
    /// Products of each block that get factors, with commas, such as `attention.query,attention.value` [default: all].
    #[arg(long, value_delimiter = ',')]
    layers: Option<Vec<String>>,
    /// Keep the model's kernels and its table of tokens in 8 or 4 bits, or as a GGUF file has them [default: as floats].
    #[arg(long, value_name = "BITS", value_enum, conflicts_with = "resume")]
    packed: Option<PackedWeights>,
    /// Compute values within the model again for backward, in place of keeping them: less memory, more time, the same adapter.
    #[arg(long, conflicts_with = "resume")]
    recompute: bool,
    /// Round both factors of products to 16-bit floats in training, and add in 32 bits, on a card's matrix units if it has such: faster there.
    /// `fp16` of transformers does more in 16 bits.
    #[arg(long, conflicts_with = "resume")]
    mixed_float16: bool,
    /// Place the model's layers on the adapters by measurement, so that none needs room for all, in place of a copy on each.
    #[arg(long, conflicts_with = "resume")]
    stages: bool,
    /// Message or text that the model answers or continues after each epoch, for the terminal and the report.
    #[arg(long, value_name = "TEXT", conflicts_with = "resume")]
    sample: Option<String>,
    /// Epochs of the run, counted from its start [default: 3].
    #[arg(long, value_parser = at_least_one)]
    epochs: Option<usize>,
    /// Rows of a batch, over all adapters [default: 8; of a table, 32].
    #[arg(long, value_parser = at_least_one)]
    batch_size: Option<usize>,
    /// Learning rate after the warm-up, from which it falls to 0 by a cosine [default: 2e-4; of a table, 2e-3].
    #[arg(long)]
    learning_rate: Option<f32>,
    /// Part of the texts that is held out, to choose the best adapter by.
    #[arg(long, default_value_t = 0.1)]
    validation: f64,
    /// Seed of the factors, of the texts that are held out, and of the order of the rows.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    adapters: AdapterChoice,
    #[command(flatten)]
    memory: MemoryChoice,
    /// Check model, texts and adapters, say what would be done, and end. Writes nothing.
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
}

/// Trains factors beside a language model, and writes them as PEFT reads them. Returns the exit status for a signal, if one came.
pub fn run(args: &FinetuneArgs, arguments: &[String], terminal: &Terminal, group: &Group) -> Result<Option<i32>> {
    group.refuse("`finetune`", "start one process")?;
    if !(0.0..1.0).contains(&args.validation) {
        let problem = format!("needs a part from 0 to below 1, but is {}", args.validation);
        return Err(Error::setting("`--validation`", problem, "0.1 holds out a tenth of the texts"));
    }
    match (&args.model, &args.texts) {
        (Some(model), Some(texts)) => begin(args, (model, texts), arguments, terminal, group),
        _ => resume(args, arguments, terminal, group),
    }
}

/// A new run.
fn begin(
    args: &FinetuneArgs,
    (model, texts): (&Path, &Path),
    arguments: &[String],
    terminal: &Terminal,
    group: &Group,
) -> Result<Option<i32>> {
    let files = ModelFiles::open(model)?;
    if !files.architecture().causal {
        let settings = classes::settings(args, &files, (model, texts), terminal)?;
        let folder = args.run.as_ref().map(RunFolder::new);
        let status = train::run_settings(settings, &args.of_training(folder.as_ref()), arguments, terminal, group);
        return status.map_err(|error| with_savings(args, error));
    }
    args.refuse_table(texts)?;
    let tokenizer = Tokenizer::of(&files)?;
    let template = ChatTemplate::of(&files, &tokenizer)?;
    let reader = Reader { tokenizer: &tokenizer, template: template.as_ref() };
    let most = network::row_length(files.architecture(), "`--length`", args.length, LENGTH)?;
    let (are_joined, held_out, seed) = (args.join_texts, args.validation, args.seed);
    let examples = Examples::read(&reader, texts, &RowRules { most, are_joined, held_out, seed })?;
    if !terminal.is_quiet() {
        tell(&examples, &tokenizer, terminal)?;
    }
    tell_left_out(&examples, files.architecture().positions, terminal);
    let settings = |written: &Path| {
        examples.write(written)?;
        SettingsFile::parse(&settings::of_texts(args, model, written, &examples)?, "the settings of `finetune`")
    };
    if args.dry_run {
        let folder = tempfile::tempdir().map_err(|error| Error::writing(std::env::temp_dir(), error))?;
        let settings = settings(&folder.path().join(TEXTS))?;
        let status = train::run_settings(settings, &args.of_training(None), arguments, terminal, group);
        return status.map_err(|error| with_savings(args, error));
    }
    let existing = if args.overwrite { Existing::Overwrite } else { Existing::Refuse };
    let folder = match &args.run {
        Some(folder) => RunFolder::new(folder),
        None => RunFolder::make_next()?,
    };
    folder.check(existing, None)?;
    std::fs::create_dir_all(folder.path()).map_err(|error| Error::writing(folder.path(), error))?;
    let written = folder.path().join(TEXTS);
    let trained = settings(&written).and_then(|settings| {
        let language = language_of(&settings)?.clone();
        let status = train::run_settings(settings, &args.of_training(Some(&folder)), arguments, terminal, group);
        Ok((language, status.map_err(|error| with_savings(args, error))?))
    });
    if trained.is_err() && !folder.settings().exists() {
        // It has not begun.
        drop(std::fs::remove_file(&written));
        folder.remove_empty();
    }
    let (language, status) = trained?;
    end(&folder, &language, Some(&examples.held_out), terminal)?;
    Ok(status)
}

/// The error, with options that need less memory in the help where it is short.
fn with_savings(args: &FinetuneArgs, error: Error) -> Error {
    if error.kind() != ErrorKind::OutOfMemory {
        return error;
    }
    let savings = [
        (args.packed.is_none(), "keep the model's weights in 8 or 4 bits by `--packed 8` or `--packed 4`"),
        (!args.recompute, "keep fewer values by `--recompute`"),
        (!args.stages, "divide the layers over several adapters by `--stages`"),
        (true, "make rows shorter by `--length`"),
    ];
    let help: Vec<&str> = savings.into_iter().filter(|(applies, _)| *applies).map(|(_, saving)| saving).collect();
    Error::new(error.kind(), error.who(), error.problem(), help.join(", or "))
}

/// An earlier run goes on.
fn resume(args: &FinetuneArgs, arguments: &[String], terminal: &Terminal, group: &Group) -> Result<Option<i32>> {
    let folder = args.run.as_ref().map(RunFolder::new).or_else(|| RunFolder::latest(None));
    let folder = folder.ok_or_else(|| {
        Error::setting("`--resume`", "needs an earlier run, but there is none", "name its folder: `--run runs/chat`")
    })?;
    // It may come from a stranger.
    folder.check_files()?;
    let settings = SettingsFile::of(Some(&folder.settings()))?;
    let language = language_of(&settings)?.clone();
    let training = TrainArgs::resumed(folder.path(), args.epochs, &args.adapters, &args.memory);
    let status = train::run(&training, arguments, terminal, group)?;
    if language.classes.is_none() {
        end(&folder, &language, None, terminal)?;
    }
    Ok(status)
}

/// Name of the texts in a run's folder.
const TEXTS: &str = "texts.safetensors";

fn language_of(settings: &SettingsFile) -> Result<&LanguageTable> {
    match &settings.model {
        ModelSource::Language(language) => Ok(language),
        _ => Err(Error::setting(
            "`--resume`",
            "needs a run of `finetune`, but that is another",
            "go on with it by `manyhands train --resume`",
        )),
    }
}

impl FinetuneArgs {
    fn of_training(&self, folder: Option<&RunFolder>) -> TrainArgs {
        TrainArgs::new(folder.map(RunFolder::path), self.overwrite, self.dry_run, &self.adapters, &self.memory)
    }

    /// Refuses a table, and options of tables, for a model that writes.
    fn refuse_table(&self, texts: &Path) -> Result<()> {
        let given = [("`--text`", self.text.is_some()), ("`--target`", self.target.is_some())];
        let option = given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option.to_owned());
        let table = has_extension(texts, TABLES).then(|| format!("`{}`, a table,", shown(texts)));
        match option.or(table) {
            None => Ok(()),
            Some(who) => Err(Error::setting(
                who,
                "needs a model that tells classes, as BERT and MiniLM, but this one writes",
                "name such a model, or teach this one JSON lines: {\"prompt\": \"…\", \"completion\": \"…\"}",
            )),
        }
    }
}

/// Says what is trained on.
fn tell(examples: &Examples, tokenizer: &Tokenizer, terminal: &Terminal) -> Result<()> {
    let Examples { length, train, held_out, texts, divided, .. } = examples;
    let rows = |rows: &Rows| counted(thousands(rows.ids.len() / length), "row");
    terminal.line(format_args!(
        "texts: {} in all; {} of {length} tokens to train on, {} tokens to learn; {} held out",
        thousands(*texts),
        rows(train),
        thousands(train.learned),
        rows(held_out)
    ));
    if *divided > 0 {
        terminal.line(format_args!(
            "{} got a row for each answer: once messages follow, the chat template renders answers otherwise, as without their thoughts",
            counted(thousands(*divided), "conversation")
        ));
    }
    terminal.line(format_args!("the first row, what is learned between « and »:\n{}", first_row(examples, tokenizer)?));
    Ok(())
}

/// Warns of texts, and of answers with a row of their own, that no row has. The model reads rows of `reads` tokens at most.
fn tell_left_out(examples: &Examples, reads: usize, terminal: &Terminal) {
    let Examples {
        most, left_out: LeftOut { count, first_line, longest, unlearned, first_unlearned }, divided, ..
    } = *examples;
    let left_out = |count: usize| {
        let texts = counted(thousands(count), if divided > 0 { "row" } else { "text" });
        format!("{texts} {} left out", if count == 1 { "is" } else { "are" })
    };
    if count > 0 {
        let help = match longest {
            _ if most >= reads => format!("the model reads at most {reads} tokens: divide the texts"),
            _ if longest > reads => {
                format!("`--length {reads}`, the most that the model reads, takes more of them; divide the others")
            }
            _ => format!("`--length {longest}` takes them all"),
        };
        terminal.note(format_args!(
            "warning: {}, longer than {most} tokens: the first is line {first_line}, the longest has {}\n  help: {help}",
            left_out(count),
            thousands(longest),
        ));
    }
    if unlearned > 0 {
        terminal.note(format_args!(
            "warning: {}, with nothing to learn: the first is line {first_unlearned}\n  \
             help: texts and answers must not be empty, and of a conversation one answer needs a weight other than 0",
            left_out(unlearned),
        ));
    }
}

/// The text of the first row, cut where it is long.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of tokens")]
fn first_row(examples: &Examples, tokenizer: &Tokenizer) -> Result<String> {
    let Rows { ids, targets, .. } = &examples.train;
    let is_learned = |at: usize| at > 0 && targets[at - 1] != NOT_LEARNED;
    let last = (0..examples.length).rev().find(|at| is_learned(*at)).unwrap_or(0);
    let mut text = String::new();
    for run in (0..=last).collect::<Vec<_>>().chunk_by(|one, other| is_learned(*one) == is_learned(*other)) {
        let tokens: Vec<u32> = run.iter().map(|at| ids[*at] as u32).collect();
        let part = tokenizer.decode(&tokens)?;
        text += &if is_learned(run[0]) { format!("«{part}»") } else { part };
    }
    let is_cut = text.chars().count() > SHOWN;
    let shown_text = text.chars().take(SHOWN).map(|letter| if letter == '\n' { '⏎' } else { letter });
    Ok(shown(&shown_text.collect::<String>()).to_string() + if is_cut { "…" } else { "" })
}

/// Writes the adapter of the best epoch, and says how good it is.
fn end(folder: &RunFolder, language: &LanguageTable, held_out: Option<&Rows>, terminal: &Terminal) -> Result<()> {
    let Some(best) = folder.model() else { return Ok(()) };
    let files = ModelFiles::open(&language.path)?;
    let adapter = Adapter::of(&Model::load(best)?, language.lora(), &language.path)?;
    let path = folder.adapter();
    write_adapter(&path, files.architecture(), &adapter)?;
    let loss = best_of_log(folder, 0, &Monitor::new("val_loss").mode(Mode::Min))?;
    if let (Some(loss), false) = (loss, terminal.is_quiet()) {
        let bits = held_out.map_or(String::new(), |rows| format!(", {:.3} bits a byte", rows.bits_a_byte(loss)));
        terminal.line(format_args!("on rows that were held out: perplexity {:.2}{bits}", loss.exp()));
    }
    terminal.line(format_args!("adapter in `{}`", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use manyhands::Sequential;
    use manyhands::layers::Dense;
    use manyhands_text::training::{Steps, compile};

    use super::super::{Arguments, Verb};
    use super::*;

    /// The Python package trains by the function, the command by the text.
    #[test]
    fn the_settings_of_a_run_say_what_the_function_gives() -> Result<()> {
        let typed = ["manyhands", "finetune", "m", "t", "--learning-rate", "3e-4", "--seed", "7"];
        let Ok(Arguments { command: Verb::Finetune(args), .. }) = Arguments::try_parse_from(typed) else {
            return Err(Error::setting("the arguments", "need to be read", "report this defect"));
        };
        let model = Sequential::new([4]).add(Dense::new(5)).build(0)?;
        for rows in [1, 11, 400] {
            let train = Rows { ids: vec![0.0; 4 * rows], ..Rows::default() };
            let (held_out, left_out) = (train.clone(), LeftOut::default());
            let examples = Examples { length: 4, most: 4, train, held_out, left_out, texts: 2 * rows, divided: 0 };
            let settings = settings::of_texts(&args, Path::new("m"), Path::new("t"), &examples)?;
            let written = SettingsFile::parse(&settings, "the settings")?.compile(&model, args.seed)?;
            let needed = compile(3e-4, Steps::of(rows, 8, 3), args.seed);
            assert_eq!(format!("{written:?}"), format!("{needed:?}"));
        }
        Ok(())
    }
}
