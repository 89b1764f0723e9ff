//! `results.json` of a run folder: facts of the run, and the judgement of its model.

use std::path::Path;

use crate::baseline::Baseline;
use jiff::Timestamp;
use manyhands::callbacks::{Mode, Monitor};
use manyhands::logs::{TimeSummary, Values};
use manyhands::misread;
use manyhands::{Error, Result};
use manyhands_engine::files::{self, FileKind};
use manyhands_engine::shown::shown;
use serde::{Deserialize, Serialize};

use super::importance::Importance;
use super::judge::Judgement;
use super::sample::RowPreview;

/// Version of the file's form.
const FORM: u32 = 1;

/// Facts of a run that its log does not tell.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// Version of this form.
    pub manyhands_run: u32,
    /// Version of manyhands.
    pub version: String,
    /// System and processor.
    pub system: String,
    /// Time at which the run was begun, or resumed: seconds since 1970.
    pub started: f64,
    /// Arguments of the command.
    pub command: Vec<String>,
    /// Folder at which the data's paths start, if it was named.
    pub data_folder: Option<String>,
    pub seed: u64,
    /// Epochs that were asked for.
    pub epochs: u64,
    pub batch_size: usize,
    pub adapters: Vec<AdapterFacts>,
    pub parameters: usize,
    /// The layers, as a table of text.
    pub layers: String,
    /// The data, in words.
    pub data: Vec<String>,
    /// The number that chooses the best model.
    pub monitor: String,
    /// Direction in which it improves.
    pub mode: Option<Mode>,
    /// Epochs that another number chose the best of, before the run was resumed.
    pub monitored_after: u64,
    /// Direction as older versions wrote it, by the number's name.
    #[serde(skip_serializing)]
    pub larger_is_better: Option<bool>,
    /// `None` while it runs, and if it was killed.
    pub end: Option<End>,
    /// The error that ended it.
    pub failure: Option<Failure>,
    /// Texts that a language model wrote after its epochs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// Training images as they were changed at random.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<RowPreview>,
}

/// A text that a language model wrote after an epoch, counted from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub epoch: u64,
    pub text: String,
}

/// The error that ended a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub text: String,
    /// Whether it may be gone when the run is resumed: a full disk, a lost adapter.
    pub may_pass: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AdapterFacts {
    pub name: String,
    pub kind: String,
    pub backend: String,
    pub driver: String,
    /// Bytes that the model takes.
    pub bytes: u64,
}

/// The end of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct End {
    pub how: How,
    pub step: u64,
    /// Times since it was begun, or resumed.
    pub time: TimeSummary,
    /// Loss and metrics of the best model.
    pub best: Option<Values>,
    /// Loss and metrics of a model that does not look at its inputs.
    #[serde(default)]
    pub baseline: Option<Baseline>,
    /// Rows of the validation data.
    pub rows: usize,
    /// Judgement of each output of the best model, by the validation data.
    pub judgements: Vec<Judgement>,
    /// Importance of the columns for the best model, by the validation data, where they are those of a table.
    #[serde(default)]
    pub importance: Option<Importance>,
    /// Score of the best model on the fold that was held out, if one was.
    #[serde(default)]
    pub fold: Option<FoldScore>,
}

/// Loss and metrics on the rows of a fold.
#[derive(Debug, Serialize, Deserialize)]
pub struct FoldScore {
    pub rows: usize,
    pub values: Values,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Finished,
    StoppedEarly,
    Interrupted,
}

impl Results {
    /// Facts of this program, for a run that begins now.
    pub fn begin() -> Self {
        Self {
            manyhands_run: FORM,
            version: env!("CARGO_PKG_VERSION").into(),
            system: format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH),
            started: manyhands_engine::runtime::seconds_since_1970(),
            ..Self::default()
        }
    }

    /// Direction by which an older version chose the best model.
    fn older_mode(&self) -> Option<Mode> {
        self.larger_is_better.map(|is_larger| if is_larger { Mode::Max } else { Mode::Min })
    }

    /// Whether an older version kept the model of the worst epoch as the best.
    pub fn has_kept_the_worst(&self) -> bool {
        self.older_mode().is_some_and(|mode| self.mode.is_some_and(|known| known != mode))
    }

    /// Whether this number chose the best model, in the same direction.
    pub fn was_chosen_by(&self, monitor: &Monitor) -> bool {
        let mode = self.mode.or(self.older_mode());
        self.monitor == monitor.name && mode.is_none_or(|mode| monitor.mode == Some(mode))
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        files::write(path, FileKind::RunResults, |out| serde_json::to_writer_pretty(out, self).map_err(Into::into))
    }

    pub fn read(path: &Path) -> Result<Self> {
        let text = files::read_text(path)?;
        let help = "a report needs a folder that `manyhands train --run` wrote";
        let results: Self = misread::read_json(&text, &path.display().to_string(), help)?;
        match results.manyhands_run {
            FORM => Ok(results),
            other => {
                let problem = format!("needs to be of form {FORM}, but is of form {other}");
                Err(Error::setting(format!("`{}`", shown(path)), problem, help))
            }
        }
    }
}

/// A moment as `2026-11-22 23:38 UTC`.
pub fn moment(seconds: f64) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "seconds since 1970")]
    let at = Timestamp::from_second(seconds as i64).unwrap_or_default();
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        // As `date -u -d @…` gives them.
        let moments = [(0.0, "1970-01-01 00:00 UTC"), (951_782_399.9, "2000-02-28 23:59 UTC")];
        let more = [(951_827_696.0, "2000-02-29 12:34 UTC"), (4_107_542_400.0, "2100-03-01 00:00 UTC")];
        for (seconds, text) in moments.into_iter().chain(more) {
            assert_eq!(moment(seconds), text);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        Results { seed: 7, ..Results::begin() }.write(&path).unwrap();
        let read = Results::read(&path).unwrap();
        assert_eq!((read.seed, read.version.as_str(), read.end.is_none()), (7, env!("CARGO_PKG_VERSION"), true));
        std::fs::write(&path, "{\"manyhands_run\": 9}").unwrap();
        assert!(Results::read(&path).unwrap_err().to_string().contains("needs to be of form 1, but is of form 9"));
    }
}
