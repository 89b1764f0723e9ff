//! The program `manyhands-compilers`.
//!
//!     cargo run --release --package manyhands-compilers -- --chips navi21,navi31 --json kernels.json

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use manyhands_compilers::chips::{CHIPS, Chip};
use manyhands_compilers::mesa::Mesa;
use manyhands_compilers::{Wanted, ask, compile, report};

#[derive(Parser)]
#[command(about = "What compilers of GPU vendors make of each kernel, on a machine without a GPU")]
struct Arguments {
    /// Chips, by Mesa's names for them; all that this machine's Mesa knows by default. `scripts/setup-compilers` brings
    /// the Mesa that knows all.
    #[arg(long, value_delimiter = ',')]
    chips: Vec<String>,
    /// Kernels whose names contain this, such as `attention`; all by default.
    #[arg(long, default_value = "")]
    kernels: String,
    /// Compile each entry point of this file of WGSL in place of kernels; may be given several times.
    #[arg(long = "wgsl", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Most sets of constants of a kernel and tile.
    #[arg(long, default_value_t = 3)]
    constants: usize,
    /// File for all that was found.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show the instructions, and all that the driver tells, too.
    #[arg(long)]
    assembly: bool,
    /// Compile for this chip with the driver of the environment, and write JSON.
    #[arg(long, hide = true)]
    here: Option<String>,
}

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a command shows what it found")]
fn main() -> Result<()> {
    let Arguments { chips, kernels, files, constants, json, assembly, here } = Arguments::parse();
    let wanted = Wanted { kernels, files, constants, assembly };
    if let Some(chip) = here {
        println!("{}", serde_json::to_string(&compile(named(&[chip])?[0], &wanted)?)?);
        return Ok(());
    }
    let program = std::env::current_exe()?;
    let mesa = Mesa::unpacked().unwrap_or(Mesa::System);
    let mut found = Vec::new();
    for chip in named(&chips)? {
        match ask(&program, chip, &mesa, &wanted) {
            Ok(on_chip) => found.push(on_chip),
            // An older Mesa doesn't know the newest chips, and the system's works for AMD's alone.
            Err(error) if chips.is_empty() => eprintln!("left out: {error}"),
            Err(error) => return Err(error),
        }
    }
    ensure!(!found.is_empty(), "this machine's drivers compile for none of the chips\n  help: scripts/setup-compilers");
    println!("{}", report::tables(&found));
    if let Some(path) = json {
        std::fs::write(&path, serde_json::to_string_pretty(&found)?)
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(())
}

fn named(names: &[String]) -> Result<Vec<&'static Chip>> {
    if names.is_empty() {
        return Ok(CHIPS.iter().collect());
    }
    let all: Vec<&str> = CHIPS.iter().map(|chip| chip.name).collect();
    let find =
        |name: &String| Chip::find(name).with_context(|| format!("no chip `{name}`; there are {}", all.join(", ")));
    names.iter().map(find).collect()
}
