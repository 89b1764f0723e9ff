//! Files of a run in its folder, beside log and checkpoint: settings, the best model, results, the report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use manyhands::callbacks::{ModelCheckpoint, Monitor};
use manyhands::data::{Dataset, Description};
use manyhands::{Error, ErrorKind, Fit, History, Loss, Model, Result, Trainer};
use manyhands_engine::files::{self, FileKind};

use super::adapters::kind;
use super::baseline::Baseline;
use super::report::importance::importance;
use super::report::judge::judge;
use super::report::results::{AdapterFacts, End, Failure, FoldScore, How, Results, Sample};
use super::report::sample::changed;
use super::report::{best_of_log, write_page};
use super::run_folder::RunFolder;

/// The record of a run while it goes on.
pub struct RunRecord {
    folder: RunFolder,
    results: Results,
    best: ModelCheckpoint,
}

/// A run as it begins.
pub struct RunFacts<'a> {
    /// Text of its settings.
    pub settings: String,
    /// Arguments of the command.
    pub arguments: &'a [String],
    pub data_folder: Option<&'a Path>,
    pub trainer: &'a Trainer,
    pub train: &'a Arc<dyn Dataset>,
    pub fit: &'a Fit,
    pub seed: u64,
    /// The number that chooses the best model.
    pub monitor: Monitor,
    pub described: &'a [Description],
    pub is_resumed: bool,
}

impl RunRecord {
    /// Writes settings and facts. The run's adapters and log are open.
    pub fn begin(folder: RunFolder, facts: &RunFacts<'_>) -> Result<Self> {
        let &RunFacts { trainer, fit, ref monitor, .. } = facts;
        files::write(&folder.settings(), FileKind::RunSettings, |out| out.write_all(facts.settings.as_bytes()))?;
        let adapters = trainer.open_adapters().into_iter().map(|adapter| AdapterFacts {
            name: adapter.info.name,
            kind: kind(adapter.info.kind).into(),
            backend: adapter.info.backend,
            driver: adapter.info.driver,
            bytes: adapter.bytes,
        });
        let results = Results {
            command: facts.arguments.to_vec(),
            data_folder: facts.data_folder.map(|folder| folder.to_string_lossy().into_owned()),
            seed: facts.seed,
            epochs: fit.epochs,
            batch_size: fit.batch_size,
            adapters: adapters.collect(),
            parameters: trainer.model().n_parameters(),
            layers: trainer.model().summary(),
            data: facts.described.iter().map(|data| format!("{data:.100}")).collect(),
            changed: changed(facts.train, fit, facts.seed)?,
            monitor: monitor.name.clone(),
            mode: monitor.mode,
            ..Results::begin()
        };
        let earlier = Results::read(&folder.results()).ok();
        let samples = earlier.as_ref().filter(|_| facts.is_resumed).map_or_else(Vec::new, |it| it.samples.clone());
        // Where it was chosen by another number, or in the other direction, any other epoch is better.
        let monitored_after = match earlier.filter(|_| facts.is_resumed) {
            Some(earlier) if earlier.was_chosen_by(monitor) => earlier.monitored_after,
            Some(_) => trainer.progress().epoch,
            None => 0,
        };
        let results = Results { monitored_after, samples, ..results };
        results.write(&folder.results())?;
        let mut best = ModelCheckpoint::new(folder.best(), monitor.clone());
        if facts.is_resumed
            && folder.best().is_file()
            && let Some(value) = best_of_log(&folder, monitored_after, monitor)?
        {
            best = best.initial_value_threshold(value);
        }
        Ok(Self { folder, results, best })
    }

    /// Keeps texts that the model wrote.
    #[cfg(feature = "text")]
    pub fn keep_samples(&mut self, samples: Vec<Sample>) {
        self.results.samples.extend(samples);
    }

    /// The callback that keeps the best model.
    pub fn best(&mut self) -> &mut ModelCheckpoint {
        &mut self.best
    }

    /// Writes results and report of a run that an error ended: what it did until then. The error itself is what the
    /// user gets.
    pub fn give_up(&mut self, error: &Error) {
        let may_pass = matches!(error.kind(), ErrorKind::File | ErrorKind::Adapter | ErrorKind::AdapterLost);
        self.results.failure = Some(Failure { text: error.to_string(), may_pass });
        let written = self.results.write(&self.folder.results()).and_then(|()| write_page(&self.folder));
        if let Err(error) = written {
            log::debug!("no report: {error}");
        }
    }

    /// Judges the best model, and writes results and report. Gives the report's path.
    pub fn end(
        mut self,
        trainer: &mut Trainer,
        (fit, fold): (&Fit, Option<&Arc<dyn Dataset>>),
        losses: &[Loss],
        history: &History,
        baseline: Option<Baseline>,
    ) -> Result<PathBuf> {
        let how = match (history.is_interrupted, trainer.progress().is_finished) {
            (true, _) => How::Interrupted,
            (_, true) => How::StoppedEarly,
            _ => How::Finished,
        };
        let step = trainer.progress().step;
        let (time, judgements) = (history.time.clone(), Vec::new());
        let mut end = End { how, step, time, best: None, baseline, rows: 0, judgements, importance: None, fold: None };
        // Whoever interrupts a run does not want to wait.
        let judged = [fit.validation.as_ref(), fold].map(|rows| rows.filter(|_| how != How::Interrupted));
        let has_best = self.best.best_value().is_some() && self.folder.best().is_file();
        if has_best && judged.iter().any(Option::is_some) {
            trainer.set_weights(Model::load(self.folder.best())?.weights)?;
        }
        let [validation, fold] = judged;
        if let Some(fold) = fold {
            let values = trainer.evaluate(fold.clone(), fit.batch_size)?;
            end.fold = Some(FoldScore { rows: fold.len(), values });
        }
        if let Some(validation) = validation {
            end.rows = validation.len();
            end.best = Some(trainer.evaluate(validation.clone(), fit.batch_size)?.prefixed("val_"));
            end.judgements = judge(trainer, losses, validation, fit.batch_size)?;
            end.importance = importance(trainer, validation, fit.batch_size, self.results.seed)?;
        }
        self.results.end = Some(end);
        self.results.write(&self.folder.results())?;
        write_page(&self.folder)?;
        Ok(self.folder.report())
    }
}
