//! Time of a plan on a simulated adapter, from peaks of its data sheet and from what compilers make of the kernels.
//!
//! A dispatch takes the longer of two times, and a fixed one:
//!
//! ```text
//! ms = max(operations / gflops / reached part, bytes / memory_gb_s) + dispatch_us
//! ```
//!
//! Only products, convolutions and attention have operations that count; all other kernels take the time of their bytes. The reached part
//! is that of the tile that is fastest for the dispatch, since tuning finds it: a tile's share of multiply-adds beside that of the large
//! tile, times the part of the compute units that get a tile.

use super::cards::{Card, Vendor};
use crate::plan::{Command, Dispatch, Grid, Pass, Plan, Scalars, Work};
use crate::size::F32_BYTES;
use manyhands_engine::kernels::{INTEL, Tile, attention};

/// Tiles of products with their edge, and the part of the innermost loop's instructions that are multiply-adds: the mean of dense layers
/// (91, 81 and 83 %) and convolutions (89, 77 and 83 %). Source: AMD's compiler ACO of Mesa 25.0 for navi31, as `manyhands-compilers`
/// runs it. `Eights64` is left out: an H200 took as long with it as with `Workgroup64`.
const TILES: [(Tile, f64, f64); 3] =
    [(Tile::Workgroup128, 128.0, 0.90), (Tile::Workgroup64, 64.0, 0.79), (Tile::Workgroup32, 32.0, 0.83)];
/// Multiply-adds among the instructions of attention's innermost loop, forward and backward. Source: as for tiles.
const ATTENTION: f64 = 0.64;
/// Part of the memory's peak that kernels reach. Ours, an estimate.
const BANDWIDTH: f64 = 0.75;
/// Part of the slot's rate that transfers reach, with the copy into memory that the card can read. Ours, an estimate.
const LINK: f64 = 0.5;
/// Rate of that copy at most, in 10⁹ bytes a second, whatever the slot. Measured by `doctor` on an H100 in a slot of 63.
const COPY_GB_S: f64 = 9.0;
/// Bytes of a lane of PCI Express 1.0, in 10⁹ a second, before it doubles with each generation from 3 on: 0.985 in generation 3.
/// Source: 8 GT/s with 128b/130b encoding.
const LANE_GB_S: f64 = 0.985;
/// Milliseconds of a run whatever it computes: submission, and the host's wait for the end. Measured on an H100 under Linux.
pub(super) const RUN_MS: f64 = 0.05;
/// Microseconds between the end of a dispatch and the start of the next one, which reads its results. Ours, an estimate.
const DISPATCH_US: f64 = 5.0;
/// Milliseconds of a transfer whatever its bytes. Measured by `doctor` on an H100 under Linux.
pub(super) const LATENCY_MS: f64 = 0.05;

/// Rates at which an adapter computes; what has none counts nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// Arithmetic that large products reach, in 10⁹ operations a second.
    pub gflops: Option<f64>,
    /// Bytes that kernels read and write, in 10⁹ a second.
    pub memory_gb_s: Option<f64>,
    /// Microseconds of each kernel whatever it computes.
    pub dispatch_us: f64,
    /// The card, if it is known: its compute units and tiles.
    pub card: Option<&'static Card>,
}

impl Rates {
    /// Rates modelled from the data sheet of a card.
    ///
    /// Pairs of operations that RDNA 3 and later can issue count once: compilers pair none in our kernels, whose subgroups have 64 lanes.
    pub fn of(card: &'static Card) -> Self {
        let peak_gflops = f64::from(card.lanes) * 2.0 * f64::from(card.boost_mhz) / 1e3;
        Self {
            gflops: Some(best(&tiles(card)) * peak_gflops),
            memory_gb_s: Some(BANDWIDTH * card.memory_gb_s),
            dispatch_us: DISPATCH_US,
            card: Some(card),
        }
    }

    /// Milliseconds of a pass's dispatches, whose rows run at once.
    pub fn pass_ms(&self, plan: &Plan, pass: Pass, rows: u32) -> f64 {
        let scalars = Scalars { rows, batch_rows: rows, is_first: 1, is_last: 1, ..Scalars::default() };
        let ms = |command: &Command| match command {
            Command::Dispatch(dispatch) => self.dispatch_ms(dispatch, &scalars),
            Command::Exchange(_) => 0.0,
        };
        plan.commands(pass).iter().map(ms).sum()
    }

    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    fn dispatch_ms(&self, dispatch: &Dispatch, scalars: &Scalars) -> f64 {
        if dispatch.grid.is_empty(scalars) {
            return 0.0;
        }
        let flops = Work::of_dispatch(dispatch, scalars).flops;
        let views = dispatch.inputs.iter().chain(&dispatch.outputs);
        let bytes: u64 = views.map(|view| view.len.at(scalars.rows) * F32_BYTES).sum();
        let computing_ms = self.gflops.map_or(0.0, |gflops| flops / (gflops * 1e6 * self.reached(dispatch, scalars)));
        let memory_ms = self.memory_gb_s.map_or(0.0, |gb_s| bytes as f64 / (gb_s * 1e6));
        computing_ms.max(memory_ms) + self.dispatch_us / 1e3
    }

    /// Part of `gflops` that a dispatch reaches: less if no tile fills all compute units of a card.
    fn reached(&self, dispatch: &Dispatch, scalars: &Scalars) -> f64 {
        let tiles = self.card.map_or_else(|| TILES.to_vec(), tiles);
        if dispatch.kernel.stem == attention::FORWARD.stem {
            return ATTENTION / best(&tiles);
        }
        let (Some(card), Grid::Tiles { m, n, depth, .. }) = (self.card, dispatch.grid) else { return 1.0 };
        let (m, n) = (f64::from(m.bits(scalars)), f64::from(n.bits(scalars)));
        let reached = |(_, edge, share): &(Tile, f64, f64)| {
            let whole = (m / edge).ceil() * (n / edge).ceil() * f64::from(depth);
            // Of a tile on the border only a part is asked for, and in the last round some units idle.
            let asked = m * n * f64::from(depth) / (edge * edge);
            let units = f64::from(card.units);
            share * asked / ((whole / units).ceil() * units)
        };
        tiles.iter().map(reached).fold(0.0, f64::max) / best(&tiles)
    }
}

/// Rate of transfers each way, in 10⁹ bytes a second. A unit within a processor copies within one memory: there and back.
pub(super) fn link_gb_s(card: &Card) -> f64 {
    let lanes_gb_s = |(generation, lanes): (u32, u32)| {
        LANE_GB_S * f64::from(2_u32.pow(generation.saturating_sub(3))) * f64::from(lanes)
    };
    let slot_gb_s = card.slot.map(|slot| (LINK * lanes_gb_s(slot)).min(COPY_GB_S));
    slot_gb_s.unwrap_or(LINK * card.memory_gb_s / 2.0)
}

/// The tiles that a card may get: none that spills registers, and not the large one of Apple's, whose compiler was not tried.
fn tiles(card: &Card) -> Vec<(Tile, f64, f64)> {
    // Others have room for all tiles, whatever their id.
    let id = if card.vendor == Vendor::Intel { INTEL } else { 0 };
    let is_tried = |tile: Tile| card.vendor != Vendor::Apple || tile != Tile::Workgroup128;
    TILES.into_iter().filter(|(tile, ..)| tile.fits(id) && is_tried(*tile)).collect()
}

fn best(tiles: &[(Tile, f64, f64)]) -> f64 {
    tiles.iter().map(|(_, _, share)| *share).fold(0.0, f64::max)
}
