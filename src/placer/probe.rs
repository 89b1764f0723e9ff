//! Measurement of each block of a model on each adapter, and of what adapters cost each other, before the first step.

mod beside;
mod host;
mod link;

use std::sync::Arc;

use async_channel::Receiver;

use self::host::host_gb_s;
use self::link::{Moved, fit};
use super::blocks::Blocks;
use super::speeds::{Speeds, line};
use crate::error::Result;
use crate::model::stages::Stage;
use crate::plan::{Command, Pass, Plan, Role, Scalars, Work};
use crate::runtime::{Runtime, all};
use crate::shown::shown;
use crate::simulator::adapter::FORWARD_PART;
use crate::simulator::cost::{CostLine, Times};
use crate::size::F32_BYTES;
use crate::timing::median;
use manyhands_engine::adapters::{
    ActorId, Combining, Event, Fault, Handle, Info, Message, Opener, Request, Run, Ticket, Timing,
};

/// Milliseconds of timed runs after which each size is timed once, and after which the larger one is estimated. First runs do not
/// count: drivers compile in them, some for seconds.
const BUDGET_MS: f64 = 1_500.0;
const TWICE_MS: f64 = 3_000.0;
/// Milliseconds of timed runs after which blocks are estimated.
const MOST_MS: f64 = 6_000.0;
/// Milliseconds of first runs after which no further block has one of its own.
const LONGEST_MS: f64 = 30_000.0;
/// Longest wait for an answer: some drivers compile for a minute.
const PATIENCE_MS: f64 = 120_000.0;
/// Longest wait for an adapter to close.
const CLOSE_MS: f64 = 5_000.0;
/// Parts of a batch in the runs that are timed.
const FEW: u32 = 8;
const MANY: u32 = 2;
/// Fewest and most runs of a size, and milliseconds after which no further ones begin. The median of three does not count a first run
/// in cold caches, as that of two would.
const FEWEST: usize = 3;
const MOST: usize = 7;
const LINE_MS: f64 = 60.0;

/// The speeds of adapters, and of the host in 10⁹ bytes a second.
#[derive(Clone)]
pub(crate) struct Probed {
    pub adapters: Vec<Speeds>,
    pub host_gb_s: f64,
}

/// Measures adapters one after the other while the others are idle, and then beside each other; `limits` are the bytes that they
/// may take, and a batch is of `batch_size` rows.
///
/// # Errors
/// If one can't be opened, or the model can't be planned.
pub(crate) async fn probe(
    blocks: &Arc<Blocks>,
    adapters: &[Info],
    limits: &[Option<u64>],
    opener: &Opener,
    runtime: &Arc<dyn Runtime>,
    batch_size: u32,
) -> Result<Probed> {
    let open = |(adapter_idx, info): (usize, &Info)| {
        let (events_in, events) = async_channel::unbounded();
        let handle = opener(info, ActorId { adapter_idx, reopened: 0 }, runtime.clone(), events_in)?;
        Ok(Probe {
            blocks,
            handle,
            events,
            runtime,
            batch_size,
            limit: limits.get(adapter_idx).copied().flatten(),
            line_ms: LINE_MS / f64::from(u32::try_from(adapters.len()).unwrap_or(u32::MAX)),
            begin_ms: runtime.now_ms(),
            timed_ms: 0.0,
            updates_ms: Vec::new(),
            slowest: 0,
            moved: Moved::default(),
            attempts: 0,
        })
    };
    let mut probes = adapters.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
    each(&mut probes, async |_, probe| probe.warm_up().await).await?;
    let mut speeds = Vec::with_capacity(probes.len());
    for probe in &mut probes {
        speeds.push(probe.measure().await);
    }
    let crowdings = beside::crowdings(&mut probes, &speeds).await?;
    for (speeds, crowding) in speeds.iter_mut().zip(crowdings) {
        log::debug!("`{}` beside others: {crowding:?}", shown(&speeds.name));
        speeds.crowding = crowding;
    }
    each(&mut probes, async |_, probe| probe.close().await).await?;
    Ok(Probed { adapters: speeds, host_gb_s: host_gb_s(blocks, runtime) })
}

/// Runs a measurement on all adapters at once; gives its results in their order.
async fn each<'a, T>(probes: &mut [Probe<'a>], of: impl AsyncFn(usize, &mut Probe<'a>) -> T) -> Result<Vec<T>> {
    let of = &of;
    all(probes.iter_mut().enumerate().map(|(idx, probe)| async move { Ok(of(idx, probe).await) }).collect()).await
}

/// The measurement of an adapter.
struct Probe<'a> {
    blocks: &'a Blocks,
    handle: Handle,
    events: Receiver<Message>,
    runtime: &'a Arc<dyn Runtime>,
    batch_size: u32,
    limit: Option<u64>,
    /// Milliseconds of the runs of a size, after which no further ones begin.
    line_ms: f64,
    begin_ms: f64,
    /// Milliseconds of the runs that were timed.
    timed_ms: f64,
    /// Milliseconds of the updates behind them.
    updates_ms: Vec<f64>,
    /// The block that is measured beside other adapters.
    slowest: usize,
    moved: Moved,
    attempts: u32,
}

impl Probe<'_> {
    /// Runs all once: drivers compile.
    async fn warm_up(&mut self) {
        for block in 0..self.blocks.len() {
            if self.elapsed_ms() < LONGEST_MS {
                self.warm_block(block).await;
            }
        }
        self.warm_whole().await;
    }

    /// `None` if the block does not fit, or the adapter fails.
    async fn warm_block(&mut self, block: usize) -> Option<()> {
        let (few, many) = self.sizes();
        let stage = &self.blocks.stages[block];
        self.load(&stage.plan, many).await?;
        for pass in [Pass::Train, Pass::Forward, Pass::Predict] {
            if stage.has(pass) {
                self.run(&stage.plan, pass, few, Combining::Host).await?;
            }
        }
        Some(())
    }

    async fn warm_whole(&mut self) -> Option<()> {
        let (plan, rows) = self.load_whole().await?;
        self.begin_lone(&plan, rows).await
    }

    /// The first step of the loaded model: drivers compile, and the update touches memory that is new to the process.
    async fn begin_lone(&mut self, plan: &Plan, rows: u32) -> Option<()> {
        self.run(plan, Pass::Train, rows.div_ceil(2), Combining::Device).await?;
        if !plan.commands(Pass::Update).is_empty() {
            self.run(plan, Pass::Update, 1, Combining::Device).await?;
        }
        Some(())
    }

    async fn measure(&mut self) -> Speeds {
        let begin_ms = self.elapsed_ms();
        // First runs tell nothing of the link: all adapters had theirs at once.
        self.moved = Moved::default();
        let mut measured = Vec::with_capacity(self.blocks.len());
        for block in 0..self.blocks.len() {
            let is_late = self.timed_ms > MOST_MS;
            measured.push(if is_late { None } else { self.block(block).await });
        }
        // A lone adapter sends no gradients.
        let (up, down) = (fit(&self.moved.up), fit(&self.moved.down));
        let (lone, copy) = self.whole().await;
        let blocks = self.estimated(&measured);
        // What each run takes whatever it computes is in the time of every block.
        let fixed = blocks.iter().map(|times| times.train.fixed_ms.min(times.forward.fixed_ms));
        let launch_ms = fixed.fold(f64::INFINITY, f64::min).min(1e6);
        let without = |line: CostLine| CostLine { fixed_ms: (line.fixed_ms - launch_ms).max(0.0), ..line };
        let without =
            |times: &Times| Times { train: without(times.train), forward: without(times.forward), update_ms: 0.0 };
        let blocks: Vec<Times> = blocks.iter().map(without).collect();
        let speeds = Speeds {
            name: self.handle.info.name.clone(),
            kind: self.handle.info.kind,
            limit: self.limit,
            launch_ms,
            blocks: self.scaled(blocks, launch_ms, copy),
            lone,
            copy,
            crowding: None,
            upload_gb_s: up.1,
            download_gb_s: down.1,
            latency_ms: f64::midpoint(up.0, down.0),
            simulated: None,
        };
        log::debug!("measured in {:.0} ms: {speeds:?}", self.elapsed_ms() - begin_ms);
        speeds
    }

    /// The times of the whole model: by itself, with the update on the adapter, and as one of several copies, which get their weights from the
    /// host. `None` if it does not fit, or the adapter fails.
    async fn whole(&mut self) -> (Option<Times>, Option<Times>) {
        let Some((plan, rows)) = self.load_whole().await else { return (None, None) };
        let lone = self.lone(&plan, rows).await;
        let copy = self.line(&plan, Pass::Train, (rows.div_ceil(2), rows), Combining::Host).await;
        (lone, copy.map(|train| Times { train, forward: train.times(FORWARD_PART), update_ms: 0.0 }))
    }

    async fn lone(&mut self, plan: &Plan, rows: u32) -> Option<Times> {
        self.begin_lone(plan, rows).await?;
        let train = self.line(plan, Pass::Train, (rows.div_ceil(2), rows), Combining::Device).await?;
        let update_ms = median(std::mem::take(&mut self.updates_ms));
        Some(Times { train, forward: train.times(FORWARD_PART), update_ms })
    }

    /// Loads the whole model for as many rows of a batch as fit.
    async fn load_whole(&mut self) -> Option<(Arc<Plan>, u32)> {
        let need = self.blocks.need_of_copy(1, self.batch_size, self.handle.info.kind, self.limit).ok()?.ok()?;
        let plan = self.blocks.whole(if need.rows < self.batch_size { 2 } else { 1 }).ok()?;
        self.load(&plan, need.rows).await?;
        Some((plan, need.rows))
    }

    /// Rows of the runs that are timed.
    fn sizes(&self) -> (u32, u32) {
        (self.batch_size.div_ceil(FEW), self.batch_size.div_ceil(MANY))
    }

    /// Blocks that together take as long as the whole model: the weights of a block that runs again and again stay in caches.
    fn scaled(&self, blocks: Vec<Times>, launch_ms: f64, copy: Option<Times>) -> Vec<Times> {
        let rows = f64::from(self.batch_size);
        let sum = blocks.iter().fold(CostLine::default(), |sum, times| sum.and(times.train)).at(rows);
        let Some(copy) = copy.filter(|_| sum > 0.0) else { return blocks };
        let factor = ((copy.train.at(rows) - launch_ms) / sum).max(1.0);
        blocks.iter().map(|times| times.times(factor)).collect()
    }

    /// Loads a plan, with weights.
    async fn load(&mut self, plan: &Arc<Plan>, capacity: u32) -> Option<()> {
        self.handle.requests.try_send(Request::Load { plan: plan.clone(), capacity }).ok()?;
        while !matches!(self.event().await?, Event::Loaded { .. }) {}
        self.write_weights(plan);
        Some(())
    }

    /// Closes the adapter, and waits until it is.
    async fn close(&self) {
        self.handle.requests.close();
        let (events, limit) = (self.events.clone(), self.runtime.sleep(CLOSE_MS));
        let closed = async move { while events.recv().await.is_ok() {} };
        futures_lite::future::or(closed, limit).await;
    }

    fn next_attempt(&mut self) -> u32 {
        self.attempts += 1;
        self.attempts
    }

    fn elapsed_ms(&self) -> f64 {
        self.runtime.now_ms() - self.begin_ms
    }

    /// Blocks that were not measured take their time by their part of the work.
    fn estimated(&self, measured: &[Option<Times>]) -> Vec<Times> {
        let weights: Vec<f64> = (0..self.blocks.len()).map(|block| self.blocks.weight(block).max(1.0)).collect();
        let known = || measured.iter().zip(&weights).filter_map(|(times, weight)| Some(((*times)?, *weight)));
        let weight: f64 = known().map(|(_, weight)| weight).sum();
        let of =
            |line: fn(&Times) -> CostLine| known().fold(CostLine::default(), |sum, (times, _)| sum.and(line(&times)));
        let (train, forward) = (of(|times| times.train), of(|times| times.forward));
        let estimate = |(times, own): (&Option<Times>, &f64)| {
            times.unwrap_or_else(|| {
                let part = if weight > 0.0 { own / weight } else { 1.0 };
                // Without any measurement all adapters are alike.
                let usual = CostLine { fixed_ms: 0.1, per_row_ms: own * 1e-7 };
                let line = |line: CostLine| if weight > 0.0 { line.times(part) } else { usual };
                Times { train: line(train), forward: line(forward), update_ms: 0.0 }
            })
        };
        measured.iter().zip(&weights).map(estimate).collect()
    }

    /// The times of a block; `None` if it does not fit, or the adapter fails.
    async fn block(&mut self, block: usize) -> Option<Times> {
        let blocks = self.blocks;
        let stage = &blocks.stages[block];
        let (few, many) = self.sizes();
        self.load(&stage.plan, many).await?;
        let first = first_pass(stage);
        // A run behind a loaded plan finds cold caches.
        let cold = self.run(&stage.plan, first, few, Combining::Host).await?;
        let bytes = stage.plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Parameters(_)));
        self.moved.up.push((bytes_of(bytes.map(|buffer| buffer.len.fixed).sum()), cold.weights.ms));
        let train = self.line(&stage.plan, first, (few, many), Combining::Host).await?;
        let goes_forward = stage.has(Pass::Forward) && first != Pass::Forward;
        let forward = if goes_forward {
            self.line(&stage.plan, Pass::Forward, (few, many), Combining::Host).await?
        } else if first == Pass::Train {
            // The last block never goes forward alone, but evaluation does.
            train.times(FORWARD_PART)
        } else {
            train
        };
        Some(Times { train, forward, update_ms: 0.0 })
    }

    /// The time of a pass over its rows: of the median of some runs at two sizes, of one run at each if there is little time, and of a
    /// single one if there is less.
    async fn line(
        &mut self,
        plan: &Plan,
        pass: Pass,
        (few, many): (u32, u32),
        combining: Combining,
    ) -> Option<CostLine> {
        if self.timed_ms > TWICE_MS || few == many {
            let ms = self.timed(plan, pass, few, combining).await?;
            let work = |rows| Work::of(plan, pass, rows).weight().max(1.0);
            return Some(line((few, ms), (2 * few, ms * work(2 * few) / work(few))));
        }
        let fewest = if self.timed_ms < BUDGET_MS { FEWEST } else { 1 };
        let (begin_ms, mut all_ms) = (self.elapsed_ms(), [Vec::new(), Vec::new()]);
        while all_ms[0].len() < fewest || all_ms[0].len() < MOST && self.elapsed_ms() - begin_ms < self.line_ms {
            for (rows, all_ms) in [few, many].into_iter().zip(&mut all_ms) {
                all_ms.push(self.timed(plan, pass, rows, combining).await?);
            }
        }
        let [few_ms, many_ms] = all_ms.map(median);
        Some(line((few, few_ms), (many, many_ms)))
    }

    /// Milliseconds of computing of a run. As in each step, a lone adapter updates behind it, and others get new weights before it: so weights
    /// are in no cache.
    async fn timed(&mut self, plan: &Plan, pass: Pass, rows: u32, combining: Combining) -> Option<f64> {
        let begin_ms = self.elapsed_ms();
        if combining == Combining::Host {
            self.write_weights(plan);
        }
        let timing = self.run(plan, pass, rows, combining).await?;
        if combining == Combining::Device && !plan.commands(Pass::Update).is_empty() {
            let update = self.run(plan, Pass::Update, 1, combining).await?;
            self.updates_ms.push(update.compute_ms);
        }
        self.timed_ms += self.elapsed_ms() - begin_ms;
        Some(timing.compute_ms)
    }

    /// Small numbers for all weights: products of zeros may take less time. Those of both signs keep values from growing from layer to
    /// layer, beyond all bounds in deep models.
    fn write_weights(&self, plan: &Plan) {
        let small: Vec<f32> = (0..31_u8).map(|idx| (f32::from(idx) - 15.0) / 500.0).collect();
        for buffer in &plan.buffers {
            let data: Option<Vec<f32>> = match buffer.role {
                Role::Parameters(_) => Some(small.iter().copied().cycle().take(values(buffer.len.fixed)).collect()),
                Role::Statistics => Some(vec![0.02; values(buffer.len.fixed)]),
                _ => None,
            };
            if let Some(data) = data.map(Arc::from) {
                drop(self.handle.requests.try_send(Request::Write { role: buffer.role, offset: 0, data }));
            }
        }
    }

    async fn run(&mut self, plan: &Plan, pass: Pass, rows: u32, combining: Combining) -> Option<Timing> {
        let feed = |role: Role| match role {
            _ if pass == Pass::Update => None,
            Role::Input(_) => Some(0.0),
            Role::Received(_) => Some(0.1),
            Role::ReceivedGradient(_) if pass == Pass::Train => Some(1e-3),
            Role::Target(_) if pass == Pass::Train => Some(0.0),
            Role::SampleWeight(_) if pass == Pass::Train => Some(1.0),
            _ => None,
        };
        let mut feeds: Vec<(Role, Arc<[f32]>)> = Vec::new();
        for buffer in &plan.buffers {
            if let Some(value) = feed(buffer.role) {
                feeds.push((buffer.role, vec![value; values(buffer.len.at(rows))].into()));
            }
        }
        let fed: usize = feeds.iter().map(|(_, data)| data.len()).sum();
        let n_outputs = self.blocks.model.outputs().len();
        let scalars = Scalars {
            rows,
            batch_rows: rows,
            is_first: 1,
            is_last: 1,
            loss_scales: vec![1.0; n_outputs],
            hyper: self.blocks.objective.optimizer.hyper(1e-6, 1),
            ..Scalars::default()
        };
        let ticket = Ticket { step: 0, attempt: self.next_attempt(), slot: 0 };
        self.handle.requests.try_send(Request::Run(Run { ticket, pass, scalars, feeds, combining })).ok()?;
        if combining == Combining::Device {
            self.handle.requests.try_send(Request::Finish).ok()?;
        }
        let timing = loop {
            match self.event().await? {
                Event::Done { timing, .. } => break timing,
                Event::Exchange { ticket, command, data } => {
                    // A value that the run waits for: that of this adapter alone.
                    if plan.commands(pass).get(command).is_some_and(Command::is_awaited) {
                        self.handle.requests.try_send(Request::Combined { ticket, command, data: data.into() }).ok()?;
                    }
                }
                _ => return None,
            }
        };
        self.moved.up.push((bytes_of(fed as u64), timing.upload_ms));
        let sent = plan.commands(pass).iter().filter_map(|command| match command {
            Command::Exchange(exchange) if combining == Combining::Host => Some(exchange.sent().len.at(rows)),
            Command::Exchange(_) | Command::Dispatch(_) => None,
        });
        self.moved.down.push((bytes_of(sent.sum()), timing.readback_ms));
        Some(timing)
    }

    /// The next event; `None` if the adapter fails or is silent.
    async fn event(&self) -> Option<Event> {
        let limit = self.runtime.sleep(PATIENCE_MS);
        let message = futures_lite::future::or(async { self.events.recv().await.ok() }, async {
            limit.await;
            None
        });
        let Some(message) = message.await else {
            // Each further request would wait as long, and a late answer would be taken for that of another.
            self.handle.requests.close();
            log::warn!("`{}` gives no answer and is measured no further", shown(&self.handle.info.name));
            return None;
        };
        match message.event {
            Event::Working => Box::pin(self.event()).await,
            Event::Failed { ticket, fault } => {
                // Behind a failed run others are dropped until then.
                if let Some(ticket) = ticket {
                    drop(self.handle.requests.try_send(Request::Abandon(ticket)));
                }
                if !matches!(fault, Fault::OutOfMemory(_)) {
                    log::warn!("`{}` could not be measured: {fault:?}", shown(&self.handle.info.name));
                }
                None
            }
            event => Some(event),
        }
    }
}

/// The pass by which a block is measured: of those that it has.
fn first_pass(stage: &Stage) -> Pass {
    [Pass::Train, Pass::Forward].into_iter().find(|pass| stage.has(*pass)).unwrap_or(Pass::Predict)
}

#[allow(clippy::cast_possible_truncation, reason = "a buffer is smaller than the address space")]
fn values(len: u64) -> usize {
    len as usize
}

#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn bytes_of(values: u64) -> f64 {
    (values * F32_BYTES) as f64
}
