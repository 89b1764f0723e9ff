//! Attention with several heads.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dense::{Linear, linear_onnx};
use super::dropout::check_rate;
use super::gradient_sums::sum_columns;
use super::mask::counts_onnx;
use super::{Built, Initializer, Layer, MaskUse, Parameter, Problem, as_built, to_config, yes};
use crate::kernels::{Kernel, attention as kernel, whole};
use crate::names;
use crate::onnx::{Attribute, Form, Order, Value as Written};
use crate::plan::{Grid, Length, Recorder, View, Word, length_word};
use crate::shape::{Shape, elements};

/// Pairs of heads, queries and keys of a row: the random numbers of dropped probabilities are counted in 32 bits.
const MOST_PAIRS: usize = 1 << 31;

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

/// One of the projections: the input that it reads, its parameters, and the numbers of a position that it makes.
struct Projection {
    input: usize,
    kernel: &'static str,
    bias: &'static str,
    units: usize,
}

/// Sizes and inputs of a layer that was built.
struct BuiltAttention {
    queries: usize,
    keys: usize,
    query_mask: Option<usize>,
    key_mask: Option<usize>,
    projections: [Projection; 3],
    output: usize,
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

    /// No position sees a later one.
    #[must_use]
    pub fn causal(mut self) -> Self {
        self.use_causal_mask = true;
        self
    }

    /// Sets the numbers of a value.
    #[must_use]
    pub fn value_dim(mut self, value_dim: usize) -> Self {
        self.value_dim = Some(value_dim);
        self
    }

    /// Drops a part of the probabilities in training.
    #[must_use]
    pub fn dropout(mut self, rate: f32) -> Self {
        self.dropout = rate;
        self
    }

    /// Leaves the biases out.
    #[must_use]
    pub fn no_bias(mut self) -> Self {
        self.use_bias = false;
        self
    }

    /// Numbers of a value.
    fn values(&self) -> usize {
        self.value_dim.unwrap_or(self.key_dim)
    }

    /// Sizes for inputs of these shapes.
    fn sizes(&self, inputs: &[Shape]) -> Result<BuiltAttention, Problem> {
        let n_sequences = inputs.iter().take_while(|shape| shape.rank() == 2).count();
        let (sequences, masks) = inputs.split_at(n_sequences);
        let refuse = || {
            let shapes: Vec<String> = inputs.iter().map(Shape::to_string).collect();
            Problem::new(
                format!(
                    "needs a query [batch, time, features], perhaps value and key [batch, keys, features], and perhaps \
                     masks [batch, time] and [batch, keys], but got {}",
                    shapes.join(" and ")
                ),
                "name query, value, key, then masks; value and key have one length. `Reshape` makes sequences",
            )
        };
        let (value, key) = match n_sequences {
            1 => (0, 0),
            2 => (1, 1),
            3 => (1, 2),
            _ => return Err(refuse()),
        };
        let (queries, keys) = (sequences[0].axes()[0], sequences[value].axes()[0]);
        let (query_mask, key_mask) = match (masks.len(), n_sequences) {
            (0, _) => (None, None),
            (1, 1) => (Some(1), Some(1)),
            (1, _) => (None, Some(n_sequences)),
            (2, 2 | 3) => (Some(n_sequences), Some(n_sequences + 1)),
            _ => return Err(refuse()),
        };
        let fits = |mask: Option<usize>, len: usize| mask.is_none_or(|mask| *inputs[mask].axes() == [len]);
        if sequences[key].axes()[0] != keys || !fits(query_mask, queries) || !fits(key_mask, keys) {
            return Err(refuse());
        }
        let of_keys = self.num_heads.saturating_mul(self.key_dim);
        let of_values = self.num_heads.saturating_mul(self.values());
        let projections = [
            Projection { input: 0, kernel: "query_kernel", bias: "query_bias", units: of_keys },
            Projection { input: key, kernel: "key_kernel", bias: "key_bias", units: of_keys },
            Projection { input: value, kernel: "value_kernel", bias: "value_bias", units: of_values },
        ];
        let output = self.output_shape.unwrap_or(sequences[0].last());
        Ok(BuiltAttention { queries, keys, query_mask, key_mask, projections, output })
    }

    fn check(&self, sizes: &BuiltAttention) -> Result<(), Problem> {
        check_rate(self.dropout)?;
        if [self.num_heads, self.key_dim, self.values(), sizes.output].contains(&0) {
            return Err(Problem::new(
                format!(
                    "needs at least one head, and heads and an output of at least one number, but got {} heads of {} and \
                     {}, and an output of {}",
                    self.num_heads,
                    self.key_dim,
                    self.values(),
                    sizes.output
                ),
                "set `num_heads` and `key_dim`; 8 heads of an eighth of the features each are usual",
            ));
        }
        let pairs = elements(&[self.num_heads, sizes.queries, sizes.keys]);
        if pairs > MOST_PAIRS {
            return Err(Problem::new(
                format!(
                    "needs at most {MOST_PAIRS} pairs of heads, queries and keys a row, but got {} × {} × {}",
                    self.num_heads, sizes.queries, sizes.keys
                ),
                "use shorter sequences, or fewer heads",
            ));
        }
        Ok(())
    }

    /// Sizes of the layer that records.
    fn recorded(&self, rec: &Recorder<'_>) -> BuiltAttention {
        let inputs: Vec<Shape> = (0..rec.n_inputs()).map(|i| rec.input_shape(i)).collect();
        as_built(self.sizes(&inputs))
    }

    /// The product of a projection.
    fn linear(rec: &Recorder<'_>, projection: &Projection) -> Linear {
        let input = rec.input_shape(projection.input);
        Linear { positions: input.positions(), inputs: input.last(), units: projection.units }
    }

    /// The product that makes the output.
    fn output_linear(&self, sizes: &BuiltAttention) -> Linear {
        Linear { positions: sizes.queries, inputs: self.num_heads * self.values(), units: sizes.output }
    }

    /// Factor of the products of queries and keys.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a factor, which Keras rounds, too"
    )]
    fn scale(&self) -> f32 {
        (1.0 / (self.key_dim as f64).sqrt()) as f32
    }

    fn params(&self, rec: &Recorder<'_>, sizes: &BuiltAttention) -> kernel::Record {
        kernel::Record {
            rows: Word::Rows(1),
            heads: whole(self.num_heads),
            key_heads: whole(self.num_heads),
            queries: whole(sizes.queries),
            keys: whole(sizes.keys),
            dim: whole(self.key_dim),
            value_dim: whole(self.values()),
            scale: Word::F32(self.scale()),
            first_row: Word::FirstRow,
            seed: Word::Seed,
            step: Word::Step,
            node: whole(rec.node_idx()),
            rate: Word::F32(self.dropout),
        }
    }

    fn dispatch(
        &self,
        rec: &mut Recorder<'_>,
        kernel: &'static Kernel,
        sizes: &BuiltAttention,
        inputs: &[View],
        (outputs, grid): (&[View], Grid),
    ) {
        let (params, is_training) = (self.params(rec, sizes), rec.is_training());
        let set = [
            ("CAUSAL", self.use_causal_mask),
            ("QUERY_MASKED", sizes.query_mask.is_some()),
            ("KEY_MASKED", sizes.key_mask.is_some()),
            // Keras' own softmax, which it takes where probabilities are dropped, gives 0.
            ("UNIFORM", self.dropout == 0.0 && sizes.query_mask.or(sizes.key_mask).is_some()),
            ("DROPS", is_training && self.dropout > 0.0),
        ];
        let dispatch = rec.dispatch(kernel, params, inputs, outputs, grid);
        let known = set.into_iter().filter(|(name, is)| *is && kernel.constants.contains(name));
        dispatch.constants.extend(known.map(|(name, _)| (name, 1.0)));
    }
}

impl MultiHeadAttention {
    /// Writes a projection as `[batch, time, heads, numbers]`.
    fn projection_onnx(&self, form: &mut Form<'_>, it: &Projection) -> Written {
        let shape = form.input_shape(it.input).clone();
        let x = form.input(it.input);
        let w = form.tensor_of(it.kernel, &[shape.last(), it.units]);
        let bias = self.use_bias.then(|| form.tensor_of(it.bias, &[it.units]));
        let y = linear_onnx(form, (&x, shape.rank()), &w, bias.as_ref());
        form.reshape(&y, &[shape.positions(), self.num_heads, it.units / self.num_heads])
    }

    /// Writes which keys a query sees, `[batch or 1, 1, queries or 1, keys or 1]`, unless it sees all.
    fn seen_onnx(&self, form: &mut Form<'_>, sizes: &BuiltAttention) -> Option<Written> {
        let mut all = Vec::new();
        if self.use_causal_mask {
            let [at, key] = [sizes.queries, sizes.keys].map(|count| {
                #[allow(clippy::cast_precision_loss, reason = "positions are far below 2^24")]
                (0..count).map(|at| at as f32).collect::<Vec<f32>>()
            });
            let (at, key) = (form.floats(&[at.len(), 1], &at), form.floats(&[1, key.len()], &key));
            all.push(form.op("GreaterOrEqual", &[&at, &key], &[]));
        }
        for (mask, axes) in [(sizes.key_mask, [1, 2]), (sizes.query_mask, [1, 3])] {
            let Some(mask) = mask else { continue };
            let mask = form.input(mask);
            let mask = form.unsqueeze(&mask, &axes);
            all.push(counts_onnx(form, &mask));
        }
        all.into_iter().reduce(|all, next| form.op("And", &[&all, &next], &[]))
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
        let sizes = self.sizes(inputs)?;
        self.check(&sizes)?;
        let (heads, mut parameters) = (self.num_heads, Vec::new());
        let mut add = |[kernel, bias]: [&'static str; 2], shape: Vec<usize>, n_inputs: usize| {
            let fans = [elements(&shape[..n_inputs]), elements(&shape[n_inputs..])];
            let bias_shape = shape[n_inputs..].to_vec();
            let initializer = self.kernel_initializer.with_fans(fans);
            parameters.push(Parameter { name: kernel, shape, initializer });
            if self.use_bias {
                parameters.push(Parameter { name: bias, shape: bias_shape, initializer: Initializer::Zeros });
            }
        };
        for it in &sizes.projections {
            add([it.kernel, it.bias], vec![inputs[it.input].last(), heads, it.units / heads], 1);
        }
        let names = ["attention_output_kernel", "attention_output_bias"];
        add(names, vec![heads, self.values(), sizes.output], 2);
        Ok(Built { output: Shape::new([sizes.queries, sizes.output]), parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let sizes = self.recorded(rec);
        let names = ["queries", "keys", "values"];
        let [q, k, v] = std::array::from_fn(|i| {
            let (it, name) = (&sizes.projections[i], names[i]);
            let linear = Self::linear(rec, it);
            let (x, w) = (rec.input(it.input), rec.parameter(it.kernel));
            let bias = self.use_bias.then(|| rec.parameter(it.bias));
            let y = rec.scratch(name, Length::per_row(linear.positions * linear.units));
            linear.forward(rec, [x, w], bias, y);
            rec.keep(name, y);
            y
        });
        let (values, queries) = (self.num_heads * self.values(), sizes.queries);
        let y = rec.scratch("attended", Length::per_row(queries * values));
        let lse = rec.scratch("log_sums", Length::per_row(queries * self.num_heads));
        rec.keep("attended", y);
        rec.keep("log_sums", lse);
        // What is not read may be any buffer that is not written.
        let mask = |rec: &Recorder<'_>, mask: Option<usize>| mask.map_or(q, |mask| rec.input(mask));
        let inputs = [q, k, v, mask(rec, sizes.key_mask), mask(rec, sizes.query_mask)];
        let grid = self.params(rec, &sizes).forward_grid();
        self.dispatch(rec, &kernel::FORWARD, &sizes, &inputs, (&[y, lse], grid));
        let w = rec.parameter("attention_output_kernel");
        let bias = self.use_bias.then(|| rec.parameter("attention_output_bias"));
        let output = rec.output();
        self.output_linear(&sizes).forward(rec, [y, w], bias, output);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let sizes = self.recorded(rec);
        let [q, k, v, y, lse] = ["queries", "keys", "values", "attended", "log_sums"].map(|what| rec.kept(what));
        let dz = rec.output_gradient();
        let output = self.output_linear(&sizes);
        if self.use_bias {
            sum_columns(rec, dz, sizes.queries, sizes.output, "attention_output_bias");
        }
        output.backward_weights(rec, [y, dz], "attention_output_kernel");
        let dy = rec.scratch("attended_gradient", y.len);
        let w = rec.parameter("attention_output_kernel");
        output.backward_input(rec, [dz, w], dy);
        let statistics = rec.scratch("statistics", Length::per_row(2 * sizes.queries * self.num_heads));
        let grid = Grid::Elements(length_word(lse.len));
        self.dispatch(rec, &kernel::BACKWARD_SUMS, &sizes, &[y, dy, lse], (&[statistics], grid));
        let mask = sizes.key_mask.map_or(q, |mask| rec.input(mask));
        let inputs = [q, k, v, mask, dy, statistics];
        let [d_q, d_k, d_v] = [("query_gradient", q), ("key_gradient", k), ("value_gradient", v)]
            .map(|(what, like)| rec.scratch(what, like.len));
        let grid = self.params(rec, &sizes).backward_queries_grid();
        self.dispatch(rec, &kernel::BACKWARD_QUERIES, &sizes, &inputs, (&[d_q], grid));
        let grid = self.params(rec, &sizes).backward_keys_grid();
        self.dispatch(rec, &kernel::BACKWARD_KEYS, &sizes, &inputs, (&[d_k, d_v], grid));
        for (it, d) in sizes.projections.iter().zip([d_q, d_k, d_v]) {
            let linear = Self::linear(rec, it);
            if self.use_bias {
                sum_columns(rec, d, linear.positions, linear.units, it.bias);
            }
            let x = rec.input(it.input);
            linear.backward_weights(rec, [x, d], it.kernel);
            if let Some(dx) = rec.input_gradient(it.input) {
                let w = rec.parameter(it.kernel);
                linear.backward_input(rec, [d, w], dx);
            }
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let inputs: Vec<Shape> = (0..form.n_inputs()).map(|i| form.input_shape(i).clone()).collect();
        let sizes = as_built(self.sizes(&inputs));
        let [q, k, v] = sizes.projections.each_ref().map(|it| self.projection_onnx(form, it));
        let q = form.transpose(&q, [0, 2, 1, 3]);
        let k = form.transpose(&k, [0, 2, 3, 1]);
        let v = form.transpose(&v, [0, 2, 1, 3]);
        let scores = form.op("MatMul", &[&q, &k], &[]);
        let mut scores = form.op_with("Mul", &scores, self.scale());
        let seen = self.seen_onnx(form, &sizes);
        if let Some(seen) = &seen {
            // Where no key is seen, all are alike.
            let unseen = form.scalar(-1e30);
            scores = form.op("Where", &[seen, &scores, &unseen], &[]);
        }
        let mut p = form.op("Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
        if let Some(seen) = seen.filter(|_| self.dropout > 0.0) {
            let zero = form.scalar(0.0);
            p = form.op("Where", &[&seen, &p, &zero], &[]);
        }
        let y = form.op("MatMul", &[&p, &v], &[]);
        let y = form.transpose(&y, [0, 2, 1, 3]);
        let values = self.num_heads * self.values();
        let y = form.reshape(&y, &[sizes.queries, values]);
        let w = form.tensor_of("attention_output_kernel", &[values, sizes.output]);
        let bias = self.use_bias.then(|| form.tensor("attention_output_bias"));
        let y = linear_onnx(form, (&y, 2), &w, bias.as_ref());
        form.output(y, Order::Last);
        Ok(())
    }
}
