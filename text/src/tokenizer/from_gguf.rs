//! The vocabulary of a GGUF file, as the `tokenizer.json` that it was made from.

use std::collections::BTreeMap;

use manyhands_engine::shown;
use serde_json::{Value as Json, json};

use super::pieces::Manner;
use crate::gguf::{Gguf, Value};
use crate::{Error, Result};

/// The parts of a tokenizer.
pub(super) struct Vocabulary {
    pub(super) json: Json,
    pub(super) named: BTreeMap<String, String>,
    pub(super) ends: Vec<u32>,
}

/// Splits of a text into words, by the names of `tokenizer.ggml.pre`.
///
/// **Source**: `convert_hf_to_gguf_update.py` and `llama-vocab.cpp` of llama.cpp, `tokenizer.json` of the models.
const SPLITS: [&str; 4] = ["gpt-2", "llama-bpe", "qwen2", "smollm"];

/// The words of Llama 3 and Qwen 2, but for the digits in the middle.
const WORDS: [&str; 2] =
    [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|", r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"];

const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";

/// Kinds of tokens in `tokenizer.ggml.token_type`.
pub(crate) const CONTROL: i64 = 3;
pub(crate) const USER_DEFINED: i64 = 4;

/// Parts of a tokenizer that each kind of vocabulary has of its own.
struct Parts {
    /// Model, normalizer, splits and decoder of a `tokenizer.json`.
    json: Json,
    tokens: Vec<String>,
    /// Tokens that are special whatever their kind.
    special: &'static [&'static str],
    /// Whether a text begins with a token where the file says nothing.
    begins: bool,
}

pub(super) fn read(file: &Gguf) -> Result<Vocabulary> {
    let parts = match file.text("tokenizer.ggml.model")?.unwrap_or("none") {
        "gpt2" => bytes(file)?,
        "llama" => sentence_pieces(file)?,
        other => {
            let needed = "`gpt2`, a byte-level BPE, or `llama`, SentencePiece,";
            return Err(unsupported(file, "tokenizer.ggml.model", other, needed));
        }
    };
    let id = |key: &str| -> Result<Option<(u32, &str)>> {
        let Some(id) = file.size(&format!("tokenizer.ggml.{key}"))? else { return Ok(None) };
        let token = parts.tokens.get(id).and_then(|token| Some((u32::try_from(id).ok()?, token.as_str())));
        token
            .map(Some)
            .ok_or_else(|| file.refuse(format!("needs a token of its vocabulary under `{key}`, but has {id}")))
    };
    let mut named = BTreeMap::new();
    for (key, name) in [
        ("bos_token_id", "bos_token"),
        ("eos_token_id", "eos_token"),
        ("unknown_token_id", "unk_token"),
        ("padding_token_id", "pad_token"),
    ] {
        named.extend(id(key)?.map(|(_, token)| (name.to_owned(), token.to_owned())));
    }
    let mut ends = Vec::new();
    for key in ["eos_token_id", "eot_token_id"] {
        ends.extend(id(key)?.map(|(end, _)| end));
    }
    let begin = file.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(parts.begins);
    let end = file.flag("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
    let begin = if begin { id("bos_token_id")? } else { None };
    let end = if end { id("eos_token_id")? } else { None };
    let post_processor = post_processor(begin, end);
    let added = added(file, &parts.tokens, parts.special)?;
    let mut json = parts.json;
    json["version"] = "1.0".into();
    json["added_tokens"] = added.into();
    json["post_processor"] = post_processor;
    Ok(Vocabulary { json, named, ends })
}

/// A byte-level BPE.
fn bytes(file: &Gguf) -> Result<Parts> {
    let split = file.text("tokenizer.ggml.pre")?.unwrap_or("none");
    if !SPLITS.contains(&split) {
        return Err(unsupported(file, "tokenizer.ggml.pre", split, &SPLITS.join(", ")));
    }
    let tokens: Vec<String> = texts(file, TOKENS)?.into_iter().map(ToOwned::to_owned).collect();
    let vocabulary: serde_json::Map<_, _> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    let json = json!({
        "normalizer": if split == "qwen2" { json!({"type": "NFC"}) } else { Json::Null },
        "pre_tokenizer": pre_tokenizer(split),
        "decoder": byte_level(Bytes::Alone),
        "model": {"type": "BPE", "ignore_merges": split == "llama-bpe", "vocab": vocabulary, "merges": merges(file)?},
    });
    // llama.cpp adds a begin for the words of Llama 3 where nothing is said.
    Ok(Parts { json, tokens, special: &[], begins: split == "llama-bpe" })
}

/// A BPE of SentencePiece, mostly without its merges.
fn sentence_pieces(file: &Gguf) -> Result<Parts> {
    let split = file.text("tokenizer.ggml.pre")?.unwrap_or("default");
    if split != "default" {
        return Err(unsupported(file, "tokenizer.ggml.pre", split, "`default` beside SentencePiece"));
    }
    let manner = Manner::of(file.text("general.architecture")?.unwrap_or_default());
    let tokens: Vec<String> = texts(file, TOKENS)?.into_iter().map(|token| manner.spelled(token)).collect();
    let merges = if file.array(MERGES)?.is_some() { Some(merges(file)?) } else { None };
    let json = manner.json(file, &tokens, merges)?;
    Ok(Parts { json, tokens, special: manner.special(), begins: true })
}

fn unsupported(file: &Gguf, key: &str, found: &str, needed: &str) -> Error {
    let problem = format!("needs {needed} under `{key}`, but has `{}`", shown(found));
    Error::checkpoint(
        format!("`{}`", shown(file.path())),
        problem,
        "take the model as a Hugging Face folder with a `tokenizer.json`",
    )
}

fn texts<'a>(file: &'a Gguf, key: &str) -> Result<Vec<&'a str>> {
    let values = file.array(key)?.ok_or_else(|| file.refuse(format!("lacks `{key}`")))?;
    let text = |value: &'a Value| match value {
        Value::Text(text) => Ok(text.as_str()),
        other => Err(file.refuse(format!("needs texts in `{key}`, but has {}", other.kind()))),
    };
    values.iter().map(text).collect()
}

/// Pairs of pieces that are joined, the first first.
fn merges(file: &Gguf) -> Result<Vec<[&str; 2]>> {
    let pairs = texts(file, MERGES)?.into_iter();
    pairs
        .map(|merge| {
            let pair = merge.split_once(' ').map(|(left, right)| [left, right]);
            pair.ok_or_else(|| file.refuse(format!("needs pairs in `{MERGES}`, but has `{}`", shown(merge))))
        })
        .collect()
}

/// Tokens that are cut out of a text before all else.
fn added(file: &Gguf, tokens: &[String], special: &[&str]) -> Result<Vec<Json>> {
    let kinds = file.array("tokenizer.ggml.token_type")?.unwrap_or_default();
    if !kinds.is_empty() && kinds.len() != tokens.len() {
        let problem = format!("needs a kind for each of {} tokens, but has {}", tokens.len(), kinds.len());
        return Err(file.refuse(problem));
    }
    let kind = |value: &Value| match value {
        Value::Signed(kind) => Some(*kind),
        Value::Unsigned(kind) => i64::try_from(*kind).ok(),
        _ => None,
    };
    let kinds = kinds.iter().map(kind).chain(std::iter::repeat(None));
    let tokens = tokens.iter().zip(kinds).enumerate();
    let token = |(id, (token, kind)): (usize, (&String, Option<i64>))| {
        let is_special = kind == Some(CONTROL) || special.contains(&token.as_str());
        (is_special || kind == Some(USER_DEFINED)).then(|| {
            json!({
                "id": id, "content": token, "special": is_special,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
    };
    Ok(tokens.filter_map(token).collect())
}

/// Whether bytes alone are turned into letters, or the text is split into the words of GPT-2 before.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Bytes {
    Alone,
    OfWords,
}

pub(super) fn byte_level(bytes: Bytes) -> Json {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": bytes == Bytes::OfWords})
}

pub(super) fn pre_tokenizer(split: &str) -> Json {
    let words = |digits: &str| {
        let pattern = [WORDS[0], digits, WORDS[1]].concat();
        let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        json!({"type": "Sequence", "pretokenizers": [split, byte_level(Bytes::Alone)]})
    };
    match split {
        "llama-bpe" => words(r"\p{N}{1,3}"),
        "qwen2" => words(r"\p{N}"),
        "smollm" => {
            json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, byte_level(Bytes::OfWords)]})
        }
        _ => byte_level(Bytes::OfWords),
    }
}

/// The name of the splits of a `tokenizer.json`, if they are known here.
pub(crate) fn split_of(json: &Json) -> Option<&'static str> {
    let flat = |json: &Json| match json.get("pretokenizers").and_then(Json::as_array) {
        Some(parts) => parts.clone(),
        None => vec![json.clone()],
    };
    let words = |json: &Json| {
        let plain = |mut part: Json| {
            if let Some(part) = part.as_object_mut() {
                // Offsets alone depend on it.
                part.remove("trim_offsets");
            }
            part
        };
        flat(json).into_iter().map(plain).collect::<Vec<_>>()
    };
    let found = words(&json["pre_tokenizer"]);
    SPLITS.into_iter().find(|split| words(&pre_tokenizer(split)) == found)
}

fn post_processor(begin: Option<(u32, &str)>, end: Option<(u32, &str)>) -> Json {
    if begin.is_none() && end.is_none() {
        return Json::Null;
    }
    let special = |token: &(u32, &str)| json!({"SpecialToken": {"id": token.1, "type_id": 0}});
    let around = |sequence: &str| {
        let text = json!({"Sequence": {"id": sequence, "type_id": 0}});
        begin.iter().map(special).chain([text]).chain(end.iter().map(special)).collect::<Vec<_>>()
    };
    let known = begin
        .iter()
        .chain(end.iter())
        .map(|(id, token)| ((*token).to_owned(), json!({"id": token, "ids": [id], "tokens": [token]})));
    let pair = [around("A"), around("B")].concat();
    json!({
        "type": "TemplateProcessing",
        "single": around("A"),
        "pair": pair,
        "special_tokens": known.collect::<serde_json::Map<_, _>>(),
    })
}
