//! Attention with several heads.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attention::Attention;
use super::builders::builders;
use super::{Built, Initializer, Layer, MaskUse, Problem, to_config, yes};
use crate::names;
use crate::onnx::Form;
use crate::plan::Recorder;
use crate::shape::Shape;

/// Attention of each position of a sequence to the positions of the same or another one, by several heads.
///
/// `p = softmax(query · keyᵀ / √key_dim)` over the keys that a query sees; the output is `p · value`, of all heads
/// together, by `attention_output_kernel`.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | inputs | query `[batch, time, features]`, and value, and key `[batch, keys, ...]`; without them, all three are one | |
/// | masks, after the inputs | of the query `[batch, time]`, and of value and key `[batch, keys]`; one mask is the latter | |
/// | `query_kernel`, `key_kernel` | `[features, num_heads, key_dim]` | `kernel_initializer`, Glorot uniform |
/// | `value_kernel` | `[features, num_heads, value_dim]` | `kernel_initializer` |
/// | `attention_output_kernel` | `[num_heads, value_dim, output_shape]` | `kernel_initializer` |
/// | `query_bias`, …, `attention_output_bias` (if `use_bias`) | `[num_heads, ...]`, `[output_shape]` | 0 |
/// | output | `[batch, time, output_shape]` | |
///
/// Masks need not be named: those of `Embedding` and `Masking` are found. As in Keras, a query that sees no key, such as
/// one that is masked itself, gets the mean of all values, or 0 if there is `dropout`; and the output has the query's
/// mask. Memory grows with the lengths, not with their product: scores are computed tile by tile, and backward computes
/// them again.
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows, and dropped probabilities
/// follow from (seed, training step, node, row of the whole batch, place). Kept for backward: inputs, queries, keys,
/// values and their results, and a number for each query and head. Source: Vaswani et al. 2017, arXiv:1706.03762; Dao
/// 2023, arXiv:2307.08691. Golden values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{Layer, MultiHeadAttention}};
/// let built = MultiHeadAttention::new(2, 16).causal().build(&[Shape::new([10, 64])]).unwrap();
/// assert_eq!(built.parameters[0].shape, [64, 2, 16]);
/// assert_eq!(built.output.to_string(), "[batch, 10, 64]");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MultiHeadAttention {
    /// Number of heads.
    pub num_heads: usize,
    /// Numbers of a query and a key, in each head.
    pub key_dim: usize,
    /// Numbers of a value, in each head; as many as `key_dim` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_dim: Option<usize>,
    /// Part of the probabilities that is dropped in training, in `[0, 1)`.
    #[serde(default)]
    pub dropout: f32,
    /// Whether biases are added.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// Features of the output; as many as the query has if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_shape: Option<usize>,
    /// Whether a query sees only keys up to its own position. In Keras an argument of the call.
    #[serde(default)]
    pub use_causal_mask: bool,
    /// Initial values of the kernels.
    #[serde(default, deserialize_with = "names::read")]
    pub kernel_initializer: Initializer,
}

impl MultiHeadAttention {
    /// A layer of `num_heads` heads, whose queries, keys and values have `key_dim` numbers.
    pub fn new(num_heads: usize, key_dim: usize) -> Self {
        Self {
            num_heads,
            key_dim,
            value_dim: None,
            dropout: 0.0,
            use_bias: true,
            output_shape: None,
            use_causal_mask: false,
            kernel_initializer: Initializer::default(),
        }
    }

    builders!(causal, dropout);

    /// Sets the numbers of a value.
    #[must_use]
    pub fn value_dim(mut self, value_dim: usize) -> Self {
        self.value_dim = Some(value_dim);
        self
    }

    /// Leaves the biases out.
    #[must_use]
    pub fn no_bias(mut self) -> Self {
        self.use_bias = false;
        self
    }

    /// The attention that it is.
    fn attention(&self) -> Attention {
        Attention {
            heads: self.num_heads,
            key_heads: self.num_heads,
            dim: self.key_dim,
            value_dim: self.value_dim.unwrap_or(self.key_dim),
            dropout: self.dropout,
            use_bias: self.use_bias,
            output: self.output_shape,
            is_causal: self.use_causal_mask,
            initializer: self.kernel_initializer,
            sizes_by: "`num_heads` and `key_dim`",
        }
    }
}

impl Layer for MultiHeadAttention {
    fn kind(&self) -> &'static str {
        "MultiHeadAttention"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Attends
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        self.attention().build(inputs)
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        self.attention().forward(rec);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        self.attention().backward(rec);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        self.attention().onnx(form);
        Ok(())
    }
}
