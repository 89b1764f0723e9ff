//! The choice of a token by its probability.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::check_finite;
use crate::{Error, Result};

/// Settings of the choice of a token, in the order in which they change the probabilities.
///
/// **Source**: `TemperatureLogitsWarper`, `TopKLogitsWarper` and `TopPLogitsWarper` of transformers, which `generate` applies in this
/// order; the golden values are theirs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits. 0 takes the likeliest token.
    pub temperature: f64,
    /// Number of the likeliest tokens that are kept, with those as likely as the last of them. `None` keeps all.
    pub top_k: Option<usize>,
    /// The likeliest tokens are kept whose probabilities sum up to this one. 1 keeps all.
    pub top_p: f64,
}

impl Sampling {
    /// The likeliest token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: None, top_p: 1.0 };

    fn check(self) -> Result<()> {
        let refuse = |name: &str, needed: &str, got: f64, help: &str| {
            Err(Error::setting(format!("`{name}`"), format!("needs to be {needed}, but is {got}"), help))
        };
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return refuse(
                "temperature",
                "0 or more",
                self.temperature,
                "0 takes the likeliest token, 1 the model's own odds",
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("top_p", "above 0 and at most 1", self.top_p, "1 keeps all tokens");
        }
        match self.top_k {
            Some(0) => refuse("top_k", "1 or more", 0.0, "without it, all tokens are kept"),
            _ => Ok(()),
        }
    }

    /// Probability of each token: 0 for those that are not kept.
    pub fn probabilities(self, logits: &[f32]) -> Vec<f64> {
        if self.temperature == 0.0 {
            let likeliest = likeliest(logits);
            return (0..logits.len()).map(|token| f64::from(u8::from(token == likeliest))).collect();
        }
        let scores = logits.iter().map(|logit| f64::from(*logit) / self.temperature).collect();
        let mut kept = softmax(without_unlikely(scores, self.top_k));
        if self.top_p < 1.0 {
            let mut order: Vec<usize> = (0..kept.len()).collect();
            order.sort_by(|a, b| kept[*a].total_cmp(&kept[*b]));
            let mut sum = 0.0;
            // The likeliest stays, however unlikely.
            for token in &order[..order.len().saturating_sub(1)] {
                sum += kept[*token];
                if sum > 1.0 - self.top_p {
                    break;
                }
                kept[*token] = 0.0;
            }
            let rest: f64 = kept.iter().sum();
            kept.iter_mut().for_each(|part| *part /= rest);
        }
        kept
    }
}

/// The first of the largest.
fn likeliest(logits: &[f32]) -> usize {
    let better = |best: usize, token: usize| if logits[token] > logits[best] { token } else { best };
    (0..logits.len()).fold(0, better)
}

fn without_unlikely(mut scores: Vec<f64>, top_k: Option<usize>) -> Vec<f64> {
    if let Some(top_k) = top_k.filter(|top_k| (1..scores.len()).contains(top_k)) {
        let mut order = scores.clone();
        let (_, least, _) = order.select_nth_unstable_by(top_k - 1, |a, b| b.total_cmp(a));
        let least = *least;
        scores.iter_mut().filter(|score| **score < least).for_each(|score| *score = f64::NEG_INFINITY);
    }
    scores
}

fn softmax(scores: Vec<f64>) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let parts: Vec<f64> = scores.into_iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = parts.iter().sum();
    parts.into_iter().map(|part| part / sum).collect()
}

/// Chooses tokens, with random numbers of its own.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
}

impl Sampler {
    /// Chooses by these settings. The same seed gives the same choices.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn new(sampling: Sampling, seed: u64) -> Result<Self> {
        sampling.check()?;
        Ok(Self { sampling, random: ChaCha8Rng::seed_from_u64(seed) })
    }

    /// Chooses a token by its logits, of which there is at least one.
    ///
    /// # Errors
    /// If one is no number.
    pub fn pick(&mut self, logits: &[f32]) -> Result<u32> {
        check_finite(logits)?;
        let token = if self.sampling.temperature == 0.0 { likeliest(logits) } else { self.drawn(logits) };
        u32::try_from(token)
            .map_err(|_| Error::data("the vocabulary", "needs less than 2³² tokens", "take another model"))
    }

    fn drawn(&mut self, logits: &[f32]) -> usize {
        let parts = self.sampling.probabilities(logits);
        let mut left: f64 = self.random.random();
        let mut last = 0;
        for (token, part) in parts.into_iter().enumerate().filter(|(_, part)| *part > 0.0) {
            last = token;
            left -= part;
            if left < 0.0 {
                break;
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_probable() -> Result<()> {
        let logits = [0.1_f32.ln(), 0.2_f32.ln(), 0.3_f32.ln(), 0.4_f32.ln()];
        let draws = |sampling: Sampling, seed: u64| -> Result<Vec<u32>> {
            let mut sampler = Sampler::new(sampling, seed)?;
            (0..10_000).map(|_| sampler.pick(&logits)).collect()
        };
        let plain = Sampling { temperature: 1.0, ..Sampling::GREEDY };
        for (sampling, parts) in [
            (plain, [0.1, 0.2, 0.3, 0.4]),
            (Sampling { top_k: Some(2), ..plain }, [0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]),
            (Sampling { top_p: 0.65, ..plain }, [0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]),
            (Sampling { temperature: 0.5, ..plain }, [1.0 / 30.0, 4.0 / 30.0, 9.0 / 30.0, 16.0 / 30.0]),
            (Sampling::GREEDY, [0.0, 0.0, 0.0, 1.0]),
        ] {
            let drawn = draws(sampling, 3)?;
            for (token, part) in (0_u32..).zip::<[f64; 4]>(parts) {
                let count = drawn.iter().filter(|drawn| **drawn == token).count();
                // Five standard deviations of ten thousand draws.
                let bound = 5.0 * (10_000.0 * part * (1.0 - part)).sqrt();
                #[allow(clippy::cast_precision_loss, reason = "a count of ten thousand")]
                let off = (count as f64 - 10_000.0 * part).abs();
                assert!(off <= bound, "{sampling:?}: token {token} came {count} times of 10,000 x {part}");
            }
            assert_eq!(drawn, draws(sampling, 3)?);
        }
        assert_ne!(draws(plain, 3)?, draws(plain, 4)?);
        Ok(())
    }

    #[test]
    fn settings_out_of_their_range_are_refused() {
        for (sampling, name) in [
            (Sampling { temperature: -1.0, ..Sampling::GREEDY }, "`temperature` needs to be 0 or more"),
            (Sampling { temperature: f64::NAN, ..Sampling::GREEDY }, "`temperature` needs to be 0 or more"),
            (Sampling { top_k: Some(0), ..Sampling::GREEDY }, "`top_k` needs to be 1 or more"),
            (Sampling { top_p: 0.0, ..Sampling::GREEDY }, "`top_p` needs to be above 0 and at most 1"),
        ] {
            let error = Sampler::new(sampling, 0).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        let mut sampler = Sampler::new(Sampling::GREEDY, 0).unwrap();
        assert!(sampler.pick(&[0.0, f32::NAN]).unwrap_err().to_string().contains("that of token 1 is NaN"));
    }
}
