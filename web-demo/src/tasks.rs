//! Data of a run: the digits in the program, or those that the page loads when they are chosen, pictures of clothes or a text.

use std::sync::Arc;

use manyhands::data::{
    Batch, ByteImages, Dataset, Field, Format, InMemory, Schema, Split, Text, TokenSettings, Vocabulary, digits,
};
use manyhands::presets;
use manyhands::{Error, Result, Shape};
use ndarray::Array2;
use serde::{Deserialize, Serialize};

/// Characters that a network of texts sees at once.
pub const LENGTH: usize = 40;
/// Full ink of a digit, and of a picture of clothes, which has half a byte for each pixel.
pub const WHITE: [u8; 2] = [16, 15];

const SIDE: usize = 28;
/// Of the rows of a file, the part at its end that is for testing.
const TEST_PART: usize = 7;
/// One character of a text in so many is kept for testing, at its end.
const TEXT_TEST_PART: usize = 10;
/// Most bytes of a text: each character becomes two numbers of four bytes.
const TEXT_BYTES: usize = 4_000_000;
/// Least characters of a text, so that the part for testing has a row.
const TEXT_LEAST: usize = TEXT_TEST_PART * (LENGTH + 1);
/// Most different characters that are told apart: the rarer ones count as one.
const MOST_CHARACTERS: usize = 512;
/// The classes of Fashion-MNIST, by label.
const CLOTHES: [&str; 10] =
    ["T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"];

/// Data that a run learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "Data"))]
#[serde(rename_all = "snake_case")]
pub enum LearnedData {
    /// Handwritten digits, which are in the program.
    #[default]
    Digits,
    /// Pictures of clothes: a part of Fashion-MNIST.
    Fashion,
    /// The page's text, of which each next character is to be told.
    Text,
    /// A text of the visitor's own.
    Own,
}

impl LearnedData {
    /// Shape of a row.
    pub fn input(self) -> Shape {
        match self {
            Self::Digits => presets::digits::SHAPE.into(),
            Self::Fashion => [SIDE, SIDE, 1].into(),
            Self::Text | Self::Own => [LENGTH].into(),
        }
    }

    /// File of an exported model.
    pub fn file(self) -> &'static str {
        match self {
            Self::Digits => "digits.safetensors",
            Self::Fashion => "fashion.safetensors",
            Self::Text | Self::Own => "text.safetensors",
        }
    }
}

/// Data for training and testing.
#[derive(Clone)]
pub struct LearningTask {
    /// Their kind.
    pub data: LearnedData,
    /// Rows to train on.
    pub train: Arc<dyn Dataset>,
    /// Rows to test with.
    pub test: Arc<dyn Dataset>,
    /// The characters of a text.
    pub vocabulary: Option<Vocabulary>,
    /// Loss of a text by the frequencies of its characters alone.
    pub frequencies_loss: Option<f64>,
}

impl LearningTask {
    /// The digits in the program.
    ///
    /// # Errors
    /// Only if the bytes in the program were damaged.
    pub fn digits() -> Result<Self> {
        Ok(Self::of_pictures(LearnedData::Digits, digits::train()?, digits::test()?))
    }

    /// Data from the bytes of their file, as `web-demo/datasets.js` writes it.
    ///
    /// # Errors
    /// If the bytes are of something else.
    pub fn read(data: LearnedData, bytes: &[u8]) -> Result<Self> {
        match data {
            LearnedData::Digits => Self::digits(),
            LearnedData::Fashion => Self::fashion(bytes),
            LearnedData::Text | LearnedData::Own => Self::text(data, bytes),
        }
    }

    /// Labels, a byte each, then pictures of 28 × 28 pixels, two in a byte, the left one in its lower half.
    fn fashion(bytes: &[u8]) -> Result<Self> {
        let rows = bytes.len() / (1 + SIDE * SIDE / 2);
        let (labels, packed) = bytes.split_at(rows);
        let n_test = rows / TEST_PART;
        if n_test == 0 || bytes.len() != rows * (1 + SIDE * SIDE / 2) {
            return Err(unreadable("the pictures of clothes", bytes.len()));
        }
        let pixels: Vec<u8> = packed.iter().flat_map(|pair| [pair & 15, pair >> 4]).collect();
        let images = |from: usize, to: usize| -> Result<ByteImages> {
            let part = pixels[from * SIDE * SIDE..to * SIDE * SIDE].to_vec();
            let images = ByteImages::new(Shape::new([SIDE, SIDE, 1]), part, labels[from..to].to_vec(), WHITE[1])?;
            Ok(images.with_schema(Schema::with_classes(Format::Idx, CLOTHES)))
        };
        let n_train = rows - n_test;
        Ok(Self::of_pictures(LearnedData::Fashion, images(0, n_train)?, images(n_train, rows)?))
    }

    fn of_pictures(data: LearnedData, train: ByteImages, test: ByteImages) -> Self {
        let (train, test) = (Arc::new(train), Arc::new(test));
        Self { data, train, test, vocabulary: None, frequencies_loss: None }
    }

    /// A text in UTF-8; its last part is for testing.
    fn text(data: LearnedData, bytes: &[u8]) -> Result<Self> {
        let refused = |problem: String, help: &str| Err(Error::data("the text", problem, help));
        if bytes.len() > TEXT_BYTES {
            let problem = format!("needs {TEXT_BYTES} bytes at most, but has {}", bytes.len());
            return refused(problem, "choose a part of it");
        }
        let Ok(text) = str::from_utf8(bytes) else {
            return refused("needs to be plain text in UTF-8, but is not".to_owned(), "save it as plain text");
        };
        let max_tokens = Some(MOST_CHARACTERS);
        let settings = TokenSettings { split: Split::Character, max_tokens, ..TokenSettings::default() };
        let vocabulary = Vocabulary::adapt(settings, [text]);
        let tokens = vocabulary.encode(text);
        if tokens.len() < TEXT_LEAST {
            let problem = format!("needs {TEXT_LEAST} characters at least, but has {}", tokens.len());
            return refused(problem, "choose a longer one");
        }
        let (train, test) = tokens.split_at(tokens.len() - tokens.len() / TEXT_TEST_PART);
        let rows = |tokens: &[u32]| -> Result<Arc<dyn Dataset>> {
            Ok(Arc::new(windows(tokens)?.with_schema(schema(&vocabulary))))
        };
        let frequencies_loss = Some(frequencies_loss(vocabulary.tokens().len(), train, test));
        let (train, test) = (rows(train)?, rows(test)?);
        Ok(Self { data, train, test, vocabulary: Some(vocabulary), frequencies_loss })
    }

    /// Shape of a row.
    pub fn input(&self) -> Shape {
        self.data.input()
    }

    /// Width of a network's output.
    pub fn outputs(&self) -> usize {
        self.train.schema().classes(0).len()
    }

    /// Names of the classes.
    pub fn classes(&self) -> Vec<String> {
        self.train.schema().classes(0).to_vec()
    }

    /// The value of full ink, where the data are pictures.
    pub fn white(&self) -> Option<u8> {
        match self.data {
            LearnedData::Digits => Some(WHITE[0]),
            LearnedData::Fashion => Some(WHITE[1]),
            LearnedData::Text | LearnedData::Own => None,
        }
    }

    /// Pixels and labels of the test pictures, as bytes; nothing where the data are no pictures.
    ///
    /// # Errors
    /// If a row can't be read.
    pub fn test_bytes(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        self.white().map_or(Ok((Vec::new(), Vec::new())), |white| bytes_of(self.test.as_ref(), white))
    }
}

/// Pixels and labels of pictures, as bytes.
///
/// # Errors
/// If a row can't be read.
pub fn bytes_of(images: &dyn Dataset, white: u8) -> Result<(Vec<u8>, Vec<u8>)> {
    let rows: Vec<usize> = (0..images.len()).collect();
    let batch = Batch::fetch(images, &rows)?;
    let bytes = |values: &[f32], scale: u8| values.iter().map(|value| byte(value * f32::from(scale))).collect();
    Ok((bytes(&batch.inputs[0], white), bytes(&batch.targets[0], 1)))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers from 0 to 16")]
fn byte(value: f32) -> u8 {
    value.round() as u8
}

fn unreadable(what: &str, n_bytes: usize) -> Error {
    let problem = format!("need to be those of the page, but have {n_bytes} other bytes");
    Error::data(what, problem, "load the page again")
}

/// Each window of a text, and the characters that follow each of its characters.
#[allow(clippy::cast_precision_loss, reason = "characters are few")]
fn windows(tokens: &[u32]) -> Result<InMemory> {
    let rows = (tokens.len() - 1) / LENGTH;
    let of =
        |offset: usize| Array2::from_shape_fn((rows, LENGTH), |(row, at)| tokens[row * LENGTH + at + offset] as f32);
    InMemory::new(of(0), of(1))
}

/// Schema of the text, as the native reader has it, so that the command reads an exported model.
fn schema(vocabulary: &Vocabulary) -> Schema {
    let text = Text { output_sequence_length: LENGTH, vocabulary: vocabulary.clone() };
    let text = Field { text: Some(text), ..Field::default() };
    let next = Field { classes: vocabulary.tokens().to_vec(), ..text.clone() };
    let format = Format::Text { sequence_stride: LENGTH };
    Schema { format, inputs: vec![text], targets: vec![next], ..Schema::default() }
}

/// Loss of a text, if each character is expected as often as it is in another one.
#[allow(clippy::cast_precision_loss, reason = "characters are few")]
fn frequencies_loss(n_tokens: usize, train: &[u32], test: &[u32]) -> f64 {
    let count = |token: u32| train.iter().filter(|other| **other == token).count() as f64;
    // One more of each: none is impossible.
    let all = (train.len() + n_tokens) as f64;
    let losses: Vec<f64> = (0..).take(n_tokens).map(|token| -((1.0 + count(token)) / all).ln()).collect();
    test.iter().filter_map(|token| losses.get(*token as usize)).sum::<f64>() / test.len() as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Seven pictures, whose pixels are the number of their row, and their labels.
    fn clothes() -> Vec<u8> {
        let pictures = (0..7_u8).flat_map(|row| [row | (row + 1) << 4; SIDE * SIDE / 2]);
        (0..7).chain(pictures).collect()
    }

    /// A task of each kind.
    pub(crate) fn tasks() -> [LearningTask; 3] {
        let text = "We can not escape history. ".repeat(40);
        [
            LearningTask::digits(),
            LearningTask::read(LearnedData::Fashion, &clothes()),
            LearningTask::read(LearnedData::Text, text.as_bytes()),
        ]
        .map(Result::unwrap)
    }

    #[test]
    fn test_pictures_are_bytes_again() {
        let [digits, fashion, text] = tasks();
        let (pixels, labels) = digits.test_bytes().unwrap();
        assert_eq!((pixels.len(), labels.len()), (360 * 64, 360));
        assert_eq!(pixels.iter().max(), Some(&16));
        assert!(labels.iter().all(|label| *label < 10));
        assert_eq!((fashion.train.len(), fashion.test.len()), (6, 1));
        let (pixels, labels) = fashion.test_bytes().unwrap();
        assert_eq!((pixels, labels), ([6, 7].repeat(SIDE * SIDE / 2), vec![6]));
        assert_eq!(fashion.classes()[6], "shirt");
        assert_eq!(text.test_bytes().unwrap(), (vec![], vec![]));
    }

    #[test]
    fn a_row_of_a_text_holds_characters_and_what_follows_them() {
        let [_, _, text] = tasks();
        let vocabulary = text.vocabulary.clone().unwrap();
        let batch = Batch::fetch(text.train.as_ref(), &[1]).unwrap();
        let read = |values: &[f32]| {
            let tokens: Vec<u32> = values.iter().map(|value| u32::from(byte(*value))).collect();
            vocabulary.decode(&tokens)
        };
        assert_eq!(read(&batch.inputs[0]), "cape history. We can not escape history.");
        assert_eq!(read(&batch.targets[0]), "ape history. We can not escape history. ");
        assert_eq!(text.outputs(), vocabulary.tokens().len());
        assert_eq!((text.train.len(), text.test.len()), (972 / LENGTH, 108 / LENGTH));
    }

    #[test]
    fn frequencies_alone_have_the_loss_of_their_entropy() {
        // Four of each of two characters, with one more of each and of two that are not there: 5 of 12.
        let loss = frequencies_loss(4, &[2, 3, 2, 3, 2, 3, 2, 3], &[2, 3]);
        assert!((loss - (12.0_f64 / 5.0).ln()).abs() < 1e-9, "{loss}");
    }

    #[test]
    fn other_bytes_are_refused() {
        for (data, bytes, problem) in [
            (LearnedData::Fashion, vec![0; 1000], "but have 1000 other bytes"),
            (LearnedData::Own, vec![0xff; 9], "needs to be plain text in UTF-8"),
            (LearnedData::Own, vec![b'a'; TEXT_LEAST - 1], "needs 410 characters at least, but has 409"),
            (LearnedData::Own, vec![b'a'; TEXT_BYTES + 1], "needs 4000000 bytes at most, but has 4000001"),
        ] {
            let error = LearningTask::read(data, &bytes).err().unwrap().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn a_short_text_has_a_row_for_testing_and_the_rarest_characters_count_as_one() {
        let shortest = LearningTask::read(LearnedData::Own, &[b'a'; TEXT_LEAST]).unwrap();
        assert_eq!((shortest.train.len(), shortest.test.len()), ((TEXT_LEAST * 9 / 10 - 1) / LENGTH, 1));
        // 2,000 characters of Chinese, each once, behind one that is frequent.
        let many: String = (0x4e00..0x4e00 + 2000).filter_map(char::from_u32).chain("的".repeat(99).chars()).collect();
        let task = LearningTask::read(LearnedData::Own, many.as_bytes()).unwrap();
        assert_eq!(task.outputs(), MOST_CHARACTERS);
        assert_eq!(task.classes()[2], "的");
    }
}
