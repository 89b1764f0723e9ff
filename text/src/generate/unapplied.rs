//! Settings of a model's `generation_config.json` that are not applied.

use manyhands_engine::shown;
use serde_json::Value;

use crate::tokenizer::optional_json;
use crate::{ModelFiles, Result};

/// Settings without an option here, by which `generate` of transformers changes the logits, with the number that changes nothing.
const UNAPPLIED: [(&str, Option<f64>); 16] = [
    ("bad_words_ids", None),
    ("begin_suppress_tokens", None),
    ("epsilon_cutoff", Some(0.0)),
    ("eta_cutoff", Some(0.0)),
    ("exponential_decay_length_penalty", None),
    ("forced_bos_token_id", None),
    ("forced_eos_token_id", None),
    ("guidance_scale", Some(1.0)),
    ("min_length", Some(0.0)),
    ("min_new_tokens", Some(0.0)),
    ("min_p", Some(0.0)),
    ("no_repeat_ngram_size", Some(0.0)),
    ("num_beams", Some(1.0)),
    ("repetition_penalty", Some(1.0)),
    ("suppress_tokens", None),
    ("typical_p", Some(1.0)),
];

/// Warns of what the model's `generation_config.json` sets, transformers applies, and [`generate`](super::generate) leaves out.
///
/// # Errors
/// If the file is damaged.
pub fn warn_of_unapplied(files: &ModelFiles) -> Result<()> {
    let Some(folder) = files.folder() else { return Ok(()) };
    let path = folder.path().join("generation_config.json");
    let settings = optional_json(&path)?;
    let changes = |value: &Value, neutral: Option<f64>| match value {
        Value::Null => false,
        Value::Array(values) => !values.is_empty(),
        value => neutral.is_none() || value.as_f64() != neutral,
    };
    for (name, neutral) in UNAPPLIED {
        if let Some(value) = settings.get(name).filter(|value| changes(value, neutral)) {
            let (path, value) = (shown(&path).to_string(), shown(&value.to_string()).to_string());
            log::warn!("`{path}` sets `{name}` to {value}, which transformers applies, and which is left out here");
        }
    }
    Ok(())
}
