//! Event files for TensorBoard.
//!
//! Source: `tensorflow/core/lib/io/record_writer.cc` and `tensorflow/core/util/event.proto` of TensorFlow 2; tags and folders
//! are those of the callback `TensorBoard` of Keras 3.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{AdapterLog, Callback, EpochEnd, Existing, Flow, StepLog};
use crate::error::{Error, Result};
use crate::protobuf::Message;
use crate::runtime::seconds_since_1970;
use crate::shown;
use crate::timing::ratio;

/// Begin of the names of event files, as TensorBoard looks for them.
const EVENTS: &str = "events.out.tfevents";

/// Writes loss, metrics and learning rate of each epoch for TensorBoard, as the callback of this name of Keras: the folder
/// `train` holds `epoch_loss`, `epoch_accuracy`, `epoch_learning_rate` and so on, the folder `validation` the same of the
/// validation data. Steps are epochs, counted from 0.
///
/// `train` also has the share of the rows and the milliseconds a step of each adapter: `adapters/0 NAME/share`,
/// `adapters/0 NAME/ms`.
#[derive(Debug)]
pub struct TensorBoard {
    folder: PathBuf,
    /// First epoch that it writes, from 0.
    first: u64,
    train: Option<Events>,
    validation: Option<Events>,
    /// Sums over the epoch at hand.
    adapters: Vec<EpochSums>,
    steps: u64,
}

#[derive(Clone, Debug, Default)]
struct EpochSums {
    name: String,
    rows: u64,
    ms: f64,
}

impl TensorBoard {
    /// Starts in a folder, which may hold the events of an earlier run only if they may be replaced: TensorBoard then shows
    /// the new ones.
    ///
    /// # Errors
    /// If it holds events that may not be replaced.
    pub fn create(folder: impl Into<PathBuf>, existing: Existing) -> Result<Self> {
        let folder = folder.into();
        if existing == Existing::Refuse && ["train", "validation"].iter().any(|part| has_events(&folder.join(part))) {
            return Err(Error::setting(
                format!("the folder `{}`", shown(&folder)),
                "needs to be a new one, but holds the events of an earlier run",
                "name another folder, continue that run (`--resume`), or write over it (`--overwrite`)",
            ));
        }
        Ok(Self::after(folder, 0))
    }

    /// Continues in the folder of a run after `epochs` epochs: TensorBoard forgets later ones.
    pub fn resume(folder: impl Into<PathBuf>, epochs: u64) -> Self {
        Self::after(folder.into(), epochs)
    }

    fn after(folder: PathBuf, first: u64) -> Self {
        Self { folder, first, train: None, validation: None, adapters: Vec::new(), steps: 0 }
    }

    /// The numbers of an epoch: those of training, those of validation.
    fn numbers(&mut self, end: &EpochEnd<'_>) -> [Vec<(String, f64)>; 2] {
        let mut numbers = [Vec::new(), Vec::new()];
        for (name, value) in end.log.values.iter() {
            match name.strip_prefix("val_") {
                Some(name) => numbers[1].push((format!("epoch_{name}"), value)),
                None => numbers[0].push((format!("epoch_{name}"), value)),
            }
        }
        numbers[0].push(("epoch_learning_rate".into(), end.log.learning_rate.into()));
        numbers[0].push(("epoch_samples_per_s".into(), end.log.samples_per_s));
        let rows: u64 = self.adapters.iter().map(|adapter| adapter.rows).sum();
        let steps = std::mem::take(&mut self.steps);
        for (idx, EpochSums { name, rows: own, ms }) in self.adapters.drain(..).enumerate() {
            numbers[0].push((format!("adapters/{idx} {name}/share"), ratio(own, rows)));
            numbers[0].push((format!("adapters/{idx} {name}/ms"), ms * ratio(1, steps)));
        }
        numbers
    }
}

fn has_events(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("tfevents"))
}

impl Callback for TensorBoard {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        for AdapterLog { adapter, name, rows, ms, .. } in &log.adapters {
            if *adapter >= self.adapters.len() {
                self.adapters.resize(adapter + 1, EpochSums::default());
            }
            let sums = &mut self.adapters[*adapter];
            sums.name.clone_from(name);
            sums.rows += u64::from(*rows);
            sums.ms += ms;
        }
        self.steps += 1;
        Ok(())
    }

    fn on_epoch(&mut self, end: &mut EpochEnd<'_>) -> Result<Flow> {
        let [train, validation] = self.numbers(end);
        let step = end.log.epoch.saturating_sub(1);
        let parts = [("train", &mut self.train, train), ("validation", &mut self.validation, validation)];
        for (name, events, numbers) in parts {
            if numbers.is_empty() {
                continue;
            }
            if events.is_none() {
                *events = Some(Events::create(&self.folder.join(name), self.first)?);
            }
            if let Some(events) = events {
                events.write(step, &numbers)?;
            }
        }
        Ok(Flow::Continue)
    }
}

/// An event file.
#[derive(Debug)]
struct Events {
    path: PathBuf,
    file: File,
}

impl Events {
    /// A new file in a folder; TensorBoard forgets what older files there say of `step` and later ones.
    fn create(folder: &Path, step: u64) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|error| Error::writing(folder, error))?;
        let (seconds, process) = (seconds_since_1970(), std::process::id());
        let path = |number: u32| folder.join(format!("{EVENTS}.{seconds:.0}.manyhands.{process}.{number}.v2"));
        let mut number = 0;
        let (path, file) = loop {
            let path = path(number);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(Error::writing(&path, error)),
            }
        };
        let mut events = Self { path, file };
        let mut version = event(0);
        version.bytes(3, "brain.Event:2");
        events.record(&version)?;
        // `SessionLog` with the status `START`.
        let (mut start, mut session) = (event(step), Message::default());
        session.integer(1, 1);
        start.message(7, &session);
        events.record(&start)?;
        Ok(events)
    }

    fn write(&mut self, step: u64, numbers: &[(String, f64)]) -> Result<()> {
        let mut summary = Message::default();
        for (tag, number) in numbers {
            let mut value = Message::default();
            value.bytes(1, tag);
            #[allow(clippy::cast_possible_truncation, reason = "TensorBoard has 32 bits")]
            value.float(2, *number as f32);
            summary.message(1, &value);
        }
        let mut event = event(step);
        event.message(5, &summary);
        self.record(&event)
    }

    /// Appends a record in one go: a run that is killed leaves whole ones.
    fn record(&mut self, message: &Message) -> Result<()> {
        let bytes = message.as_bytes();
        let length = (bytes.len() as u64).to_le_bytes();
        let record = [&length[..], &masked(&length), bytes, &masked(bytes)].concat();
        self.file.write_all(&record).map_err(|error| Error::writing(&self.path, error))
    }
}

/// An event of this moment.
fn event(step: u64) -> Message {
    let mut event = Message::default();
    event.double(1, seconds_since_1970());
    event.integer(2, step);
    event
}

/// CRC-32C as a record holds it.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Source: RFC 3720, section 12.1; polynomial 0x1EDC6F41, bits reversed.
fn crc32c(bytes: &[u8]) -> u32 {
    let byte = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    };
    !bytes.iter().fold(u32::MAX, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        // Source: RFC 3720, section B.4.
        let cases = [
            ([0; 32], 0x8a91_36aa),
            ([0xff; 32], 0x62a8_ab43),
            (std::array::from_fn(|at| u8::try_from(at).unwrap()), 0x46dd_794e),
        ];
        for (bytes, sum) in cases {
            assert_eq!(crc32c(&bytes), sum);
        }
    }

    #[test]
    fn events_of_an_earlier_run_stay() {
        let folder = tempfile::tempdir().unwrap();
        let events = |step| Events::create(&folder.path().join("train"), step).unwrap();
        drop((events(0), events(0)));
        assert_eq!(std::fs::read_dir(folder.path().join("train")).unwrap().count(), 2);
        let refused = TensorBoard::create(folder.path(), Existing::Refuse).unwrap_err().to_string();
        assert!(refused.contains("holds the events of an earlier run"), "{refused}");
        TensorBoard::create(folder.path(), Existing::Overwrite).unwrap();
    }
}
