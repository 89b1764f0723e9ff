//! `manyhands summary`.

use std::path::PathBuf;

use crate::{Checkpoint, Model, Result};
use clap::Args;

use super::settings::Settings;
use super::terminal::{Terminal, columns};

#[derive(Args)]
pub struct SummaryArgs {
    /// Model file, checkpoint, or settings file (`.toml`).
    file: PathBuf,
}

/// Shows the layers of a model, and the progress of its training.
pub fn run(args: &SummaryArgs, terminal: &Terminal) -> Result<()> {
    if args.file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
        show(&Settings::of(Some(&args.file))?.build_model(0)?, terminal);
        return Ok(());
    }
    show(&Model::load(&args.file)?, terminal);
    // A file that holds only a model is no error here.
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

/// Shows the layers.
pub fn show(model: &Model, terminal: &Terminal) {
    let summary = columns().map_or_else(|| model.summary(), |columns| model.summary_within(columns));
    terminal.line(summary.trim_end());
}
