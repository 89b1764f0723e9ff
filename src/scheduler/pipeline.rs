//! One pass over a model in stages: pieces of a batch go from stage to stage, and their gradients back.
//!
//! What stages hand over lies on the host, and a task is sent out only when all that it reads is there: so no adapter
//! waits for another, and the work of a lost one is done again by others.

use std::sync::Arc;

use litemap::LiteMap;

use super::open_runs::{OpenRuns, Order, Outcome};
use super::placement::Placed;
use super::shards::{Answer, Shard};
use super::teams::{Piece, Teams, team};
use crate::error::Result;
use crate::plan::{Accumulation, Handed, Pass, Role};

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
}

/// Progress of a task.
enum Progress {
    Waiting,
    Running,
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

/// Tasks of an adapter that can be sent: backward first, and in the order of the pieces.
type Ready = LiteMap<(bool, usize, usize), ()>;

/// A pass over all stages.
pub(super) struct Pipeline<'a> {
    runs: OpenRuns<'a>,
    teams: &'a mut Teams,
    pieces: Vec<Piece>,
    tasks: Vec<Task>,
    n_done: usize,
    /// By adapter.
    ready: Vec<Ready>,
    values: LiteMap<Key, Value>,
}

impl<'a> Pipeline<'a> {
    pub fn new(runs: OpenRuns<'a>, teams: &'a mut Teams) -> Self {
        let (pieces, tasks, ready) = (Vec::new(), Vec::new(), Vec::new());
        Self { runs, teams, pieces, tasks, n_done: 0, ready, values: LiteMap::new() }
    }

    /// Runs the pass. The answers come in the order of the stages, and in each in the order of the rows.
    ///
    /// # Errors
    /// If a stage has no adapter left to run it, or one can't.
    pub async fn run(mut self) -> Result<Vec<Answer>> {
        self.start().await?;
        while self.n_done < self.tasks.len() {
            self.send_ready();
            let teams = &*self.teams;
            match self.runs.next(&|adapter_idx, rows| teams.predicted_ms(adapter_idx, rows)).await? {
                Outcome::Done { slot, answer } => self.end(slot, answer),
                Outcome::HandedOver { slot, handed, data } => self.store(slot, handed, data),
                Outcome::Lost { adapter_idx } => self.continue_without(adapter_idx).await?,
                // The pieces are smaller from now on.
                Outcome::Reduced => self.start().await?,
                Outcome::Awaited { .. } => {}
            }
        }
        let answer = |task: Task| match task.progress {
            Progress::Done(answer) => Some(answer),
            Progress::Waiting | Progress::Running => None,
        };
        Ok(self.tasks.into_iter().filter_map(answer).collect())
    }

    /// Begins the pass, or begins it again: nothing has been changed by it.
    async fn start(&mut self) -> Result<()> {
        self.runs.abandon();
        self.values.clear();
        self.tasks.clear();
        self.fill_teams().await?;
        self.pieces = self.teams.pieces(self.runs.rig, self.runs.job.scalars.rows);
        let stages = 0..self.runs.rig.stages.len();
        self.tasks = stages.flat_map(|stage| self.tasks_of(stage)).collect();
        self.arrange();
        Ok(())
    }

    /// The tasks of a stage: each of its passes on each piece.
    fn tasks_of(&self, stage: usize) -> Vec<Task> {
        let routes = self.teams.routes(self.runs.rig, stage, &self.pieces).unwrap_or_default();
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
            })
        };
        self.passes(stage).into_iter().flat_map(of_pass).collect()
    }

    /// Whether an adapter adds the gradients of a stage's pieces.
    fn adds_up(&self, stage: usize, pass: Pass) -> bool {
        self.runs.rig.stages[stage].plan.accumulation(pass) == Accumulation::Adapter
    }

    /// Notes for all tasks what they wait for, and who reads each value: from then on an event costs what it changes.
    fn arrange(&mut self) {
        let mut came = std::mem::take(&mut self.values);
        self.ready = self.runs.rig.members.iter().map(|_| Ready::new()).collect();
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
            self.ready[task.adapter_idx].insert((task.pass == Pass::Forward, task.piece, idx), ());
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
            true if !self.adds_up(task.stage, task.pass) || team(self.runs.rig, task.stage).len() < 2 => vec![idx],
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
        let wanted: &[Pass] = match self.runs.job.pass {
            Pass::Train => &[Pass::Forward, Pass::Train],
            Pass::Evaluate => &[Pass::Evaluate],
            _ => &[Pass::Predict],
        };
        wanted.iter().copied().filter(|pass| self.runs.rig.stages[stage].has(*pass)).collect()
    }

    /// Gives each stage that has lost all its adapters another one: one of a stage that has several, else the CPU adapter.
    async fn fill_teams(&mut self) -> Result<()> {
        self.place_again().await?;
        let stages = 0..self.runs.rig.stages.len();
        while let Some(stage) = stages.clone().find(|stage| team(self.runs.rig, *stage).is_empty()) {
            let teams = stages.clone().map(|other| team(self.runs.rig, other));
            let largest = teams.filter(|members| members.len() > 1).max_by_key(Vec::len);
            let Some(adapter_idx) = largest.and_then(|members| members.last().copied()) else {
                let cpu = self.runs.rig.add_cpu(stage).await?;
                self.teams.forget(cpu);
                continue;
            };
            log::warn!("{} now computes stage {stage}, which has lost its adapters", self.runs.rig.name(adapter_idx));
            self.runs.rig.members[adapter_idx].stage = stage;
            self.teams.forget(adapter_idx);
            self.runs.rig.load(adapter_idx);
            self.runs.rig.finish_load_or_lose(adapter_idx).await?;
        }
        Ok(())
    }

    /// Divides the model anew over the adapters that are left if a stage has none and the rig can be placed again.
    async fn place_again(&mut self) -> Result<()> {
        let Some(placer) = self.runs.rig.placer.clone() else { return Ok(()) };
        while (0..self.runs.rig.stages.len()).any(|stage| team(self.runs.rig, stage).is_empty()) {
            let active = self.runs.rig.active();
            let capacity = self.runs.rig.members.iter().map(|member| member.capacity).max().unwrap_or(1);
            let placed = placer(&active).filter(|_| active.contains(&true));
            let Some(Placed { stages, stage_of }) = placed else { break };
            let stages = if stages.is_empty() { self.runs.rig.whole(&self.runs.state.layout) } else { stages };
            log::warn!("a stage has lost its adapters: the layers are placed anew, in {} stages", stages.len());
            self.runs.rig.place(stages, &stage_of, capacity).await?;
            self.teams.forget_all();
        }
        Ok(())
    }

    /// Sends tasks that wait for nothing: backward first, and in the order of the pieces.
    fn send_ready(&mut self) {
        for adapter_idx in 0..self.ready.len() {
            while let Some((&task, ())) = self.ready[adapter_idx].first()
                && self.runs.count(adapter_idx) < DEPTH
            {
                self.ready[adapter_idx].remove(&task);
                let (_, _, idx) = task;
                self.send(idx);
            }
        }
    }

    /// The values that a task needs of other stages: the role under which each is fed, and its key.
    fn needs(&self, task: &Task) -> impl Iterator<Item = (Role, Key)> {
        let stage = &self.runs.rig.stages[task.stage];
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

    fn send(&mut self, idx: usize) {
        let &Task { pass, piece, adapter_idx, is_first, is_last, next, .. } = &self.tasks[idx];
        let (first, rows) = self.pieces[piece];
        let shard = Shard { adapter_idx, first, rows, is_first, is_last };
        let handed = self.needs(&self.tasks[idx]);
        let handed = handed.filter_map(|(role, key)| Some((role, self.values.get(&key)?.data.clone()?))).collect();
        self.runs.send(Order { slot: idx, pass, shard, piece: Some(piece) }, handed);
        self.tasks[idx].progress = Progress::Running;
        if let Some(next) = next {
            self.found(next);
        }
    }

    fn end(&mut self, idx: usize, mut answer: Answer) {
        let task = &mut self.tasks[idx];
        // The rows of a piece count once on an adapter.
        if task.pass == Pass::Forward && self.runs.rig.stages[task.stage].has(Pass::Train) {
            answer.shard.rows = 0;
        }
        task.progress = Progress::Done(answer);
        self.n_done += 1;
        self.settle(idx);
    }

    /// Stores what a task hands over. What a task hands over when it runs again is there, or is needed no more.
    fn store(&mut self, idx: usize, handed: Handed, data: Vec<f32>) {
        let key = (handed, self.tasks[idx].stage, self.tasks[idx].piece);
        let Some(value) = self.values.get_mut(&key).filter(|value| value.data.is_none() && value.n_open > 0) else {
            return;
        };
        value.data = Some(data.into());
        let readers = value.readers.clone();
        readers.into_iter().for_each(|reader| self.found(reader));
    }

    /// Gives the open tasks of a lost adapter to others of its stage, and those whose sum was not sent: it is gone. What
    /// the adapter has handed over and sent stays.
    async fn continue_without(&mut self, lost: usize) -> Result<()> {
        let stage = self.runs.rig.members[lost].stage;
        let routes = self.teams.routes(self.runs.rig, stage, &self.pieces).filter(|routes| !routes.is_empty());
        let largest = self.pieces.iter().map(|(_, rows)| *rows).max().unwrap_or(0);
        let fits = |routes: &Vec<usize>| routes.iter().all(|idx| self.runs.rig.members[*idx].capacity >= largest);
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
            task.progress = Progress::Waiting;
        }
        self.arrange();
        Ok(())
    }
}
