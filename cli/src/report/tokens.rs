//! A language model, judged token by token.

use std::collections::BTreeMap;

use manyhands::data::{Split, Text};
use manyhands_engine::shown::thousands;
use manyhands_engine::timing::ratio;
use serde::{Deserialize, Serialize};

use super::chart::{Chart, Series, Style};
use super::text::{escaped, number, percent, write_to};

/// Rows that are shown with the probability of each token.
const PASSAGES: usize = 4;
/// Tokens of such a row that are shown.
const SHOWN: usize = 400;
/// Opacity behind a token that had no probability at all: it stays readable.
const STRONGEST: f64 = 0.55;

/// The tokens of rows, and what the model expected in their place.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Tokens {
    /// Tokens in all.
    pub tokens: u64,
    /// Tokens that were the most probable ones.
    pub right: u64,
    /// Mean over all of the negative logarithm of a token's probability.
    pub loss: f64,
    /// Mean of the loss, if the probability of each token were its frequency in these rows.
    pub loss_by_frequency: f64,
    /// The mean of the tokens at each position of a row.
    pub loss_by_position: Vec<f64>,
    /// Some rows: their tokens as text, with the probability of each.
    pub passages: Vec<Vec<(String, f32)>>,
}

/// Collects tokens.
pub struct Collected {
    text: Text,
    /// Rows to be shown.
    shown: Vec<usize>,
    right: u64,
    /// Sums by position, and how many tokens they are of.
    losses: Vec<(f64, u64)>,
    counts: BTreeMap<usize, u64>,
    passages: Vec<Vec<(String, f32)>>,
}

impl Collected {
    /// Nothing yet, of so many rows.
    pub fn new(text: Text, rows: usize) -> Self {
        let mut shown: Vec<usize> = (0..PASSAGES).map(|at| at * rows / PASSAGES).collect();
        shown.dedup();
        let losses = vec![(0.0, 0); text.output_sequence_length];
        Self { text, shown, right: 0, losses, counts: BTreeMap::new(), passages: Vec::new() }
    }

    /// Takes the outputs and the tokens of a row: `[positions, vocabulary]`, `[positions]`. No token: it does not count.
    pub fn take(&mut self, row: usize, outputs: &[f32], tokens: &[Option<usize>]) {
        let width = outputs.len() / tokens.len().max(1);
        let mut passage = Vec::new();
        for (position, (outputs, token)) in outputs.chunks_exact(width.max(1)).zip(tokens).enumerate() {
            let Some(token) = token else { continue };
            let most = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = outputs.iter().map(|output| f64::from(output - most).exp()).sum();
            let of_token = outputs.get(*token).map_or(f64::NEG_INFINITY, |output| f64::from(output - most));
            self.right += u64::from(of_token >= 0.0);
            let (losses, tokens) = &mut self.losses[position];
            *losses += sum.ln() - of_token;
            *tokens += 1;
            *self.counts.entry(*token).or_default() += 1;
            #[allow(clippy::cast_possible_truncation, reason = "a probability")]
            passage.push((*token, (of_token.exp() / sum) as f32));
        }
        if self.shown.contains(&row) {
            self.passages.push(passage.into_iter().map(|(token, part)| (self.token(token), part)).collect());
        }
    }

    /// A token as it stands in a text.
    fn token(&self, number: usize) -> String {
        let token = self.text.vocabulary.tokens().get(number).map_or("", String::as_str);
        match self.text.vocabulary.settings().split {
            Split::Whitespace => format!("{token} "),
            Split::Character => token.to_owned(),
        }
    }

    pub fn finish(self) -> Tokens {
        #[allow(clippy::cast_precision_loss, reason = "counts of tokens")]
        let mean = |(sum, count): &(f64, u64)| sum / (*count).max(1) as f64;
        let sum = self.losses.iter().fold((0.0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let tokens: u64 = self.counts.values().sum();
        let of_one = |count: &u64| -ratio(*count, tokens) * ratio(*count, tokens).ln();
        Tokens {
            tokens,
            right: self.right,
            loss: mean(&sum),
            loss_by_frequency: self.counts.values().map(of_one).sum(),
            loss_by_position: self.losses.iter().map(mean).collect(),
            passages: self.passages,
        }
    }
}

/// The tokens as a part of a page.
pub fn section(of: &Tokens) -> String {
    let facts = [
        ("perplexity", number(of.loss.exp())),
        ("by frequency alone", number(of.loss_by_frequency.exp())),
        ("tokens guessed at once", percent(ratio(of.right, of.tokens))),
        ("tokens", thousands(of.tokens)),
    ];
    let mut html = String::from("<dl class=\"facts\">");
    for (what, value) in facts {
        write_to(&mut html, format_args!("<div class=\"fact\"><dt>{what}</dt><dd>{value}</dd></div>"));
    }
    html.push_str(
        "</dl>\n<p class=\"soft\">A perplexity of 10 means: on average as unsure as between 10 equally likely tokens.</p>\n\
         <div class=\"charts\">\n",
    );
    let at = |(position, loss): (u32, &f64)| (f64::from(position), loss.exp());
    let points = (1..).zip(&of.loss_by_position).map(at).collect();
    let title = String::from("Perplexity by position");
    let series = vec![Series { name: title.clone(), colour: 1, style: Style::Solid, points }];
    let x = "tokens that the model has read of the row".into();
    html.push_str(&Chart { title, x, y: String::new(), may_be_log: false, series }.html());
    html.push_str(
        "</div>\n<h3>How expected each token was</h3>\n<p class=\"soft\">The stronger the colour behind a token, the less \
         probable was it to the model, which had read the row up to there.</p>\n",
    );
    for passage in &of.passages {
        html.push_str("<p class=\"passage\">");
        for (token, part) in passage.iter().take(SHOWN) {
            let strength = STRONGEST * (1.0 - f64::from(*part)).max(0.0).powi(2);
            write_to(&mut html, format_args!("<span style=\"--a:{strength:.2}\">{}</span>", escaped(token)));
        }
        html.push_str("</p>\n");
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyhands::data::{TokenSettings, Vocabulary};

    #[test]
    fn tokens_are_judged_by_their_probabilities() {
        let settings = TokenSettings { split: Split::Character, ..TokenSettings::default() };
        let text = Text { output_sequence_length: 2, vocabulary: Vocabulary::adapt(settings, ["aab"]) };
        assert_eq!(text.vocabulary.tokens()[2..], ["a", "b"]);
        let mut collected = Collected::new(text, 2);
        // Probabilities of `a` and `b`, the others have next to none: 3/4 and 1/4, then one half each.
        let outputs = [-99.0, -99.0, 3_f32.ln(), 0.0, -99.0, -99.0, 0.0, 0.0];
        collected.take(0, &outputs, &[Some(2), Some(3)]);
        collected.take(1, &outputs, &[Some(3), Some(3)]);
        // Tokens of an ignored class change nothing.
        collected.take(2, &outputs, &[None, None]);
        let found = collected.finish();
        assert_eq!((found.tokens, found.right), (4, 3));
        let is = |value: f64, needed: f64| assert!((value - needed).abs() < 1e-6, "{value} {needed}");
        is(found.loss_by_position[0], -(0.75_f64.ln() + 0.25_f64.ln()) / 2.0);
        is(found.loss_by_position[1], 2_f64.ln());
        is(found.loss, f64::midpoint(found.loss_by_position[0], found.loss_by_position[1]));
        is(found.loss_by_frequency, -(0.25 * 0.25_f64.ln() + 0.75 * 0.75_f64.ln()));
        assert_eq!(found.passages.len(), 2);
        assert_eq!(found.passages[0][0].0, "a");
        is(f64::from(found.passages[0][0].1), 0.75);
    }
}
