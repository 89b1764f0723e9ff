//! Rows of a table by their index, and the gradient of the table.

use super::cases::{Case, InputFill};
use super::family::family;
use super::parallel::{self, Slabs};
use super::rounding::{class, float, index, single};
use super::{Call, Kernel};

crate::params! {
    /// Indices.
    positions: u32,
    /// Columns of the table.
    cols: u32,
    /// First row of the table that is bound.
    first: u32,
    /// Rows of the table that are bound.
    rows: u32,
    /// Rows of the whole table.
    vocabulary: u32,
    /// Slabs of the positions, of each of which the gradient is summed by itself.
    splits: u32,
}

family!("embedding", [Grid]);

/// Chains of up to 2,000 normal numbers in f32.
const TOLERANCE: f32 = 2e-5;

/// The family.
pub static KERNELS: &[&Kernel] = &[&FORWARD, &LINK, &CLEAR, &BACKWARD];

/// `ids [positions]`, `table [rows, cols]` → `y [positions, cols]`: of the indices whose rows are bound; the others stay.
///
/// Grid: `Elements(positions * cols)`.
pub static FORWARD: Kernel =
    kernel("forward", [&["ids", "table"], &["y"], &[]], (forward_twin, forward_fast), TOLERANCE, forward_cases);

/// `ids [positions]` → `links [positions]`, as words: the distance to the next position of this index in its slab, 0 for none, and
/// [`FIRST`] where none is before it.
///
/// Each looks for its neighbours: what is frequent finds them near, what is rare compares all of its slab.
/// Grid: `Elements(positions)`.
pub static LINK: Kernel = kernel("link", [&["ids"], &["links"], &[]], (link_twin, link_fast), TOLERANCE, link_cases);

/// Zeros in `cleared [splits, rows, cols]`. Grid: `Elements(splits * rows * cols)`.
pub static CLEAR: Kernel = kernel("clear", [&[], &["cleared"], &[]], (clear_twin, clear_fast), TOLERANCE, clear_cases);

/// `ids`, `chain [positions]` (from [`LINK`]), `dy [positions, cols]` → `partials [splits, rows, cols]`: rows with indices;
/// the others stay.
///
/// Grid: `Elements(positions * cols)`.
pub static BACKWARD: Kernel = kernel(
    "backward",
    [&["ids", "chain", "dy"], &["partials"], &[]],
    (backward_twin, backward_fast),
    TOLERANCE,
    backward_cases,
);

/// Bit of a link that is the first of its index in its slab.
pub const FIRST: u32 = 1 << 31;

/// Elements of partial sums at most, and slabs at most.
const MOST_PARTIALS: usize = 1 << 20;
const MOST_SPLITS: usize = 64;

/// Slabs that keep chains short for a table of so many elements: as many as cost little memory.
pub fn splits(elements: usize) -> u32 {
    let most = (MOST_PARTIALS / elements.max(1)).clamp(1, MOST_SPLITS);
    [64, 32, 16, 8, 4, 2].into_iter().find(|splits| *splits as usize <= most).unwrap_or(1)
}

/// [`Params`] with plain sizes.
struct EmbeddingSizes {
    positions: usize,
    cols: usize,
    first: usize,
    rows: usize,
    vocabulary: usize,
    splits: usize,
}

impl EmbeddingSizes {
    fn of_call(call: &Call<'_>) -> Self {
        let p: Params = call.params();
        let [positions, cols, first] = [p.positions, p.cols, p.first].map(index);
        let [rows, vocabulary, splits] = [p.rows, p.vocabulary, p.splits].map(index);
        Self { positions, cols, first, rows, vocabulary, splits }
    }

    /// The row of the bound part that an index means, if it is there.
    fn row(&self, id: f32) -> Option<usize> {
        class(id, self.vocabulary).checked_sub(self.first).filter(|row| *row < self.rows)
    }
}

fn forward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = EmbeddingSizes::of_call(call);
    let (ids, table) = (call.inputs[0], call.inputs[1]);
    for (p, y) in outputs[0].chunks_mut(s.cols).enumerate().take(s.positions) {
        for (col, y) in y.iter_mut().enumerate() {
            if let Some(row) = s.row(ids[p]) {
                *y = table[row * s.cols + col];
            }
        }
    }
}

fn forward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = EmbeddingSizes::of_call(call);
    let (ids, table) = (call.inputs[0], call.inputs[1]);
    parallel::rows(&mut outputs[0][..s.positions * s.cols], s.cols, |first, y| {
        for (y, id) in y.chunks_exact_mut(s.cols).zip(&ids[first..]) {
            if let Some(row) = s.row(*id) {
                y.copy_from_slice(&table[row * s.cols..][..s.cols]);
            }
        }
    });
}

fn link_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = EmbeddingSizes::of_call(call);
    let id = |p: usize| class(call.inputs[0][p], s.vocabulary);
    for split in 0..s.splits {
        let slab = Slabs::new(s.positions, s.splits).range(split);
        for p in slab.clone() {
            let next = (p + 1..slab.end).find(|next| id(*next) == id(p));
            let is_first = (slab.start..p).all(|before| id(before) != id(p));
            outputs[0][p] = word(next.map_or(0, |next| next - p), is_first);
        }
    }
}

/// A link.
fn word(distance: usize, is_first: bool) -> f32 {
    let distance = u32::try_from(distance).unwrap_or(0);
    f32::from_bits(distance | if is_first { FIRST } else { 0 })
}

fn link_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = EmbeddingSizes::of_call(call);
    let (ids, len) = (&call.inputs[0][..s.positions], s.positions.div_ceil(s.splits).max(1));
    parallel::slabs(&mut outputs[0][..s.positions], len, s.positions, |split, links| {
        let ids = &ids[split * len..][..links.len()];
        let mut last = vec![usize::MAX; s.vocabulary];
        for (p, id) in ids.iter().enumerate() {
            let before = std::mem::replace(&mut last[class(*id, s.vocabulary)], p);
            links[p] = word(0, before == usize::MAX);
            if before != usize::MAX {
                links[before] = word(p - before, links[before].to_bits() & FIRST != 0);
            }
        }
    });
}

fn clear_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = EmbeddingSizes::of_call(call);
    outputs[0].iter_mut().take(s.splits * s.rows * s.cols).for_each(|value| *value = 0.0);
}

fn clear_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = EmbeddingSizes::of_call(call);
    parallel::chunks(&mut outputs[0][..s.splits * s.rows * s.cols], |_, values| values.fill(0.0));
}

fn backward_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = EmbeddingSizes::of_call(call);
    let [ids, chain, dy] = [call.inputs[0], call.inputs[1], call.inputs[2]];
    let links = |p: usize| chain[p].to_bits();
    let len = s.positions.div_ceil(s.splits).max(1);
    for first in (0..s.positions).filter(|p| links(*p) & FIRST != 0) {
        let Some(row) = s.row(ids[first]) else { continue };
        let mut positions = vec![first];
        while let Some(p) = positions.last().copied().filter(|p| links(*p) & !FIRST != 0) {
            positions.push(p + index(links(p) & !FIRST));
        }
        for col in 0..s.cols {
            let sum: f64 = positions.iter().map(|p| f64::from(dy[p * s.cols + col])).sum();
            outputs[0][(first / len * s.rows + row) * s.cols + col] = single(sum);
        }
    }
}

fn backward_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let s = EmbeddingSizes::of_call(call);
    let [ids, chain, dy] = [call.inputs[0], call.inputs[1], call.inputs[2]];
    let partials = &mut outputs[0][..s.splits * s.rows * s.cols];
    parallel::slabs(partials, s.rows * s.cols, s.positions * s.cols, |split, partial| {
        for p in Slabs::new(s.positions, s.splits).range(split) {
            let Some(row) = s.row(ids[p]) else { continue };
            let (sum, dy) = (&mut partial[row * s.cols..][..s.cols], &dy[p * s.cols..][..s.cols]);
            if chain[p].to_bits() & FIRST == 0 {
                sum.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
            } else {
                sum.copy_from_slice(dy);
            }
        }
    });
}

/// Positions, columns, vocabulary and splits.
const SIZES: [[u32; 4]; 9] = [
    [1, 1, 1, 1],
    [63, 5, 7, 2],
    [64, 1, 64, 1],
    [65, 64, 3, 4],
    [257, 65, 40, 8],
    [5, 3, 1000, 1],
    [0, 4, 9, 2],
    [2000, 2, 1, 1],
    [70_000, 64, 5000, 1],
];

/// Each size with all rows of the table, and with a part of them.
fn params() -> Vec<Params> {
    let whole = SIZES.map(|[positions, cols, vocabulary, splits]| Params {
        positions,
        cols,
        first: 0,
        rows: vocabulary,
        vocabulary,
        splits,
    });
    let part = |p: &Params| Params { first: p.vocabulary / 3, rows: p.vocabulary.div_ceil(2), ..*p };
    let parts = whole.iter().map(part).filter(|part| part.rows < part.vocabulary);
    whole.into_iter().chain(parts).collect()
}

fn case(p: &Params, elements: u32) -> Case {
    let label =
        format!("{} x {} of {} from {} of {}, {} splits", p.positions, p.cols, p.rows, p.first, p.vocabulary, p.splits);
    Case::elements(label, p.words(), elements)
}

/// Indices, of which a few are out of range.
fn ids(p: &Params) -> Vec<f32> {
    let mut ids = InputFill::Labels(index(p.positions), p.vocabulary).values(5);
    ids.iter_mut().skip(3).step_by(97).for_each(|id| *id = 1e9);
    ids.iter_mut().skip(4).step_by(89).for_each(|id| *id = -3.0);
    ids
}

fn forward_cases() -> Vec<Case> {
    let each = |p: Params| {
        let table = InputFill::Normal(index(p.rows * p.cols));
        case(&p, p.positions * p.cols)
            .input(InputFill::Values(ids(&p)))
            .input(table)
            .output(index(p.positions * p.cols))
    };
    params().into_iter().map(each).collect()
}

/// Looking for neighbours takes the square of a slab: no long ones.
fn linked() -> impl Iterator<Item = Params> {
    params().into_iter().filter(|p| p.positions <= 2000)
}

/// Links as numbers: negative where they are the first.
fn readable(links: &[f32]) -> Vec<f32> {
    let number = |link: u32| float(index(link & !FIRST)) + 1.0;
    links
        .iter()
        .map(|link| if link.to_bits() & FIRST == 0 { number(link.to_bits()) } else { -number(link.to_bits()) })
        .collect()
}

fn link_cases() -> Vec<Case> {
    let each = |p: Params| {
        let case = case(&p, p.positions).input(InputFill::Values(ids(&p))).output(index(p.positions));
        case.read_by(readable)
    };
    linked().map(each).collect()
}

fn clear_cases() -> Vec<Case> {
    let each = |p: Params| case(&p, p.splits * p.rows * p.cols).output(index(p.splits * p.rows * p.cols));
    linked().map(each).collect()
}

fn backward_cases() -> Vec<Case> {
    let each = |p: Params| {
        let ids = ids(&p);
        let mut links = vec![0.0; ids.len()];
        link_fast(&Call { params: &p.words(), constants: &[], inputs: &[&ids] }, &mut [&mut links]);
        let case = case(&p, p.positions * p.cols).input(InputFill::Values(ids)).input(InputFill::Values(links));
        case.input(InputFill::Normal(index(p.positions * p.cols))).in_place(InputFill::Values(vec![
            0.0;
            index(
                p.splits * p.rows * p.cols
            )
        ]))
    };
    linked().chain(params().into_iter().filter(|p| p.positions > 2000)).map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_the_sum_of_each_index() {
        let p = Params { positions: 5, cols: 2, first: 0, rows: 3, vocabulary: 3, splits: 2 };
        let ids = [2.0, 0.0, 2.0, 2.0, 0.0];
        let dy = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0, 5.0, 50.0];
        let (mut links, mut partials) = (vec![0.0; 5], vec![0.0; 12]);
        let words = p.words();
        link_twin(&Call { params: &words, constants: &[], inputs: &[&ids] }, &mut [&mut links]);
        let told: Vec<u32> = links.iter().map(|link| link.to_bits()).collect();
        assert_eq!(told, [FIRST | 2, FIRST, 0, FIRST, FIRST]);
        for backward in [backward_twin, backward_fast] {
            partials.fill(0.0);
            backward(&Call { params: &words, constants: &[], inputs: &[&ids, &links, &dy] }, &mut [&mut partials]);
            assert_eq!(partials, [2.0, 20.0, 0.0, 0.0, 4.0, 40.0, 5.0, 50.0, 0.0, 0.0, 4.0, 40.0]);
        }
    }

    #[test]
    fn small_tables_are_summed_in_slabs() {
        assert_eq!([100 * 64, 10_000 * 64, 50_000 * 768].map(splits), [64, 1, 1]);
    }
}
