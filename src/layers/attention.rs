//! Attention as its layers record it: projections, heads, the product that makes the output.

use super::dense::{Linear, linear_onnx};
use super::dropout::check_rate;
use super::gradient_sums::sum_columns;
use super::mask::counts_onnx;
use super::{Built, Initializer, Parameter, Problem, as_built};
use crate::kernels::{Kernel, attention as kernel, whole};
use crate::onnx::{Attribute, Form, Order, Value as Written};
use crate::plan::{Grid, Length, Recorder, View, Word, length_word};
use crate::shape::{Shape, elements};

/// Pairs of heads, queries and keys of a row: the random numbers of dropped probabilities are counted in 32 bits.
const MOST_PAIRS: usize = 1 << 31;

/// Settings that the layers of attention have in common.
pub(super) struct Attention {
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values, a divisor of those of the queries.
    pub key_heads: usize,
    /// Numbers of a query and a key, in each head.
    pub dim: usize,
    /// Numbers of a value, in each head.
    pub value_dim: usize,
    /// Part of the probabilities that is dropped in training.
    pub dropout: f32,
    /// Whether biases are added.
    pub use_bias: bool,
    /// Features of the output; as many as the query has if not given.
    pub output: Option<usize>,
    /// Whether a query sees only keys up to its own position.
    pub is_causal: bool,
    /// Initial values of the kernels.
    pub initializer: Initializer,
    /// Names of the layer's sizes, for errors.
    pub sizes_by: &'static str,
}

/// One of the projections: the input that it reads, its parameters, and the heads that it makes.
struct Projection {
    input: usize,
    kernel: &'static str,
    bias: &'static str,
    heads: usize,
    dim: usize,
}

impl Projection {
    /// Numbers of a position that it makes.
    fn units(&self) -> usize {
        self.heads.saturating_mul(self.dim)
    }
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

impl Attention {
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
        let projections = [
            Projection { input: 0, kernel: "query_kernel", bias: "query_bias", heads: self.heads, dim: self.dim },
            Projection { input: key, kernel: "key_kernel", bias: "key_bias", heads: self.key_heads, dim: self.dim },
            Projection {
                input: value,
                kernel: "value_kernel",
                bias: "value_bias",
                heads: self.key_heads,
                dim: self.value_dim,
            },
        ];
        let output = self.output.unwrap_or(sequences[0].last());
        Ok(BuiltAttention { queries, keys, query_mask, key_mask, projections, output })
    }

    fn check(&self, sizes: &BuiltAttention) -> Result<(), Problem> {
        check_rate(self.dropout)?;
        if [self.heads, self.dim, self.value_dim, sizes.output].contains(&0) {
            return Err(Problem::new(
                format!(
                    "needs at least one head, and heads and an output of at least one number, but got {} heads of {} and \
                     {}, and an output of {}",
                    self.heads, self.dim, self.value_dim, sizes.output
                ),
                format!("set {}; 8 heads of an eighth of the features each are usual", self.sizes_by),
            ));
        }
        let pairs = elements(&[self.heads, sizes.queries, sizes.keys]);
        if pairs > MOST_PAIRS {
            return Err(Problem::new(
                format!(
                    "needs at most {MOST_PAIRS} pairs of heads, queries and keys a row, but got {} × {} × {}",
                    self.heads, sizes.queries, sizes.keys
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
        Linear { positions: input.positions(), inputs: input.last(), units: projection.units() }
    }

    /// The product that makes the output.
    fn output_linear(&self, sizes: &BuiltAttention) -> Linear {
        Linear { positions: sizes.queries, inputs: self.heads * self.value_dim, units: sizes.output }
    }

    /// Factor of the products of queries and keys.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a factor, which Keras rounds, too"
    )]
    fn scale(&self) -> f32 {
        (1.0 / (self.dim as f64).sqrt()) as f32
    }

    fn params(&self, rec: &Recorder<'_>, sizes: &BuiltAttention) -> kernel::Record {
        kernel::Record {
            rows: Word::Rows(1),
            heads: whole(self.heads),
            key_heads: whole(self.key_heads),
            queries: whole(sizes.queries),
            keys: whole(sizes.keys),
            dim: whole(self.dim),
            value_dim: whole(self.value_dim),
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
            ("CAUSAL", self.is_causal),
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

impl Attention {
    /// Writes a projection as `[batch, time, heads, numbers]`.
    fn projection_onnx(&self, form: &mut Form<'_>, it: &Projection) -> Written {
        let shape = form.input_shape(it.input).clone();
        let x = form.input(it.input);
        let w = form.tensor_of(it.kernel, &[shape.last(), it.units()]);
        let bias = self.use_bias.then(|| form.tensor_of(it.bias, &[it.units()]));
        let y = linear_onnx(form, (&x, shape.rank()), &w, bias.as_ref());
        form.reshape(&y, &[shape.positions(), it.heads, it.dim])
    }

    /// Writes products of rows of each query with what its head of keys has: `[batch, heads, rows, inner]` by `[batch,
    /// key_heads, inner, columns]`. Queries of heads that share keys stand one behind the other.
    fn products_onnx(&self, form: &mut Form<'_>, a: Written, b: &Written, sizes: [usize; 3]) -> Written {
        let [rows, inner, columns] = sizes;
        if self.heads == self.key_heads {
            return form.op("MatMul", &[&a, b], &[]);
        }
        let group = self.heads / self.key_heads;
        let a = form.reshape(&a, &[self.key_heads, group * rows, inner]);
        let y = form.op("MatMul", &[&a, b], &[]);
        form.reshape(&y, &[self.heads, rows, columns])
    }

    /// Writes which keys a query sees, `[batch or 1, 1, queries or 1, keys or 1]`, unless it sees all.
    fn seen_onnx(&self, form: &mut Form<'_>, sizes: &BuiltAttention) -> Option<Written> {
        let mut all = Vec::new();
        if self.is_causal {
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

impl Attention {
    /// Parameters and output for inputs of these shapes.
    pub(super) fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let sizes = self.sizes(inputs)?;
        self.check(&sizes)?;
        let mut parameters = Vec::new();
        let mut add = |[kernel, bias]: [&'static str; 2], shape: Vec<usize>, n_inputs: usize| {
            let fans = [elements(&shape[..n_inputs]), elements(&shape[n_inputs..])];
            let bias_shape = shape[n_inputs..].to_vec();
            let initializer = self.initializer.with_fans(fans);
            parameters.push(Parameter { name: kernel, shape, initializer });
            if self.use_bias {
                parameters.push(Parameter { name: bias, shape: bias_shape, initializer: Initializer::Zeros });
            }
        };
        for it in &sizes.projections {
            add([it.kernel, it.bias], vec![inputs[it.input].last(), it.heads, it.dim], 1);
        }
        let names = ["attention_output_kernel", "attention_output_bias"];
        add(names, vec![self.heads, self.value_dim, sizes.output], 2);
        Ok(Built { output: Shape::new([sizes.queries, sizes.output]), parameters, statistics: Vec::new() })
    }

    /// Records the forward pass.
    pub(super) fn forward(&self, rec: &mut Recorder<'_>) {
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
        let (values, queries) = (self.heads * self.value_dim, sizes.queries);
        let y = rec.scratch("attended", Length::per_row(queries * values));
        let lse = rec.scratch("log_sums", Length::per_row(queries * self.heads));
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

    /// Records the backward pass.
    pub(super) fn backward(&self, rec: &mut Recorder<'_>) {
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
        let statistics = rec.scratch("statistics", Length::per_row(2 * sizes.queries * self.heads));
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

    /// Writes the layer.
    pub(super) fn onnx(&self, form: &mut Form<'_>) {
        let inputs: Vec<Shape> = (0..form.n_inputs()).map(|i| form.input_shape(i).clone()).collect();
        let sizes = as_built(self.sizes(&inputs));
        let [q, k, v] = sizes.projections.each_ref().map(|it| self.projection_onnx(form, it));
        let q = form.transpose(&q, [0, 2, 1, 3]);
        let k = form.transpose(&k, [0, 2, 3, 1]);
        let v = form.transpose(&v, [0, 2, 1, 3]);
        let scores = self.products_onnx(form, q, &k, [sizes.queries, self.dim, sizes.keys]);
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
        let y = self.products_onnx(form, p, &v, [sizes.queries, sizes.keys, self.value_dim]);
        let y = form.transpose(&y, [0, 2, 1, 3]);
        let values = self.heads * self.value_dim;
        let y = form.reshape(&y, &[sizes.queries, values]);
        let w = form.tensor_of("attention_output_kernel", &[values, sizes.output]);
        let bias = self.use_bias.then(|| form.tensor("attention_output_bias"));
        let y = linear_onnx(form, (&y, 2), &w, bias.as_ref());
        form.output(y, Order::Last);
    }
}
