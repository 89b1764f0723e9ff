//! Many batches of whole arrays, one after the other: no Python runs between two of them unless somebody wants to be told.

use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use manyhands::data;
use pyo3::prelude::*;

use crate::batch::{Lent, Rows};
use crate::errors::exception;

/// Batches that are read before they are asked for.
const AHEAD: usize = 2;

/// Totals up to now: batches, rows, the sum of each number over the rows, the rows of each adapter by its position.
#[derive(Default)]
pub(crate) struct Tally {
    batches: u64,
    rows: u64,
    sums: Vec<(String, f64)>,
    shards: Vec<(usize, u64)>,
}

impl Tally {
    /// Counts a batch; takes the numbers of all batches so far.
    #[allow(clippy::cast_precision_loss, reason = "a batch has fewer than 2^52 rows")]
    pub(crate) fn add(&mut self, rows: usize, values: Vec<(String, f64)>, shards: &[(usize, u32)]) {
        self.batches += 1;
        self.rows += rows as u64;
        self.sums = values.into_iter().map(|(name, value)| (name, value * self.rows as f64)).collect();
        for (adapter, rows) in shards {
            *entry(&mut self.shards, *adapter) += u64::from(*rows);
        }
    }
}

fn entry<K: PartialEq, V: Default>(entries: &mut Vec<(K, V)>, key: K) -> &mut V {
    let position = entries.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        entries.push((key, V::default()));
        entries.len() - 1
    });
    &mut entries[position].1
}

/// Receiver of tallies, and their times.
pub(crate) struct Listener<'a> {
    tell: &'a Py<PyAny>,
    /// Time from one call to the next; after each batch without it.
    every: Option<Duration>,
    told: Instant,
    told_batches: u64,
}

/// Whether more batches are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    More,
    NoMore,
}

impl<'a> Listener<'a> {
    pub(crate) fn new(tell: &'a Py<PyAny>, every_ms: Option<u64>) -> Self {
        let every = every_ms.map(Duration::from_millis);
        Self { tell, every, told: Instant::now(), told_batches: 0 }
    }

    /// Tells of a tally if it is time, and lets an interrupt through.
    pub(crate) fn hear(&mut self, tally: &Tally) -> PyResult<Wanted> {
        match self.every {
            Some(every) if self.told.elapsed() < every => Ok(Wanted::More),
            _ => self.tell(tally),
        }
    }

    /// Tells of a tally, unless it is the one that was told last.
    pub(crate) fn tell(&mut self, tally: &Tally) -> PyResult<Wanted> {
        if tally.batches == self.told_batches {
            return Ok(Wanted::More);
        }
        self.told_batches = tally.batches;
        let wanted = Python::attach(|py| {
            py.check_signals()?;
            let told = (tally.batches, tally.rows, tally.sums.clone(), tally.shards.clone());
            let is_enough = self.tell.call1(py, told)?.is_truthy(py)?;
            Ok(if is_enough { Wanted::NoMore } else { Wanted::More })
        });
        self.told = Instant::now();
        wanted
    }
}

/// Runs a function without the interpreter's lock that gets batches of rows in an order, which another thread reads ahead and
/// makes what the function wants of them and of their places in the order.
pub(crate) fn each<T: Send, B: Send>(
    py: Python<'_>,
    rows: &Rows,
    order: &[usize],
    batch_size: usize,
    make: impl Fn(Range<usize>, data::Batch) -> B + Send + Sync,
    run: impl FnOnce(&Receiver<B>) -> PyResult<T> + Send,
) -> PyResult<T> {
    if let Some(row) = order.iter().find(|row| **row >= rows.rows()) {
        return Err(pyo3::exceptions::PyIndexError::new_err(format!("there is no row {row}")));
    }
    rows.lent(py, |lent| py.detach(|| beside_reader(lent, order, batch_size, &make, run)))?
}

/// Runs a function while a thread reads batches for it.
fn beside_reader<T: Send, B: Send>(
    lent: &Lent<'_>,
    order: &[usize],
    batch_size: usize,
    make: &(impl Fn(Range<usize>, data::Batch) -> B + Sync),
    run: impl FnOnce(&Receiver<B>) -> PyResult<T>,
) -> PyResult<T> {
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel(AHEAD);
        // The thread ends when nobody receives any more.
        scope.spawn(move || {
            let ends = (0..order.len())
                .step_by(batch_size.max(1))
                .map(|begin| begin..order.len().min(begin + batch_size.max(1)));
            let mut batches = ends.map(|places| make(places.clone(), lent.batch(&order[places])));
            while batches.next().is_some_and(|batch| send.send(batch).is_ok()) {}
        });
        let done = run(&receive);
        drop(receive);
        done
    })
}

/// An error of the crate, where the interpreter's lock is not held.
pub(crate) fn raised(error: &manyhands::Error) -> PyErr {
    Python::attach(|py| exception(py, error))
}
