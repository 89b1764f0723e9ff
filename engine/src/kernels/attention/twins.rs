//! Attention in f64, number by number.

use super::super::Call;
use super::super::mask::counts;
use super::super::random::RowKey;
use super::super::rounding::{double, index, single};
use super::{AttentionSizes, EMPTY, whole_u32};

/// Arguments of a call.
struct TwinArguments<'a> {
    s: AttentionSizes,
    inputs: &'a [&'a [f32]],
}

impl<'a> TwinArguments<'a> {
    fn of_call(call: &Call<'a>) -> Self {
        Self { s: AttentionSizes::of_call(call), inputs: call.inputs }
    }

    /// A vector of a query in an input.
    fn of_query(&self, input: usize, [row, head, i]: [usize; 3], dim: usize) -> &'a [f32] {
        &self.inputs[input][((row * self.s.queries + i) * self.s.heads + head) * dim..][..dim]
    }

    /// A vector of the key or value that a head of the queries reads.
    fn of_key(&self, input: usize, [row, head, j]: [usize; 3], dim: usize) -> &'a [f32] {
        let key_head = head / self.s.group();
        &self.inputs[input][((row * self.s.keys + j) * self.s.key_heads + key_head) * dim..][..dim]
    }

    fn q(&self, row: usize, head: usize, i: usize) -> &'a [f32] {
        self.of_query(0, [row, head, i], self.s.dim)
    }

    fn k(&self, row: usize, head: usize, j: usize) -> &'a [f32] {
        self.of_key(1, [row, head, j], self.s.dim)
    }

    fn v(&self, row: usize, head: usize, j: usize) -> &'a [f32] {
        self.of_key(2, [row, head, j], self.s.value_dim)
    }

    /// Backward: the gradient of a query's result.
    fn dy(&self, row: usize, head: usize, i: usize) -> &'a [f32] {
        self.of_query(4, [row, head, i], self.s.value_dim)
    }

    fn is_seen(&self, row: usize, i: usize, j: usize) -> bool {
        let is_known = !self.s.has_key_mask || counts(self.inputs[3][row * self.s.keys + j]);
        let document = |at: usize| self.inputs[3][row * self.s.keys + at];
        let is_of_it = !self.s.has_documents || document(i) == document(j);
        let is_near = self.s.window.is_none_or(|window| i < j + window);
        is_known && is_of_it && is_near && !(self.s.is_causal && j > i)
    }

    fn score(&self, row: usize, head: usize, i: usize, j: usize) -> f64 {
        f64::from(self.s.params.scale) * product(self.q(row, head, i), self.k(row, head, j))
    }

    /// The factor of a probability.
    fn factor(&self, row: usize, head: usize, i: usize, j: usize) -> f64 {
        let p = &self.s.params;
        if !self.s.drops {
            return 1.0;
        }
        let key = RowKey::new(p.seed, p.step, p.node, p.first_row.wrapping_add(whole_u32(row)));
        let element = self.s.first_draw(head, i).wrapping_add(whole_u32(j));
        let unit = key.units(element / 4)[index(element % 4)];
        if unit >= p.rate { 1.0 / f64::from((1.0 - p.rate).max(1e-7)) } else { 0.0 }
    }

    /// Backward: logarithm of a query's sum, and y · dy.
    fn statistics(&self, row: usize, head: usize, i: usize) -> [f64; 2] {
        let at = 2 * ((row * self.s.queries + i) * self.s.heads + head);
        [f64::from(self.inputs[5][at]), f64::from(self.inputs[5][at + 1])]
    }

    /// Backward: a pair's share of the value in the result, and the gradient of its score.
    fn pair(&self, row: usize, head: usize, i: usize, j: usize) -> [f64; 2] {
        let [log, mean] = self.statistics(row, head, i);
        if log >= f64::from(EMPTY) {
            return [if self.s.is_uniform { 1.0 / double(self.s.keys) } else { 0.0 }, 0.0];
        }
        if !self.is_seen(row, i, j) {
            return [0.0; 2];
        }
        let (p, factor) = ((self.score(row, head, i, j) - log).exp(), self.factor(row, head, i, j));
        let dp = factor * product(self.dy(row, head, i), self.v(row, head, j));
        [p * factor, f64::from(self.s.params.scale) * p * (dp - mean)]
    }

    /// Calls `each(row, head, position)`.
    fn each(&self, [heads, positions]: [usize; 2], mut each: impl FnMut(usize, usize, usize)) {
        for row in 0..self.s.rows {
            for position in 0..positions {
                (0..heads).for_each(|head| each(row, head, position));
            }
        }
    }
}

fn product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// `sum += factor · vector`
fn add(sum: &mut [f64], factor: f64, vector: &[f32]) {
    sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += factor * f64::from(*x));
}

/// Writes a vector of a head.
fn leave(output: &mut [f32], vector_idx: usize, sum: &[f64], factor: f64) {
    let places = &mut output[vector_idx * sum.len()..][..sum.len()];
    places.iter_mut().zip(sum).for_each(|(place, sum)| *place = single(sum * factor));
}

pub(super) fn forward(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let given = TwinArguments::of_call(call);
    let s = given.s;
    let [y, lse] = outputs else { return };
    given.each([s.heads, s.queries], |row, head, i| {
        let query = (row * s.queries + i) * s.heads + head;
        let is_counted = !s.has_query_mask || counts(call.inputs[4][row * s.queries + i]);
        let seen: Vec<usize> = (0..s.keys).filter(|j| is_counted && given.is_seen(row, i, *j)).collect();
        let mut sum = vec![0.0; s.value_dim];
        if seen.is_empty() {
            (0..s.keys).for_each(|j| add(&mut sum, 1.0, given.v(row, head, j)));
            leave(y, query, &sum, if s.is_uniform { 1.0 / double(s.keys) } else { 0.0 });
            lse[query] = EMPTY;
            return;
        }
        let scores: Vec<f64> = seen.iter().map(|j| given.score(row, head, i, *j)).collect();
        let largest = scores.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
        for (j, score) in seen.iter().zip(&scores) {
            add(&mut sum, given.factor(row, head, i, *j) * (score - largest).exp(), given.v(row, head, *j));
        }
        leave(y, query, &sum, 1.0 / total);
        lse[query] = single(largest + total.ln());
    });
}

pub(super) fn backward_sums(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = AttentionSizes::of_call(call);
    let queries = s.rows * s.queries * s.heads;
    for (query, sums) in outputs[0].chunks_exact_mut(2).enumerate().take(queries) {
        let vector = |input: usize| &call.inputs[input][query * s.value_dim..][..s.value_dim];
        sums.copy_from_slice(&[call.inputs[2][query], single(product(vector(0), vector(1)))]);
    }
}

pub(super) fn backward_queries(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let given = TwinArguments::of_call(call);
    let s = given.s;
    given.each([s.heads, s.queries], |row, head, i| {
        let mut sum = vec![0.0; s.dim];
        (0..s.keys).for_each(|j| add(&mut sum, given.pair(row, head, i, j)[1], given.k(row, head, j)));
        leave(outputs[0], (row * s.queries + i) * s.heads + head, &sum, 1.0);
    });
}

pub(super) fn backward_keys(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let given = TwinArguments::of_call(call);
    let s = given.s;
    given.each([s.key_heads, s.keys], |row, key_head, j| {
        let (mut d_k, mut d_v) = (vec![0.0; s.dim], vec![0.0; s.value_dim]);
        for head in key_head * s.group()..(key_head + 1) * s.group() {
            for i in 0..s.queries {
                let [share, slope] = given.pair(row, head, i, j);
                add(&mut d_v, share, given.dy(row, head, i));
                add(&mut d_k, slope, given.q(row, head, i));
            }
        }
        let key = (row * s.keys + j) * s.key_heads + key_head;
        leave(outputs[0], key, &d_k, 1.0);
        leave(outputs[1], key, &d_v, 1.0);
    });
}
