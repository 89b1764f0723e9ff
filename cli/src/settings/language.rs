//! The table `[model.language]`: a language model of others, with factors to train.

use std::path::PathBuf;

#[cfg(feature = "text")]
use manyhands::layers::Lora;
use manyhands::{Model, Result};
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
impl LanguageTable {
    /// The model, with its factors filled from the seed.
    pub fn build(&self, seed: u64) -> Result<Model> {
        use manyhands_text::ModelFiles;
        use manyhands_text::network::{self, Factors, Output};

        let files = ModelFiles::open(&self.path)?;
        let mut model = network::build(&files, self.length, Output::Logits)?;
        let setting = "`lora_layers` of `[model.language]`";
        let factors = Factors { lora: self.lora(), parts: self.lora_layers.clone(), setting };
        factors.add(&mut model, files.architecture(), seed)?;
        Ok(model)
    }
}

#[cfg(not(feature = "text"))]
impl LanguageTable {
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
