//! `manyhands simulate`.

use std::path::PathBuf;

use clap::Args;
use manyhands::placer::rig::simulate;
use manyhands::simulator::RigConfig;
use manyhands::{Error, Result};

use super::terminal::Terminal;

#[derive(Args)]
pub struct SimulateArgs {
    /// File that describes the adapters and their model: see `examples/rigs/`.
    rig: PathBuf,
    /// Show all numbers as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Shows the predicted speed of the fastest 1 to N adapters of a rig, and that of its placement.
pub fn run(args: &SimulateArgs, terminal: &Terminal) -> Result<()> {
    let (report, chosen) = simulate(&RigConfig::load(&args.rig)?)?;
    if args.json {
        let text = serde_json::to_string(&report).map_err(|error| {
            Error::setting("the prediction", format!("can't be shown: {error}"), "leave out `--json`")
        })?;
        terminal.verbatim(text);
        return Ok(());
    }
    if let Some(chosen) = chosen {
        terminal.report(&chosen);
    }
    terminal.report(&report);
    Ok(())
}
