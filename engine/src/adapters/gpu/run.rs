//! One run of a pass: encode, submit in short pieces, exchange, read back.

pub(super) mod ahead;

use super::super::mailbox::{Done, Mailbox, Stop};
use super::super::{Combining, Fault, Run, Ticket, Timing, Writes};
use super::device::{Gpu, Submission};
use super::grid::{Cut, MOST_WORKGROUPS, parts, workgroups};
use super::pipelines::Pipelines;
use super::prepared::launch;
use super::program::Program;
use super::staging::{Arrived, ChunkPart, ReadBackUse};
use super::tuning::{TileChoice, Trials, Tuner};
use crate::adapters::protocol::UNFINISHED;
use crate::kernels::Extent;
use crate::plan::{Command, Exchange, Pass, Role, SplitSums, View, Work};
use crate::size::F32_BYTES;
use ahead::Ahead;

/// Device time that a submission should take. A Windows driver resets a GPU that is busy for two seconds.
const SUBMISSION_MS: f64 = 60.0;
/// Dispatches of a submission, before anything was measured: on a slow adapter a few large ones are seconds.
const FIRST: usize = 1;
/// Dispatches of a submission, however short they are.
const MOST: usize = 1024;

/// A plan on the device, and its runs in flight.
pub(super) struct LoadedPlan {
    pub(super) program: Program,
    pub(super) ahead: Ahead,
    /// Bytes of all its buffers, as they were created.
    pub(super) bytes: u64,
}

/// A run, or a read, in progress. While one that begins ahead is encoded, others may be in flight.
pub(super) struct Execution<'a> {
    gpu: &'a Gpu,
    program: &'a mut Program,
    ahead: &'a mut Ahead,
    mailbox: &'a mut Mailbox,
    ticket: Ticket,
    /// Its number among all runs and reads.
    order: u64,
    encoder: wgpu::CommandEncoder,
    is_encoded: bool,
    /// Dispatches that the encoder holds.
    dispatches: Dispatches,
    wait_ms: f64,
    readback_ms: f64,
    /// Products that try another tile.
    trials: Trials,
}

impl LoadedPlan {
    /// Makes everything that runs of up to `capacity` rows need, with tiles that were found before.
    pub(super) async fn new(
        gpu: &Gpu,
        pipelines: &mut Pipelines,
        tuner: &Tuner,
        plan: SplitSums,
        capacity: u32,
    ) -> Result<Self, Fault> {
        let before = gpu.allocated();
        let mut program = Program::new(gpu, pipelines, plan, capacity).await?;
        let results = program.results;
        let ahead = gpu.scoped(|| Ahead::new(gpu, results)).await?;
        program.adopt(gpu, pipelines, tuner).await?;
        Ok(Self { program, ahead, bytes: gpu.allocated() - before })
    }
}

impl<'a> Execution<'a> {
    /// A run, or a read, that begins. With [`Combining::Host`] the host combines its exchanges and waits for its answer.
    pub(super) fn new(
        gpu: &'a Gpu,
        loaded: &'a mut LoadedPlan,
        mailbox: &'a mut Mailbox,
        ticket: Ticket,
        combining: Combining,
    ) -> Self {
        let LoadedPlan { program, ahead, .. } = loaded;
        let order = ahead.enter(ticket, combining == Combining::Host);
        let encoder = gpu.encoder();
        let (is_encoded, dispatches, trials) = (false, Dispatches::None, Trials::default());
        let (wait_ms, readback_ms) = (0.0, 0.0);
        Self {
            gpu,
            program,
            ahead,
            mailbox,
            ticket,
            order,
            encoder,
            is_encoded,
            dispatches,
            wait_ms,
            readback_ms,
            trials,
        }
    }

    /// With products that try another tile.
    pub(super) fn trying(mut self, trials: Trials) -> Self {
        self.trials = trials;
        self
    }

    /// Uploads a run's inputs, and encodes its commands; the last of them are not submitted.
    async fn start(&mut self, run: &Run) -> Result<Started, Stop> {
        let start_ms = self.mailbox.now_ms();
        for (role, data) in &run.feeds {
            self.program.write(self.gpu, *role, 0, data).await?;
        }
        self.program.write_params(self.gpu, run.pass, &run.scalars);
        let upload_ms = self.mailbox.now_ms() - start_ms;
        let n_dispatches = self.commands(run).await?;
        Ok(Started { start_ms, upload_ms, n_dispatches })
    }

    /// Runs a pass and answers it; returns the tiles that were tried.
    pub(super) async fn run(mut self, run: &Run, weights: Writes) -> Result<Trials, Stop> {
        let Started { start_ms, upload_ms, n_dispatches } = self.start(run).await?;
        let computed = self.submit();
        self.results(run, computed).await?;
        let read_at = self.mailbox.now_ms();
        self.receive_all().await?;
        let readback_ms = self.readback_ms + self.mailbox.now_ms() - read_at;
        let elapsed_ms = self.mailbox.now_ms() - start_ms;
        let mut compute_ms = (elapsed_ms - upload_ms - readback_ms - self.wait_ms).max(0.0);
        let (pass, rows) = (run.pass, run.scalars.rows);
        let is_trying = !self.trials.is_empty();
        let tuning_ms = tuning_ms(self.program, (pass, rows), is_trying, compute_ms, n_dispatches);
        compute_ms -= tuning_ms;
        let mut results = self.ahead.end(self.mailbox.now_ms());
        let expected = self.program.completion.expected();
        check_marker(results.pop().and_then(|marker| marker.first().copied()), expected)?;
        let wait_ms = self.wait_ms;
        let timing = Timing { start_ms, upload_ms, compute_ms, readback_ms, wait_ms, tuning_ms, weights };
        self.gpu.check()?;
        self.mailbox.done(Done::new((run.ticket, pass, rows), results, timing)).await?;
        Ok(self.trials)
    }

    /// Reads a buffer.
    pub(super) async fn contents(mut self, role: Role) -> Result<Vec<f32>, Stop> {
        let (idx, buffer) = self.program.by_role(role)?;
        let buffer = buffer.clone();
        let elements = self.program.plan.buffers[idx].len.at(self.program.capacity);
        self.read(&buffer, 0, elements, ReadBackUse::Result).await?;
        self.submit();
        self.receive_all().await?;
        Ok(self.ahead.end(self.mailbox.now_ms()).pop().unwrap_or_default())
    }

    /// Encodes and submits the commands of a pass; gives the number of dispatches.
    async fn commands(&mut self, run: &Run) -> Result<usize, Stop> {
        let plan = self.program.plan.clone();
        let commands = plan.commands(run.pass);
        let limit = self.submission_length(run);
        let mut from = 0;
        for (idx, command) in commands.iter().enumerate() {
            match command {
                Command::Exchange(exchange) if !run.skips(command) => {
                    self.encode(run, from..idx);
                    self.exchange(run, idx, exchange).await?;
                    from = idx + 1;
                }
                _ if self.trials.choice(idx).is_some() => {
                    self.encode(run, from..idx);
                    self.try_tile(run, idx).await?;
                    from = idx + 1;
                }
                _ if self.n_parts(run, idx, command) > 1 => {
                    self.encode(run, from..idx);
                    self.submit_in_parts(run, idx, command);
                    self.receive_ready().await?;
                    from = idx + 1;
                }
                _ if idx + 1 - from >= limit => {
                    self.encode(run, from..idx + 1);
                    self.submit();
                    self.receive_ready().await?;
                    from = idx + 1;
                }
                _ => {}
            }
        }
        self.encode(run, from..commands.len());
        self.count_submission();
        Ok(commands.iter().filter(|command| matches!(command, Command::Dispatch(_))).count())
    }

    /// Runs one command alone and notes how long it takes.
    async fn try_tile(&mut self, run: &Run, idx: usize) -> Result<(), Stop> {
        let before = self.submit();
        self.gpu.wait(before).await?;
        self.receive_ready().await?;
        let start_ms = self.mailbox.now_ms();
        match self.program.plan.clone().commands(run.pass).get(idx) {
            Some(command) if self.n_parts(run, idx, command) > 1 => self.submit_in_parts(run, idx, command),
            _ => self.encode(run, idx..idx + 1),
        }
        let tried = self.submit();
        self.gpu.wait(tried).await?;
        self.trials.note(idx, self.mailbox.now_ms() - start_ms);
        Ok(())
    }

    /// Number of parts in which a command has to run.
    fn n_parts(&self, run: &Run, idx: usize, command: &Command) -> u32 {
        let Some(prepass) = self.program.passes.get(&run.pass) else { return 1 };
        match (command, &prepass.commands[idx]) {
            (Command::Dispatch(dispatch), Some(prepared)) if prepared.extent == Extent::Part && !run.skips(command) => {
                self.gpu.patience.n_parts(dispatch, &run.scalars, prepass.speed)
            }
            _ => 1,
        }
    }

    /// Submits a dispatch in parts, each in a submission of its own.
    fn submit_in_parts(&mut self, run: &Run, idx: usize, command: &Command) {
        let n_parts = self.n_parts(run, idx, command);
        let (Command::Dispatch(dispatch), Some(first_item)) = (command, self.program.first_item.clone()) else {
            return;
        };
        let Some(choice) = self.choice(run, idx) else { return };
        let cut = Cut::of(choice.tile, dispatch.grid);
        for (first, groups) in parts((dispatch.grid, dispatch.kernel, cut), &run.scalars, MOST_WORKGROUPS, n_parts) {
            // What is written goes before all that is submitted next.
            if self.is_encoded {
                self.submit();
            }
            first_item.set(self.gpu, first);
            let mut pass = self.encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            if let Some(prepared) = &self.program.passes[&run.pass].commands[idx] {
                launch(&mut pass, prepared, &choice, Some(&first_item), groups);
            }
            drop(pass);
            (self.is_encoded, self.dispatches) = (true, Dispatches::Uncounted);
        }
        self.submit();
        first_item.set(self.gpu, 0);
    }

    /// Tile and pipeline of a command.
    fn choice(&self, run: &Run, idx: usize) -> Option<TileChoice> {
        let prepared = self.program.passes.get(&run.pass)?.commands.get(idx)?.as_ref()?;
        Some(self.trials.choice(idx).unwrap_or_else(|| prepared.choice(run.scalars.rows)).clone())
    }

    /// Encodes the dispatches of a range of commands, but for those without work.
    fn encode(&mut self, run: &Run, range: std::ops::Range<usize>) {
        let (Some(prepass), Some(commands)) =
            (self.program.passes.get(&run.pass), self.program.plan.passes.get(&run.pass))
        else {
            return;
        };
        if range.is_empty() {
            return;
        }
        // With a profile each dispatch is a pass of its own.
        let descriptor = wgpu::ComputePassDescriptor::default();
        let mut pass =
            self.gpu.profile.is_none().then(|| self.encoder.begin_compute_pass(&descriptor).forget_lifetime());
        for idx in range {
            if run.skips(&commands[idx]) {
                continue;
            }
            if let (Some(prepared), Command::Dispatch(dispatch)) = (&prepass.commands[idx], &commands[idx]) {
                let choice = self.trials.choice(idx).unwrap_or_else(|| prepared.choice(run.scalars.rows));
                let cut = Cut::of(choice.tile, dispatch.grid);
                let groups = workgroups(dispatch.grid, dispatch.kernel, cut, &run.scalars, MOST_WORKGROUPS);
                let launched = |pass: &mut wgpu::ComputePass<'_>| {
                    launch(pass, prepared, choice, self.program.first_item.as_ref(), groups);
                };
                match (&mut pass, &self.gpu.profile) {
                    (Some(pass), _) => launched(pass),
                    (None, Some(profile)) => {
                        let work = (run.pass, dispatch, &run.scalars);
                        profile.time(&mut self.encoder, work, (choice.tile, groups), launched);
                    }
                    (None, None) => {}
                }
            }
        }
        drop(pass);
        (self.is_encoded, self.dispatches) = (true, Dispatches::Uncounted);
    }

    /// The last dispatch of a submission: a device that is lost half-way, or drops it, has not counted it.
    fn count_submission(&mut self) {
        if self.dispatches == Dispatches::Uncounted {
            self.program.completion.encode(&mut self.encoder);
            self.dispatches = Dispatches::Counted;
        }
    }

    async fn exchange(&mut self, run: &Run, command: usize, exchange: &Exchange) -> Result<(), Stop> {
        // The host knows it by its place in the plan that it sent.
        let command = self.program.places[&run.pass][command];
        let (buffer, offset, elements) = self.place(exchange.sent(), run)?;
        self.read(&buffer, offset, elements, ReadBackUse::Exchange(command)).await?;
        self.submit();
        if !exchange.is_awaited() {
            return self.receive_ready().await;
        }
        self.receive_all().await?;
        let asked_ms = self.mailbox.now_ms();
        let data = self.mailbox.combined(run.ticket, command).await?;
        self.wait_ms += self.mailbox.now_ms() - asked_ms;
        if data.len() as u64 != elements {
            let text = format!("command {command} needs {elements} combined values, but {} came", data.len());
            return Err(Fault::Unsupported(text).into());
        }
        Ok(self.program.write_to(self.gpu, (&buffer, offset), &data).await?)
    }

    fn place(&self, view: View, run: &Run) -> Result<(wgpu::Buffer, u64, u64), Fault> {
        let buffer = self.program.buffer(view.buffer.0 as usize);
        let buffer = buffer.ok_or_else(|| Fault::Unsupported("an exchange names an unknown buffer".into()))?;
        Ok((buffer.clone(), view.offset * F32_BYTES, view.len.at(run.scalars.rows)))
    }

    /// Encodes the copies of a run's results, and waits for the end of computing.
    async fn results(&mut self, run: &Run, computed: Submission) -> Result<(), Stop> {
        let rows = run.scalars.rows;
        let plan = self.program.plan.clone();
        let results = plan.results(run.pass);
        let chunks: u64 = results
            .iter()
            .map(|id| (plan.get(*id).len.at(rows) * F32_BYTES).div_ceil(self.program.readbacks.chunk_bytes()))
            .sum();
        let is_long = chunks + 1 > self.program.readbacks.room() as u64;
        if is_long {
            self.computed(computed).await?;
        }
        let read_at = self.mailbox.now_ms();
        for id in results {
            if let Some(buffer) = self.program.buffer(id.0 as usize).cloned() {
                self.read(&buffer, 0, plan.get(id).len.at(rows), ReadBackUse::Result).await?;
            }
        }
        let marker = self.program.completion.marker.clone();
        self.read(&marker, 0, 1, ReadBackUse::Result).await?;
        self.submit();
        if is_long {
            self.readback_ms += self.mailbox.now_ms() - read_at;
            return Ok(());
        }
        self.computed(computed).await
    }

    /// Waits for the last dispatch; exchanged values, whose copies are before it, go out as they come.
    async fn computed(&mut self, computed: Submission) -> Result<(), Stop> {
        while self.program.readbacks.oldest().is_some_and(|part| matches!(part.target, ReadBackUse::Exchange(_))) {
            self.receive().await?;
        }
        let waited = async { Ok(self.gpu.wait(computed).await?) };
        let interrupted = async { Err(self.mailbox.interrupted(self.ticket).await) };
        futures_lite::future::or(waited, interrupted).await
    }

    fn submit(&mut self) -> Submission {
        self.count_submission();
        if std::mem::take(&mut self.dispatches) == Dispatches::Counted {
            self.program.completion.submitted();
        }
        let mut encoder = std::mem::replace(&mut self.encoder, self.gpu.encoder());
        if let Some(profile) = &self.gpu.profile {
            profile.resolve(&mut encoder);
        }
        let submission = self.gpu.submit(encoder);
        if let Some(profile) = &self.gpu.profile {
            profile.submitted();
        }
        self.is_encoded = false;
        self.program.readbacks.submitted(submission);
        submission
    }

    /// Encodes the copy of values to the host, in pieces of a chunk; waits for older ones where there is no room.
    async fn read(&mut self, buffer: &wgpu::Buffer, offset: u64, length: u64, target: ReadBackUse) -> Result<(), Stop> {
        let order = self.order;
        if length == 0 {
            // Behind all that is on its way.
            self.submit();
            self.receive_all().await?;
            return self.ahead.deliver(self.mailbox, Arrived { order, target, values: Vec::new() }).await;
        }
        let bytes = length * F32_BYTES;
        let mut at = 0;
        while at < bytes {
            if self.program.readbacks.room() == 0 && self.is_encoded {
                self.submit();
            }
            while self.program.readbacks.room() == 0 {
                self.receive().await?;
            }
            let copied = (bytes - at).min(self.program.readbacks.chunk_bytes());
            let part = ChunkPart { order, target, length, is_first: at == 0, is_last: at + copied == bytes };
            self.program.readbacks.copy(&mut self.encoder, (buffer, offset + at), copied, part);
            self.is_encoded = true;
            at += copied;
        }
        Ok(())
    }

    /// Waits for what the device gives next: the oldest copy, or the results of an older run.
    async fn receive(&mut self) -> Result<(), Stop> {
        self.ahead.step(self.gpu, self.program, self.mailbox).await
    }

    async fn receive_ready(&mut self) -> Result<(), Stop> {
        self.ahead.answer_ready(self.gpu, self.program, self.mailbox).await
    }

    async fn receive_all(&mut self) -> Result<(), Stop> {
        while !self.program.readbacks.is_idle() {
            self.receive().await?;
        }
        Ok(())
    }

    fn submission_length(&self, run: &Run) -> usize {
        let pace = self.program.passes.get(&run.pass).and_then(|prepass| prepass.pace);
        submission_length(pace, run.scalars.rows)
    }
}

/// Dispatches that an encoder holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Dispatches {
    /// None: a submission of copies alone is not counted.
    #[default]
    None,
    /// Some, and nothing that counts their submission.
    Uncounted,
    /// Some, and behind them what counts their submission.
    Counted,
}

/// A run whose commands are encoded.
struct Started {
    start_ms: f64,
    upload_ms: f64,
    n_dispatches: usize,
}

/// Compares the completion marker with what it holds if the device has done all.
fn check_marker(marker: Option<f32>, expected: f32) -> Result<(), Fault> {
    if marker.map(f32::to_bits) == Some(expected.to_bits()) {
        return Ok(());
    }
    Err(Fault::Lost(UNFINISHED.into()))
}

/// The part of a run's time that trying tiles took: the excess over the expected time. A run that tries nothing sets
/// the pace.
fn tuning_ms(
    program: &mut Program,
    (pass, rows): (Pass, u32),
    is_trying: bool,
    compute_ms: f64,
    n_dispatches: usize,
) -> f64 {
    let Some(prepass) = program.passes.get_mut(&pass) else { return 0.0 };
    if !is_trying {
        if prepass.has_parts() {
            prepass.speed = Some(Work::of(&program.plan, pass, rows).weight() / compute_ms.max(1e-3));
        }
        prepass.pace = Some((compute_ms / count_f64(n_dispatches.max(1)), rows));
        return 0.0;
    }
    let usual_ms = prepass.pace.map_or(compute_ms, |(ms, rows_then)| {
        ms * count_f64(n_dispatches) * f64::from(rows) / f64::from(rows_then.max(1))
    });
    (compute_ms - usual_ms).max(0.0)
}

/// Number of dispatches of a submission for `rows` rows, from the milliseconds of a dispatch in the last run and
/// that run's rows.
///
/// More rows take longer in proportion; fewer may not take less, since a dispatch has a fixed cost.
fn submission_length(pace: Option<(f64, u32)>, rows: u32) -> usize {
    pace.map_or(FIRST, |(ms, rows_then)| {
        let growth = (f64::from(rows) / f64::from(rows_then.max(1))).max(1.0);
        let fitting = SUBMISSION_MS / (ms * growth).max(1e-6);
        // As a count: the largest that fits, found without a cast from f64.
        (1..=MOST).rev().find(|count| count_f64(*count) <= fitting).unwrap_or(1)
    })
}

fn count_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time of a submission, and what a Windows driver allows.
    const LIMIT_MS: f64 = 2000.0;

    #[test]
    fn a_submission_is_as_long_as_its_dispatches_are_short() {
        for (dispatch_ms, expected) in
            [(1e-9, MOST), (0.01, MOST), (0.1, 600), (1.0, 60), (25.0, 2), (31.0, 1), (900.0, 1), (f64::MAX, 1)]
        {
            assert_eq!(submission_length(Some((dispatch_ms, 64)), 64), expected, "{dispatch_ms} ms");
        }
    }

    #[test]
    fn nothing_is_taken_for_granted_before_the_first_measurement() {
        assert_eq!(submission_length(None, 1), 1);
        assert_eq!(submission_length(None, 4096), 1);
    }

    #[test]
    fn more_rows_than_were_measured_make_shorter_submissions() {
        assert_eq!(submission_length(Some((1.0, 64)), 128), 30);
        assert_eq!(submission_length(Some((1.0, 64)), 64 * 1000), 1);
        assert_eq!(submission_length(Some((1.0, 0)), 2), 30);
        // Fewer rows may not be faster: a dispatch has a fixed cost.
        assert_eq!(submission_length(Some((1.0, 64)), 1), 60);
    }

    /// The mean of a pass says nothing of its longest dispatches; they may all meet in one submission.
    #[test]
    fn unequal_dispatches_stay_far_from_the_limit() {
        for n_dispatches in [10_u32, 40, 200] {
            for slowdown in [1.0, 10.0, 100.0] {
                // Nine tenths of the time in a tenth of the dispatches, side by side.
                let total_ms = 5.0 * slowdown;
                let long_ms = 0.9 * total_ms / f64::from(n_dispatches / 10);
                let length = submission_length(Some((total_ms / f64::from(n_dispatches), 64)), 64);
                let worst_ms = (count_f64(length) * long_ms).min(total_ms);
                assert!(worst_ms < LIMIT_MS / 3.0, "{n_dispatches} dispatches of {total_ms} ms: {worst_ms} ms");
            }
        }
    }
}
