//! The vector of a text, from those of its tokens.

use manyhands_engine::shown;
use serde_json::Value;

use crate::tokenizer::optional_json;
use crate::{Error, ModelFiles, Result};

/// Way from vectors of tokens to that of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    /// The mean over all tokens that are no padding.
    Mean,
    /// The vector of the first token, `[CLS]`.
    First,
}

/// Folder of sentence-transformers with the settings.
const SETTINGS: &str = "1_Pooling/config.json";

impl Pooling {
    /// The pooling of a folder of sentence-transformers; the mean for other models.
    ///
    /// # Errors
    /// If the settings are damaged, or ask for another pooling.
    pub fn of(files: &ModelFiles) -> Result<Self> {
        let Some(folder) = files.folder() else { return Ok(Self::Mean) };
        let path = folder.path().join(SETTINGS);
        let settings = optional_json(&path)?;
        if settings.is_null() {
            return Ok(Self::Mean);
        }
        let modes = settings.as_object().into_iter().flatten();
        let modes: Vec<&str> = modes
            .filter(|(name, is_on)| name.starts_with("pooling_mode_") && **is_on == true)
            .map(|(name, _)| name.as_str())
            .collect();
        let named = settings.get("pooling_mode").and_then(Value::as_str);
        match (&modes[..], named) {
            (["pooling_mode_mean_tokens"], None) | ([], Some("mean")) => Ok(Self::Mean),
            (["pooling_mode_cls_token"], None) | ([], Some("cls")) => Ok(Self::First),
            _ => {
                let found = named.into_iter().chain(modes).collect::<Vec<_>>().join("`, `");
                let problem =
                    format!("needs the mean of the tokens or the first of them, but asks for `{}`", shown(&found));
                Err(Error::checkpoint(
                    format!("`{}`", shown(&path)),
                    problem,
                    "take a model with one of these, such as MiniLM",
                ))
            }
        }
    }
}
