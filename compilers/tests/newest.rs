//! Kernels agree with their twins on the newest llvmpipe, which `scripts/setup-compilers` brings: a newer Mesa than most systems have, with
//! the passes that AMD's and Intel's drivers share, and the one driver on a CPU that has cooperative matrices.
//!
//! A driver belongs to a process, so the test runs itself again, by the loader and with the libraries of that driver.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stands outside the engine: it panics, and says what it ran on"
)]

#[path = "../../tests/common/needed.rs"]
mod needed;

use std::sync::Arc;

use manyhands_compilers::chips::CPU;
use manyhands_compilers::mesa::Mesa;
use manyhands_engine::adapters::gpu::{Checks, Direct, Launch};
use manyhands_engine::kernels::cases::{Case, compare};
use manyhands_engine::kernels::{self, Kernel, Tile};
use manyhands_engine::runtime::Native;

/// Set for the inner run.
const INNER: &str = "MANYHANDS_TEST_INNER";

/// Tiles of texts that differ, those of matrices among them.
const TILES: [Tile; 4] = [Tile::Registers, Tile::Workgroup64, Tile::Halves64, Tile::Matrices8];

#[test]
#[ignore = "needs scripts/setup-compilers, and two minutes"]
fn kernels_agree_with_their_twins_on_the_newest_llvmpipe() {
    let Some(mesa) = Mesa::unpacked() else {
        return needed::missing("the newest llvmpipe is needed: `scripts/setup-compilers`");
    };
    let mut command = mesa.command(&std::env::current_exe().unwrap(), &CPU, CPU.values[0]).unwrap();
    let output = command.env(INNER, "1").args(["--exact", "inner", "--ignored", "--nocapture"]).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    for tile in TILES {
        let n_cases = cases(tile).count();
        assert!(n_cases > 10 && text.contains(&agreeing(tile, n_cases)), "{tile:?}, {n_cases} cases: {text}");
    }
    print!("{text}");
}

/// The line of the inner run about a tile.
fn agreeing(tile: Tile, n_cases: usize) -> String {
    format!("{tile:?}: {n_cases} cases agree")
}

/// The cases that a tile computes; what has no tiles counts as of the first.
fn cases(tile: Tile) -> impl Iterator<Item = (&'static Kernel, Case)> {
    let kernels = kernels::all().filter(move |kernel| kernel.tiles().contains(&tile));
    let cases = kernels.flat_map(|kernel| (kernel.cases)().into_iter().map(move |case| (kernel, case)));
    cases.filter(move |(kernel, case)| !kernel.is_tiled() || tile.is_able(case.grid, &case.constants))
}

/// Runs by the other test alone, where the driver is.
#[test]
#[ignore = "the other test runs it, with another driver"]
fn inner() {
    if std::env::var_os(INNER).is_none() {
        return;
    }
    let info = manyhands::adapters::list().into_iter().find(|info| info.name.contains("llvmpipe")).unwrap();
    println!("`{}`, {}", info.name, info.driver);
    let mut device = pollster::block_on(Direct::open(&info, Checks::Unchecked, Arc::new(Native))).unwrap();
    for tile in TILES {
        assert!(device.is_able(tile), "{tile:?}");
        let mut n_cases = 0;
        for (kernel, case) in cases(tile) {
            let (inputs, outputs) = (case.input_values(), case.output_values());
            let launch = Launch::of(kernel, tile, &case, (&inputs, &outputs));
            let got = pollster::block_on(device.run(launch)).unwrap();
            compare(kernel, &case, &got, &case.run(kernel.twin)).unwrap();
            n_cases += 1;
        }
        println!("{}", agreeing(tile, n_cases));
    }
}
