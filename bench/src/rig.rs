//! A measured rig: adapters with a model, and the times of its training steps.

use std::fmt::Write;
use std::sync::Arc;

use ndarray::Array2;
use serde::Serialize;

use super::workloads::Workload;
use manyhands::data::{Batch, Dataset, InMemory, Loader, LoaderSettings, Synthetic, label_value};
use manyhands::model::Objective;
use manyhands::processes::Group;
use manyhands::scheduler::split::SplitMode;
use manyhands::scheduler::timeline::{Activity, Lane, Span, Tracing};
use manyhands::scheduler::{CpuFallback, DataWait, Finished, NextStep, Scheduler, ShardReport, Step, StepSource};
use manyhands_engine::adapters::{self, Info, Opener, Throttles};
use manyhands_engine::error::{Error, Result};
use manyhands_engine::plan::{BatchStatistics, GradientCompression, Pass, Precision, Work};
use manyhands_engine::runtime::{Metered, Runtime, system};

/// Steps of a turn beyond those asked for, at most.
const MOST_EXTRA: u32 = 500;

/// Times do not depend on it, and no run gets values that are not finite.
const LEARNING_RATE: f32 = 1e-6;

/// An adapter that takes part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RigAdapter {
    /// Description of the adapter.
    #[serde(flatten)]
    pub info: Info,
    /// Factor by which it is slowed down.
    pub throttle: f64,
}

impl From<Info> for RigAdapter {
    fn from(info: Info) -> Self {
        Self { info, throttle: 1.0 }
    }
}

/// The adapters without duplicates.
pub(super) fn distinct(members: &[RigAdapter]) -> Vec<RigAdapter> {
    let mut distinct: Vec<RigAdapter> = Vec::new();
    for member in members {
        if !distinct.contains(member) {
            distinct.push(member.clone());
        }
    }
    distinct
}

/// Source of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// One batch, which is there before the first step.
    #[default]
    Synthetic,
    /// A loader makes each batch in threads of its own, in a new order.
    Loaded,
}

/// Source of the batches.
pub enum Source {
    /// One batch, used in every step.
    Same(Batch),
    /// A loader, epoch after epoch.
    Loader(Box<Loader>),
}

/// Batches of an epoch that a loader makes.
const BATCHES: usize = 64;

/// Rows for a model, determined by the number.
///
/// # Errors
/// If there are none.
pub fn synthetic(workload: &Workload, rows: u32) -> Result<Batch> {
    let rows = rows as usize;
    Batch::fetch(&*dataset(workload, rows)?, &(0..rows).collect::<Vec<_>>())
}

/// Rows for a model as data, determined by the number.
///
/// # Errors
/// If there are none.
pub fn dataset(workload: &Workload, rows: usize) -> Result<Arc<dyn Dataset>> {
    let shape = &workload.model.inputs()[0].shape;
    if !workload.is_text() {
        return Ok(Arc::new(Synthetic::new(shape.clone(), workload.classes, 0..rows, 0)?));
    }
    let characters = |offset: usize| {
        Array2::from_shape_fn((rows, shape.len()), |(row, at)| {
            label_value((37 * (row + at + offset)) % workload.classes)
        })
    };
    Ok(Arc::new(InMemory::new(characters(0), characters(1))?))
}

impl Source {
    /// Batches of `rows` rows for a model.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn new(workload: &Workload, data: Data, rows: u32) -> Result<Self> {
        match data {
            Data::Synthetic => Ok(Self::Same(synthetic(workload, rows)?)),
            Data::Loaded => {
                let rows = rows as usize;
                let dataset = dataset(workload, BATCHES * rows)?;
                let settings = LoaderSettings { batch_size: rows, shuffle: Some(0), ..LoaderSettings::default() };
                let mut loader = Loader::new(dataset, settings)?;
                loader.start_epoch(0, 0);
                Ok(Self::Loader(Box::new(loader)))
            }
        }
    }

    async fn next(&mut self) -> Result<Batch> {
        match self {
            Self::Same(batch) => Ok(batch.clone()),
            Self::Loader(loader) => loop {
                if let Some(batch) = loader.next_async().await? {
                    return Ok(batch);
                }
                loader.start_epoch(loader.position().epoch + 1, 0);
            },
        }
    }
}

/// A rig's turn, in training steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Number of first steps that do not count.
    pub warm_up: u32,
    /// Number of steps that count.
    pub counted: u32,
    /// Milliseconds of counted steps after which this smaller number of them is enough.
    pub enough: Option<(f64, u32)>,
    /// Milliseconds that the warm-up takes at least, and the counted steps: more steps than asked for where they are short.
    pub least_ms: f64,
}

impl Turn {
    /// A turn of so many steps, however long they take.
    pub fn new(warm_up: u32, counted: u32) -> Self {
        Self { warm_up, counted, enough: None, least_ms: 0.0 }
    }

    /// As long as that takes at least, since steps may be short: the clock of a card that had nothing to do rises only under load.
    #[must_use]
    pub fn lasting(self, least_ms: f64) -> Self {
        Self { least_ms, ..self }
    }
}

/// Times of a training step, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The whole step, with its wait for data.
    pub step_ms: f64,
    /// Host: waiting for the batch.
    pub data_ms: f64,
    /// Host: adding gradients.
    pub reduce_ms: f64,
    /// Host: updating the parameters.
    pub update_ms: f64,
    /// Host: giving the new ones out.
    pub broadcast_ms: f64,
    /// Bytes of its memory that the host read and wrote to add, update and broadcast.
    pub host_bytes: u64,
    /// Requests to devices.
    pub requests: DeviceCounts,
    /// Parts of the adapters that had rows.
    pub shards: Vec<ShardReport>,
    /// Updating the parameters on the only adapter.
    pub device_update_ms: f64,
}

/// Requests to all devices of the process: those of a rig, while it alone runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceCounts {
    /// Submissions to a queue.
    pub submissions: usize,
    /// Waits of the host for a device.
    pub round_trips: usize,
    /// Buffers, bind groups, shader modules and pipelines made.
    pub objects: usize,
}

impl DeviceCounts {
    /// Counts up to now.
    #[cfg(feature = "gpu")]
    fn so_far() -> Self {
        use manyhands_engine::adapters::gpu::{objects_created, round_trips_made, submissions_made};
        Self { submissions: submissions_made(), round_trips: round_trips_made(), objects: objects_created() }
    }

    /// Zeros: without devices nothing is requested.
    #[cfg(not(feature = "gpu"))]
    fn so_far() -> Self {
        Self::default()
    }

    fn since(self, before: Self) -> Self {
        Self {
            submissions: self.submissions - before.submissions,
            round_trips: self.round_trips - before.round_trips,
            objects: self.objects - before.objects,
        }
    }
}

/// Tiles that were tried so far, by all adapters of the process.
fn tiles_tried() -> usize {
    #[cfg(feature = "gpu")]
    return manyhands_engine::adapters::gpu::tiles_tried();
    #[cfg(not(feature = "gpu"))]
    0
}

/// Start of a step's measurements: the end of the step before.
#[derive(Default)]
struct Ended {
    ms: f64,
    bytes: u64,
    requests: DeviceCounts,
}

/// Adapters that train together.
pub struct BenchRig {
    /// Name for people.
    pub name: String,
    /// The adapters.
    pub scheduler: Scheduler,
    /// Factors by which adapters are slowed down.
    pub throttles: Throttles,
    runtime: Arc<Metered>,
    /// Number of the next step.
    next: u64,
    /// End of the last step, with the counts of requests and bytes at that time.
    ended: Ended,
    /// The steps that count, of all turns.
    pub samples: Vec<Sample>,
}

/// Opener and clock of adapters.
#[derive(Clone)]
pub struct Opening {
    /// Function that opens each.
    pub opener: Opener,
    /// Clock, timer and spawn.
    pub runtime: Arc<dyn Runtime>,
    /// The processes that train together, each on rows of its own.
    pub processes: Group,
}

impl Default for Opening {
    /// The adapters of this machine, in a lone process.
    fn default() -> Self {
        Self { opener: Arc::new(adapters::open), runtime: system(), processes: Group::alone() }
    }
}

impl Opening {
    /// Opens adapters for batches of up to `capacity` rows.
    ///
    /// # Errors
    /// If an adapter can't be opened, or the split does not go with the adapters.
    pub async fn rig(
        &self,
        workload: &Workload,
        members: &[RigAdapter],
        split: SplitMode,
        capacity: u32,
    ) -> Result<BenchRig> {
        let Workload {
            model, optimizer, loss, gradient_compression, batch_statistics, micro_batches, precision, ..
        } = workload;
        let objective = Objective {
            precision: *precision,
            gradient_compression: *gradient_compression,
            batch_statistics: *batch_statistics,
            ..Objective::new(vec![loss.clone()], optimizer.clone())
        };
        let runtime = Arc::new(Metered::new(self.runtime.clone()));
        let throttles = Throttles::default();
        members.iter().enumerate().for_each(|(adapter_idx, member)| throttles.set(adapter_idx, member.throttle));
        let mut scheduler = Scheduler::builder(model, &objective)
            .adapters(members.iter().map(|member| member.info.clone()).collect())
            .opener(throttles.wrap(self.opener.clone()))
            .runtime(runtime.clone())
            .processes(self.processes.clone())
            .split(split)
            .capacity(capacity.div_ceil(*micro_batches))
            .micro_batches(*micro_batches)
            .cpu_fallback(CpuFallback::Refused)
            .open()
            .await?;
        // All adapters are to be measured together, also if fewer were faster.
        scheduler.keep_all();
        let mut name = name(members);
        if *gradient_compression == GradientCompression::Fp16 {
            name += ", fp16";
        }
        if *batch_statistics == BatchStatistics::Batch {
            name += ", batch statistics";
        }
        if *precision == Precision::MixedFloat16 {
            name += ", mixed_float16";
        }
        if *micro_batches > 1 {
            write!(name, ", {micro_batches} micro-batches").unwrap_or_default();
        }
        Ok(BenchRig { name, scheduler, throttles, runtime, next: 0, ended: Ended::default(), samples: Vec::new() })
    }
}

/// The steps of a turn.
struct TurnSteps<'a> {
    runtime: &'a dyn Runtime,
    next: &'a mut u64,
    /// Steps that have not begun.
    left: &'a mut u32,
    source: &'a mut Source,
}

impl StepSource for TurnSteps<'_> {
    #[allow(clippy::cast_precision_loss, reason = "a batch is far below 2^24 rows")]
    async fn next(&mut self, _: usize) -> Result<Option<NextStep>> {
        if *self.left == 0 {
            return Ok(None);
        }
        let begin_ms = self.runtime.now_ms();
        let batch = self.source.next().await?;
        let data = DataWait::since(begin_ms, self.runtime.now_ms());
        let scale = 1.0 / batch.rows.max(1) as f32;
        let step = Step {
            step: *self.next,
            seed: 0,
            learning_rate: LEARNING_RATE,
            loss_scales: vec![scale],
            ..Step::default()
        };
        (*self.next, *self.left) = (*self.next + 1, *self.left - 1);
        NextStep::whole(batch, step, data).map(Some)
    }
}

impl BenchRig {
    /// Opens adapters of this machine for batches of up to `capacity` rows.
    ///
    /// # Errors
    /// If an adapter can't be opened, or the split does not go with the adapters.
    pub async fn open(workload: &Workload, members: &[RigAdapter], split: SplitMode, capacity: u32) -> Result<Self> {
        Opening::default().rig(workload, members, split, capacity).await
    }

    /// Trains for some steps, of which those after the warm-up are kept. Steps in which an adapter tries tiles are
    /// extra: only steady steps count, and tuning ends.
    ///
    /// # Errors
    /// If no batch can be made, or an adapter fails.
    pub async fn turn(&mut self, source: &mut Source, turn: Turn) -> Result<()> {
        let (mut count, mut left) = (0, turn.warm_up + turn.counted);
        let (mut tried, mut warm_ms, mut counted_ms, mut extra) = (tiles_tried(), 0.0, 0.0, 0);
        self.mark(self.runtime.now_ms());
        loop {
            let mut steps = TurnSteps { runtime: &*self.runtime, next: &mut self.next, left: &mut left, source };
            let Some(finished) = self.scheduler.advance(&mut steps).await? else { return Ok(()) };
            let sample = self.sample(finished)?;
            if std::mem::replace(&mut tried, tiles_tried()) != tried {
                left += 1;
                continue;
            }
            if count < turn.warm_up || warm_ms < turn.least_ms && extra < MOST_EXTRA {
                warm_ms += sample.step_ms;
                let is_extra = u32::from(count == turn.warm_up);
                (left, extra, count) = (left + is_extra, extra + is_extra, count + 1 - is_extra);
                continue;
            }
            count += 1;
            counted_ms += sample.step_ms;
            let is_short = count - turn.warm_up >= turn.counted && counted_ms < turn.least_ms && extra < MOST_EXTRA;
            (left, extra) = (left + u32::from(is_short), extra + u32::from(is_short));
            self.samples.push(sample);
            if turn.enough.is_some_and(|(ms, steps)| counted_ms > ms && count - turn.warm_up >= steps) {
                left = 0;
            }
        }
    }

    /// Milliseconds of the clock that steps are timed by.
    pub fn now_ms(&self) -> f64 {
        self.runtime.now_ms()
    }

    /// One training step on a ready batch.
    ///
    /// # Errors
    /// If an adapter fails.
    pub async fn train(&mut self, batch: &Batch) -> Result<Sample> {
        self.turn(&mut Source::Same(batch.clone()), Turn::new(0, 1)).await?;
        self.samples.pop().ok_or_else(|| self.lost())
    }

    fn lost(&self) -> Error {
        let problem = "was lost with what it had trained: its times mean nothing";
        Error::adapter(&self.name, problem, "measure other adapters")
    }

    /// Begins the measurements of the next step.
    fn mark(&mut self, now_ms: f64) {
        self.ended = Ended { ms: now_ms, bytes: self.runtime.bytes(), requests: DeviceCounts::so_far() };
        self.scheduler.timeline_mut().start(now_ms, Tracing::On);
    }

    /// Measurements of a step that has ended.
    fn sample(&mut self, finished: Finished) -> Result<Sample> {
        let Finished::Step(finished) = finished else { return Err(self.lost()) };
        let (report, data_ms) = (finished.report, finished.data.ms);
        let now_ms = self.runtime.now_ms();
        let step_ms = now_ms - self.ended.ms;
        if !report.is_applied {
            let problem = "needs finite gradients, but has others: it was not applied, and its time means nothing";
            return Err(Error::non_finite("a training step", problem, "use another batch size"));
        }
        let spans: Vec<&Span> = self.scheduler.timeline().spans().collect();
        let total = |is_there: fn(Lane) -> bool, what: Activity| {
            spans.iter().filter(|span| is_there(span.lane) && span.what == what).fold(0.0, |ms, span| ms + span.ms)
        };
        let on_host = |what| total(|lane| lane == Lane::Host, what);
        let sample = Sample {
            step_ms,
            data_ms,
            reduce_ms: on_host(Activity::Reduce),
            update_ms: on_host(Activity::Update),
            broadcast_ms: on_host(Activity::Broadcast),
            host_bytes: self.runtime.bytes() - self.ended.bytes,
            requests: DeviceCounts::so_far().since(self.ended.requests),
            device_update_ms: total(|lane| lane != Lane::Host, Activity::Update),
            shards: report.shards,
        };
        self.mark(now_ms);
        Ok(sample)
    }

    /// Work of a training step on `rows` rows, over all adapters. Dispatches are those of one adapter.
    pub fn work(&self, rows: u32) -> Work {
        let mut work = Work::of(self.scheduler.plan(), Pass::Train, rows);
        if self.scheduler.is_on_device() {
            let update = Work::of(self.scheduler.plan(), Pass::Update, rows);
            work = Work { bytes: work.bytes + update.bytes, dispatches: work.dispatches + update.dispatches, ..work };
        }
        work
    }

    /// Rows of each adapter in the last step that counted.
    pub fn shares(&self) -> Vec<u32> {
        self.samples.last().map_or(Vec::new(), Sample::shares)
    }
}

impl Sample {
    /// Rows of each adapter, in the order of their positions, up to the last adapter with rows.
    pub fn shares(&self) -> Vec<u32> {
        let mut shares = Vec::new();
        for shard in &self.shards {
            shares.resize(shares.len().max(shard.adapter_idx + 1), 0);
            shares[shard.adapter_idx] += shard.rows;
        }
        shares
    }
}

/// Joint name of several adapters.
pub fn name(members: &[RigAdapter]) -> String {
    let of_member = |member: &RigAdapter| match member.throttle {
        factor if factor > 1.0 => format!("{} / {factor}", member.info.name),
        _ => member.info.name.clone(),
    };
    members.iter().map(of_member).collect::<Vec<_>>().join(" + ")
}
