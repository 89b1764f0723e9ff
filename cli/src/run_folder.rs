//! The folder of a run: settings, log, checkpoints, results, report.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use manyhands::{Error, Existing, Model, Result};
use manyhands_engine::{files, shown::shown};

/// Folder of the runs that are numbered, since their folders were not named.
pub const RUNS: &str = "runs";

/// A folder that holds one run.
#[derive(Clone, Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Makes the folder of the next run: its number is above all others. Of two that begin at once, each gets its own.
    pub fn make_next() -> Result<Self> {
        let runs = Path::new(RUNS);
        std::fs::create_dir_all(runs).map_err(|error| Error::writing(runs, error))?;
        let mut number = numbers().last().map_or(1, |last| last.saturating_add(1));
        loop {
            let path = runs.join(number.to_string());
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                // Another run was faster, or it is a file.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < u32::MAX => number += 1,
                Err(error) => return Err(Error::writing(path, error)),
            }
        }
    }

    /// The numbered run that was begun last, of those that were saved; where settings are given, of those that trained the same
    /// model on the same data.
    pub fn latest(settings: Option<&str>) -> Option<Self> {
        let wanted = settings.map(what_is_trained);
        let of_run =
            |run: &Self| files::read_text(&run.settings()).is_ok_and(|own| wanted == Some(what_is_trained(&own)));
        let runs = numbers().into_iter().rev().map(|number| Self(Path::new(RUNS).join(number.to_string())));
        runs.into_iter().find(|run| run.last().is_file() && (settings.is_none() || of_run(run)))
    }

    /// Removes the folder, and that around it, if they are empty.
    pub fn remove_empty(&self) {
        if std::fs::remove_dir(&self.0).is_ok() {
            // It holds other runs, or is gone, too.
            drop(std::fs::remove_dir(RUNS));
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Its last part: `first` of `runs/first`.
    pub fn name(&self) -> String {
        let whole = self.0.canonicalize().unwrap_or_else(|_| self.0.clone());
        whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
    }

    /// The settings as the run has them.
    pub fn settings(&self) -> PathBuf {
        self.0.join("run.toml")
    }

    /// A line of JSON for each step and epoch.
    pub fn log(&self) -> PathBuf {
        self.0.join("log.jsonl")
    }

    /// The checkpoint to resume from.
    pub fn last(&self) -> PathBuf {
        self.0.join("last.safetensors")
    }

    /// The best model.
    pub fn best(&self) -> PathBuf {
        self.0.join("best.safetensors")
    }

    /// The best model, or the last where the run chose none; `None` if it has saved nothing.
    pub fn model(&self) -> Option<PathBuf> {
        [self.best(), self.last()].into_iter().find(|file| file.is_file())
    }

    /// The error of a folder without a model, by what it holds.
    fn has_no_model(&self) -> Error {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut runs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        runs.retain(|path| path.is_dir() && Self::new(path).model().is_some());
        runs.sort();
        let (problem, help) = match runs.first() {
            _ if self.adapter().is_dir() => (
                "needs a model of its own, but holds the adapter of a language model",
                "`manyhands generate` writes with it, `manyhands merge` makes a whole model of it".to_owned(),
            ),
            Some(first) => {
                ("needs to be one run, but holds several", format!("name one of them, such as `{}`", shown(first)))
            }
            None if self.settings().is_file() => (
                "needs a model, but the run has saved none",
                format!("it ended before it saved one: `manyhands train {}` begins it again", shown(&self.settings())),
            ),
            None => (
                "needs to be the folder of a run, but has no `best.safetensors` and no `last.safetensors`",
                "name the model's file, or the folder of a run, such as `runs/1`".to_owned(),
            ),
        };
        Error::setting(format!("the folder `{}`", shown(&self.0)), problem, help)
    }

    /// The LoRA adapter of a language model of others.
    pub fn adapter(&self) -> PathBuf {
        self.0.join("adapter")
    }

    /// Facts for the report.
    pub fn results(&self) -> PathBuf {
        self.0.join("results.json")
    }

    /// Folder of a fold of this run, counted from 1.
    pub fn fold(&self, number: usize) -> Self {
        Self(self.0.join(format!("fold-{number}")))
    }

    /// Folders of the folds that a run of several has.
    pub fn folds(&self) -> Vec<Self> {
        (1..).map(|number| self.fold(number)).take_while(|fold| fold.results().is_file()).collect()
    }

    pub fn report(&self) -> PathBuf {
        self.0.join("report.html")
    }

    /// All files that a run writes here.
    pub fn files(&self) -> [PathBuf; 6] {
        [self.settings(), self.log(), self.last(), self.best(), self.results(), self.report()]
    }

    /// Refuses a file of the run that is a link to somewhere else, a pipe or a device. A folder may come from a stranger: such a link
    /// would show another file on the page, or have it written; a pipe is waited for without end.
    pub fn check_files(&self) -> Result<()> {
        let is_inside = |file: &Path| {
            let target = file.canonicalize().ok();
            let folder = self.0.canonicalize().ok();
            target.is_some() && target.as_deref().and_then(Path::parent) == folder.as_deref()
        };
        for file in self.files() {
            let problem = if file.is_symlink() && !is_inside(&file) {
                "needs to be a file in its folder, but is a link to somewhere else"
            } else if file.exists() && !file.is_file() {
                "needs to be a file, but is none"
            } else {
                continue;
            };
            let who = format!("`{}` of a run", shown(&file));
            return Err(Error::setting(who, problem, "put the file itself there, or name another folder"));
        }
        Ok(())
    }

    /// Refuses a folder that holds another run, and a file in its place.
    pub fn check(&self, existing: Existing, resumed: Option<&Path>) -> Result<()> {
        let who = format!("the run folder `{}`", shown(&self.0));
        if self.0.exists() && !self.0.is_dir() {
            return Err(Error::setting(who, "needs to be a folder, but is a file", "name a folder"));
        }
        self.check_files()?;
        let is_own = resumed.is_some_and(|file| file == self.last());
        let older = self.files().into_iter().find(|file| file.exists());
        match older {
            Some(older) if existing == Existing::Refuse && !is_own => Err(Error::setting(
                who,
                format!(
                    "needs to be a new one, or that of the resumed run, but holds `{}` of an earlier run",
                    name(&older)
                ),
                "continue that run (`--resume`), replace it (`--overwrite`), or name another folder (`--run`)",
            )),
            _ => Ok(()),
        }
    }
}

/// Reads a model's path from the command line: the folder of a run stands for its best model, or for its last where it chose none.
pub fn model_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| RunFolder::new(&path).model().unwrap_or(path))
}

/// Loads a model from a path that [`model_path`] read: a folder that is left there has none.
pub fn load_model(path: &Path) -> Result<Model> {
    if path.is_dir() { Err(RunFolder::new(path).has_no_model()) } else { Model::load(path) }
}

/// The tables of settings without which a checkpoint is another model's.
fn what_is_trained(settings: &str) -> Option<toml::Table> {
    let is_kept = |key: &str| ["data", "model", "loss", "losses"].contains(&key);
    let table: toml::Table = settings.parse().ok()?;
    Some(table.into_iter().filter(|(key, _)| is_kept(key)).collect())
}

/// The numbers of the numbered runs, the smallest first.
fn numbers() -> Vec<u32> {
    let entries = std::fs::read_dir(RUNS).into_iter().flatten().flatten();
    let number = |name: &str| name.parse::<u32>().ok().filter(|number| number.to_string() == name);
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut numbers: Vec<u32> = folders.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
