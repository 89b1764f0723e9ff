//! Attention of queries to keys and values that are there: what all its layers record between their projections.

use super::Problem;
use super::dropout::check_rate;
use super::mask::counts_onnx;
use crate::kernels::rounding::float;
use crate::kernels::{Kernel, attention as kernel, whole};
use crate::onnx::{Attribute, Form, Value as Written};
use crate::plan::{Grid, Length, Recorder, View, Word, length_word};
use crate::shape::elements;

/// Pairs of heads, queries and keys of a row: the random numbers of dropped probabilities are counted in 32 bits.
const MOST_PAIRS: usize = 1 << 31;

/// Sizes and settings of attention without projections.
#[derive(Clone, Copy)]
pub(super) struct AttentionHeads {
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values, a divisor of those of the queries.
    pub key_heads: usize,
    /// Positions of the queries.
    pub queries: usize,
    /// Positions of the keys and values.
    pub keys: usize,
    /// Numbers of a query and a key, in each head.
    pub dim: usize,
    /// Numbers of a value, in each head.
    pub value_dim: usize,
    /// The layer's input that masks queries.
    pub query_mask: Option<usize>,
    /// The layer's input that masks keys.
    pub key_mask: Option<usize>,
    /// The layer's input with the number of each position's document, in place of a mask of keys.
    pub documents: Option<usize>,
    /// Part of the probabilities that is dropped in training.
    pub dropout: f32,
    /// Whether a query sees only keys up to its own position.
    pub is_causal: bool,
    /// Keys that a query sees, its own position and those before it: with `is_causal`, without masks.
    pub window: Option<usize>,
}

impl AttentionHeads {
    /// Numbers of the result at a position.
    pub(super) fn values(&self) -> usize {
        self.heads.saturating_mul(self.value_dim)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        check_rate(self.dropout)?;
        let pairs = elements(&[self.heads, self.queries, self.keys]);
        if pairs > MOST_PAIRS {
            return Err(Problem::new(
                format!(
                    "needs at most {MOST_PAIRS} pairs of heads, queries and keys a row, but got {} × {} × {}",
                    self.heads, self.queries, self.keys
                ),
                "use shorter sequences, or fewer heads",
            ));
        }
        Ok(())
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

    fn params(&self, rec: &Recorder<'_>) -> kernel::Record {
        kernel::Record {
            rows: Word::Rows(1),
            heads: whole(self.heads),
            key_heads: whole(self.key_heads),
            queries: whole(self.queries),
            keys: whole(self.keys),
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

    /// The layer's input with a number for each key.
    fn of_keys(&self) -> Option<usize> {
        self.key_mask.or(self.documents)
    }

    fn dispatch(
        &self,
        rec: &mut Recorder<'_>,
        kernel: &'static Kernel,
        inputs: &[View],
        (outputs, grid): (&[View], Grid),
    ) {
        let (params, is_training) = (self.params(rec), rec.is_training());
        let set = [
            ("CAUSAL", self.is_causal),
            ("QUERY_MASKED", self.query_mask.is_some()),
            ("KEY_MASKED", self.key_mask.is_some()),
            ("DOCUMENTS", self.documents.is_some()),
            // Keras' own softmax, which it takes where probabilities are dropped, gives 0.
            ("UNIFORM", self.dropout == 0.0 && self.query_mask.or(self.key_mask).is_some()),
            ("DROPS", is_training && self.dropout > 0.0),
        ];
        let dispatch = rec.dispatch(kernel, params, inputs, outputs, grid);
        let set = set.into_iter().filter(|(_, is)| *is).map(|(name, _)| (name, 1.0));
        let window = self.window.map(|window| ("WINDOW", f64::from(float(window))));
        dispatch.constants.extend(set.chain(window).filter(|(name, _)| kernel.constants.contains(name)));
    }

    /// Records `y`, `[queries, heads, value_dim]`, of queries `[queries, heads, dim]`, keys and values `[keys, key_heads, ...]`.
    pub(super) fn forward(&self, rec: &mut Recorder<'_>, [q, k, v]: [View; 3], y: View) {
        let lse = rec.scratch("log_sums", Length::per_row(self.queries * self.heads));
        rec.keep("log_sums", lse);
        // What is not read may be any buffer that is not written.
        let mask = |rec: &Recorder<'_>, mask: Option<usize>| mask.map_or(q, |mask| rec.input(mask));
        let inputs = [q, k, v, mask(rec, self.of_keys()), mask(rec, self.query_mask)];
        let grid = self.params(rec).forward_grid();
        self.dispatch(rec, &kernel::FORWARD, &inputs, (&[y, lse], grid));
    }

    /// Records the gradients of queries, keys and values, from that of the result `y`.
    pub(super) fn backward(&self, rec: &mut Recorder<'_>, [q, k, v, y]: [View; 4], dy: View, gradients: [View; 3]) {
        let [d_q, d_k, d_v] = gradients;
        let lse = rec.kept("log_sums");
        let statistics = rec.scratch("statistics", Length::per_row(2 * self.queries * self.heads));
        let grid = Grid::Elements(length_word(lse.len));
        self.dispatch(rec, &kernel::BACKWARD_SUMS, &[y, dy, lse], (&[statistics], grid));
        let mask = self.of_keys().map_or(q, |mask| rec.input(mask));
        let inputs = [q, k, v, mask, dy, statistics];
        let grid = self.params(rec).backward_queries_grid();
        self.dispatch(rec, &kernel::BACKWARD_QUERIES, &inputs, (&[d_q], grid));
        let grid = self.params(rec).backward_keys_grid();
        self.dispatch(rec, &kernel::BACKWARD_KEYS, &inputs, (&[d_k, d_v], grid));
    }
}

impl AttentionHeads {
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
    fn seen_onnx(&self, form: &mut Form<'_>) -> Option<Written> {
        let mut all = Vec::new();
        if self.is_causal {
            let [at, key] = [self.queries, self.keys].map(|count| (0..count).map(float).collect::<Vec<f32>>());
            let (at, key) = (form.floats(&[at.len(), 1], &at), form.floats(&[1, key.len()], &key));
            all.push(form.op("GreaterOrEqual", &[&at, &key], &[]));
            if let Some(window) = self.window {
                let (before, window) = (form.op("Sub", &[&at, &key], &[]), form.scalar(float(window)));
                all.push(form.op("Less", &[&before, &window], &[]));
            }
        }
        for (mask, axes) in [(self.key_mask, [1, 2]), (self.query_mask, [1, 3])] {
            let Some(mask) = mask else { continue };
            let mask = form.input(mask);
            let mask = form.unsqueeze(&mask, &axes);
            all.push(counts_onnx(form, &mask));
        }
        if let Some(documents) = self.documents {
            let documents = form.input(documents);
            let [own, met] = [[1, 3], [1, 2]].map(|axes| form.unsqueeze(&documents, &axes));
            all.push(form.op("Equal", &[&own, &met], &[]));
        }
        all.into_iter().reduce(|all, next| form.op("And", &[&all, &next], &[]))
    }

    /// Writes the result, `[batch, queries, heads, value_dim]`, of queries, keys and values with their heads at axis 2.
    pub(super) fn onnx(&self, form: &mut Form<'_>, [q, k, v]: [Written; 3]) -> Written {
        let q = form.transpose(&q, [0, 2, 1, 3]);
        let k = form.transpose(&k, [0, 2, 3, 1]);
        let v = form.transpose(&v, [0, 2, 1, 3]);
        let scores = self.products_onnx(form, q, &k, [self.queries, self.dim, self.keys]);
        let mut scores = form.op_with("Mul", &scores, self.scale());
        let seen = self.seen_onnx(form);
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
        let y = self.products_onnx(form, p, &v, [self.queries, self.keys, self.value_dim]);
        form.transpose(&y, [0, 2, 1, 3])
    }
}
