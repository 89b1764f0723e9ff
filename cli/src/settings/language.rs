//! The table `[model.language]`: a language model of others, with factors to train.

#[cfg(feature = "text")]
use std::path::Path;
use std::path::PathBuf;

use clap::ValueEnum;
#[cfg(feature = "text")]
use manyhands::layers::Lora;
use manyhands::{Model, Result};
#[cfg(feature = "text")]
use manyhands_engine::shown::bytes;
#[cfg(feature = "text")]
use manyhands_text::{ModelFiles, Packed};
use serde::Deserialize;

/// A language model from a Hugging Face folder or a GGUF file. All of it is frozen; low-rank factors beside its products are trained.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LanguageTable {
    /// The folder or the GGUF file.
    pub path: PathBuf,
    /// Tokens of a row.
    pub length: usize,
    /// Whether a row holds several texts, each of which sees itself alone: the data have a second input, the number of each token's text.
    #[serde(default)]
    pub join_texts: bool,
    /// Number of classes. The model then tells the class of a text: a new layer of so many units behind the vector of the text is trained,
    /// too. Of models that read in no order, such as MiniLM.
    pub classes: Option<usize>,
    /// Rank of the factors.
    #[serde(default = "rank")]
    pub lora_rank: usize,
    /// Factor of their product, times the rank.
    #[serde(default = "alpha")]
    pub lora_alpha: f32,
    /// Part of the inputs that training drops before the factors, in `[0, 1)`.
    #[serde(default)]
    pub lora_dropout: f32,
    /// Products of each block that get factors, such as `attention.query`; all of them, if not given.
    pub lora_layers: Option<Vec<String>>,
    /// Keep the model's kernels and its table of tokens in so many bits. As 32-bit floats, if not given.
    pub packed: Option<PackedWeights>,
    /// Message or text that the model answers or continues after each epoch, with the likeliest tokens, for the terminal and the report.
    pub sample: Option<String>,
}

/// Bits of frozen weights in memory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum PackedWeights {
    /// `Q8_0`, 0.27 of the floats' bytes. Blocks of a GGUF file in `Q8_0`, `Q4_0` or `Q4_1` stay as they are.
    #[serde(rename = "8")]
    #[value(name = "8")]
    Eight,
    /// `Q4_0`, 0.14 of the floats' bytes. Blocks of a GGUF file in `Q4_0` or `Q4_1` stay as they are.
    #[serde(rename = "4")]
    #[value(name = "4")]
    Four,
    /// Blocks of a GGUF file in `Q8_0`, `Q4_0` or `Q4_1` stay as they are, all else becomes floats: nothing is rounded.
    #[serde(rename = "as-file")]
    AsFile,
}

fn rank() -> usize {
    8
}

fn alpha() -> f32 {
    16.0
}

#[cfg(feature = "text")]
impl LanguageTable {
    /// Settings of the factors.
    pub fn lora(&self) -> Lora {
        Lora::new(self.lora_rank).alpha(self.lora_alpha).dropout(self.lora_dropout)
    }
}

#[cfg(feature = "text")]
impl PackedWeights {
    /// The model's files, with weights that are kept so; as floats, if nothing is given.
    pub fn files(choice: Option<Self>, path: &Path) -> Result<ModelFiles> {
        let files = ModelFiles::open(path)?;
        match choice {
            Some(choice) => files.packed(choice.into()),
            None => Ok(files),
        }
    }
}

#[cfg(feature = "text")]
impl From<PackedWeights> for Packed {
    fn from(choice: PackedWeights) -> Self {
        match choice {
            PackedWeights::Eight => Self::Eight,
            PackedWeights::Four => Self::Four,
            PackedWeights::AsFile => Self::AsFile,
        }
    }
}

#[cfg(feature = "text")]
impl LanguageTable {
    /// Part of the memory that the model's weights take, in words, and what else they could take.
    pub fn weights(&self) -> Result<String> {
        let files = ModelFiles::open(&self.path)?;
        let of = |choice: Option<PackedWeights>| bytes(files.weight_bytes(choice.map(Into::into)));
        let [floats, eight, four] = [None, Some(PackedWeights::Eight), Some(PackedWeights::Four)].map(of);
        let own = format!("{} of this memory are the model's weights", of(self.packed));
        Ok(match self.packed {
            Some(_) => format!("{own}, packed; as floats they would be {floats}"),
            None => format!("{own}; `--packed 8` keeps them in {eight}, `--packed 4` in {four}"),
        })
    }

    /// The model, with its factors filled from the seed.
    pub fn build(&self, seed: u64) -> Result<Model> {
        use manyhands_text::network::{self, Factors, Output};

        let files = PackedWeights::files(self.packed, &self.path)?;
        let output = match self.classes {
            Some(count) => {
                self.check_classes()?;
                Output::Classes { count, seed }
            }
            None if self.join_texts => Output::LogitsByDocument,
            None => Output::Logits,
        };
        let mut model = network::build(&files, self.length, output)?;
        let setting = "`lora_layers` of `[model.language]`";
        let factors = Factors { lora: self.lora(), parts: self.lora_layers.clone(), setting };
        factors.add(&mut model, files.architecture(), seed)?;
        Ok(model)
    }

    /// Refuses settings of models that write.
    fn check_classes(&self) -> Result<()> {
        let given = [("join_texts", self.join_texts), ("sample", self.sample.is_some())];
        let Some((setting, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
        let who = format!("`{setting}` of `[model.language]`");
        let problem = "needs a model that writes, but with `classes` it tells classes";
        Err(manyhands::Error::setting(who, problem, "leave one of them out"))
    }
}

#[cfg(not(feature = "text"))]
impl LanguageTable {
    /// Language models are not in this build.
    pub fn weights(&self) -> Result<String> {
        self.build(0).map(|_| String::new())
    }

    /// Language models are not in this build.
    pub fn build(&self, _: u64) -> Result<Model> {
        let problem = "needs a program with language models, but this one is built without them";
        Err(manyhands::Error::setting(
            "`[model.language]`",
            problem,
            "build it with the feature `text`, which is on by default",
        ))
    }
}
