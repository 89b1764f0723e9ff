//! One pass over a model in stages: pieces of a batch go from stage to stage, and their gradients back.
//!
//! What stages hand over lies on the host, and a task is sent out only when all that it reads is there: so no adapter
//! waits for another, and the work of a lost one is done again by others.

use std::sync::Arc;

use litemap::LiteMap;

use super::rig::Rig;
use super::round::{FIRST_RUN_MS, Job, longest_silence_ms};
use super::shards::{self, Answer, Shard};
use super::state::State;
use super::teams::{Piece, Teams, team};
use super::timeline::RunOf;
use crate::adapters::{Combining, Event, Fault, Request, Run, Ticket};
use crate::error::Result;
use crate::plan::{Accumulation, Combine, Command, Handed, Pass, Role};

/// Tasks that an adapter has at once: while it ends one, the next one's values are there.
const DEPTH: usize = 2;

/// Work of a stage on a piece of the batch.
struct Task {
    stage: usize,
    pass: Pass,
    /// Index of the piece.
    piece: usize,
    /// The tasks of a group are of one adapter, and their gradients one sum, which leaves with the last of them.
    group: usize,
    adapter_idx: usize,
    progress: Progress,
    /// Values to be combined before the update, by command.
    exchanges: LiteMap<usize, Vec<f32>>,
}

/// Progress of a task.
enum Progress {
    Waiting,
    Running(Ticket),
    Done(Answer),
}

impl Task {
    fn is_waiting(&self) -> bool {
        matches!(self.progress, Progress::Waiting)
    }

    fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Done(_))
    }

    fn ticket(&self) -> Option<Ticket> {
        match self.progress {
            Progress::Running(ticket) => Some(ticket),
            Progress::Waiting | Progress::Done(_) => None,
        }
    }
}

/// A value on the host: what it is, the stage that handed it over, the piece.
type Key = (Handed, usize, usize);

/// A pass over all stages.
pub(super) struct Pipeline<'a> {
    rig: &'a mut Rig,
    state: &'a mut State,
    teams: &'a mut Teams,
    job: Job<'a>,
    pieces: Vec<Piece>,
    tasks: Vec<Task>,
    values: LiteMap<Key, Arc<[f32]>>,
}

impl<'a> Pipeline<'a> {
    pub fn new(rig: &'a mut Rig, state: &'a mut State, teams: &'a mut Teams, job: Job<'a>) -> Self {
        Self { rig, state, teams, job, pieces: Vec::new(), tasks: Vec::new(), values: LiteMap::new() }
    }

    /// Runs the pass. The answers come in the order of the stages, and in each in the order of the rows.
    ///
    /// # Errors
    /// If a stage has no adapter left to run it, or one can't.
    pub async fn run(mut self) -> Result<Vec<Answer>> {
        self.start().await?;
        while !self.tasks.iter().all(Task::is_done) {
            self.send_ready();
            match self.rig.event_within(self.patience_ms()).await {
                Some((adapter_idx, event)) => self.handle(adapter_idx, event).await?,
                None => self.declare_silent().await?,
            }
        }
        let answer = |task: Task| match task.progress {
            Progress::Done(answer) => Some(answer),
            Progress::Waiting | Progress::Running(_) => None,
        };
        Ok(self.tasks.into_iter().filter_map(answer).collect())
    }

    /// Begins the pass, or begins it again: nothing has been changed by it.
    async fn start(&mut self) -> Result<()> {
        self.abandon();
        self.values.clear();
        self.tasks.clear();
        self.fill_teams().await?;
        self.pieces = self.teams.pieces(self.rig, self.job.scalars.batch_rows);
        let stages = 0..self.rig.stages.len();
        self.tasks = stages.flat_map(|stage| self.tasks_of(stage)).collect();
        Ok(())
    }

    /// The tasks of a stage: each of its passes on each piece.
    fn tasks_of(&self, stage: usize) -> Vec<Task> {
        let routes = self.teams.routes(self.rig, stage, &self.pieces).unwrap_or_default();
        let plan = &self.rig.stages[stage].plan;
        let of_pass = |pass| {
            let adds_up = plan.accumulation(pass) == Accumulation::Adapter;
            routes.iter().copied().enumerate().map(move |(piece, adapter_idx)| {
                let group = if adds_up { adapter_idx } else { piece };
                Task { stage, pass, piece, group, adapter_idx, progress: Progress::Waiting, exchanges: LiteMap::new() }
            })
        };
        self.passes(stage).into_iter().flat_map(of_pass).collect()
    }

    /// Passes of a stage's plan that this pass takes.
    fn passes(&self, stage: usize) -> Vec<Pass> {
        let wanted: &[Pass] = match self.job.pass {
            Pass::Train => &[Pass::Forward, Pass::Train],
            Pass::Evaluate => &[Pass::Evaluate],
            _ => &[Pass::Predict],
        };
        wanted.iter().copied().filter(|pass| self.rig.stages[stage].has(*pass)).collect()
    }

    /// Gives each stage that has lost all its adapters another one: one of a stage that has several, else the CPU adapter.
    async fn fill_teams(&mut self) -> Result<()> {
        let stages = 0..self.rig.stages.len();
        while let Some(stage) = stages.clone().find(|stage| team(self.rig, *stage).is_empty()) {
            let teams = stages.clone().map(|other| team(self.rig, other));
            let largest = teams.filter(|members| members.len() > 1).max_by_key(Vec::len);
            let Some(adapter_idx) = largest.and_then(|members| members.last().copied()) else {
                self.rig.add_cpu(stage).await?;
                continue;
            };
            log::warn!("{} now computes stage {stage}, which has lost its adapters", self.rig.name(adapter_idx));
            self.rig.members[adapter_idx].stage = stage;
            self.teams.forget(adapter_idx);
            self.rig.load(adapter_idx);
            self.rig.finish_load_or_lose(adapter_idx).await?;
        }
        Ok(())
    }

    fn abandon(&self) {
        for task in &self.tasks {
            if let Some(ticket) = task.ticket() {
                self.rig.send(task.adapter_idx, Request::Abandon(ticket));
            }
        }
    }

    /// Sends tasks whose values are all on the host, backward first and in the order of the pieces.
    fn send_ready(&mut self) {
        for adapter_idx in 0..self.rig.members.len() {
            let running = |task: &&Task| task.adapter_idx == adapter_idx && task.ticket().is_some();
            let n_running = self.tasks.iter().filter(running).count();
            for _ in n_running..DEPTH {
                let mine = (0..self.tasks.len()).filter(|idx| self.tasks[*idx].adapter_idx == adapter_idx);
                let ready = mine.filter(|idx| self.is_ready(&self.tasks[*idx]));
                let order = |idx: &usize| (self.tasks[*idx].pass == Pass::Forward, self.tasks[*idx].piece);
                let Some(idx) = ready.min_by_key(order) else { break };
                self.send(idx);
            }
        }
    }

    /// Whether a task can be sent: its values are on the host, the earlier tasks of its group went before it, and no other
    /// group of its adapter is half done.
    fn is_ready(&self, task: &Task) -> bool {
        let is_of_kin = |other: &&Task| (other.stage, other.pass) == (task.stage, task.pass);
        let kin = || self.tasks.iter().filter(is_of_kin);
        task.is_waiting()
            && self.needs(task).all(|(_, key)| self.values.contains_key(&key))
            && kin()
                .filter(|other| other.group == task.group)
                .all(|other| other.piece >= task.piece || !other.is_waiting())
            && !kin().any(|other| {
                let is_other = other.adapter_idx == task.adapter_idx && other.group != task.group;
                is_other && other.is_waiting() && kin().any(|begun| begun.group == other.group && !begun.is_waiting())
            })
    }

    /// The values that a task needs of other stages: the role under which each is fed, and its key.
    fn needs(&self, task: &Task) -> impl Iterator<Item = (Role, Key)> {
        let stage = &self.rig.stages[task.stage];
        let (piece, trains) = (task.piece, task.pass == Pass::Train);
        let values = stage
            .values
            .iter()
            .map(move |source| (Role::Received(source.tensor), (Handed::Value(source.tensor), source.stage, piece)));
        let gradients = stage.gradients.iter().filter(move |_| trains).map(move |source| {
            (Role::ReceivedGradient(source.tensor), (Handed::Gradient(source.tensor), source.stage, piece))
        });
        values.chain(gradients)
    }

    fn shard(&self, task: &Task) -> Shard {
        let (first, rows) = self.pieces[task.piece];
        let (is_first, is_last) = (self.group(task).min() == Some(task.piece), self.is_last(task));
        Shard { adapter_idx: task.adapter_idx, first, rows, is_first, is_last }
    }

    /// The pieces of a task's group.
    fn group(&self, task: &Task) -> impl Iterator<Item = usize> {
        let key = (task.stage, task.pass, task.group);
        let members = self.tasks.iter().filter(move |other| (other.stage, other.pass, other.group) == key);
        members.map(|other| other.piece)
    }

    fn is_last(&self, task: &Task) -> bool {
        self.group(task).max() == Some(task.piece)
    }

    /// Sends a task to its adapter, after the newest weights if the adapter lacks them.
    fn send(&mut self, idx: usize) {
        let task = &self.tasks[idx];
        let (pass, shard) = (task.pass, self.shard(task));
        let Job { batch, scalars, .. } = self.job;
        let handed = self.needs(task).filter_map(|(role, key)| Some((role, self.values.get(&key)?.clone())));
        let mut feeds: Vec<_> = handed.collect();
        feeds.extend(shards::feeds(&self.rig.stages[task.stage].plan, pass, &batch.shard(shard.range())));
        let slot = u32::try_from(idx).unwrap_or(u32::MAX);
        let ticket = self.rig.ticket(scalars.step, slot);
        let scalars = shard.scalars(scalars);
        self.state.freshen(self.rig, shard.adapter_idx);
        self.rig.members[shard.adapter_idx].last_seen_ms = self.rig.runtime.now_ms();
        let run = Run { ticket, pass, scalars, feeds, combining: Combining::Host };
        self.rig.send(shard.adapter_idx, Request::Run(run));
        self.tasks[idx].progress = Progress::Running(ticket);
    }

    /// Adapters that work, with the time until which each may be silent.
    fn limits(&self) -> Vec<(usize, f64)> {
        let running = self.tasks.iter().filter(|task| task.ticket().is_some());
        let limit = |task: &Task| {
            let rows = self.pieces[task.piece].1;
            let ms = longest_silence_ms(self.teams.predicted_ms(task.adapter_idx, rows));
            (task.adapter_idx, self.rig.members[task.adapter_idx].last_seen_ms + ms)
        };
        running.map(limit).collect()
    }

    /// Longest wait for the next event; then some adapter counts as hung.
    fn patience_ms(&self) -> f64 {
        let now_ms = self.rig.runtime.now_ms();
        self.limits().into_iter().map(|(_, until_ms)| until_ms - now_ms).fold(FIRST_RUN_MS, f64::min).max(1.0)
    }

    async fn declare_silent(&mut self) -> Result<()> {
        let now_ms = self.rig.runtime.now_ms();
        let overdue = self.limits().into_iter().filter(|(_, until_ms)| *until_ms <= now_ms);
        match overdue.min_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((adapter_idx, _)) => self.on_failure(adapter_idx, Fault::Lost("it does not answer".into())).await,
            None => Ok(()),
        }
    }

    async fn handle(&mut self, adapter_idx: usize, event: Event) -> Result<()> {
        match event {
            Event::Exchange { ticket, command, data } => self.take(ticket, command, data),
            Event::Done { ticket, reports, outputs, timing } => {
                let Some(idx) = self.position_of(ticket) else { return Ok(()) };
                let shard = self.shard(&self.tasks[idx]);
                let task = &mut self.tasks[idx];
                let (stage, pass, step) = (task.stage, task.pass, self.job.step());
                self.rig.timeline.record_run(&RunOf { adapter_idx, pass, step, rows: shard.rows }, &timing, &[]);
                // The rows of a piece count once on an adapter.
                let rows =
                    if pass == Pass::Forward && self.rig.stages[stage].has(Pass::Train) { 0 } else { shard.rows };
                let exchanges = std::mem::take(&mut task.exchanges);
                let answer = Answer { shard: Shard { rows, ..shard }, stage, exchanges, reports, outputs, timing };
                task.progress = Progress::Done(answer);
            }
            Event::Failed { ticket, fault } => {
                let is_late = ticket.is_some_and(|ticket| self.position_of(ticket).is_none());
                if !is_late || matches!(fault, Fault::Lost(_)) {
                    self.on_failure(adapter_idx, fault).await?;
                }
            }
            Event::Loaded { .. } | Event::Contents { .. } => {}
        }
        Ok(())
    }

    /// The task that a ticket names; `None` for one that was given up.
    fn position_of(&self, ticket: Ticket) -> Option<usize> {
        self.tasks.iter().position(|task| task.ticket() == Some(ticket))
    }

    /// Stores what a task sent: a value for other stages, or one to be combined.
    fn take(&mut self, ticket: Ticket, command: usize, data: Vec<f32>) {
        let Some(idx) = self.position_of(ticket) else { return };
        let task = &mut self.tasks[idx];
        let plan = &self.rig.stages[task.stage].plan;
        let Some(Command::Exchange(exchange)) = plan.commands(task.pass).get(command) else { return };
        match exchange.combine {
            Combine::HandOver(handed) => drop(self.values.insert((handed, task.stage, task.piece), data.into())),
            Combine::Sum | Combine::Moments { .. } => drop(task.exchanges.insert(command, data)),
        }
    }

    async fn on_failure(&mut self, adapter_idx: usize, fault: Fault) -> Result<()> {
        match fault {
            Fault::Unsupported(_) => {
                self.abandon();
                Err(self.rig.refused(adapter_idx, &fault))
            }
            Fault::OutOfMemory(text) if self.rig.members[adapter_idx].capacity > 1 => {
                self.rig.load_fewer_rows(adapter_idx, &text);
                self.rig.finish_load_or_lose(adapter_idx).await?;
                // The pieces are smaller from now on.
                self.start().await
            }
            Fault::Lost(text) | Fault::OutOfMemory(text) => {
                self.rig.lose(adapter_idx, &text);
                self.continue_without(adapter_idx).await
            }
        }
    }

    /// Gives the open tasks of a lost adapter to others of its stage, and those whose sum was not sent: it is gone. What
    /// the adapter has handed over and sent stays.
    async fn continue_without(&mut self, lost: usize) -> Result<()> {
        let stage = self.rig.members[lost].stage;
        let routes = self.teams.routes(self.rig, stage, &self.pieces).filter(|routes| !routes.is_empty());
        let largest = self.pieces.iter().map(|(_, rows)| *rows).max().unwrap_or(0);
        let fits = |routes: &Vec<usize>| routes.iter().all(|idx| self.rig.members[*idx].capacity >= largest);
        let Some(routes) = routes.filter(fits) else { return self.start().await };
        let sent = self.tasks.iter().filter(|task| task.is_done() && self.is_last(task));
        let sent: Vec<(Pass, usize)> =
            sent.filter(|task| task.stage == stage).map(|task| (task.pass, task.group)).collect();
        for task in self.tasks.iter_mut().filter(|task| task.adapter_idx == lost) {
            if task.pass == Pass::Train && !sent.contains(&(task.pass, task.group)) {
                // All of a group go to one adapter.
                task.adapter_idx = routes[task.group % routes.len()];
            } else if !task.is_done() {
                task.adapter_idx = routes[task.piece];
            } else {
                continue;
            }
            (task.progress, task.exchanges) = (Progress::Waiting, LiteMap::new());
        }
        Ok(())
    }
}
