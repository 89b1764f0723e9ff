//! A language model that keeps keys and values of the tokens that it has read.

use manyhands::data::InMemory;
use manyhands::layers::Lora;
use manyhands::{Model, Predictor};
use manyhands_engine::adapters::Info;
use ndarray::{Array, ArrayD, IxDyn};

use super::NextToken;
use crate::adapter::Adapter;
use crate::architecture::{Architecture, Positions};
use crate::{Error, ModelFiles, Result, network};

/// Fewest tokens of a row or window. Others are powers of two.
const SHORTEST: usize = 16;

/// A language model that reads each token once.
///
/// A prompt is read as one row; each token after it costs one pass over the weights, whatever stands before it. One adapter holds the
/// model: a token is no work for several.
///
/// **Source**: the result is that of [`network::build`] on the whole text, up to rounding, which is its test.
pub struct Cached {
    architecture: Architecture,
    next: Predictor,
    window: usize,
    adapter: Info,
    /// Settings of low-rank factors that stand beside packed kernels.
    lora: Option<Lora>,
    read: Vec<u32>,
    /// Keys, then values, of each block, for all tokens of `read`.
    kept: Vec<Vec<f32>>,
}

impl Cached {
    /// Opens a model, with an adapter's changes, for texts of at most `tokens` tokens, or as many as it was trained for.
    ///
    /// The changes are merged into the kernels. Kernels that the files keep [packed](ModelFiles::packed) stay as they are, with the factors
    /// beside them.
    ///
    /// # Errors
    /// If the model does not write, its network is not supported, or the adapter does not fit it.
    pub fn open(files: &ModelFiles, lora: Option<&Adapter>, tokens: usize, adapter: Info) -> Result<Self> {
        let architecture = files.architecture().clone();
        let window = rounded(tokens).min(architecture.positions);
        let mut model = network::next(files, window)?;
        match lora {
            Some(lora) if files.is_packed() => lora.add(&mut model)?,
            Some(lora) => lora.merge(&mut model)?,
            None => {}
        }
        let lora = lora.filter(|_| files.is_packed()).map(Adapter::lora);
        let next = Predictor::new(model).on(vec![adapter.clone()]);
        let kept = vec![Vec::new(); 2 * architecture.blocks];
        Ok(Self { architecture, next, window, adapter, lora, read: Vec::new(), kept })
    }

    /// The model's weights, as layers of [`network::build`].
    pub fn model(&self) -> &Model {
        self.next.model()
    }

    /// Whether a text of so many tokens needs no longer window, or there is none.
    pub fn has_room(&self, tokens: usize) -> bool {
        rounded(tokens).min(self.architecture.positions) <= self.window
    }

    /// Keys and values of one token in one block.
    fn width(&self) -> usize {
        self.architecture.key_heads * self.architecture.head_width
    }

    /// Reads tokens from the first on, for their keys and values.
    fn begin(&mut self, tokens: &[u32]) -> Result<()> {
        self.read = tokens.to_vec();
        self.kept.iter_mut().for_each(Vec::clear);
        if tokens.is_empty() {
            return Ok(());
        }
        let length = rounded(tokens.len()).min(self.architecture.positions);
        let model = network::beginning(&self.architecture, self.next.model(), self.lora, length)?;
        let mut row = numbers(tokens);
        row.resize(length, 0.0);
        let mut predictor = Predictor::new(model).on(vec![self.adapter.clone()]);
        let outputs = predictor.predict(InMemory::without_targets(shaped(row, &[length])?)?, 1)?;
        let end = tokens.len() * self.width();
        for (kept, output) in self.kept.iter_mut().zip(&outputs) {
            kept.extend(output.iter().take(end));
        }
        Ok(())
    }

    /// Reads one token more; gives the logits behind it.
    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        let (read, window) = (self.read.len(), self.window);
        let mut data = InMemory::without_targets(shaped(numbers(&[token]), &[1])?)?;
        if self.architecture.position == Positions::Learned {
            #[allow(clippy::cast_precision_loss, reason = "positions are far below 2^24, where f32 is exact")]
            let position = read as f32;
            data = data.with_input(shaped(vec![position], &[1])?)?;
        }
        let seen = [Some(window), self.architecture.window()];
        for seen in seen.into_iter().flatten().map(|seen| seen.min(read + 1)) {
            let mut mask = vec![0.0; window - seen];
            mask.resize(window, 1.0);
            data = data.with_input(shaped(mask, &[window])?)?;
        }
        let Architecture { key_heads, head_width, .. } = self.architecture;
        for kept in &self.kept {
            let mut padded = vec![0.0; (window - 1) * self.width() - kept.len()];
            padded.extend_from_slice(kept);
            data = data.with_input(shaped(padded, &[window - 1, key_heads, head_width])?)?;
        }
        let mut outputs = self.next.predict(data, 1)?.into_iter();
        let logits = outputs.next().unwrap_or_default();
        for (kept, new) in self.kept.iter_mut().zip(outputs) {
            kept.extend(new);
        }
        self.read.push(token);
        Ok(logits.into_iter().collect())
    }
}

impl NextToken for Cached {
    fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let Some((last, before)) = tokens.split_last().filter(|_| tokens.len() <= self.window) else {
            let problem = format!("needs 1 to {} tokens, but got {}", self.window, tokens.len());
            return Err(Error::data("the language model", problem, "shorten the text"));
        };
        if before != self.read {
            self.begin(before)?;
        }
        self.step(*last)
    }

    fn most(&self) -> Option<usize> {
        Some(self.window)
    }
}

/// A length for which few models are built.
fn rounded(tokens: usize) -> usize {
    tokens.max(SHORTEST).checked_next_power_of_two().unwrap_or(tokens)
}

#[allow(clippy::cast_precision_loss, reason = "vocabularies are far below 2^24 tokens, where f32 is exact")]
fn numbers(tokens: &[u32]) -> Vec<f32> {
    tokens.iter().map(|token| *token as f32).collect()
}

/// One row with these axes.
fn shaped(values: Vec<f32>, axes: &[usize]) -> Result<ArrayD<f32>> {
    let axes: Vec<usize> = [1].iter().chain(axes).copied().collect();
    Array::from_shape_vec(IxDyn(&axes), values)
        .map_err(|error| Error::data("an input", format!("needs the shape {axes:?}: {error}"), "report this defect"))
}
