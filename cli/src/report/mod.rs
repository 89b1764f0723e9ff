//! `manyhands report`, and the page that a run writes at its end.

pub mod chart;
mod compare;
mod counts;
pub mod folds;
pub mod importance;
pub mod judge;
mod judged;
pub mod log;
pub mod markup;
pub mod page;
pub mod results;
pub mod sample;
mod spread;
pub mod text;
mod threshold;
mod tokens;

use std::path::{Path, PathBuf};

use clap::Args;
use manyhands::callbacks::{Mode, Monitor};
use manyhands::{Compile, Error, Model, Result, Trainer};
use manyhands_engine::files::{self, FileKind};
use manyhands_engine::shown::shown;

use self::chart::{Chart, Series, Style};
use self::log::RunLog;
use self::results::Results;
use super::run_folder::RunFolder;
use super::terminal::{Terminal, check_file, make_folder_of};

/// Page of several runs, if no other is named.
const COMPARISON: &str = "comparison.html";

#[derive(Args)]
pub struct ReportArgs {
    /// Folders of runs: `manyhands train --run` writes them. Several are compared; the folder of `--folds` stands for its folds.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// File to write to [default: `report.html` in the run's folder, or `comparison.html` for several runs].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A run as its folder tells it.
pub struct LoadedRun {
    pub name: String,
    pub folder: PathBuf,
    pub results: Results,
    pub log: RunLog,
    pub settings: String,
}

impl LoadedRun {
    /// The best epoch by the number that chooses the best model, and its value.
    pub fn best(&self) -> Option<(u64, f64)> {
        let results = &self.results;
        self.log.best_after(results.monitored_after, &results.monitor, results.mode?)
    }

    pub fn read(folder: &RunFolder) -> Result<Self> {
        if !folder.results().is_file() {
            return Err(Error::setting(
                format!("the folder `{}`", shown(folder.path())),
                "needs to be that of a run, but has no `results.json`",
                "`manyhands train run.toml --run runs/first` makes one",
            ));
        }
        folder.check_files()?;
        let settings = folder.settings();
        let mut results = Results::read(&folder.results())?;
        if results.mode.is_none() {
            results.mode = mode_of_model(folder, &results.monitor);
        }
        Ok(Self {
            name: folder.name(),
            folder: folder.path().to_owned(),
            results,
            // A run that was killed before its first step has none.
            log: if folder.log().is_file() { RunLog::read(&folder.log())? } else { RunLog::default() },
            settings: files::read_text(&settings)?,
        })
    }
}

/// Direction of a number, by the losses and metrics that the model file of a run keeps: runs of older versions have none in their
/// results.
fn mode_of_model(folder: &RunFolder, monitor: &str) -> Option<Mode> {
    let model = [folder.best(), folder.last()].iter().find_map(|file| Model::load(file).ok())?;
    let compile = Compile::for_evaluation(model.evaluation()?);
    let reported = Trainer::new(model, compile).ok()?.reported(true);
    reported.into_iter().find(|number| number.name == monitor)?.mode
}

/// A number of an epoch in words: `val_mean_absolute_error` is `validation mean absolute error`.
fn value_name(name: &str) -> String {
    match name.strip_prefix("val_") {
        Some(name) => format!("validation {}", name.replace('_', " ")),
        None => name.replace('_', " "),
    }
}

fn write(path: &Path, page: &str) -> Result<()> {
    files::write(path, FileKind::Page, |out| out.write_all(page.as_bytes()))
}

/// The best value of a number after an epoch, by a run's log.
pub fn best_of_log(folder: &RunFolder, after: u64, monitor: &Monitor) -> Result<Option<f64>> {
    let log = RunLog::read(&folder.log())?;
    let best = monitor.mode.and_then(|mode| log.best_after(after, &monitor.name, mode));
    Ok(best.map(|(_, value)| value))
}

/// Writes losses by learning rate as a page.
pub fn write_rates(path: &Path, points: &[(f64, f64)], suggestion: f64) -> Result<()> {
    let points = points.iter().map(|(rate, loss)| (rate.log10(), *loss)).collect();
    let series = vec![Series { name: "loss".into(), colour: 0, style: Style::Solid, points }];
    let (title, x) = ("loss, smoothed".into(), "learning rate, as a power of ten".into());
    let chart = Chart { title, x, y: String::new(), may_be_log: false, series }.html();
    let told = format!(
        "<h1>Learning rate</h1>\n<p>Start with <b>{suggestion:.1e}</b>: the middle of the longest fall of the loss (<i>valley</i> in fastai).</p>\n"
    );
    write(path, &page::whole("Learning rate · manyhands", &format!("{told}<div class=\"charts\">{chart}</div>\n")))
}

/// Writes the page of a run into its folder.
pub fn write_page(folder: &RunFolder) -> Result<()> {
    write(&folder.report(), &page::of_run(&LoadedRun::read(folder)?))
}

/// Writes the page of a run, or of several in comparison.
pub fn run(args: &ReportArgs, terminal: &Terminal) -> Result<()> {
    let folders: Vec<RunFolder> = args.runs.iter().flat_map(|run| runs_of(RunFolder::new(run))).collect();
    let mut runs = folders.iter().map(LoadedRun::read).collect::<Result<Vec<_>>>()?;
    let (file, page) = match (&runs[..], &folders[..]) {
        ([run], [folder]) => (folder.report(), page::of_run(run)),
        _ => {
            name_apart(&mut runs);
            terminal.report(&compare::table(&runs));
            if let Some(told) = compare::folds(&runs) {
                terminal.line(told);
            }
            (COMPARISON.into(), compare::page(&runs))
        }
    };
    let file = args.output.clone().unwrap_or(file);
    check_file(&file)?;
    make_folder_of(&file)?;
    write(&file, &page)?;
    terminal.line(format_args!("report in `{}`", file.display()));
    Ok(())
}

/// The run of a folder, or its folds.
fn runs_of(folder: RunFolder) -> Vec<RunFolder> {
    let folds = folder.folds();
    if folder.results().is_file() || folds.is_empty() { vec![folder] } else { folds }
}

/// Calls runs of the same name by their folders.
fn name_apart(runs: &mut [LoadedRun]) {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = run.folder.to_string_lossy().into_owned();
        }
    }
}
