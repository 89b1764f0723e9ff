//! `train --find-batch`: the largest batch that fits each adapter, and the smallest that is nearly as fast as any.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::adapters::kind;
use crate::interrupt::Interrupt;
use crate::settings::SettingsFile;
use crate::terminal::Terminal;
use manyhands::adapters::{Info, MemoryLimits};
use manyhands::data::{Batch, Dataset};
use manyhands::processes::Group;
use manyhands::{CpuFallback, Error, ErrorKind, Placement, Result, Trainer};
use manyhands_engine::runtime::{self, Runtime};
use manyhands_engine::shown::{bytes, thousands};
use manyhands_engine::table::Table;

use super::{Files, TrainArgs, choose, prepare};

/// Rows of the first batch that is tried.
const FIRST: usize = 8;
/// Most milliseconds of a step: larger batches are not tried.
const MOST_MS: f64 = 2_000.0;
/// A size is timed for so many steps, and so many milliseconds.
const STEPS: usize = 3;
const TIMED_MS: f64 = 200.0;
/// Part of the best speed that is nearly as good.
const GOOD: f64 = 0.95;

/// A batch that fits, and its speed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TriedBatch {
    rows: usize,
    /// Memory that training takes with it.
    bytes: u64,
    step_ms: f64,
}

impl TriedBatch {
    #[allow(clippy::cast_precision_loss, reason = "rows are far below 2^52")]
    fn rows_per_s(&self) -> f64 {
        self.rows as f64 / (self.step_ms / 1e3).max(1e-9)
    }
}

/// Reason why no larger batch was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndOfSearch {
    /// The memory does not suffice, or a limit forbids it.
    Memory,
    /// There are no more rows.
    Rows,
    /// A step takes too long.
    Time,
    /// The user ended the search.
    Stopped,
}

impl EndOfSearch {
    fn text(self) -> &'static str {
        match self {
            Self::Memory => "more rows need more memory than there is",
            Self::Rows => "the training data have no more rows",
            Self::Time => "a step with more rows would take longer than 2 seconds",
            Self::Stopped => "the search was ended",
        }
    }
}

/// Tries batches of twice as many rows each time, and where one does not fit some between it and the last; smallest first.
/// `try_rows` gives nothing for a batch that does not fit. It may keep something from one try to the next.
fn search<T>(
    mut kept: T,
    most: usize,
    stop: &AtomicBool,
    mut try_rows: impl FnMut(T, usize) -> Result<(T, Option<TriedBatch>)>,
) -> Result<(T, Vec<TriedBatch>, EndOfSearch)> {
    let (mut tried, mut rows, mut too_many): (Vec<TriedBatch>, _, _) = (Vec::new(), FIRST.min(most), None);
    let end = loop {
        if stop.load(Ordering::Relaxed) {
            break EndOfSearch::Stopped;
        }
        let fits;
        (kept, fits) = try_rows(kept, rows)?;
        match fits {
            Some(fits) => tried.push(fits),
            None => too_many = Some(rows),
        }
        let largest = tried.last().map_or(0, |fits| fits.rows);
        match (too_many, tried.last()) {
            // Within an eighth of the largest that fits.
            (Some(too_many), _) if too_many - largest <= (largest / 8).max(1) => break EndOfSearch::Memory,
            (Some(too_many), _) => rows = usize::midpoint(largest, too_many),
            (None, _) if largest >= most => break EndOfSearch::Rows,
            (None, Some(last)) if 2.0 * last.step_ms > MOST_MS => break EndOfSearch::Time,
            (None, _) => rows = largest.saturating_mul(2).min(most),
        }
    };
    Ok((kept, tried, end))
}

/// The smallest batch that is nearly as fast as the fastest.
fn good(tried: &[TriedBatch]) -> Option<&TriedBatch> {
    let best = tried.iter().map(TriedBatch::rows_per_s).fold(0.0, f64::max);
    tried.iter().find(|tried| tried.rows_per_s() >= GOOD * best)
}

/// An adapter, alone, and the data.
struct LoneAdapter<'a> {
    info: Info,
    limits: MemoryLimits,
    limit: Option<u64>,
    data: &'a dyn Dataset,
    clock: Arc<dyn Runtime>,
}

impl LoneAdapter<'_> {
    /// Closes the adapter before another batch: an open one that has run fewer rows at once would go on to do so.
    fn closed(&self, trainer: Trainer) -> Trainer {
        trainer.on(vec![self.info.clone()]).memory(self.limits.clone())
    }

    /// Trains with a batch of so many rows, if it fits: by the bytes that are counted beforehand, then by trying.
    fn try_rows(&self, trainer: &mut Trainer, rows: usize) -> Result<Option<TriedBatch>> {
        let need = |limit| trainer.memory_need(self.info.kind, rows, 1, limit);
        let (whole, allowed) = (need(None)?, need(self.limit)?);
        let Some(whole) = whole.filter(|_| whole == allowed) else { return Ok(None) };
        let batch = Batch::fetch(self.data, &(0..rows).collect::<Vec<_>>())?;
        let step_ms = match self.step_ms(trainer, &batch) {
            Ok(step_ms) => step_ms,
            Err(error) if error.kind() == ErrorKind::OutOfMemory => return Ok(None),
            Err(error) => return Err(error),
        };
        let taken = trainer.open_adapters().first().map_or(0, |adapter| adapter.bytes);
        // An adapter without room takes fewer rows at once.
        let fits = TriedBatch { rows, bytes: taken, step_ms };
        Ok((taken >= whole.bytes).then_some(fits))
    }

    /// Milliseconds of a step, after a first one. As in training, a step begins before the last one is reported.
    fn step_ms(&self, trainer: &mut Trainer, batch: &Batch) -> Result<f64> {
        trainer.train_on_batch(batch.clone())?;
        pollster::block_on(async {
            trainer.asynchronous().begin_on_batch(batch.clone()).await?;
            let (begin_ms, mut steps, mut passed_ms) = (self.clock.now_ms(), 0_usize, 0.0);
            while steps < STEPS || passed_ms < TIMED_MS {
                trainer.asynchronous().begin_on_batch(batch.clone()).await?;
                trainer.asynchronous().end_on_batch().await?;
                steps += 1;
                passed_ms = self.clock.now_ms() - begin_ms;
            }
            trainer.asynchronous().end_on_batch().await?;
            Ok(passed_ms / f64::from(u32::try_from(steps).unwrap_or(u32::MAX)))
        })
    }
}

/// Finds good batches for each adapter, and shows them. Writes nothing.
pub(super) fn find(
    (args, files): (&TrainArgs, &Files),
    mut settings: SettingsFile,
    terminal: &Terminal,
) -> Result<Option<i32>> {
    if !matches!(settings.training.placement, Placement::Replicas | Placement::Auto) {
        return Err(Error::setting(
            "`--find-batch`",
            "needs the whole model on each adapter, but `placement` divides it into stages",
            "leave out the placement: `manyhands summary run.toml` tells the memory of each stage",
        ));
    }
    settings.training.placement = Placement::Replicas;
    let chosen = choose(args, &settings)?;
    let limits = args.memory.or(settings.training.memory.as_ref());
    let (run, _) = prepare(args, files, settings, chosen.clone(), terminal, &Group::alone())?;
    let stop = Arc::new(AtomicBool::new(false));
    let interrupt = Interrupt::catch(stop.clone(), terminal)?;
    let (data, mut trainer) = (run.train, run.trainer.cpu_fallback(CpuFallback::Refused));
    let mut goods: Vec<usize> = Vec::new();
    for (idx, info) in chosen.iter().enumerate() {
        let (limits, limit) = (limits.alone(idx, &chosen), limits.of(idx, info, &chosen));
        let site = LoneAdapter { info: info.clone(), limits, limit, data: data.as_ref(), clock: runtime::system() };
        let (tried, end);
        (trainer, tried, end) = search(trainer, data.len(), &stop, |trainer, rows| {
            let mut trainer = site.closed(trainer);
            let fits = site.try_rows(&mut trainer, rows)?;
            Ok((trainer, fits))
        })?;
        if let Some(status) = interrupt.status() {
            return Ok(Some(status));
        }
        goods.extend(show(info, &tried, end, terminal));
    }
    if chosen.len() > 1 && goods.len() == chosen.len() {
        let sum: usize = goods.iter().sum();
        terminal.line(format_args!("together: a batch of {} rows gives each adapter about its own", thousands(sum)));
    }
    Ok(None)
}

/// Shows the batches that were tried on an adapter, and gives the rows of the good one.
fn show(info: &Info, tried: &[TriedBatch], end: EndOfSearch, terminal: &Terminal) -> Option<usize> {
    terminal.line(format_args!("adapter {}, `{}` ({}):", info.index, info.name, kind(info.kind)));
    let (Some(good), Some(largest)) = (good(tried), tried.last()) else {
        terminal.line("  no row fits: training takes more memory than there is, or than its limit allows");
        return None;
    };
    let mut table = Table::new(["rows", "memory", "ms a step", "samples/s", ""]).numbers(0..4);
    for batch in tried {
        let mark = if batch == good { "nearly as fast as any" } else { "" };
        let speed = thousands(format_args!("{:.0}", batch.rows_per_s()));
        let cells = [thousands(batch.rows), bytes(batch.bytes), format!("{:.2}", batch.step_ms), speed, mark.into()];
        table.row(cells);
    }
    terminal.report(&table);
    terminal.line(format_args!(
        "{} rows are the smallest batch with {:.0} % of the best speed; the largest that was run has {}: {}",
        thousands(good.rows),
        GOOD * 100.0,
        thousands(largest.rows),
        end.text()
    ));
    Some(good.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes that are tried on an adapter for which steps take so long, and which has room for so many rows.
    fn sizes(most: usize, room: usize, ms: impl Fn(usize) -> f64) -> (Vec<usize>, Vec<TriedBatch>, EndOfSearch) {
        let fits = |rows| (rows <= room).then(|| TriedBatch { rows, bytes: 0, step_ms: ms(rows) });
        let try_rows = |mut asked: Vec<usize>, rows| {
            asked.push(rows);
            Ok((asked, fits(rows)))
        };
        search(Vec::new(), most, &AtomicBool::new(false), try_rows).unwrap()
    }

    #[test]
    fn sizes_double_until_there_is_no_room() {
        let (asked, tried, end) = sizes(1000, 50, |_| 1.0);
        assert_eq!(asked, [8, 16, 32, 64, 48, 56, 52]);
        assert_eq!((tried.len(), tried.last().unwrap().rows, end), (4, 48, EndOfSearch::Memory));
        let (asked, tried, end) = sizes(1000, 3, |_| 1.0);
        assert_eq!((asked, tried.last().unwrap().rows, end), (vec![8, 4, 2, 3], 3, EndOfSearch::Memory));
        assert_eq!(sizes(1000, 0, |_| 1.0).1, []);
        let (asked, _, end) = sizes(20, 50, |_| 1.0);
        assert_eq!((asked, end), (vec![8, 16, 20], EndOfSearch::Rows));
        let (asked, _, end) = sizes(1 << 40, 1 << 40, |_| 1500.0);
        assert_eq!((asked, end), (vec![8], EndOfSearch::Time));
    }

    #[test]
    fn the_smallest_that_is_nearly_as_fast_is_good() {
        let (_, tried, _) = sizes(128, 128, |rows| 10.0 + rows as f64);
        // 128 rows take 138 ms: 927 a second, of which 64 in 74 ms are 93 %.
        assert_eq!(good(&tried).unwrap().rows, 128);
        let (_, tried, _) = sizes(128, 128, |rows| 1.0 + rows as f64);
        assert_eq!(good(&tried).unwrap().rows, 32);
    }
}
