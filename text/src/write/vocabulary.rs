//! The vocabulary of a folder's `tokenizer.json`, as a GGUF file has it.

use manyhands_engine::shown;
use serde_json::{Map, Value as Json};

use crate::gguf::Value;
use crate::tokenizer::{self, CONTROL, USER_DEFINED};
use crate::{ChatTemplate, Error, ModelFiles, Result, Tokenizer};

/// Kinds of other tokens.
const NORMAL: i64 = 1;
const UNUSED: i64 = 5;

/// Metadata of a folder's tokenizer.
pub(super) fn of(model: &ModelFiles) -> Result<Vec<(String, Value)>> {
    let tokenizer = Tokenizer::of(model)?;
    let json: Json =
        serde_json::from_str(tokenizer.json()).map_err(|error| refuse(&format!("can't be read: {error}")))?;
    let parts = &json["model"];
    let vocabulary = parts["vocab"].as_object().filter(|_| parts["type"] == "BPE");
    let vocabulary = vocabulary.ok_or_else(|| {
        let kind = parts["type"].as_str().unwrap_or("another kind");
        refuse(&format!("needs to be a BPE to be written as GGUF, but is `{}`", shown(kind)))
    })?;
    let split = tokenizer::split_of(&json)
        .ok_or_else(|| refuse("splits texts in a way that has no name in GGUF files here"))?;
    let tokens = tokens(&json, vocabulary, model.architecture().vocabulary)?;
    let merge = |merge: &Json| match merge {
        Json::String(text) => Some(text.clone()),
        pair => Some(format!("{} {}", pair.get(0)?.as_str()?, pair.get(1)?.as_str()?)),
    };
    let merges: Option<Vec<Value>> =
        parts["merges"].as_array().map(|merges| merges.iter().filter_map(merge).map(Value::Text).collect());
    let mut metadata = vec![
        pair("model", Value::Text("gpt2".into())),
        pair("pre", Value::Text(split.into())),
        pair("tokens", Value::Array(tokens.iter().map(|(token, _)| Value::Text(token.clone())).collect())),
        pair("token_type", Value::Array(tokens.iter().map(|(_, kind)| Value::Signed(*kind)).collect())),
        pair("merges", Value::Array(merges.unwrap_or_default())),
    ];
    metadata.extend(special(&tokenizer)?);
    metadata.extend(
        ChatTemplate::source(model)?.map(|template| ("tokenizer.chat_template".to_owned(), Value::Text(template))),
    );
    Ok(metadata)
}

fn pair(key: &str, value: Value) -> (String, Value) {
    (format!("tokenizer.ggml.{key}"), value)
}

fn refuse(problem: &str) -> Error {
    Error::checkpoint(
        "`tokenizer.json`",
        problem,
        "write a Hugging Face folder, and convert it with `convert_hf_to_gguf.py` of llama.cpp",
    )
}

/// Each token of the model's vocabulary, by its number, with its kind.
fn tokens(json: &Json, vocabulary: &Map<String, Json>, rows: usize) -> Result<Vec<(String, i64)>> {
    let mut tokens: Vec<(String, i64)> = (0..rows).map(|id| (format!("[PAD{id}]"), UNUSED)).collect();
    let mut set = |id: Option<u64>, token: &str, kind: i64| {
        let place = id.and_then(|id| tokens.get_mut(usize::try_from(id).ok()?));
        place
            .map(|place| *place = (token.to_owned(), kind))
            .ok_or_else(|| refuse(&format!("has a token behind the model's {rows}")))
    };
    for (token, id) in vocabulary {
        set(id.as_u64(), token, NORMAL)?;
    }
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let kind = if token["special"] == true { CONTROL } else { USER_DEFINED };
        set(token["id"].as_u64(), token["content"].as_str().unwrap_or_default(), kind)?;
    }
    Ok(tokens)
}

/// Numbers of special tokens, and whether a text begins with one.
fn special(tokenizer: &Tokenizer) -> Result<Vec<(String, Value)>> {
    let mut metadata = Vec::new();
    for (name, key) in [
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("pad_token", "padding_token_id"),
    ] {
        let id = tokenizer.named().get(name).and_then(|token| tokenizer.id(token));
        metadata.extend(id.map(|id| pair(key, Value::Unsigned(id.into()))));
    }
    // One more end has a place: the one of an answer, where texts end with another.
    let answer = tokenizer.ends().iter().find(|end| Some(**end) != tokenizer.end());
    metadata.extend(answer.map(|end| pair("eot_token_id", Value::Unsigned((*end).into()))));
    let begins = tokenizer.encode("a", tokenizer::Around::Added)?.ids.first().copied();
    let begin = tokenizer.named().get("bos_token").and_then(|token| tokenizer.id(token));
    metadata.push(pair("add_bos_token", Value::Bool(begin.is_some() && begins == begin)));
    Ok(metadata)
}
