//! Attention with projections: what its layers record before and behind the heads, and the product that makes the output.

use super::attention_heads::AttentionHeads;
use super::dense::{Linear, linear_onnx};
use super::gradient_sums::sum_columns;
use super::{Built, Initializer, Parameter, Problem, as_built};
use crate::onnx::{Form, Order, Value as Written};
use crate::plan::{Length, Recorder};
use crate::shape::{Shape, elements};

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
    heads: AttentionHeads,
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
        let heads = AttentionHeads {
            heads: self.heads,
            key_heads: self.key_heads,
            queries,
            keys,
            dim: self.dim,
            value_dim: self.value_dim,
            query_mask,
            key_mask,
            documents: None,
            dropout: self.dropout,
            is_causal: self.is_causal,
            window: None,
        };
        Ok(BuiltAttention { heads, projections, output })
    }

    fn check(&self, sizes: &BuiltAttention) -> Result<(), Problem> {
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
        sizes.heads.check()
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
    fn output_linear(sizes: &BuiltAttention) -> Linear {
        Linear { positions: sizes.heads.queries, inputs: sizes.heads.values(), units: sizes.output }
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
        Ok(Built { output: Shape::new([sizes.heads.queries, sizes.output]), parameters, statistics: Vec::new() })
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
        let y = rec.scratch("attended", Length::per_row(sizes.heads.queries * sizes.heads.values()));
        rec.keep("attended", y);
        sizes.heads.forward(rec, [q, k, v], y);
        let w = rec.parameter("attention_output_kernel");
        let bias = self.use_bias.then(|| rec.parameter("attention_output_bias"));
        let output = rec.output();
        Self::output_linear(&sizes).forward(rec, [y, w], bias, output);
    }

    /// Records the backward pass.
    pub(super) fn backward(&self, rec: &mut Recorder<'_>) {
        let sizes = self.recorded(rec);
        let [q, k, v, y] = ["queries", "keys", "values", "attended"].map(|what| rec.kept(what));
        let dz = rec.output_gradient();
        let output = Self::output_linear(&sizes);
        if self.use_bias {
            sum_columns(rec, dz, sizes.heads.queries, sizes.output, "attention_output_bias");
        }
        output.backward_weights(rec, [y, dz], "attention_output_kernel");
        let dy = rec.scratch("attended_gradient", y.len);
        let w = rec.parameter("attention_output_kernel");
        output.backward_input(rec, [dz, w], dy);
        let gradients = [("query_gradient", q), ("key_gradient", k), ("value_gradient", v)]
            .map(|(what, like)| rec.scratch(what, like.len));
        sizes.heads.backward(rec, [q, k, v, y], dy, gradients);
        for (it, d) in sizes.projections.iter().zip(gradients) {
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
        let projected = sizes.projections.each_ref().map(|it| self.projection_onnx(form, it));
        let y = sizes.heads.onnx(form, projected);
        let values = sizes.heads.values();
        let y = form.reshape(&y, &[sizes.heads.queries, values]);
        let w = form.tensor_of("attention_output_kernel", &[values, sizes.output]);
        let bias = self.use_bias.then(|| form.tensor("attention_output_bias"));
        let y = linear_onnx(form, (&y, 2), &w, bias.as_ref());
        form.output(y, Order::Last);
    }
}
