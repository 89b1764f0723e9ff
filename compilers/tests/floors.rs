//! AMD's compiler on each kernel, for chips of three generations: nothing may become worse. Needs Mesa's driver of AMD, and no GPU.
//!
//! `compilers/known/CHIP.txt` has a line for each form of a kernel: the numbers by one version of Mesa. `UPDATE=1` writes them again; the
//! change in the file is what the change of a kernel costs. Another version of Mesa is held to the floors alone.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and says what it ran on")]

#[path = "../../tests/common/needed.rs"]
mod needed;
mod records;

use std::path::Path;

use manyhands_compilers::chips::Chip;
use manyhands_compilers::mesa::Mesa;
use manyhands_compilers::report::OnChip;
use manyhands_compilers::{Wanted, ask};
use manyhands_engine::kernels::Tile;

/// Kernels, a tile of theirs, and the least numbers of each of its forms.
struct Floor {
    kernels: &'static str,
    /// `None` where the kernel has one text.
    tile: Option<Tile>,
    of_gcn: Reach,
    of_rdna: Reach,
}

/// Least numbers of a form on a family of chips.
#[derive(Clone, Copy)]
struct Reach {
    /// Part of the hottest block that is multiply-adds.
    multiply_adds: f64,
    /// Subgroups a SIMD, as the driver counts them: of 10 on GCN, of 32 on RDNA, where one of 64 invocations counts twice.
    subgroups: f64,
}

const fn floor(kernels: &'static str, tile: Option<Tile>, [of_gcn, of_rdna]: [(f64, f64); 2]) -> Floor {
    let [of_gcn, of_rdna] = [
        Reach { multiply_adds: of_gcn.0, subgroups: of_gcn.1 },
        Reach { multiply_adds: of_rdna.0, subgroups: of_rdna.1 },
    ];
    Floor { kernels, tile, of_gcn, of_rdna }
}

/// Products, by the tiles that cards get, and attention. An address that a loop computes, or 8 registers more, fall below.
static FLOORS: &[Floor] = &[
    floor("dense", Some(Tile::Workgroup64), [(0.83, 4.0), (0.83, 16.0)]),
    floor("dense", Some(Tile::Workgroup128), [(0.86, 2.0), (0.88, 8.0)]),
    floor("conv2d", Some(Tile::Workgroup64), [(0.83, 3.0), (0.83, 14.0)]),
    floor("conv2d", Some(Tile::Workgroup128), [(0.86, 2.0), (0.88, 8.0)]),
    floor("attention.forward", None, [(0.8, 4.0), (0.8, 16.0)]),
    floor("attention.backward_queries", None, [(0.8, 3.0), (0.8, 12.0)]),
    floor("attention.backward_keys", None, [(0.8, 3.0), (0.8, 10.0)]),
];

/// Kernels below their floor, and forms with registers in memory.
fn below_floors(found: &OnChip) -> Vec<String> {
    let mut complaints = Vec::new();
    for told in &found.forms {
        let floors = FLOORS.iter().filter(|it| told.kernel.starts_with(it.kernels) && told.tile == it.tile);
        for floor in floors {
            let floor = if found.chip == "polaris10" { floor.of_gcn } else { floor.of_rdna };
            let (part, subgroups) = (told.multiply_adds(), told.subgroups().unwrap_or(0.0));
            if part < floor.multiply_adds || subgroups < floor.subgroups {
                complaints
                    .push(format!("{}: {}: {part:.2} multiply-adds, {subgroups} subgroups", found.chip, told.form));
            }
        }
        if told.spilled() > 0.0 {
            complaints.push(format!("{}: {}: {} registers spilled", found.chip, told.form, told.spilled()));
        }
    }
    complaints
}

fn check(chip: &str) {
    let wanted = Wanted { kernels: String::new(), files: Vec::new(), constants: 1, assembly: false };
    let program = Path::new(env!("CARGO_BIN_EXE_manyhands-compilers"));
    let of_chip = Chip::find(chip).unwrap();
    if of_chip.driver.find().is_none() {
        return needed::missing("Mesa's driver of AMD is needed: `apt-get install mesa-vulkan-drivers`");
    }
    let found = ask(program, of_chip, &Mesa::System, &wanted).unwrap();
    let complaints = [records::compare(&found), below_floors(&found)].concat();
    assert!(
        complaints.is_empty(),
        "{}\n  help: a kernel that is meant to cost more: `UPDATE=1 cargo test --package manyhands-compilers`, and say why in the commit",
        complaints.join("\n")
    );
}

#[test]
fn kernels_cost_no_more_on_gcn_4() {
    check("polaris10");
}

#[test]
fn kernels_cost_no_more_on_rdna_2() {
    check("navi21");
}

#[test]
fn kernels_cost_no_more_on_rdna_3() {
    check("navi31");
}
