//! The network of a language model, as a model of `manyhands` with the weights of its files.

// Files: `graph.rs`: the layers; `rotary.rs`: the one of rotary positions; `pooling.rs`: the vector of a text; `fill.rs`: weights;
// `cached.rs`: networks that keep keys and values.

mod cached;
mod fill;
mod graph;
mod pooling;
mod rotary;

pub use cached::{beginning, next};

use manyhands::Model;
use manyhands::layers::Lora;
use manyhands_engine::{names, shown};

use self::pooling::Pooling;
use crate::architecture::{Architecture, Family, Positions};
use crate::{Error, ModelFiles, Result};

/// Name of the input with the tokens' numbers, `[length]`.
pub const TOKENS: &str = "tokens";
/// Name of the input with the tokens' types, `[length]`, of networks that have them: 0 for the first sentence, 1 for the second.
pub const TOKEN_TYPES: &str = "types";
/// Name of the input with 1 for a token and 0 for padding, `[length]`, of networks that read in no order.
pub const MASK: &str = "mask";
/// Name of the input with 1 for a place that blocks with a window see, `[window]`, of networks that read one token after the other.
pub const WINDOW_MASK: &str = "window_mask";

/// Name of the input with the number of each token's text within its row, `[length]`, of networks for rows of several texts.
pub const DOCUMENTS: &str = "documents";
/// Name of the input with a token's position, `[1]`, of networks that read one token after the other and have a table of positions.
pub const POSITION: &str = "position";

/// Parts of a network that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A number for each word of the vocabulary at each position, `[length, vocabulary]`: of networks that read in order.
    Logits,
    /// Logits of rows that hold several texts: a token sees those of its own text alone. Of networks with rotary positions, which count
    /// differences of positions alone.
    LogitsByDocument,
    /// The vector at each position, behind the last normalization, `[length, width]`.
    Vectors,
    /// The mean of the vectors of all tokens that are no padding, `[width]`: of networks that read in no order.
    MeanVector,
    /// Logits of classes, `[classes]`: a product behind the vector of the text, of networks that read in no order. Tokens are the one
    /// input; zeros behind them are padding.
    Classes {
        /// Number of classes.
        count: usize,
        /// Seed of the product's first weights.
        seed: u64,
    },
}

/// Name of the layer that gives the logits of classes.
pub const CLASSIFIER: &str = "classifier";

/// Builds a language model for rows of `length` tokens, with the weights of its files.
///
/// Layers have the names of the files' tensors here: `blocks.3.attention.query` has `kernel` and perhaps `bias`. All can be trained, but
/// those that the files keep [packed](ModelFiles::packed), which are frozen.
///
/// The vector of a text, behind which its classes are told, is that of sentence-transformers before it is brought to length 1: the mean
/// of the tokens, or the vector of the first, as `1_Pooling/config.json` says.
///
/// # Errors
/// If the length is 0 or above the network's positions, the network has no such output, or a file can't be read.
pub fn build(files: &ModelFiles, length: usize, output: Output) -> Result<Model> {
    let architecture = files.architecture();
    check(architecture, length, output)?;
    let pooling = match output {
        Output::Classes { .. } => Pooling::of(files)?,
        _ => Pooling::Mean,
    };
    let mut model = graph::build(architecture, &files.formats(), length, (output, pooling))?;
    fill::fill(&mut model, files)?;
    Ok(model)
}

/// Names of the products of a block, such as `attention.query`, that low-rank adaptation changes by default: all of them. Files of GPT-2
/// join query, key and value, so an adapter for PEFT can't have them apart, and leaves them out.
pub fn linear_parts(architecture: &Architecture) -> Vec<&'static str> {
    let is_joined = |part: &str| ["attention.query", "attention.key", "attention.value"].contains(&part);
    let parts = graph::linear_parts(architecture).into_iter();
    parts.filter(|part| architecture.family != Family::Gpt2 || !is_joined(part)).collect()
}

/// Names of the layers with these parts, in all blocks.
pub fn layers_of(architecture: &Architecture, parts: &[&str]) -> Vec<String> {
    let of_block = |block: usize| parts.iter().map(move |part| format!("blocks.{block}.{part}"));
    (0..architecture.blocks).flat_map(of_block).collect()
}

/// Freezes a language model, with trainable factors of low rank beside the kernels of some layers: all else, biases too, stays as it is,
/// as PEFT's `LoraConfig` has it. Only the layer of classes, which is new, is trained as a whole.
///
/// # Errors
/// As [`Model::enable_lora`].
pub fn enable_lora<'a>(
    model: &mut Model,
    layers: impl IntoIterator<Item = &'a str>,
    lora: Lora,
    seed: u64,
) -> Result<()> {
    let layers: Vec<&str> = layers.into_iter().collect();
    model.enable_lora(layers.iter().copied(), lora.frozen_bias(), seed)?;
    let classifier = model.is_trainable(CLASSIFIER).map(|_| CLASSIFIER);
    model.freeze_all_but(layers.into_iter().chain(classifier))
}

/// Factors of low rank that are added to a model.
#[derive(Clone, Debug)]
pub struct Factors {
    /// Their settings.
    pub lora: Lora,
    /// Products of each block that get factors, such as `attention.query`; those of [`linear_parts`] if it is `None`.
    pub parts: Option<Vec<String>>,
    /// Name of the setting `parts` in errors.
    pub setting: &'static str,
}

impl Factors {
    /// Adds the factors to a model that [`build`] made, filled from a seed, and freezes all else.
    ///
    /// # Errors
    /// As [`check`](Self::check), or [`Model::enable_lora`].
    pub fn add(&self, model: &mut Model, architecture: &Architecture, seed: u64) -> Result<()> {
        let layers = layers_of(architecture, &self.check(architecture)?);
        enable_lora(model, layers.iter().map(String::as_str), self.lora, seed)
    }

    /// The products that get factors.
    ///
    /// # Errors
    /// If a product is named that the network can't adapt, or none.
    pub fn check(&self, architecture: &Architecture) -> Result<Vec<&str>> {
        let known = linear_parts(architecture);
        let refuse = |problem: &str, help: &str| Err(Error::setting(self.setting, problem, help));
        let Some(wanted) = &self.parts else { return Ok(known) };
        match wanted.iter().find(|part| !known.contains(&part.as_str())) {
            None if !wanted.is_empty() => Ok(wanted.iter().map(String::as_str).collect()),
            None => refuse("needs a layer at least, but names none", "leave it out: all are trained"),
            Some(part) if graph::linear_parts(architecture).contains(&part.as_str()) => {
                let problem = format!(
                    "names `{part}`, which GPT-2 joins with others in `c_attn`: PEFT's one factor for all can't be had by parts"
                );
                refuse(&problem, &format!("name others of {}, or leave it out for all of them", known.join(", ")))
            }
            Some(part) => {
                let problem = format!("names `{}`, which can't have factors in this model", shown(part));
                refuse(&problem, &names::help(part, "it has", &known))
            }
        }
    }
}

/// Most tokens of a row: as many as are asked for, else the usual number as far as the network reads it. `who` names the setting.
///
/// # Errors
/// If more are asked for than the network reads.
pub fn row_length(architecture: &Architecture, who: &str, asked: Option<usize>, usual: usize) -> Result<usize> {
    let most = architecture.positions;
    match asked {
        None => Ok(usual.min(most)),
        Some(asked) if asked <= most => Ok(asked),
        Some(asked) => {
            let problem =
                format!("needs to be at most {most}, the tokens that the model reads at once, but is {asked}");
            Err(Error::setting(who, problem, format!("set it to {most} or less, or leave it out")))
        }
    }
}

fn check(architecture: &Architecture, length: usize, output: Output) -> Result<()> {
    let refuse = |problem: String, help: String| Err(Error::setting("the language model", problem, help));
    let most = architecture.positions;
    if !(1..=most).contains(&length) {
        let problem = format!("needs rows of 1 to {most} tokens, for which it was trained, but got {length}");
        return refuse(problem, "set a shorter length".into());
    }
    match output {
        Output::LogitsByDocument if architecture.position == Positions::Learned => {
            let problem = "can't tell several texts of a row apart, since its vectors of positions begin with the row";
            refuse(problem.into(), "give each text a row of its own".into())
        }
        Output::Logits | Output::LogitsByDocument if !architecture.causal => {
            let help = "ask for its vectors, or let it learn the classes of texts by `manyhands finetune`";
            refuse("needs to read in order to give words, but reads in none".into(), help.into())
        }
        Output::MeanVector | Output::Classes { .. } if architecture.causal => refuse(
            "needs to read in no order to give the vector of a text, but reads in order".into(),
            "take a model as MiniLM".into(),
        ),
        _ => Ok(()),
    }
}
