//! Attention of queries, keys and values that other layers made.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attention_heads::AttentionHeads;
use super::builders::builders;
use super::{Built, Layer, Problem, as_built, to_config};
use crate::onnx::{Form, Order};
use crate::plan::{Length, Recorder};
use crate::shape::Shape;

/// Attention without projections: `softmax(query · keyᵀ / √dim) · value` in each head.
///
/// Layers between the projections and this one, such as [`RotaryEmbedding`](super::RotaryEmbedding), change queries and keys.
/// Head `h` of the queries reads head `h / (heads / key_heads)` of the keys and values; they are never repeated.
///
/// | tensor | shape |
/// | --- | --- |
/// | query | `[batch, time, heads, dim]` |
/// | key | `[batch, keys, key_heads, dim]`; `key_heads` divides `heads` |
/// | value | `[batch, keys, key_heads, value_dim]` |
/// | mask, after these, if at all: keys that count; with `documents`, always: the number of each position's document | `[batch, keys]` |
/// | output | `[batch, time, heads, value_dim]` |
///
/// With `documents`, a row holds several texts, one behind the other, and a query sees the keys of its own text alone: there are as many
/// queries as keys. With `sliding_window`, it sees so many keys, its own position and those before it. A query that sees no key gets the mean of all values, or 0 if there is `dropout`. Masks of other layers are not found: the
/// mask is an input. Memory grows with the lengths, not with their product.
///
/// **Across adapters** nothing changes: each row stands alone, and dropped probabilities follow from (seed, training step, node,
/// row of the whole batch, place). Kept for backward: inputs, output, and a number for each query and head. Source: Vaswani et
/// al. 2017, arXiv:1706.03762; `keras.ops.dot_product_attention`, `torch.nn.functional.scaled_dot_product_attention`. Golden
/// values: Keras 3.
///
/// ```
/// use manyhands::{Shape, layers::{DotProductAttention, Layer}};
/// let [query, key, value] = [[10, 4, 16], [10, 2, 16], [10, 2, 16]].map(Shape::new);
/// let built = DotProductAttention::default().causal().build(&[query, key, value]).unwrap();
/// assert_eq!(built.output.to_string(), "[batch, 10, 4, 16]");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DotProductAttention {
    /// Whether a query sees only keys up to its own position: `is_causal` in Keras and PyTorch.
    pub use_causal_mask: bool,
    /// Whether the mask has the number of each position's document, and a query sees only keys of the number of its own: `segment_ids` in
    /// JAX.
    pub documents: bool,
    /// Number of keys that a query sees, its own position and those before it; all if not given. With `use_causal_mask`, without a mask of
    /// keys: `sliding_window` of transformers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sliding_window: Option<usize>,
    /// Part of the probabilities that is dropped in training, in `[0, 1)`.
    pub dropout: f32,
}

impl DotProductAttention {
    builders!(causal, documents, dropout);

    /// A query sees so many keys, its own position and those before it.
    #[must_use]
    pub fn sliding_window(mut self, keys: usize) -> Self {
        self.sliding_window = Some(keys);
        self
    }

    fn heads(&self, inputs: &[Shape]) -> Result<AttentionHeads, Problem> {
        let axes: Vec<&[usize]> = inputs.iter().map(Shape::axes).collect();
        let heads = match axes[..] {
            [
                &[queries, heads, dim],
                &[keys, key_heads, key_dim],
                &[values, value_heads, value_dim],
                ref masks @ ..,
            ] if dim == key_dim
                && keys == values
                && key_heads == value_heads
                && key_heads > 0
                && dim * value_dim > 0 =>
            {
                let mask = (masks.len() == 1 && *masks[0] == [keys]).then_some(3);
                let (key_mask, documents) = if self.documents { (None, mask) } else { (mask, None) };
                let heads = AttentionHeads {
                    heads,
                    key_heads,
                    queries,
                    keys,
                    dim,
                    value_dim,
                    query_mask: None,
                    key_mask,
                    documents,
                    dropout: self.dropout,
                    is_causal: self.use_causal_mask,
                    // A wider one hides nothing.
                    window: self.sliding_window.filter(|window| *window < keys),
                };
                let are_known = heads.heads > 0 && heads.heads.is_multiple_of(key_heads);
                let are_masked = masks.len() == usize::from(mask.is_some());
                let are_divided = !self.documents || mask.is_some() && queries == keys;
                (are_known && are_masked && are_divided).then_some(heads)
            }
            _ => None,
        };
        heads.ok_or_else(|| {
            let (keys, mask, help) = if self.documents {
                ("time", "numbers of documents [batch, time]", "leave `documents` out where each row is one text")
            } else {
                let help = "`Reshape` makes heads of features; `key_heads` divides `heads`";
                ("keys", "perhaps a mask [batch, keys]", help)
            };
            let shapes: Vec<String> = inputs.iter().map(Shape::to_string).collect();
            let problem = format!(
                "needs a query [batch, time, heads, dim], a key [batch, {keys}, key_heads, dim], a value [batch, {keys}, key_heads, \
                 value_dim], and {mask}, but got {}",
                shapes.join(" and ")
            );
            Problem::new(problem, help)
        })
    }
}

impl Layer for DotProductAttention {
    fn kind(&self) -> &'static str {
        "DotProductAttention"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let heads = self.heads(inputs)?;
        heads.check()?;
        let is_able = self.use_causal_mask && heads.key_mask.is_none();
        if self.sliding_window.is_some_and(|window| window == 0 || !is_able) {
            let problem =
                "needs a `sliding_window` of 1 key at least, with `use_causal_mask` and without a mask of keys";
            return Err(Problem::new(problem, "set `use_causal_mask = true`, or leave `sliding_window` out"));
        }
        Ok(Built::plain(Shape::new([heads.queries, heads.heads, heads.value_dim])))
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let heads = self.recorded(rec);
        let (inputs, y) = ([0, 1, 2].map(|i| rec.input(i)), rec.output());
        heads.forward(rec, inputs, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let heads = self.recorded(rec);
        let ([q, k, v], y, dy) = ([0, 1, 2].map(|i| rec.input(i)), rec.output(), rec.output_gradient());
        let unneeded = [("query_gradient", q), ("key_gradient", k), ("value_gradient", v)];
        let gradients = std::array::from_fn(|i| match rec.input_gradient(i) {
            Some(gradient) => gradient,
            None => rec.scratch(unneeded[i].0, Length::per_row(rec.input_shape(i).len())),
        });
        heads.backward(rec, [q, k, v, y], dy, gradients);
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let inputs: Vec<Shape> = (0..form.n_inputs()).map(|i| form.input_shape(i).clone()).collect();
        let heads = as_built(self.heads(&inputs));
        let inputs = [0, 1, 2].map(|i| form.input(i));
        let y = heads.onnx(form, inputs);
        form.output(y, Order::Last);
        Ok(())
    }
}

impl DotProductAttention {
    /// Sizes of the layer that records.
    fn recorded(&self, rec: &Recorder<'_>) -> AttentionHeads {
        let inputs: Vec<Shape> = (0..rec.n_inputs()).map(|i| rec.input_shape(i)).collect();
        as_built(self.heads(&inputs))
    }
}
