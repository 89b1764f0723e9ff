//! The record of a sweep: what was asked for, and its trials, sorted by result; as JSON, CSV and a table.

use std::path::Path;

use crate::report::LoadedRun;
use crate::report::results::{Failure, How};
use crate::report::text::{duration, number};
use crate::run_folder::RunFolder;
use manyhands::callbacks::Mode;
use manyhands::misread;
use manyhands::{Error, Result};
use manyhands_engine::files::{self, FileKind};
use manyhands_engine::shown::shown;
use manyhands_engine::table::Table;
use serde::{Deserialize, Deserializer, Serialize};

/// Version of the file's form.
const FORM: u32 = 1;

/// All that decides the results of a sweep. A sweep that goes on must be asked for the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The settings file without the values that vary, comments left out.
    pub settings: String,
    /// The arguments of `--vary`.
    pub vary: Vec<String>,
    pub seed: u64,
    /// Epochs of a trial that is trained to its end.
    pub epochs: u64,
    /// One of so many trials goes on after a round.
    pub reduction_factor: usize,
    /// Least epochs of the first round.
    pub first_epochs: u64,
    /// The number by which trials are compared.
    pub objective: String,
    /// Direction in which it improves. Older files say whether larger is better.
    #[serde(alias = "larger_is_better", deserialize_with = "mode_or_larger")]
    pub mode: Mode,
}

/// A mode, or in older files whether larger is better.
fn mode_or_larger<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Mode, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ModeOrLarger {
        Mode(Mode),
        IsLarger(bool),
    }
    Ok(match ModeOrLarger::deserialize(deserializer)? {
        ModeOrLarger::Mode(mode) => mode,
        ModeOrLarger::IsLarger(true) => Mode::Max,
        ModeOrLarger::IsLarger(false) => Mode::Min,
    })
}

/// The file of a sweep.
#[derive(Serialize)]
struct SweepFile<'a> {
    manyhands_sweep: u32,
    version: &'a str,
    asked: &'a Asked,
    trials: &'a [TrialRow],
}

#[derive(Deserialize)]
struct Read {
    manyhands_sweep: u32,
    asked: Asked,
}

impl Asked {
    /// Reads what an earlier sweep was asked for; `None` if there was none.
    pub fn of_earlier(path: &Path) -> Result<Option<Self>> {
        if !path.is_file() {
            return Ok(None);
        }
        let text = files::read_text(path)?;
        let help = "name a new folder by `--folder`, or remove that file";
        let read: Read = misread::read_json(&text, &path.display().to_string(), help)?;
        match read.manyhands_sweep {
            FORM => Ok(Some(read.asked)),
            other => {
                let problem = format!("needs to be of form {FORM}, but is of form {other}");
                Err(Error::setting(format!("`{}`", shown(path)), problem, help))
            }
        }
    }

    /// Names of what differs from another sweep.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differs = [
            ("the settings file", self.settings != other.settings),
            ("`--vary`", self.vary != other.vary),
            ("`--seed`", self.seed != other.seed),
            ("`--epochs`", self.epochs != other.epochs),
            ("`--reduction-factor`", self.reduction_factor != other.reduction_factor),
            ("`--first-epochs`", self.first_epochs != other.first_epochs),
            ("the objective", (&self.objective, self.mode) != (&other.objective, other.mode)),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// Trained to its end.
    Finished,
    /// Trained up to the end of a round, after which others were better.
    Stopped,
    /// Interrupted, or under way.
    Unfinished,
    Waiting,
    Failed,
}

impl TrialState {
    fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Unfinished => "unfinished",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

/// A trial.
#[derive(Clone, Debug, Serialize)]
pub struct TrialRow {
    /// Its number, from 1.
    pub trial: usize,
    pub folder: String,
    pub state: TrialState,
    /// Epochs done.
    pub epochs: u64,
    /// The best value of the objective, and its epoch.
    pub value: Option<f64>,
    pub best_epoch: Option<u64>,
    /// Time of its epochs.
    pub seconds: f64,
    pub adapters: Vec<String>,
    /// The settings that vary.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// Cause of its failure.
    pub cause: Option<String>,
}

/// A trial as its folder tells it.
pub struct SeenTrial(LoadedRun);

impl SeenTrial {
    /// Reads a folder; `None` if nothing was begun there.
    pub fn of(folder: &RunFolder) -> Result<Option<Self>> {
        if folder.results().is_file() { LoadedRun::read(folder).map(|run| Some(Self(run))) } else { Ok(None) }
    }

    /// The error that ended it, if another try would end alike.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.results.failure.as_ref().filter(|failure| !failure.may_pass)
    }

    /// Whether it was trained up to an epoch, or ended by itself before.
    pub fn is_done(&self, epochs: u64) -> bool {
        let how = self.0.results.end.as_ref().map(|end| end.how);
        match how {
            Some(How::StoppedEarly) => true,
            Some(How::Finished) => self.0.results.epochs >= epochs,
            // It goes on only after a round that it has ended.
            _ => self.0.results.epochs > epochs,
        }
    }

    /// The best epoch up to one, and its value.
    pub fn best(&self, epochs: u64, asked: &Asked) -> Option<(u64, f64)> {
        self.0.log.best_of(0..=epochs, &asked.objective, asked.mode)
    }

    fn is_ended(&self) -> bool {
        self.is_done(self.0.results.epochs)
    }
}

impl TrialRow {
    /// A trial by what its folder tells.
    pub fn of(
        (trial, folder): (usize, &RunFolder),
        seen: Option<&SeenTrial>,
        asked: &Asked,
        settings: serde_json::Map<String, serde_json::Value>,
    ) -> Self {
        let best = seen.and_then(|seen| seen.best(u64::MAX, asked));
        let state = match seen {
            None => TrialState::Waiting,
            Some(seen) if seen.failure().is_some() => TrialState::Failed,
            Some(seen) if seen.is_done(asked.epochs) => TrialState::Finished,
            Some(seen) if seen.is_ended() => TrialState::Stopped,
            Some(_) => TrialState::Unfinished,
        };
        let adapters = seen.map(|seen| seen.0.results.adapters.iter().map(|adapter| adapter.name.clone()).collect());
        Self {
            trial,
            folder: folder.path().to_string_lossy().into_owned(),
            state,
            epochs: seen.map_or(0, |seen| seen.0.log.epochs.len() as u64),
            value: best.map(|(_, value)| value),
            best_epoch: best.map(|(epoch, _)| epoch),
            seconds: seen.map_or(0.0, |seen| seen.0.log.seconds()),
            adapters: adapters.unwrap_or_default(),
            settings,
            cause: seen.and_then(SeenTrial::failure).map(|failure| failure.text.clone()),
        }
    }
}

/// Sorts trials by their results; those that failed come last.
pub fn sort(rows: &mut [TrialRow], asked: &Asked) {
    let sign = asked.mode.sign();
    let value = |row: &TrialRow| row.value.map_or(f64::INFINITY, |value| sign * value);
    rows.sort_by(|a, b| {
        let is_failed = |row: &TrialRow| row.state == TrialState::Failed;
        is_failed(a).cmp(&is_failed(b)).then(value(a).total_cmp(&value(b))).then(a.trial.cmp(&b.trial))
    });
}

/// Writes the trials as JSON and as CSV.
pub fn write(json: &Path, csv: &Path, asked: &Asked, rows: &[TrialRow]) -> Result<()> {
    let written = SweepFile { manyhands_sweep: FORM, version: env!("CARGO_PKG_VERSION"), asked, trials: rows };
    files::write(json, FileKind::Sweep, |out| serde_json::to_writer_pretty(out, &written).map_err(Into::into))?;
    files::write(csv, FileKind::SweepTable, |out| {
        let mut table = csv::Writer::from_writer(out);
        table.write_record(header(asked, rows))?;
        rows.iter().try_for_each(|row| table.write_record(cells(row, f64::to_string, f64::to_string)))?;
        table.flush()
    })
}

/// The trials for a terminal.
pub fn table(asked: &Asked, rows: &[TrialRow]) -> Table {
    // What is the same everywhere, or fills a line, stands in the files.
    let is_failed = rows.iter().any(|row| row.cause.is_some());
    let left_out = ["folder", if is_failed { "" } else { "cause" }];
    let header = header(asked, rows);
    let shown: Vec<usize> = (0..header.len()).filter(|at| !left_out.contains(&header[*at].as_str())).collect();
    let is_number = |name: &str| ["trial", "epochs", "best_epoch", "seconds", asked.objective.as_str()].contains(&name);
    let numbers: Vec<usize> =
        shown.iter().enumerate().filter(|(_, at)| is_number(&header[**at])).map(|(place, _)| place).collect();
    let mut table = Table::new(shown.iter().map(|at| header[*at].replace('_', " "))).numbers(numbers);
    for row in rows {
        let cells = cells(row, |value| number(*value), |seconds| duration(*seconds));
        table.row(shown.iter().map(|at| cells[*at].lines().next().unwrap_or_default().to_owned()));
    }
    table
}

fn header(asked: &Asked, rows: &[TrialRow]) -> Vec<String> {
    let fixed = ["trial", "state", "epochs", &asked.objective, "best_epoch", "seconds", "adapters", "folder"];
    let varied = rows.first().into_iter().flat_map(|row| row.settings.keys().map(String::as_str));
    fixed.into_iter().chain(varied).chain(["cause"]).map(String::from).collect()
}

fn cells(row: &TrialRow, value: fn(&f64) -> String, time: fn(&f64) -> String) -> Vec<String> {
    let fixed = [
        row.trial.to_string(),
        row.state.name().to_owned(),
        row.epochs.to_string(),
        row.value.as_ref().map_or_else(String::new, value),
        row.best_epoch.map_or_else(String::new, |epoch| epoch.to_string()),
        time(&row.seconds),
        row.adapters.join(", "),
        row.folder.clone(),
    ];
    let varied = row.settings.values().map(|value| match value {
        serde_json::Value::String(text) => text.clone(),
        value => value.to_string(),
    });
    fixed.into_iter().chain(varied).chain([row.cause.clone().unwrap_or_default()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(trial: usize, state: TrialState, value: Option<f64>) -> TrialRow {
        TrialRow {
            trial,
            folder: format!("sweeps/a/trial-{trial}"),
            state,
            epochs: 3,
            value,
            best_epoch: value.map(|_| 2),
            seconds: 1.5,
            adapters: vec!["CPU".into()],
            settings: serde_json::Map::new(),
            cause: None,
        }
    }

    fn asked(mode: Mode) -> Asked {
        Asked {
            settings: String::new(),
            vary: vec!["a=1|2".into()],
            seed: 0,
            epochs: 9,
            reduction_factor: 3,
            first_epochs: 1,
            objective: "val_loss".into(),
            mode,
        }
    }

    #[test]
    fn trials_are_sorted_by_result_and_failures_come_last() {
        let values = [Some(0.5), None, Some(0.1), Some(0.5)];
        let mut rows: Vec<TrialRow> =
            (1..).zip(values).map(|(trial, value)| row(trial, TrialState::Stopped, value)).collect();
        rows.push(row(5, TrialState::Failed, Some(0.01)));
        let order = |rows: &[TrialRow]| rows.iter().map(|row| row.trial).collect::<Vec<_>>();
        sort(&mut rows, &asked(Mode::Min));
        assert_eq!(order(&rows), [3, 1, 4, 2, 5]);
        sort(&mut rows, &asked(Mode::Max));
        assert_eq!(order(&rows), [1, 4, 3, 2, 5]);
    }

    #[test]
    fn an_earlier_sweep_is_known_by_what_it_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let (json, csv) = (folder.path().join("sweep.json"), folder.path().join("sweep.csv"));
        assert_eq!(Asked::of_earlier(&json).unwrap(), None);
        write(&json, &csv, &asked(Mode::Min), &[row(1, TrialState::Finished, Some(0.25))]).unwrap();
        assert_eq!(Asked::of_earlier(&json).unwrap(), Some(asked(Mode::Min)));
        let other = Asked { seed: 1, vary: Vec::new(), ..asked(Mode::Max) };
        assert_eq!(asked(Mode::Min).differences(&other), ["`--vary`", "`--seed`", "the objective"]);
        let text = std::fs::read_to_string(&csv).unwrap();
        let expected = "trial,state,epochs,val_loss,best_epoch,seconds,adapters,folder,cause\n\
                        1,finished,3,0.25,2,1.5,CPU,sweeps/a/trial-1,\n";
        assert_eq!(text, expected);
        let older = std::fs::read_to_string(&json).unwrap().replace("\"mode\": \"min\"", "\"larger_is_better\": false");
        assert!(older.contains("larger_is_better"));
        std::fs::write(&json, older).unwrap();
        assert_eq!(Asked::of_earlier(&json).unwrap(), Some(asked(Mode::Min)));
        std::fs::write(&json, "{\"manyhands_sweep\": 2}").unwrap();
        assert!(Asked::of_earlier(&json).is_err());
    }
}
