//! Some of the positions of each row, taken out of all and put back.

use std::ops::Range;

use crate::kernels::{concatenate as kernel, whole};
use crate::plan::{Grid, Length, Recorder, View, length_word};

/// Some of the positions of each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Positions {
    /// Their places among all.
    pub part: Range<usize>,
    /// Number of all.
    pub all: usize,
}

impl Positions {
    /// All.
    pub fn all(all: usize) -> Self {
        Self { part: 0..all, all }
    }

    /// Whether there are no others.
    pub fn are_all(&self) -> bool {
        self.part.len() == self.all
    }

    /// The part of these positions of `whole [rows, all, width]`: a copy, unless they are all.
    pub fn take(&self, rec: &mut Recorder<'_>, whole: View, width: usize) -> View {
        if self.are_all() {
            return whole;
        }
        let part = rec.scratch("piece", Length::per_row(self.part.len() * width));
        let (params, grid) = self.copy(width);
        rec.dispatch(&kernel::BACKWARD, params, [whole], [part], grid);
        part
    }

    /// Records that `part [rows, positions, width]` goes to the place of these positions in `whole`.
    pub fn put(&self, rec: &mut Recorder<'_>, part: View, whole: View, width: usize) {
        let (params, grid) = self.copy(width);
        rec.dispatch(&kernel::FORWARD, params, [part], [whole], grid);
    }

    fn copy(&self, width: usize) -> (kernel::Record, Grid) {
        let columns = self.part.len() * width;
        let params = kernel::Record {
            rows: length_word(Length::per_row(1)),
            cols: whole(columns),
            total: whole(self.all * width),
            offset: whole(self.part.start * width),
        };
        (params, Grid::Elements(length_word(Length::per_row(columns))))
    }
}
