//! Texts as rows to train on: each position's target is the next token.

use std::path::{Path, PathBuf};

use manyhands::data::InMemory;
use manyhands_engine::{files, shown};
use ndarray::Array2;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::packing::{LeftOut, Packed};
use crate::rows::{Document, Reader, unmarked};
use crate::tokenizer::{Around, Tokenizer};
use crate::write::write_arrays;
use crate::{Error, Result};

/// Target of a position that is not learned: it counts in no loss.
pub const NOT_LEARNED: f32 = -100.0;
/// Class of such positions, for `ignore_class` of losses.
pub const NOT_LEARNED_CLASS: i32 = -100;
/// Most tokens of a row, unless another number is asked for.
pub const LENGTH: usize = 512;
/// Rows have a multiple of so many tokens.
const STEP: usize = 16;

/// Rows of one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Numbers of the tokens, `[rows, length]`.
    pub ids: Vec<f32>,
    /// The next token of each position, or [`NOT_LEARNED`], `[rows, length]`.
    pub targets: Vec<f32>,
    /// Number of each token's text within its row, `[rows, length]`; empty where each row is one text.
    pub documents: Vec<f32>,
    /// Tokens that are learned.
    pub learned: usize,
    /// Bytes of text that they stand for.
    pub bytes: usize,
}

/// Rules by which texts become rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowRules {
    /// Most tokens of a row.
    pub most: usize,
    /// Whether several short texts share a row: those of JSON lines, for [`Output::LogitsByDocument`](crate::network::Output).
    pub are_joined: bool,
    /// Part of the texts that is held out, below 1. All answers of a conversation are held out, or none.
    pub held_out: f64,
    /// Seed by which these are drawn.
    pub seed: u64,
}

/// Texts to train on, and texts that are held out.
#[derive(Clone, Debug, PartialEq)]
pub struct Examples {
    /// Tokens of a row.
    pub length: usize,
    /// Most tokens that a row could have.
    pub most: usize,
    /// Rows to train on.
    pub train: Rows,
    /// Rows that are held out; none if no part was asked for.
    pub held_out: Rows,
    /// Documents that are longer than that, or have nothing to learn.
    pub left_out: LeftOut,
    /// Texts in all: lines, or pieces of a plain text.
    pub texts: usize,
    /// Conversations of which each answer is a document of its own.
    pub divided: usize,
}

impl Examples {
    /// Reads a file of JSON lines ([`Reader::read`]), or plain text: a `.txt` file, or a folder of them.
    ///
    /// Each document of JSON lines is a row, unless they are joined; longer ones and those without a token to learn are left out and counted.
    /// Answers of one conversation are held out together.
    /// Plain text is cut into rows; its lines end with `\n`, whichever end the file has. Rows are shorter than asked for if no document is as
    /// long, or all have room in one.
    ///
    /// # Errors
    /// If a file can't be read, a line is refused, or nothing is left to train on.
    pub fn read(reader: &Reader<'_>, path: &Path, rules: &RowRules) -> Result<Self> {
        let is_plain = path.is_dir() || path.extension().is_some_and(|extension| extension == "txt");
        let documents = if is_plain { plain(reader.tokenizer, path, rules.most)? } else { reader.read(path)? };
        Self::of(&format!("`{}`", shown(path)), reader.tokenizer, &documents, rules)
    }

    /// Rows of documents, as [`read`](Self::read) makes them. `who` names the documents in errors.
    ///
    /// # Errors
    /// If nothing is left to train on.
    pub fn of(who: &str, tokenizer: &Tokenizer, documents: &[Document], rules: &RowRules) -> Result<Self> {
        let RowRules { most, are_joined, held_out, seed } = *rules;
        let by_line = || documents.chunk_by(|one, other| one.line == other.line);
        let taught: Vec<&[Document]> =
            by_line().filter(|text| text.iter().any(|document| document.fits(most))).collect();
        let (texts, divided) = (by_line().count(), by_line().filter(|text| text.len() > 1).count());
        let left_out = LeftOut::of(documents, most);
        let (train, drawn) = drawn(taught.len(), held_out, seed);
        if train.is_empty() {
            return Err(no_row(who, taught.len(), left_out, most));
        }
        let parts = [train, drawn].map(|chosen| {
            let texts = chosen.into_iter().flat_map(|text| taught[text]);
            texts.filter(|document| document.fits(most)).collect::<Vec<&Document>>()
        });
        let needed = parts.iter().map(|part| {
            let lengths = part.iter().map(|document| document.ids.len());
            if are_joined { lengths.sum() } else { lengths.max().unwrap_or(0) }
        });
        let length = needed.max().unwrap_or(0).next_multiple_of(STEP).min(most).max(1);
        let [train, held_out] = parts.map(|part| {
            let packed = if are_joined { Packed::new(part, length) } else { Packed::one_a_row(part, length) };
            Rows::of(&packed, are_joined, tokenizer)
        });
        Ok(Self { length, most, train: train?, held_out: held_out?, left_out, texts, divided })
    }

    /// Writes the rows as `x_train`, `y_train`, and `x_test`, `y_test` where rows are held out; numbers of texts as `x_train_2` and
    /// `x_test_2`.
    ///
    /// # Errors
    /// If the file is another one's, or can't be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let of = |rows: &Rows| vec![rows.ids.len() / self.length, self.length];
        let parts =
            [(&self.train, ["x_train", "x_train_2", "y_train"]), (&self.held_out, ["x_test", "x_test_2", "y_test"])];
        let arrays: Vec<_> = parts
            .into_iter()
            .flat_map(|(rows, names)| {
                let arrays = names.into_iter().zip([&rows.ids, &rows.documents, &rows.targets]);
                arrays.map(move |(name, values)| (name, of(rows), values.as_slice()))
            })
            .filter(|(_, _, values)| !values.is_empty())
            .collect();
        write_arrays(path, &arrays)
    }
}

impl Rows {
    #[allow(clippy::cast_precision_loss, reason = "vocabularies are below 2^24")]
    fn of(packed: &Packed, are_joined: bool, tokenizer: &Tokenizer) -> Result<Self> {
        let mut rows = Self::default();
        for row in 0..packed.rows() {
            let begin = row * packed.length;
            let places = begin..begin + packed.length;
            rows.ids.extend(packed.ids[places.clone()].iter().map(|id| *id as f32));
            let next = |at: usize| {
                let is_learned = at + 1 < places.end && packed.learned[at + 1] == 1;
                if is_learned { packed.ids[at + 1] as f32 } else { NOT_LEARNED }
            };
            rows.targets.extend(places.clone().map(next));
            if are_joined {
                rows.documents.extend(packed.documents[places.clone()].iter().map(|document| *document as f32));
            }
            let learned: Vec<u32> = places.filter(|at| packed.learned[*at] == 1).map(|at| packed.ids[at]).collect();
            rows.learned += learned.len();
            rows.bytes += tokenizer.decode(&learned)?.len();
        }
        Ok(rows)
    }

    /// The rows as data in memory, `[rows, length]`.
    ///
    /// # Errors
    /// If there is none.
    pub fn dataset(&self, length: usize) -> Result<InMemory> {
        let shaped = |values: &[f32]| {
            let rows = values.len() / length.max(1);
            Array2::from_shape_vec((rows, length), values.to_vec()).map_err(|error| {
                Error::data("rows of tokens", format!("need {length} a row: {error}"), "report this defect")
            })
        };
        let data = InMemory::without_targets(shaped(&self.ids)?)?;
        let data = if self.documents.is_empty() { data } else { data.with_input(shaped(&self.documents)?)? };
        data.with_target(shaped(&self.targets)?)
    }

    /// Bits for each byte of the text, from the mean loss of its tokens, in nats.
    #[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
    pub fn bits_a_byte(&self, loss: f64) -> f64 {
        loss / std::f64::consts::LN_2 * self.learned as f64 / self.bytes.max(1) as f64
    }
}

/// The error of texts that leave no row to train on.
fn no_row(who: &str, texts: usize, left_out: LeftOut, most: usize) -> Error {
    let LeftOut { count, longest, unlearned, .. } = left_out;
    let beside = if count > 0 { format!(", beside {count} of more than {most} tokens") } else { String::new() };
    let hold_less = "give more, or hold none out: `--validation 0`, in Python `validation=0`";
    let (problem, help) = match (texts, count, unlearned) {
        (0, 0, 0) => ("needs text of two tokens or more, but has none".into(), "check that it is the right file"),
        (0, 0, _) => (
            "needs a token to learn, but its texts have none".into(),
            "give longer texts, and answers that are not empty and whose `weight` is not 0",
        ),
        (0, ..) => (
            format!("needs a text of at most {most} tokens, but all have more, the longest {longest}"),
            "set a greater length, as far as the model reads, or divide the texts",
        ),
        (1, ..) => (format!("needs two texts, one to train on and one to hold out, but has 1{beside}"), hold_less),
        _ => (format!("needs a text to train on, but all {texts} are held out{beside}"), hold_less),
    };
    Error::data(who, problem, help)
}

/// Numbers of the texts to train on and of those that are held out, each in the order of the file.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a count"
)]
fn drawn(texts: usize, part: f64, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let count = (texts as f64 * part).round() as usize;
    let count = if part > 0.0 { count.max(1) } else { 0 };
    let mut order: Vec<usize> = (0..texts).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let (held_out, train) = order.split_at_mut(count.min(texts));
    held_out.sort_unstable();
    train.sort_unstable();
    (train.to_vec(), held_out.to_vec())
}

/// Plain text as documents of at most so many tokens, one behind the other.
///
/// Lines end with `\n`, as Python's text mode and so the loaders of Hugging Face read them.
fn plain(tokenizer: &Tokenizer, path: &Path, most: usize) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for file in texts(path)? {
        let text = files::read_text(&file)?;
        let text = unmarked(&text).replace("\r\n", "\n").replace('\r', "\n");
        let tokens = tokenizer.encode(&text, Around::None)?;
        // A piece begins with the last token of the one before, so that each token but the first is learned once.
        let starts = (0..tokens.ids.len().saturating_sub(1)).step_by(most.saturating_sub(1).max(1));
        for start in starts {
            let ids = tokens.ids[start..tokens.ids.len().min(start + most)].to_vec();
            documents.push(Document { line: documents.len() + 1, learned: vec![1; ids.len()], ids });
        }
    }
    Ok(documents)
}

/// The text files of a folder by name, or the one file.
fn texts(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(|error| Error::reading(path, error))?;
    let mut texts: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    texts.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    texts.sort();
    if texts.is_empty() {
        let problem = "needs files that end in `.txt`, but has none";
        return Err(Error::data(
            format!("the folder `{}`", shown(path)),
            problem,
            "name one file of JSON lines instead",
        ));
    }
    Ok(texts)
}
