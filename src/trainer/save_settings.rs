//! Settings of saving: path and interval of checkpoints.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{self, FileKind};
use crate::shown;

/// Path and interval of checkpoints; one is always saved after an epoch and at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveSettings {
    /// The file; it is replaced atomically.
    pub path: PathBuf,
    /// Number of steps after which it is also saved; 0 for none.
    pub every_steps: u64,
    /// Treatment of a file of another run.
    pub existing: Existing,
}

/// Treatment of a file to which another run was saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Error before training: a run is saved to a new file, or to the one it was resumed from.
    #[default]
    Refuse,
    /// The first checkpoint replaces the file.
    Overwrite,
}

impl SaveSettings {
    /// Saves to this file after each epoch; an older run's file is not replaced.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), every_steps: 0, existing: Existing::Refuse }
    }

    /// Saves also after each such number of steps; 0 for none.
    #[must_use]
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.every_steps = steps;
        self
    }

    /// Sets the treatment of a file of another run.
    #[must_use]
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Checks that a run can be saved there. `own` is the file it was resumed from, which it may replace.
    ///
    /// # Errors
    /// If the file holds another run, or something else than a model, or is a pipe.
    pub fn check(&self, own: Option<&Path>) -> Result<()> {
        FileKind::Model.check(&self.path)?;
        let who = || format!("the file `{}`", shown(&self.path));
        if files::is_pipe(&self.path) {
            return Err(Error::setting(who(), "needs to be a file that can be replaced, but is a pipe", "name a file"));
        }
        let is_new = !self.path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
        let is_own = || own.is_some_and(|own| files::are_same(own, &self.path));
        if is_new || self.existing == Existing::Overwrite || is_own() {
            return Ok(());
        }
        Err(Error::setting(
            who(),
            "needs to be a new file, or that of the resumed run, but holds an earlier run or model",
            "continue that run (`--resume`), replace it (`--overwrite`), or save to another file (`--save`)",
        ))
    }
}
