//! Saves a run: its state is copied, and written while training continues, once it is known to be good.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StepLog;
use super::checkpoint::Frozen;
use crate::error::{Error, Result};
use crate::files::{self, FileKind, Lock};
use crate::runtime::threads::{self, Background};
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

/// The file to which a run is saved.
///
/// A state is written when the next step finds a finite loss and gradient with it, or at the end of a run without doubt: so
/// a bad state never replaces a good one.
#[derive(Debug)]
pub(super) struct Saver {
    settings: SaveSettings,
    _lock: Lock,
    /// Training steps of the state in the file, if it is of this run.
    saved_step: Option<u64>,
    /// A copy that is not yet known to be good.
    pending: Option<Frozen>,
    writing: Option<(u64, Background<Result<()>>)>,
    /// Whether the last step, or validation, was not finite.
    is_doubtful: bool,
}

impl Saver {
    /// Opens a file for a run at a step; `own` is a file that the run was resumed from or saved to before.
    ///
    /// # Errors
    /// If another run saves there, or the file holds something that must not be replaced.
    pub(super) fn open(settings: &SaveSettings, own: Option<&Path>, step: u64) -> Result<Self> {
        let lock = Lock::take(&settings.path)?;
        settings.check(own)?;
        let is_own = own.is_some_and(|own| files::are_same(own, &settings.path));
        Ok(Self {
            settings: settings.clone(),
            _lock: lock,
            saved_step: is_own.then_some(step),
            pending: None,
            writing: None,
            is_doubtful: false,
        })
    }

    /// Path and interval of checkpoints.
    pub(super) fn settings(&self) -> &SaveSettings {
        &self.settings
    }

    /// Marks a value that was not finite: states are not saved until a later step is finite.
    pub(super) fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// Whether the current state is not known to be good.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Learns from a step whether the state before it was good, and begins to write it if so.
    ///
    /// # Errors
    /// If what was written before could not be.
    pub(super) fn learn(&mut self, log: &StepLog) -> Result<()> {
        if !log.is_applied {
            return Ok(());
        }
        self.is_doubtful = !log.values.get("loss").is_some_and(f64::is_finite);
        if self.is_doubtful {
            return Ok(());
        }
        match self.pending.take_if(|frozen| frozen.step < log.step) {
            Some(frozen) => self.start(frozen),
            None => Ok(()),
        }
    }

    /// Waits until a copy can be made without holding two.
    ///
    /// # Errors
    /// If what was written before could not be.
    pub(super) fn make_room(&mut self) -> Result<()> {
        self.pending = None;
        self.wait()
    }

    /// Takes a copy of the state, to be written when it is known to be good.
    ///
    /// # Errors
    /// If there is none, since a value is not finite.
    pub(super) fn take(&mut self, frozen: Result<Frozen>) -> Result<()> {
        self.is_doubtful |= frozen.is_err();
        self.pending = Some(frozen?);
        Ok(())
    }

    /// Writes a pending state, and waits for it. Returns the step of the file, if it is of this run.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn finish(&mut self) -> Result<Option<u64>> {
        let pending = self.pending.take();
        if !self.is_doubtful
            && let Some(frozen) = pending
        {
            self.start(frozen)?;
        }
        self.wait()?;
        if self.is_doubtful {
            let path = shown(&self.settings.path);
            match self.saved_step {
                Some(step) => log::warn!(
                    "the last steps were not finite, and were not saved: `{path}` holds the run after step {step}\n  \
                     help: resume from there (`--resume`) with a lower learning rate, or with `clip_norm`"
                ),
                None => log::warn!(
                    "nothing was saved to `{path}`: values stopped being finite before the first save\n  \
                     help: start again with a lower learning rate, or with `clip_norm`; `--save-every` saves within epochs"
                ),
            }
        }
        Ok(self.saved_step)
    }

    fn start(&mut self, frozen: Frozen) -> Result<()> {
        self.wait()?;
        let (step, frozen, path) = (frozen.step, Arc::new(frozen), self.settings.path.clone());
        let copy = frozen.clone();
        match threads::background("manyhands save", move || copy.write(&path)) {
            Ok(writing) => self.writing = Some((step, writing)),
            Err(error) => {
                log::debug!("there is no thread to save in: {error}");
                frozen.write(&self.settings.path)?;
                self.saved_step = Some(step);
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let Some((step, writing)) = self.writing.take() else { return Ok(()) };
        let panicked = || Err(Error::writing(&self.settings.path, std::io::Error::other("its thread panicked")));
        writing.wait().unwrap_or_else(panicked)?;
        self.saved_step = Some(step);
        Ok(())
    }
}
