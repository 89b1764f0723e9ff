//! The arguments of `train`: those of other commands, and what they mean for settings and files.

#[cfg(feature = "text")]
use std::path::Path;
use std::path::PathBuf;

use manyhands::{Error, Result, SaveSettings, SplitMode};
use manyhands_engine::files as written;

use super::TrainArgs;
use super::files::Files;
use crate::run_folder::RunFolder;
use crate::settings::{OTHER_RATES, OTHER_RATES_HELP, SettingChange, SettingsFile};
#[cfg(feature = "text")]
use crate::{AdapterChoice, MemoryChoice};

impl TrainArgs {
    /// Arguments of a run that is begun from another command.
    #[cfg(feature = "text")]
    pub fn new(
        run: Option<&Path>,
        overwrite: bool,
        dry_run: bool,
        adapters: &AdapterChoice,
        memory: &MemoryChoice,
    ) -> Self {
        let (adapters, memory) = (adapters.clone(), memory.clone());
        Self { run: run.map(Path::to_owned), overwrite, dry_run, adapters, memory, ..Self::default() }
    }

    /// Arguments of a run in a folder that goes on.
    #[cfg(feature = "text")]
    pub fn resumed(run: &Path, epochs: Option<usize>, adapters: &AdapterChoice, memory: &MemoryChoice) -> Self {
        let (adapters, memory) = (adapters.clone(), memory.clone());
        Self { run: Some(run.to_owned()), resume: Some(None), epochs, adapters, memory, ..Self::default() }
    }

    /// The settings file: the one that is named, or that of the folder of the resumed run.
    pub(super) fn config_file(&self) -> Option<PathBuf> {
        let own = || self.resumed_folder().map(|folder| folder.settings()).filter(|file| file.is_file());
        self.config.clone().or_else(own)
    }

    /// The folder of the run that goes on, as far as flags name it.
    fn resumed_folder(&self) -> Option<RunFolder> {
        let named = self.run.as_ref().filter(|_| matches!(self.resume, Some(None))).map(RunFolder::new);
        named.or_else(|| self.latest())
    }

    /// Whether no file and no folder is named to which the run goes.
    pub(super) fn is_numbered(&self) -> bool {
        let is_search = self.find_learning_rate.is_some() || self.find_batch;
        self.run.is_none() && self.save.is_none() && !is_search && !matches!(self.resume, Some(Some(_)))
    }

    /// The numbered run that goes on, since none is named.
    pub(super) fn latest(&self) -> Option<RunFolder> {
        if !self.is_numbered() || self.resume.is_none() {
            return None;
        }
        let settings = self.config.as_deref().map(written::read_text).transpose();
        // A file that can't be read is refused where it is read for itself.
        RunFolder::latest(settings.ok()?.as_deref())
    }

    pub(super) fn save_settings(&self, files: &Files) -> Option<SaveSettings> {
        let every_steps = self.save_every.map_or(0, |steps| steps as u64);
        let save = files.save.as_ref().map(SaveSettings::new);
        save.map(|save| save.every_steps(every_steps).existing(files.existing))
    }

    /// Changes of the settings by flags.
    pub(super) fn changes(&self, seed: u64) -> Vec<SettingChange> {
        let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let split = self.split.as_ref().and_then(|split| match split {
            SplitMode::Learned => Some("learned".to_owned()),
            SplitMode::Even => Some("even".to_owned()),
            SplitMode::Fixed(parts) => Some(parts.iter().map(f64::to_string).collect::<Vec<_>>().join(":")),
            SplitMode::Recorded(_) => None,
        });
        let training = [
            ("epochs", self.epochs.map(|epochs| epochs.to_string())),
            ("batch_size", self.batch_size.map(|rows| rows.to_string())),
            ("seed", Some(seed.to_string())),
            ("split", split.map(|split| text(&split))),
            ("adapters", self.adapters.adapters.as_deref().map(text)),
            ("memory", self.memory.memory.as_ref().map(|limits| text(&limits.to_string()))),
        ];
        let training = training.into_iter().filter_map(|(key, value)| Some(("training", key, value?)));
        // The shortest text that means the same, with a point or an exponent.
        let rate = self.learning_rate.map(|rate| ("optimizer", "learning_rate", format!("{rate:?}")));
        training.chain(rate).collect()
    }

    /// The settings, overridden by the flags.
    pub(super) fn settings(&self) -> Result<SettingsFile> {
        if let Some(folder) = self.resumed_folder() {
            folder.check_files()?;
        }
        let mut settings = SettingsFile::of(self.config_file().as_deref())?;
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
