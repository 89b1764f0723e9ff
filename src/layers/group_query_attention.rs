//! Attention whose heads read keys and values in groups.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attention::Attention;
use super::builders::builders;
use super::{Built, Initializer, Layer, MaskUse, Problem, to_config, yes};
use crate::names;
use crate::onnx::Form;
use crate::plan::Recorder;
use crate::shape::Shape;

/// Attention of which several heads of the queries read one head of the keys and values.
///
/// As [`MultiHeadAttention`](super::MultiHeadAttention), but head `h` of the queries reads head
/// `h / (num_query_heads / num_key_value_heads)` of the keys and values. They take as much less memory and arithmetic; they
/// are never repeated. With one head of keys this is multi-query attention.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | inputs | query `[batch, time, features]`, and value, and key `[batch, keys, ...]`; without them, all three are one | |
/// | masks, after the inputs | of the query `[batch, time]`, and of value and key `[batch, keys]`; one mask is the latter | |
/// | `query_kernel` | `[features, num_query_heads, head_dim]` | `kernel_initializer`, Glorot uniform |
/// | `key_kernel`, `value_kernel` | `[features, num_key_value_heads, head_dim]` | `kernel_initializer` |
/// | `attention_output_kernel` | `[num_query_heads, head_dim, features]` | `kernel_initializer` |
/// | `query_bias`, …, `attention_output_bias` (if `use_bias`) | `[heads, head_dim]`, `[features]` | 0 |
/// | output | `[batch, time, features]` | |
///
/// Masks, causality, dropout and what is kept for backward are those of
/// [`MultiHeadAttention`](super::MultiHeadAttention).
///
/// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows, and dropped probabilities
/// follow from (seed, training step, node, row of the whole batch, place). Source: Ainslie et al. 2023, arXiv:2305.13245.
/// Golden values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{GroupQueryAttention, Layer}};
/// let built = GroupQueryAttention::new(16, 8, 2).causal().build(&[Shape::new([10, 64])]).unwrap();
/// assert_eq!(built.parameters[2].shape, [64, 2, 16]);
/// assert_eq!(built.output.to_string(), "[batch, 10, 64]");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupQueryAttention {
    /// Numbers of a query, a key and a value, in each head.
    pub head_dim: usize,
    /// Number of heads of the queries.
    pub num_query_heads: usize,
    /// Number of heads of the keys and values, a divisor of `num_query_heads`.
    pub num_key_value_heads: usize,
    /// Part of the probabilities that is dropped in training, in `[0, 1)`.
    #[serde(default)]
    pub dropout: f32,
    /// Whether biases are added.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// Whether a query sees only keys up to its own position. In Keras an argument of the call.
    #[serde(default)]
    pub use_causal_mask: bool,
    /// Initial values of the kernels.
    #[serde(default, deserialize_with = "names::read")]
    pub kernel_initializer: Initializer,
}

impl GroupQueryAttention {
    /// A layer of `num_query_heads` heads of `head_dim` numbers, which read `num_key_value_heads` heads of keys and values.
    pub fn new(head_dim: usize, num_query_heads: usize, num_key_value_heads: usize) -> Self {
        Self {
            head_dim,
            num_query_heads,
            num_key_value_heads,
            dropout: 0.0,
            use_bias: true,
            use_causal_mask: false,
            kernel_initializer: Initializer::default(),
        }
    }

    builders!(causal, dropout);

    /// Leaves the biases out.
    #[must_use]
    pub fn no_bias(mut self) -> Self {
        self.use_bias = false;
        self
    }

    /// The attention that it is.
    fn attention(&self) -> Attention {
        Attention {
            heads: self.num_query_heads,
            key_heads: self.num_key_value_heads,
            dim: self.head_dim,
            value_dim: self.head_dim,
            dropout: self.dropout,
            use_bias: self.use_bias,
            output: None,
            is_causal: self.use_causal_mask,
            initializer: self.kernel_initializer,
            sizes_by: "`num_query_heads` and `head_dim`",
        }
    }
}

impl Layer for GroupQueryAttention {
    fn kind(&self) -> &'static str {
        "GroupQueryAttention"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Attends
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let (heads, key_heads) = (self.num_query_heads, self.num_key_value_heads);
        if !heads.is_multiple_of(key_heads) {
            return Err(Problem::new(
                format!(
                    "needs heads of keys and values that divide those of the queries, but got {key_heads} for {heads}"
                ),
                "set `num_key_value_heads` to a divisor of `num_query_heads`; 1 is multi-query attention",
            ));
        }
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
