//! Networks of characters, which tell at each position what comes next: a row is a sequence of whole numbers below the width of
//! the output.

use super::size::Size;
use crate::error::Result;
use crate::layers::{
    Activation, Add, Dense, Embedding, LayerNormalization, Lstm, MultiHeadAttention, PositionEmbedding,
};
use crate::model::{Model, ModelBuilder, Sequential, TensorRef};

/// Features of a head of attention.
const HEAD: usize = 32;

/// A decoder of four blocks, 128 features and 4 heads: 834,400 parameters over 128 positions and 96 characters.
///
/// # Errors
/// If the shape is no sequence, or there is no character.
pub fn gpt_mini(size: &Size) -> Result<Model> {
    gpt(size, 4, 128)
}

/// A decoder of so many blocks and features, a multiple of 32: each head of its attention has 32.
///
/// Each block normalizes before its attention, which sees no later position, and before its two dense layers. Source:
/// Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", in small.
///
/// # Errors
/// If the shape is no sequence, or there is no character or feature.
pub fn gpt(size: &Size, blocks: usize, width: usize) -> Result<Model> {
    let mut graph = ModelBuilder::new();
    let characters = graph.input("input", size.input.clone());
    let embedded = graph.add(Embedding::new(size.outputs, width), &[characters]);
    let positions = graph.add(PositionEmbedding::new(size.input.last()), &[embedded]);
    let mut last = graph.add(Add::default(), &[embedded, positions]);
    for _ in 0..blocks {
        last = residual(&mut graph, last, |graph, x| {
            graph.add(MultiHeadAttention::new(width / HEAD, HEAD).causal(), &[x])
        });
        last = residual(&mut graph, last, |graph, x| {
            let wide = graph.add(Dense::new(4 * width).activation(Activation::Gelu), &[x]);
            graph.add(Dense::new(width), &[wide])
        });
    }
    let normed = graph.add(LayerNormalization::default(), &[last]);
    let logits = graph.add(Dense::new(size.outputs), &[normed]);
    graph.build(&[logits], size.seed)
}

/// `x + branch(normalized x)`.
fn residual(
    graph: &mut ModelBuilder,
    x: TensorRef,
    branch: impl Fn(&mut ModelBuilder, TensorRef) -> TensorRef,
) -> TensorRef {
    let normed = graph.add(LayerNormalization::default(), &[x]);
    let made = branch(graph, normed);
    graph.add(Add::default(), &[x, made])
}

/// Two LSTMs of 128 units behind vectors of 64: 248,928 parameters over 96 characters.
///
/// # Errors
/// If the shape is no sequence, or there is no character.
pub fn char_lstm(size: &Size) -> Result<Model> {
    let embedded = Sequential::new(size.input.clone()).add(Embedding::new(size.outputs, 64));
    let recurrent = embedded.add(Lstm::new(128).return_sequences()).add(Lstm::new(128).return_sequences());
    recurrent.add(Dense::new(size.outputs)).build(size.seed)
}
