//! Texts that a model writes, token by token.

// Files: `sampling.rs`: the choice of a token; `cached.rs`: a language model that keeps keys and values; `rows.rs`: any model of rows of
// tokens, which reads all of them again; `unapplied.rs`: what a model's settings ask for and is left out; `written.rs`: the text, as far as it
// is final.

mod cached;
mod rows;
mod sampling;
mod unapplied;
mod written;

pub use cached::Cached;
pub use rows::Rows;
pub use sampling::{Sampler, Sampling};
pub use unapplied::warn_of_unapplied;

use self::written::Written;
use crate::{Error, Result};

/// A model that tells how likely each token is behind others.
pub trait NextToken {
    /// The logits of the token behind these, of which there is at least one: a number for each word of the vocabulary.
    ///
    /// # Errors
    /// If an adapter fails, or there are more tokens than [`most`](Self::most).
    fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>>;

    /// Most tokens that the model reads at once, if there is a limit.
    fn most(&self) -> Option<usize>;
}

/// Settings of a text that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// Most tokens to write.
    pub max_tokens: usize,
    /// Choice of each token.
    pub sampling: Sampling,
    /// Seed of the random numbers: the same one gives the same text.
    pub seed: u64,
    /// Tokens that end the text. They are no part of it.
    pub ends: Vec<u32>,
    /// Texts that end the text. They are no part of it.
    pub stops: Vec<String>,
}

/// The reason for which a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model wrote a token that ends a text.
    Token,
    /// The text held one of `stops`.
    Stop,
    /// All of `max_tokens` are written.
    MaxTokens,
    /// The model reads no more tokens.
    Full,
}

impl Ended {
    /// Name in results for other programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "end_token",
            Self::Stop => "stop",
            Self::MaxTokens => "max_tokens",
            Self::Full => "context_full",
        }
    }
}

/// A text that a model wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Its tokens, without one that ended it.
    pub tokens: Vec<u32>,
    /// The text, without the prompt.
    pub text: String,
    /// The reason for which it ended.
    pub ended: Ended,
}

/// Writes a text behind a prompt.
///
/// `decode` gives the text of tokens; `show` gets each piece of the new text as soon as nothing that follows can change it.
///
/// # Errors
/// If the prompt has no token or too many, a setting is out of its range, an output is not finite, or `decode`, `show` or an adapter fails.
pub fn generate(
    model: &mut dyn NextToken,
    decode: &dyn Fn(&[u32]) -> Result<String>,
    prompt: &[u32],
    settings: &Generation,
    show: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Generated> {
    check_prompt(prompt, model.most())?;
    if settings.stops.iter().any(String::is_empty) {
        let problem = "needs a text before which to end, but is empty";
        return Err(Error::setting("`stop`", problem, "leave it out, or name a text such as `User:`"));
    }
    let mut sampler = Sampler::new(settings.sampling, settings.seed)?;
    let mut written = Written::new(decode(prompt)?, &settings.stops);
    let mut tokens = prompt.to_vec();
    let ended = loop {
        if tokens.len() - prompt.len() >= settings.max_tokens {
            break Ended::MaxTokens;
        }
        if model.most().is_some_and(|most| tokens.len() > most) {
            break Ended::Full;
        }
        let token = sampler.pick(&model.logits(&tokens)?)?;
        if settings.ends.contains(&token) {
            break Ended::Token;
        }
        tokens.push(token);
        let is_stopped = written.take(decode(&tokens)?);
        show(written.fresh())?;
        if is_stopped {
            break Ended::Stop;
        }
    };
    show(written.finish())?;
    Ok(Generated { tokens: tokens.split_off(prompt.len()), text: written.into_text(), ended })
}

fn check_prompt(prompt: &[u32], most: Option<usize>) -> Result<()> {
    match most {
        _ if prompt.is_empty() => {
            Err(Error::data("the prompt", "needs at least one token, but has none", "write some words"))
        }
        Some(most) if prompt.len() > most => {
            let problem =
                format!("needs at most {most} tokens, for which the model was trained, but has {}", prompt.len());
            Err(Error::data("the prompt", problem, "shorten it"))
        }
        _ => Ok(()),
    }
}

/// Refuses logits that are no numbers.
fn check_finite(logits: &[f32]) -> Result<()> {
    match logits.iter().position(|value| value.is_nan()) {
        None => Ok(()),
        Some(at) => Err(Error::non_finite(
            "the logits of the next token",
            format!("need to be numbers, but that of token {at} is {}", logits[at]),
            "check the model: its training may have diverged",
        )),
    }
}
