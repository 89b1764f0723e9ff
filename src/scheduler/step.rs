//! A training step, from its batch to the new weights on all adapters.
//!
//! From top to bottom: how a step enters (`begin_step`) and leaves (`finish`), then its points 1 to 8, with the numbers that
//! `ARCHITECTURE.md` gives them. `driver.rs` calls both.

use super::calibration::calibrate;
use super::driver::NextStep;
use super::in_flight::{DataWait, Finished, FinishedStep, Runs, StepInFlight};
use super::open_runs::{Among, Job, OpenRuns, Order, Outcome};
use super::processes::{self, Gathered};
use super::shards::{self, Answer, Shard, rows_of};
use super::state::{Totals, Updated};
use super::timeline::{Activity, Lane, Span};
use super::{Part, Scheduler, ShardReport, Step, StepReport};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::kernels::rounding::single;
use crate::plan::{Pass, Scalars};
use crate::runtime::Boxed;
use manyhands_engine::adapters::{Combining, Request, Run, Ticket};

/// A wait for an adapter that is longer than this means that it was busy all the time before.
const BUSY_MS: f64 = 0.2;

/// A training pass over all rows: what it gave, the rows of each adapter, and its start.
struct Passed {
    answers: Vec<Answer>,
    shares: Vec<u32>,
    start_ms: f64,
}

/// Gradients of all shards and processes, added.
struct Added {
    totals: Totals,
    /// Each adapter's part of the pass.
    reports: Vec<ShardReport>,
    gathered: Gathered,
    /// Time on the host, without that of other processes.
    reduce_ms: f64,
    processes_ms: f64,
    /// Time at which all was added.
    end_ms: f64,
}

impl Scheduler {
    /// Runs one training step: all of it, or nothing.
    ///
    /// # Errors
    /// If no adapter is left to run it, or the only one was lost with what it had trained.
    pub async fn train(&mut self, batch: &Batch, step: &Step) -> Result<StepReport> {
        let part = Part::whole(rows_of(batch)?);
        self.train_part(batch, part, step).await
    }

    /// Runs one training step with the rows of this process, which are a part of a batch.
    ///
    /// # Errors
    /// As [`train`](Self::train), or if another process fails.
    pub(crate) async fn train_part(&mut self, batch: &Batch, part: Part, step: &Step) -> Result<StepReport> {
        self.begin_step(NextStep { batch: batch.clone(), part, step: step.clone(), data: DataWait::default() })?;
        match self.finish().await? {
            Some(Finished::Step(finished)) => Ok(finished.report),
            _ => Err(Error::adapter_lost(
                "the only adapter",
                "was lost with what it had trained",
                "the state is that of the last copy: train from there again",
            )),
        }
    }

    /// Begins a step, which [`finish`](Self::finish) ends. If parameters are kept on the only adapter
    /// ([`is_on_device`](Self::is_on_device)) it is in flight from now on: begun before the step before it is finished,
    /// it never lets the device wait for the host.
    ///
    /// # Errors
    /// If there are more rows than can be counted.
    pub(super) fn begin_step(&mut self, next: NextStep) -> Result<()> {
        let NextStep { batch, part, step, data } = next;
        let rows = rows_of(&batch)?;
        if self.is_idle() {
            self.record_data(data);
        }
        let begin_ms = self.rig.runtime.now_ms();
        let may_ask = self.is_on_device() && !self.state.is_rewound();
        let runs = may_ask.then(|| {
            self.in_flight.update = self.in_flight.update.wrapping_add(1);
            let update = if step.scaling.is_some() { self.in_flight.update } else { 0 };
            self.ask_device(&batch, &Scalars { update, ..self.state.scalars(rows, part, &step) })
        });
        self.in_flight.steps.push_back(StepInFlight { batch, step, rows, part, begin_ms, data, runs, report: None });
        Ok(())
    }

    /// Ends the oldest step in flight; `None` if there is none.
    ///
    /// # Errors
    /// If no adapter is left to run it. Then none is in flight.
    pub async fn finish(&mut self) -> Result<Option<Finished>> {
        let asked_ms = self.rig.runtime.now_ms();
        let Some(mut step_in_flight) = self.in_flight.steps.pop_front() else {
            return Ok(self.take_rewound().then_some(Finished::Rewound));
        };
        let settled = step_in_flight.report.take();
        let was_settled = settled.is_some();
        let finished = match settled {
            Some(report) => Ok(Some(report)),
            None => self.finish_one(&step_in_flight).await,
        };
        if !matches!(&finished, Ok(Some(report)) if report.is_applied) {
            // No update that begins from now on is void.
            self.in_flight.update = self.in_flight.update.wrapping_add(1);
        }
        let Ok(Some(report)) = finished else {
            // Steps after a failed one are useless.
            self.in_flight.steps.clear();
            finished?;
            self.take_rewound();
            return Ok(Some(Finished::Rewound));
        };
        if self.distrusts_only(&step_in_flight).await? {
            self.in_flight.steps.clear();
            self.take_rewound();
            return Ok(Some(Finished::Rewound));
        }
        let now_ms = self.rig.runtime.now_ms();
        let is_hidden = now_ms - asked_ms > BUSY_MS;
        if !was_settled {
            // An adapter that ended before its answer was requested waited for the next batch, as the host did.
            let has_waited = !is_hidden && self.in_flight.steps.front().is_some_and(|next| next.data.ms > 0.0);
            let ended_ms =
                report.shards.iter().map(|shard| shard.timing.end_ms()).fold(step_in_flight.begin_ms, f64::max);
            self.record_step(&step_in_flight, &report, if has_waited { ended_ms.min(now_ms) } else { now_ms });
        }
        self.hide_data(is_hidden);
        let StepInFlight { batch, step, data, begin_ms, .. } = step_in_flight;
        let start_ms = if data.ms > 0.0 { data.start_ms } else { begin_ms };
        let ms = now_ms - start_ms.max(self.in_flight.told_ms);
        self.in_flight.told_ms = now_ms;
        if step.scaling.is_some() && !report.is_applied {
            self.drop_void().await?;
        }
        Ok(Some(Finished::Step(Box::new(FinishedStep { batch, step, report, data, ms }))))
    }

    /// Drops the step in flight behind one that was not applied, if it is void: its batch comes again, with other numbers.
    async fn drop_void(&mut self) -> Result<()> {
        self.settle().await?;
        let is_void = |next: &mut StepInFlight| next.report.as_ref().is_some_and(|report| report.is_void);
        self.in_flight.steps.pop_front_if(is_void);
        Ok(())
    }

    /// Ends all steps in flight, so that state and weights are those after the last of them. Their reports are kept.
    pub(super) async fn settle(&mut self) -> Result<()> {
        let mut settled = std::mem::take(&mut self.in_flight.steps);
        for step_in_flight in
            settled.iter_mut().filter(|step_in_flight| step_in_flight.report.is_none() && step_in_flight.runs.is_some())
        {
            match self.finish_one(step_in_flight).await? {
                Some(report) => {
                    self.record_step(step_in_flight, &report, self.rig.runtime.now_ms());
                    step_in_flight.report = Some(report);
                }
                None => return Ok(()),
            }
        }
        self.in_flight.steps = settled;
        Ok(())
    }

    /// `None` if the only adapter was lost with what it had trained.
    fn finish_one<'a>(&'a mut self, step_in_flight: &'a StepInFlight) -> Boxed<'a, Result<Option<StepReport>>> {
        Box::pin(async move {
            if self.state.is_rewound() {
                return Ok(None);
            }
            let update = step_in_flight.runs.as_ref().map_or(0, |runs| runs.number);
            let scalars = self.state.scalars(step_in_flight.rows, step_in_flight.part, &step_in_flight.step);
            let scalars = Scalars { update, ..scalars };
            let on_device = match step_in_flight.runs.as_ref().filter(|_| self.is_on_device()) {
                Some(runs) => self.step_on_device(step_in_flight, &scalars, runs).await?,
                None => None,
            };
            if self.state.is_rewound() {
                return Ok(None);
            }
            let report = match on_device {
                Some(report) => report,
                None => self.step_on_host(&step_in_flight.batch, step_in_flight.step.step, &scalars).await?,
            };
            Ok(Some(report))
        })
    }

    /// A step over several adapters, with the update on the host: all of it, or nothing.
    async fn step_on_host(&mut self, batch: &Batch, step: u64, scalars: &Scalars) -> Result<StepReport> {
        // Adapters that were lost come back between steps.
        self.rig.readmit_recovered();
        let (pass, combining, among) = (Pass::Train, Combining::Host, Among::Processes);
        let job = Job { pass, batch, scalars, combining, among };
        let passed =
            if self.rig.is_staged() { self.pass_stages(job).await? } else { self.pass_shards(step, job).await? };
        let added = self.add(step, scalars, &passed.answers).await?;
        self.update(step, scalars, &passed.answers, &added);
        let end_ms = self.rig.runtime.now_ms();
        self.learn(&passed, &added, scalars.rows, end_ms);
        Ok(self.report(&passed.answers, added, end_ms))
    }

    /// The points 1 to 4, each adapter with its rows.
    async fn pass_shards(&mut self, step: u64, job: Job<'_>) -> Result<Passed> {
        // The CPU takes part if no other adapter does.
        self.ensure_active().await?;

        // 1. Assign rows. The first batch has measured all adapters, and each step refines that.
        calibrate(self, job.batch, job.scalars).await?;
        let start_ms = self.rig.runtime.now_ms();
        let (shares, shards) = self.partition.step_shards(&self.rig, step, job.scalars.rows);

        // 2. to 4. Every adapter runs forward, loss and backward on its rows; gradients arrive meanwhile.
        let answers = self.round(job).run(shards).await?;
        let passed_ms = self.rig.runtime.now_ms();
        let answers = self.sampled(job, answers).await?;
        // A sample is no part of the time by which adapters are judged.
        let start_ms = start_ms + self.rig.runtime.now_ms() - passed_ms;
        Ok(Passed { answers, shares, start_ms })
    }

    /// The points 1 to 4, each adapter with the layers of its stage: pieces of the batch go through the stages, and gradients arrive
    /// meanwhile.
    async fn pass_stages(&mut self, job: Job<'_>) -> Result<Passed> {
        let start_ms = self.rig.runtime.now_ms();
        Ok(Passed { answers: self.pipeline(job).run().await?, shares: Vec::new(), start_ms })
    }

    /// The next split learns the adapters' speeds from a step that ends now, less what other processes took of it.
    fn learn(&mut self, passed: &Passed, added: &Added, rows: u32, end_ms: f64) {
        let reports = &added.reports;
        if self.rig.is_staged() {
            return reports.iter().for_each(|it| self.teams.learn(it.adapter_idx, it.rows, it.timing.busy_ms()));
        }
        self.partition.learn(reports);
        let ms = end_ms - passed.start_ms - added.processes_ms;
        let tuning_ms = reports.iter().map(|report| report.timing.tuning_ms).fold(0.0, f64::max);
        self.partition.reconsider(&self.rig, (ms - tuning_ms).max(0.0), rows, &passed.shares);
    }

    /// 5. Adds gradients in the order of the rows, which is that of the processes.
    ///
    /// From here on nothing fails in one process alone.
    async fn add(&mut self, step: u64, scalars: &Scalars, answers: &[Answer]) -> Result<Added> {
        let passed_ms = self.rig.runtime.now_ms();
        let reports = shards::reports(answers);
        let gathered = processes::gather(&self.rig, &self.state, answers, &reports).await?;
        let gathered_ms = if gathered.processes.is_empty() {
            passed_ms
        } else {
            self.rig.record(Activity::Processes, passed_ms, Some(step), 0)
        };
        let totals = self.state.reduce(&mut self.rig, answers, scalars).await?;
        let end_ms = self.rig.runtime.now_ms();
        let reduce_ms = end_ms - gathered_ms - totals.processes_ms;
        let processes_ms = gathered_ms - passed_ms + totals.processes_ms;
        Ok(Added { totals, reports, gathered, reduce_ms, processes_ms, end_ms })
    }

    /// 6. The update, and its broadcast. Nothing has changed until here, nor does it if a gradient is not finite.
    fn update(&mut self, step: u64, scalars: &Scalars, answers: &[Answer], added: &Added) {
        if !added.totals.is_finite {
            return;
        }
        self.state.update(&mut self.rig, added.totals.norm, scalars, answers);
        let updated_ms = self.rig.runtime.now_ms();
        self.state.follow_statistics(&self.rig, &added.gathered.moments);
        let followed_ms = self.rig.record(Activity::Update, updated_ms, Some(step), 0);
        self.state.broadcast_statistics(&self.rig);
        self.rig.record(Activity::Broadcast, followed_ms, Some(step), 0);
    }

    /// 7. Asks the only adapter for a training pass, in one run or several, and the update behind it.
    ///
    /// The update reads on the device whether all is finite.
    fn ask_device(&mut self, batch: &Batch, scalars: &Scalars) -> Runs {
        self.state.fall_behind();
        let (pass, combining, among) = (Pass::Train, Combining::Device, Among::Adapters);
        let shards = self.partition.pieces_of_only(&self.rig, scalars.rows);
        let mut open = OpenRuns::new(&mut self.rig, &mut self.state, Job { pass, batch, scalars, combining, among });
        let send = |(slot, shard)| (shard, open.send(Order { slot, pass, shard, piece: None }, Vec::new()));
        let trains: Vec<_> = shards.into_iter().enumerate().map(send).collect();
        let (update, number) = (self.rig.ticket(scalars.step, 0), scalars.update);
        // Those of the moments that are on the device.
        let rows = trains.last().map_or(0, |(shard, _)| shard.rows);
        let (scalars, feeds) = (Scalars { rows, ..scalars.clone() }, Vec::new());
        let run = Run { ticket: update, pass: Pass::Update, scalars, feeds, combining };
        self.rig.send(self.rig.only(), Request::Run(run));
        Runs { trains, update, number }
    }

    /// Ends a step of the only adapter: it has been asked for training pass and update already, and perhaps for the next step.
    ///
    /// `None` if it did not finish: its memory does not suffice, so that from now on the host updates; or the
    /// adapter was lost with what it had trained.
    async fn step_on_device(
        &mut self,
        step_in_flight: &StepInFlight,
        scalars: &Scalars,
        runs: &Runs,
    ) -> Result<Option<StepReport>> {
        self.ensure_active().await?;
        if self.state.is_rewound() {
            return Ok(None);
        }
        if self.in_flight.steps.is_empty() {
            self.rig.send(self.rig.only(), Request::Finish);
        }
        let (combining, among) = (Combining::Device, Among::Adapters);
        let alone = |pass| Job { pass, batch: &step_in_flight.batch, scalars, combining, among };
        let mut trained = Vec::new();
        for (shard, ticket) in &runs.trains {
            match self.finish_run(alone(Pass::Train), *shard, *ticket).await? {
                Some(answer) => trained.push(answer),
                None => return Ok(None),
            }
        }
        let only = self.rig.only();
        let update = self.finish_run(alone(Pass::Update), Shard::whole(only, 0, 0), runs.update);
        let Some(updated) = update.await? else { return Ok(None) };
        let Updated { norm, is_applied, is_refused, penalty } = Updated::of(self.rig.plan(), &updated.reports);
        Ok(Some(StepReport {
            reports: shards::concatenated(&self.rig.stages, Pass::Train, &trained, |answer| &answer.reports),
            gradient_norm: norm,
            is_applied,
            is_void: scalars.update > 0 && !is_applied && !is_refused,
            penalty,
            shards: shards::reports(&trained),
            ..StepReport::default()
        }))
    }

    /// Waits for a run of the only adapter. `None` if it did not finish: memory did not suffice, or the adapter was
    /// lost with the state it had trained.
    async fn finish_run(&mut self, job: Job<'_>, shard: Shard, ticket: Ticket) -> Result<Option<Answer>> {
        let splitter = self.partition.splitter();
        let mut runs = OpenRuns::new(&mut self.rig, &mut self.state, job);
        runs.expect(Order { slot: 0, pass: job.pass, shard, piece: None }, ticket);
        // The run of an only adapter exchanges nothing: it is done, or has failed.
        if let Outcome::Done { answer, .. } =
            runs.next(&|adapter_idx, rows| splitter.predicted_ms(adapter_idx, rows)).await?
        {
            return Ok(Some(answer));
        }
        self.ensure_active().await?;
        Ok(None)
    }

    /// 8. Loss and score of each row, in the order of the rows.
    fn report(&self, answers: &[Answer], added: Added, end_ms: f64) -> StepReport {
        let Added { totals, reports, gathered, reduce_ms, processes_ms, end_ms: added_ms } = added;
        StepReport {
            reports: shards::concatenated(&self.rig.stages, Pass::Train, answers, |answer| &answer.reports),
            gradient_norm: single(totals.norm),
            is_applied: totals.is_finite,
            is_void: false,
            penalty: totals.penalty,
            shards: reports,
            processes: gathered.processes,
            reduce_ms,
            processes_ms,
            update_ms: end_ms - added_ms,
        }
    }

    /// Records the time of a step that ended by then. It may have begun while another was in flight.
    fn record_step(&mut self, step_in_flight: &StepInFlight, report: &StepReport, end_ms: f64) {
        let start_ms = step_in_flight.begin_ms.max(self.in_flight.ended_ms);
        let (step, ms) = (Some(step_in_flight.step.step), (end_ms - start_ms).max(0.0));
        let span =
            Span { lane: Lane::Host, what: Activity::Step, start_ms, ms, step, task: None, rows: step_in_flight.rows };
        self.rig.timeline.record(span);
        self.in_flight.ended_ms = start_ms + ms;
        for shard in &report.shards {
            self.rig.timeline.add_rows(shard.adapter_idx, shard.rows, shard.timing.busy_ms());
        }
    }

    /// Records whether the wait for the batch of the step that is now the oldest in flight was hidden behind the last
    /// one.
    fn hide_data(&mut self, is_hidden: bool) {
        if let Some(next) = self.in_flight.steps.front_mut() {
            next.data.is_hidden = is_hidden;
            let data = next.data;
            self.record_data(data);
        }
    }

    /// Records a wait for data: for the trace alone if the adapter was busy all the time, else what of it came after
    /// the last step's end.
    fn record_data(&mut self, data: DataWait) {
        let DataWait { start_ms, ms, is_hidden } = data;
        let span = Span { lane: Lane::Host, what: Activity::Data, start_ms, ms, step: None, task: None, rows: 0 };
        if is_hidden {
            return self.rig.timeline.trace(span);
        }
        let from_ms = start_ms.max(self.in_flight.ended_ms);
        let ms = (span.end_ms() - from_ms).max(0.0);
        self.rig.timeline.record(Span { start_ms: from_ms, ms, ..span });
        self.in_flight.ended_ms = from_ms + ms;
    }
}
