//! Number of workgroups of a grid, folded to the limits of a dispatch.

use crate::kernels::{Extent, Kernel, Tile};
use crate::plan::{Grid, Scalars};

/// Workgroups that WebGPU promises in one dimension.
pub(super) const MOST_WORKGROUPS: u32 = 65_535;

/// Division of a dispatch into workgroups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// The tile of a product or of attention.
    pub(super) tile: Tile,
    /// Value of an `override` constant.
    pub(super) constant: Option<(&'static str, u32)>,
    /// The part of the grid that it computes.
    pub(super) extent: Extent,
}

impl Cut {
    /// For kernels without tiles.
    pub(super) const NONE: Self = Self { tile: Tile::Registers, constant: None, extent: Extent::Whole };

    /// With a tile that is able to compute the grid.
    pub(super) fn of(tile: Tile, grid: Grid) -> Self {
        Self { tile, constant: tile.constant(grid), extent: Extent::Whole }
    }

    /// For a part of the grid, or all.
    pub(super) fn computing(self, extent: Extent) -> Self {
        Self { extent, ..self }
    }
}

/// Workgroups in x, y and z; any of them may be 0, and then there is nothing to run.
///
/// Items run along x, and from `most` on along y, as `lib/grid.wgsl` counts them; z is the depth of a product.
pub(super) fn workgroups(grid: Grid, kernel: &Kernel, cut: Cut, scalars: &Scalars, most: u32) -> [u32; 3] {
    let (items, depth) = items(grid, kernel, cut, scalars);
    folded(items, depth, most)
}

/// Number of workgroups, and how often each is there: the depth of a product.
fn items(grid: Grid, kernel: &Kernel, cut: Cut, scalars: &Scalars) -> (u32, u32) {
    match grid {
        Grid::Elements(count) => (count.bits(scalars).div_ceil(kernel.workgroup.max(1)), 1),
        Grid::Items(count) => (count.bits(scalars), 1),
        Grid::Tiles { m, n, depth, .. } => {
            let [rows, columns] = cut.tile.size(cut.constant);
            (m.bits(scalars).div_ceil(rows) * n.bits(scalars).div_ceil(columns), depth)
        }
    }
}

fn folded(groups: u32, depth: u32, most: u32) -> [u32; 3] {
    let x = groups.min(most);
    [x, groups.div_ceil(x.max(1)), depth]
}

/// The first workgroup of each of up to `n_parts` parts of a grid, and the workgroups of the part.
pub(super) fn parts(
    (grid, kernel, cut): (Grid, &Kernel, Cut),
    scalars: &Scalars,
    most: u32,
    n_parts: u32,
) -> impl Iterator<Item = (u32, [u32; 3])> {
    let (items, depth) = items(grid, kernel, cut, scalars);
    let length = length_of_part(items, most, n_parts);
    (0..items).step_by(usize::try_from(length).unwrap_or(usize::MAX)).map(move |first| {
        let part = length.min(items - first);
        (first, folded(part, depth, most))
    })
}

/// Workgroups of a part. A folded part has whole rows, but for the last one: behind a row that is not full, workgroups without work
/// would compute the beginning of the next part a second time.
fn length_of_part(items: u32, most: u32, n_parts: u32) -> u32 {
    let length = items.div_ceil(n_parts.max(1)).max(1);
    if length <= most { length } else { length.checked_next_multiple_of(most).unwrap_or(items) }
}

#[cfg(test)]
mod tests {
    use super::{MOST_WORKGROUPS, folded, length_of_part};

    #[test]
    fn a_long_grid_goes_on_along_y() {
        assert_eq!(folded(0, 1, MOST_WORKGROUPS), [0, 0, 1]);
        assert_eq!(folded(65_535, 1, MOST_WORKGROUPS), [65_535, 1, 1]);
        assert_eq!(folded(65_536, 2, MOST_WORKGROUPS), [65_535, 2, 2]);
    }

    #[test]
    fn parts_are_as_long_as_each_other_and_end_with_a_whole_row() {
        let length = |items, n_parts| length_of_part(items, 10, n_parts);
        assert_eq!([length(30, 3), length(31, 4), length(3, 5), length(0, 5), length(7, 0)], [10, 8, 1, 1, 7]);
        assert_eq!([length(31, 3), length(100, 2), length(101, 2), length(u32::MAX, 1)], [20, 50, 60, u32::MAX]);
    }
}
