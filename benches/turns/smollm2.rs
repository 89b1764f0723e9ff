//! The network of SmolLM2-135M with random weights, and factors of low rank to train beside its products, as `finetune` has it.

use manyhands::layers::{
    Activation, ActivationLayer, Add, Dense, DotProductAttention, Lora, Multiply, Reshape, ReversibleEmbedding,
    RmsNormalization, RotaryEmbedding,
};
use manyhands::losses::Loss;
use manyhands::model::{LayerRef, TensorRef};
use manyhands::optimizers::AdamW;
use manyhands::{Model, ModelBuilder};
use manyhands_bench::workloads::Workload;
use manyhands_engine::plan::{BatchStatistics, GradientCompression, Precision};

/// Tokens of a row.
const LENGTH: usize = 128;
const WIDTH: usize = 576;
const HEADS: usize = 9;
const KEY_HEADS: usize = 3;
const HEAD_WIDTH: usize = 64;
const INNER: usize = 1536;

/// The network and its training, if the name is one of its two sizes.
pub fn workload(name: &str) -> Option<Workload> {
    let (name, blocks, vocabulary) = match name {
        "smollm2" => ("smollm2", 30, 49_152),
        "smollm2_small" => ("smollm2_small", 4, 4_096),
        _ => return None,
    };
    let optimizer =
        AdamW { learning_rate: 2e-4, weight_decay: 0.0, epsilon: 1e-8, outer_epsilon: true, ..AdamW::default() };
    Some(Workload {
        name,
        about: "decoder with grouped heads of keys, factors of low rank, AdamW",
        model: model(blocks, vocabulary).unwrap(),
        optimizer: optimizer.into(),
        loss: Loss::SPARSE_CATEGORICAL_CROSSENTROPY,
        classes: vocabulary,
        batch_size: 4,
        gradient_compression: GradientCompression::None,
        batch_statistics: BatchStatistics::default(),
        micro_batches: 1,
        precision: Precision::Float32,
    })
}

/// The network, frozen but for its factors. The table of tokens gives the logits, too.
fn model(blocks: usize, vocabulary: usize) -> manyhands::Result<Model> {
    let mut graph = ModelBuilder::new();
    let tokens = graph.input("tokens", [LENGTH]);
    let table = graph.layer("embedding", ReversibleEmbedding::new(vocabulary, WIDTH));
    let rotary = graph.layer("rotary", RotaryEmbedding { max_wavelength: 100_000.0, ..RotaryEmbedding::default() });
    let mut network = Network { graph, rotary, products: Vec::new() };
    let mut x = network.graph.call(table, &[tokens]);
    for block in 0..blocks {
        x = network.block(block, x);
    }
    let x = network.norm(x);
    let y = network.graph.call_reversed(table, &[x]);
    let mut model = network.graph.build(&[y], 0)?;
    let products = || network.products.iter().map(String::as_str);
    model.enable_lora(products(), Lora::new(8).alpha(16.0), 0)?;
    model.freeze_all_but(products())?;
    Ok(model)
}

/// A network that grows.
struct Network {
    graph: ModelBuilder,
    rotary: LayerRef,
    /// Names of the layers that get factors.
    products: Vec<String>,
}

impl Network {
    fn block(&mut self, block: usize, x: TensorRef) -> TensorRef {
        let normalized = self.norm(x);
        let y = self.attention(block, normalized);
        let x = self.graph.add(Add {}, &[x, y]);
        let normalized = self.norm(x);
        let y = self.feed_forward(block, normalized);
        self.graph.add(Add {}, &[x, y])
    }

    fn attention(&mut self, block: usize, x: TensorRef) -> TensorRef {
        let [query, key, value] = [("query", HEADS), ("key", KEY_HEADS), ("value", KEY_HEADS)].map(|(part, heads)| {
            let y = self.product(block, part, heads * HEAD_WIDTH, x);
            self.graph.add(Reshape::new([LENGTH, heads, HEAD_WIDTH]), &[y])
        });
        let [query, key] = [query, key].map(|x| self.graph.call(self.rotary, &[x]));
        let attention = DotProductAttention { use_causal_mask: true, ..DotProductAttention::default() };
        let y = self.graph.add(attention, &[query, key, value]);
        let y = self.graph.add(Reshape::new([LENGTH, HEADS * HEAD_WIDTH]), &[y]);
        self.product(block, "output", WIDTH, y)
    }

    fn feed_forward(&mut self, block: usize, x: TensorRef) -> TensorRef {
        let [gate, up] = ["gate", "up"].map(|part| self.product(block, part, INNER, x));
        let gate = self.graph.add(ActivationLayer { activation: Activation::Silu }, &[gate]);
        let y = self.graph.add(Multiply {}, &[gate, up]);
        self.product(block, "down", WIDTH, y)
    }

    fn product(&mut self, block: usize, part: &str, units: usize, x: TensorRef) -> TensorRef {
        let name = format!("blocks.{block}.{part}");
        let y = self.graph.add_named(&name, Dense::new(units).no_bias(), &[x]);
        self.products.push(name);
        y
    }

    fn norm(&mut self, x: TensorRef) -> TensorRef {
        self.graph.add(RmsNormalization { epsilon: 1e-5, ..RmsNormalization::default() }, &[x])
    }
}
