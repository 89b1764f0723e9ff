//! The newest compilers of Mesa on each kernel, for chips of AMD, Intel and NVIDIA: what a card may be given keeps its numbers in registers.
//! Needs `scripts/setup-compilers`, and no GPU.
//!
//! An Intel chip is held to the tile that cards get before tuning, and to kernels without tiles: the trial of a tile that spills loses by
//! its time. `compilers/known/CHIP.txt` is as for `floors.rs`.

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
use manyhands_engine::kernels::Tile;

fn check(chip: &str, is_given: fn(&Told) -> bool) {
    let Some(mesa) = Mesa::unpacked() else {
        return needed::missing("the compilers of GPUs are needed: `scripts/setup-compilers`");
    };
    let wanted = Wanted { kernels: String::new(), files: Vec::new(), constants: 1, assembly: false };
    let program = Path::new(env!("CARGO_BIN_EXE_manyhands-compilers"));
    let found = ask(program, Chip::find(chip).unwrap(), &mesa, &wanted).unwrap();
    let mut complaints = records::compare(&found);
    let given: Vec<&Told> = found.forms.iter().filter(|told| is_given(told)).collect();
    assert!(given.len() > 50, "{chip}: {} forms that a card is given", given.len());
    for told in given {
        let untold = told.figure(Figure::Spilled).is_none().then(|| "the compiler does not tell what it spilled".to_owned());
        complaints.extend(told.in_memory().or(untold).map(|complaint| format!("{chip}: {}: {complaint}", told.form)));
    }
    assert!(
        complaints.is_empty(),
        "{}\n  help: a kernel that is meant to cost more: `UPDATE=1 cargo test --package manyhands-compilers -- --ignored`, and say why in \
         the commit",
        complaints.join("\n")
    );
}

/// Forms that a card may be given before tuning.
fn before_tuning(told: &Told) -> bool {
    told.tile.is_none_or(|tile| tile == Tile::OF_CARDS)
}

macro_rules! chips {
    ($($test:ident: $chip:literal, $is_given:expr;)*) => {
        $(
            #[test]
            #[ignore = "needs scripts/setup-compilers, and a minute"]
            fn $test() {
                check($chip, $is_given);
            }
        )*
    };
}

chips! {
    nothing_spills_on_rdna_4: "gfx1201", |_| true;
    nothing_spills_on_tiger_lake: "tgl", before_tuning;
    nothing_spills_on_alder_lake: "adl", before_tuning;
    nothing_spills_on_alchemist: "dg2", before_tuning;
    nothing_spills_on_battlemage: "bmg", before_tuning;
    nothing_spills_on_turing: "tu102", |_| true;
    nothing_spills_on_ampere: "ga102", |_| true;
}
