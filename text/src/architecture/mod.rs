//! One description of a language model's network, from `config.json` and from the metadata of a GGUF file.

// Files: `config.rs`: from `config.json`; `known.rs`: its settings; `metadata.rs`: from a GGUF file; `to_config.rs`: to `config.json`.

mod config;
mod known;
mod metadata;
mod to_config;

pub(crate) use metadata::ROTARY_FACTORS;

use std::f64::consts::PI;

/// Family of networks: it decides the names of tensors, and which settings a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// Llama 2 and 3, `TinyLlama`, `SmolLM2`, and all that `config.json` calls `llama`.
    Llama,
    /// Mistral 7B: Llama with a window.
    Mistral,
    /// Qwen 2 and 2.5: Llama with biases on query, key and value.
    Qwen2,
    /// Qwen 3: Llama with normalized queries and keys.
    Qwen3,
    /// Gemma 3, its text alone: Qwen 3 with more normalizations, windows in most blocks, and two bases of rotary positions.
    Gemma3,
    /// GPT-2: learned positions, layer normalization.
    Gpt2,
    /// BERT and its smaller forms, such as `MiniLM`: no order of reading, normalization after each part.
    Bert,
}

/// Activation of the feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// x · Φ(x), by the error function.
    Gelu,
    /// GELU by the hyperbolic tangent: `gelu_new`, `gelu_pytorch_tanh`.
    GeluTanh,
    /// max(x, 0).
    Relu,
}

/// Shape of the feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// down(activation(gate(x)) · up(x)).
    Gated,
    /// down(activation(up(x))).
    Plain,
}

/// Normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// By the root of the mean square: a scale.
    Rms,
    /// By mean and variance: a scale and a shift.
    Layer,
}

/// Places of the normalization in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlace {
    /// x + part(norm(x)), and one more normalization after the last block.
    Before,
    /// norm(x + part(x)), and one more normalization after the embedding.
    After,
    /// x + norm(part(norm(x))), and one more normalization after the last block.
    Around,
}

/// Positions of tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// A table of vectors, added to the embedding.
    Learned,
    /// Queries and keys are rotated, their first half against their second.
    Rotary {
        /// Longest wavelength, over 2π.
        base: f64,
        /// Change of the frequencies for longer texts.
        scaling: RotaryScaling,
    },
}

/// Change of rotary frequencies.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RotaryScaling {
    /// None.
    None,
    /// All frequencies are divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Low frequencies are divided by a factor, high ones stay, and those between are mixed: Llama 3.1.
    Llama3 {
        /// The factor.
        factor: f64,
        /// Waves longer than `original_positions / low` are long.
        low: f64,
        /// Waves shorter than `original_positions / high` are short.
        high: f64,
        /// Positions for which the model was trained first.
        original_positions: f64,
    },
    /// Each frequency is divided by a factor of its own, as GGUF files store those of Llama 3.1.
    Factors(Vec<f32>),
}

/// Places of biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Biases {
    /// Query, key and value.
    pub query_key_value: bool,
    /// The kernel after attention.
    pub attention_output: bool,
    /// The kernels of the feed-forward part.
    pub feed_forward: bool,
}

/// The network of a language model: all that its result depends on but its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// Family.
    pub family: Family,
    /// Number of tokens.
    pub vocabulary: usize,
    /// Most positions that the model was trained for.
    pub positions: usize,
    /// Elements of a token's vector between blocks.
    pub width: usize,
    /// Blocks.
    pub blocks: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; each serves `heads / key_heads` heads of queries.
    pub key_heads: usize,
    /// Elements of a head.
    pub head_width: usize,
    /// Elements inside the feed-forward part.
    pub inner: usize,
    /// Types of tokens, such as first and second sentence; 0 without them.
    pub token_types: usize,
    /// Whether the vectors of tokens are multiplied by √width on their way into the first block.
    pub scaled_embedding: bool,
    /// Positions.
    pub position: Positions,
    /// Longest wavelength of rotary positions, over 2π, in blocks with a window: without scaling. `None` where it is that of the others.
    pub window_base: Option<f64>,
    /// Normalization.
    pub norm: Norm,
    /// Places of the normalization.
    pub norm_place: NormPlace,
    /// Added to the variance or the mean square.
    pub epsilon: f64,
    /// Normalization of each head of queries and keys, by root mean square.
    pub query_key_norm: bool,
    /// Activation.
    pub activation: Activation,
    /// Shape of the feed-forward part.
    pub feed_forward: FeedForward,
    /// Biases.
    pub biases: Biases,
    /// Whether the output multiplies by the embedding, instead of a kernel of its own.
    pub tied_output: bool,
    /// Whether a token sees earlier tokens alone.
    pub causal: bool,
    /// For each block, the number of tokens that a token sees, itself included; `None` for all.
    pub windows: Vec<Option<usize>>,
}

/// Largest size that a network may have: products of two don't overflow.
const MOST_SIZE: usize = 1 << 31;
/// Most blocks: each has an entry in a list.
const MOST_BLOCKS: usize = 1 << 12;

impl Architecture {
    /// Angle by which each pair of a head is rotated from one position to the next, in radians; `head_width / 2` of them, none for
    /// learned positions.
    ///
    /// **Source**: `modeling_rope_utils.py` of transformers; the golden values are those of its models.
    pub fn rotary_frequencies(&self) -> Vec<f64> {
        let Positions::Rotary { base, scaling } = &self.position else { return Vec::new() };
        #[allow(clippy::cast_precision_loss, reason = "heads have some hundred elements")]
        let usual = (0..self.head_width / 2).map(|pair| base.powf(-2.0 * pair as f64 / self.head_width as f64));
        usual.enumerate().map(|(pair, frequency)| scaling.apply(pair, frequency)).collect()
    }

    /// Tokens that a token sees in blocks with a window, itself included.
    pub fn window(&self) -> Option<usize> {
        self.windows.iter().flatten().next().copied()
    }
}

impl RotaryScaling {
    fn apply(&self, pair: usize, frequency: f64) -> f64 {
        match self {
            Self::None => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 { factor, low, high, original_positions } => {
                let turns = original_positions * frequency / (2.0 * PI);
                let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                share * frequency + (1.0 - share) * frequency / factor
            }
            Self::Factors(factors) => frequency / factors.get(pair).copied().map_or(1.0, f64::from),
        }
    }
}

impl Architecture {
    /// Compares the sizes with each other: what is wrong, if anything.
    fn check(&self) -> Result<(), String> {
        let Self { width, heads, key_heads, head_width, blocks, windows, .. } = self;
        let sizes = [self.vocabulary, self.positions, *width, *heads, *head_width, self.inner, self.token_types];
        if let Some(size) = sizes.into_iter().find(|size| *size > MOST_SIZE) {
            return Err(format!("needs sizes of at most {MOST_SIZE}, but has {size}"));
        }
        let is_rotary = matches!(self.position, Positions::Rotary { .. });
        if !heads.is_multiple_of(*key_heads) || key_heads > heads {
            return Err(format!(
                "needs heads of queries that are a multiple of those of keys, but has {heads} and {key_heads}"
            ));
        }
        if *head_width == 0 || !is_rotary && heads.checked_mul(*head_width) != Some(*width) {
            return Err(format!("needs a width that is a multiple of its heads, but has {width} and {heads}"));
        }
        if is_rotary && !head_width.is_multiple_of(2) {
            return Err(format!("needs heads of an even number of elements to rotate, but has {head_width}"));
        }
        if windows.len() != *blocks {
            return Err(format!("needs at most {} blocks, but has {blocks}", windows.len()));
        }
        let mut wide = windows.iter().flatten();
        if wide.next().is_some_and(|first| wide.any(|window| window != first)) {
            return Err("needs windows of one size, but has several".into());
        }
        if !(self.epsilon.is_finite() && self.epsilon > 0.0) {
            return Err(format!("needs a positive epsilon of its normalization, but has {}", self.epsilon));
        }
        Ok(())
    }
}
