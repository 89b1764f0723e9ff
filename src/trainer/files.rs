//! Logs of a run as files: CSV by epoch, JSON lines by step and epoch.
//!
//! A line is written in one go as soon as it is known: a run that is killed leaves whole lines. A run that resumes
//! takes back the lines of what it does again, so that each step and epoch stands once.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::{Callback, EpochEnd, EpochLog, Flow, StepLog};
use crate::error::{Error, Result};

/// Opens a log to continue it after the lines to keep; the first other line, and all after it, are cut off.
fn reopen(path: &Path, is_kept: impl Fn(&str) -> bool) -> Result<File> {
    let opened = || -> std::io::Result<File> {
        let file = File::options().append(true).create(true).open(path)?;
        let text = String::from_utf8_lossy(&std::fs::read(path)?).into_owned();
        // A line without its end was cut off in the middle.
        let kept = text.split_inclusive('\n').take_while(|line| line.ends_with('\n') && is_kept(line.trim_end()));
        file.set_len(kept.map(|line| line.len() as u64).sum())?;
        Ok(file)
    };
    opened().map_err(|error| Error::writing(path, error))
}

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
        let file = File::create(path).map_err(|error| Error::writing(path, error))?;
        Ok(Self { path: path.into(), file, has_header: false })
    }

    /// Continues the file of a run of which `epochs` epochs are done.
    ///
    /// # Errors
    /// If it can't be read or written.
    pub fn resume(path: &Path, epochs: u64) -> Result<Self> {
        let file = reopen(path, |line| {
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
        let file = File::create(path).map_err(|error| Error::writing(path, error))?;
        Ok(Self { path: path.into(), file })
    }

    /// Continues the file of a run of which `epochs` epochs and `steps` steps are done.
    ///
    /// # Errors
    /// If it can't be read or written.
    pub fn resume(path: &Path, epochs: u64, steps: u64) -> Result<Self> {
        let file = reopen(path, |line| {
            let value: Value = serde_json::from_str(line).unwrap_or_default();
            let (key, done) = if value["kind"] == "epoch" { ("epoch", epochs) } else { ("step", steps) };
            value[key].as_u64().is_some_and(|number| number <= done)
        })?;
        Ok(Self { path: path.into(), file })
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
        std::fs::write(&path, "epoch,step\n1,10\n2,20\n3,3").unwrap();
        drop(CsvLog::resume(&path, 1).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "epoch,step\n1,10\n");
    }

    #[test]
    fn a_log_that_is_not_there_is_started() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!CsvLog::resume(&folder.path().join("a.csv"), 3).unwrap().has_header);
    }
}
