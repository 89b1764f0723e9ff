//! Does every kernel give what its twin gives, on every adapter present, and touch nothing else?
//!
//! Each case runs unchecked, where the kernel has tiles with two: the one from registers, and another in turn (with all in the full tier);
//! one in four runs checked. Filler stands behind each buffer: a value read there spoils the result, a value written there is found. A missing adapter of
//! `MANYHANDS_EXPECT_ADAPTERS` (name parts, with commas) is a failure. `MANYHANDS_KERNEL=reduce` tests only kernels with
//! that in their name.

#![cfg(feature = "gpu")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stands outside the engine: it prints, panics and starts threads"
)]

use std::sync::{Arc, OnceLock};

use manyhands::adapters::Info;
use manyhands::extend::Kernel;
use manyhands_engine::adapters::gpu::{Checks, Direct, Launch};
use manyhands_engine::kernels::cases::{Case, compare};
use manyhands_engine::kernels::product::is_of_halves;
use manyhands_engine::kernels::{self, Tile};
use manyhands_engine::runtime::Native;

use crate::needed;

/// Stands behind every buffer. As an input it would spoil any sum; no kernel writes it.
const FILLER: f32 = -7.5e30;
const FILLERS: usize = 67;
/// Cases of a kernel from one that runs with wgpu's checks to the next.
const CHECKED_EVERY: usize = 4;
/// Workgroups from which a grid is folded: few, since barriers of many workgroups take long on the CPU.
pub const FOLD_AT: u32 = 1_000;

/// The tiles with which a case runs.
#[derive(Clone, Copy, PartialEq)]
enum Tiles {
    All,
    InTurn,
}

struct Job {
    idx: usize,
    kernel: &'static Kernel,
    case: Case,
    twin: OnceLock<Vec<Vec<f32>>>,
}

impl Job {
    /// Two where wgpu adds its checks, as only who asks for them gets them, and there for one case in four. One, in turn, for each
    /// activation of the result and where factors are rounded, beside the tiles that are for these alone: drivers are slow to compile them.
    fn tiles(&self, checks: Checks, tiles: Tiles) -> Vec<Tile> {
        if checks == Checks::Checked && !self.idx.is_multiple_of(CHECKED_EVERY) {
            return Vec::new();
        }
        let is_wanted = |tile: &Tile| match checks {
            Checks::Checked => matches!(tile, Tile::Registers | Tile::Workgroup64),
            Checks::Unchecked => true,
        };
        let able =
            self.kernel.tiles().iter().copied().filter(|tile| tile.is_able(self.case.grid, &self.case.constants));
        let able: Vec<Tile> = able.filter(is_wanted).collect();
        if able.is_empty() || tiles == Tiles::All {
            return able;
        }
        let in_turn = able[self.idx % able.len()];
        let is_activated = self.case.constants.iter().any(|(name, code)| *name == "ACTIVATION" && *code != 0.0);
        let is_alone = is_activated || is_of_halves(&self.case.constants);
        let is_chosen = |tile: &Tile| *tile == in_turn || tile.is_of_halves() || *tile == Tile::Registers && !is_alone;
        able.into_iter().filter(is_chosen).collect()
    }

    fn check(&self, device: &mut Direct, tile: Tile) -> Result<(), String> {
        let name = format!("{:?}, {}", self.kernel, self.case.label);
        let (inputs, outputs) = (guarded(self.case.input_values()), guarded(self.case.output_values()));
        let launch = Launch::of(self.kernel, tile, &self.case, (&inputs, &outputs));
        let mut got = pollster::block_on(device.run(launch)).map_err(|error| format!("{name}: {error}"))?;
        for (values, fill) in got.iter_mut().zip(&self.case.outputs) {
            let behind = values.split_off(fill.len());
            if let Some(at) = behind.iter().position(|value| value.to_bits() != FILLER.to_bits()) {
                return Err(format!("{name}: wrote {} at {at} past the end of {}", behind[at], fill.len()));
            }
        }
        compare(self.kernel, &self.case, &got, self.twin.get_or_init(|| self.case.run(self.kernel.twin)))
    }
}

fn guarded(buffers: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let guard = |mut values: Vec<f32>| {
        values.resize(values.len() + FILLERS, FILLER);
        values
    };
    buffers.into_iter().map(guard).collect()
}

/// What one adapter did: cases run, and what was wrong with them.
fn check_adapter(info: &Info, jobs: &[Job], tiles: Tiles) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    for checks in [Checks::Checked, Checks::Unchecked] {
        let mut device = pollster::block_on(Direct::open(info, checks, Arc::new(Native))).unwrap().fold_at(FOLD_AT);
        for job in jobs {
            let mut tiles = job.tiles(checks, tiles);
            tiles.retain(|tile| device.is_able(*tile));
            for tile in tiles {
                count += 1;
                let place = format!("`{}` {checks:?} {tile:?}", info.name);
                wrong.extend(job.check(&mut device, tile).err().map(|error| format!("{place}: {error}")));
            }
        }
    }
    (count, wrong)
}

fn jobs() -> Vec<Job> {
    let part = std::env::var("MANYHANDS_KERNEL").unwrap_or_default();
    let kernels = kernels::all().filter(|kernel| kernel.name().contains(&part));
    let jobs = |kernel: &'static Kernel| {
        (kernel.cases)().into_iter().enumerate().map(move |(idx, case)| Job {
            idx,
            kernel,
            case,
            twin: OnceLock::new(),
        })
    };
    kernels.flat_map(jobs).collect()
}

#[test]
fn every_kernel_agrees_with_its_twin_on_every_adapter() {
    check(Tiles::InTurn);
}

#[test]
#[ignore = "slow: four minutes"]
fn every_kernel_agrees_with_its_twin_with_every_tile() {
    check(Tiles::All);
}

fn check(tiles: Tiles) {
    let (adapters, jobs) = (needed::gpus(), &jobs());
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        // Module creation recurses deeply in some drivers.
        let start = |info| {
            let thread = std::thread::Builder::new().stack_size(8 << 20);
            thread.spawn_scoped(scope, move || check_adapter(info, jobs, tiles)).unwrap()
        };
        let threads: Vec<_> = adapters.iter().map(|info| (info, start(info))).collect();
        for (info, thread) in threads {
            let (count, found) = thread.join().unwrap();
            println!("`{}` ({}): {count} cases, {} wrong", info.name, info.backend, found.len());
            wrong.extend(found);
        }
    });
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}
