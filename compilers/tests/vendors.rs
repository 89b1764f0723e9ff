//! The newest compilers of Mesa on each kernel, for chips of AMD, Intel and NVIDIA: what a card may be given keeps its numbers in registers.
//! Needs `scripts/setup-compilers`, and no GPU.
//!
//! A card may be given kernels without tiles, and the tiles that fit its vendor. Intel's chips, which have the fewest registers, are held to it
//! with all constants of the cases, but for [`SPILLS`].
//! `compilers/known/CHIP.txt` is as for `floors.rs`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and says what it ran on")]

#[path = "../../tests/common/needed.rs"]
mod needed;
mod records;

use std::path::Path;

use manyhands_compilers::chips::Chip;
use manyhands_compilers::figures::Figure;
use manyhands_compilers::mesa::Mesa;
use manyhands_compilers::report::Told;
use manyhands_compilers::{Wanted, ask};
use manyhands_engine::kernels::{INTEL, Tile};

const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;

/// Forms that spill on Intel's chips.
///
/// - Windows seven wide, of which an invocation has two sums of 28 numbers: with four weights an invocation nothing spills, but AMD's chips take
///   twice the cycles.
/// - Gradients of keys where texts share rows, causal, in windows or with dropout: 9 to 24 registers. Numbers of texts that are read before
///   the sums and kept as bits, or that change the scores before the other product, spill more, and cost a tenth of the cycles without
///   texts.
const SPILLS: [&str; 2] = ["depthwise_conv2d_fours.backward_weights ACROSS=7", "attention.backward_keys DOCUMENTS=1"];

fn check(chip: &str, vendor: u32) {
    let Some(mesa) = Mesa::unpacked() else {
        return needed::missing("the compilers of GPUs are needed: `scripts/setup-compilers`");
    };
    let found = |constants| {
        let wanted = Wanted { kernels: String::new(), files: Vec::new(), constants, assembly: false };
        let program = Path::new(env!("CARGO_BIN_EXE_manyhands-compilers"));
        ask(program, Chip::find(chip).unwrap(), &mesa, &wanted).unwrap()
    };
    let mut complaints = records::compare(&found(1));
    let all = found(if vendor == INTEL { usize::MAX } else { 1 });
    let is_given = |told: &&Told| {
        told.tile.is_none_or(|tile| tile.fits(vendor)) && !SPILLS.iter().any(|form| told.form.starts_with(form))
    };
    let given: Vec<&Told> = all.forms.iter().filter(is_given).collect();
    assert!(given.len() > 50, "{chip}: {} forms that a card is given", given.len());
    for told in given {
        let untold =
            told.figure(Figure::Spilled).is_none().then(|| "the compiler does not tell what it spilled".to_owned());
        complaints.extend(told.in_memory().or(untold).map(|complaint| format!("{chip}: {}: {complaint}", told.form)));
    }
    assert!(
        complaints.is_empty(),
        "{}\n  help: a kernel that is meant to cost more: `UPDATE=1 cargo test --package manyhands-compilers -- --ignored`, and say why in \
         the commit",
        complaints.join("\n")
    );
}

#[test]
fn only_intel_s_chips_lack_registers_for_tiles() {
    let fitting = |vendor| Tile::ALL.into_iter().filter(|tile| tile.fits(vendor)).collect::<Vec<_>>();
    assert_eq!(fitting(INTEL), [Tile::Workgroup32, Tile::Workgroup64, Tile::Halves64]);
    assert_eq!([AMD, NVIDIA].map(fitting), [Tile::ALL, Tile::ALL]);
    assert!([INTEL, AMD, NVIDIA].into_iter().all(|vendor| Tile::OF_CARDS.fits(vendor)));
}

macro_rules! chips {
    ($($test:ident: $chip:literal, $vendor:expr;)*) => {
        $(
            #[test]
            #[ignore = "needs scripts/setup-compilers, and two minutes"]
            fn $test() {
                check($chip, $vendor);
            }
        )*
    };
}

chips! {
    nothing_spills_on_rdna_4: "gfx1201", AMD;
    nothing_spills_on_tiger_lake: "tgl", INTEL;
    nothing_spills_on_alder_lake: "adl", INTEL;
    nothing_spills_on_alchemist: "dg2", INTEL;
    nothing_spills_on_battlemage: "bmg", INTEL;
    nothing_spills_on_turing: "tu102", NVIDIA;
    nothing_spills_on_ampere: "ga102", NVIDIA;
}
