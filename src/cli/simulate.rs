//! `manyhands simulate`.

use std::path::PathBuf;

use crate::Result;
use crate::simulator::{RigConfig, simulate};
use clap::Args;

use super::terminal::Terminal;

#[derive(Args)]
pub struct SimulateArgs {
    /// File that describes the adapters and their model: see `examples/rigs/`.
    rig: PathBuf,
}

/// Shows the predicted speed of the fastest 1 to N adapters of a rig.
pub fn run(args: &SimulateArgs, terminal: &Terminal) -> Result<()> {
    terminal.report(&simulate(&RigConfig::load(&args.rig)?)?);
    Ok(())
}
