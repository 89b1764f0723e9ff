//! Does every shader compile in Chromium, the strictest reader of WGSL?
//!
//! `scripts/chromium-shaders` drives the browser. Where `MANYHANDS_CHROMIUM` or `CI` is set, a missing browser is
//! a failure; elsewhere what did not run is said.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use manyhands::extend::Kernel;
use manyhands_engine::kernels::{self, Extent, Tile};

use crate::needed;

type AnyError = Box<dyn std::error::Error>;

/// What the script's exit status means.
#[derive(Debug, PartialEq)]
enum Verdict {
    Compiles,
    Refused(String),
    NotRun(String),
}

fn judge(folder: &Path) -> Result<Verdict, AnyError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Output { status, stdout, stderr } =
        match Command::new(root.join("scripts/chromium-shaders")).arg(folder).output() {
            Ok(output) => output,
            Err(error) => return Ok(Verdict::NotRun(format!("`scripts/chromium-shaders` does not start: {error}"))),
        };
    let said = format!("{}{}", String::from_utf8(stderr)?, String::from_utf8(stdout)?);
    Ok(match status.code() {
        Some(0) => Verdict::Compiles,
        Some(1) => Verdict::Refused(said),
        _ => Verdict::NotRun(said),
    })
}

/// The kernels of each distinct text, with their tiles: entry points of one file share it, and so do some tiles.
fn texts() -> BTreeMap<String, Vec<(&'static Kernel, Tile)>> {
    let mut texts: BTreeMap<_, Vec<(&'static Kernel, Tile)>> = BTreeMap::new();
    for kernel in kernels::all() {
        // A page asks for no features: no browser ever sees the tiles that need one.
        for tile in kernel.tiles().iter().copied().filter(|tile| !tile.is_of_halves()) {
            texts.entry(kernel.wgsl(tile)).or_default().push((kernel, tile));
            if kernel.may_run_in_parts() {
                texts.entry(kernel.wgsl_for(tile, Extent::Part)).or_default().push((kernel, tile));
            }
        }
    }
    texts
}

/// Sets of constants with which a kernel becomes pipelines.
#[derive(Clone, Copy)]
enum Sets {
    /// Those of each case.
    All,
    /// The one with most constants.
    Largest,
}

/// The pipelines that plans make of these kernels in these tiles, as far as their cases show.
fn pipelines(sharing: &[(&Kernel, Tile)], tiles: &[Tile], sets: Sets) -> Vec<serde_json::Value> {
    let mut pipelines = Vec::new();
    for (kernel, tile) in sharing.iter().filter(|(_, tile)| tiles.contains(tile)) {
        let mut cases = (kernel.cases)();
        if matches!(sets, Sets::Largest) {
            cases.sort_by_key(|case| std::cmp::Reverse(case.constants.len()));
            cases.truncate(1);
        }
        for case in cases {
            let of_tile = tile.constant(case.grid).filter(|_| kernel.is_tiled());
            let of_tile = of_tile.map(|(name, value)| (name, f64::from(value)));
            let constants: BTreeMap<_, _> = case.constants.into_iter().chain(of_tile).collect();
            let pipeline = serde_json::json!({ "entry": kernel.entry, "constants": constants });
            if !pipelines.contains(&pipeline) {
                pipelines.push(pipeline);
            }
        }
    }
    pipelines
}

fn write_shaders(folder: &Path, tiles: &[Tile], sets: Sets) -> Result<(), AnyError> {
    for (index, (text, sharing)) in texts().into_iter().enumerate() {
        // One file has several texts where the tiles of a matrix product differ.
        let name = format!("{}.{index}", sharing[0].0.stem);
        std::fs::write(folder.join(format!("{name}.wgsl")), text)?;
        std::fs::write(folder.join(format!("{name}.json")), serde_json::to_string(&pipelines(&sharing, tiles, sets))?)?;
    }
    Ok(())
}

/// naga takes this; Tint does not: lanes may disagree on whether they meet the barrier.
const REFUSED: &str = "
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn forward(@builtin(local_invocation_index) lane: u32) {
    if y[lane] > 0.0 { workgroupBarrier(); }
    y[lane] = 1.0;
}
";

/// Can the check be made here, and does it find what is wrong?
fn can_judge() -> Result<bool, AnyError> {
    let wrong = tempfile::tempdir()?;
    std::fs::write(wrong.path().join("divergent.wgsl"), REFUSED)?;
    match judge(wrong.path())? {
        Verdict::Refused(said) => assert!(said.contains("uniform control flow"), "{said}"),
        Verdict::Compiles => panic!("a barrier that lanes can disagree on was not refused: the check checks nothing"),
        Verdict::NotRun(why) => {
            // Who names a Chromium has one.
            assert!(std::env::var_os("MANYHANDS_CHROMIUM").is_none(), "{why}");
            needed::missing(&format!(
                "shaders were not compiled in Chromium
{why}"
            ));
            return Ok(false);
        }
    }
    Ok(true)
}

/// Every text, and pipelines of those of these tiles.
fn check(tiles: &[Tile], sets: Sets) -> Result<(), AnyError> {
    if can_judge()? {
        let folder = tempfile::tempdir()?;
        write_shaders(folder.path(), tiles, sets)?;
        assert_eq!(judge(folder.path())?, Verdict::Compiles);
    }
    Ok(())
}

#[test]
fn every_shader_compiles_in_chromium() -> Result<(), AnyError> {
    check(&[Tile::Registers, Tile::Workgroup64], Sets::Largest)
}

#[test]
#[ignore = "takes minutes: SwiftShader compiles large tiles slowly"]
fn every_pipeline_is_built_in_chromium() -> Result<(), AnyError> {
    check(&Tile::ALL, Sets::All)
}
