//! AMD's compiler on each kernel, for chips of three generations: nothing may become worse. Needs Mesa's driver of AMD, and no GPU.
//!
//! `compilers/known/CHIP.txt` has a line for each form of a kernel: the numbers by one version of Mesa. `UPDATE=1` writes them again; the
//! change in the file is what the change of a kernel costs. Another version of Mesa is held to the floors alone.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and says what it ran on")]

#[path = "../../tests/common/needed.rs"]
mod needed;
mod records;

use std::path::{Path, PathBuf};

use manyhands_compilers::chips::Chip;
use manyhands_compilers::mesa::Mesa;
use manyhands_compilers::report::OnChip;
use manyhands_compilers::{Wanted, ask};
use manyhands_engine::kernels::{self, Tile};

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
    floor("dense", Some(Tile::Eights64), [(0.86, 2.0), (0.88, 8.0)]),
    floor("conv2d", Some(Tile::Workgroup64), [(0.83, 3.0), (0.83, 14.0)]),
    floor("conv2d", Some(Tile::Workgroup128), [(0.86, 2.0), (0.88, 8.0)]),
    floor("conv2d", Some(Tile::Eights64), [(0.86, 2.0), (0.88, 8.0)]),
    floor("attention.forward", None, [(0.8, 4.0), (0.8, 16.0)]),
    floor("attention.backward_queries", None, [(0.8, 3.0), (0.8, 12.0)]),
    floor("attention.backward_keys", None, [(0.8, 3.0), (0.8, 10.0)]),
];

/// Kernels below their floor, and forms with registers or arrays in memory.
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
        if let Some(in_memory) = told.in_memory() {
            complaints.push(format!("{}: {}: {in_memory}", found.chip, told.form));
        }
    }
    complaints
}

/// All kernels, or those of `files`, as the system's driver compiles them for a chip.
fn compiled(chip: &str, files: Vec<PathBuf>) -> Option<OnChip> {
    let wanted = Wanted { kernels: String::new(), files, constants: 1, assembly: false };
    let program = Path::new(env!("CARGO_BIN_EXE_manyhands-compilers"));
    let chip = Chip::find(chip).unwrap();
    if chip.driver.find().is_none() {
        needed::missing("Mesa's driver of AMD is needed: `apt-get install mesa-vulkan-drivers`");
        return None;
    }
    Some(ask(program, chip, &Mesa::System, &wanted).unwrap())
}

fn check(chip: &str) {
    let Some(found) = compiled(chip, Vec::new()) else { return };
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

/// Attention's text on RDNA 2 with each of the first texts replaced by the second, where it stands first.
fn changed(changes: &[(&str, &str)]) -> Option<OnChip> {
    let kernel = kernels::all().find(|kernel| kernel.name() == "attention.forward").unwrap();
    let mut text = kernel.wgsl(Tile::Registers);
    for (was, is) in changes {
        assert!(text.contains(was), "{was}");
        text = text.replacen(was, is, 1);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("attention.wgsl");
    std::fs::write(&file, text).unwrap();
    compiled("navi21", vec![file])
}

/// Asserts that a change leads to a complaint.
fn assert_found(changes: &[(&str, &str)], complaint: &str) {
    let Some(found) = changed(changes) else { return };
    let complaints = below_floors(&found).join("\n");
    assert!(complaints.contains(complaint), "{complaints}");
}

const SUMS: &str = "    var sums = before;\n";
const ADDRESS: &str = "let at = k + first;";
const RESULT: &str = "    return sums;\n";

/// 288 numbers that an invocation keeps over the loop.
#[test]
fn a_spill_is_found() {
    let of_all = |line: fn(u32) -> String| (0..72).map(line).collect::<String>();
    let before = of_all(|n| format!("    let kept_{n} = tile_own[lane + {n}u];\n"));
    let after = of_all(|n| format!("    sums.c0 += kept_{n};\n"));
    let changes = [(SUMS, format!("{SUMS}{before}")), (RESULT, format!("{after}{RESULT}"))];
    assert_found(&changes.each_ref().map(|(was, is)| (*was, is.as_str())), "attention.forward: 288 registers spilled");
}

#[test]
fn an_array_in_memory_is_found() {
    let changes = [
        (SUMS, "    var sums = before;\n    var kept: array<vec4<f32>, 17>;\n"),
        ("let b0 = tile_met[at.y];", "let b0 = tile_met[at.y]; kept[k / PITCH] = b0;"),
        (RESULT, "    sums.c0 += kept[lane % ACROSS];\n    return sums;\n"),
    ];
    assert_found(&changes, "attention.forward: 0 registers spilled, 34816 scratch bytes");
}

#[test]
fn an_address_divided_out_in_the_inner_loop_is_found() {
    let address = "let at = k + vec2<u32>(lane / params.heads, lane % params.heads);";
    assert_found(&[(ADDRESS, address)], "attention.backward_keys: 0.77 multiply-adds");
}

/// Nine more instructions for 256 multiply-adds: within the floors, and less than 2 % of the compiler's cycles.
#[test]
fn an_address_multiplied_out_in_the_inner_loop_is_worse_than_the_record() {
    let (Some(as_it_is), Some(longer)) =
        (changed(&[]), changed(&[(ADDRESS, "let at = k / PITCH * params.dim + first;")]))
    else {
        return;
    };
    let record = records::written(&as_it_is);
    assert_eq!(records::worse(&as_it_is, &record), Vec::<String>::new());
    let complaints = records::worse(&longer, &record).join("\n");
    assert!(complaints.contains("attention.forward: "), "{complaints}");
}
