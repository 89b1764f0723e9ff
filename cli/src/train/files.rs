//! The files of a run of `train`: which it reads, which it writes, and which it must not replace.

use std::path::{Path, PathBuf};

use crate::run_folder::{RUNS, RunFolder};
use crate::settings::SettingsFile;
use crate::terminal::check_file;
use manyhands::processes::Group;
use manyhands::{Error, Existing, Result, SaveSettings};
use manyhands_engine::files::{self, FileKind};
use manyhands_engine::shown::shown;

use super::TrainArgs;

/// The files of a run.
pub(super) struct Files {
    /// Settings file that was named, or that of the resumed run.
    pub config: Option<PathBuf>,
    /// Folder of the run, if it has one. A numbered one is made when training begins.
    pub folder: Option<RunFolder>,
    pub is_numbered: bool,
    /// Checkpoint to save to; none before a numbered folder is made.
    pub save: Option<PathBuf>,
    /// Checkpoint to resume from.
    pub resumed: Option<PathBuf>,
    /// Logs of steps and epochs.
    pub json: Vec<PathBuf>,
    pub csv: Option<PathBuf>,
    pub trace: Option<PathBuf>,
    pub existing: Existing,
}

impl Files {
    pub fn of(args: &TrainArgs, settings: &SettingsFile) -> Self {
        // A flag overrides the settings.
        let folder = args.run.as_ref().or(settings.training.run.as_ref().filter(|_| args.save.is_none()));
        let folder = folder.map(RunFolder::new).or_else(|| args.latest());
        let named = args.resume.as_ref().and_then(Option::as_ref);
        let save = match &folder {
            Some(folder) => Some(folder.last()),
            None => args.save.as_ref().or(named).cloned(),
        };
        // A run that was killed before its first checkpoint begins again.
        let is_new = folder.as_ref().is_some_and(|folder| folder.settings().is_file() && !folder.last().exists());
        let begins_again = is_new && matches!(args.resume, Some(None));
        // Where there is no earlier run, an error names the folder in which it would be.
        let resumed = |file: &Option<PathBuf>| file.clone().or(save.clone()).unwrap_or_else(|| RUNS.into());
        Self {
            config: args.config_file(),
            resumed: args.resume.as_ref().filter(|_| !begins_again).map(resumed),
            is_numbered: args.is_numbered() && settings.training.run.is_none(),
            json: folder.iter().map(RunFolder::log).chain(args.json.clone()).collect(),
            csv: args.csv.clone(),
            trace: args.trace.clone(),
            existing: if args.overwrite || begins_again { Existing::Overwrite } else { Existing::Refuse },
            save,
            folder,
        }
    }

    /// In any process but the first, nothing is written.
    pub fn in_process(self, group: &Group) -> Self {
        if group.is_first() {
            return self;
        }
        Self { folder: None, is_numbered: false, json: Vec::new(), csv: None, trace: None, ..self }
    }

    /// Makes the folder of a run that has none yet, but is to have one.
    pub fn numbered(self) -> Result<Self> {
        if self.save.is_some() {
            return Ok(self);
        }
        let folder = RunFolder::make_next()?;
        let json = [folder.log()].into_iter().chain(self.json).collect();
        Ok(Self { save: Some(folder.last()), json, folder: Some(folder), ..self })
    }

    /// Whether the run has a folder, or gets one.
    pub fn has_folder(&self) -> bool {
        self.folder.is_some() || self.is_numbered
    }

    /// Removes the numbered folder of a run that could not begin.
    pub fn leave(&self) {
        if let Some(folder) = self.folder.as_ref().filter(|_| self.is_numbered) {
            folder.remove_empty();
        }
    }

    /// The checkpoint, and the steps after which it is saved.
    pub fn save_settings(&self, every_steps: Option<usize>) -> Option<SaveSettings> {
        let every_steps = every_steps.map_or(0, |steps| steps as u64);
        let save = self.save.as_ref().map(SaveSettings::new);
        save.map(|save| save.every_steps(every_steps).existing(self.existing))
    }

    /// All that are written.
    pub fn written(&self) -> Vec<PathBuf> {
        let of_run = self.folder.iter().flat_map(RunFolder::files);
        let mut written: Vec<PathBuf> = of_run.chain(self.json.clone()).chain(self.save.clone()).collect();
        // The folder's log and checkpoint are among the logs and the checkpoint, too.
        written.sort();
        written.dedup();
        written.extend([&self.csv, &self.trace].into_iter().flatten().cloned());
        written
    }

    /// Refuses to overwrite the run's inputs, or to resume what is not there.
    pub fn check(&self, args: &TrainArgs, settings: &SettingsFile) -> Result<()> {
        let written = self.written();
        let mut read = settings.files();
        // A run folder's own settings are read before they are written again.
        let own = self.folder.as_ref().map(RunFolder::settings);
        read.extend(self.config.iter().filter(|file| Some(*file) != own.as_ref()).cloned());
        read.extend(args.split_from.clone());
        let is_saved_to = |file: &Path| self.save.as_ref().is_some_and(|save| files::are_same(file, save));
        read.extend(self.resumed.iter().filter(|file| !is_saved_to(file)).cloned());
        let read: Vec<&Path> = read.iter().map(PathBuf::as_path).collect();
        files::check_apart(&written.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &read)?;
        written.iter().try_for_each(|file| check_file(file))?;
        if self.resumed.is_some() && self.save.is_none() {
            let of = args.config.as_ref().map_or("", |_| " with these data, model and losses");
            return Err(Error::setting(
                "`--resume`",
                format!("needs an earlier run{of}, but `{RUNS}` holds none"),
                "name its folder (`--run runs/first --resume`) or its checkpoint (`--resume FILE`)",
            ));
        }
        Ok(())
    }

    /// Refuses to overwrite files of an older run.
    pub fn check_existing(&self) -> Result<()> {
        if let Some(folder) = &self.folder {
            folder.check(self.existing, self.resumed.as_deref())?;
        }
        let of_folder = self.folder.as_ref().map(RunFolder::log);
        let mut json = self.json.iter().filter(|file| Some(*file) != of_folder.as_ref());
        // The logs of a resumed run are continued; its trace is new.
        let of_logs = if self.resumed.is_some() { Existing::Overwrite } else { self.existing };
        json.try_for_each(|file| check_new(file, FileKind::JsonLog, of_logs))?;
        self.csv.iter().try_for_each(|file| check_new(file, FileKind::CsvLog, of_logs))?;
        self.trace.iter().try_for_each(|file| check_new(file, FileKind::Trace, self.existing))?;
        let save = self.save.iter().map(|save| SaveSettings::new(save).existing(self.existing));
        save.into_iter().try_for_each(|save| save.check(self.resumed.as_deref()))
    }
}

/// Refuses to replace what an earlier run wrote, and files of another kind.
fn check_new(file: &Path, kind: FileKind, existing: Existing) -> Result<()> {
    kind.check(file)?;
    let is_new = !file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
    if is_new || existing == Existing::Overwrite {
        return Ok(());
    }
    Err(Error::setting(
        format!("the file `{}`", shown(file)),
        "needs to be a new file, but is there already",
        "replace it (`--overwrite`), or name another one",
    ))
}
