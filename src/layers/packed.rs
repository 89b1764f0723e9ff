//! Weights of a product: floats, or packed blocks that are unpacked right before the product reads them.

use std::ops::Range;

use crate::kernels::{packed as kernel, whole};
use crate::packed::{BLOCK, BlockAxis, Packing};
use crate::plan::{Grid, Recorder, View, Word};

/// Rows or columns that are unpacked at once: enough to keep a GPU busy, and few beside the whole model, whatever its width. A plan has
/// memory for the most that one product reads.
const MOST: usize = 2048;
/// Floats that are unpacked at once, unless 128 rows or columns have more: 64 MiB.
const MOST_UNPACKED: usize = 1 << 24;
/// Parts begin at a multiple of so many rows or columns, and have no fewer: at a whole block, and where a view of a bias may begin. The
/// CPU's library for products cuts sums otherwise where a result has at most 64 rows and columns.
const STEP: usize = 128;

/// A matrix `[rows, columns]` of weights for products.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    view: View,
    shape: [usize; 2],
    packing: Option<Packing>,
}

impl Weights {
    /// A parameter of the layer.
    pub(super) fn of(rec: &Recorder<'_>, name: &str, shape: [usize; 2]) -> Self {
        Self { view: rec.parameter(name), shape, packing: rec.packing(name) }
    }

    /// The parts of an axis that products take one after the other: all at once, unless their floats are many.
    ///
    /// Each number of a product is the same sum in any of them, since sums go over the other axis.
    pub(super) fn parts(&self, axis: usize) -> Vec<Range<usize>> {
        if self.are_packed() { self.summed_parts(axis) } else { vec![0..self.shape[axis]; 1] }
    }

    /// Whether the weights are packed.
    pub(super) fn are_packed(&self) -> bool {
        self.packing.is_some()
    }

    /// The parts of an axis over which sums go: the same ones for floats, so that packed weights give the same bits.
    pub(super) fn summed_parts(&self, axis: usize) -> Vec<Range<usize>> {
        let (len, across) = (self.shape[axis], self.shape[1 - axis].max(1));
        let most = (MOST_UNPACKED / across / STEP * STEP).clamp(STEP, MOST);
        let count = len.div_ceil(most).max(1);
        let even = len.div_ceil(count).next_multiple_of(STEP).max(STEP);
        // The last takes up what is left.
        let starts = (0..len).step_by(even).filter(|start| *start == 0 || len - start >= STEP);
        let starts: Vec<usize> = starts.collect();
        let ends = starts.iter().skip(1).copied().chain([len]);
        starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
    }

    /// The floats of a part of an axis, `[rows, columns]` without gaps: recorded to be unpacked, if they are packed.
    pub(super) fn floats(&self, rec: &mut Recorder<'_>, axis: usize, part: &Range<usize>) -> View {
        let Some(packing) = self.packing else { return self.view };
        let mut part_of = self.shape.map(|len| 0..len);
        part_of[axis] = part.clone();
        let [rows, columns] = part_of;
        let unpacked = rec.unpacked("unpacked", rows.len() * columns.len());
        let width = whole(columns.len());
        let (lines, values, [line_stride, value_stride]) = match packing.axis {
            BlockAxis::First => (columns, rows, [Word::U32(1), width]),
            BlockAxis::Last => (rows, columns, [width, Word::U32(1)]),
        };
        let record = kernel::Record {
            line_blocks: whole(packing.lines(&self.shape)[1] / BLOCK),
            first_line: whole(lines.start),
            lines: whole(lines.len()),
            first_block: whole(values.start / BLOCK),
            blocks: whole(values.len() / BLOCK),
            line_stride,
            value_stride,
            positions: Word::U32(0),
            vocabulary: Word::U32(1),
        };
        let grid = Grid::Elements(whole(lines.len() * values.len() / BLOCK));
        let dispatch = rec.dispatch(&kernel::UNPACK, record, [self.view], [unpacked], grid);
        dispatch.constants.extend(kernel::constants(packing.format));
        unpacked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::PackedFormat;
    use crate::plan::{BufferId, Length};

    fn parts(shape: [usize; 2], axis: usize, is_packed: bool) -> Vec<Range<usize>> {
        let packing = is_packed.then_some(Packing { format: PackedFormat::Q8_0, axis: BlockAxis::Last });
        let view = View { buffer: BufferId(0), offset: 0, len: Length::fixed(0) };
        Weights { view, shape, packing }.parts(axis)
    }

    #[test]
    fn large_weights_are_unpacked_in_parts() {
        assert_eq!(parts([576, 1536], 1, true), vec![0..1536; 1]);
        assert_eq!(parts([49_152, 576], 0, false), vec![0..49_152; 1]);
        let words = parts([49_152, 576], 0, true);
        assert_eq!((words.len(), words[0].clone(), words.last().unwrap().end), (24, 0..2048, 49_152));
        assert_eq!(parts([49_152, 576], 1, true), [0..256, 256..576]);
        assert_eq!(parts([257, 1 << 20], 0, true), [0..128, 128..257]);
    }
}
