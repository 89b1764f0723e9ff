//! Batches of a dataset, in order, decoded ahead by threads.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use async_channel::Receiver;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::buffers::Buffers;
use super::{Augment, Batch, Dataset, Purpose, generator};
use crate::runtime::threads;
use crate::{Error, Result};

/// Settings of a [`Loader`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoaderSettings {
    /// Rows of a batch; the last of an epoch may have fewer. Default 32.
    pub batch_size: usize,
    /// Seed of the order, which differs from epoch to epoch; `None` (the default) keeps the dataset's.
    pub shuffle: Option<u64>,
    /// Leave out a last batch of fewer rows. Default `false`.
    pub drop_remainder: bool,
    /// Threads that decode; 0 decodes when a batch is asked for, as a browser always does. Default: one for each core, at most
    /// 8. All of them read the rows of one batch before they go on to the next.
    pub workers: usize,
    /// Batches that are decoded ahead, at most. Default 4.
    pub prefetch: usize,
    /// Random changes of the images. Default: none.
    #[serde(skip)]
    pub augment: Option<Augment>,
}

/// Most reading threads by default.
const MOST_WORKERS: usize = 8;

impl Default for LoaderSettings {
    fn default() -> Self {
        let workers = threads::count().min(MOST_WORKERS);
        Self { batch_size: 32, shuffle: None, drop_remainder: false, workers, prefetch: 4, augment: None }
    }
}

/// Position of the next batch. A checkpoint keeps it, and a loader resumes there exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Index of the batch in its epoch.
    pub batch: usize,
}

/// The rows of a batch that are read, of so many: several processes read a part each.
pub(crate) type Part = Arc<dyn Fn(usize) -> Range<usize> + Send + Sync>;

/// Gives the batches of a dataset, epoch by epoch.
///
/// The order of the rows depends only on the seed and the epoch, and batches come in order for any
/// number of workers. Workers are threads of the loader's own, so that decoding and computing
/// do not wait for each other; they stop when the loader is dropped. A batch that was dropped lends its memory to a later one of
/// the same epoch.
///
/// ```
/// use std::sync::Arc;
/// use manyhands::data::{Loader, LoaderSettings, digits};
///
/// # fn main() -> manyhands::Result<()> {
/// let settings = LoaderSettings { batch_size: 100, shuffle: Some(1), ..Default::default() };
/// let mut loader = Loader::new(Arc::new(digits::test()?), settings)?;
/// loader.start_epoch(3, 2);
/// let third = loader.next()?;
/// assert_eq!(third.map(|batch| batch.rows), Some(100));
/// assert_eq!((loader.position().epoch, loader.position().batch), (3, 3));
/// # Ok(())
/// # }
/// ```
pub struct Loader {
    dataset: Arc<dyn Dataset>,
    settings: LoaderSettings,
    augment: Option<Arc<Augment>>,
    position: Position,
    order: Arc<[usize]>,
    part: Option<Part>,
    /// Batches in flight: the first is that of `position`, the others follow it.
    pending: VecDeque<Receiver<Result<Batch>>>,
    /// Buffers of this epoch's batches.
    buffers: Arc<Buffers>,
    workers: Workers,
}

impl Loader {
    /// A loader at the start of epoch 0.
    ///
    /// # Errors
    ///
    /// When the dataset is empty, no batch could be made, or the system gives no threads.
    pub fn new(dataset: Arc<dyn Dataset>, settings: LoaderSettings) -> Result<Self> {
        check(dataset.as_ref(), &settings)?;
        let workers = Workers::new(settings.workers)?;
        let order = epoch_order(dataset.len(), settings.shuffle, 0);
        let augment = settings.augment.clone().map(Arc::new);
        let (position, pending) = (Position::default(), VecDeque::new());
        let buffers = Arc::default();
        Ok(Self { dataset, settings, augment, position, order, part: None, pending, buffers, workers })
    }

    /// Moves to a batch of an epoch. Batches decoded ahead are dropped.
    pub fn start_epoch(&mut self, epoch: u64, first_batch: usize) {
        self.pending.clear();
        if self.settings.shuffle.is_some() && epoch != self.position.epoch {
            self.order = epoch_order(self.dataset.len(), self.settings.shuffle, epoch);
        }
        self.position = Position { epoch, batch: first_batch };
        self.top_up();
    }

    /// Moves to a batch of an epoch, unless it comes next already.
    pub(crate) fn seek(&mut self, epoch: u64, batch: usize) {
        if self.position != (Position { epoch, batch }) {
            self.start_epoch(epoch, batch);
        }
    }

    /// Reads a part of each batch from the next one on. Batches decoded ahead are dropped.
    pub(crate) fn set_part(&mut self, part: Part) {
        self.pending.clear();
        self.part = Some(part);
    }

    /// Rows of the whole batch that comes next; 0 at the end of the epoch.
    pub(crate) fn next_rows(&self) -> usize {
        if self.position.batch < self.batches_per_epoch() { self.whole_rows(self.position.batch).len() } else { 0 }
    }

    /// The batch that comes next.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Number of batches in an epoch.
    pub fn batches_per_epoch(&self) -> usize {
        let rows = self.dataset.len();
        if self.settings.drop_remainder {
            rows / self.settings.batch_size
        } else {
            rows.div_ceil(self.settings.batch_size)
        }
    }

    /// The settings.
    pub fn settings(&self) -> &LoaderSettings {
        &self.settings
    }

    /// Changes the batch size from here on, at about the same row: whole finished batches count.
    ///
    /// # Errors
    ///
    /// When no batch could be made.
    pub fn set_batch_size(&mut self, rows: usize) -> Result<()> {
        let settings = LoaderSettings { batch_size: rows, ..self.settings.clone() };
        check(self.dataset.as_ref(), &settings)?;
        let done = self.position.batch * self.settings.batch_size;
        self.settings = settings;
        self.start_epoch(self.position.epoch, done / rows);
        Ok(())
    }

    /// The dataset.
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.dataset
    }

    /// The next batch, or `None` at the end of the epoch, until [`start_epoch`](Self::start_epoch). Blocks until it is
    /// read.
    ///
    /// # Errors
    /// As [`next_async`](Self::next_async).
    #[cfg(not(target_arch = "wasm32"))]
    #[allow(clippy::should_implement_trait, reason = "an iterator has no errors")]
    pub fn next(&mut self) -> Result<Option<Batch>> {
        pollster::block_on(self.next_async())
    }

    /// The next batch, without blocking; `None` at the end of the epoch, until [`start_epoch`](Self::start_epoch).
    ///
    /// Dropping the future loses nothing: the next call gives the same batch.
    ///
    /// # Errors
    ///
    /// When a row can't be read; the position stays, so that the batch can be tried again.
    pub async fn next_async(&mut self) -> Result<Option<Batch>> {
        if self.position.batch >= self.batches_per_epoch() {
            self.buffers.clear();
            return Ok(None);
        }
        self.top_up();
        let batch = match self.pending.front() {
            Some(receiver) => receiver.recv().await.unwrap_or_else(|_| Err(panicked())),
            None => self.job(self.position.batch)(),
        };
        if batch.is_err() {
            self.pending.clear();
        }
        let batch = batch?;
        self.pending.pop_front();
        self.position.batch += 1;
        self.top_up();
        Ok(Some(batch))
    }

    /// Queues batches for the workers, up to the limit of batches ahead.
    fn top_up(&mut self) {
        while self.pending.len() < self.settings.prefetch {
            let batch_idx = self.position.batch.saturating_add(self.pending.len());
            if batch_idx >= self.batches_per_epoch() {
                return;
            }
            let Some(receiver) = self.workers.spawn(self.job(batch_idx)) else { return };
            self.pending.push_back(receiver);
        }
    }

    /// The work of a batch: its rows are read, and their images changed.
    fn job(&self, batch_idx: usize) -> impl FnOnce() -> Result<Batch> + Send + use<> {
        let (rows, order, dataset) = (self.rows(batch_idx), Arc::clone(&self.order), Arc::clone(&self.dataset));
        let (augment, epoch, buffers) = (self.augment.clone(), self.position.epoch, Arc::clone(&self.buffers));
        let fetch = if self.settings.workers > 0 { Batch::fetch_on_threads } else { Batch::fetch_into };
        move || {
            let rows = &order[rows];
            let Some(augment) = augment else {
                let batch = fetch(&buffers, dataset.as_ref(), rows, &|_, _| ())?;
                batch.lend_to(&buffers);
                return Ok(batch);
            };
            let size = augment.size(&dataset.input_shapes())?;
            let change = |rows: &[usize], images: &mut [f32]| augment.change(images, size, rows, epoch);
            let mut batch = fetch(&buffers, dataset.as_ref(), rows, &change)?;
            augment.mix(&mut batch, &buffers, rows, epoch);
            batch.lend_to(&buffers);
            Ok(batch)
        }
    }

    fn rows(&self, batch_idx: usize) -> Range<usize> {
        let whole = self.whole_rows(batch_idx);
        let part = self.part.as_ref().map_or(0..whole.len(), |part| part(whole.len()));
        whole.start + part.start..whole.start + part.end
    }

    fn whole_rows(&self, batch_idx: usize) -> Range<usize> {
        let first = batch_idx * self.settings.batch_size;
        first..self.order.len().min(first + self.settings.batch_size)
    }
}

/// Most threads that decode. Starting thousands takes minutes.
const MOST_THREADS: usize = 1024;

fn check(dataset: &dyn Dataset, settings: &LoaderSettings) -> Result<()> {
    let LoaderSettings { batch_size, drop_remainder, workers, prefetch, .. } = *settings;
    if dataset.is_empty() {
        return Err(Error::data("the dataset", "needs at least one row, but has none", "give it rows"));
    }
    if batch_size == 0 {
        return Err(Error::setting("`batch_size`", "needs at least 1, but is 0", "32 is a good first choice"));
    }
    if drop_remainder && batch_size > dataset.len() {
        let problem = format!("needs {batch_size} rows for a batch, but the dataset has {}", dataset.len());
        return Err(Error::setting("`drop_remainder`", problem, "lower `batch_size`, or keep the remainder"));
    }
    if workers > MOST_THREADS {
        let problem = format!("needs up to {MOST_THREADS}, but is {workers}");
        return Err(Error::setting("`workers`", problem, "one for each core is usual"));
    }
    if workers > 0 && prefetch == 0 {
        let problem = format!("needs at least 1 with {workers} workers, but is 0");
        return Err(Error::setting("`prefetch`", problem, "use 4, or `workers = 0` to decode when asked"));
    }
    settings.augment.as_ref().map_or(Ok(()), |augment| augment.check(dataset))
}

fn panicked() -> Error {
    Error::data("the dataset", "stopped a worker with a panic", "see the log; `workers = 0` shows where it happens")
}

fn epoch_order(len: usize, shuffle: Option<u64>, epoch: u64) -> Arc<[usize]> {
    let mut order: Vec<usize> = (0..len).collect();
    if let Some(seed) = shuffle {
        order.shuffle(&mut generator(Purpose::EpochOrder, seed, epoch));
    }
    order.into()
}

/// Threads that decode. They are not rayon's pool, in which the CPU adapter computes and would starve them.
#[cfg(not(target_arch = "wasm32"))]
struct Workers(Option<rayon::ThreadPool>);

#[cfg(not(target_arch = "wasm32"))]
impl Workers {
    fn new(n_workers: usize) -> Result<Self> {
        if n_workers == 0 {
            return Ok(Self(None));
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_workers)
            .thread_name(|worker| format!("loader {worker}"))
            // A panic closes its job's channel, which `next` reports; without this it would end the process.
            .panic_handler(|_| log::error!("a dataset panicked while a batch was read"))
            .build()
            .map_err(|error| {
                let problem = format!("needs {n_workers} threads, but the system said: {error}");
                Error::setting("`workers`", problem, "use fewer workers, or 0")
            })?;
        Ok(Self(Some(pool)))
    }

    /// Runs a job on a thread; `None` if there are no threads.
    fn spawn(&self, job: impl FnOnce() -> Result<Batch> + Send + 'static) -> Option<Receiver<Result<Batch>>> {
        let pool = self.0.as_ref()?;
        // One message in a channel of one: a worker never waits, so workers can't deadlock.
        let (sender, receiver) = async_channel::bounded(1);
        pool.spawn(move || {
            if sender.is_closed() {
                return;
            }
            if sender.try_send(job()).is_err() {
                log::trace!("a batch was read that is no longer wanted");
            }
        });
        Some(receiver)
    }
}

/// Without threads, batches are decoded on request.
#[cfg(target_arch = "wasm32")]
struct Workers;

#[cfg(target_arch = "wasm32")]
impl Workers {
    #[allow(clippy::unnecessary_wraps, reason = "the native form can fail")]
    fn new(_n_workers: usize) -> Result<Self> {
        Ok(Self)
    }

    #[allow(clippy::unused_self, reason = "the native form has threads")]
    fn spawn(&self, _job: impl FnOnce() -> Result<Batch> + Send + 'static) -> Option<Receiver<Result<Batch>>> {
        None
    }
}
