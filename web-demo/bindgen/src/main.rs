//! `web-bindgen [--later LIST | --calls] INPUT.wasm FOLDER`: the JavaScript that a wasm file is called through, and that file in two parts.
//!
//! A program of its own, so that `cargo xtask` stays quick to build for those who build no page.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use walrus::ModuleConfig;
use wasm_bindgen_cli_support::Bindgen;

mod calls;
mod split;

/// Writes the JavaScript that a wasm file is called through.
#[derive(Parser)]
struct Arguments {
    /// The wasm file, as the compiler wrote it.
    input: PathBuf,
    /// A folder for the files.
    folder: PathBuf,
    /// A file with hashes of functions' names, one a line (`web-demo/later.txt`). These functions go into a second wasm file, which
    /// JavaScript loads at the latest when one of them is called.
    #[arg(long, conflicts_with = "calls")]
    later: Option<PathBuf>,
    /// For `web-demo/bench/later.js`: each function has an exported global that a call sets to 1.
    #[arg(long)]
    calls: bool,
}

/// The line in which the JavaScript makes all that the wasm imports; and that line with what loads the second file.
const IMPORTS: [&str; 2] = [
    "const imports = __wbg_get_imports();",
    "const imports = { ...__wbg_get_imports(), later: { load: () => globalThis.linkLater(wasm) } };",
];

fn main() -> Result<()> {
    let Arguments { input, folder, later, calls } = Arguments::parse();
    let mut bindgen = Bindgen::new();
    bindgen.input_path(&input).web(true)?.typescript(false).remove_producers_section(true);
    // Names tell which functions are meant.
    bindgen.remove_name_section(later.is_none() && !calls);
    let mut output = bindgen.generate_output()?;
    output.emit(&folder)?;
    let stem = input.file_stem().context("needs a wasm file")?.to_string_lossy();
    let (first, script) = (folder.join(format!("{stem}_bg.wasm")), folder.join(format!("{stem}.js")));
    let mut config = ModuleConfig::new();
    config.generate_name_section(false).generate_producers_section(false);
    let bytes = fs::read(&first)?;
    if calls {
        let mut module = config.parse(&bytes)?;
        calls::note(&mut module);
        return write(&first, &module.emit_wasm());
    }
    let Some(later) = later else { return Ok(()) };
    let list = read(&later)?;
    let hashes: HashSet<&str> = list.lines().collect();
    let table = format!("later-{}", calls::hash(&bytes));
    let mut parts = split::split([config.parse(&bytes)?, config.parse(&bytes)?], &hashes, &table)?;
    eprintln!("{} of the {} functions of {} were found", parts.n_moved, hashes.len(), later.display());
    write(&first, &parts.first.emit_wasm())?;
    write(&folder.join(format!("{stem}_later.wasm")), &parts.later.emit_wasm())?;
    let text = read(&script)?;
    ensure!(text.contains(IMPORTS[0]), "{} has no line {:?}", script.display(), IMPORTS[0]);
    write(&script, text.replace(IMPORTS[0], IMPORTS[1]).as_bytes())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("{} can't be written", path.display()))
}
