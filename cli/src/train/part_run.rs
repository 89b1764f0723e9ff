//! A run as a part of a command with several: a trial of a sweep, a fold.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::report::results::{How, Results};
use crate::run_folder::RunFolder;
use crate::settings::SettingsFile;
use crate::terminal::{Terminal, make_folder_of};
use crate::{AdapterChoice, MemoryChoice};
use manyhands::Result;
use manyhands::adapters::{Info, MemoryLimits};
use manyhands::callbacks::Monitor;
use manyhands::processes::Group;

use super::{Files, TrainArgs, finished, open_adapters, prepare, train};

/// A run that is a part of a command with several: a trial of a sweep, a fold.
pub struct PartRun {
    pub settings: SettingsFile,
    pub folder: PathBuf,
    /// The last epoch.
    pub epochs: u64,
    /// Names of the adapters, as `--adapters` takes them, where the command chose them, and the adapters themselves.
    pub adapters: (Option<String>, Vec<Info>),
    pub limits: MemoryLimits,
    /// Factors by which adapters are slowed down.
    pub throttles: Vec<(usize, f64)>,
    pub data_folder: Option<PathBuf>,
    /// The number that chooses the best model, if it was named.
    pub objective: Option<Monitor>,
    /// Ends the run after the current step.
    pub stop: Arc<AtomicBool>,
}

impl PartRun {
    /// Arguments of `train` for this run, and the words of the command that does the same.
    fn arguments(&self) -> (TrainArgs, Vec<String>) {
        let is_begun = RunFolder::new(&self.folder).last().is_file();
        let args = TrainArgs {
            run: Some(self.folder.clone()),
            epochs: usize::try_from(self.epochs).ok(),
            adapters: AdapterChoice { adapters: self.adapters.0.clone() },
            memory: MemoryChoice { memory: Some(self.limits.clone()).filter(|limits| !limits.is_empty()) },
            throttle: self.throttles.clone(),
            data_folder: self.data_folder.clone(),
            resume: is_begun.then_some(None),
            // A run that was killed in its first epoch left files, but nothing to resume from.
            overwrite: !is_begun,
            ..TrainArgs::default()
        };
        let folder = self.folder.to_string_lossy().into_owned();
        let settings = RunFolder::new(&self.folder).settings().to_string_lossy().into_owned();
        (args, ["manyhands".into(), "train".into(), settings, "--run".into(), folder].into())
    }

    /// Trains, or goes on with a run that was ended.
    pub fn train(mut self, terminal: &Terminal) -> Result<()> {
        let (args, arguments) = self.arguments();
        self.settings.training.epochs = self.epochs;
        let files = Files::of(&args, &self.settings);
        files.check(&args, &self.settings)?;
        files.check_existing()?;
        files.written().iter().try_for_each(|file| make_folder_of(file))?;
        let (mut run, settings) = prepare(&args, &files, self.settings, self.adapters.1, terminal, &Group::alone())?;
        (run.fit.stop, run.objective) = (self.stop, self.objective);
        if finished(&run).is_some() {
            let results = RunFolder::new(&self.folder).results();
            let end = if results.is_file() { Results::read(&results)?.end } else { None };
            if end.is_some_and(|end| end.how != How::Interrupted) {
                return Ok(());
            }
            // It was killed between its last checkpoint and its results: these are written without another step.
            run.fit.epochs = run.fit.epochs.min(run.trainer.progress().epoch);
        }
        run.fit.save = files.save_settings(args.save_every);
        open_adapters(&mut run, &args, terminal)?;
        train(run, &settings, (&args, &files), &arguments, terminal)
    }

    /// Checks settings, data and model, and gives the number that chooses the best model. Writes nothing.
    pub fn check(mut self, terminal: &Terminal) -> Result<Monitor> {
        let args = TrainArgs { dry_run: true, resume: None, ..self.arguments().0 };
        self.settings.training.epochs = self.epochs;
        let files = Files::of(&args, &self.settings);
        let (mut run, _) = prepare(&args, &files, self.settings, self.adapters.1, terminal, &Group::alone())?;
        run.objective = self.objective;
        let mut monitor = run.monitor();
        monitor.resolve(&run.trainer.reported(run.fit.validation.is_some()))?;
        Ok(monitor)
    }
}
