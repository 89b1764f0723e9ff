//! The log of a run, as its report needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::path::Path;

use manyhands::callbacks::Mode;
use manyhands::logs::EpochLog;
use manyhands::{Error, Result};
use manyhands_engine::files;
use manyhands_engine::shown::shown;
use manyhands_engine::timing::ratio;
use serde::Deserialize;
use serde_json::Value;

/// Points of a curve over steps.
const POINTS: usize = 240;
/// Most adapters of a run, and most numbers of an epoch, that a page can show.
const MOST: usize = 1024;

/// A run by its log.
#[derive(Debug, Default)]
pub struct RunLog {
    /// The epochs that ended.
    pub epochs: Vec<EpochLog>,
    /// Training steps.
    pub steps: usize,
    /// Steps whose gradient was not finite.
    pub skipped: usize,
    /// Epochs, in fractions, and the loss of the batch; in each point that of many steps.
    pub losses: Vec<(f64, f64)>,
    /// Each adapter that had rows, by its number.
    pub adapters: BTreeMap<usize, AdapterLine>,
}

/// An adapter over a run.
#[derive(Debug, Default)]
pub struct AdapterLine {
    pub name: String,
    pub rows: u64,
    /// Milliseconds that it was busy.
    pub ms: f64,
    /// Epochs, in fractions, and its part of the rows.
    pub shares: Vec<(f64, f64)>,
}

/// Fields of a step's line.
#[derive(Deserialize)]
struct StepLine {
    step: u64,
    #[serde(flatten)]
    place: StepPlace,
    loss: Option<f64>,
    is_applied: bool,
    #[serde(default)]
    adapters: Vec<ShardLine>,
}

#[derive(Deserialize)]
struct StepPlace {
    epoch: u64,
    batch: u64,
    batches: u64,
}

#[derive(Deserialize)]
struct ShardLine {
    adapter: usize,
    name: String,
    rows: u64,
    ms: f64,
}

impl RunLog {
    /// Reads a log line by line; lines of another kind, and one that was cut off, are left out.
    pub fn read(path: &Path) -> Result<Self> {
        let (mut steps, mut epochs) = (BTreeMap::new(), BTreeMap::new());
        let mut known = BTreeSet::new();
        files::each_line(path, |line| {
            if let Some(log) = epoch(line) {
                check_count(path, "numbers an epoch", log.values.iter().count())?;
                epochs.insert(log.epoch, log);
            } else if let Ok(step) = serde_json::from_slice::<StepLine>(line) {
                known.extend(step.adapters.iter().map(|shard| shard.adapter));
                check_count(path, "adapters", known.len())?;
                // A repeated step has two lines: the later one counts.
                steps.insert(step.step, step);
            }
            Ok(())
        })?;
        let steps: Vec<StepLine> = steps.into_values().collect();
        Ok(Self {
            epochs: epochs.into_values().collect(),
            steps: steps.len(),
            skipped: steps.iter().filter(|step| !step.is_applied).count(),
            losses: thinned(steps.iter().filter_map(|step| Some((at(&step.place), step.loss?))).collect()),
            adapters: adapters(&steps),
        })
    }

    /// Whether epochs report numbers of validation data.
    pub fn has_validation(&self) -> bool {
        self.epochs.iter().any(|epoch| epoch.values.iter().any(|(name, _)| name.starts_with("val_")))
    }

    /// Names of the numbers of an epoch, without those of validation.
    pub fn names(&self) -> Vec<String> {
        let first = self.epochs.first();
        let names = first.into_iter().flat_map(|epoch| epoch.values.iter().map(|(name, _)| name.to_owned()));
        names.filter(|name| !name.starts_with("val_")).collect()
    }

    /// A number over the epochs.
    pub fn curve(&self, name: &str) -> Vec<(f64, f64)> {
        self.epochs.iter().filter_map(|epoch| Some((count(epoch.epoch), epoch.values.get(name)?))).collect()
    }

    /// The best of some epochs by a number, and its value.
    pub fn best_of(&self, those: impl RangeBounds<u64>, name: &str, mode: Mode) -> Option<(u64, f64)> {
        let epochs = self.epochs.iter().filter(|epoch| those.contains(&epoch.epoch));
        let finite = epochs.filter_map(|epoch| Some((epoch.epoch, epoch.values.get(name)?)));
        let finite = finite.filter(|(_, value)| value.is_finite());
        finite.min_by(|(_, a), (_, b)| (mode.sign() * a).total_cmp(&(mode.sign() * b)))
    }

    /// The best epoch after one by a number, and its value.
    pub fn best_after(&self, epoch: u64, name: &str, mode: Mode) -> Option<(u64, f64)> {
        self.best_of((Bound::Excluded(epoch), Bound::Unbounded), name, mode)
    }

    /// Seconds of all epochs.
    pub fn seconds(&self) -> f64 {
        self.epochs.iter().map(|epoch| epoch.seconds).sum()
    }
}

/// Refuses a log with more of something than any run has: the work on a page grows with their square.
fn check_count(path: &Path, what: &str, count: usize) -> Result<()> {
    if count <= MOST {
        return Ok(());
    }
    let problem = format!("needs at most {MOST} {what}, but has more");
    Err(Error::setting(format!("the log `{}`", shown(path)), problem, "it is damaged, or not one of manyhands"))
}

/// The line of an epoch.
fn epoch(line: &[u8]) -> Option<EpochLog> {
    // Only a few lines are those of epochs.
    if !line.starts_with(b"{\"kind\":\"epoch\"") {
        return None;
    }
    let Value::Object(mut fields) = serde_json::from_slice(line).ok()? else { return None };
    // All fields that an epoch does not name are numbers of it.
    fields.remove("kind");
    serde_json::from_value(Value::Object(fields)).ok()
}

#[allow(clippy::cast_precision_loss, reason = "drawn with few digits")]
fn count(number: u64) -> f64 {
    number as f64
}

/// Epochs done after a step.
fn at(place: &StepPlace) -> f64 {
    count(place.epoch.saturating_sub(1)) + ratio(place.batch, place.batches)
}

/// Points that stand for many, as their means.
#[allow(clippy::cast_precision_loss, reason = "drawn with few digits")]
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(POINTS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let (x, y) = part.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
        (x / part.len() as f64, y / part.len() as f64)
    };
    points.chunks(size).map(mean).collect()
}

/// Each adapter that had rows, by its number in the log, in as many parts of the run as a curve has points.
fn adapters(steps: &[StepLine]) -> BTreeMap<usize, AdapterLine> {
    let mut lines: BTreeMap<usize, AdapterLine> = BTreeMap::new();
    for shard in steps.iter().flat_map(|step| &step.adapters) {
        let line = lines.entry(shard.adapter).or_default();
        line.name.clone_from(&shard.name);
        line.rows = line.rows.saturating_add(shard.rows);
        line.ms += shard.ms;
    }
    for part in steps.chunks(steps.len().div_ceil(POINTS).max(1)) {
        let mut shares: BTreeMap<usize, f64> = BTreeMap::new();
        for step in part {
            let rows = step.adapters.iter().fold(0_u64, |rows, shard| rows.saturating_add(shard.rows));
            for shard in &step.adapters {
                *shares.entry(shard.adapter).or_default() += ratio(shard.rows, rows);
            }
        }
        let n_steps = count(part.len() as u64);
        let at = part.iter().map(|step| at(&step.place)).sum::<f64>() / n_steps;
        for (adapter_idx, line) in &mut lines {
            line.shares.push((at, shares.get(adapter_idx).map_or(0.0, |share| share / n_steps)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An adapter's number is only a name: nothing is as long as it is large.
    #[test]
    fn a_number_of_an_adapter_takes_no_memory_and_too_many_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        let step = |step: u64, adapter: u64, rows: u64| {
            format!(
                "{{\"kind\":\"step\",\"step\":{step},\"epoch\":1,\"batch\":1,\"batches\":1,\"loss\":1,\"is_applied\":true,\
                 \"adapters\":[{{\"adapter\":{adapter},\"name\":\"a\",\"rows\":{rows},\"ms\":1}}]}}\n"
            )
        };
        std::fs::write(&path, step(1, u64::MAX, u64::MAX) + &step(2, 1_000_000_000, u64::MAX)).unwrap();
        let log = RunLog::read(&path).unwrap();
        let shares: Vec<_> = log.adapters.values().map(|adapter| &adapter.shares[..]).collect();
        assert_eq!(shares, [[(1.0, 0.0), (1.0, 1.0)], [(1.0, 1.0), (1.0, 0.0)]]);
        std::fs::write(&path, (0..1025).map(|at| step(at, at, 1)).collect::<String>()).unwrap();
        let error = RunLog::read(&path).unwrap_err().to_string();
        assert!(error.contains("needs at most 1024 adapters, but has more"), "{error}");
    }

    #[test]
    fn a_log_is_read_also_where_it_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        let step = |step: u64, batch: u64, loss: &str| {
            format!(
                "{{\"kind\":\"step\",\"step\":{step},\"epoch\":1,\"batch\":{batch},\"batches\":2,\"loss\":{loss},\
                 \"is_applied\":true,\"adapters\":[{{\"adapter\":1,\"name\":\"b\",\"rows\":3,\"ms\":2.0}},\
                 {{\"adapter\":0,\"name\":\"a\",\"rows\":1,\"ms\":1.0}}]}}\n"
            )
        };
        let epoch = "{\"kind\":\"epoch\",\"epoch\":1,\"step\":2,\"loss\":0.5,\"val_loss\":null,\"learning_rate\":0.1,\
                     \"seconds\":1.5,\"samples_per_s\":4.0}\n";
        let text = [&step(1, 1, "9"), &step(1, 1, "2"), &step(2, 2, "null"), epoch, "{\"kind\":\"ste"].concat();
        std::fs::write(&path, text).unwrap();
        let log = RunLog::read(&path).unwrap();
        assert_eq!((log.steps, log.skipped, &log.losses[..]), (2, 0, &[(0.5, 2.0)][..]));
        assert_eq!((log.names(), log.has_validation(), log.seconds()), (vec!["loss".to_owned()], true, 1.5));
        let best = |name| log.best_after(0, name, Mode::Min);
        assert_eq!((best("loss"), best("val_loss")), (Some((1, 0.5)), None));
        assert_eq!(log.best_after(u64::MAX, "loss", Mode::Min), None);
        assert_eq!(log.adapters.len(), 2);
        let b = &log.adapters[&1];
        assert_eq!((b.name.as_str(), b.rows, b.ms, &b.shares[..]), ("b", 6, 4.0, &[(0.5, 0.75), (1.0, 0.75)][..]));
    }

    #[test]
    fn many_points_become_means_of_neighbours() {
        let points = (0..1000).map(|at| (f64::from(at), 1.0)).collect();
        let thin = thinned(points);
        assert!(thin.len() <= POINTS && thin.iter().all(|(_, y)| *y == 1.0), "{}", thin.len());
        assert_eq!(thin[0].0, 2.0);
    }
}
