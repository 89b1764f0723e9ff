//! This process' share of each batch, where several processes train together: by their speeds, as rows go to adapters.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::adapters::{Adapters, capacity_of};
use super::meter::{self, Tally, Whole};
use super::process_split::over_processes;
use super::{Compile, ProcessLog, SharedAdapterLog};
use crate::data::{Batch, Loader, Part};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;
use crate::processes::Group;
use crate::scheduler::split::{SplitMode, Splitter};
use crate::scheduler::{self, ProcessReport, TrainingState};

/// Steps after which shares are reconsidered, from the first time on; it doubles up to [`MOST_STEPS`].
///
/// Batches that were read ahead for other shares have to be read again, so shares don't follow each step.
const FIRST_STEPS: u64 = 2;
const MOST_STEPS: u64 = 32;

/// Shares of several processes.
#[derive(Default)]
pub(super) struct Share {
    /// Names of the adapters of each process, by rank.
    pub(super) adapters: Vec<Vec<String>>,
    /// The rows of the step in flight.
    pub(super) whole: Whole,
    /// Whether any process was asked to stop, as of the last step.
    pub(super) is_stopped: bool,
    /// The flag that asks this process to stop.
    pub(super) stop: Arc<AtomicBool>,
    shares: Option<Shares>,
    /// Rows of a batch.
    batch_rows: u32,
    steps: u64,
    next_change: u64,
    /// Whether loaders have to be told.
    has_changed: bool,
}

/// Rows of each process for batches of any size.
#[derive(Clone)]
struct Shares {
    rank: usize,
    splitter: Splitter,
    /// For a whole batch.
    rows: Vec<u32>,
}

impl Shares {
    /// The rows of this process in a batch of so many.
    fn range(&self, batch_rows: usize) -> Range<usize> {
        let wanted = u32::try_from(batch_rows).unwrap_or(u32::MAX);
        let usual: u32 = self.rows.iter().sum();
        let rows = if wanted == usual { self.rows.clone() } else { self.splitter.shares(wanted, &self.alive()) };
        let first: u32 = rows[..self.rank].iter().sum();
        first as usize..(first + rows[self.rank]) as usize
    }

    fn alive(&self) -> Vec<bool> {
        vec![true; self.splitter.n_adapters()]
    }
}

impl Share {
    /// Begins with shares of `n_adapters` adapters in each process.
    ///
    /// # Errors
    /// If fixed proportions are not one for each adapter of all processes.
    pub(super) fn open(
        &mut self,
        group: &Group,
        split: &SplitMode,
        n_adapters: &[usize],
        batch_rows: u32,
        min_rows: u32,
    ) -> Result<()> {
        let mut splitter = Splitter::new(over_processes(split, n_adapters)?, group.size(), min_rows)?;
        let rows = splitter.step_shares(0, batch_rows, &vec![true; group.size()]);
        self.shares = Some(Shares { rank: group.rank(), splitter, rows });
        (self.batch_rows, self.steps, self.next_change, self.has_changed) = (batch_rows, 0, FIRST_STEPS, true);
        Ok(())
    }

    /// The rows of this process in a batch of so many, for a loader.
    pub(super) fn part(&self) -> Option<Part> {
        let shares = self.shares.clone()?;
        Some(Arc::new(move |rows| shares.range(rows)))
    }

    /// Tells the next [`divide`](Self::divide) that its loader has no part yet.
    pub(super) fn renew(&mut self) {
        self.has_changed = true;
    }

    /// Number of the first row of this process in a batch of so many.
    pub(super) fn first_row(&self, batch_rows: usize) -> usize {
        self.shares.as_ref().map_or(0, |shares| shares.range(batch_rows).start)
    }

    /// Learns the speeds of the processes from a step. All learn the same.
    pub(super) fn learn(&mut self, processes: &[ProcessReport]) {
        let Some(shares) = &mut self.shares else { return };
        for (rank, process) in processes.iter().enumerate() {
            shares.splitter.learn(rank, process.rows, process.ms);
        }
        self.steps += 1;
        if self.steps < self.next_change || !shares.splitter.is_learned() {
            return;
        }
        self.next_change += (self.steps).min(MOST_STEPS);
        let alive = shares.alive();
        let rows = shares.splitter.step_shares(self.steps, self.batch_rows, &alive);
        if rows != shares.rows {
            log::debug!("rows of each process: {rows:?}");
            (shares.rows, self.has_changed) = (rows, true);
        }
    }

    /// Tells the processes of each other's adapters, and splits batches over them.
    ///
    /// # Errors
    /// If a process fails, or fixed proportions are not one for each adapter of all processes.
    pub(super) async fn meet(&mut self, adapters: &mut Adapters, batch_rows: usize) -> Result<()> {
        let group = adapters.group.clone();
        let Some(joined) = group.joined() else { return Ok(()) };
        let names = adapters.names().join("\0").into_bytes();
        let all = joined.all_gather(names).await?;
        let names = |message: &Vec<u8>| String::from_utf8_lossy(message).split('\0').map(str::to_owned).collect();
        self.adapters = all.iter().map(names).collect();
        let n_adapters: Vec<usize> = self.adapters.iter().map(Vec::len).collect();
        let min_rows = scheduler::fewest_rows(adapters.scheduler()?.plan());
        let split = adapters.split().clone();
        self.open(&group, &split, &n_adapters, capacity_of(batch_rows, 1)?, min_rows)
    }

    /// Gives a loader the rows of this process, if it has others than before.
    pub(super) fn divide(&mut self, loader: &mut Loader) {
        if std::mem::take(&mut self.has_changed) {
            self.part().into_iter().for_each(|part| loader.set_part(part));
        }
    }

    /// Ends a training step together with the other processes: merges the parts of a batch's numbers, and tells whether one was asked to
    /// stop. Builds with debug assertions compare the weights after `step` steps, too.
    ///
    /// # Errors
    /// If another process fails, or has other weights.
    pub(super) async fn end_together(&mut self, adapters: &Adapters, step: u64, tally: &mut Tally) -> Result<()> {
        let Some(joined) = adapters.group.joined() else { return Ok(()) };
        if cfg!(debug_assertions) {
            check_same_weights(&adapters.group, adapters.state(), step).await?;
        }
        let is_asked = self.stop.load(Ordering::Relaxed);
        let mut numbers = vec![f64::from(u8::from(is_asked))];
        numbers.extend(tally.fields());
        let parts = joined.gather_numbers(&numbers).await?;
        let parts = || parts.iter().filter_map(|numbers| numbers.split_first());
        self.is_stopped = parts().any(|(asked, _)| *asked > 0.0);
        tally.set_parts(parts().map(|(_, fields)| fields));
        Ok(())
    }

    /// Each process' part in a step.
    pub(super) fn process_logs(&self, processes: &[ProcessReport]) -> Vec<ProcessLog> {
        let names = |rank: usize| self.adapters.get(rank).into_iter().flatten();
        let of = |(rank, report): (usize, &ProcessReport)| ProcessLog {
            process: rank,
            rows: report.rows,
            ms: report.ms,
            adapters: names(rank)
                .zip(&report.adapters)
                .map(|(name, (rows, ms))| SharedAdapterLog { name: name.clone(), rows: *rows, ms: *ms })
                .collect(),
        };
        processes.iter().enumerate().map(of).collect()
    }
}

/// The whole batch of `rows` rows of which this process has a part.
///
/// # Errors
/// If another process fails.
pub(super) async fn whole_of(
    group: &Group,
    (compile, model): (&Compile, &Model),
    batch: &Batch,
    rows: usize,
) -> Result<Whole> {
    let Some(joined) = group.joined() else { return Ok(Whole::of(compile, model, batch)) };
    let counts = meter::counts(compile, model, batch, rows);
    let follow = meter::counts_follow_rows(compile, model, batch);
    let counts = if follow { counts } else { joined.sum(&counts).await? };
    Ok(Whole { rows, counts })
}

/// Penalties of the parameters, which count once: in the first process.
pub(super) fn own_penalty(group: &Group, penalty: f64) -> f64 {
    if group.is_first() { penalty } else { 0.0 }
}

/// Merges the parts of all processes in a batch's numbers.
///
/// # Errors
/// If another process fails.
pub(super) async fn add_up(group: &Group, tally: &mut Tally) -> Result<()> {
    if let Some(joined) = group.joined() {
        let parts = joined.gather_numbers(&tally.fields()).await?;
        tally.set_parts(parts.iter().map(Vec::as_slice));
    }
    Ok(())
}

/// Hash of all that training changes.
pub(super) fn hash_of(state: &TrainingState) -> u64 {
    let mut hasher = DefaultHasher::new();
    let weights = state.weights.parameters.iter().chain([&state.weights.statistics]);
    for values in weights.chain(state.optimizer.iter().flatten()) {
        values.iter().for_each(|value| value.to_bits().hash(&mut hasher));
    }
    hasher.finish()
}

/// Checks that all processes have the same weights.
///
/// # Errors
/// If not: which process has others.
pub(super) async fn check_same_weights(group: &Group, state: &TrainingState, step: u64) -> Result<()> {
    let Some(joined) = group.joined() else { return Ok(()) };
    let hashes = joined.all_gather(hash_of(state).to_le_bytes().to_vec()).await?;
    match hashes.iter().position(|hash| *hash != hashes[0]) {
        None => Ok(()),
        Some(rank) => Err(Error::new(
            ErrorKind::Process,
            format!("process {rank}"),
            format!("needs the weights of process 0 after step {step}, but has others"),
            "callbacks must change weights alike in all processes; machines must have the same version of the program",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_speeds_and_cover_each_batch_once() {
        let shares = |rank| {
            let mut share = Share { batch_rows: 60, next_change: FIRST_STEPS, ..Share::default() };
            let splitter = Splitter::new(SplitMode::Learned, 3, 1).unwrap();
            share.shares = Some(Shares { rank, splitter, rows: vec![20, 20, 20] });
            for _ in 0..64 {
                let rows = share.shares.as_ref().unwrap().rows.clone();
                // The second process takes twice as long for a row, the third three times.
                let ms = rows.iter().zip([1.0, 2.0, 3.0]).map(|(rows, ms)| 1.0 + f64::from(*rows) * ms);
                let report = |(rows, ms)| ProcessReport { rows, ms, adapters: Vec::new() };
                share.learn(&rows.iter().copied().zip(ms).map(report).collect::<Vec<_>>());
            }
            share.shares.unwrap()
        };
        let all: Vec<Shares> = (0..3).map(shares).collect();
        for rows in [0, 1, 2, 7, 59, 60, 61, 1000] {
            let ranges: Vec<Range<usize>> = all.iter().map(|shares| shares.range(rows)).collect();
            assert_eq!((ranges[0].start, ranges[2].end), (0, rows));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
        }
        let rows = &all[0].rows;
        assert!(rows[0].abs_diff(33) < 3 && rows[1].abs_diff(16) < 3 && rows[2].abs_diff(11) < 3, "{rows:?}");
    }
}
