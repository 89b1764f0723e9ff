//! Any model that reads rows of tokens and gives logits at each position.

use manyhands::data::InMemory;
use manyhands::{Model, Predictor};
use manyhands_engine::adapters::Info;
use ndarray::{Array2, Axis, s};

use super::NextToken;
use crate::{Error, Result};

/// A model of rows of tokens, which reads its last ones again for each new token.
///
/// A model trained on rows of 128 tokens sees the last 128 tokens of a longer text.
pub struct Rows {
    predictor: Predictor,
    length: usize,
    /// Tokens that are never chosen.
    never: Vec<u32>,
}

impl Rows {
    /// Runs a model `[length] → [length, vocabulary]` on an adapter. `never` are tokens that it must not write, such as padding.
    ///
    /// # Errors
    /// If the model has other inputs or outputs, or its logits depend on later tokens.
    pub fn new(model: Model, adapter: Info, never: Vec<u32>) -> Result<Self> {
        let refuse = |problem: String, help: &str| Err(Error::model("the model", problem, help));
        let (inputs, outputs) = (model.inputs(), model.outputs());
        let length = match (inputs, &outputs[..]) {
            ([input], [(_, output)]) => match (input.shape.axes(), output.axes()) {
                ([length], [positions, _]) if length == positions => *length,
                (input, output) => {
                    let problem = format!(
                        "needs an input [length] of tokens and an output [length, vocabulary], but has {input:?} and {output:?}"
                    );
                    return refuse(problem, "train a model on a text: `manyhands init TEXT` writes settings for one");
                }
            },
            _ => {
                let problem = format!("needs one input and one output, but has {} and {}", inputs.len(), outputs.len());
                return refuse(problem, "train a model on a text: `manyhands init TEXT` writes settings for one");
            }
        };
        let mut rows = Self { predictor: Predictor::new(model).on(vec![adapter]), length, never };
        rows.check_order()?;
        Ok(rows)
    }

    /// Refuses a model whose first logits depend on later tokens: they would depend on the padding behind a text.
    fn check_order(&mut self) -> Result<()> {
        let later = Array2::from_shape_fn((2, self.length), |(row, at)| if at == 0 || row == 0 { 0.0 } else { 1.0 });
        let outputs = self.predictor.predict(InMemory::without_targets(later)?, 2)?;
        let first = |row: usize| outputs[0].index_axis(Axis(0), row).index_axis(Axis(0), 0).to_owned();
        if first(0) == first(1) {
            return Ok(());
        }
        Err(Error::model(
            "the model",
            "needs to read in order to write, but what it gives at a position depends on later ones",
            "train a model with `LSTM`, or with attention that has `use_causal_mask`",
        ))
    }
}

impl NextToken for Rows {
    #[allow(clippy::cast_precision_loss, reason = "vocabularies are far below 2^24 tokens, where f32 is exact")]
    fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let seen = &tokens[tokens.len().saturating_sub(self.length)..];
        let row = Array2::from_shape_fn((1, self.length), |(_, at)| seen.get(at).map_or(0.0, |token| *token as f32));
        let outputs = self.predictor.predict(InMemory::without_targets(row)?, 1)?;
        let mut logits = outputs[0].slice(s![0, seen.len().saturating_sub(1), ..]).to_vec();
        for token in &self.never {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(logits)
    }

    fn most(&self) -> Option<usize> {
        None
    }
}
