//! Tokenizers: texts to tokens and back, as transformers does.

// Files: `from_gguf.rs`: the vocabulary of a GGUF file as a `tokenizer.json`; `pieces.rs`: one of SentencePiece; `class.rs`: the class by which
// transformers opens a folder.

mod class;
mod from_gguf;
mod pieces;

pub(crate) use from_gguf::{CONTROL, USER_DEFINED, split_of};

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use manyhands_engine::{files, shown};
use serde_json::Value;

use crate::gguf::Gguf;
use crate::model::ModelFiles;
use crate::{Error, Result};

/// Special tokens around a text, such as that of its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// The tokens that the tokenizer adds to a text.
    Added,
    /// None: the text has them already, as a chat template writes them.
    None,
}

/// Special tokens in a text of tokens.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    Kept,
    LeftOut,
}

/// Tokens of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Numbers of the tokens.
    pub ids: Vec<u32>,
    /// For each token, the first byte of the text that it stands for, and the byte behind the last. Some tokenizers leave out spaces
    /// at both ends, so that a token of spaces has none.
    pub spans: Vec<(usize, usize)>,
}

/// A tokenizer, with its special tokens.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// `tokenizer.json`.
    json: String,
    inner: tokenizers::Tokenizer,
    named: BTreeMap<String, String>,
    ends: Vec<u32>,
}

/// Names of special tokens, as chat templates know them.
const NAMES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

impl Tokenizer {
    /// The tokenizer of a model.
    ///
    /// # Errors
    /// If its files lack one, it is damaged, or of a kind that is not known here.
    pub fn of(model: &ModelFiles) -> Result<Self> {
        match (model.gguf(), model.folder()) {
            (Some(file), _) => Self::from_gguf(file),
            (None, folder) => Self::from_folder(folder.map_or(Path::new("."), |folder| folder.path())),
        }
    }

    /// Reads `tokenizer.json` of a folder, and its special tokens from `tokenizer_config.json` and `generation_config.json`.
    ///
    /// Truncation and padding that `tokenizer.json` asks for are left out, as transformers leaves them out unless asked. Where it opens the
    /// folder by a class with splits of its own, such as `GPT2Tokenizer`, these count.
    ///
    /// # Errors
    /// If a file is missing or damaged.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        if !path.exists() {
            let problem = "lacks `tokenizer.json`";
            let help =
                "save the tokenizer by `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` of transformers";
            return Err(Error::checkpoint(format!("the folder `{}`", shown(folder)), problem, help));
        }
        let config = optional_json(&folder.join("tokenizer_config.json"))?;
        let older = optional_json(&folder.join("special_tokens_map.json"))?;
        let find = |name: &str| [&config, &older].into_iter().find_map(|file| content(file.get(name)?));
        let named = NAMES.iter().filter_map(|name| Some(((*name).to_owned(), find(name)?))).collect();
        let generation = optional_json(&folder.join("generation_config.json"))?;
        let network = optional_json(&folder.join("config.json"))?;
        let ends = [&generation, &network].into_iter().flat_map(|file| ids(file.get("eos_token_id")));
        let json = class::as_class(files::read_text(&path)?, &config, &network).map_err(|problem| {
            let help =
                "name `TokenizersBackend` as `tokenizer_class` in `tokenizer_config.json` to take the file as it is";
            Error::checkpoint(format!("`{}`", shown(&path)), format!("can't be used: {problem}"), help)
        })?;
        let tokenizer = Self::new(&path, json, named, ends.collect())?;
        let listed = [&config, &older].into_iter().flat_map(listed);
        let added = optional_json(&folder.join("added_tokens.json"))?;
        let added = added.as_object().into_iter().flatten().map(|(token, _)| token.clone());
        tokenizer.check_added(&path, listed.chain(added))?;
        Ok(tokenizer)
    }

    /// Refuses tokens that transformers would add from other files: here, texts would be split otherwise.
    fn check_added(&self, path: &Path, listed: impl Iterator<Item = String>) -> Result<()> {
        let known = self.inner.get_added_vocabulary().get_vocab();
        let named = ["bos_token", "eos_token"].into_iter().filter_map(|name| self.named.get(name).cloned());
        match named.chain(listed).find(|token| !known.contains_key(token)) {
            None => Ok(()),
            Some(token) => {
                let problem = format!(
                    "needs the token `{}`, which a file beside it names, among its added tokens",
                    shown(&token)
                );
                let help = "save the tokenizer by `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` of transformers";
                Err(Error::checkpoint(format!("`{}`", shown(path)), problem, help))
            }
        }
    }

    /// Reads the vocabulary of a GGUF file.
    ///
    /// # Errors
    /// If it lacks one, or has one that is neither a byte-level BPE nor of SentencePiece, or whose `tokenizer.ggml.pre` is not known here.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        let vocabulary = from_gguf::read(file)?;
        Self::new(file.path(), vocabulary.json.to_string(), vocabulary.named, vocabulary.ends)
    }

    fn new(path: &Path, json: String, named: BTreeMap<String, String>, mut ends: Vec<u32>) -> Result<Self> {
        let refuse = |problem: String| {
            let problem = format!("needs to have a tokenizer as Hugging Face's `tokenizers` writes it, but: {problem}");
            Error::checkpoint(format!("`{}`", shown(path)), problem, "take the file as it was published")
        };
        let read = guarded(|| {
            let mut inner: tokenizers::Tokenizer = json.parse()?;
            inner.with_truncation(None)?.with_padding(None);
            Ok(inner)
        });
        let inner = read.map_err(refuse)?;
        ends.extend(named.get("eos_token").and_then(|token| inner.token_to_id(token)));
        ends.sort_unstable();
        ends.dedup();
        ends.retain(|end| inner.id_to_token(*end).is_some());
        Ok(Self { json, inner, named, ends })
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// If the tokenizer can't represent it.
    pub fn encode(&self, text: &str, around: Around) -> Result<Tokens> {
        let encoded = guarded(|| self.inner.encode(text, around == Around::Added)).map_err(|problem| {
            Error::data("the tokenizer", format!("can't represent a text: {problem}"), "check the tokenizer's files")
        })?;
        Ok(Tokens { ids: encoded.get_ids().to_vec(), spans: encoded.get_offsets().to_vec() })
    }

    /// The text of tokens, special ones included.
    ///
    /// # Errors
    /// If the tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.decoded(ids, Special::Kept)
    }

    fn decoded(&self, ids: &[u32], special: Special) -> Result<String> {
        guarded(|| self.inner.decode(ids, special == Special::LeftOut)).map_err(|problem| {
            Error::data("the tokenizer", format!("can't decode tokens: {problem}"), "check the tokenizer's files")
        })
    }

    /// The text of tokens, without special ones.
    ///
    /// # Errors
    /// If the tokenizer's decoder fails.
    pub fn text(&self, ids: &[u32]) -> Result<String> {
        self.decoded(ids, Special::LeftOut)
    }

    /// Number of tokens, those that were added to the vocabulary included.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Number of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Whether a token is special: no text of a user's.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.id_to_token(id).is_some_and(|token| self.inner.get_added_vocabulary().is_special_token(&token))
    }

    /// Special tokens by their names in chat templates: `bos_token`, `eos_token`, and so on.
    pub fn named(&self) -> &BTreeMap<String, String> {
        &self.named
    }

    /// Tokens that end an answer.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The token that ends a text.
    pub fn end(&self) -> Option<u32> {
        self.named.get("eos_token").and_then(|token| self.id(token)).or_else(|| self.ends.first().copied())
    }

    /// The tokenizer as the text of a `tokenizer.json`.
    pub fn json(&self) -> &str {
        &self.json
    }
}

/// Calls the crate `tokenizers`, which panics on some damaged files (its `DecoderWrapper` of version 0.23 unwraps what it reads).
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("its parts contradict each other".into()),
    }
}

/// A JSON file that a folder may lack.
pub(crate) fn optional_json(path: &Path) -> Result<Value> {
    if !path.exists() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&files::read_text(path)?).map_err(|error| {
        let problem = format!("needs to be JSON, but: {error}");
        Error::checkpoint(format!("`{}`", shown(path)), problem, "take the file as it was published")
    })
}

/// The text of a token: as such, or as an object that says how it is cut out of texts.
fn content(token: &Value) -> Option<String> {
    token.as_str().or_else(|| token.get("content")?.as_str()).map(ToOwned::to_owned)
}

/// Tokens that a file lists, but for those with names of their own.
fn listed(file: &Value) -> Vec<String> {
    let lists = ["added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"];
    let tokens = |list: &Value| match list {
        Value::Array(tokens) => tokens.iter().filter_map(content).collect(),
        Value::Object(tokens) => tokens.values().filter_map(content).collect(),
        _ => Vec::new(),
    };
    lists.into_iter().filter_map(|list| file.get(list)).flat_map(tokens).collect()
}

/// One number of a token, or several.
fn ids(value: Option<&Value>) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(values)) => values.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}
