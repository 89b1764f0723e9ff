//! Text that a network writes: one character after the other, each drawn from what the network expects next.

use std::sync::Arc;

use manyhands::Result;
use manyhands::data::{Dataset, InMemory, Vocabulary};
use ndarray::{Array2, ArrayD, Axis};

use crate::tasks::LENGTH;

/// Numbers of the vocabulary that stand for no character.
const RESERVED: u32 = 2;
/// Factors outside of it make all characters alike, or one of them certain.
const TEMPERATURES: [f32; 2] = [0.05, 2.0];
/// Beginning of the first line.
const START: &str = ". ";

/// A text that goes on.
pub struct Writer {
    vocabulary: Vocabulary,
    tokens: Vec<u32>,
}

impl Writer {
    /// A text of characters.
    pub fn new(vocabulary: Vocabulary) -> Self {
        let tokens = vocabulary.encode(START);
        Self { vocabulary, tokens }
    }

    /// The network's input: the last characters. What stands behind them does not matter, since no position sees later ones.
    ///
    /// # Errors
    /// None: numbers of characters are finite.
    #[allow(clippy::cast_precision_loss, reason = "characters are few")]
    pub fn row(&self) -> Result<Arc<dyn Dataset>> {
        let row = Array2::from_shape_fn((1, LENGTH), |(_, at)| self.tokens.get(at).map_or(0.0, |token| *token as f32));
        Ok(Arc::new(InMemory::without_targets(row)?))
    }

    /// Takes the next character from the network's output for that row. `place` is where it is drawn, from 0 to 1.
    pub fn take(&mut self, scores: &ArrayD<f32>, temperature: f32, place: f32) {
        let last = scores.index_axis(Axis(0), 0);
        let scores: Vec<f32> = last.index_axis(Axis(0), self.tokens.len() - 1).iter().copied().collect();
        self.tokens.push(draw(&scores, temperature, place));
        let first = self.tokens.len().saturating_sub(LENGTH);
        self.tokens.drain(..first);
    }

    /// The newest character.
    pub fn newest(&self) -> String {
        self.vocabulary.decode(&self.tokens[self.tokens.len() - 1..])
    }
}

/// A character, as often as its score says: with a low temperature the likely ones become likelier.
fn draw(scores: &[f32], temperature: f32, place: f32) -> u32 {
    let temperature = temperature.clamp(TEMPERATURES[0], TEMPERATURES[1]);
    let scores = scores.get(RESERVED as usize..).unwrap_or_default();
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| ((score - largest) / temperature).exp()).collect();
    let mut left = place * weights.iter().sum::<f32>();
    let mut is_it = |weight: &f32| {
        left -= weight;
        left < 0.0
    };
    (RESERVED..).zip(&weights).find(|(_, weight)| is_it(weight)).map_or(RESERVED, |(token, _)| token)
}

#[cfg(test)]
mod tests {
    use manyhands::data::Batch;

    use super::*;
    use crate::tasks::tests::tasks;

    #[test]
    fn characters_are_drawn_as_often_as_their_scores_say() {
        // Weights 1, 1 and 2 behind two that stand for nothing.
        let scores = [9.0, 9.0, 0.0, 0.0, 2.0_f32.ln()];
        let drawn: Vec<u32> = [0.0, 0.24, 0.26, 0.49, 0.51, 0.99].map(|place| draw(&scores, 1.0, place)).to_vec();
        assert_eq!(drawn, [2, 2, 3, 3, 4, 4]);
        // Half the temperature squares them: 1, 1, 4.
        assert_eq!([0.3, 0.35].map(|place| draw(&scores, 0.5, place)), [3, 4]);
        assert_eq!(draw(&scores, 0.0, 0.01), 4, "the likeliest one");
        assert_eq!(draw(&[f32::NAN; 5], 1.0, 0.5), RESERVED);
    }

    #[test]
    fn a_text_goes_on_and_forgets_what_is_no_longer_seen() {
        let [.., text] = tasks();
        let vocabulary = text.vocabulary.unwrap();
        let n_tokens = vocabulary.tokens().len();
        let mut writer = Writer::new(vocabulary.clone());
        for token in "history".repeat(9).chars() {
            // At the last character that is there, and nowhere else, the network expects this one.
            let number = vocabulary.encode(&token.to_string())[0] as usize;
            let last = writer.tokens.len() - 1;
            let scores = ndarray::Array3::from_shape_fn((1, LENGTH, n_tokens), |(_, at, other)| {
                if at == last && other == number { 50.0 } else { 0.0 }
            });
            writer.take(&scores.into_dyn(), 1.0, 0.5);
            assert_eq!(writer.newest(), token.to_string());
        }
        let seen = Batch::fetch(writer.row().unwrap().as_ref(), &[0]).unwrap();
        let tokens: Vec<u32> = vocabulary.encode(&"history".repeat(9)[63 - LENGTH..]);
        #[allow(clippy::cast_precision_loss, reason = "characters are few")]
        let expected: Vec<f32> = tokens.iter().map(|token| *token as f32).collect();
        assert_eq!(&*seen.inputs[0], expected);
    }
}
