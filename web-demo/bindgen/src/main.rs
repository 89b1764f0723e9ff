//! `web-bindgen INPUT.wasm FOLDER`: writes the JavaScript that a wasm file is called through.
//!
//! A program of its own, so that `cargo xtask` stays quick to build for those who build no page.

use anyhow::{Context, Result};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let input = arguments.next().context("needs a wasm file")?;
    let folder = arguments.next().context("needs a folder for what it writes")?;
    let mut bindgen = Bindgen::new();
    bindgen.input_path(input).web(true)?.typescript(false).remove_name_section(true).remove_producers_section(true);
    bindgen.generate(folder)
}
