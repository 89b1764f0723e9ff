//! Hugging Face folders with a whole model, such as one with its adapter merged.

use std::path::Path;

use manyhands_engine::files::{self, FileKind};
use serde_json::{Value, json};

use super::stored::{Form, stored, write_safetensors};
use super::{Source, prepare, write_json};
use crate::encoding::Encoding;
use crate::tokenizer::optional_json;
use crate::{Error, ModelFiles, Result, Tokenizer};

const WEIGHTS: &str = "model.safetensors";
/// Files beside the weights that stay as they are.
const BESIDE: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
];

/// Writes a model as transformers reads it, with the tensors that `source` gives, as 32-bit or 16-bit floats.
///
/// The network, tokenizer and chat template are those of `model`: a folder's files are copied, a GGUF file's are made anew.
///
/// # Errors
/// If the folder has other files, a tensor has another shape, the encoding is packed, or a file can't be written.
pub fn write_folder(folder: &Path, model: &ModelFiles, encoding: Encoding, source: &mut Source) -> Result<()> {
    let kind = match encoding {
        Encoding::F32 => "float32",
        Encoding::F16 => "float16",
        Encoding::Bf16 => "bfloat16",
        other => {
            let problem = format!("needs F32, F16 or BF16, but was asked for {}", other.name());
            return Err(Error::setting("a Hugging Face folder", problem, "write a GGUF file for packed weights"));
        }
    };
    let mut config = match model.folder() {
        Some(from) => optional_json(&from.path().join("config.json"))?,
        None => model.architecture().to_config()?,
    };
    if let Some(settings) = config.as_object_mut() {
        settings.remove("torch_dtype");
        settings.insert("dtype".into(), kind.into());
    }
    prepare(folder, WEIGHTS)?;
    let tensors = stored(model, Form::Folder, encoding);
    write_safetensors(&folder.join(WEIGHTS), "model", &tensors, source)?;
    write_json(&folder.join("config.json"), &config)?;
    match model.folder() {
        Some(from) => copy_texts(from.path(), folder),
        None => write_tokenizer(model, folder),
    }
}

fn copy_texts(from: &Path, to: &Path) -> Result<()> {
    for name in BESIDE.into_iter().filter(|name| from.join(name).exists()) {
        let text = files::read_text(&from.join(name))?;
        files::write(&to.join(name), FileKind::ModelText, |out| out.write_all(text.as_bytes()))?;
    }
    Ok(())
}

fn write_tokenizer(model: &ModelFiles, folder: &Path) -> Result<()> {
    let tokenizer = Tokenizer::of(model)?;
    let json: Value = serde_json::from_str(tokenizer.json()).unwrap_or_default();
    write_json(&folder.join("tokenizer.json"), &json)?;
    let mut config = json!({"tokenizer_class": "PreTrainedTokenizerFast"});
    for (name, token) in tokenizer.named() {
        config[name] = token.clone().into();
    }
    if let Some(template) = model.gguf().map(|file| file.text("tokenizer.chat_template")).transpose()?.flatten() {
        config["chat_template"] = template.into();
    }
    write_json(&folder.join("tokenizer_config.json"), &config)
}
