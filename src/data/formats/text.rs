//! Texts for a language model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DataConfig, DataFormat, Inputs, check_regular};
use crate::data::Aside;
use crate::data::{DataPair, Texts, Windows};
use crate::schema::{Format, Schema, Text};
use crate::vocabulary::{TokenSettings, Vocabulary};
use crate::{Error, Result, shown};

/// Texts for a language model: a row is a window of tokens, its target the tokens that follow each of them.
///
/// ```toml
/// type = "text"
/// train = "books"                    # a text file, or a folder of `.txt` files
/// sequence_length = 128
/// tokens = { split = "character" }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    /// Training text: a file, or a folder whose `.txt` files are read in the order of their names.
    pub train: PathBuf,
    /// Test text.
    pub test: Option<PathBuf>,
    /// Tokens of a row.
    pub sequence_length: usize,
    /// Tokens from the start of a row to that of the next; by default there is no gap and no overlap.
    pub sequence_stride: Option<usize>,
    /// Settings of the tokens that the text is split into.
    #[serde(default)]
    pub tokens: TokenSettings,
}

impl TextConfig {
    fn windows(&self) -> Result<Windows> {
        Windows::new(self.sequence_length)?.stride(self.sequence_stride.unwrap_or(self.sequence_length))
    }
}

impl DataFormat for TextConfig {
    /// With the vocabulary of the schema, or else with that of the training text.
    fn open(&self, trained: Option<&Schema>, _: Option<Aside>) -> Result<DataPair> {
        if trained.is_none() {
            check_regular(self)?;
        }
        let train = Texts::read(&self.train)?;
        let texts = || train.iter().map(String::as_str);
        let known = trained.and_then(|schema| schema.inputs.first()?.text.as_ref());
        let vocabulary = known.map_or_else(|| Vocabulary::adapt(self.tokens, texts()), |text| text.vocabulary.clone());
        let windows = self.windows()?;
        let open = |texts: Vec<String>, path: &Path| {
            Texts::new(vocabulary.clone(), texts, windows)
                .map_err(|error| Error::data(format!("`{}`", shown(path)), error.problem(), error.help()))
        };
        let test = self.test.as_deref().map(|test| open(Texts::read(test)?, test)).transpose()?;
        DataPair::of((open(train, &self.train)?, test))
    }

    fn open_inputs(&self, path: &Path, trained: Option<&Schema>) -> Result<Option<Inputs>> {
        let trained = match trained.filter(|trained| matches!(trained.format, Format::Text { .. })) {
            Some(trained) => trained.clone(),
            None => self.open(None, None)?.train.schema(),
        };
        let Text { output_sequence_length, vocabulary } = text_of(&trained)?.clone();
        let windows = Windows::new(output_sequence_length)?;
        let dataset = Arc::new(Texts::without_targets(vocabulary, Texts::read(path)?, windows)?);
        Ok(Some(Inputs { dataset, trained, names: None }))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        [&mut self.train].into_iter().chain(&mut self.test).collect()
    }
}

/// Text at a path, cut as the one that a model was trained on.
pub(super) fn of_schema(trained: &Schema, path: &Path) -> Result<Option<DataConfig>> {
    let Format::Text { sequence_stride } = trained.format else { return Ok(None) };
    let text = text_of(trained)?;
    Ok(Some(DataConfig::Text(TextConfig {
        train: path.to_path_buf(),
        test: None,
        sequence_length: text.output_sequence_length,
        sequence_stride: Some(sequence_stride),
        tokens: text.vocabulary.settings(),
    })))
}

/// The text that a model was trained on.
fn text_of(trained: &Schema) -> Result<&Text> {
    let text = trained.inputs.first().and_then(|field| field.text.as_ref());
    text.ok_or_else(|| Error::data("the model's text", "needs a vocabulary, but has none", "the model file is damaged"))
}
