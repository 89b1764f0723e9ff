//! `manyhands train`.

mod arguments;
mod batch_size;
mod files;
mod folds;
mod part_run;
#[cfg(feature = "text")]
mod samples;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use manyhands::adapters::{Info, Kind};
use manyhands::callbacks::{Callback, EarlyStopping, Mode, ModelCheckpoint, Monitor};
use manyhands::data::{ClassWeighted, Dataset, Description};
use manyhands::logs::{CsvLog, JsonLog, TensorBoard, Values};
use manyhands::processes::Group;
use manyhands::schema::DataPlace;
use manyhands::{Checkpoint, Compile, Error, ErrorKind, Fit, History, Loss, Progress, Result, Trainer};
use manyhands_engine::files as written;
use manyhands_engine::shown::{counted, thousands};

use super::baseline::Baseline;
use super::interrupt::Interrupt;
use super::learning_rate::{self, RangeTest};
use super::progress::{ProgressDisplay, in_use};
use super::report::write_rates;
use super::run_record::{RunFacts, RunRecord};
use super::settings::{DIGITS, ModelSource, RunRows, SettingsFile, as_run};
use super::terminal::{Terminal, check_file, make_folder_of};
use super::{adapters, summary};
pub use arguments::TrainArgs;
use files::Files;
pub use part_run::PartRun;
#[cfg(feature = "text")]
use samples::Samples;

/// An adapter's position, and the factor by which it is slowed down.
pub fn parse_throttle(text: &str) -> Result<(usize, f64), String> {
    let parsed = text.split_once('=').and_then(|(idx, factor)| Some((idx.parse().ok()?, factor.parse().ok()?)));
    match parsed {
        Some((idx, factor)) if (1.0..=1e6).contains(&factor) => Ok((idx, factor)),
        _ => Err("an adapter's position and a factor from 1 up are needed, such as `1=4`".into()),
    }
}

/// All that a run needs, checked, with the adapters open.
struct PreparedRun {
    trainer: Trainer,
    train: Arc<dyn Dataset>,
    /// The fold that is held out.
    fold: Option<Arc<dyn Dataset>>,
    fit: Fit,
    losses: Vec<Loss>,
    seed: u64,
    early_stopping: Option<EarlyStopping>,
    /// The number that chooses the best model, if it was named.
    objective: Option<Monitor>,
    /// The adapters of the settings file.
    adapters: Option<String>,
    /// Epochs and steps before the resumed run.
    done: Option<(u64, u64)>,
    /// The data, in words.
    described: Vec<Description>,
}

/// Trains. `arguments` are those of the command. Returns the exit status for a signal, if one came.
pub fn run(args: &TrainArgs, arguments: &[String], terminal: &Terminal, group: &Group) -> Result<Option<i32>> {
    if args.print_config {
        terminal.verbatim(DIGITS.trim_end());
        return Ok(None);
    }
    check_launcher(group)?;
    run_settings(args.settings()?, args, arguments, terminal, group)
}

/// Trains as settings say, whatever file the arguments name.
pub fn run_settings(
    settings: SettingsFile,
    args: &TrainArgs,
    arguments: &[String],
    terminal: &Terminal,
    group: &Group,
) -> Result<Option<i32>> {
    group.set_limit_s(settings.training.process_timeout);
    if let Some(count) = args.folds {
        return folds::run(&settings, count, args, terminal, group);
    }
    let files = Files::of(args, &settings).in_process(group);
    if let Some(page) = &args.find_learning_rate {
        group.refuse("`--find-learning-rate`", "start one process")?;
        return find_learning_rate((args, &files), settings, page, terminal);
    }
    if args.find_batch {
        group.refuse("`--find-batch`", "start one process")?;
        return batch_size::find((args, &files), settings, terminal);
    }
    if group.is_first() {
        files.check(args, &settings)?;
        if args.resume.is_some() && files.resumed.is_none() {
            terminal.note(format_args!("note: the earlier run ended before its first checkpoint, so it begins again"));
        }
        match files.check_existing() {
            Ok(()) if args.dry_run => {}
            Ok(()) => files.written().iter().try_for_each(|file| make_folder_of(file))?,
            Err(error) if args.dry_run => terminal.note(format_args!("warning: a run needs more: {error}")),
            Err(error) => return Err(error),
        }
    }
    let chosen = choose(args, &settings)?;
    let (mut run, settings) = prepare(args, &files, settings, chosen, terminal, group)?;
    if let Some(reason) = finished(&run) {
        terminal.line(reason);
        return Ok(None);
    }
    let interrupt = Interrupt::catch(run.fit.stop.clone(), terminal)?;
    if args.dry_run {
        open_adapters(&mut run, args, terminal)?;
        terminal.line(plan(&run));
        return Ok(None);
    }
    // Processes that differ leave no folder behind.
    pollster::block_on(run.trainer.asynchronous().check_alike(run.train.as_ref(), &run.fit))?;
    let files = if group.is_first() { files.numbered()? } else { files };
    run.fit.save = files.save_settings(args.save_every).filter(|_| group.is_first());
    if let Err(error) = open_adapters(&mut run, args, terminal) {
        drop(run);
        files.leave();
        return Err(error);
    }
    train(run, &settings, (args, &files), arguments, terminal)?;
    Ok(interrupt.status())
}

/// Refuses to be one of several processes of `mpirun` that this program can't join: each would train the whole for itself.
fn check_launcher(group: &Group) -> Result<()> {
    // Set by Open MPI, and by MPICH and MS-MPI.
    let told =
        ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"].iter().find_map(|name| std::env::var(name).ok()?.parse::<u32>().ok());
    match told.filter(|size| *size > 1 && group.is_alone()) {
        None => Ok(()),
        Some(size) => Err(Error::setting(
            format!("training in {size} processes of MPI"),
            "needs a program with MPI, but this one is built without it",
            "build it with `cargo install --path cli --features mpi` (docs/guide/machines.md), or start one process",
        )),
    }
}

/// Trains on open adapters, and writes what the run gives.
fn train(
    mut run: PreparedRun,
    settings: &SettingsFile,
    (args, files): (&TrainArgs, &Files),
    arguments: &[String],
    terminal: &Terminal,
) -> Result<()> {
    #[cfg(feature = "text")]
    let mut samples = Samples::of(settings, terminal)?;
    let mut logs = Logs::open(&run, args, files)?;
    let mut record = begin_record(&run, args, files, as_run(settings, &args.changes(run.seed)), arguments)?;
    let n_adapters = run.trainer.open_adapters().len();
    let mut progress = ProgressDisplay::new(terminal, run.fit.epochs, n_adapters);
    #[cfg(feature = "text")]
    let writing = samples.as_mut();
    #[cfg(not(feature = "text"))]
    let writing = None::<&mut ModelCheckpoint>;
    let history = fit(&mut run, &mut logs, record.as_mut().map(RunRecord::best), &mut progress, writing);
    progress.finish();
    #[cfg(feature = "text")]
    if let (Some(record), Some(samples)) = (&mut record, samples) {
        record.keep_samples(samples.written);
    }
    if let (Err(error), Some(record)) = (&history, &mut record) {
        record.give_up(error);
        if let Some(folder) = files.folder.as_ref().filter(|_| files.is_numbered) {
            terminal.note(format_args!("what the run gave until then is in `{}`", folder.path().display()));
        }
    }
    let history = history?;
    let is_told = run.trainer.group().is_first() && (record.is_some() || !terminal.is_quiet());
    let baseline = if is_told { run.baseline(&history) } else { None };
    report(&mut run, files, terminal, &history, baseline.as_ref())?;
    if let Some(record) = record {
        run.trainer.leave_group();
        let page = record.end(&mut run.trainer, (&run.fit, run.fold.as_ref()), &run.losses, &history, baseline)?;
        if !terminal.is_quiet() {
            terminal.line(format_args!("report in `{}`", page.display()));
        }
        // That of a language model that writes becomes an adapter.
        if !matches!(&settings.model, ModelSource::Language(language) if language.classes.is_none()) {
            show_best(&run, files, terminal);
        }
    }
    Ok(())
}

/// Says where the best model is, and how to use it. Who has not named a folder is told also if all else is quiet.
fn show_best(run: &PreparedRun, files: &Files, terminal: &Terminal) {
    let Some(folder) = files.folder.as_ref().filter(|_| files.is_numbered || !terminal.is_quiet()) else { return };
    let best = folder.best();
    if !best.is_file() {
        terminal.line(format_args!("the run is in `{}`", folder.path().display()));
        return;
    }
    // Those of the digits are in the program.
    let data = if run.trainer.model().schema().facts().place == DataPlace::Program { "" } else { " DATA" };
    terminal.line(format_args!("best model in `{0}`; predict with `manyhands predict {0}{data}`", best.display()));
}

/// The adapters of the flag, else of the settings.
fn choose(args: &TrainArgs, settings: &SettingsFile) -> Result<Vec<Info>> {
    adapters::choose(args.adapters.adapters.as_deref(), settings.training.adapters.as_deref())
}

/// Begins the record of a run that has a folder, with the text of its settings.
fn begin_record(
    run: &PreparedRun,
    args: &TrainArgs,
    files: &Files,
    settings: String,
    arguments: &[String],
) -> Result<Option<RunRecord>> {
    let Some(folder) = &files.folder else { return Ok(None) };
    let facts = RunFacts {
        settings,
        arguments,
        data_folder: args.data_folder.as_deref(),
        trainer: &run.trainer,
        train: &run.train,
        fit: &run.fit,
        seed: run.seed,
        monitor: run.monitor(),
        described: &run.described,
        is_resumed: run.done.is_some(),
    };
    RunRecord::begin(folder.clone(), &facts).map(Some)
}

/// Trains for some steps at rising rates, on adapters that are then let go.
fn find_learning_rate(
    (args, files): (&TrainArgs, &Files),
    mut settings: SettingsFile,
    page: &Path,
    terminal: &Terminal,
) -> Result<Option<i32>> {
    check_file(page)?;
    written::check(page, written::FileKind::Page)?;
    settings.schedule = learning_rate::schedule();
    let chosen = choose(args, &settings)?;
    let (mut run, _) = prepare(args, files, settings, chosen, terminal, &Group::alone())?;
    let stop = Arc::new(AtomicBool::new(false));
    // An epoch has at least one step.
    let mut fit = run.fit.clone().epochs(learning_rate::STEPS).stop(stop.clone());
    (fit.save, fit.trace, fit.validation) = (None, None, None);
    run.fit = fit;
    open_adapters(&mut run, args, terminal)?;
    let interrupt = Interrupt::catch(stop.clone(), terminal)?;
    let mut test = RangeTest::new(stop);
    match run.trainer.fit_with(run.train.clone(), &run.fit, &mut [&mut test]) {
        // That is what the test looks for.
        Err(error) if error.kind() == ErrorKind::NonFinite => {}
        done => drop(done?),
    }
    if interrupt.status().is_some() {
        return Ok(interrupt.status());
    }
    let rate = test.suggestion()?;
    terminal.report(&test.table());
    make_folder_of(page)?;
    write_rates(page, test.points(), rate)?;
    terminal.line(format_args!("start with a learning rate of {rate:.1e}; curve in `{}`", page.display()));
    Ok(None)
}

/// Announcement of a run, for `--dry-run`.
fn plan(run: &PreparedRun) -> String {
    let (rows, size, done) = (run.train.len(), run.fit.batch_size, run.done.map_or(0, |(epochs, _)| epochs));
    let steps = if run.fit.drop_remainder { rows / size } else { rows.div_ceil(size) };
    let epochs = run.fit.epochs.saturating_sub(done);
    format!(
        "dry run: {} of {} would be trained, {} in all; nothing was written",
        counted(epochs, "epoch"),
        counted(thousands(steps), "step"),
        thousands(epochs.saturating_mul(steps as u64))
    )
}

fn prepare(
    args: &TrainArgs,
    files: &Files,
    settings: SettingsFile,
    chosen: Vec<Info>,
    terminal: &Terminal,
    group: &Group,
) -> Result<(PreparedRun, SettingsFile)> {
    let checkpoint = files.resumed.as_deref().map(|file| load(file, group)).transpose()?;
    let resumed_seed = checkpoint.as_ref().map(|checkpoint| checkpoint.progress.seed);
    let seed = settings.training.seed.or(resumed_seed).unwrap_or(0);
    let model = settings.build_model(seed)?;
    if !terminal.is_quiet() {
        summary::show_before_run(&model, terminal);
    }
    let compile = settings.compile(&model, seed)?;
    let losses = compile.losses.clone();
    check_throttles(&args.throttle, chosen.len())?;
    let limits = args.memory.or(settings.training.memory.as_ref());
    limits.check(&chosen)?;
    let shown_limits = limits.clone();
    let split = match &args.split_from {
        Some(file) => JsonLog::recorded_split(file, chosen.len())?,
        None => settings.training.split.clone(),
    };
    let trainer = Trainer::new(model, compile)?.processes(group.clone()).on(chosen).memory(limits).split(split);
    let trainer = trainer.placement(settings.training.placement.clone());
    let trainer = trainer.cpu_fallback(settings.training.cpu_fallback());
    let mut trainer = args.throttle.iter().fold(trainer, |trainer, (idx, factor)| trainer.throttle(*idx, *factor));
    // Their frozen weights can take a part of the memory.
    if matches!(settings.model, ModelSource::Language(_)) && !terminal.is_quiet() {
        summary::show_memory(&settings, &shown_limits, &trainer, terminal)?;
    }
    let resumed = checkpoint.as_ref().map(|checkpoint| checkpoint.progress.clone());
    let done = checkpoint.as_ref().map(|checkpoint| (checkpoint.progress.epoch, checkpoint.progress.step));
    if let Some(checkpoint) = checkpoint {
        trainer.resume(checkpoint)?;
    }
    let RunRows { train, validation, fold } = settings.split_data(settings.open_data(&trainer, seed)?, seed)?;
    if let Some(before) = resumed.filter(|_| settings.draws_rows()) {
        check_same_rows(&before, seed, train.as_ref())?;
    }
    let described = describe(&train, validation.as_ref(), files, terminal)?;
    trainer.check_run(train.as_ref(), validation.as_deref())?;
    let mut early_stopping = settings.training.early_stopping(validation.is_some())?;
    if let Some(stopping) = &mut early_stopping {
        stopping.on_begin(&trainer.reported(validation.is_some()))?;
    }
    if done.is_none() && settings.is_model_new() && !args.dry_run {
        trainer.adapt(train.clone())?;
    }
    let mut fit = settings.training.fit(train.as_ref())?;
    (fit.validation, fit.trace) = (validation, files.trace.clone());
    let adapters = settings.training.adapters.clone();
    let run = PreparedRun {
        trainer,
        train,
        fold,
        fit,
        losses,
        seed,
        early_stopping,
        objective: None,
        adapters,
        done,
        described,
    };
    Ok((run, settings))
}

/// Reads a saved run. Several processes get it from the first, on whose machine it is.
fn load(file: &Path, group: &Group) -> Result<Checkpoint> {
    if group.is_alone() {
        return Checkpoint::load(file);
    }
    let own = if group.is_first() { Checkpoint::bytes_of(file)? } else { Vec::new() };
    let mut all = pollster::block_on(group.all_gather(own))?;
    Checkpoint::read(&all.swap_remove(0), file)
}

/// Shows what the data are, and keeps it where the run keeps a record.
fn describe(
    train: &Arc<dyn Dataset>,
    validation: Option<&Arc<dyn Dataset>>,
    files: &Files,
    terminal: &Terminal,
) -> Result<Vec<Description>> {
    if terminal.is_quiet() && !files.has_folder() {
        return Ok(Vec::new());
    }
    let validation = validation.map(|data| ("validation data", data));
    let named = [("training data", train)].into_iter().chain(validation);
    let mut described = named.map(|(name, data)| Description::of(name, data)).collect::<Result<Vec<_>>>()?;
    // What was noted on a table or folder of which both are parts is told once.
    if let [train, validation] = &mut described[..]
        && train.notes == validation.notes
    {
        validation.notes.clear();
    }
    if !terminal.is_quiet() {
        described.iter().for_each(|description| terminal.report(description));
    }
    Ok(described)
}

/// Refuses to resume with other validation rows: some of them were trained on.
fn check_same_rows(before: &Progress, now_seed: u64, train: &dyn Dataset) -> Result<()> {
    let (&Progress { seed, rows, data, .. }, now_rows) = (before, train.len());
    let who = "resuming with a fraction for `validation` or with a `fold`";
    if (seed, rows) == (now_seed, now_rows) {
        return match data.zip(train.digest()) {
            Some((data, now)) if data != now => Err(Error::setting(
                who,
                "needs the data of before, but their rows, or the order of these, have changed: rows that were trained on would be \
                 validated on",
                "resume with the data of before, start a new run, or validate on data of their own",
            )),
            _ => Ok(()),
        };
    }
    Err(Error::setting(
        who,
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
fn finished(run: &PreparedRun) -> Option<String> {
    let progress = run.trainer.progress();
    if progress.is_finished {
        return Some(format!("nothing to do: early stopping ended this run after epoch {}", progress.epoch));
    }
    (progress.epoch >= run.fit.epochs)
        .then(|| format!("nothing to do: {} done; `--epochs` asks for more", counted(progress.epoch, "epoch")))
}

fn open_adapters(run: &mut PreparedRun, args: &TrainArgs, terminal: &Terminal) -> Result<()> {
    run.trainer.open(&run.fit, run.train.len())?;
    if terminal.is_quiet() {
        return Ok(());
    }
    for (rank, names) in run.trainer.adapters_of_processes().iter().enumerate() {
        terminal.line(format_args!("process {rank}: {}", names.join(", ")));
    }
    let (infos, bytes): (Vec<_>, Vec<_>) =
        run.trainer.open_adapters().into_iter().map(|adapter| (adapter.info, adapter.bytes)).unzip();
    terminal.report(&in_use(&infos, &bytes));
    if let Some(chosen) = run.trainer.chosen_placement() {
        terminal.report(&chosen);
    }
    let has_choice = adapters::has_choice(args.adapters.adapters.as_deref(), run.adapters.as_deref());
    if !has_choice && infos.iter().all(|info| info.kind == Kind::Cpu) {
        terminal.line("this machine has no GPU, or no driver for it: see `manyhands adapters`");
    }
    if let Some((epochs, steps)) = run.done {
        let all = counted(run.fit.epochs, "epoch");
        terminal.line(format_args!("resuming after step {steps}, with {epochs} of {all} done"));
    }
    Ok(())
}

/// The logs of a run.
struct Logs {
    json: Vec<JsonLog>,
    csv: Option<CsvLog>,
    tensorboard: Option<TensorBoard>,
}

impl Logs {
    fn open(run: &PreparedRun, args: &TrainArgs, files: &Files) -> Result<Self> {
        if !run.trainer.group().is_first() {
            return Ok(Self { json: Vec::new(), csv: None, tensorboard: None });
        }
        let json = files.json.iter().map(|path| match run.done {
            Some((epoch, step)) => JsonLog::resume(path, epoch, step),
            None => JsonLog::create(path),
        });
        let csv = files.csv.iter().map(|path| match run.done {
            Some((epoch, _)) => CsvLog::resume(path, epoch),
            None => CsvLog::create(path),
        });
        let tensorboard = args.tensorboard.iter().map(|folder| match run.done {
            Some((epoch, _)) => Ok(TensorBoard::resume(folder, epoch)),
            None => TensorBoard::create(folder, files.existing),
        });
        // First the one that changes nothing before the first epoch.
        let tensorboard = tensorboard.collect::<Result<Vec<_>>>()?.pop();
        Ok(Self { tensorboard, json: json.collect::<Result<_>>()?, csv: csv.collect::<Result<Vec<_>>>()?.pop() })
    }
}

impl PreparedRun {
    /// Loss and metrics of a model that does not look at its inputs, on the rows by which the run is judged.
    fn baseline(&self, history: &History) -> Option<Baseline> {
        let model = self.trainer.model();
        let compile = Compile::for_evaluation(model.evaluation().filter(|_| !history.is_interrupted)?);
        let of = |rows| Baseline::of(model, &compile, rows, self.fit.batch_size);
        match &self.fit.validation {
            Some(validation) => of(validation).map(|baseline| baseline.prefixed("val_")),
            None if self.fit.class_weight.is_empty() => of(&self.train),
            None => of(&(Arc::new(ClassWeighted::new(self.train.clone(), self.fit.class_weight.clone()).ok()?) as _)),
        }
    }

    /// The number that chooses the best model.
    fn monitor(&self) -> Monitor {
        let of_stopping = self.early_stopping.as_ref().map(EarlyStopping::monitor);
        match self.objective.as_ref().or(of_stopping) {
            Some(monitor) => monitor.clone(),
            None => {
                let loss = if self.fit.validation.is_some() { "val_loss" } else { "loss" };
                Monitor::new(loss).mode(Mode::Min)
            }
        }
    }
}

fn fit(
    run: &mut PreparedRun,
    logs: &mut Logs,
    best: Option<&mut ModelCheckpoint>,
    progress: &mut ProgressDisplay<'_>,
    writing: Option<&mut impl Callback>,
) -> Result<History> {
    let mut callbacks: Vec<&mut dyn Callback> = Vec::new();
    // Early stopping comes first, so that its state in a checkpoint fits with any logs.
    if let Some(stopping) = &mut run.early_stopping {
        callbacks.push(stopping);
    }
    callbacks.push(progress);
    callbacks.extend(logs.json.iter_mut().map(|log| log as &mut dyn Callback));
    callbacks.extend(logs.csv.iter_mut().map(|log| log as &mut dyn Callback));
    callbacks.extend(logs.tensorboard.iter_mut().map(|log| log as &mut dyn Callback));
    callbacks.extend(best.map(|best| best as &mut dyn Callback));
    callbacks.extend(writing.map(|samples| samples as &mut dyn Callback));
    run.trainer.fit_with(run.train.clone(), &run.fit, &mut callbacks)
}

/// Values of the best weights, if early stopping restored weights of an earlier epoch than the last.
fn best_values(run: &mut PreparedRun, history: &History) -> Result<Option<Values>> {
    let (Some(stopping), Some(validation)) = (&run.early_stopping, &run.fit.validation) else { return Ok(None) };
    let last = history.epochs.last().and_then(|epoch| epoch.values.get(&stopping.monitor().name));
    let is_last_best = !run.trainer.progress().is_finished && last == stopping.best_value();
    if history.is_interrupted || is_last_best {
        return Ok(None);
    }
    let values = run.trainer.evaluate(validation.clone(), run.fit.batch_size)?;
    Ok(Some(values.prefixed("val_")))
}

fn report(
    run: &mut PreparedRun,
    files: &Files,
    terminal: &Terminal,
    history: &History,
    baseline: Option<&Baseline>,
) -> Result<()> {
    let best = best_values(run, history)?;
    if terminal.is_quiet() {
        return Ok(());
    }
    terminal.report(&history.time);
    if let Some(best) = best {
        let why = if run.trainer.progress().is_finished { "stopped early; " } else { "" };
        terminal.line(format_args!("{why}the best weights: {best}"));
    } else if let Some(last) = history.epochs.last() {
        terminal.line(format_args!("final: {}", last.values));
    }
    if let Some(baseline) = baseline {
        terminal.line(format_args!("baseline: {baseline}"));
    }
    let file = files.save.as_deref().unwrap_or(Path::new("")).display();
    let step = run.trainer.progress().step;
    if history.saved_step != Some(step) {
        // A warning has reported the reason and the contents of the file.
        terminal.line(format_args!("stopped after step {step}, which was not saved"));
    } else if history.is_interrupted {
        terminal.line(format_args!("stopped after step {step}; saved to `{file}`; continue with `--resume`"));
    } else {
        terminal.line(format_args!("saved to `{file}`"));
    }
    if let Some(trace) = &files.trace {
        terminal.line(format_args!("trace in `{}`; open it at https://ui.perfetto.dev", trace.display()));
    }
    Ok(())
}
