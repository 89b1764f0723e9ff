//! Texts for language models: at each position of a window, the token that follows is the target.

use std::path::{Path, PathBuf};

use manyhands_engine::files;

use super::digest::Digest;
use super::{BatchMut, Dataset, source};
use crate::schema::{Field, Format, Schema, Text};
use crate::vocabulary::Vocabulary;
use crate::{Error, Result, Shape, shown, thousands};

/// Most tokens of a text that is one row: a row holds that many numbers.
pub(super) const MOST_TOKENS: usize = 1 << 20;

/// Length and distance of the windows that rows are cut from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Tokens of a row.
    pub length: usize,
    /// Tokens from the start of a row to that of the next.
    pub stride: usize,
}

impl Windows {
    /// Windows without gap and overlap.
    ///
    /// # Errors
    ///
    /// When the length is 0.
    pub fn new(length: usize) -> Result<Self> {
        Self { length, stride: length }.checked()
    }

    /// Sets the tokens from the start of a row to that of the next.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn stride(self, stride: usize) -> Result<Self> {
        Self { stride, ..self }.checked()
    }

    fn checked(self) -> Result<Self> {
        for (name, value) in [("sequence_length", self.length), ("sequence_stride", self.stride)] {
            if value == 0 {
                return Err(Error::setting(format!("`{name}`"), "needs to be at least 1, but is 0", "128 is usual"));
            }
            if value > MOST_TOKENS {
                let problem = format!("needs to be at most {MOST_TOKENS}, but is {value}");
                return Err(Error::setting(format!("`{name}`"), problem, "128 is usual"));
            }
        }
        Ok(self)
    }
}

/// Windows of texts: the input `[length]` holds numbers of tokens, the target `[length]` those of the tokens that follow.
///
/// ```
/// use manyhands::data::{Batch, Dataset, Texts, TokenSettings, Vocabulary, Windows};
/// # fn main() -> manyhands::Result<()> {
/// let vocabulary = Vocabulary::adapt(TokenSettings::default(), ["a b c d e"]);
/// let texts = Texts::new(vocabulary, ["a b c d e"], Windows::new(2)?)?;
/// assert_eq!(texts.len(), 2);
/// let batch = Batch::fetch(&texts, &[1])?;
/// assert_eq!((&*batch.inputs[0], &*batch.targets[0]), (&[4.0, 5.0][..], &[5.0, 6.0][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Texts {
    vocabulary: Vocabulary,
    windows: Windows,
    tokens: Vec<u32>,
    /// Indices in `tokens` of the first token of each row.
    starts: Vec<usize>,
    /// Tokens behind the last window of their text.
    unused: usize,
    has_targets: bool,
}

impl Texts {
    /// Windows of texts; no window spans two of them.
    ///
    /// # Errors
    ///
    /// When no text is longer than a window.
    pub fn new<S: AsRef<str>>(
        vocabulary: Vocabulary,
        texts: impl IntoIterator<Item = S>,
        windows: Windows,
    ) -> Result<Self> {
        let (mut tokens, mut starts, mut unused, mut longest) = (Vec::new(), Vec::new(), 0, 0);
        for text in texts {
            let (begin, text) = (tokens.len(), vocabulary.encode(text.as_ref()));
            tokens.extend_from_slice(&text);
            longest = longest.max(text.len());
            let rows = begin..(begin + text.len()).saturating_sub(windows.length);
            starts.extend(rows.step_by(windows.stride));
            let end = starts.last().filter(|start| **start >= begin).map_or(begin, |start| start + windows.length + 1);
            unused += tokens.len() - end;
        }
        if starts.is_empty() {
            return Err(Error::data(
                "the text",
                format!(
                    "needs more than {} tokens for a row and the token after it, but has {longest}",
                    windows.length
                ),
                "use a smaller `sequence_length`, or a longer text",
            ));
        }
        Ok(Self { vocabulary, windows, tokens, starts, unused, has_targets: true })
    }

    /// Windows to predict from, with padding after the end of each text.
    ///
    /// # Errors
    ///
    /// When there is no token.
    pub fn without_targets<S: AsRef<str>>(
        vocabulary: Vocabulary,
        texts: impl IntoIterator<Item = S>,
        windows: Windows,
    ) -> Result<Self> {
        let (mut tokens, mut starts) = (Vec::new(), Vec::new());
        for text in texts {
            for window in vocabulary.encode(text.as_ref()).chunks(windows.length) {
                starts.push(tokens.len());
                tokens.extend_from_slice(window);
                tokens.resize(tokens.len().next_multiple_of(windows.length), 0);
            }
        }
        if starts.is_empty() {
            return Err(Error::data(
                "the text",
                "needs at least one token, but has none",
                "check that it is the right file",
            ));
        }
        Ok(Self { vocabulary, windows, tokens, starts, unused: 0, has_targets: false })
    }

    /// Reads a text file, or all `.txt` files of a folder, in the order of their names. Lines end with `\n`, as in
    /// Python's text mode.
    ///
    /// # Errors
    ///
    /// When a file can't be read or is in another encoding than UTF-8 and marked UTF-16, or the folder has none.
    pub fn read(path: &Path) -> Result<Vec<String>> {
        let mut texts = vec![path.to_path_buf()];
        let is_folder = path.is_dir();
        if is_folder {
            let entries = std::fs::read_dir(path).map_err(|source| Error::reading(path, source))?;
            texts = entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<Vec<PathBuf>, _>>()
                .map_err(|source| Error::reading(path, source))?;
            texts.retain(|file| file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("txt")));
            texts.sort();
        }
        if texts.is_empty() {
            return Err(Error::data(
                format!("the folder `{}`", shown(path)),
                "needs text files, but has no `.txt`",
                "name a text file, or a folder of them",
            ));
        }
        let read = |file: &PathBuf| {
            let text = files::text_of(file, if is_folder { source::read_file(file) } else { source::read(file) }?)?;
            // Windows ends lines with `\r\n` and marks UTF-8: both would be characters of their own to learn.
            Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n"))
        };
        texts.iter().map(read).collect()
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }
}

impl Dataset for Texts {
    fn len(&self) -> usize {
        self.starts.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        vec![Shape::new([self.windows.length])]
    }

    fn target_shapes(&self) -> Vec<Shape> {
        if self.has_targets { self.input_shapes() } else { Vec::new() }
    }

    fn schema(&self) -> Schema {
        let text = Text { output_sequence_length: self.windows.length, vocabulary: self.vocabulary.clone() };
        let text = Field { text: Some(text), ..Field::default() };
        let next = Field { classes: self.vocabulary.tokens().to_vec(), ..text.clone() };
        Schema {
            format: Format::Text { sequence_stride: self.windows.stride },
            inputs: vec![text],
            targets: if self.has_targets { vec![next] } else { Vec::new() },
            held_out: None,
            pixels: None,
        }
    }

    fn notes(&self) -> Vec<String> {
        let tokens = format!("{} tokens", thousands(self.tokens.len()));
        let unused = format!(", {} behind the last rows of their texts are not used", thousands(self.unused));
        vec![if self.unused == 0 { tokens } else { tokens + &unused }]
    }

    fn digest(&self) -> Option<u64> {
        let mut digest = Digest::default();
        self.tokens.iter().for_each(|token| digest.add((*token).into()));
        self.starts.iter().for_each(|start| digest.add(*start as u64));
        Some(digest.value())
    }

    #[allow(clippy::cast_precision_loss, reason = "vocabularies are far below 2^24 tokens, where f32 is exact")]
    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        let length = self.windows.length;
        let write = |slice: &mut [f32], offset: usize| {
            for (values, row) in slice.chunks_exact_mut(length).zip(rows) {
                let from = self.starts[*row] + offset;
                values.iter_mut().zip(&self.tokens[from..]).for_each(|(value, token)| *value = *token as f32);
            }
        };
        write(batch.input(0), 0);
        write(batch.target(0), 1);
        Ok(())
    }
}
