//! Saves a run: its state is copied, and written while training continues, once it is known to be good.

use std::path::Path;
use std::sync::Arc;

use super::checkpoint::Frozen;
use super::{SaveSettings, StepLog};
use crate::error::{Error, Result};
use crate::files::{self, Lock};
use crate::runtime::threads::{self, Background};
use crate::shown;

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
