//! Fast versions over threads: fixed chunks, so that no result depends on the number of threads.

use std::ops::Range;

use crate::runtime::threads;

/// Below this many elements another thread costs more than it saves.
const SERIAL: usize = 1 << 16;

/// Elements that one task takes, about: fits the L2 cache with its inputs.
const CHUNK: usize = 1 << 14;

/// Calls `f(first, chunk)` on chunks of `output`; `first` is the index of the chunk's first element.
pub(crate) fn chunks(output: &mut [f32], f: impl Fn(usize, &mut [f32]) + Sync) {
    rows(output, 1, f);
}

/// Calls `f(first_row, rows)` on chunks of whole rows of `output`, each `row_len` elements.
pub(crate) fn rows(output: &mut [f32], row_len: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    if output.len() < SERIAL || row_len == 0 {
        f(0, output);
        return;
    }
    let rows = (CHUNK / row_len).max(1);
    threads::chunks(output, rows * row_len, |chunk, output| f(chunk * rows, output));
}

/// Calls `f(row, a, b)` for each row of `a` and `b`, of `a_len` and `b_len` elements.
pub(crate) fn row_pairs(
    (a, a_len): (&mut [f32], usize),
    (b, b_len): (&mut [f32], usize),
    f: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    let rows = (CHUNK / b_len.max(1)).max(1);
    let chunk = |chunk: usize, a: &mut [f32], b: &mut [f32]| {
        let pairs = a.chunks_exact_mut(a_len.max(1)).zip(b.chunks_exact_mut(b_len.max(1)));
        pairs.enumerate().for_each(|(row, (a, b))| f(chunk * rows + row, a, b));
    };
    let (a_step, b_step) = (rows * a_len.max(1), rows * b_len.max(1));
    if b.len() < SERIAL {
        let pairs = a.chunks_mut(a_step).zip(b.chunks_mut(b_step)).enumerate();
        pairs.for_each(|(idx, (a, b))| chunk(idx, a, b));
    } else {
        threads::chunk_pairs((a, a_step), (b, b_step), chunk);
    }
}

/// Calls `f(index, part)` for each part of `output`, a slab's or an image's; `work` elements are touched in all.
pub(crate) fn slabs(output: &mut [f32], part_len: usize, work: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    if work < SERIAL {
        output.chunks_mut(part_len.max(1)).enumerate().for_each(|(index, part)| f(index, part));
    } else {
        threads::chunks(output, part_len.max(1), f);
    }
}

/// `n` items in a fixed number of slabs, each `ceil(n / splits)` long; the last may be short or empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slabs {
    n: usize,
    len: usize,
}

impl Slabs {
    pub(crate) fn new(n: usize, splits: usize) -> Self {
        Self { n, len: n.div_ceil(splits.max(1)) }
    }

    /// The items of a slab.
    pub(crate) fn range(self, split: usize) -> Range<usize> {
        let first = (split * self.len).min(self.n);
        first..(first + self.len).min(self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_cover_everything_once() {
        for n in [0, 1, 5, 64, 65, 1000] {
            for splits in [1, 3, 7, 64] {
                let slabs = Slabs::new(n, splits);
                let all: Vec<usize> = (0..splits).flat_map(|split| slabs.range(split)).collect();
                assert_eq!(all, (0..n).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn chunks_cover_everything_once() {
        for len in [0, 1, CHUNK, SERIAL, SERIAL * 3 + 21] {
            let mut output = vec![-1.0; len * 3];
            rows(&mut output, 3, |first, rows| {
                for (row, values) in rows.chunks_mut(3).enumerate() {
                    assert!(values.iter().all(|value| *value < 0.0));
                    values.fill(crate::kernels::rounding::float(first + row));
                }
            });
            for (row, values) in output.chunks(3).enumerate() {
                assert!(values.iter().all(|value| *value == crate::kernels::rounding::float(row)));
            }
        }
    }
}
