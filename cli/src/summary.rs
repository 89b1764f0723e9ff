//! `manyhands summary`.

use std::path::PathBuf;

use clap::Args;
use manyhands::adapters::{Kind, MemoryLimits};
use manyhands::{Checkpoint, MemoryNeed, Model, Result, Trainer};
use manyhands_engine::shown::{bytes, counted};
use manyhands_engine::table::Table;

use super::MemoryChoice;
use super::run_folder::{load_model, model_path};
use super::settings::{ModelSource, SettingsFile};
use super::terminal::{Terminal, columns};

#[derive(Args)]
pub struct SummaryArgs {
    /// Model file, checkpoint, folder of a run, or settings file (`.toml`).
    #[arg(value_parser = model_path())]
    file: PathBuf,
    #[command(flatten)]
    memory: MemoryChoice,
}

/// Shows the layers of a model, and the progress of its training.
pub fn run(args: &SummaryArgs, terminal: &Terminal) -> Result<()> {
    if args.file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
        let settings = SettingsFile::of(Some(&args.file))?;
        let model = settings.build_model(0)?;
        show(&model, terminal);
        let compile = settings.compile(&model, 0)?;
        let trainer = Trainer::new(model, compile)?.placement(settings.training.placement.clone());
        return show_memory(&settings, &args.memory.or(settings.training.memory.as_ref()), &trainer, terminal);
    }
    show(&load_model(&args.file)?, terminal);
    // A file that holds only a model is no error here.
    if let Ok(checkpoint) = Checkpoint::load(&args.file) {
        let progress = &checkpoint.progress;
        terminal.line(format_args!(
            "checkpoint of `{}` after {}, {}",
            checkpoint.optimizer.name(),
            counted(progress.epoch, "epoch"),
            counted(progress.step, "step")
        ));
    }
    Ok(())
}

/// Shows the memory that training by these settings takes, on the two kinds of adapters and within limits. No driver is
/// started to find the adapters of this machine.
pub fn show_memory(
    settings: &SettingsFile,
    limits: &MemoryLimits,
    trainer: &Trainer,
    terminal: &Terminal,
) -> Result<()> {
    let training = &settings.training;
    let mut table = Table::new(["training on", "rows at once", "memory", "limit"]).numbers([1, 2, 3]);
    let kinds = [("the CPU adapter", Kind::Cpu), ("a GPU", Kind::DiscreteGpu)].map(|(name, kind)| (name, kind, None));
    let of_name = |name: &str| if name.eq_ignore_ascii_case("cpu") { Kind::Cpu } else { Kind::DiscreteGpu };
    let limited = limits.items().map(|(name, limit)| (name, of_name(name), Some(limit)));
    for (name, kind, limit) in kinds.into_iter().chain(limited) {
        let needs = trainer.stage_needs(kind, training.batch_size, training.micro_batches, limit)?;
        let is_staged = needs.len() > 1;
        for (stage, need) in needs.into_iter().enumerate() {
            let name = if is_staged { format!("{name}, stage {stage}") } else { name.to_owned() };
            let [rows, needed] = need_cells(need);
            table.row([name, rows, needed, limit.map_or_else(String::new, bytes)]);
        }
    }
    terminal.report(&table);
    if let ModelSource::Language(language) = &settings.model {
        terminal.line(language.weights()?);
    }
    Ok(())
}

/// Rows at once and the memory that they take, for a table.
pub fn need_cells(need: Option<MemoryNeed>) -> [String; 2] {
    match need {
        Some(MemoryNeed { rows, bytes: needed, .. }) => [rows.to_string(), bytes(needed)],
        None => ["none".into(), "more for 1 row".into()],
    }
}

/// Most lines of layers that stand before a run.
const MOST_LINES: usize = 40;

/// Shows the layers before a run; how many there are, if they would fill the screen.
pub fn show_before_run(model: &Model, terminal: &Terminal) {
    let summary = model.summary();
    let lines: Vec<&str> = summary.trim_end().lines().collect();
    match lines.last().filter(|_| lines.len() > MOST_LINES) {
        Some(parameters) => terminal.line(format_args!(
            "{} layers, {parameters}; `manyhands summary` shows them of a saved model",
            model.config().layers.len()
        )),
        None => show(model, terminal),
    }
}

/// Shows the layers.
pub fn show(model: &Model, terminal: &Terminal) {
    let summary = columns().map_or_else(|| model.summary(), |columns| model.summary_within(columns));
    terminal.line(summary.trim_end());
}
