//! The folder of a run: settings, log, checkpoints, results, report.

use std::path::{Path, PathBuf};

use crate::internals::shown;
use crate::{Error, Existing, Result};

/// A folder that holds one run.
#[derive(Clone, Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
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

    /// Facts for the report.
    pub fn results(&self) -> PathBuf {
        self.0.join("results.json")
    }

    pub fn report(&self) -> PathBuf {
        self.0.join("report.html")
    }

    /// All files that a run writes here.
    pub fn files(&self) -> [PathBuf; 6] {
        [self.settings(), self.log(), self.last(), self.best(), self.results(), self.report()]
    }

    /// Refuses a folder that holds another run, and a file in its place.
    pub fn check(&self, existing: Existing, resumed: Option<&Path>) -> Result<()> {
        let who = format!("the run folder `{}`", shown(&self.0));
        if self.0.exists() && !self.0.is_dir() {
            return Err(Error::setting(who, "needs to be a folder, but is a file", "name a folder"));
        }
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

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
