//! Settings for a text.

use std::path::Path;

use manyhands::Result;
use manyhands::data::Description;
use manyhands_engine::shown::thousands;

use super::{Proposal, TrainingLength, commented, data_of, quoted_path};

/// Tokens of a row: long enough for words to matter, short enough for small texts to have rows.
const LENGTHS: [usize; 3] = [128, 64, 16];
/// Rows from which on a length is taken.
const FEWEST_ROWS: usize = 50;

/// A language model of characters.
pub(super) fn propose(path: &Path) -> Result<Proposal> {
    let text_of = |length: usize| {
        Ok(format!(
            "[data]\ntype = \"text\"\ntrain = {}\n{}{}",
            quoted_path(path)?,
            commented(&format!("sequence_length = {length}"), "characters that a row has"),
            commented("tokens = { split = \"character\" }", "or \"whitespace\": words")
        ))
    };
    let open = |length: usize| -> Result<_> {
        let text: String = text_of(length)?;
        let train = data_of(&text)?.open()?.train;
        Ok((text, train, length))
    };
    let mut found = open(LENGTHS[LENGTHS.len() - 1])?;
    for length in LENGTHS {
        if found.1.len() * LENGTHS[LENGTHS.len() - 1] / length >= FEWEST_ROWS {
            found = open(length)?;
            break;
        }
    }
    let (data, train, length) = found;
    let schema = train.schema();
    let tokens =
        schema.inputs.first().and_then(|field| field.text.as_ref()).map_or(1, |text| text.vocabulary.tokens().len());
    let schedule =
        TrainingLength { rows: train.len(), epochs: 40, patience: 3, learning_rate: "0.003", has_cosine: false };
    let seen = format!(
        "{}\nthe model predicts at each place the next of {} characters",
        Description::of("data", &train)?,
        thousands(tokens)
    );
    let settings = format!(
        "{data}\n[model]\ninput = [{length}]\nlayers = [\n{}  {{ type = \"LSTM\", units = 128, return_sequences = true }},\n  \
         {{ type = \"Dense\", units = {tokens} }},\n]\n\n[loss]\ntype = \"SparseCategoricalCrossentropy\"\n\n{}",
        commented(
            &format!("  {{ type = \"Embedding\", input_dim = {tokens}, output_dim = 32 }},"),
            "different characters"
        ),
        schedule.text(None, "metrics = [\"accuracy\", \"perplexity\"]\n")
    );
    Ok(Proposal { seen, settings })
}
