//! Logs of a run as files: CSV by epoch, JSON lines by step and epoch.
//!
//! A line is written atomically as soon as it is known: a run that is killed leaves whole lines. A resumed run removes
//! the lines of the steps that it repeats, so that each step and epoch appears once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Callback, EpochEnd, EpochLog, Flow, StepLog};
use crate::error::{Error, Result};
use crate::files::{FileKind, create_log, each_line, resume_log};
use crate::scheduler::split::SplitMode;
use crate::shown;

/// Writes one line an epoch as CSV.
#[derive(Debug)]
pub struct CsvLog {
    path: PathBuf,
    file: File,
    has_header: bool,
}

impl CsvLog {
    /// Starts a new file.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn create(path: &Path) -> Result<Self> {
        let file = create_log(path, FileKind::CsvLog)?;
        Ok(Self { path: path.into(), file, has_header: false })
    }

    /// Continues the file of a run after `epochs` epochs.
    ///
    /// # Errors
    /// If it can't be read or written.
    pub fn resume(path: &Path, epochs: u64) -> Result<Self> {
        let file = resume_log(path, FileKind::CsvLog, |line| {
            let epoch = line.split(',').next().unwrap_or_default();
            epoch == FIXED[0] || epoch.parse().is_ok_and(|epoch: u64| epoch <= epochs)
        })?;
        let has_header = file.metadata().is_ok_and(|metadata| metadata.len() > 0);
        Ok(Self { path: path.into(), file, has_header })
    }

    fn write(&mut self, log: &EpochLog) -> csv::Result<()> {
        let mut lines = csv::Writer::from_writer(Vec::new());
        if !self.has_header {
            lines.write_record(FIXED.into_iter().chain(log.values.iter().map(|(name, _)| name)))?;
            self.has_header = true;
        }
        let values = log.values.iter().map(|(_, value)| value.to_string());
        let fixed =
            [log.epoch.to_string(), log.step.to_string(), log.learning_rate.to_string(), log.seconds.to_string()];
        lines.write_record(fixed.into_iter().chain(values))?;
        let lines = lines.into_inner().map_err(|error| error.into_error())?;
        self.file.write_all(&lines)?;
        Ok(())
    }
}

/// Columns before loss and metrics.
const FIXED: [&str; 4] = ["epoch", "step", "learning_rate", "seconds"];

impl Callback for CsvLog {
    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        self.write(end.log).map_err(|error| Error::writing(&self.path, error.into()))?;
        Ok(Flow::Continue)
    }
}

/// Writes one JSON object a line, for each step (`"kind":"step"`) and each epoch (`"kind":"epoch"`).
#[derive(Debug)]
pub struct JsonLog {
    path: PathBuf,
    file: File,
}

impl JsonLog {
    /// Starts a new file.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn create(path: &Path) -> Result<Self> {
        let file = create_log(path, FileKind::JsonLog)?;
        Ok(Self { path: path.into(), file })
    }

    /// Continues the file of a run after `epochs` epochs and `steps` steps.
    ///
    /// # Errors
    /// If it can't be read or written.
    pub fn resume(path: &Path, epochs: u64, steps: u64) -> Result<Self> {
        let file = resume_log(path, FileKind::JsonLog, |line| {
            let value: Value = serde_json::from_str(line).unwrap_or_default();
            let (key, done) = if value["kind"] == "epoch" { ("epoch", epochs) } else { ("step", steps) };
            value[key].as_u64().is_some_and(|number| number <= done)
        })?;
        Ok(Self { path: path.into(), file })
    }

    /// The rows that each of `n_adapters` adapters had in each step of a logged run: to repeat it to the same bits.
    ///
    /// # Errors
    /// If the file can't be read, holds no training steps from the first on, or is of a run with more adapters.
    pub fn recorded_split(path: &Path, n_adapters: usize) -> Result<SplitMode> {
        let refuse = |problem: String, help: &str| {
            Error::setting(format!("the recorded split `{}`", shown(path)), problem, help)
        };
        let mut steps: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        each_line(path, |line| {
            let Ok(step) = serde_json::from_slice::<LoggedStep>(line) else { return Ok(()) };
            let mut rows = vec![0_u32; n_adapters];
            for shard in step.adapters {
                let Some(sum) = rows.get_mut(shard.adapter) else {
                    return Err(refuse(
                        format!("needs an adapter {} too, but the run uses {n_adapters}", shard.adapter),
                        "choose the adapters of the recorded run, in its order; they count from 0",
                    ));
                };
                *sum = sum.saturating_add(shard.rows);
            }
            // A repeated step has two lines: the later one counts.
            steps.insert(step.step, rows);
            Ok(())
        })?;
        if steps.is_empty() || steps.keys().copied().ne(1..=steps.len() as u64) {
            return Err(refuse(
                format!("needs the lines of all training steps from 1 on, but has {}", steps.len()),
                "name a file that `--json` wrote",
            ));
        }
        Ok(SplitMode::Recorded(Arc::new(steps.into_values().collect())))
    }

    fn write(&mut self, line: &Line<'_>) -> Result<()> {
        let mut written = || -> std::io::Result<()> {
            let mut bytes = serde_json::to_vec(line)?;
            bytes.push(b'\n');
            self.file.write_all(&bytes)
        };
        written().map_err(|error| Error::writing(&self.path, error))
    }
}

/// Fields of a step's line that a recorded split needs.
#[derive(Deserialize)]
struct LoggedStep {
    step: u64,
    adapters: Vec<LoggedShard>,
}

/// Fields of a shard that a recorded split needs.
#[derive(Deserialize)]
struct LoggedShard {
    adapter: usize,
    rows: u32,
}

/// A line of a [`JsonLog`].
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'a> {
    Step(&'a StepLog),
    Epoch(&'a EpochLog),
}

impl Callback for JsonLog {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        self.write(&Line::Step(log))
    }

    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        self.write(&Line::Epoch(end.log))?;
        Ok(Flow::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_log_loses_what_is_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let text = "{\"kind\":\"step\",\"step\":1,\"epoch\":1}\n{\"kind\":\"epoch\",\"step\":1,\"epoch\":1}\n\
                    {\"kind\":\"step\",\"step\":2,\"epoch\":2}\n{\"kind\":\"ste";
        for (epochs, steps, lines) in [(0, 0, 0), (0, 1, 1), (1, 1, 2), (1, 2, 3), (9, 9, 3)] {
            std::fs::write(&path, text).unwrap();
            drop(JsonLog::resume(&path, epochs, steps).unwrap());
            let kept: String = text.split_inclusive('\n').take(lines).collect();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), kept);
        }
        std::fs::write(&path, "epoch,step,learning_rate,seconds\n1,10\n2,20\n3,3").unwrap();
        drop(CsvLog::resume(&path, 1).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "epoch,step,learning_rate,seconds\n1,10\n");
    }

    #[test]
    fn no_log_is_written_over_something_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.csv");
        let logs = ["epoch,step,learning_rate,seconds,loss\n1,10,0.1,2,3\n", "{\"kind\":\"step\",\"step\":1}\n"];
        let data = ["a,b\n1,2\n", "{\n \"a\": 1\n}\n", "\n1,2\n"].map(|text| (text, [false; 2]));
        let own = [(logs[0], [true, false]), (logs[1], [false, true])];
        for (text, [csv, json]) in data.into_iter().chain(own) {
            let write = || std::fs::write(&path, text).unwrap();
            write();
            assert_eq!(CsvLog::resume(&path, 1).is_ok(), csv, "{text}");
            assert_eq!(JsonLog::resume(&path, 1, 1).is_ok(), json, "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(CsvLog::create(&path).is_ok(), csv, "{text}");
            write();
            assert_eq!(JsonLog::create(&path).is_ok(), json, "{text}");
        }
    }

    #[test]
    fn a_recorded_split_is_read_from_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let refused = |text: &str| {
            std::fs::write(&path, text).unwrap();
            JsonLog::recorded_split(&path, 2).unwrap_err().to_string()
        };
        let step = |step: u64, adapter: usize, rows: u32| {
            format!("{{\"kind\":\"step\",\"step\":{step},\"adapters\":[{{\"adapter\":{adapter},\"rows\":{rows}}}]}}\n")
        };
        assert!(refused("").contains("needs the lines of all training steps from 1 on, but has 0"));
        assert!(refused(&step(2, 0, 8)).contains("needs the lines of all training steps from 1 on, but has 1"));
        assert!(refused(&step(1, 2, 8)).contains("needs an adapter 2 too, but the run uses 2"));
        let epoch = "{\"kind\":\"epoch\",\"step\":1,\"epoch\":1}\n";
        std::fs::write(&path, [&step(1, 0, 7), epoch, &step(2, 0, 9), &step(2, 1, 8)].concat()).unwrap();
        let split = JsonLog::recorded_split(&path, 2).unwrap();
        assert_eq!(split, SplitMode::Recorded(Arc::new(vec![vec![7, 0], vec![0, 8]])));
    }

    #[test]
    fn a_log_that_is_not_there_is_started() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!CsvLog::resume(&folder.path().join("a.csv"), 3).unwrap().has_header);
    }
}
