//! Would `tests/kernels/twins.rs` notice a wrong shader? Small errors are put into each one, and its cases must find them.
//!
//! A minute: each mutant is compiled.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that fails may panic, and says what it found")]

use std::ops::Range;
use std::sync::Arc;

use manyhands::extend::Kernel;
use manyhands_engine::adapters::gpu::{Checks, Direct, Launch};
use manyhands_engine::kernels::cases::{Case, compare};
use manyhands_engine::kernels::{self, Tile};
use manyhands_engine::runtime::Native;

use crate::needed;
use crate::twins::FOLD_AT;

/// One operator becomes another, or half a unit is added to what is written: the smallest errors that still compile.
const SWAPS: [(&str, &str); 8] = [
    ("] = ", "] = 0.5 + "),
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " + "),
    (" / ", " * "),
    (" += ", " -= "),
    (" *= ", " += "),
    ("max(", "min("),
];

/// Mutants tried of each kernel; most kernels have fewer.
const MOST: usize = 12;

/// The kernel with one small error: in its entry point's own body, or, where that only calls, in the file. Where a library has
/// the entry point, in the text with its libraries.
fn mutants(kernel: &'static Kernel) -> Vec<&'static Kernel> {
    let whole = kernel.wgsl(Tile::Registers);
    let code = |text: &str| text.find("@group").unwrap_or(0)..text.len();
    let (mut texts, uses) = match kernel.source.find(&format!("fn {}(", kernel.entry)) {
        Some(entry) => {
            let end = kernel.source[entry..].find("\n}").map_or(kernel.source.len(), |len| entry + len);
            (mutants_within(kernel.source, entry..end), kernel.uses)
        }
        None => (mutants_within(&whole, code(&whole)), &[][..]),
    };
    if texts.is_empty() {
        texts = mutants_within(kernel.source, code(kernel.source));
    }
    let every = texts.len().div_ceil(MOST).max(1);
    let kernel_of =
        |text: String| Box::leak(Box::new(Kernel { source: Box::leak(text.into_boxed_str()), uses, ..*kernel }));
    texts.into_iter().step_by(every).map(|text| &*kernel_of(text)).collect()
}

fn mutants_within(source: &str, region: Range<usize>) -> Vec<String> {
    let mut mutants = Vec::new();
    for (from, to) in SWAPS {
        for (at, _) in source.match_indices(from).filter(|(at, _)| region.contains(at)) {
            let line_start = source[..at].rfind('\n').map_or(0, |end| end + 1);
            if !source[line_start..at].contains("//") {
                mutants.push(format!("{}{to}{}", &source[..at], &source[at + from.len()..]));
            }
        }
    }
    mutants
}

fn is_valid(text: &str) -> bool {
    let Ok(module) = naga::front::wgsl::parse_str(text) else { return false };
    // What a text may ask of a device is the matter of `tests/kernels/shaders.rs`.
    let mut validator =
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all());
    validator.validate(&module).is_ok()
}

/// Does any case see a difference? An error of the device counts as seen.
fn is_noticed(device: &mut Direct, mutant: &'static Kernel, cases: &[(Case, Vec<Vec<f32>>)]) -> bool {
    cases.iter().any(|(case, wanted)| {
        let (inputs, outputs) = (case.input_values(), case.output_values());
        let got = pollster::block_on(device.run(Launch::of(mutant, Tile::Registers, case, (&inputs, &outputs))));
        got.map_or(true, |got| compare(mutant, case, &got, wanted).is_err())
    })
}

#[test]
#[ignore = "takes a minute: it tests the tests"]
fn a_small_error_in_any_shader_is_noticed() {
    let infos = needed::gpus();
    let Some(info) = infos.iter().find(|info| info.name.contains("llvmpipe")).or(infos.first()) else { return };
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
        for mutant in mutants(kernel) {
            if !is_valid(&mutant.wgsl(Tile::Registers)) {
                continue;
            }
            // Checked: a mutant may read and write anywhere.
            let mut device =
                pollster::block_on(Direct::open(info, Checks::Checked, Arc::new(Native))).unwrap().fold_at(FOLD_AT);
            tried += 1;
            seen += usize::from(is_noticed(&mut device, mutant, &cases));
        }
        noticed += seen;
        println!("{kernel:?}: {seen} mutants noticed");
        if seen == 0 {
            missed.push(kernel.name());
        }
    }
    // Not every swap is an error: an offset may be 0 in all uses, and a bound may be looser than it need be.
    println!("{noticed} of {tried} mutants were noticed");
    assert!(missed.is_empty(), "no error was noticed in {missed:?}: give them cases that tell");
}
