//! The class by which transformers opens a folder's tokenizer: some keep of `tokenizer.json` the vocabulary, and bring all else along.

use manyhands_engine::shown;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::from_gguf::{Bytes, byte_level, pre_tokenizer};
use super::pieces::{Manner, Prefix};

/// Classes of transformers 5 that bring splits and decoder of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Class {
    Llama,
    Gpt2,
    Qwen2,
    Gemma,
    Bert,
}

const CLASSES: [(&str, Class); 5] = [
    ("LlamaTokenizer", Class::Llama),
    ("GPT2Tokenizer", Class::Gpt2),
    ("Qwen2Tokenizer", Class::Qwen2),
    ("GemmaTokenizer", Class::Gemma),
    ("BertTokenizer", Class::Bert),
];
/// Classes that take the file as it is.
const AS_FILE: [&str; 3] = ["PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend"];

/// The text of a `tokenizer.json` as transformers takes it, by `tokenizer_config.json` and `config.json` beside it, or the problem.
///
/// **Source**: `tokenization_auto.py` of transformers 5.24; the golden values are its tokens.
pub(super) fn as_class(text: String, config: &Json, network: &Json) -> Result<String, String> {
    let text = with_listed_flags(text, config);
    let Some((name, class)) = chosen(&text, config, network) else { return Ok(text) };
    let Ok(mut json) = serde_json::from_str::<Json>(&text) else { return Ok(text) };
    let model = json["model"]["type"].as_str().unwrap_or("another kind");
    let needed = if class == Class::Bert { "WordPiece" } else { "BPE" };
    if model != needed {
        return Err(format!("`{name}` of transformers needs a model `{needed}`, and this is `{}`", shown(model)));
    }
    let flag = |key: &str| config.get(key).and_then(Json::as_bool);
    let before = around(&json);
    match class {
        Class::Llama => {
            let prefix = match (flag("add_prefix_space"), flag("legacy")) {
                (Some(false), _) => Prefix::Never,
                (_, Some(true)) => Prefix::Always,
                _ => Prefix::First,
            };
            Manner::Llama.put(&mut json, prefix);
        }
        Class::Gemma => Manner::Gemma.put(&mut json, Prefix::Never),
        Class::Bert => {
            let is = |key: &str| flag(key).unwrap_or(true);
            json["normalizer"] = json!({
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": is("tokenize_chinese_chars"),
                "strip_accents": flag("strip_accents"), "lowercase": is("do_lower_case"),
            });
            json["pre_tokenizer"] = json!({"type": "BertPreTokenizer"});
            json["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
        }
        Class::Gpt2 | Class::Qwen2 => {
            let is_spaced = flag("add_prefix_space").unwrap_or(false);
            let (mut splits, normalizer) = match class {
                Class::Qwen2 => (pre_tokenizer("qwen2"), json!({"type": "NFC"})),
                _ => (byte_level(Bytes::OfWords), Json::Null),
            };
            let last = if class == Class::Qwen2 { &mut splits["pretokenizers"][1] } else { &mut splits };
            last["add_prefix_space"] = is_spaced.into();
            json["normalizer"] = normalizer;
            json["pre_tokenizer"] = splits;
            json["decoder"] = byte_level(Bytes::Alone);
            for (key, value) in [
                ("unk_token", Json::Null),
                ("fuse_unk", false.into()),
                ("byte_fallback", false.into()),
                ("ignore_merges", false.into()),
            ] {
                json["model"][key] = value;
            }
        }
    }
    Ok(if around(&json) == before { text } else { json.to_string() })
}

/// The text of a `tokenizer.json`, whose added tokens have the flags that `tokenizer_config.json` lists: transformers asks it first.
fn with_listed_flags(text: String, config: &Json) -> String {
    #[derive(Deserialize)]
    struct Added {
        added_tokens: Vec<Json>,
    }
    let Some(listed) = config["added_tokens_decoder"].as_object() else { return text };
    let Ok(Added { added_tokens }) = serde_json::from_str(&text) else { return text };
    let flagged = |token: &Json| {
        let mut token = token.clone();
        let Some(entry) = listed.get(&token["id"].to_string()) else { return token };
        if entry["content"] == token["content"] {
            let flag = |key: &str, usual: bool| entry[key].as_bool().unwrap_or(usual);
            let is_special = flag("special", false);
            token["special"] = is_special.into();
            token["normalized"] = flag("normalized", !is_special).into();
            for key in ["single_word", "lstrip", "rstrip"] {
                token[key] = flag(key, false).into();
            }
        }
        token
    };
    let flagged: Vec<Json> = added_tokens.iter().map(flagged).collect();
    if flagged == added_tokens {
        return text;
    }
    let Ok(mut json) = serde_json::from_str::<Json>(&text) else { return text };
    json["added_tokens"] = flagged.into();
    json.to_string()
}

/// All that a class sets, without the vocabulary, which may be large.
fn around(json: &Json) -> Vec<Json> {
    let parts = ["normalizer", "pre_tokenizer", "decoder"].map(|key| json[key].clone());
    let flags = ["unk_token", "fuse_unk", "byte_fallback", "ignore_merges"].map(|key| json["model"][key].clone());
    parts.into_iter().chain(flags).collect()
}

/// The class that transformers chooses, if it is none that takes the file as it is.
fn chosen(text: &str, config: &Json, network: &Json) -> Option<(&'static str, Class)> {
    let kind = network["model_type"].as_str().unwrap_or_default();
    let of_kind = match kind {
        "mistral" => Some("TokenizersBackend"),
        "qwen2" | "qwen3" => Some("Qwen2Tokenizer"),
        "gemma3_text" => Some("GemmaTokenizer"),
        "gpt2" => Some("GPT2Tokenizer"),
        "bert" => Some("BertTokenizer"),
        _ => None,
    };
    let named = [config, network].into_iter().find_map(|file| file["tokenizer_class"].as_str());
    let named = named.map(|name| name.strip_suffix("Fast").filter(|_| name != AS_FILE[1]).unwrap_or(name));
    let class = match (named, of_kind) {
        // Files of Llama 3 name the class of Llama 2. transformers looks for this word, too.
        (Some("LlamaTokenizer"), _) if kind != "qwen2" && text.contains("\"ByteLevel\"") => AS_FILE[2],
        (Some(named), Some(of_kind)) if named != of_kind => match kind {
            "mistral" => of_kind,
            // Of Qwen 2, many files name a wrong class.
            "qwen2" => of_kind,
            _ => named,
        },
        (Some(named), _) => named,
        (None, of_kind) => of_kind?,
    };
    let found = CLASSES.into_iter().find(|(name, _)| *name == class);
    if found.is_none() && !AS_FILE.contains(&class) {
        log::warn!(
            "`tokenizer_class` is `{}`, which is not known here: texts are split as `tokenizer.json` says, in transformers perhaps otherwise",
            shown(class)
        );
    }
    found
}
