//! Texts as numbers: a text is cut into tokens, and a vocabulary gives each a whole number.

// Files: `word_pieces.rs`: tokens of BERT; `bert_words.rs`: the words that they are pieces of.

#[cfg(feature = "files")]
mod bert_words;
#[cfg(feature = "files")]
mod word_pieces;

use std::collections::BTreeMap;

#[cfg(feature = "files")]
use word_pieces::WordPieces;

use serde::{Deserialize, Serialize};

/// Number of padding at the end of short texts, for `Embedding`'s `mask_zero`.
const PADDING: u32 = 0;
/// Number of tokens that the vocabulary does not hold.
const UNKNOWN: u32 = 1;
/// Their names, as in Keras.
const RESERVED: [&str; 2] = ["", "[UNK]"];

/// Tokens of a text, as `split` of Keras' `TextVectorization`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Words, which white space separates.
    #[default]
    #[serde(alias = "words")]
    Whitespace,
    /// Characters (Unicode scalar values).
    #[serde(alias = "characters")]
    Character,
}

/// Changes to a text before it is split, as `standardize` of Keras' `TextVectorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Standardize {
    /// Lower case, without ASCII punctuation. The default for words.
    LowerAndStripPunctuation,
    /// Lower case.
    Lower,
    /// Without ASCII punctuation.
    StripPunctuation,
    /// None. The default for characters.
    None,
}

/// Settings of the tokens that texts are split into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TokenSettings {
    /// Tokens: `whitespace` (words, the default) or `character`.
    pub split: Split,
    /// Changes before: `lower_and_strip_punctuation` (the default for words), `lower`, `strip_punctuation` or `none` (the
    /// default for characters).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standardize: Option<Standardize>,
    /// Most tokens of the vocabulary, with the two reserved ones: the most frequent are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<usize>,
}

/// The tokens of a model's texts, by number: 0 is padding, 1 stands for all that are not listed, then come the tokens of the
/// training text, the most frequent first.
///
/// ```
/// use manyhands::data::{TokenSettings, Vocabulary};
/// let vocabulary = Vocabulary::adapt(TokenSettings::default(), ["To be, or not to be", "to see"]);
/// assert_eq!(vocabulary.tokens(), ["", "[UNK]", "to", "be", "not", "or", "see"]);
/// assert_eq!(vocabulary.encode("To bee or be"), [2, 1, 5, 3]);
/// assert_eq!(vocabulary.decode(&[2, 3]), "to be");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Vocabulary {
    settings: TokenSettings,
    tokens: Vec<String>,
    numbers: BTreeMap<String, u32>,
    word_pieces: Option<WordPieces>,
}

/// A vocabulary in a file.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    settings: TokenSettings,
    tokens: Vec<String>,
    /// In place of the settings, if the tokens are word pieces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    word_pieces: Option<WordPieces>,
}

/// Word pieces need tables of Unicode, which a build without files lacks: their vocabularies can't be read there.
#[cfg(not(feature = "files"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum WordPieces {}

impl TryFrom<Stored> for Vocabulary {
    type Error = String;

    fn try_from(Stored { settings, tokens, word_pieces }: Stored) -> Result<Self, String> {
        let first = if word_pieces.is_some() { 0 } else { RESERVED.len() };
        let numbers = tokens.iter().cloned().zip(0..).skip(first).collect();
        #[cfg(feature = "files")]
        if word_pieces.is_some() {
            WordPieces::check(&numbers)?;
        }
        Ok(Self { settings, tokens, numbers, word_pieces })
    }
}

impl From<Vocabulary> for Stored {
    fn from(Vocabulary { settings, tokens, word_pieces, .. }: Vocabulary) -> Self {
        Self { settings, tokens, word_pieces }
    }
}

impl Vocabulary {
    /// The vocabulary of texts: their most frequent tokens; equally frequent ones are in alphabetical order.
    pub fn adapt<'a>(settings: TokenSettings, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut counts = BTreeMap::<String, u64>::new();
        for text in texts {
            settings.each_token(text, |token| match counts.get_mut(token) {
                Some(count) => *count += 1,
                None => drop(counts.insert(token.to_owned(), 1)),
            });
        }
        let mut counted: Vec<(String, u64)> = counts.into_iter().collect();
        counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let most = settings.max_tokens.unwrap_or(usize::MAX);
        let tokens = RESERVED.into_iter().map(str::to_owned).chain(counted.into_iter().map(|(token, _)| token));
        let tokens: Vec<String> = tokens.take(most).collect();
        let numbers = tokens.iter().cloned().zip(0..).skip(RESERVED.len()).collect();
        Self { settings, tokens, numbers, word_pieces: None }
    }

    /// The settings that made it.
    pub fn settings(&self) -> TokenSettings {
        self.settings
    }

    /// The tokens, by number.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// The numbers of a text's tokens; of word pieces, without the tokens of begin and end.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut numbers = Vec::new();
        #[cfg(feature = "files")]
        if let Some(pieces) = self.word_pieces {
            pieces.each_number(&self.numbers, text, |number| numbers.push(number));
            return numbers;
        }
        self.settings.each_token(text, |token| numbers.push(self.numbers.get(token).copied().unwrap_or(UNKNOWN)));
        numbers
    }

    /// The numbers of a text's first tokens as an input of `length` elements; zeros follow a shorter text. Word pieces stand between the
    /// tokens of begin and end, however long the text is.
    pub fn encode_padded(&self, text: &str, length: usize) -> Vec<f32> {
        self.padded_and_count(text, length).0
    }

    /// A text as [`encode_padded`](Self::encode_padded) gives it, and the number of all its tokens, with those of begin and end.
    #[allow(clippy::cast_precision_loss, reason = "vocabularies are far below 2^24 tokens, where f32 is exact")]
    pub(crate) fn padded_and_count(&self, text: &str, length: usize) -> (Vec<f32>, usize) {
        let numbers = self.encode(text);
        let count = numbers.len() + if self.word_pieces.is_some() { 2 } else { 0 };
        #[cfg(feature = "files")]
        let numbers = match self.word_pieces {
            Some(_) => {
                let [begin, end] = WordPieces::around(&self.numbers);
                let within = numbers.into_iter().take(length.saturating_sub(2));
                [begin].into_iter().chain(within).chain([end]).collect()
            }
            None => numbers,
        };
        let mut row: Vec<f32> = numbers.into_iter().take(length).map(|number| number as f32).collect();
        row.resize(length, PADDING as f32);
        (row, count)
    }

    /// The text of numbers. Words are joined by blanks; padding and numbers without a token give nothing.
    pub fn decode(&self, numbers: &[u32]) -> String {
        let tokens =
            numbers.iter().filter(|number| **number != PADDING).filter_map(|number| self.tokens.get(*number as usize));
        let tokens: Vec<&str> = tokens.map(String::as_str).collect();
        #[cfg(feature = "files")]
        if self.word_pieces.is_some() {
            return WordPieces::joined(&tokens.join(" "));
        }
        match self.settings.split {
            Split::Whitespace => tokens.join(" "),
            Split::Character => tokens.concat(),
        }
    }
}

impl TokenSettings {
    /// Calls `visit` for each token of a text, in order.
    fn each_token(self, text: &str, mut visit: impl FnMut(&str)) {
        let text = self.standardized(text);
        match self.split {
            Split::Whitespace => text.split_whitespace().for_each(visit),
            Split::Character => {
                let mut buffer = [0; 4];
                text.chars().for_each(|character| visit(character.encode_utf8(&mut buffer)));
            }
        }
    }

    fn standardized(self, text: &str) -> String {
        let stripped = || text.chars().filter(|character| !character.is_ascii_punctuation());
        let default = match self.split {
            Split::Whitespace => Standardize::LowerAndStripPunctuation,
            Split::Character => Standardize::None,
        };
        match self.standardize.unwrap_or(default) {
            Standardize::LowerAndStripPunctuation => stripped().collect::<String>().to_lowercase(),
            Standardize::Lower => text.to_lowercase(),
            Standardize::StripPunctuation => stripped().collect(),
            Standardize::None => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_keep_case_and_punctuation() {
        let settings = TokenSettings { split: Split::Character, ..TokenSettings::default() };
        let vocabulary = Vocabulary::adapt(settings, ["aAb, ä"]);
        assert_eq!(vocabulary.tokens(), ["", "[UNK]", " ", ",", "A", "a", "b", "ä"]);
        assert_eq!(vocabulary.decode(&vocabulary.encode("ba, ä")), "ba, ä");
        assert_eq!(vocabulary.encode("z"), [1]);
    }

    #[test]
    fn the_most_frequent_tokens_are_kept() {
        let settings = TokenSettings { max_tokens: Some(3), ..TokenSettings::default() };
        let vocabulary = Vocabulary::adapt(settings, ["b b a a a c"]);
        assert_eq!(vocabulary.tokens(), ["", "[UNK]", "a"]);
        assert_eq!(vocabulary.encode_padded("a b", 4), [2.0, 1.0, 0.0, 0.0]);
        assert_eq!(vocabulary.encode_padded("a a a a a b", 3), [2.0, 2.0, 2.0]);
    }

    #[test]
    fn a_vocabulary_survives_a_file() -> Result<(), serde_json::Error> {
        let settings = TokenSettings { standardize: Some(Standardize::Lower), ..TokenSettings::default() };
        let vocabulary = Vocabulary::adapt(settings, ["To be, or not"]);
        let text = serde_json::to_string(&vocabulary)?;
        assert_eq!(text, r#"{"split":"whitespace","standardize":"lower","tokens":["","[UNK]","be,","not","or","to"]}"#);
        assert_eq!(serde_json::from_str::<Vocabulary>(&text)?, vocabulary);
        Ok(())
    }
}
