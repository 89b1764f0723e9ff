//! Attention of queries to keys, part by part: memory grows with the length of a sequence, not with its square.
//!
//! Forward keeps the logarithm of each query's sum; backward computes the probabilities again, once for the queries'
//! gradient and once for that of keys and values. All sums have one order, so results repeat to the same bits.

mod cases;
mod fast;
mod twins;

use super::family::family;
use super::rounding::{ceiling, index, single};
use super::{Call, Kernel, whole};
use crate::size::{Grid, Word};

crate::params! {
    /// Rows of the batch.
    rows: u32,
    /// Heads of the queries.
    heads: u32,
    /// Heads of the keys and values, a divisor of those of the queries: head `h` reads `h / (heads / key_heads)`.
    key_heads: u32,
    /// Queries of a row.
    queries: u32,
    /// Keys of a row, each with a value.
    keys: u32,
    /// Numbers of a query or key, in each head.
    dim: u32,
    /// Numbers of a value, in each head.
    value_dim: u32,
    /// Factor of the products of queries and keys.
    scale: f32,
    /// Index in the whole batch of this run's first row.
    first_row: u32,
    /// Seed of the run.
    seed: u32,
    /// Training step.
    step: u32,
    /// Number of the node in its model.
    node: u32,
    /// Share of the probabilities that are dropped; read if `DROPS` is 1.
    rate: f32,
}

family!("attention", [Attention, Grid, Random], 256);

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &BACKWARD_SUMS, &BACKWARD_QUERIES, &BACKWARD_KEYS];

/// Sums of up to 257 terms below 10 in size, whose factors are exponentials within some units.
const TOLERANCE: f32 = 2e-5;

/// Logarithm of the sum of a query that sees no key.
pub const EMPTY: f32 = 3e38;

/// Positions of a part.
const OWN: u32 = 64;
/// Columns of a part.
const COLUMNS: u32 = 64;

/// `q [rows, queries, heads, dim]`, `k [rows, keys, key_heads, dim]`, `v [rows, keys, key_heads, value_dim]`,
/// `key_mask [rows, keys]`, `query_mask [rows, queries]` → `y [rows, queries, heads, value_dim]`,
/// `lse [rows, queries, heads]`.
///
/// Constants, 0 unless set: `CAUSAL`: no query sees a later key; `QUERY_MASKED`, `KEY_MASKED`: masks are read, else any
/// buffers may be bound; `DOCUMENTS`: `key_mask` has the number of each position's document, and a query sees the keys of its own
/// alone: `keys` is `queries`, and `KEY_MASKED` is not set; `WINDOW`: a number of keys, the query's own and those before it, of which alone it
/// sees some: with `CAUSAL`, without `UNIFORM`; `UNIFORM`: a query that sees no key gives the mean of all values instead of 0; `DROPS`:
/// probabilities are dropped. Grid: [`Record::forward_grid`].
pub static FORWARD: Kernel = kernel(
    "forward",
    [
        &["q", "k", "v", "key_mask", "query_mask"],
        &["y", "lse"],
        &["CAUSAL", "QUERY_MASKED", "KEY_MASKED", "DOCUMENTS", "WINDOW", "UNIFORM", "DROPS"],
    ],
    (twins::forward, fast::forward),
    TOLERANCE,
    cases::forward,
);

/// `saved_y`, `saved_dy [rows, queries, heads, value_dim]`, `saved_lse` → `sums [rows, queries, heads, 2]`: `lse`, and
/// the sum of y · dy.
///
/// Grid: `Elements(rows * queries * heads)`.
pub static BACKWARD_SUMS: Kernel = kernel(
    "backward_sums",
    [&["saved_y", "saved_dy", "saved_lse"], &["sums"], &[]],
    (twins::backward_sums, fast::backward_sums),
    TOLERANCE,
    cases::backward_sums,
);

/// `q`, `k`, `v`, `key_mask`, `dy`, `statistics [rows, queries, heads, 2]` of [`BACKWARD_SUMS`] → `d_q`.
///
/// Constants: `CAUSAL`, `KEY_MASKED`, `DOCUMENTS`, `WINDOW`, `DROPS`, as forward has them. Grid: [`Record::backward_queries_grid`].
pub static BACKWARD_QUERIES: Kernel = kernel(
    "backward_queries",
    [
        &["q", "k", "v", "key_mask", "dy", "statistics"],
        &["d_q"],
        &["CAUSAL", "KEY_MASKED", "DOCUMENTS", "WINDOW", "DROPS"],
    ],
    (twins::backward_queries, fast::backward_queries),
    TOLERANCE,
    cases::backward_queries,
);

/// `q`, `k`, `v`, `key_mask`, `dy`, `statistics` → `d_k`, `d_v`.
///
/// Constants: `CAUSAL`, `KEY_MASKED`, `DOCUMENTS`, `WINDOW`, `UNIFORM`, `DROPS`, as forward has them. Grid: [`Record::backward_keys_grid`].
pub static BACKWARD_KEYS: Kernel = kernel(
    "backward_keys",
    [
        &["q", "k", "v", "key_mask", "dy", "statistics"],
        &["d_k", "d_v"],
        &["CAUSAL", "KEY_MASKED", "DOCUMENTS", "WINDOW", "UNIFORM", "DROPS"],
    ],
    (twins::backward_keys, fast::backward_keys),
    TOLERANCE,
    cases::backward_keys,
);

impl Record {
    /// The grid of [`FORWARD`].
    pub fn forward_grid(&self) -> Grid {
        self.grid([self.heads, self.queries], number(self.value_dim))
    }

    /// The grid of [`BACKWARD_QUERIES`].
    pub fn backward_queries_grid(&self) -> Grid {
        self.grid([self.heads, self.queries], number(self.dim))
    }

    /// The grid of [`BACKWARD_KEYS`].
    pub fn backward_keys_grid(&self) -> Grid {
        self.grid([self.key_heads, self.keys], number(self.dim).max(number(self.value_dim)))
    }

    /// The grid of a result of so many columns for each head and position.
    fn grid(&self, [heads, positions]: [Word; 2], columns: u32) -> Grid {
        let of_row = number(heads) * number(positions).div_ceil(OWN) * columns.div_ceil(COLUMNS);
        let parts = match self.rows {
            Word::Rows(factor) => Word::Rows(factor * of_row),
            rows => Word::U32(number(rows) * of_row),
        };
        Grid::Items(parts)
    }
}

/// A word that is known when a plan is recorded; all sizes but the rows are.
fn number(word: Word) -> u32 {
    match word {
        Word::U32(number) => number,
        _ => 0,
    }
}

impl Params {
    /// These sizes as a layer records them.
    pub fn record(&self) -> Record {
        Record {
            rows: self.rows.into(),
            heads: self.heads.into(),
            key_heads: self.key_heads.into(),
            queries: self.queries.into(),
            keys: self.keys.into(),
            dim: self.dim.into(),
            value_dim: self.value_dim.into(),
            scale: self.scale.into(),
            first_row: self.first_row.into(),
            seed: self.seed.into(),
            step: self.step.into(),
            node: self.node.into(),
            rate: self.rate.into(),
        }
    }
}

/// Multiplications and additions of a kernel of this family; those of hidden pairs are counted.
#[allow(clippy::cast_precision_loss, reason = "an estimate")]
pub fn flops(kernel: &Kernel, params: &[u32]) -> Option<f64> {
    let [rows, heads, _, queries, keys, dim, value_dim] = *params.first_chunk::<7>()?;
    let products = match kernel.entry {
        "forward" => [1.0, 1.0],
        "backward_queries" => [2.0, 1.0],
        "backward_keys" => [2.0, 2.0],
        _ => return None,
    };
    let pairs = [rows, heads, queries, keys].into_iter().map(f64::from).product::<f64>();
    Some(2.0 * pairs * (products[0] * f64::from(dim) + products[1] * f64::from(value_dim)))
}

/// The sizes and constants of a call.
#[derive(Clone, Copy, Debug)]
struct AttentionSizes {
    params: Params,
    rows: usize,
    heads: usize,
    key_heads: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    value_dim: usize,
    is_causal: bool,
    has_query_mask: bool,
    has_key_mask: bool,
    has_documents: bool,
    /// Keys that a query sees, its own position and those before it.
    window: Option<usize>,
    is_uniform: bool,
    drops: bool,
}

impl AttentionSizes {
    fn of_call(call: &Call<'_>) -> Self {
        let params: Params = call.params();
        let is = |name| call.constant(name, 0.0) != 0.0;
        Self {
            rows: index(params.rows),
            heads: index(params.heads),
            key_heads: index(params.key_heads),
            queries: index(params.queries),
            keys: index(params.keys),
            dim: index(params.dim),
            value_dim: index(params.value_dim),
            is_causal: is("CAUSAL"),
            has_query_mask: is("QUERY_MASKED"),
            has_key_mask: is("KEY_MASKED"),
            has_documents: is("DOCUMENTS"),
            window: Some(call.constant("WINDOW", 0.0))
                .filter(|window| *window > 0.0)
                .map(|window| index(ceiling(single(window)))),
            is_uniform: is("UNIFORM"),
            drops: is("DROPS"),
            params,
        }
    }

    /// Heads of queries that read one head of keys.
    fn group(&self) -> usize {
        self.heads / self.key_heads
    }

    /// Number of the first random number of a query.
    fn first_draw(&self, head: usize, i: usize) -> u32 {
        let query = whole_u32(head).wrapping_mul(self.params.queries).wrapping_add(whole_u32(i));
        query.wrapping_mul(self.params.keys)
    }
}

/// A position as a word; positions were words before.
fn whole_u32(position: usize) -> u32 {
    number(whole(position))
}
