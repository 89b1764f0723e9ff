//! Attention in f32: blocks of positions on several threads, each by tiles of products.

use ndarray::{ArrayView2, s};

use super::super::gemm::general_mat_mul;
use super::super::mask::counts;
use super::super::product::{TASK, matrix, matrix_mut, with_scratch};
use super::super::random::{self, RowKey};
use super::super::rounding::{ceiling, float, index, single};
use super::super::vectors::{exp, exponentiate, largest, widest};
use super::super::{Call, parallel};
use super::{AttentionSizes, EMPTY, whole_u32};
use crate::runtime::threads;

/// Positions of a block, which is one thread's.
const BLOCK: usize = 64;
/// Positions that a block meets at a time: scores of both stay in the cache.
const MET: usize = 256;

/// A score that is not seen.
const LOW: f32 = -3e38;

/// Arguments of a call.
struct FastArguments<'a> {
    s: AttentionSizes,
    inputs: &'a [&'a [f32]],
}

/// Positions of one row.
#[derive(Clone, Copy)]
struct PositionRange {
    row: usize,
    first: usize,
    len: usize,
}

impl<'a> FastArguments<'a> {
    fn of_call(call: &Call<'a>) -> Self {
        Self { s: AttentionSizes::of_call(call), inputs: call.inputs }
    }

    /// Vectors of a head of the queries at some of their positions.
    fn of_queries(&self, input: usize, range: PositionRange, head: usize, dim: usize) -> ArrayView2<'a, f32> {
        let wide = self.s.heads * dim;
        let data = &self.inputs[input][(range.row * self.s.queries + range.first) * wide + head * dim..];
        matrix(data, range.len, dim, wide)
    }

    /// Vectors of the keys or values that a head of the queries reads, at some of their positions.
    fn of_keys(&self, input: usize, range: PositionRange, head: usize, dim: usize) -> ArrayView2<'a, f32> {
        let wide = self.s.key_heads * dim;
        let first = (range.row * self.s.keys + range.first) * wide + head / self.s.group() * dim;
        matrix(&self.inputs[input][first..], range.len, dim, wide)
    }

    fn q(&self, range: PositionRange, head: usize) -> ArrayView2<'a, f32> {
        self.of_queries(0, range, head, self.s.dim)
    }

    fn k(&self, range: PositionRange, head: usize) -> ArrayView2<'a, f32> {
        self.of_keys(1, range, head, self.s.dim)
    }

    fn v(&self, range: PositionRange, head: usize) -> ArrayView2<'a, f32> {
        self.of_keys(2, range, head, self.s.value_dim)
    }

    fn dy(&self, range: PositionRange, head: usize) -> ArrayView2<'a, f32> {
        self.of_queries(4, range, head, self.s.value_dim)
    }

    fn statistics(&self, row: usize, head: usize, i: usize) -> [f32; 2] {
        let at = 2 * ((row * self.s.queries + i) * self.s.heads + head);
        [self.inputs[5][at], self.inputs[5][at + 1]]
    }

    /// Scores of queries and keys, those that are not seen `LOW`.
    fn scores(&self, queries: PositionRange, keys: PositionRange, head: usize, scores: &mut [f32]) {
        let mut products = matrix_mut(scores, queries.len, keys.len, keys.len);
        general_mat_mul(self.s.params.scale, &self.q(queries, head), &self.k(keys, head).t(), 0.0, &mut products);
        let known = self.s.has_key_mask.then(|| &self.inputs[3][keys.row * self.s.keys + keys.first..][..keys.len]);
        let documents = self.s.has_documents.then(|| &self.inputs[3][keys.row * self.s.keys..][..self.s.keys]);
        for (i, scores) in (queries.first..).zip(scores.chunks_exact_mut(keys.len)) {
            if let Some(documents) = documents {
                let each = scores.iter_mut().zip(&documents[keys.first..]);
                each.for_each(|(score, document)| *score = if *document == documents[i] { *score } else { LOW });
            }
            if let Some(known) = known {
                let each = scores.iter_mut().zip(known);
                each.for_each(|(score, known)| *score = if counts(*known) { *score } else { LOW });
            }
            if self.s.is_causal {
                let seen = (i + 1).saturating_sub(keys.first).min(keys.len);
                scores[seen..].fill(LOW);
            }
            if let Some(window) = self.s.window {
                let hidden = (i + 1).saturating_sub(window + keys.first).min(keys.len);
                scores[..hidden].fill(LOW);
            }
        }
    }

    /// Keys that some query of a range may see, and those ranges of them that it meets.
    fn met_keys(&self, queries: PositionRange) -> impl Iterator<Item = PositionRange> + use<> {
        let end = if self.s.is_causal { self.s.keys.min(queries.first + queries.len) } else { self.s.keys };
        ranges(queries.row, self.s.window.map_or(0, |window| queries.first.saturating_sub(window)), end)
    }

    /// Multiplies probabilities of a query from a key on by their factors.
    fn drop(&self, row: usize, head: usize, i: usize, first_key: usize, values: &mut [f32]) {
        let p = &self.s.params;
        if !self.s.drops {
            return;
        }
        let key = RowKey::new(p.seed, p.step, p.node, p.first_row.wrapping_add(whole_u32(row)));
        let first = self.s.first_draw(head, i).wrapping_add(whole_u32(first_key));
        // u = k / 2^24 >= rate just where k >= rate * 2^24: that product is exact.
        let (least, factor) = (ceiling(p.rate * 16_777_216.0), 1.0 / (1.0 - p.rate).max(1e-7));
        let (mut block, mut skipped, mut values) = (first / 4, index(first % 4), values);
        while !values.is_empty() {
            let mut factors = [0.0; 4 * random::LANES];
            for (element, words) in key.words(block).iter().enumerate() {
                for (lane, word) in words.iter().enumerate() {
                    let mask = u32::from(word >> 8 >= least).wrapping_neg();
                    factors[4 * lane + element] = f32::from_bits(factor.to_bits() & mask);
                }
            }
            let (now, later) = values.split_at_mut((factors.len() - skipped).min(values.len()));
            now.iter_mut().zip(&factors[skipped..]).for_each(|(value, factor)| *value *= factor);
            (values, skipped, block) = (later, 0, block.wrapping_add(whole_u32(random::LANES)));
        }
    }

    /// Backward: of each pair, `shares`: the factor of the value in the result, and `slopes`: the gradient of the score.
    fn pairs(&self, queries: PositionRange, keys: PositionRange, head: usize, [shares, slopes]: [&mut [f32]; 2]) {
        self.scores(queries, keys, head, shares);
        let mut products = matrix_mut(slopes, queries.len, keys.len, keys.len);
        general_mat_mul(1.0, &self.dy(queries, head), &self.v(keys, head).t(), 0.0, &mut products);
        let both = shares.chunks_exact_mut(keys.len).zip(slopes.chunks_exact_mut(keys.len));
        for (i, (shares, slopes)) in (queries.first..).zip(both) {
            let [log, mean] = self.statistics(queries.row, head, i);
            let scale = self.s.params.scale;
            if self.s.drops {
                self.drop(queries.row, head, i, keys.first, slopes);
            }
            score_slopes([shares, slopes], [log, mean, scale]);
            self.drop(queries.row, head, i, keys.first, shares);
        }
    }
}

widest! {
    /// Makes probabilities of one query's scores, and slopes of the scores of those of the probabilities.
    fn score_slopes(both: [&mut [f32]; 2], numbers: [f32; 3]) {
        let ([shares, slopes], [log, mean, scale]) = (both, numbers);
        for (share, slope) in shares.iter_mut().zip(slopes) {
            *share = exp(*share - log);
            *slope = scale * *share * (*slope - mean);
        }
    }
}

/// Ranges of a row's positions from `first` to before `end`.
fn ranges(row: usize, first: usize, end: usize) -> impl Iterator<Item = PositionRange> {
    (first..end).step_by(MET).map(move |first| PositionRange { row, first, len: MET.min(end - first) })
}

/// Calls `each(range, a, b)` for blocks of positions: with the part of each output that is a block's. `work`
/// multiplications are done in all.
fn blocks(
    [rows, positions]: [usize; 2],
    (a, a_len): (&mut [f32], usize),
    (b, b_len): (&mut [f32], usize),
    work: usize,
    each: impl Fn(PositionRange, &mut [f32], &mut [f32]) + Sync + Send,
) {
    let mut items = Vec::new();
    let (mut a, mut b) = (&mut a[..rows * positions * a_len], &mut b[..rows * positions * b_len]);
    for row in 0..rows {
        for first in (0..positions).step_by(BLOCK) {
            let len = BLOCK.min(positions - first);
            let (now_a, later_a) = a.split_at_mut(len * a_len);
            let (now_b, later_b) = b.split_at_mut(len * b_len);
            (a, b) = (later_a, later_b);
            items.push((PositionRange { row, first, len }, now_a, now_b));
        }
    }
    if work <= TASK {
        items.into_iter().for_each(|(range, a, b)| each(range, a, b));
    } else {
        threads::for_each(items, |(range, a, b)| each(range, a, b));
    }
}

/// Multiplications of one product of all queries and keys.
fn work(s: &AttentionSizes) -> usize {
    s.rows * s.queries * s.keys * s.heads * s.dim.max(s.value_dim)
}

pub(super) fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let given = FastArguments::of_call(call);
    let s = given.s;
    let [y, lse] = outputs else { return };
    blocks([s.rows, s.queries], (y, s.heads * s.value_dim), (lse, s.heads), work(&s), |queries, y, lse| {
        with_scratch(BLOCK * MET + 2 * BLOCK, |scratch| {
            let (scores, sums) = scratch.split_at_mut(BLOCK * MET);
            for head in 0..s.heads {
                forward_head(&given, queries, head, [scores, sums], [y, lse]);
            }
        });
    });
}

/// One head's results of a block of queries.
fn forward_head(
    given: &FastArguments<'_>,
    queries: PositionRange,
    head: usize,
    [scores, sums]: [&mut [f32]; 2],
    [y, lse]: [&mut [f32]; 2],
) {
    let s = given.s;
    let (peaks, sums) = sums.split_at_mut(BLOCK);
    peaks.fill(LOW);
    sums.fill(0.0);
    let mut y = matrix_mut(&mut y[head * s.value_dim..], queries.len, s.value_dim, s.heads * s.value_dim);
    let counted = s.has_query_mask.then(|| &call_mask(given)[queries.row * s.queries + queries.first..][..queries.len]);
    let is_counted = |i: usize| counted.is_none_or(|counted| counts(counted[i]));
    for (tile, keys) in given.met_keys(queries).enumerate() {
        let scores = &mut scores[..queries.len * keys.len];
        given.scores(queries, keys, head, scores);
        for (i, scores) in scores.chunks_exact_mut(keys.len).enumerate() {
            let peak = if is_counted(i) { largest(scores, peaks[i]) } else { LOW };
            if peak == LOW {
                scores.fill(0.0);
                continue;
            }
            let shrink = exp(peaks[i] - peak);
            sums[i] = sums[i] * shrink + exponentiate(scores, peak);
            if tile > 0 && shrink != 1.0 {
                y.row_mut(i).mapv_inplace(|y| y * shrink);
            }
            peaks[i] = peak;
            given.drop(queries.row, head, queries.first + i, keys.first, scores);
        }
        let p = matrix(scores, queries.len, keys.len, keys.len);
        general_mat_mul(1.0, &p, &given.v(keys, head), if tile == 0 { 0.0 } else { 1.0 }, &mut y);
    }
    let mut mean = None;
    for (i, mut y) in y.rows_mut().into_iter().enumerate() {
        let is_empty = sums[i] == 0.0;
        lse[i * s.heads + head] = if is_empty { EMPTY } else { peaks[i] + sums[i].ln() };
        if is_empty && s.is_uniform {
            y.assign(mean.get_or_insert_with(|| {
                let all = given.v(PositionRange { row: queries.row, first: 0, len: s.keys }, head);
                all.sum_axis(ndarray::Axis(0)) / float(s.keys)
            }));
        } else {
            let share = if is_empty { 0.0 } else { 1.0 / sums[i] };
            y.mapv_inplace(|y| y * share);
        }
    }
}

/// Forward: the mask of queries.
fn call_mask<'a>(given: &FastArguments<'a>) -> &'a [f32] {
    given.inputs[4]
}

pub(super) fn backward_sums(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = AttentionSizes::of_call(call);
    let queries = s.rows * s.queries * s.heads;
    parallel::rows(&mut outputs[0][..2 * queries], 2, |first, sums| {
        for (query, sums) in (first..).zip(sums.chunks_exact_mut(2)) {
            let vector = |input: usize| &call.inputs[input][query * s.value_dim..][..s.value_dim];
            let products = vector(0).iter().zip(vector(1)).map(|(y, dy)| f64::from(*y) * f64::from(*dy));
            sums.copy_from_slice(&[call.inputs[2][query], single(products.sum())]);
        }
    });
}

pub(super) fn backward_queries(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let given = FastArguments::of_call(call);
    let s = given.s;
    blocks([s.rows, s.queries], (outputs[0], s.heads * s.dim), (&mut [], 0), work(&s), |queries, d_q, _| {
        d_q.fill(0.0);
        with_scratch(2 * BLOCK * MET, |scratch| {
            let (shares, slopes) = scratch.split_at_mut(BLOCK * MET);
            for head in 0..s.heads {
                let mut d_q = matrix_mut(&mut d_q[head * s.dim..], queries.len, s.dim, s.heads * s.dim);
                for keys in given.met_keys(queries) {
                    let len = queries.len * keys.len;
                    given.pairs(queries, keys, head, [&mut shares[..len], &mut slopes[..len]]);
                    let slopes = matrix(&slopes[..len], queries.len, keys.len, keys.len);
                    general_mat_mul(1.0, &slopes, &given.k(keys, head), 1.0, &mut d_q);
                }
            }
        });
    });
}

pub(super) fn backward_keys(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let given = FastArguments::of_call(call);
    let s = given.s;
    let [d_k, d_v] = outputs else { return };
    let [wide, value_wide] = [s.dim, s.value_dim].map(|dim| s.key_heads * dim);
    blocks([s.rows, s.keys], (d_k, wide), (d_v, value_wide), work(&s), |keys, d_k, d_v| {
        d_k.fill(0.0);
        d_v.fill(0.0);
        with_scratch(2 * BLOCK * MET, |scratch| {
            let (shares, slopes) = scratch.split_at_mut(BLOCK * MET);
            for head in 0..s.heads {
                let key_head = head / s.group();
                let mut d_k = matrix_mut(&mut d_k[key_head * s.dim..], keys.len, s.dim, wide);
                let mut d_v = matrix_mut(&mut d_v[key_head * s.value_dim..], keys.len, s.value_dim, value_wide);
                // No query before its first key sees any of them.
                let first = if s.is_causal { keys.first } else { 0 };
                let end = s.window.map_or(s.queries, |window| s.queries.min(keys.first + keys.len + window));
                for queries in ranges(keys.row, first, end) {
                    let len = queries.len * keys.len;
                    given.pairs(queries, keys, head, [&mut shares[..len], &mut slopes[..len]]);
                    let [shares, slopes] =
                        [&shares[..len], &slopes[..len]].map(|values| matrix(values, queries.len, keys.len, keys.len));
                    general_mat_mul(1.0, &shares.t(), &given.dy(queries, head), 1.0, &mut d_v);
                    general_mat_mul(1.0, &slopes.t(), &given.q(queries, head), 1.0, &mut d_k);
                }
                if s.is_uniform {
                    add_shares(&given, keys.row, head, &mut d_v);
                }
            }
        });
    });
}

/// Adds, for each query of a row that sees no key, the share of its gradient that each value has.
fn add_shares(given: &FastArguments<'_>, row: usize, head: usize, d_v: &mut ndarray::ArrayViewMut2<'_, f32>) {
    let s = given.s;
    let dy = given.dy(PositionRange { row, first: 0, len: s.queries }, head);
    let mut sum = vec![0.0; s.value_dim];
    for i in (0..s.queries).filter(|i| given.statistics(row, head, *i)[0] == EMPTY) {
        sum.iter_mut().zip(dy.slice(s![i, ..])).for_each(|(sum, dy)| *sum += dy);
    }
    for mut row in d_v.rows_mut() {
        row.iter_mut().zip(&sum).for_each(|(d_v, sum)| *d_v += sum / float(s.keys));
    }
}
