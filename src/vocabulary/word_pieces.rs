//! Word pieces: the tokens of BERT, `MiniLM` and their like, as `tokenizer.json` has them.

use std::collections::BTreeMap;
use std::path::Path;

use manyhands_engine::{files, shown};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bert_words::{Letters, each_word};
use super::{PADDING, Stored, TokenSettings, Vocabulary};
use crate::{Error, Result};

/// Tokens around each text.
const AROUND: [&str; 2] = ["[CLS]", "[SEP]"];
/// Token of words that can't be divided into pieces.
const UNDIVIDED: &str = "[UNK]";
/// Token of padding.
const NO_TOKEN: &str = "[PAD]";
/// Tokens that a text may name.
const SPECIAL: [&str; 5] = [NO_TOKEN, UNDIVIDED, AROUND[0], AROUND[1], "[MASK]"];
/// Start of a piece within a word.
const WITHIN: &str = "##";
/// Letters of the longest word that is divided.
const LONGEST: usize = 100;

/// Division of texts into word pieces. Their special tokens have the names that BERT gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WordPieces {
    /// Whether letters become lower case, without accents.
    pub lowercase: bool,
}

impl Vocabulary {
    /// Word pieces of a `tokenizer.json`, as BERT and `MiniLM` have it. Texts get the tokens of their begin and end, `[CLS]` and `[SEP]`.
    ///
    /// A text has the tokens that Hugging Face's `tokenizers` gives it; truncation and padding of the file are left out. **Source**: its
    /// `models/wordpiece/mod.rs`. The golden values are those of `transformers`.
    ///
    /// # Errors
    /// If the file can't be read, or has a tokenizer of another kind.
    pub fn word_pieces(path: &Path) -> Result<Self> {
        let read = serde_json::from_str(&files::read_text(path)?).map_err(|error| error.to_string());
        let vocabulary = read.and_then(|file: Value| {
            check(&file)?;
            let stored = Stored {
                settings: TokenSettings::default(),
                tokens: tokens(&file)?,
                word_pieces: Some(WordPieces { lowercase: file["normalizer"]["lowercase"] == true }),
            };
            Self::try_from(stored)
        });
        vocabulary.map_err(|problem| {
            let problem = format!("needs word pieces as BERT and MiniLM have them, but {problem}");
            Error::data(format!("`{}`", shown(path)), problem, "name the `tokenizer.json` of a model of this family")
        })
    }
}

impl WordPieces {
    /// Refuses a vocabulary without the special tokens.
    pub(super) fn check(numbers: &BTreeMap<String, u32>) -> Result<(), String> {
        match SPECIAL[..4].iter().find(|name| !numbers.contains_key(**name)) {
            Some(name) => Err(format!("it lacks the token `{name}`")),
            None if numbers[NO_TOKEN] != PADDING => {
                Err(format!("`{NO_TOKEN}` has the number {}, not 0", numbers[NO_TOKEN]))
            }
            None => Ok(()),
        }
    }

    /// Calls `visit` for the number of each token, without those around the text.
    pub(super) fn each_number(self, numbers: &BTreeMap<String, u32>, text: &str, mut visit: impl FnMut(u32)) {
        let letters = if self.lowercase { Letters::Lower } else { Letters::Kept };
        let mut rest = text;
        loop {
            let named = SPECIAL.iter().filter(|name| numbers.contains_key(**name));
            let next = named.filter_map(|name| Some((rest.find(name)?, *name))).min();
            let plain = next.map_or(rest, |(at, _)| &rest[..at]);
            each_word(plain, letters, |word| divide(numbers, word, &mut visit));
            let Some((at, name)) = next else { return };
            visit(numbers[name]);
            rest = &rest[at + name.len()..];
        }
    }

    /// Numbers of the tokens before and behind each text.
    pub(super) fn around(numbers: &BTreeMap<String, u32>) -> [u32; 2] {
        AROUND.map(|name| numbers[name])
    }

    /// The text of tokens that blanks join.
    pub(super) fn joined(text: &str) -> String {
        text.replace(&format!(" {WITHIN}"), "")
    }
}

/// Divides a word into the longest pieces, from its begin.
fn divide(numbers: &BTreeMap<String, u32>, word: &str, visit: &mut impl FnMut(u32)) {
    let mut pieces = Vec::new();
    let mut begin = 0;
    let is_short = word.chars().count() <= LONGEST;
    while is_short && begin < word.len() {
        let ends = word[begin..].char_indices().map(|(at, letter)| begin + at + letter.len_utf8());
        let piece = |end: usize| {
            let piece = &word[begin..end];
            let number = if begin == 0 { numbers.get(piece) } else { numbers.get(&format!("{WITHIN}{piece}")) };
            number.map(|number| (*number, end))
        };
        let Some((number, end)) = ends.rev().find_map(piece) else { break };
        pieces.push(number);
        begin = end;
    }
    match begin == word.len() {
        true => pieces.into_iter().for_each(visit),
        false => visit(numbers[UNDIVIDED]),
    }
}

/// Refuses a file with a part that gives other tokens.
fn check(file: &Value) -> Result<(), String> {
    let lowercase = &file["normalizer"]["lowercase"];
    let accents = &file["normalizer"]["strip_accents"];
    let tokens = |name: &str| file["added_tokens"].as_array().into_iter().flatten().any(|token| token[name] == true);
    for (is_so, part) in [
        (file["model"]["type"] == "WordPiece", "its model is of another type"),
        (file["model"]["unk_token"] == UNDIVIDED, "its model names unknown words otherwise"),
        (file["model"]["continuing_subword_prefix"] == WITHIN, "its pieces within words begin otherwise"),
        (file["model"]["max_input_chars_per_word"] == LONGEST, "its longest words have another length"),
        (file["normalizer"]["type"] == "BertNormalizer", "its normalizer is another one"),
        (file["normalizer"]["clean_text"] == true, "its normalizer keeps control characters"),
        (file["normalizer"]["handle_chinese_chars"] == true, "its normalizer keeps Chinese characters together"),
        (
            lowercase.is_boolean() && (accents.is_null() || accents == lowercase),
            "its normalizer treats accents otherwise",
        ),
        (file["pre_tokenizer"]["type"] == "BertPreTokenizer", "it divides words otherwise"),
        (is_around(&file["post_processor"]), "it puts other tokens around a text"),
        (!["single_word", "lstrip", "rstrip", "normalized"].into_iter().any(tokens), "its special tokens have rules"),
    ] {
        if !is_so {
            return Err(part.into());
        }
    }
    Ok(())
}

/// Whether a text gets the two tokens around it.
fn is_around(processor: &Value) -> bool {
    let [begin, end] = AROUND;
    let single = &processor["single"];
    match processor["type"].as_str() {
        Some("BertProcessing") => processor["cls"][0] == begin && processor["sep"][0] == end,
        Some("TemplateProcessing") => {
            single.as_array().is_some_and(|parts| parts.len() == 3)
                && single[0]["SpecialToken"]["id"] == begin
                && single[1]["Sequence"]["id"] == "A"
                && single[2]["SpecialToken"]["id"] == end
        }
        _ => false,
    }
}

/// All tokens by number.
fn tokens(file: &Value) -> Result<Vec<String>, String> {
    let pieces =
        file["model"]["vocab"].as_object().into_iter().flatten().map(|(token, number)| (token.as_str(), number));
    let mut by_number: BTreeMap<u64, &str> =
        pieces.filter_map(|(token, number)| Some((number.as_u64()?, token))).collect();
    for token in file["added_tokens"].as_array().into_iter().flatten() {
        let (Some(content), Some(number)) = (token["content"].as_str(), token["id"].as_u64()) else { continue };
        if !SPECIAL.contains(&content) {
            return Err(format!("it has the special token `{}`", shown(content)));
        }
        by_number.insert(number, content);
    }
    if by_number.keys().zip(0..).any(|(number, place)| *number != place) {
        return Err("its tokens are not numbered one after the other".into());
    }
    Ok(by_number.into_values().map(ToOwned::to_owned).collect())
}
