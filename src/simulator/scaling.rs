//! What 1 to N real adapters do together, measured: the counterpart of a prediction.

use std::sync::Arc;

use super::measure::{noise, numbers};
use super::report::{Point, Report};
use crate::adapters::{Info, Opener, Throttles};
use crate::data::Batch;
use crate::error::Result;
use crate::model::{Model, Objective};
use crate::runtime::Runtime;
use crate::scheduler::{CpuFallback, Scheduler};

/// Training steps before those that count, in which the split is learned.
const WARM_UP: u64 = 6;
/// Training steps that count: so many, or fewer once they took so long.
const COUNTED: usize = 15;
const FEWEST: usize = 5;
const LONG_MS: f64 = 3_000.0;

/// What is measured.
pub struct Scaling<'a> {
    /// How adapters are opened.
    pub opener: Opener,
    /// Clock, timer and spawn.
    pub runtime: Arc<dyn Runtime>,
    /// The adapters, in the order in which they join, and how many times as slow each is made.
    pub adapters: Vec<(Info, f64)>,
    /// The model; its weights are left alone.
    pub model: &'a Model,
    /// Its losses and optimizer.
    pub objective: &'a Objective,
    /// Rows of a batch, for one adapter where it grows.
    pub batch_size: u32,
}

/// How the batch goes with the number of adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Each adapter for itself.
    Alone,
    /// The batch stays.
    Strong,
    /// The batch grows.
    Weak,
}

/// A part of a measurement that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Part {
    /// How the batch goes with the adapters.
    pub scaling: Kind,
    /// How many of them; of those that are alone, which.
    pub n_adapters: usize,
    /// Parts that are done.
    pub done: usize,
    /// All parts.
    pub total: usize,
}

/// Whether a measurement goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It does.
    GoOn,
    /// It ends, with nothing.
    Cancel,
}

/// Measures 1 to N adapters, with a fixed batch and with one that grows. Rows are noise: times do not depend on them.
///
/// An adapter alone updates the weights itself, as it does in training. `None` if it was cancelled.
///
/// # Errors
/// If an adapter can't be opened, or fails.
pub async fn measure_scaling(job: &Scaling<'_>, mut wish: impl FnMut(Part) -> Wish) -> Result<Option<Report>> {
    let n_adapters = job.adapters.len();
    let total = 3 * n_adapters - 2;
    let mut parts = 0;
    let mut begin = |scaling, n_adapters| {
        let part = Part { scaling, n_adapters, done: parts, total };
        parts += 1;
        wish(part) == Wish::GoOn
    };
    let mut alone = Vec::new();
    for (number, adapter) in (1..).zip(&job.adapters) {
        if !begin(Kind::Alone, number) {
            return Ok(None);
        }
        let mut scheduler = job.open(std::slice::from_ref(adapter), job.batch_size).await?;
        alone.push(job.point(&mut scheduler, 1, job.batch_size).await?);
    }
    let (mut strong, mut weak) = (Vec::new(), Vec::new());
    for points in [&mut strong, &mut weak] {
        points.extend(alone.first().cloned());
    }
    if n_adapters > 1 {
        let largest = job.batch_size * u32::try_from(n_adapters).unwrap_or(1);
        let mut together = job.open(&job.adapters, largest).await?;
        for (grown, n_adapters) in (2..).zip(2..=n_adapters) {
            let kinds = [(Kind::Strong, job.batch_size, &mut strong), (Kind::Weak, job.batch_size * grown, &mut weak)];
            for (kind, rows, points) in kinds {
                if !begin(kind, n_adapters) {
                    return Ok(None);
                }
                points.push(job.point(&mut together, n_adapters, rows).await?);
            }
        }
    }
    for point in strong.iter_mut().chain(&mut weak) {
        let ideal: f64 = alone[..point.n_adapters].iter().map(|alone| alone.rows_per_s).sum();
        point.efficiency = point.rows_per_s / ideal;
    }
    let adapters = job.adapters.iter().map(|(info, _)| info.name.clone()).collect();
    Ok(Some(Report { batch_size: job.batch_size, adapters, strong, weak }))
}

impl Scaling<'_> {
    async fn open(&self, adapters: &[(Info, f64)], capacity: u32) -> Result<Scheduler> {
        let throttles = Throttles::default();
        adapters.iter().enumerate().for_each(|(idx, (_, factor))| throttles.set(idx, *factor));
        let mut scheduler = Scheduler::builder(self.model, self.objective)
            .adapters(adapters.iter().map(|(info, _)| info.clone()).collect())
            .opener(throttles.wrap(self.opener.clone()))
            .runtime(self.runtime.clone())
            .capacity(capacity)
            .cpu_fallback(CpuFallback::Refused)
            .open()
            .await?;
        // Each number of adapters has a line of its own: no trials with fewer.
        scheduler.keep_all();
        Ok(scheduler)
    }

    /// The median of some steps of the first adapters.
    async fn point(&self, scheduler: &mut Scheduler, n_adapters: usize, rows: u32) -> Result<Point> {
        scheduler.limit_active(n_adapters);
        let batch: Batch = noise(scheduler.plan(), rows);
        for step in 0..WARM_UP {
            scheduler.train(&batch, &numbers(step)).await?;
        }
        let (mut times, mut shares) = (Vec::new(), vec![0; n_adapters]);
        let start_ms = self.runtime.now_ms();
        for step in WARM_UP.. {
            let begin_ms = self.runtime.now_ms();
            let report = scheduler.train(&batch, &numbers(step)).await?;
            let now_ms = self.runtime.now_ms();
            times.push(now_ms - begin_ms);
            shares.fill(0);
            report.shards.iter().for_each(|shard| shares[shard.adapter_idx] = shard.rows);
            let is_long = times.len() >= FEWEST && now_ms - start_ms > LONG_MS;
            if times.len() >= COUNTED || is_long {
                break;
            }
        }
        times.sort_by(f64::total_cmp);
        let step_ms = times[times.len() / 2];
        let rows_per_s = f64::from(rows) / step_ms * 1e3;
        let limit = String::new();
        Ok(Point { n_adapters, batch_size: rows, shares, step_ms, rows_per_s, efficiency: 1.0, limit })
    }
}
