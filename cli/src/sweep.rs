//! `manyhands sweep`: trials of settings that are drawn at random, in rounds after which the worse ones end.

mod record;
mod rounds;
mod space;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Args;
use manyhands::adapters::{Info, Kind, MemoryLimits};
use manyhands::callbacks::{Mode, Monitor};
use manyhands::{Error, ErrorKind, Placement, Result};
use manyhands_engine::files::Lock;
use manyhands_engine::runtime::{STACK_BYTES, panic_text};
use manyhands_engine::shown::{counted, shown};

use self::record::{Asked, SeenTrial, TrialRow, TrialState};
use self::rounds::Rounds;
use self::space::Vary;
use super::interrupt::Interrupt;
use super::report::text::number;
use super::run_folder::RunFolder;
use super::settings::{ModeSetting, SettingsFile};
use super::terminal::{Terminal, check_file, make_folder_of};
use super::train::{PartRun, check_throttles, parse_throttle};
use super::{AdapterChoice, MemoryChoice, adapters, at_least_one};

/// Folder of sweeps, if no other is named.
const SWEEPS: &str = "sweeps";
/// Settings that rounds and folders decide.
const DECIDED: [(&str, &str); 2] = [
    ("training.epochs", "rounds end bad trials early; `--epochs` sets the epochs of the others"),
    ("training.run", "each trial has a folder of its own; `--folder` names the one around them"),
];

#[derive(Args)]
pub struct SweepArgs {
    /// Settings file; without one, the network of the digits.
    config: Option<PathBuf>,
    /// A setting and its values: `optimizer.learning_rate=1e-4..1e-2,log`, `batch_size=32|64|128`. Repeatable.
    ///
    /// Numbers are drawn between two ends, both included; with `,log`, each factor is as likely as any other. If both
    /// ends are integers, integers are drawn. Lists are separated by `|`. The name is that in the settings file, such as
    /// `model.layers.2.units`, by place from 0 or by name; the table may be left out.
    #[arg(long, value_name = "KEY=VALUES", required = true, value_parser = Vary::parse)]
    vary: Vec<Vary>,
    /// Number of trials. More than before add to an earlier sweep.
    #[arg(long, default_value_t = 20, value_parser = at_least_one)]
    trials: usize,
    /// Epochs of a trial that is trained to its end [default: those of the settings].
    #[arg(long, value_parser = at_least_one)]
    epochs: Option<usize>,
    /// Number of an epoch by which trials are compared [default: that of early stopping, else `val_loss`, else `loss`].
    #[arg(long, value_name = "NAME")]
    objective: Option<String>,
    /// Direction in which the objective improves: `min`, `max`, or `auto`, as its loss or metric says.
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, requires = "objective")]
    mode: ModeSetting,
    /// Successive halving: after each round keeps 1 in FACTOR trials and gives them FACTOR times the epochs. 1 keeps all.
    #[arg(long, value_name = "FACTOR", default_value_t = 3, value_parser = at_least_one)]
    reduction_factor: usize,
    /// Least epochs of the first round.
    #[arg(long, value_name = "EPOCHS", default_value_t = 1, value_parser = at_least_one)]
    first_epochs: usize,
    /// Seed of the draws. Weights and shuffling have that of the settings.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder of the sweep: a table, and the run folder of each trial [default: `sweeps/` and the settings' name]. An
    /// unfinished sweep there goes on.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Train one trial after the other, each on all adapters, in place of one trial on each adapter.
    #[arg(long)]
    one_by_one: bool,
    /// Slow an adapter down, to try what a sweep on others would take: `1=4` makes the second one take 4 times as long.
    /// Repeatable.
    #[arg(long, value_name = "IDX=FACTOR", value_parser = parse_throttle)]
    throttle: Vec<(usize, f64)>,
    #[command(flatten)]
    adapters: AdapterChoice,
    #[command(flatten)]
    memory: MemoryChoice,
    /// Resolves relative data paths against this folder. Default: the current one.
    #[arg(long, value_name = "FOLDER")]
    data_folder: Option<PathBuf>,
    /// Check settings and data, show trials and rounds, and end. Writes nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Adapters that train one trial at a time.
struct TrialWorker {
    /// Their names, as `--adapters` takes them.
    named: String,
    infos: Vec<Info>,
    limits: MemoryLimits,
    /// Factors by which they are slowed down, by their places among these.
    throttles: Vec<(usize, f64)>,
    /// Whether an adapter is gone: others take its trials.
    is_lost: AtomicBool,
}

/// A sweep and what has become of its trials.
struct Sweep<'a> {
    args: &'a SweepArgs,
    terminal: &'a Terminal,
    folder: PathBuf,
    asked: Asked,
    vary: Vec<Vary>,
    /// The values of each trial.
    drawn: Vec<Vec<String>>,
    /// The settings of each trial.
    texts: Vec<String>,
    workers: Vec<TrialWorker>,
    /// Ends all trials after their current steps.
    stop: Arc<AtomicBool>,
    /// Causes why trials failed before they began.
    failed: Mutex<BTreeMap<usize, String>>,
}

/// Draws trials, trains them, and names the best. Returns the exit status for a signal, if one came.
pub fn run(args: &SweepArgs, terminal: &Terminal) -> Result<Option<i32>> {
    let base = SettingsFile::of(args.config.as_deref())?;
    let vary = resolved(&args.vary, base.text())?;
    let drawn = space::draw(&vary, args.trials, args.seed);
    let texts = drawn.iter().map(|values| settings_of(&vary, values, base.text())).collect::<Result<Vec<_>>>()?;
    let workers = workers(args, &base)?;
    let stop = Arc::new(AtomicBool::new(false));
    let epochs = args.epochs.map_or(base.training.epochs, |epochs| epochs as u64);
    let objective = args.objective.as_ref().map(|name| args.mode.monitor(name));
    let settings: String = base.text().parse::<toml::Table>().map(|table| table.to_string()).unwrap_or_default();
    let folder = args.folder.clone().unwrap_or_else(|| default_folder(args));
    let mut sweep = Sweep {
        args,
        terminal,
        folder,
        asked: Asked {
            settings,
            vary: args.vary.iter().map(|vary| vary.written().to_owned()).collect(),
            seed: args.seed,
            epochs,
            reduction_factor: args.reduction_factor,
            first_epochs: args.first_epochs as u64,
            objective: String::new(),
            mode: Mode::Min,
        },
        vary,
        drawn,
        texts,
        workers,
        stop: stop.clone(),
        failed: Mutex::default(),
    };
    // What is wrong with all trials is told once, before the first.
    let monitor = sweep.trial(base, PathBuf::new(), epochs, 0, objective).check(&terminal.silent())?;
    sweep.asked.mode = monitor.mode.unwrap_or(Mode::Min);
    sweep.asked.objective = monitor.name;
    let rounds = Rounds::new(epochs, sweep.texts.len(), args.reduction_factor, args.first_epochs as u64);
    sweep.check_folder()?;
    if args.dry_run {
        sweep.show_plan(&rounds)?;
        return Ok(None);
    }
    make_folder_of(&sweep.json())?;
    let _lock = Lock::take(&sweep.json())?;
    let interrupt = Interrupt::catch(stop, terminal)?;
    sweep.train(&rounds)?;
    if interrupt.status().is_some() {
        terminal.line("interrupted; the same command goes on");
        return Ok(interrupt.status());
    }
    sweep.show_end()?;
    Ok(None)
}

/// `sweeps/run` for `run.toml`.
fn default_folder(args: &SweepArgs) -> PathBuf {
    let name = args.config.as_ref().and_then(|file| file.file_stem());
    PathBuf::from(SWEEPS).join(name.unwrap_or_else(|| "digits".as_ref()))
}

/// The settings to vary, found in their tables.
fn resolved(vary: &[Vary], text: &str) -> Result<Vec<Vary>> {
    let resolved = vary.iter().map(|vary| vary.resolved(text)).collect::<Result<Vec<_>>>()?;
    for (at, vary) in resolved.iter().enumerate() {
        let who = format!("`--vary {}`", vary.written());
        if let Some((name, help)) = DECIDED.iter().find(|(name, _)| *name == vary.name()) {
            return Err(Error::setting(who, format!("needs another setting: the sweep itself sets `{name}`"), *help));
        }
        if resolved[..at].iter().any(|other| other.name() == vary.name()) {
            let problem = format!("needs each setting once, but `{}` is varied twice", vary.name());
            return Err(Error::setting(who, problem, "name all values in one `--vary`"));
        }
    }
    Ok(resolved)
}

/// `batch_size = 32, learning_rate = 0.01`: the varied settings of a trial.
fn assignments(vary: &[Vary], values: &[String]) -> String {
    let each = vary.iter().zip(values).map(|(vary, value)| format!("{} = {value}", vary.name()));
    each.collect::<Vec<_>>().join(", ")
}

/// The settings of a trial; all of it is checked before any trial begins.
fn settings_of(vary: &[Vary], values: &[String], text: &str) -> Result<String> {
    let text = vary.iter().zip(values).try_fold(text.to_owned(), |text, (vary, value)| vary.applied(&text, value))?;
    SettingsFile::parse(&text, "the settings").map_err(|error| {
        let who = format!("a trial with {}: {}", shown(&assignments(vary, values)), error.who());
        Error::setting(who, error.problem(), error.help())
    })?;
    Ok(text)
}

/// One worker for each adapter, or one for all.
fn workers(args: &SweepArgs, base: &SettingsFile) -> Result<Vec<TrialWorker>> {
    let training = &base.training;
    let chosen = adapters::choose(args.adapters.adapters.as_deref(), training.adapters.as_deref())?;
    let limits = args.memory.or(training.memory.as_ref());
    limits.check(&chosen)?;
    check_throttles(&args.throttle, chosen.len())?;
    let named = |info: &Info| if info.kind == Kind::Cpu { "cpu".to_owned() } else { info.index.to_string() };
    // Stages name adapters by their places among all.
    if args.one_by_one || training.placement != Placement::Replicas {
        let named = chosen.iter().map(named).collect::<Vec<_>>().join(",");
        let (throttles, is_lost) = (args.throttle.clone(), AtomicBool::new(false));
        return Ok(vec![TrialWorker { named, infos: chosen, limits, throttles, is_lost }]);
    }
    let of_one = |(idx, info): (usize, &Info)| TrialWorker {
        named: named(info),
        infos: vec![info.clone()],
        limits: limits.alone(idx, &chosen),
        throttles: args.throttle.iter().filter(|(of, _)| *of == idx).map(|(_, factor)| (0, *factor)).collect(),
        is_lost: AtomicBool::new(false),
    };
    Ok(chosen.iter().enumerate().map(of_one).collect())
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sweep<'_> {
    fn json(&self) -> PathBuf {
        self.folder.join("sweep.json")
    }

    fn csv(&self) -> PathBuf {
        self.folder.join("sweep.csv")
    }

    /// The run folder of a trial, counted from 0.
    fn folder_of(&self, trial: usize) -> RunFolder {
        RunFolder::new(self.folder.join(format!("trial-{:03}", trial + 1)))
    }

    fn trial(
        &self,
        settings: SettingsFile,
        folder: PathBuf,
        epochs: u64,
        worker: usize,
        objective: Option<Monitor>,
    ) -> PartRun {
        let TrialWorker { named, infos, limits, throttles, .. } = &self.workers[worker];
        let mut settings = settings;
        settings.start_paths_at(self.args.data_folder.as_deref());
        // Those of the sweep are shared out among its workers.
        settings.training.memory = None;
        PartRun {
            settings,
            folder,
            epochs,
            adapters: (Some(named.clone()), infos.clone()),
            limits: limits.clone(),
            throttles: throttles.clone(),
            data_folder: self.args.data_folder.clone(),
            objective,
            stop: self.stop.clone(),
        }
    }

    /// Refuses a folder with anything else than this sweep.
    fn check_folder(&self) -> Result<()> {
        let who = format!("the folder `{}`", shown(&self.folder));
        if self.folder.exists() && !self.folder.is_dir() {
            return Err(Error::setting(who, "needs to be a folder, but is a file", "name another one by `--folder`"));
        }
        [self.json(), self.csv()].iter().try_for_each(|file| check_file(file))?;
        let help = "name another one by `--folder`, or move this one away";
        match Asked::of_earlier(&self.json())? {
            Some(earlier) => match &earlier.differences(&self.asked)[..] {
                [] => Ok(()),
                differing => {
                    let problem = format!(
                        "needs to be new, or that of this sweep, but holds a sweep that differs in {}",
                        differing.join(", ")
                    );
                    Err(Error::setting(who, problem, help))
                }
            },
            None if self.folder_of(0).path().exists() => {
                Err(Error::setting(who, "needs to be new, or that of this sweep, but holds something else", help))
            }
            None => Ok(()),
        }
    }

    /// Trains all rounds, or what is left of them.
    fn train(&self, rounds: &Rounds) -> Result<()> {
        self.record()?;
        let mut trials: Vec<usize> = (0..self.texts.len()).collect();
        let n_rounds = rounds.epochs.len();
        for (round, epochs) in (1..).zip(&rounds.epochs) {
            let mut left = VecDeque::new();
            for trial in &trials {
                let seen = SeenTrial::of(&self.folder_of(*trial))?;
                if seen.is_none_or(|seen| seen.failure().is_none() && !seen.is_done(*epochs)) {
                    left.push_back(*trial);
                }
            }
            self.say(format_args!(
                "round {round} of {n_rounds}: {} up to epoch {epochs}{}",
                counted(trials.len(), "trial"),
                if left.len() < trials.len() { format!(", {} left to train", left.len()) } else { String::new() }
            ));
            self.train_round(left, *epochs)?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            trials = self.best_of(&trials, *epochs)?;
            trials.truncate(rounds.kept(trials.len()));
        }
        Ok(())
    }

    /// The trials of a round that did not fail, best first.
    fn best_of(&self, trials: &[usize], epochs: u64) -> Result<Vec<usize>> {
        let mut values = Vec::new();
        for trial in trials {
            let seen = SeenTrial::of(&self.folder_of(*trial))?.filter(|seen| seen.failure().is_none());
            let Some(seen) = seen.filter(|_| !hold(&self.failed).contains_key(trial)) else { continue };
            match seen.best(epochs, &self.asked) {
                Some((_, value)) => values.push((self.asked.mode.sign() * value, *trial)),
                None => {
                    let cause = format!("`{}` is no finite number after any epoch", self.asked.objective);
                    hold(&self.failed).insert(*trial, cause);
                }
            }
        }
        values.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        Ok(values.into_iter().map(|(_, trial)| trial).collect())
    }

    /// Trains trials up to an epoch; each worker takes the next one when it is free.
    #[allow(clippy::disallowed_methods, reason = "the command is no part of a page; each worker waits for its adapter")]
    fn train_round(&self, trials: VecDeque<usize>, epochs: u64) -> Result<()> {
        let queue = Mutex::new(trials);
        let failed: Vec<Error> = std::thread::scope(|scope| {
            let start = |worker: usize| {
                let thread = std::thread::Builder::new().name(format!("worker{worker}")).stack_size(STACK_BYTES);
                let queue = &queue;
                thread.spawn_scoped(scope, move || self.work(worker, queue, epochs))
            };
            let started: Vec<_> = (0..self.workers.len()).map(start).collect();
            let ended = started.into_iter().map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| Err(panicked(&*panic))),
                Err(error) => Err(Error::adapter("a worker", format!("gets no thread: {error}"), "end other programs")),
            });
            ended.filter_map(Result::err).collect()
        });
        let is_left = !hold(&queue).is_empty() && !self.stop.load(Ordering::Relaxed);
        // Trials that a lost adapter left were taken by others, if there were any.
        let is_fatal = |error: &Error| is_left || !is_of_adapter(error);
        failed.into_iter().find(is_fatal).map_or(Ok(()), Err)
    }

    /// Takes trial after trial, until none is left.
    fn work(&self, worker: usize, queue: &Mutex<VecDeque<usize>>, epochs: u64) -> Result<()> {
        if self.workers[worker].is_lost.load(Ordering::Relaxed) {
            return Err(Error::adapter("an adapter", "was lost before", "start the same command again"));
        }
        while !self.stop.load(Ordering::Relaxed) {
            let Some(trial) = hold(queue).pop_front() else { break };
            match self.train_one(trial, worker, epochs) {
                Ok(()) => self.tell(trial, worker)?,
                Err(error) if is_of_adapter(&error) => {
                    hold(queue).push_front(trial);
                    self.workers[worker].is_lost.store(true, Ordering::Relaxed);
                    self.terminal.note(format_args!("warning: trial {} goes to another adapter: {error}", trial + 1));
                    return Err(error);
                }
                Err(error) if error.kind() == ErrorKind::File => {
                    self.stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                Err(error) => {
                    hold(&self.failed).insert(trial, error.to_string());
                    self.tell(trial, worker)?;
                }
            }
            self.record()?;
        }
        Ok(())
    }

    fn train_one(&self, trial: usize, worker: usize, epochs: u64) -> Result<()> {
        let settings = SettingsFile::parse(&self.texts[trial], &format!("the settings of trial {}", trial + 1))?;
        let objective = Monitor::new(self.asked.objective.as_str()).mode(self.asked.mode);
        let run = self.trial(settings, self.folder_of(trial).path().to_owned(), epochs, worker, Some(objective));
        let terminal = self.terminal.silent();
        panic::catch_unwind(AssertUnwindSafe(|| run.train(&terminal))).unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    /// Says how a trial ended.
    fn tell(&self, trial: usize, worker: usize) -> Result<()> {
        let row = self.row(trial)?;
        let TrialWorker { infos, .. } = &self.workers[worker];
        let names: Vec<&str> = infos.iter().map(|info| info.name.as_str()).collect();
        let how = match (&row.cause, row.value) {
            (Some(cause), _) => format!("failed: {}", cause.lines().next().unwrap_or_default()),
            (None, Some(value)) => {
                let epochs = counted(row.epochs, "epoch");
                format!("{} {}, {epochs}, on {}", self.asked.objective, number(value), names.join(" + "))
            }
            (None, None) => "ended without a result".into(),
        };
        self.say(format_args!("trial {}: {how}  ({})", trial + 1, assignments(&self.vary, &self.drawn[trial])));
        Ok(())
    }

    fn say(&self, text: impl std::fmt::Display) {
        if !self.terminal.is_quiet() {
            self.terminal.line(text);
        }
    }

    fn row(&self, trial: usize) -> Result<TrialRow> {
        let folder = self.folder_of(trial);
        let value = |value: &String| {
            let table = format!("it = {value}").parse::<toml::Table>().ok();
            let value = table.and_then(|table| serde_json::to_value(table.get("it")).ok());
            value.unwrap_or_default()
        };
        let settings = self.vary.iter().zip(&self.drawn[trial]).map(|(vary, drawn)| (vary.name(), value(drawn)));
        let mut row =
            TrialRow::of((trial + 1, &folder), SeenTrial::of(&folder)?.as_ref(), &self.asked, settings.collect());
        if let Some(cause) = hold(&self.failed).get(&trial) {
            (row.state, row.cause) = (TrialState::Failed, Some(cause.clone()));
        }
        Ok(row)
    }

    /// All trials, best first.
    fn rows(&self) -> Result<Vec<TrialRow>> {
        let mut rows = (0..self.texts.len()).map(|trial| self.row(trial)).collect::<Result<Vec<_>>>()?;
        record::sort(&mut rows, &self.asked);
        Ok(rows)
    }

    /// Writes down what has become of the trials.
    fn record(&self) -> Result<()> {
        // One worker at a time, so that no older state is written over a newer one.
        static WRITING: Mutex<()> = Mutex::new(());
        let _one = hold(&WRITING);
        record::write(&self.json(), &self.csv(), &self.asked, &self.rows()?)
    }

    fn show_plan(&self, rounds: &Rounds) -> Result<()> {
        self.terminal.report(&record::table(&self.asked, &self.rows()?));
        let trials = rounds.trials(self.texts.len()).zip(&rounds.epochs);
        let told: Vec<String> = trials.map(|(trials, epochs)| format!("{trials} up to epoch {epochs}")).collect();
        let at_once = self.workers.len();
        self.terminal.line(format_args!(
            "dry run: trials by round: {}; {at_once} at a time, compared by `{}`; nothing was written",
            told.join(", "),
            self.asked.objective
        ));
        Ok(())
    }

    /// Shows all trials, and how to go on with the best.
    fn show_end(&self) -> Result<()> {
        self.record()?;
        let rows = self.rows()?;
        self.terminal.report(&record::table(&self.asked, &rows));
        if self.texts.len() < self.args.trials {
            self.say(format_args!("there are only {} combinations of these values", self.texts.len()));
        }
        let best = rows.first().filter(|row| row.state != TrialState::Failed);
        let Some((best, value)) = best.and_then(|row| Some((row, row.value?))) else {
            let cause = rows.iter().find_map(|row| row.cause.clone()).unwrap_or_default();
            let problem = format!(
                "needs one trial without an error, but all {} failed; the first: {}",
                rows.len(),
                cause.lines().next().unwrap_or_default()
            );
            let help = format!("`{}` has the causes", shown(&self.csv()));
            return Err(Error::setting("the sweep", problem, help));
        };
        let folder = RunFolder::new(&best.folder);
        self.terminal.line(format_args!(
            "best: trial {}, {} {}, in `{}`; predict with `manyhands predict {} DATA`",
            best.trial,
            self.asked.objective,
            number(value),
            folder.path().display(),
            folder.best().display()
        ));
        self.say(format_args!("all trials in `{}` and `{}`", self.csv().display(), self.json().display()));
        Ok(())
    }
}

/// Whether an error is that of an adapter, not of a trial: another adapter may do it.
fn is_of_adapter(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Adapter | ErrorKind::AdapterLost)
}

/// A panic as an error of the trial.
fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let problem = format!("ended with a panic: {}", panic_text(panic));
    Error::setting("the trial", problem, "this is a bug: please report it")
}
