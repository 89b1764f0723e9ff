//! The layers of a language model.

use manyhands::layers::{
    self, ActivationLayer, Add, ComputeMask, Concatenate, Configure, Configured, Cropping1D, Dense,
    DotProductAttention, Embedding, Flatten, Gelu, GlobalAveragePooling1D, Layer, LayerNormalization, Multiply,
    PositionEmbedding, Rescaling, Reshape, ReversibleEmbedding, RmsNormalization, Values,
};
use manyhands::model::{LayerRef, TensorRef};
use manyhands::{Model, ModelBuilder, Shape};
use manyhands_engine::kernels::rounding::single;

use super::fill::{QUERY_ROTARY, ROTARY};
use super::pooling::Pooling;
use super::{CLASSIFIER, DOCUMENTS, MASK, Output, POSITION, TOKEN_TYPES, TOKENS, WINDOW_MASK, rotary};
use crate::Result;
use crate::architecture::{Activation, Architecture, FeedForward, Norm, NormPlace, Positions};
use crate::packed::Formats;

/// The products of a block, by their names in it.
pub(super) fn linear_parts(architecture: &Architecture) -> Vec<&'static str> {
    let is_gated = architecture.feed_forward == FeedForward::Gated;
    let gate = is_gated.then_some("feed_forward.gate");
    let attention = ["attention.query", "attention.key", "attention.value", "attention.output"];
    attention.into_iter().chain(gate).chain(["feed_forward.up", "feed_forward.down"]).collect()
}

/// Builds the layers, with weights of 0. Those with a format are packed, and frozen.
pub(super) fn build(
    architecture: &Architecture,
    formats: &Formats,
    length: usize,
    (output, pooling): (Output, Pooling),
) -> Result<Model> {
    let mut network = Network::new(architecture, formats, length, output)?;
    if output == Output::LogitsByDocument {
        network.documents = Some(network.graph.input(DOCUMENTS, [length]));
    }
    let table = network.table();
    let x = network.blocks(table);
    let y = network.output(table, x, (output, pooling));
    let seed = if let Output::Classes { seed, .. } = output { seed } else { 0 };
    network.graph.build(&[y], seed)
}

/// Builds a network that gives the keys and values of each block alone.
pub(super) fn build_beginning(architecture: &Architecture, formats: &Formats, length: usize) -> Result<Model> {
    let mut network = Network::new(architecture, formats, length, Output::Vectors)?;
    let table = network.table();
    let last = architecture.blocks - 1;
    let mut x = network.embedded(table);
    for block in 0..last {
        x = network.block(block, x);
    }
    if architecture.norm_place != NormPlace::After {
        x = network.norm(&format!("blocks.{last}.attention_norm"), x);
    }
    for (part, heads) in [("key", architecture.key_heads), ("value", architecture.key_heads)] {
        let y = network.projected(last, part, heads, x);
        network.kept.push(y);
    }
    network.graph.build(&network.kept, 0)
}

/// Builds a network that reads one token behind the keys and values of others.
pub(super) fn build_next(architecture: &Architecture, formats: &Formats, window: usize) -> Result<Model> {
    let mut network = Network::new(architecture, formats, 1, Output::Logits)?;
    network.position = (architecture.position == Positions::Learned).then(|| network.graph.input(POSITION, [1]));
    network.mask = Some(network.graph.input(MASK, [window]));
    network.window_mask = architecture.window().map(|_| network.graph.input(WINDOW_MASK, [window]));
    network.query_rotary = network.rotary_layers(QUERY_ROTARY)?;
    network.past = Some(window - 1);
    let table = network.table();
    let x = network.blocks(table);
    let y = network.output(table, x, (Output::Logits, Pooling::Mean));
    let outputs: Vec<TensorRef> = [y].into_iter().chain(network.kept).collect();
    network.graph.build(&outputs, 0)
}

/// A network that grows.
struct Network<'a> {
    graph: ModelBuilder,
    architecture: &'a Architecture,
    /// Formats of tensors that are packed.
    formats: &'a Formats,
    length: usize,
    tokens: TensorRef,
    token_types: Option<TensorRef>,
    mask: Option<TensorRef>,
    /// The mask of blocks with a window, of a network that reads one token after the other.
    window_mask: Option<TensorRef>,
    /// Numbers of the texts, of rows that hold several.
    documents: Option<TensorRef>,
    /// The position of the token, of a network that reads one token after the other.
    position: Option<TensorRef>,
    /// Number of earlier tokens whose keys and values such a network reads.
    past: Option<usize>,
    /// The layers that rotate keys: of all blocks, and of those with a window where they have their own.
    rotary: [Option<LayerRef>; 2],
    query_rotary: [Option<LayerRef>; 2],
    /// Keys and values of each block, before their rotation.
    kept: Vec<TensorRef>,
}

impl<'a> Network<'a> {
    fn new(architecture: &'a Architecture, formats: &'a Formats, length: usize, output: Output) -> Result<Self> {
        let mut graph = ModelBuilder::new();
        let tokens = graph.input(TOKENS, [length]);
        // A text with a class is one sentence, whose tokens say where it ends.
        let is_one = matches!(output, Output::Classes { .. });
        let zeros = Rescaling { scale: Values::One(0.0), offset: Values::One(0.0) };
        let token_types = (architecture.token_types > 0).then(|| match is_one {
            true => graph.add(zeros, &[tokens]),
            false => graph.input(TOKEN_TYPES, [length]),
        });
        let mask = (!architecture.causal).then(|| match is_one {
            true => graph.add(ComputeMask::default(), &[tokens]),
            false => graph.input(MASK, [length]),
        });
        let (position, past, kept) = (None, None, Vec::new());
        let mut network = Self {
            graph,
            architecture,
            formats,
            length,
            tokens,
            token_types,
            mask,
            window_mask: None,
            documents: None,
            position,
            past,
            rotary: [None; 2],
            query_rotary: [None; 2],
            kept,
        };
        network.rotary = network.rotary_layers(ROTARY)?;
        network.query_rotary = network.rotary;
        Ok(network)
    }

    fn rotary_layers(&mut self, names: [&str; 2]) -> Result<[Option<LayerRef>; 2]> {
        let mut layers = rotary::layers(self.architecture)?.into_iter().zip(names);
        Ok(std::array::from_fn(|_| {
            let (layer, name) = layers.next()?;
            layer.map(|layer| self.graph.layer(name, layer))
        }))
    }
}

impl Network<'_> {
    /// The vectors behind the last block and its normalization.
    fn blocks(&mut self, table: LayerRef) -> TensorRef {
        let mut x = self.embedded(table);
        for block in 0..self.architecture.blocks {
            x = self.block(block, x);
        }
        if self.architecture.norm_place == NormPlace::After { x } else { self.norm("norm", x) }
    }

    /// The table of the tokens' vectors.
    fn table(&mut self) -> LayerRef {
        let (words, width) = (self.architecture.vocabulary, self.architecture.width);
        let zeros = layers::Initializer::Zeros;
        let vectors = Embedding { embeddings_initializer: zeros, ..Embedding::new(words, width) };
        // Both kinds have the same parts.
        let parts = vectors.build(&[Shape::from([1])]).map(|built| built.parameters).unwrap_or_default();
        let table = if self.architecture.tied_output && self.architecture.causal {
            ReversibleEmbedding { embeddings_initializer: zeros, ..ReversibleEmbedding::new(words, width) }.into()
        } else {
            Configured::from(vectors)
        };
        let table = self.in_format("embedding.embeddings", parts.iter().map(|part| part.name), table);
        self.graph.layer("embedding", table)
    }

    /// The layer with parameters in the format of a tensor, if it is packed.
    fn in_format<'p>(
        &self,
        tensor: &str,
        parameters: impl IntoIterator<Item = &'p str>,
        layer: impl Into<Configured>,
    ) -> Configured {
        match self.formats.get(tensor) {
            Some(format) => {
                parameters.into_iter().fold(layer.frozen(), |layer, parameter| layer.packed(parameter, *format))
            }
            None => layer.into(),
        }
    }

    fn embedded(&mut self, table: LayerRef) -> TensorRef {
        let mut vectors = self.graph.call(table, &[self.tokens]);
        if self.architecture.scaled_embedding {
            #[allow(clippy::cast_precision_loss, reason = "widths are far below 2^53")]
            let scale = Values::One(single((self.architecture.width as f64).sqrt()));
            vectors = self.graph.add(Rescaling { scale, offset: Values::One(0.0) }, &[vectors]);
        }
        self.with_positions(vectors)
    }

    /// Adds learned positions and types of tokens, and normalizes, where the network does.
    fn with_positions(&mut self, mut x: TensorRef) -> TensorRef {
        let Architecture { positions, token_types: types, width, .. } = *self.architecture;
        if let Some(token_types) = self.token_types {
            let vectors = self.graph.add_named("token_types", Embedding::new(types, width), &[token_types]);
            x = self.graph.add(Add {}, &[x, vectors]);
        }
        if self.architecture.position == Positions::Learned {
            let vectors = match self.position {
                Some(position) => self.graph.add_named("positions", Embedding::new(positions, width), &[position]),
                None => self.graph.add_named("positions", PositionEmbedding::new(positions), &[x]),
            };
            x = self.graph.add(Add {}, &[x, vectors]);
        }
        if self.architecture.norm_place == NormPlace::After { self.norm("embedding_norm", x) } else { x }
    }

    fn block(&mut self, block: usize, x: TensorRef) -> TensorRef {
        let x = self.part(x, &format!("blocks.{block}.attention"), |network, x| network.attention(block, x));
        self.part(x, &format!("blocks.{block}.feed_forward"), |network, x| network.feed_forward(block, x))
    }

    /// Adds what a part of a block makes of `x`, with the normalization in its place.
    fn part(&mut self, x: TensorRef, name: &str, part: impl FnOnce(&mut Self, TensorRef) -> TensorRef) -> TensorRef {
        let norm = format!("{name}_norm");
        if self.architecture.norm_place == NormPlace::After {
            let y = part(self, x);
            let sum = self.graph.add(Add {}, &[x, y]);
            return self.norm(&norm, sum);
        }
        let normalized = self.norm(&norm, x);
        let mut y = part(self, normalized);
        if self.architecture.norm_place == NormPlace::Around {
            y = self.norm(&format!("{name}_post_norm"), y);
        }
        self.graph.add(Add {}, &[x, y])
    }

    fn attention(&mut self, block: usize, x: TensorRef) -> TensorRef {
        let Architecture { heads, key_heads, head_width, width, biases, causal, .. } = *self.architecture;
        let [query, key, value] = [("query", heads), ("key", key_heads), ("value", key_heads)]
            .map(|(part, heads)| self.projected(block, part, heads, x));
        self.kept.extend([key, value]);
        let [key, value] =
            [("keys", key), ("values", value)].map(|(part, x)| self.behind_past(&format!("blocks.{block}.{part}"), x));
        let window = self.architecture.windows.get(block).copied().flatten();
        let rotated = [(self.query_rotary, query), (self.rotary, key)];
        let [query, key] =
            rotated.map(|([of_all, near], x)| self.rotated(near.filter(|_| window.is_some()).or(of_all), x));
        let is_first = self.past.is_none();
        let attention = DotProductAttention {
            use_causal_mask: causal && is_first,
            documents: self.documents.is_some(),
            // One token behind others sees what the mask says. A window that is wider than the row hides nothing.
            sliding_window: window.filter(|window| is_first && *window < self.length),
            ..DotProductAttention::default()
        };
        let mask = self.window_mask.filter(|_| window.is_some()).or(self.mask);
        let inputs: Vec<TensorRef> = [query, key, value].into_iter().chain(mask).chain(self.documents).collect();
        let y = self.graph.add(attention, &inputs);
        let y = self.graph.add(Reshape::new([self.length, heads * head_width]), &[y]);
        self.linear(&format!("blocks.{block}.attention.output"), width, biases.attention_output, y)
    }

    /// Queries, keys or values, with their normalization where the network has one.
    fn projected(&mut self, block: usize, part: &str, heads: usize, x: TensorRef) -> TensorRef {
        let Architecture { head_width, biases, query_key_norm, .. } = *self.architecture;
        let name = format!("blocks.{block}.attention.{part}");
        let y = self.linear(&name, heads * head_width, biases.query_key_value, x);
        let y = self.graph.add(Reshape::new([self.length, heads, head_width]), &[y]);
        let is_normalized = query_key_norm && part != "value";
        if is_normalized { self.graph.add_named(&format!("{name}_norm"), self.rms(), &[y]) } else { y }
    }

    /// Keys or values behind those of earlier tokens, which are an input, where the network reads one token after the other.
    fn behind_past(&mut self, name: &str, x: TensorRef) -> TensorRef {
        let Some(past) = self.past else { return x };
        let earlier = self.graph.input(name, [past, self.architecture.key_heads, self.architecture.head_width]);
        self.graph.add(Concatenate { axis: 1 }, &[earlier, x])
    }

    fn rotated(&mut self, rotary: Option<LayerRef>, x: TensorRef) -> TensorRef {
        rotary.map_or(x, |rotary| self.graph.call(rotary, &[x]))
    }

    fn feed_forward(&mut self, block: usize, x: TensorRef) -> TensorRef {
        let Architecture { inner, width, .. } = *self.architecture;
        let has_bias = self.architecture.biases.feed_forward;
        let name = |part: &str| format!("blocks.{block}.feed_forward.{part}");
        let up = self.linear(&name("up"), inner, has_bias, x);
        let y = match self.architecture.feed_forward {
            FeedForward::Plain => self.activated(up),
            FeedForward::Gated => {
                let gate = self.linear(&name("gate"), inner, has_bias, x);
                let gate = self.activated(gate);
                self.graph.add(Multiply {}, &[gate, up])
            }
        };
        self.linear(&name("down"), width, has_bias, y)
    }

    fn activated(&mut self, x: TensorRef) -> TensorRef {
        match self.architecture.activation {
            Activation::Silu => self.graph.add(ActivationLayer { activation: layers::Activation::Silu }, &[x]),
            Activation::Gelu => self.graph.add(Gelu { approximate: false }, &[x]),
            Activation::GeluTanh => self.graph.add(Gelu { approximate: true }, &[x]),
            Activation::Relu => self.graph.add(ActivationLayer { activation: layers::Activation::Relu }, &[x]),
        }
    }

    fn linear(&mut self, name: &str, units: usize, has_bias: bool, x: TensorRef) -> TensorRef {
        let layer = Dense { use_bias: has_bias, ..Dense::new(units).kernel_initializer(layers::Initializer::Zeros) };
        let layer = self.in_format(&format!("{name}.kernel"), ["kernel"], layer);
        self.graph.add_named(name, layer, &[x])
    }

    fn norm(&mut self, name: &str, x: TensorRef) -> TensorRef {
        match self.architecture.norm {
            Norm::Rms => self.graph.add_named(name, self.rms(), &[x]),
            Norm::Layer => {
                let layer =
                    LayerNormalization { epsilon: single(self.architecture.epsilon), ..LayerNormalization::new() };
                self.graph.add_named(name, layer, &[x])
            }
        }
    }

    fn rms(&self) -> RmsNormalization {
        RmsNormalization { epsilon: single(self.architecture.epsilon), ..RmsNormalization::default() }
    }

    /// The vector of the whole text.
    fn pooled(&mut self, x: TensorRef, pooling: Pooling) -> TensorRef {
        match pooling {
            Pooling::Mean => {
                let inputs: Vec<TensorRef> = [x].into_iter().chain(self.mask).collect();
                self.graph.add_named("mean", GlobalAveragePooling1D::default(), &inputs)
            }
            Pooling::First => {
                let first = self.graph.add(Cropping1D { cropping: [0, self.length - 1] }, &[x]);
                self.graph.add(Flatten {}, &[first])
            }
        }
    }

    fn output(&mut self, table: LayerRef, x: TensorRef, (output, pooling): (Output, Pooling)) -> TensorRef {
        match output {
            Output::Vectors => x,
            Output::MeanVector => self.pooled(x, pooling),
            Output::Classes { count, .. } => {
                let vector = self.pooled(x, pooling);
                self.graph.add_named(CLASSIFIER, Dense::new(count), &[vector])
            }
            Output::Logits | Output::LogitsByDocument if self.architecture.tied_output => {
                self.graph.call_reversed(table, &[x])
            }
            Output::Logits | Output::LogitsByDocument => self.linear("output", self.architecture.vocabulary, false, x),
        }
    }
}
