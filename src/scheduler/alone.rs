//! Steps of an adapter that is alone: nothing is combined, so the next may begin before this one's results are there.

use crate::adapters::{Combining, Request, Run, Ticket};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::plan::{Pass, Scalars};

use super::round::{Job, Task};
use super::shards::{self, Shard};
use super::timeline::What;
use super::{Scheduler, Step, StepReport};

/// A training step that has begun.
pub(super) struct Begun {
    batch: Batch,
    step: Step,
    begin_ms: f64,
    under_way: Option<UnderWay>,
    /// What it gave, if that had to be known before anybody asked.
    report: Option<StepReport>,
}

/// What an adapter that is alone was asked for a step.
#[derive(Clone, Copy)]
struct UnderWay {
    shard: Shard,
    train: Ticket,
    update: Ticket,
}

impl Scheduler {
    /// Runs one training step: all of it, or nothing.
    ///
    /// # Errors
    /// If no adapter is left to run it.
    pub async fn train(&mut self, batch: &Batch, step: &Step) -> Result<StepReport> {
        self.begin(batch, step);
        self.finish().await
    }

    /// Begins a step, which [`finish`](Self::finish) ends. Where parameters live on the only adapter
    /// ([`is_on_device`](Self::is_on_device)) it is under way from now on: begun before the step before it is finished, it
    /// never lets the device wait for the host.
    pub fn begin(&mut self, batch: &Batch, step: &Step) {
        let begin_ms = self.runtime.now_ms();
        let under_way = self.is_on_device().then(|| self.ask(batch, &self.scalars(batch, step)));
        self.begun.push_back(Begun { batch: batch.clone(), step: step.clone(), begin_ms, under_way, report: None });
    }

    /// Ends the oldest step that has begun.
    ///
    /// # Errors
    /// If no adapter is left to run it, or none has begun.
    pub async fn finish(&mut self) -> Result<StepReport> {
        let Some(mut begun) = self.begun.pop_front() else {
            let problem = "needs to have begun, but none has";
            return Err(Error::setting("a training step to finish", problem, "begin one first"));
        };
        match begun.report.take() {
            Some(report) => Ok(report),
            None => {
                let finished = self.finish_one(&begun).await;
                if finished.is_err() {
                    // Steps behind one that failed make no sense.
                    self.begun.clear();
                }
                finished
            }
        }
    }

    /// Waits for the steps that are under way, so that state and weights are those after the last of them.
    pub(super) async fn settle(&mut self) -> Result<()> {
        let mut settled = std::mem::take(&mut self.begun);
        for begun in settled.iter_mut().filter(|begun| begun.report.is_none() && begun.under_way.is_some()) {
            begun.report = Some(self.finish_one(begun).await?);
        }
        self.begun = settled;
        Ok(())
    }

    async fn finish_one(&mut self, begun: &Begun) -> Result<StepReport> {
        let scalars = self.scalars(&begun.batch, &begun.step);
        let rows = scalars.rows;
        let alone = match begun.under_way.filter(|_| self.is_on_device()) {
            Some(under_way) => self.finish_alone(begun, &scalars, under_way).await?,
            None => None,
        };
        let report = match alone {
            Some(report) => report,
            None => self.train_on_host(&begun.batch, begun.step.step, scalars).await?,
        };
        // It may have begun while another was under way.
        let start_ms = begun.begin_ms.max(self.ended_ms);
        self.ended_ms = self.record(What::Step, start_ms, Some(begun.step.step), rows);
        for shard in &report.shards {
            self.timeline.add_rows(shard.adapter_idx, shard.rows, shard.timing.busy_ms());
        }
        Ok(report)
    }

    /// Asks for a training pass and the update behind it, which reads on the device whether all is finite.
    fn ask(&mut self, batch: &Batch, scalars: &Scalars) -> UnderWay {
        self.is_behind = true;
        let shard = Shard { adapter_idx: 0, first: 0, rows: batch.rows };
        let train = self.dispatch(&Job::alone(Pass::Train, batch, scalars), shard, 0);
        let update = Ticket { attempt: u32::MAX, ..train };
        let (scalars, combining) = (scalars.clone(), Combining::Device);
        self.send(0, Request::Run(Run { ticket: update, pass: Pass::Update, scalars, feeds: Vec::new(), combining }));
        UnderWay { shard, train, update }
    }

    /// `None` if the adapter's memory does not suffice: nothing was updated, and from now on it is done on the host.
    async fn finish_alone(
        &mut self,
        begun: &Begun,
        scalars: &Scalars,
        under_way: UnderWay,
    ) -> Result<Option<StepReport>> {
        self.ensure_survivor().await?;
        if self.begun.is_empty() {
            self.send(0, Request::Finish);
        }
        let UnderWay { shard, train, update } = under_way;
        let mut tasks = vec![Task::new(shard, train)];
        self.wait_for_answers(&Job::alone(Pass::Train, &begun.batch, scalars), &mut tasks).await?;
        let Some(mut trained) = tasks.pop().and_then(|task| task.answer) else { return Ok(None) };
        let mut tasks = vec![Task::new(Shard { rows: 0, ..shard }, update)];
        self.wait_for_answers(&Job::alone(Pass::Update, &begun.batch, scalars), &mut tasks).await?;
        let updated = tasks.pop().and_then(|task| task.answer);
        let [norm, is_applied] = self.clip_result(&updated.map(|answer| answer.reports).unwrap_or_default());
        Ok(Some(StepReport {
            reports: std::mem::take(&mut trained.reports),
            gradient_norm: norm,
            is_applied: is_applied > 0.0,
            shards: shards::reports(&[trained]),
            ..StepReport::default()
        }))
    }
}
