//! Would `tests/kernels.rs` notice a wrong shader? Small errors are put into each one, and its cases must find them.
//!
//! `cargo test --test mutations -- --ignored`: minutes, since each mutant is compiled.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that fails may panic, and says what it found")]

use std::sync::Arc;

use manyhands::adapters::gpu::{Checks, Direct, Launch};
use manyhands::adapters::{Info, Kind, list};
use manyhands::kernels::cases::{Case, compare};
use manyhands::kernels::{self, Kernel, Tile};
use manyhands::runtime::Native;

/// One operator becomes another: the smallest error that still compiles.
const SWAPS: [(&str, &str); 6] =
    [(" + ", " - "), (" - ", " + "), (" * ", " + "), (" / ", " * "), (" += ", " -= "), ("max(", "min(")];

/// Mutants tried of each kernel; most kernels have fewer.
const MOST: usize = 12;

/// The kernel's own text from its `fn entry` on, with one operator changed; not what only other entry points run.
fn mutants(kernel: &'static Kernel) -> Vec<String> {
    let code_start = kernel.source.find("@group").unwrap_or(0);
    let mut mutants = Vec::new();
    for (from, to) in SWAPS {
        for (at, _) in kernel.source.match_indices(from).filter(|(at, _)| *at > code_start) {
            let line_start = kernel.source[..at].rfind('\n').map_or(0, |end| end + 1);
            if !kernel.source[line_start..at].contains("//") {
                mutants.push(format!("{}{to}{}", &kernel.source[..at], &kernel.source[at + from.len()..]));
            }
        }
    }
    // Spread over the file: entry points stand one after the other.
    let every = mutants.len().div_ceil(MOST).max(1);
    mutants.into_iter().step_by(every).collect()
}

fn is_valid(text: &str) -> bool {
    let Ok(module) = naga::front::wgsl::parse_str(text) else { return false };
    let mut validator =
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::empty());
    validator.validate(&module).is_ok()
}

/// Does any case see a difference? An error of the device counts as seen.
fn is_noticed(device: &mut Direct, mutant: &'static Kernel, cases: &[(Case, Vec<Vec<f32>>)]) -> bool {
    cases.iter().any(|(case, wanted)| {
        let launch = Launch {
            kernel: mutant,
            tile: Tile::Registers,
            params: &case.params,
            constants: &case.constants,
            grid: case.grid,
            inputs: &case.input_values(),
            outputs: &case.output_values(),
        };
        let got = pollster::block_on(device.run(launch));
        got.map_or(true, |got| compare(mutant, case, &got, wanted).is_err())
    })
}

#[test]
#[ignore = "compiles hundreds of mutants"]
fn a_small_error_in_any_shader_is_noticed() {
    let infos: Vec<Info> = pollster::block_on(list()).into_iter().filter(|info| info.kind != Kind::Cpu).collect();
    let Some(info) = infos.iter().find(|info| info.name.contains("llvmpipe")).or(infos.first()) else {
        println!("NOT RUN: no GPU or software adapter here");
        return;
    };
    let (mut missed, mut tried, mut noticed) = (Vec::new(), 0, 0);
    for kernel in kernels::all() {
        let cases = (kernel.cases)()
            .into_iter()
            .filter(|case| case.output_values().iter().map(Vec::len).sum::<usize>() < 1 << 18);
        let cases: Vec<(Case, Vec<Vec<f32>>)> = cases
            .map(|case| {
                let wanted = case.run(kernel.twin);
                (case, wanted)
            })
            .collect();
        let mut seen = 0;
        for source in mutants(kernel) {
            let mutant: &'static Kernel =
                Box::leak(Box::new(Kernel { source: Box::leak(source.into_boxed_str()), ..*kernel }));
            if !is_valid(&mutant.wgsl(Tile::Registers)) {
                continue;
            }
            // Checked: a mutant may read and write anywhere.
            let mut device = pollster::block_on(Direct::open(info, Checks::Checked, Arc::new(Native))).unwrap();
            tried += 1;
            seen += usize::from(is_noticed(&mut device, mutant, &cases));
        }
        noticed += seen;
        println!("{kernel:?}: {seen} mutants noticed");
        if seen == 0 && !mutants(kernel).is_empty() {
            missed.push(kernel.name());
        }
    }
    println!("{noticed} of {tried} mutants were noticed; the rest change other entry points of the same file");
    assert!(missed.is_empty(), "no error was noticed in {missed:?}: give them cases that tell");
}
