//! `manyhands summary`.

use std::path::PathBuf;

use clap::Args;
use manyhands::{Checkpoint, Model, Result};

use super::settings::Settings;
use super::terminal::Terminal;

#[derive(Args)]
pub struct SummaryArgs {
    /// Model file, checkpoint, or settings file (`.toml`).
    file: PathBuf,
}

/// Shows the layers of a model, and how far its training has come.
pub fn run(args: &SummaryArgs, terminal: &Terminal) -> Result<()> {
    if args.file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
        terminal.line(Settings::of(Some(&args.file))?.build_model(0)?.summary().trim_end());
        return Ok(());
    }
    terminal.line(Model::load(&args.file)?.summary().trim_end());
    // A file that holds only a model is no checkpoint, which is no fault here.
    if let Ok(checkpoint) = Checkpoint::load(&args.file) {
        let progress = &checkpoint.progress;
        terminal.line(format_args!(
            "checkpoint of `{}` after {} epochs, {} steps",
            checkpoint.optimizer.name(),
            progress.epoch,
            progress.step
        ));
    }
    Ok(())
}
