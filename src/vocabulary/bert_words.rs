//! Words of a text as BERT's tokenizers divide it: at white space, around punctuation, and around each Chinese character.
//!
//! **Source**: `normalizers/bert.rs` and `pre_tokenizers/bert.rs` of Hugging Face's `tokenizers`. The tables of Unicode are those of its
//! crates, since a newer table divides other words.

use unicode_categories::UnicodeCategories as _;
use unicode_normalization_alignments::UnicodeNormalization as _;

/// Letters of the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letters {
    /// Lower case, without accents.
    Lower,
    /// As they are.
    Kept,
}

/// Calls `visit` for each word, in order. A sign of punctuation is a word.
pub(super) fn each_word(text: &str, letters: Letters, mut visit: impl FnMut(&str)) {
    for run in normalized(text, letters).split_whitespace() {
        let mut begin = 0;
        for (at, sign) in run.char_indices().filter(|(_, letter)| is_punctuation(*letter)) {
            let end = at + sign.len_utf8();
            [&run[begin..at], &run[at..end]].into_iter().filter(|word| !word.is_empty()).for_each(&mut visit);
            begin = end;
        }
        if begin < run.len() {
            visit(&run[begin..]);
        }
    }
}

fn normalized(text: &str, letters: Letters) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for letter in text.chars().filter(|letter| !is_removed(*letter)) {
        match letter {
            _ if letter.is_whitespace() => cleaned.push(' '),
            _ if is_chinese(letter) => cleaned.extend([' ', letter, ' ']),
            _ => cleaned.push(letter),
        }
    }
    match letters {
        Letters::Kept => cleaned,
        Letters::Lower => {
            let bare = cleaned.nfd().map(|(letter, _)| letter).filter(|letter| !letter.is_mark_nonspacing());
            // One by one: the Greek sigma at the end of a word has no form of its own here.
            bare.flat_map(char::to_lowercase).collect()
        }
    }
}

/// Control characters, without those that are white space, and what stands for damaged text.
fn is_removed(letter: char) -> bool {
    let is_control = letter.is_other() && !matches!(letter, '\t' | '\n' | '\r');
    letter == '\0' || letter == '\u{fffd}' || is_control
}

fn is_punctuation(letter: char) -> bool {
    letter.is_ascii_punctuation() || letter.is_punctuation()
}

fn is_chinese(letter: char) -> bool {
    matches!(
        u32::from(letter),
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}
