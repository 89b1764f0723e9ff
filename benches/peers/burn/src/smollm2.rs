//! The network of SmolLM2-135M with random weights, and factors of low rank to train beside its products.

use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::{
    Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig, RmsNorm, RmsNormConfig, RotaryEncoding,
    RotaryEncodingConfig,
};
use burn::tensor::activation::{silu, softmax};
use burn::tensor::module::linear;
use burn::tensor::{Bool, Device, Tensor};

use crate::models::Network;

/// Tokens of a row.
pub const LENGTH: usize = 128;

const WIDTH: usize = 576;
const HEADS: usize = 9;
const KEY_HEADS: usize = 3;
const HEAD_WIDTH: usize = 64;
const INNER: usize = 1536;
const RANK: usize = 8;
const ALPHA: usize = 16;

/// The decoder. The table of tokens gives the logits, too.
#[derive(Module, Debug)]
pub struct SmolLm2 {
    table: Embedding,
    rotary: RotaryEncoding,
    blocks: Vec<Block>,
    norm: RmsNorm,
}

impl SmolLm2 {
    pub fn new(blocks: usize, vocabulary: usize, device: &Device) -> Self {
        let table = EmbeddingConfig::new(vocabulary, WIDTH)
            .with_initializer(Initializer::Uniform { min: -0.05, max: 0.05 })
            .init(device);
        Self {
            table: table.no_grad(),
            rotary: RotaryEncodingConfig::new(LENGTH, HEAD_WIDTH).with_theta(100_000.0).init(device),
            blocks: (0..blocks).map(|_| Block::new(device)).collect(),
            norm: norm(device),
        }
    }
}

impl Network for SmolLm2 {
    fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let [rows, _, _, length] = images.dims();
        let tokens = images.reshape([rows, length]).int();
        let later = generate_autoregressive_mask(1, length, &tokens.device()).reshape([1, 1, length, length]);
        let embedded = self.table.forward(tokens);
        let x = self.blocks.iter().fold(embedded, |x, block| block.forward(x, &self.rotary, &later));
        linear(self.norm.forward(x).flatten::<2>(0, 1), self.table.weight.val().transpose(), None)
    }
}

/// Attention with grouped heads of keys, and a gated feed-forward part, each behind a norm.
#[derive(Module, Debug)]
struct Block {
    attention_norm: RmsNorm,
    query: Adapted,
    key: Adapted,
    value: Adapted,
    output: Adapted,
    feed_forward_norm: RmsNorm,
    gate: Adapted,
    up: Adapted,
    down: Adapted,
}

impl Block {
    fn new(device: &Device) -> Self {
        let adapted = |inputs, outputs| Adapted::new(inputs, outputs, device);
        Self {
            attention_norm: norm(device),
            query: adapted(WIDTH, HEADS * HEAD_WIDTH),
            key: adapted(WIDTH, KEY_HEADS * HEAD_WIDTH),
            value: adapted(WIDTH, KEY_HEADS * HEAD_WIDTH),
            output: adapted(HEADS * HEAD_WIDTH, WIDTH),
            feed_forward_norm: norm(device),
            gate: adapted(WIDTH, INNER),
            up: adapted(WIDTH, INNER),
            down: adapted(INNER, WIDTH),
        }
    }

    fn forward(&self, x: Tensor<3>, rotary: &RotaryEncoding, later: &Tensor<4, Bool>) -> Tensor<3> {
        let x = x.clone() + self.attention(self.attention_norm.forward(x), rotary, later);
        let normalized = self.feed_forward_norm.forward(x.clone());
        let gated = silu(self.gate.forward(normalized.clone())) * self.up.forward(normalized);
        x + self.down.forward(gated)
    }

    fn attention(&self, x: Tensor<3>, rotary: &RotaryEncoding, later: &Tensor<4, Bool>) -> Tensor<3> {
        let query = rotary.forward(in_heads(self.query.forward(x.clone()), HEADS));
        let key = rotary.forward(in_heads(self.key.forward(x.clone()), KEY_HEADS));
        let value = in_heads(self.value.forward(x), KEY_HEADS);
        let scores = query.matmul(repeated(key).transpose()).div_scalar((HEAD_WIDTH as f32).sqrt());
        // The value of burn's own attention.
        let weights = softmax(scores.mask_fill(later.clone(), -1e4), 3);
        self.output.forward(weights.matmul(repeated(value)).swap_dims(1, 2).flatten(2, 3))
    }
}

/// `[rows, length, heads * width]` as `[rows, heads, length, width]`.
fn in_heads(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [rows, length, _] = x.dims();
    x.reshape([rows, length, heads, HEAD_WIDTH]).swap_dims(1, 2)
}

/// Heads of keys or values, once for each head of queries.
fn repeated(x: Tensor<4>) -> Tensor<4> {
    let [rows, heads, length, width] = x.dims();
    let group = HEADS / heads;
    let x: Tensor<5> = x.unsqueeze_dim::<5>(2).expand([rows, heads, group, length, width]);
    x.reshape([rows, HEADS, length, width])
}

/// A frozen product, with trained factors beside it: `x W + alpha / rank · (x A) B`.
///
/// burn's own `apply_lora` adds the factors' product to the weight instead, and makes a gradient of the weight's shape in backward.
#[derive(Module, Debug)]
struct Adapted {
    frozen: Linear,
    a: Linear,
    b: Linear,
}

impl Adapted {
    fn new(inputs: usize, outputs: usize, device: &Device) -> Self {
        let product = |inputs, outputs| LinearConfig::new(inputs, outputs).with_bias(false);
        Self {
            frozen: product(inputs, outputs).init(device).no_grad(),
            a: product(inputs, RANK).init(device),
            b: product(RANK, outputs).with_initializer(Initializer::Zeros).init(device),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        self.frozen.forward(x.clone()) + self.b.forward(self.a.forward(x)) * (ALPHA as f64 / RANK as f64)
    }
}

fn norm(device: &Device) -> RmsNorm {
    RmsNormConfig::new(WIDTH).with_epsilon(1e-5).init(device).no_grad()
}
