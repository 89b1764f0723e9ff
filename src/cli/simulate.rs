//! `manyhands simulate`.

use std::path::PathBuf;

use crate::Result;
use crate::internals::placer::rig::simulate;
use crate::simulator::RigConfig;
use clap::Args;

use super::terminal::Terminal;

#[derive(Args)]
pub struct SimulateArgs {
    /// File that describes the adapters and their model: see `examples/rigs/`.
    rig: PathBuf,
}

/// Shows the predicted speed of the fastest 1 to N adapters of a rig, and that of its placement.
pub fn run(args: &SimulateArgs, terminal: &Terminal) -> Result<()> {
    let (report, chosen) = simulate(&RigConfig::load(&args.rig)?)?;
    if let Some(chosen) = chosen {
        terminal.report(&chosen);
    }
    terminal.report(&report);
    Ok(())
}
