//! `manyhands train`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::adapters::Kind;
use crate::callbacks::{Callback, EarlyStopping};
use crate::data::{Dataset, Description};
use crate::internals::files;
use crate::logs::{CsvLog, JsonLog, Values};
use crate::{Checkpoint, Error, Existing, Fit, History, Result, SaveSettings, SplitMode, Trainer};
use clap::Args;

use super::interrupt::Interrupt;
use super::progress::{Progress, in_use};
use super::settings::{DIGITS, OTHER_RATES, OTHER_RATES_HELP, Settings, parse_split};
use super::terminal::{Terminal, check_file, make_folder_of};
use super::{AdapterChoice, MemoryChoice, adapters, at_least_one, summary};

/// Default path of a saved run.
const DEFAULT_FILE: &str = "manyhands.safetensors";

#[derive(Args)]
pub struct TrainArgs {
    /// Settings file; without one, a small network learns to read handwritten digits.
    config: Option<PathBuf>,
    /// Print the settings of the digits, to copy from, and end.
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    adapters: AdapterChoice,
    #[command(flatten)]
    memory: MemoryChoice,
    /// Split of each batch: `learned` from speed, `even`, or proportions such as `3:1`.
    #[arg(long, value_parser = parse_split)]
    split: Option<SplitMode>,
    /// Repeat the splits of another run from the log that it wrote with `--json`: gives the same bits.
    #[arg(long, value_name = "FILE", conflicts_with = "split")]
    split_from: Option<PathBuf>,
    /// Train up to this epoch, counted from the start of the run.
    #[arg(long, value_parser = at_least_one)]
    epochs: Option<usize>,
    /// Rows of a batch, over all adapters.
    #[arg(long, value_parser = at_least_one)]
    batch_size: Option<usize>,
    /// Learning rate before any schedule.
    #[arg(long)]
    learning_rate: Option<f32>,
    /// Seed of initial weights, shuffling and dropout.
    #[arg(long)]
    seed: Option<u64>,
    /// Folder at which the data's paths start, in place of the current folder.
    #[arg(long, value_name = "FOLDER")]
    data_folder: Option<PathBuf>,
    /// File to save the run to, after each epoch and at the end [default: the resumed file, else
    /// manyhands.safetensors].
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Save after each so many steps, too.
    #[arg(long, value_name = "STEPS", value_parser = at_least_one)]
    save_every: Option<usize>,
    /// Replace the file of an earlier run.
    #[arg(long)]
    overwrite: bool,
    /// Resume a saved run [default file: that of `--save`]. Logs are continued.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    /// Write a line of JSON for each step and each epoch.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a line of CSV for each epoch.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a trace of all work; <https://ui.perfetto.dev> shows it.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Slow an adapter down, for trials: `1=4` makes the second one take 4 times as long. Repeatable.
    #[arg(long, value_name = "IDX=FACTOR", value_parser = parse_throttle)]
    throttle: Vec<(usize, f64)>,
    /// Show warnings and errors only.
    #[arg(long, short)]
    quiet: bool,
}

/// An adapter's position, and the factor by which it is slowed down.
pub fn parse_throttle(text: &str) -> Result<(usize, f64), String> {
    let parsed = text.split_once('=').and_then(|(idx, factor)| Some((idx.parse().ok()?, factor.parse().ok()?)));
    match parsed {
        Some((idx, factor)) if (1.0..=1e6).contains(&factor) => Ok((idx, factor)),
        _ => Err("an adapter's position and a factor from 1 up are needed, such as `1=4`".into()),
    }
}

impl TrainArgs {
    fn save_file(&self) -> &Path {
        let resumed = self.resume.as_ref().and_then(Option::as_deref);
        self.save.as_deref().or(resumed).unwrap_or(Path::new(DEFAULT_FILE))
    }

    fn save_settings(&self) -> SaveSettings {
        let existing = if self.overwrite { Existing::Overwrite } else { Existing::Refuse };
        let every_steps = self.save_every.map_or(0, |steps| steps as u64);
        SaveSettings::new(self.save_file()).every_steps(every_steps).existing(existing)
    }

    /// The file to resume from.
    fn resumed_file(&self) -> Option<&Path> {
        self.resume.as_ref().map(|file| file.as_deref().unwrap_or(self.save_file()))
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        self.resumed_file().map(Checkpoint::load).transpose()
    }

    /// Refuses to overwrite the run's inputs, or an older run.
    fn check_files(&self, settings: &Settings) -> Result<()> {
        let written = [Some(self.save_file()), self.json.as_deref(), self.csv.as_deref(), self.trace.as_deref()];
        let written: Vec<&Path> = written.into_iter().flatten().collect();
        let resumed = self.resumed_file();
        let mut read = settings.files();
        read.extend([self.config.as_deref(), self.split_from.as_deref()].into_iter().flatten().map(Path::to_owned));
        read.extend(resumed.filter(|file| !files::are_same(file, self.save_file())).map(Path::to_owned));
        files::check_apart(&written, &read.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        for file in written {
            check_file(file)?;
        }
        self.save_settings().check(resumed)
    }

    /// The settings, overridden by the flags.
    fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::of(self.config.as_deref())?;
        settings.start_paths_at(self.data_folder.as_deref());
        let training = &mut settings.training;
        training.epochs = self.epochs.map_or(training.epochs, |epochs| epochs as u64);
        training.batch_size = self.batch_size.unwrap_or(training.batch_size);
        training.seed = self.seed.or(training.seed);
        training.split = self.split.clone().unwrap_or(training.split.clone());
        if let Some(rate) = self.learning_rate {
            if !settings.schedule.starts_from_rate() {
                return Err(Error::setting("`--learning-rate`", OTHER_RATES, OTHER_RATES_HELP));
            }
            settings.optimizer = settings.optimizer.with_learning_rate(rate);
        }
        Ok(settings)
    }
}

/// All that a run needs, checked, with the adapters open.
struct Run {
    trainer: Trainer,
    train: Arc<dyn Dataset>,
    fit: Fit,
    early_stopping: Option<EarlyStopping>,
    /// The adapters of the settings file.
    adapters: Option<String>,
    /// Epochs and steps before the resumed run.
    done: Option<(u64, u64)>,
}

/// Trains. Returns the exit status for a signal, if one came.
pub fn run(args: &TrainArgs, terminal: &Terminal) -> Result<Option<i32>> {
    if args.print_config {
        terminal.verbatim(DIGITS.trim_end());
        return Ok(None);
    }
    let settings = args.settings()?;
    args.check_files(&settings)?;
    let written = [Some(args.save_file()), args.json.as_deref(), args.csv.as_deref(), args.trace.as_deref()];
    written.into_iter().flatten().try_for_each(make_folder_of)?;
    let mut run = prepare(args, settings, terminal)?;
    if let Some(reason) = finished(&run) {
        terminal.line(reason);
        return Ok(None);
    }
    let interrupt = Interrupt::catch(run.fit.stop.clone(), terminal)?;
    open_adapters(&mut run, args, terminal)?;
    let n_adapters = run.trainer.open_adapters().len();
    let mut progress = Progress::new(terminal, args.quiet, run.fit.epochs, n_adapters);
    let history = fit(&mut run, args, &mut progress);
    progress.finish();
    report(&mut run, args, terminal, &history?)?;
    Ok(interrupt.status())
}

fn prepare(args: &TrainArgs, settings: Settings, terminal: &Terminal) -> Result<Run> {
    let checkpoint = args.checkpoint()?;
    let resumed_seed = checkpoint.as_ref().map(|checkpoint| checkpoint.progress.seed);
    let seed = settings.training.seed.or(resumed_seed).unwrap_or(0);
    let model = settings.build_model(seed)?;
    if !args.quiet {
        summary::show(&model, terminal);
    }
    let compile = settings.compile(&model, seed)?;
    let chosen = adapters::choose(args.adapters.adapters.as_deref(), settings.training.adapters.as_deref())?;
    check_throttles(&args.throttle, chosen.len())?;
    let limits = args.memory.or(settings.training.memory.as_ref());
    limits.check(&chosen)?;
    let split = match &args.split_from {
        Some(file) => JsonLog::recorded_split(file, chosen.len())?,
        None => settings.training.split.clone(),
    };
    let trainer = Trainer::new(model, compile)?.on(chosen).memory(limits).split(split);
    let trainer = trainer.placement(settings.training.placement.clone());
    let mut trainer = trainer.cpu_fallback(settings.training.cpu_fallback());
    for (idx, factor) in &args.throttle {
        trainer = trainer.throttle(*idx, *factor);
    }
    let resumed = checkpoint.as_ref().map(|checkpoint| (checkpoint.progress.seed, checkpoint.progress.rows));
    let done = checkpoint.as_ref().map(|checkpoint| (checkpoint.progress.epoch, checkpoint.progress.step));
    if let Some(checkpoint) = checkpoint {
        trainer.resume(checkpoint)?;
    }
    let (train, validation) = settings.split_data(settings.open_data(&trainer)?, seed)?;
    if let Some(before) = resumed.filter(|_| settings.draws_validation()) {
        check_same_rows(before, (seed, train.len()))?;
    }
    if !args.quiet {
        terminal.report(&Description::of("training data", &train)?);
        if let Some(validation) = &validation {
            terminal.report(&Description::of("validation data", validation)?);
        }
    }
    trainer.check_run(train.as_ref(), validation.as_deref())?;
    let early_stopping = settings.training.early_stopping(validation.is_some())?;
    if let Some(stopping) = &early_stopping {
        stopping.monitor().check(&trainer.log_names(validation.is_some()))?;
    }
    if done.is_none() && settings.is_model_new() {
        trainer.adapt(train.clone())?;
    }
    let mut fit = Fit::new(settings.training.epochs)
        .batch_size(settings.training.batch_size)
        .micro_batches(settings.training.micro_batches)
        .workers(settings.training.workers)
        .prefetch(settings.training.prefetch)
        .save_with(args.save_settings());
    fit.class_weight = settings.training.class_weight(train.schema().classes(0))?.into_iter().collect();
    (fit.shuffle, fit.drop_remainder) = (settings.training.shuffle, settings.training.drop_remainder);
    (fit.validation, fit.trace) = (validation, args.trace.clone());
    Ok(Run { trainer, train, fit, early_stopping, adapters: settings.training.adapters, done })
}

/// Refuses to resume with other validation rows: some of them were trained on.
fn check_same_rows(before: (u64, usize), now: (u64, usize)) -> Result<()> {
    if before == now {
        return Ok(());
    }
    let ((seed, rows), (now_seed, now_rows)) = (before, now);
    Err(Error::setting(
        "resuming with a fraction for `validation`",
        format!(
            "needs seed {seed} and {rows} training rows as before, but got seed {now_seed} and {now_rows}: rows that were \
             trained on would be validated on"
        ),
        "resume with the same seed, data and fraction, or validate on data of their own",
    ))
}

/// Refuses positions that no adapter in use has.
pub fn check_throttles(throttles: &[(usize, f64)], n_adapters: usize) -> Result<()> {
    match throttles.iter().find(|(idx, _)| *idx >= n_adapters) {
        None => Ok(()),
        Some((idx, _)) => Err(Error::setting(
            "`--throttle`",
            format!("needs an adapter in use, from 0 to {}, but got {idx}", n_adapters - 1),
            "count the adapters in the order of `--adapters`, from 0",
        )),
    }
}

/// Reason why no step is left, if none is.
fn finished(run: &Run) -> Option<String> {
    let progress = run.trainer.progress();
    if progress.is_finished {
        return Some(format!("nothing to do: early stopping ended this run after epoch {}", progress.epoch));
    }
    (progress.epoch >= run.fit.epochs)
        .then(|| format!("nothing to do: all {} epochs are done; `--epochs` asks for more", progress.epoch))
}

fn open_adapters(run: &mut Run, args: &TrainArgs, terminal: &Terminal) -> Result<()> {
    run.trainer.open(&run.fit, run.train.len())?;
    if args.quiet {
        return Ok(());
    }
    let (infos, bytes): (Vec<_>, Vec<_>) =
        run.trainer.open_adapters().into_iter().map(|adapter| (adapter.info, adapter.bytes)).unzip();
    terminal.report(&in_use(&infos, &bytes));
    let has_choice = adapters::has_choice(args.adapters.adapters.as_deref(), run.adapters.as_deref());
    if !has_choice && infos.iter().all(|info| info.kind == Kind::Cpu) {
        terminal.line("this machine has no GPU, or no driver for it: see `manyhands adapters`");
    }
    if let Some((epochs, steps)) = run.done {
        terminal.line(format_args!("resuming after step {steps}, with {epochs} of {} epochs done", run.fit.epochs));
    }
    Ok(())
}

fn fit(run: &mut Run, args: &TrainArgs, progress: &mut Progress<'_>) -> Result<History> {
    let mut json = match (&args.json, run.done) {
        (Some(path), Some((epoch, step))) => Some(JsonLog::resume(path, epoch, step)?),
        (Some(path), None) => Some(JsonLog::create(path)?),
        (None, _) => None,
    };
    let mut csv = match (&args.csv, run.done) {
        (Some(path), Some((epoch, _))) => Some(CsvLog::resume(path, epoch)?),
        (Some(path), None) => Some(CsvLog::create(path)?),
        (None, _) => None,
    };
    let mut callbacks: Vec<&mut dyn Callback> = Vec::new();
    // Early stopping comes first, so that its state in a checkpoint fits with any logs.
    if let Some(stopping) = &mut run.early_stopping {
        callbacks.push(stopping);
    }
    callbacks.push(progress);
    if let Some(log) = &mut json {
        callbacks.push(log);
    }
    if let Some(log) = &mut csv {
        callbacks.push(log);
    }
    run.trainer.fit_with(run.train.clone(), &run.fit, &mut callbacks)
}

/// Values of the best weights, if early stopping restored weights of an earlier epoch than the last.
fn best_values(run: &mut Run, history: &History) -> Result<Option<Values>> {
    let (Some(stopping), Some(validation)) = (&run.early_stopping, &run.fit.validation) else { return Ok(None) };
    let last = history.epochs.last().and_then(|epoch| epoch.values.get(&stopping.monitor().name));
    let is_last_best = !run.trainer.progress().is_finished && last == stopping.best_value();
    if history.is_interrupted || is_last_best {
        return Ok(None);
    }
    let values = run.trainer.evaluate(validation.clone(), run.fit.batch_size)?;
    Ok(Some(values.prefixed("val_")))
}

fn report(run: &mut Run, args: &TrainArgs, terminal: &Terminal, history: &History) -> Result<()> {
    let best = best_values(run, history)?;
    if args.quiet {
        return Ok(());
    }
    terminal.report(&history.time);
    if let Some(best) = best {
        let why = if run.trainer.progress().is_finished { "stopped early; " } else { "" };
        terminal.line(format_args!("{why}the best weights: {best}"));
    } else if let Some(last) = history.epochs.last() {
        terminal.line(format_args!("final: {}", last.values));
    }
    let file = args.save_file().display();
    let step = run.trainer.progress().step;
    if history.saved_step != Some(step) {
        // A warning has reported the reason and the contents of the file.
        terminal.line(format_args!("stopped after step {step}, which was not saved"));
    } else if history.is_interrupted {
        terminal.line(format_args!("stopped after step {step}; saved to `{file}`; continue with `--resume`"));
    } else {
        terminal.line(format_args!("saved to `{file}`"));
    }
    if let Some(trace) = &args.trace {
        terminal.line(format_args!("trace in `{}`; open it at https://ui.perfetto.dev", trace.display()));
    }
    Ok(())
}
