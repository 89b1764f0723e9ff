//! SentencePiece vocabularies of GGUF files as a `tokenizer.json`, as transformers makes it of them.
//!
//! **Source**: `gguf_tokenizer_mapping.py`, `LlamaTokenizer` and `GemmaTokenizer` of transformers 5.

use std::collections::{HashMap, HashSet};

use manyhands_engine::shown;
use serde_json::{Value as Json, json};

use crate::gguf::{Gguf, Value};
use crate::{Error, Result};

/// Stands for a space.
const SPACE: &str = "▁";
/// Most letters of a piece, for the time that its splits take.
const MOST_LETTERS: usize = 1024;
/// Most bytes of all merges for each byte of the pieces: real vocabularies imply 2 or 3.
const MOST_MERGED: usize = 64;

/// Families of models, by what is around their pieces.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Manner {
    Llama,
    Gemma,
}

/// Texts that get a space before them: those that begin the whole, all between special tokens, none.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Prefix {
    First,
    Always,
    Never,
}

impl Manner {
    /// That of an architecture, as transformers chooses it.
    pub(super) fn of(architecture: &str) -> Self {
        if ["gemma", "gemma2", "gemma3"].contains(&architecture) { Self::Gemma } else { Self::Llama }
    }

    /// Tokens that are special wherever the vocabulary has them.
    pub(super) fn special(self) -> &'static [&'static str] {
        match self {
            Self::Llama => &["<unk>", "<s>", "</s>"],
            Self::Gemma => &["<unk>", "<bos>", "<eos>", "<pad>", "<mask>"],
        }
    }

    /// A piece as the tokenizer has it. Files of Gemma have several spaces as such.
    pub(super) fn spelled(self, token: &str) -> String {
        let is_blank = token.contains(' ') && token.trim().is_empty();
        if self == Self::Gemma && is_blank { SPACE.repeat(token.chars().count()) } else { token.to_owned() }
    }

    /// A tokenizer of pieces. Without merges, the vocabulary implies them.
    pub(super) fn json(self, file: &Gguf, tokens: &[String], merges: Option<Vec<[&str; 2]>>) -> Result<Json> {
        let vocabulary: serde_json::Map<_, _> =
            tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
        let merges = merges.map_or_else(|| self.implied_merges(file, tokens), Ok)?;
        let mut json = json!({"model": {"type": "BPE", "vocab": vocabulary, "merges": merges}});
        let is_spaced = file.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        self.put(&mut json, if is_spaced { Prefix::First } else { Prefix::Never });
        Ok(json)
    }

    /// Puts what is around the vocabulary of a BPE into a `tokenizer.json`. Texts of Gemma get no space before them.
    pub(super) fn put(self, json: &mut Json, prefix: Prefix) {
        let to_spaces = json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "});
        let mut decoders = vec![to_spaces, json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
        let scheme = match prefix {
            Prefix::First => "first",
            Prefix::Always => "always",
            Prefix::Never => "never",
        };
        let (normalizer, pre_tokenizer) = match self {
            Self::Llama => (
                Json::Null,
                json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": false}),
            ),
            Self::Gemma => (
                json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE}),
                json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false}),
            ),
        };
        if self == Self::Llama && prefix != Prefix::Never {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        let unknown = (self == Self::Gemma && json["model"]["vocab"].get("<unk>").is_some()).then_some("<unk>");
        json["normalizer"] = normalizer;
        json["pre_tokenizer"] = pre_tokenizer;
        json["decoder"] = json!({"type": "Sequence", "decoders": decoders});
        let model = &mut json["model"];
        model["unk_token"] = unknown.into();
        model["fuse_unk"] = true.into();
        model["byte_fallback"] = true.into();
        model["ignore_merges"] = false.into();
    }

    /// Pairs that give a piece, the best piece first: by its score, for Gemma by its place.
    fn implied_merges<'a>(self, file: &Gguf, tokens: &'a [String]) -> Result<Vec<[&'a str; 2]>> {
        let scores: Vec<f64> = match self {
            Self::Llama => scores(file, tokens.len())?,
            #[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
            Self::Gemma => (0..tokens.len()).map(|place| -(place as f64)).collect(),
        };
        if let Some(long) = tokens.iter().find(|token| token.chars().count() > MOST_LETTERS) {
            let begin: String = long.chars().take(20).collect();
            let problem = format!("needs pieces of at most {MOST_LETTERS} letters, but `{}…` has more", shown(&begin));
            return Err(file.refuse(problem));
        }
        // Of pieces that are there twice, the last counts.
        let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
        let mut seen = HashSet::new();
        let mut merges = Vec::new();
        // A pair takes as much as its piece, and some bytes around it.
        let size = |token: &str| token.len() + 32;
        let mut room = MOST_MERGED * tokens.iter().map(|token| size(token)).sum::<usize>();
        for token in tokens.iter().filter(|token| seen.insert(token.as_str())) {
            let splits = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
            let mut pairs: Vec<[&str; 2]> = splits
                .filter(|(left, right)| ids.contains_key(left) && ids.contains_key(right))
                .map(|(left, right)| [left, right])
                .collect();
            pairs.sort_by_key(|pair| pair.map(|part| ids[part]));
            let taken = pairs.len() * size(token);
            let crowded = || file.refuse("needs pieces that few others make up, but has ones that many do");
            room = room.checked_sub(taken).ok_or_else(crowded)?;
            let score = scores[ids[token.as_str()]];
            merges.extend(pairs.into_iter().map(|pair| (score, pair.map(|part| part.chars().count()), pair)));
        }
        merges.sort_by(|(score, lengths, _), (other, others, _)| {
            other.total_cmp(score).then_with(|| others.cmp(lengths))
        });
        Ok(merges.into_iter().map(|(_, _, pair)| pair).collect())
    }
}

/// The score of each piece.
fn scores(file: &Gguf, count: usize) -> Result<Vec<f64>> {
    let key = "tokenizer.ggml.scores";
    let refuse = || -> Error { file.refuse(format!("needs a number for each of {count} tokens under `{key}`")) };
    let values = file.array(key)?.ok_or_else(refuse)?;
    let number = |value: &Value| match value {
        Value::Float(number) => Some(*number),
        _ => None,
    };
    let scores: Vec<f64> = values.iter().filter_map(number).collect();
    if scores.len() == count { Ok(scores) } else { Err(refuse()) }
}
