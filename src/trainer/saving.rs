//! The saving of a run: its file, and whether its weights are known to be good.

use std::path::PathBuf;

use super::checkpoint::Frozen;
use super::save_settings::SaveSettings;
use super::saver::Saver;
use super::{StepLog, Values};
use crate::error::Result;

/// The file of a trainer's run, if the run is saved.
#[derive(Default)]
pub(super) struct Saving {
    saver: Option<Saver>,
    /// The file that this run was resumed from, or saved to.
    own_file: Option<PathBuf>,
    /// The step at which it was resumed.
    resumed_step: Option<u64>,
    /// Whether a validation loss of this run was finite.
    was_validation_finite: bool,
}

impl Saving {
    /// Continues a run from a step, and from a file if it was read from one.
    pub(super) fn resume(&mut self, file: Option<PathBuf>, step: u64) {
        (self.own_file, self.resumed_step) = (file, Some(step));
    }

    /// The step at which the run was resumed.
    pub(super) fn resumed_step(&self) -> Option<u64> {
        self.resumed_step
    }

    /// Opens the file of a run that is to be saved from this step on, unless it is open.
    ///
    /// # Errors
    /// If another run is, or was, saved to it.
    pub(super) fn open(&mut self, settings: Option<&SaveSettings>, step: u64) -> Result<()> {
        if self.saver.as_ref().is_some_and(|saver| settings == Some(saver.settings())) {
            return Ok(());
        }
        self.saver = None;
        let open = |settings| Saver::open(settings, self.own_file.as_deref(), step);
        self.saver = settings.map(open).transpose()?;
        Ok(())
    }

    /// Whether the run is saved.
    pub(super) fn is_on(&self) -> bool {
        self.saver.is_some()
    }

    /// Marks a value that was not finite: states are not saved until a later step is finite.
    pub(super) fn doubt(&mut self) {
        if let Some(saver) = &mut self.saver {
            saver.doubt();
        }
    }

    /// Marks the weights as doubtful if the validation loss is no longer finite.
    pub(super) fn watch_validation(&mut self, values: &Values) {
        let Some(loss) = values.get("val_loss") else { return };
        if loss.is_finite() {
            self.was_validation_finite = true;
        } else if self.was_validation_finite {
            self.doubt();
        }
    }

    /// Whether the current state is not known to be good.
    pub(super) fn is_doubtful(&self) -> bool {
        self.saver.as_ref().is_some_and(Saver::is_doubtful)
    }

    /// Learns from a step whether the state before it was good, and begins to write it if so.
    ///
    /// # Errors
    /// If what was written before could not be.
    pub(super) fn learn(&mut self, log: &StepLog) -> Result<()> {
        self.saver.as_mut().map_or(Ok(()), |saver| saver.learn(log))
    }

    /// Waits until a copy can be made without holding two.
    ///
    /// # Errors
    /// If what was written before could not be.
    pub(super) fn make_room(&mut self) -> Result<()> {
        self.saver.as_mut().map_or(Ok(()), Saver::make_room)
    }

    /// Takes a copy of the state, to be written when it is known to be good.
    ///
    /// # Errors
    /// If there is none, since a value is not finite.
    pub(super) fn take(&mut self, frozen: Result<Frozen>) -> Result<()> {
        self.saver.as_mut().map_or(Ok(()), |saver| saver.take(frozen))
    }

    /// Waits until all is written, and releases the file. Returns the step that it holds.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn finish(&mut self) -> Result<Option<u64>> {
        let Some(mut saver) = self.saver.take() else { return Ok(None) };
        let finished = saver.finish();
        if !matches!(finished, Ok(None)) {
            self.own_file = Some(saver.settings().path.clone());
        }
        finished
    }
}
