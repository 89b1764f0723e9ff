//! The settings file of a run, to be changed by users.

use std::path::Path;

use clap::ValueEnum as _;
use manyhands::Result;
use manyhands_text::Examples;
use manyhands_text::examples::NOT_LEARNED;
use manyhands_text::training::{Steps, check_learning_rate};

use super::super::init::quoted_path;
use super::FinetuneArgs;

/// Parts of the file in which runs differ.
pub(super) struct Parts {
    /// `[data]`.
    pub data: String,
    /// Tokens of a row.
    pub length: usize,
    /// Lines of `[model.language]` that say what the model gives.
    pub output: String,
    /// Lines of `[loss]` behind its type.
    pub loss: String,
    /// Rows to train on.
    pub rows: usize,
    /// Value of `validation`.
    pub validation: String,
    /// The metric.
    pub metric: &'static str,
    /// Rows of a batch, and the learning rate, where no option gives them.
    pub usual: (usize, f32),
}

/// Settings for a model that writes: those of [`manyhands_text::training::compile`].
pub(super) fn of_texts(args: &FinetuneArgs, model: &Path, texts: &Path, examples: &Examples) -> Result<String> {
    let sample = args.sample.as_ref().map(|text| format!("sample = {}\n", toml::Value::from(text.as_str())));
    let joined = if args.join_texts { "join_texts = true\n" } else { "" };
    let parts = Parts {
        data: format!("[data]\ntype = \"safetensors\"\nfile = {}\n", quoted_path(texts)?),
        length: examples.length,
        output: format!("{joined}{}", sample.unwrap_or_default()),
        loss: format!("ignore_class = {NOT_LEARNED:.0}\n"),
        rows: examples.train.ids.len() / examples.length,
        validation: if examples.held_out.ids.is_empty() { "\"none\"" } else { "\"test\"" }.into(),
        metric: "perplexity",
        usual: (8, 2e-4),
    };
    of_parts(args, model, &parts)
}

/// The whole file.
pub(super) fn of_parts(args: &FinetuneArgs, model: &Path, parts: &Parts) -> Result<String> {
    let Parts { data, length, output, loss, rows, validation, metric, usual } = parts;
    let (batch_size, learning_rate) = (args.batch_size.unwrap_or(usual.0), args.learning_rate.unwrap_or(usual.1));
    check_learning_rate("`--learning-rate`", learning_rate, usual.1)?;
    let epochs = args.epochs.unwrap_or(3);
    let Steps { warmup, decay } = Steps::of(*rows, batch_size, epochs);
    let layers = args.layers.as_ref().map(|layers| format!("lora_layers = {layers:?}\n")).unwrap_or_default();
    let packed = args.packed.and_then(|packed| packed.to_possible_value());
    let packed = packed.map(|packed| format!("packed = \"{}\"\n", packed.get_name())).unwrap_or_default();
    let recompute = if args.recompute { "recompute = true\n" } else { "" };
    let precision = if args.mixed_float16 { "precision = \"mixed_float16\"\n" } else { "" };
    let stages = if args.stages { "placement = \"auto\"\n" } else { "" };
    Ok(format!(
        "{data}\n[model.language]\npath = {}\nlength = {length}\n{output}lora_rank = {}\nlora_alpha = {:?}\nlora_dropout = {:?}\n\
         {layers}{packed}\n[loss]\ntype = \"SparseCategoricalCrossentropy\"\n{loss}\n\
         # As PyTorch's AdamW.\n[optimizer]\ntype = \"AdamW\"\nlearning_rate = {learning_rate:?}\nweight_decay = 0.0\nepsilon = 1e-8\n\
         outer_epsilon = true\n\n[schedule]\ntype = \"CosineDecay\"\ndecay_steps = {decay}\nwarmup_steps = {warmup}\n\n\
         [training]\nepochs = {epochs}\nbatch_size = {batch_size}\nseed = {}\nclip_norm = 1.0\nvalidation = {validation}\n\
         metrics = [\"{metric}\"]\n{precision}{recompute}{stages}",
        quoted_path(model)?,
        args.rank,
        args.alpha,
        args.dropout,
        args.seed,
    ))
}
