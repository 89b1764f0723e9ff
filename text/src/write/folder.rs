//! Hugging Face folders with a whole model, such as one with its adapter merged.

use std::path::Path;

use manyhands_engine::files::{self, FileKind};
use serde_json::{Value, json};

use super::stored::{Form, stored, write_safetensors};
use super::{Source, prepare, write_json};
use crate::encoding::Encoding;
use crate::tokenizer::optional_json;
use crate::{ChatTemplate, Error, ModelFiles, Result, Tokenizer};

const WEIGHTS: &str = "model.safetensors";
/// Files beside the weights that stay as they are.
const BESIDE: [&str; 9] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
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
    let (mut config, texts) = match model.folder() {
        Some(from) => (optional_json(&from.path().join("config.json"))?, copied(from.path())?),
        None => made(model)?,
    };
    if let Some(settings) = config.as_object_mut() {
        settings.remove("torch_dtype");
        settings.insert("dtype".into(), kind.into());
    }
    prepare(folder, WEIGHTS)?;
    let tensors = stored(model, Form::Folder, encoding);
    write_safetensors(&folder.join(WEIGHTS), "model", &tensors, source)?;
    write_json(&folder.join("config.json"), &config)?;
    for (name, text) in texts {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|error| Error::writing(parent, error))?;
        files::write(&path, FileKind::ModelText, |out| out.write_all(text.as_bytes()))?;
    }
    Ok(())
}

/// Names and contents of the files beside the weights.
type Texts = Vec<(&'static str, String)>;

/// The texts of another folder.
fn copied(from: &Path) -> Result<Texts> {
    let names = BESIDE.into_iter().filter(|name| from.join(name).exists());
    names.map(|name| Ok((name, files::read_text(&from.join(name))?))).collect()
}

/// The settings of a GGUF file's network with its special tokens, and the texts of its tokenizer.
fn made(model: &ModelFiles) -> Result<(Value, Texts)> {
    let mut network = model.architecture().to_config()?;
    let tokenizer = Tokenizer::of(model)?;
    let mut config = json!({"tokenizer_class": "PreTrainedTokenizerFast"});
    for (name, token) in tokenizer.named() {
        config[name] = token.clone().into();
    }
    // Without them, transformers takes the numbers of Llama's own vocabulary.
    for (key, name) in [("bos_token_id", "bos_token"), ("pad_token_id", "pad_token")] {
        network[key] = tokenizer.named().get(name).and_then(|token| tokenizer.id(token)).into();
    }
    network["eos_token_id"] = match tokenizer.ends() {
        [] => Value::Null,
        [end] => (*end).into(),
        ends => ends.into(),
    };
    let mut texts =
        vec![("tokenizer.json", tokenizer.json().to_owned()), ("tokenizer_config.json", format!("{config:#}"))];
    texts.extend(ChatTemplate::source(model)?.map(|template| ("chat_template.jinja", template)));
    Ok((network, texts))
}
