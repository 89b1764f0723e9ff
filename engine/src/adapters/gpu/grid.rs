//! Number of workgroups of a grid, folded to the limits of a dispatch.

use crate::kernels::{Kernel, Tile};
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
}

impl Cut {
    /// For kernels without tiles.
    pub(super) const NONE: Self = Self { tile: Tile::Registers, constant: None };

    /// With a tile that is able to compute the grid.
    pub(super) fn of(tile: Tile, grid: Grid) -> Self {
        Self { tile, constant: tile.constant(grid) }
    }
}

/// Workgroups in x, y and z; any of them may be 0, and then there is nothing to run.
///
/// Items run along x, and from `most` on along y, as `lib/grid.wgsl` counts them; z is the depth of a product.
pub(super) fn workgroups(grid: Grid, kernel: &Kernel, tile: Tile, scalars: &Scalars, most: u32) -> [u32; 3] {
    match grid {
        Grid::Elements(count) => folded(count.bits(scalars).div_ceil(kernel.workgroup.max(1)), 1, most),
        Grid::Items(count) => folded(count.bits(scalars), 1, most),
        Grid::Tiles { m, n, depth, .. } => {
            let [rows, columns] = tile.size(grid);
            folded(m.bits(scalars).div_ceil(rows) * n.bits(scalars).div_ceil(columns), depth, most)
        }
    }
}

fn folded(groups: u32, depth: u32, most: u32) -> [u32; 3] {
    let x = groups.min(most);
    [x, groups.div_ceil(x.max(1)), depth]
}

#[cfg(test)]
mod tests {
    use super::{MOST_WORKGROUPS, folded};

    #[test]
    fn a_long_grid_goes_on_along_y() {
        assert_eq!(folded(0, 1, MOST_WORKGROUPS), [0, 0, 1]);
        assert_eq!(folded(65_535, 1, MOST_WORKGROUPS), [65_535, 1, 1]);
        assert_eq!(folded(65_536, 2, MOST_WORKGROUPS), [65_535, 2, 2]);
    }
}
