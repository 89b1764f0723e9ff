//! Settings for a table whose input is a column of texts.

use std::sync::Arc;

use manyhands::Result;
use manyhands::data::csv::sketch::{ColumnSketch, NoInput, Sketch};
use manyhands::data::{Batch, Dataset};

use super::{commented, data_of, quoted};

/// Words of the vocabulary, at most.
const MOST_WORDS: usize = 10_000;
/// Words of a text that count, at most.
const MOST_LENGTH: usize = 256;
/// Words of a text that are asked for at least.
const LEAST_LENGTH: usize = 4;
/// Part of the texts that are not cut.
const WHOLE: f64 = 0.95;
/// Rows that are looked at for the length of texts.
const MOST_LOOKED_AT: usize = 10_000;

/// The first column of free text, where there is one.
pub(super) fn column<'a>(
    sketch: &'a Sketch,
    target: &ColumnSketch,
    ignored: &[&ColumnSketch],
) -> Option<&'a ColumnSketch> {
    let is = |one: &ColumnSketch, other: &ColumnSketch| one.column.index == other.column.index;
    let is_free = |column: &&ColumnSketch| {
        column.no_input == Some(NoInput::FreeText)
            && !is(column, target)
            && !ignored.iter().any(|other| is(column, other))
    };
    sketch.columns.iter().find(is_free)
}

/// The columns of the input: `head` is the rest of `[data]`. Texts are as long as most are in the table.
pub(super) fn data_text(head: &str, text: &ColumnSketch, key: &str) -> Result<String> {
    let with = |length: usize| {
        format!(
            "{head}\n[[data.inputs]]\nname = {}\ncolumns = [{key}]\n{}{}",
            quoted(&name(text)),
            commented(
                &format!("output_sequence_length = {length}"),
                "words that count: longer texts are cut, zeros follow shorter ones"
            ),
            commented(
                &format!("tokens = {{ max_tokens = {MOST_WORDS} }}"),
                "the most frequent words; they are kept in the model file"
            )
        )
    };
    let longest: Arc<dyn Dataset> = data_of(&with(MOST_LENGTH))?.open()?.train;
    Ok(with(length(&longest)?))
}

/// Words of the longest texts but a few.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an index below the number of rows"
)]
fn length(dataset: &Arc<dyn Dataset>) -> Result<usize> {
    let rows: Vec<usize> = (0..dataset.len().min(MOST_LOOKED_AT)).collect();
    let words = Batch::fetch(dataset, &rows)?.inputs.swap_remove(0);
    let length_of = |row: &[f32]| row.iter().rposition(|token| *token != 0.0).map_or(0, |last| last + 1);
    let mut lengths: Vec<usize> = words.chunks_exact(MOST_LENGTH).map(length_of).collect();
    lengths.sort_unstable();
    let at = ((lengths.len() as f64 * WHOLE) as usize).min(lengths.len().saturating_sub(1));
    Ok(lengths.get(at).copied().unwrap_or(LEAST_LENGTH).max(LEAST_LENGTH))
}

/// The model up to its last layer: the mean of vectors of words, which is quick to train and hard to beat on short texts.
pub(super) fn layers(dataset: &dyn Dataset, text: &ColumnSketch) -> String {
    let field = dataset.schema().inputs.into_iter().next().unwrap_or_default();
    let (length, words) =
        field.text.map_or((0, 0), |text| (text.output_sequence_length, text.vocabulary.tokens().len()));
    format!(
        "inputs = [{{ name = {}, shape = [{length}] }}]\nlayers = [\n{}{}  {{ type = \"Dropout\", rate = 0.3 }},\n",
        quoted(&name(text)),
        commented(
            &format!("  {{ type = \"Embedding\", input_dim = {words}, output_dim = 64, mask_zero = true }},"),
            "different words"
        ),
        commented("  { type = \"GlobalAveragePooling1D\" },", "the mean of their vectors"),
    )
}

fn name(text: &ColumnSketch) -> String {
    text.column.name.clone().unwrap_or_else(|| "text".into())
}
