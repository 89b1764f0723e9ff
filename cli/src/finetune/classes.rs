//! Models that tell the class of a text: BERT and `MiniLM`, on a table.

use std::path::Path;
use std::sync::Arc;

use manyhands::data::{Batch, Dataset};
use manyhands::schema::few;
use manyhands::{Error, Result};
use manyhands_engine::shown::{shown, thousands};
use manyhands_text::{ModelFiles, Tokenizer, network};
use serde_json::Value;

use super::super::init::{TextColumns, data_of, has_extension, quoted_path};
use super::super::settings::SettingsFile;
use super::super::terminal::Terminal;
use super::FinetuneArgs;
use super::settings::{Parts, of_parts};

/// Part of the texts that are not cut.
const WHOLE: f64 = 0.95;
/// Rows have a multiple of so many tokens.
const STEP: usize = 16;
/// Rows that are looked at together.
const AT_ONCE: usize = 1024;

/// Settings for a table of texts and their classes. Says what is trained on.
pub(super) fn settings(
    args: &FinetuneArgs,
    files: &ModelFiles,
    (model, table): (&Path, &Path),
    terminal: &Terminal,
) -> Result<SettingsFile> {
    refuse_writing(args)?;
    refuse_texts(model, table)?;
    let columns = TextColumns::of(table, args.text.as_deref(), args.target.as_deref())?;
    let data = |length: usize| -> Result<String> {
        Ok(format!(
            "[data]\ntype = \"csv\"\ntrain = {}\ntarget = {}\ntarget_kind = \"classes\"\n\n\
             [[data.inputs]]\nname = \"{}\"\ncolumns = [{}]\noutput_sequence_length = {length}\ntokenizer = {}\n",
            quoted_path(table)?,
            columns.target,
            network::TOKENS,
            columns.text,
            quoted_path(&model.join("tokenizer.json"))?,
        ))
    };
    let most = files.architecture().positions;
    let asked = network::row_length(files.architecture(), "`--length`", args.length, most)?;
    let rows = data_of(&data(most)?)?.open()?.train;
    refuse_other_letters(files, &model.join("tokenizer.json"))?;
    let classes = rows.schema().classes(0).to_vec();
    let lengths = lengths(&rows, most)?;
    let wanted = if args.length.is_some() { lengths.last().copied().unwrap_or(1) } else { usual(&lengths) };
    let length = wanted.min(asked);
    if !terminal.is_quiet() {
        let cut = lengths.iter().filter(|tokens| **tokens > length).count();
        let cut = if cut > 0 { format!(", {} of them cut", thousands(cut)) } else { String::new() };
        terminal.line(format_args!(
            "texts: {}, of {length} tokens at most{cut}; classes: {}",
            thousands(rows.len()),
            few(&classes)
        ));
    }
    let has_validation = args.validation > 0.0;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a part of a count"
    )]
    let trained = (rows.len() as f64 * (1.0 - args.validation)).ceil() as usize;
    let parts = Parts {
        data: data(length)?,
        length,
        output: format!("classes = {}\n", classes.len()),
        loss: String::new(),
        rows: trained,
        validation: if has_validation { format!("{:?}", args.validation) } else { "\"none\"".into() },
        metric: "accuracy",
        usual: (32, 2e-3),
    };
    SettingsFile::parse(&of_parts(args, model, &parts)?, "the settings of `finetune`")
}

/// Refuses options of models that write.
fn refuse_writing(args: &FinetuneArgs) -> Result<()> {
    let given = [("`--join-texts`", args.join_texts), ("`--sample`", args.sample.is_some())];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Error::setting(
            option,
            "needs a model that writes, but this one tells classes",
            "leave it out, or name a model such as SmolLM2",
        )),
    }
}

/// Refuses texts that only a model that writes can learn.
fn refuse_texts(model: &Path, texts: &Path) -> Result<()> {
    if !texts.is_dir() && !has_extension(texts, &["json", "jsonl", "txt", "md"]) {
        return Ok(());
    }
    let problem = format!("needs to be a table of texts and their classes, which `{}` learns to tell", shown(model));
    let help =
        "write it as a table with a column of texts and one of classes, or name a model that writes, such as SmolLM2";
    Err(Error::data(format!("`{}`", shown(texts)), problem, help))
}

/// Refuses a `tokenizer.json` whose letters transformers would take otherwise: its class for BERT goes by `tokenizer_config.json`.
fn refuse_other_letters(files: &ModelFiles, path: &Path) -> Result<()> {
    let letters = |text: &str| -> Option<Value> {
        let mut letters = serde_json::from_str::<Value>(text).ok()?.get("normalizer")?.clone();
        // Where nothing is said, accents go with capital letters.
        if letters.is_object() && letters["strip_accents"].is_null() {
            letters["strip_accents"] = letters["lowercase"].clone();
        }
        Some(letters)
    };
    if letters(Tokenizer::of(files)?.json()) == letters(&manyhands_engine::files::read_text(path)?) {
        return Ok(());
    }
    Err(Error::checkpoint(
        format!("`{}`", shown(path)),
        "treats capital letters or accents otherwise than `tokenizer_config.json`, by which transformers goes",
        "set `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` there as the model was trained, or `tokenizer_class` to \
         `TokenizersBackend`, for which `tokenizer.json` counts",
    ))
}

/// Tokens of each text, sorted, from rows of `most` tokens.
fn lengths(rows: &Arc<dyn Dataset>, most: usize) -> Result<Vec<usize>> {
    let all: Vec<usize> = (0..rows.len()).collect();
    let mut lengths = Vec::with_capacity(all.len());
    for some in all.chunks(AT_ONCE) {
        let tokens = Batch::fetch(rows, some)?.inputs.swap_remove(0);
        lengths.extend(
            tokens.chunks_exact(most).map(|row| row.iter().rposition(|id| *id != 0.0).map_or(0, |last| last + 1)),
        );
    }
    lengths.sort_unstable();
    Ok(lengths)
}

/// Tokens of the longest texts but a few.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an index below the number of rows"
)]
fn usual(lengths: &[usize]) -> usize {
    let at = ((lengths.len() as f64 * WHOLE) as usize).min(lengths.len().saturating_sub(1));
    lengths.get(at).copied().unwrap_or(1).next_multiple_of(STEP)
}
