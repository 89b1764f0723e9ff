//! One pass over a model in stages: pieces of a batch go from stage to stage, and their gradients back.
//!
//! What stages hand over lies on the host, and a task is sent out only when all that it reads is there: so no adapter
//! waits for another, and the work of a lost one is done again by others.

use std::sync::Arc;

use litemap::LiteMap;

use super::placement::Placed;
use super::rig::Rig;
use super::round::{FIRST_RUN_MS, Job, longest_silence_ms};
use super::shards::{self, Answer, Shard};
use super::state::State;
use super::teams::{Piece, Teams, team};
use super::timeline::{RunOf, StageTask};
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
    is_first: bool,
    is_last: bool,
    adapter_idx: usize,
    progress: Progress,
    /// Number of things that it waits for: values that are not on the host, and a task that must be sent before it.
    n_missing: usize,
    /// The task that must be sent after it.
    next: Option<usize>,
    /// Whether it can't come to run again.
    is_settled: bool,
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

    /// The sum to which its gradient belongs.
    fn sum(&self) -> (usize, Pass, usize) {
        (self.stage, self.pass, self.group)
    }

    fn ticket(&self) -> Option<Ticket> {
        match self.progress {
            Progress::Running(ticket) => Some(ticket),
            Progress::Waiting | Progress::Done(_) => None,
        }
    }
}

/// Name of values that are handed over: value or gradient, the stage that hands it over, the piece.
type Key = (Handed, usize, usize);

/// Values that a stage hands over, and the tasks that read them.
#[derive(Default)]
struct Value {
    /// The values, from when they come until no task will read them any more.
    data: Option<Arc<[f32]>>,
    readers: Vec<usize>,
    /// Readers that are not settled.
    n_open: usize,
}

/// Tasks of an adapter.
#[derive(Default)]
struct Lane {
    /// Tasks that can be sent: backward first, and in the order of the pieces.
    ready: LiteMap<(bool, usize, usize), ()>,
    running: Vec<usize>,
}

/// A pass over all stages.
pub(super) struct Pipeline<'a> {
    rig: &'a mut Rig,
    state: &'a mut State,
    teams: &'a mut Teams,
    job: Job<'a>,
    pieces: Vec<Piece>,
    tasks: Vec<Task>,
    n_done: usize,
    lanes: Vec<Lane>,
    values: LiteMap<Key, Value>,
}

impl<'a> Pipeline<'a> {
    pub fn new(rig: &'a mut Rig, state: &'a mut State, teams: &'a mut Teams, job: Job<'a>) -> Self {
        let (pieces, tasks, lanes) = (Vec::new(), Vec::new(), Vec::new());
        Self { rig, state, teams, job, pieces, tasks, n_done: 0, lanes, values: LiteMap::new() }
    }

    /// Runs the pass. The answers come in the order of the stages, and in each in the order of the rows.
    ///
    /// # Errors
    /// If a stage has no adapter left to run it, or one can't.
    pub async fn run(mut self) -> Result<Vec<Answer>> {
        self.start().await?;
        while self.n_done < self.tasks.len() {
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
        self.pieces = self.teams.pieces(self.rig, self.job.scalars.rows);
        let stages = 0..self.rig.stages.len();
        self.tasks = stages.flat_map(|stage| self.tasks_of(stage)).collect();
        self.arrange();
        Ok(())
    }

    /// The tasks of a stage: each of its passes on each piece.
    fn tasks_of(&self, stage: usize) -> Vec<Task> {
        let routes = self.teams.routes(self.rig, stage, &self.pieces).unwrap_or_default();
        let of_pass = |pass| {
            let adds_up = self.adds_up(stage, pass);
            let routes = &routes;
            routes.iter().copied().enumerate().map(move |(piece, adapter_idx)| Task {
                stage,
                pass,
                piece,
                group: if adds_up { adapter_idx } else { piece },
                is_first: !adds_up || !routes[..piece].contains(&adapter_idx),
                is_last: !adds_up || !routes[piece + 1..].contains(&adapter_idx),
                adapter_idx,
                progress: Progress::Waiting,
                n_missing: 0,
                next: None,
                is_settled: false,
                exchanges: LiteMap::new(),
            })
        };
        self.passes(stage).into_iter().flat_map(of_pass).collect()
    }

    /// Whether an adapter adds the gradients of a stage's pieces.
    fn adds_up(&self, stage: usize, pass: Pass) -> bool {
        self.rig.stages[stage].plan.accumulation(pass) == Accumulation::Adapter
    }

    /// Notes for all tasks what they wait for, and who reads each value: from then on an event costs what it changes.
    fn arrange(&mut self) {
        let mut came = std::mem::take(&mut self.values);
        self.lanes = self.rig.members.iter().map(|_| Lane::default()).collect();
        self.n_done = self.tasks.iter().filter(|task| task.is_done()).count();
        for idx in 0..self.tasks.len() {
            let keys: Vec<Key> = self.needs(&self.tasks[idx]).map(|(_, key)| key).collect();
            let is_settled = self.settles(idx).contains(&idx);
            let mut n_missing = 0;
            for key in keys {
                let value = self.values.entry(key).or_insert_with(|| {
                    let data = came.get_mut(&key).and_then(|value| value.data.take());
                    Value { data, ..Value::default() }
                });
                value.readers.push(idx);
                value.n_open += usize::from(!is_settled);
                n_missing += usize::from(value.data.is_none());
            }
            let task = &mut self.tasks[idx];
            (task.n_missing, task.next, task.is_settled) = (n_missing, None, is_settled);
            if task.ticket().is_some() {
                self.lanes[task.adapter_idx].running.push(idx);
            }
        }
        self.values.iter_mut().filter(|(_, value)| value.n_open == 0).for_each(|(_, value)| value.data = None);
        self.put_sums_in_order();
        (0..self.tasks.len()).for_each(|idx| self.queue_if_ready(idx));
    }

    /// Gives gradients that are added on an adapter their order: by pieces, one sum after the other, and first the sum that
    /// was begun.
    fn put_sums_in_order(&mut self) {
        let begun: Vec<_> = self.tasks.iter().filter(|task| !task.is_waiting()).map(Task::sum).collect();
        let place = |idx: &usize| {
            let task = &self.tasks[*idx];
            (task.adapter_idx, task.stage, task.pass, !begun.contains(&task.sum()), task.group, task.piece)
        };
        let is_added = |task: &Task| task.is_waiting() && self.adds_up(task.stage, task.pass);
        let mut in_order: Vec<usize> = (0..self.tasks.len()).filter(|idx| is_added(&self.tasks[*idx])).collect();
        in_order.sort_by_cached_key(place);
        for pair in in_order.windows(2) {
            let of = |idx: usize| (self.tasks[idx].adapter_idx, self.tasks[idx].stage, self.tasks[idx].pass);
            if of(pair[0]) == of(pair[1]) {
                self.tasks[pair[0]].next = Some(pair[1]);
                self.tasks[pair[1]].n_missing += 1;
            }
        }
    }

    /// Puts a task in its adapter's queue, if it waits for nothing more.
    fn queue_if_ready(&mut self, idx: usize) {
        let task = &self.tasks[idx];
        if task.is_waiting() && task.n_missing == 0 {
            self.lanes[task.adapter_idx].ready.insert((task.pass == Pass::Forward, task.piece, idx), ());
        }
    }

    /// Something that a task has waited for is there.
    fn found(&mut self, idx: usize) {
        self.tasks[idx].n_missing -= 1;
        self.queue_if_ready(idx);
    }

    /// The tasks that can't come to run again since a task is done: itself, or, where others of its stage would have to
    /// compute a lost sum again, all of the sum when it was sent.
    fn settles(&self, idx: usize) -> Vec<usize> {
        let task = &self.tasks[idx];
        let kin = || (0..self.tasks.len()).filter(|other| self.tasks[*other].sum() == task.sum());
        match task.is_done() {
            false => Vec::new(),
            true if !self.adds_up(task.stage, task.pass) || team(self.rig, task.stage).len() < 2 => vec![idx],
            true if kin().any(|other| self.tasks[other].is_last && self.tasks[other].is_done()) => kin().collect(),
            true => Vec::new(),
        }
    }

    /// Lets go of values that no task will read any more, since a task is done.
    fn settle(&mut self, idx: usize) {
        for settled in self.settles(idx) {
            if std::mem::replace(&mut self.tasks[settled].is_settled, true) {
                continue;
            }
            let keys: Vec<Key> = self.needs(&self.tasks[settled]).map(|(_, key)| key).collect();
            for key in keys {
                let Some(value) = self.values.get_mut(&key) else { continue };
                value.n_open -= 1;
                if value.n_open == 0 {
                    value.data = None;
                }
            }
        }
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
        self.place_again().await?;
        let stages = 0..self.rig.stages.len();
        while let Some(stage) = stages.clone().find(|stage| team(self.rig, *stage).is_empty()) {
            let teams = stages.clone().map(|other| team(self.rig, other));
            let largest = teams.filter(|members| members.len() > 1).max_by_key(Vec::len);
            let Some(adapter_idx) = largest.and_then(|members| members.last().copied()) else {
                let cpu = self.rig.add_cpu(stage).await?;
                self.teams.forget(cpu);
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

    /// Divides the model anew over the adapters that are left if a stage has none and the rig can be placed again.
    async fn place_again(&mut self) -> Result<()> {
        let Some(placer) = self.rig.placer.clone() else { return Ok(()) };
        while (0..self.rig.stages.len()).any(|stage| team(self.rig, stage).is_empty()) {
            let active = self.rig.active();
            let capacity = self.rig.members.iter().map(|member| member.capacity).max().unwrap_or(1);
            let placed = placer(&active).filter(|_| active.contains(&true));
            let Some(Placed { stages, stage_of }) = placed else { break };
            let stages = if stages.is_empty() { self.rig.whole(&self.state.layout) } else { stages };
            log::warn!("a stage has lost its adapters: the layers are placed anew, in {} stages", stages.len());
            self.rig.place(stages, &stage_of, capacity).await?;
            self.teams.forget_all();
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

    /// Sends tasks that wait for nothing: backward first, and in the order of the pieces.
    fn send_ready(&mut self) {
        for adapter_idx in 0..self.lanes.len() {
            while self.lanes[adapter_idx].running.len() < DEPTH
                && let Some((task, ())) = self.lanes[adapter_idx].ready.first()
            {
                let task @ (_, _, idx) = *task;
                self.lanes[adapter_idx].ready.remove(&task);
                self.send(idx);
            }
        }
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
        let ((first, rows), &Task { adapter_idx, is_first, is_last, .. }) = (self.pieces[task.piece], task);
        Shard { adapter_idx, first, rows, is_first, is_last }
    }

    /// Sends a task to its adapter, after the newest weights if the adapter lacks them.
    fn send(&mut self, idx: usize) {
        let task = &self.tasks[idx];
        let (pass, shard) = (task.pass, self.shard(task));
        let Job { batch, scalars, .. } = self.job;
        let handed = self.needs(task).filter_map(|(role, key)| Some((role, self.values.get(&key)?.data.clone()?)));
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
        self.lanes[shard.adapter_idx].running.push(idx);
        if let Some(next) = self.tasks[idx].next {
            self.found(next);
        }
    }

    /// Adapters that work, with the time until which each may be silent.
    fn limits(&self) -> Vec<(usize, f64)> {
        let running = self.lanes.iter().flat_map(|lane| &lane.running);
        let limit = |idx: &usize| {
            let task = &self.tasks[*idx];
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
                let (stage, pass, piece, step) = (task.stage, task.pass, task.piece, self.job.step());
                let task_of = Some(StageTask { stage, pass, piece });
                let run = RunOf { adapter_idx, pass, step, task: task_of, rows: shard.rows };
                self.rig.timeline.record_run(&run, &timing, &[]);
                // The rows of a piece count once on an adapter.
                let rows =
                    if pass == Pass::Forward && self.rig.stages[stage].has(Pass::Train) { 0 } else { shard.rows };
                let exchanges = std::mem::take(&mut task.exchanges);
                let answer = Answer { shard: Shard { rows, ..shard }, stage, exchanges, reports, outputs, timing };
                task.progress = Progress::Done(answer);
                self.lanes[adapter_idx].running.retain(|running| *running != idx);
                self.n_done += 1;
                self.settle(idx);
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
        let idx = usize::try_from(ticket.slot).unwrap_or(usize::MAX);
        self.tasks.get(idx).is_some_and(|task| task.ticket() == Some(ticket)).then_some(idx)
    }

    /// Stores what a task sent: a value for other stages, or one to be combined.
    fn take(&mut self, ticket: Ticket, command: usize, data: Vec<f32>) {
        let Some(idx) = self.position_of(ticket) else { return };
        let task = &mut self.tasks[idx];
        let plan = &self.rig.stages[task.stage].plan;
        let Some(Command::Exchange(exchange)) = plan.commands(task.pass).get(command) else { return };
        match exchange.combine {
            Combine::HandOver(handed) => {
                let key = (handed, task.stage, task.piece);
                self.store(key, data.into());
            }
            Combine::Sum | Combine::Moments { .. } => drop(task.exchanges.insert(command, data)),
        }
    }

    /// Stores what a stage hands over. What a task hands over when it runs again is there, or is needed no more.
    fn store(&mut self, key: Key, data: Arc<[f32]>) {
        let Some(value) = self.values.get_mut(&key).filter(|value| value.data.is_none() && value.n_open > 0) else {
            return;
        };
        value.data = Some(data);
        let readers = value.readers.clone();
        readers.into_iter().for_each(|reader| self.found(reader));
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
        let sent = self.tasks.iter().filter(|task| task.is_done() && task.is_last);
        let sent: Vec<_> = sent.map(Task::sum).collect();
        for task in self.tasks.iter_mut().filter(|task| task.adapter_idx == lost) {
            if task.pass == Pass::Train && !sent.contains(&task.sum()) {
                // All of a group go to one adapter.
                task.adapter_idx = routes[task.group % routes.len()];
            } else if !task.is_done() {
                task.adapter_idx = routes[task.piece];
            } else {
                continue;
            }
            (task.progress, task.exchanges) = (Progress::Waiting, LiteMap::new());
        }
        self.arrange();
        Ok(())
    }
}
