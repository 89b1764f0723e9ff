//! Runs in flight: the next ones begin before the results of the last are read, so that the device never waits for
//! the host.
//!
//! A device computes in the order of its submissions. So its buffers need no double: what is written for a run comes
//! behind the commands of the run before. Only values on their way to the host have chunks of their own.

use std::collections::VecDeque;

use super::super::super::mailbox::{Done, Mailbox, Stop};
use super::super::super::memory::{AHEAD, Ring};
use super::super::super::{Combining, Event, Fault, Run, Ticket, Timing, Writes};
use super::super::device::Gpu;
use super::super::program::Program;
use super::super::staging::{Arrived, ReadBackUse, StagingChunk};
use super::super::tuning::Trials;
use super::{Execution, check_marker, tuning_ms};
use crate::plan::{Pass, Plan};
use crate::size::F32_BYTES;

/// Runs in flight, and the buffers for their results.
pub(in crate::adapters::gpu) struct Ahead {
    free: Vec<StagingChunk>,
    /// Bytes of the results that a run in flight may have.
    chunk_bytes: u64,
    /// Oldest first. The last may still be encoded.
    open: VecDeque<Open>,
    /// Number of runs and reads so far.
    n_begun: u64,
    /// Time when the last results were read; until then the device was busy with that run.
    ended_ms: f64,
}

/// A run, or a read, in flight.
struct Open {
    /// Its number among all of them.
    order: u64,
    ticket: Ticket,
    /// The host combines its exchanges, and waits for its answer.
    is_awaited: bool,
    is_given_up: bool,
    /// Results that came one by one.
    read: Vec<Vec<f32>>,
    /// Results that come together; `None` until all its commands are submitted.
    results: Option<RunResults>,
}

/// The results of a run that come together, and what is known of it.
struct RunResults {
    pass: Pass,
    rows: u32,
    /// Its completion marker.
    marker: f32,
    /// Results one after the other, then the completion marker.
    chunk: StagingChunk,
    lengths: Vec<u64>,
    start_ms: f64,
    upload_ms: f64,
    weights: Writes,
    n_dispatches: usize,
    is_trying: bool,
}

/// Kind of values that come next from the device.
enum Next {
    /// A copy of an exchanged value, or of a result that comes by itself.
    Copy,
    /// The results of the oldest run.
    Results,
}

impl Ahead {
    /// Buffers for the results of runs, if they may be in flight.
    pub(in crate::adapters::gpu) fn new(gpu: &Gpu, ring: Ring) -> Self {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let free = (0..ring.count).map(|_| StagingChunk::new(gpu, "results", ring.chunk_bytes, usage)).collect();
        Self { free, chunk_bytes: ring.chunk_bytes, open: VecDeque::new(), n_begun: 0, ended_ms: 0.0 }
    }

    /// Whether no run is in flight.
    pub(in crate::adapters::gpu) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// The oldest run in flight.
    pub(in crate::adapters::gpu) fn oldest(&self) -> Option<Ticket> {
        self.open.front().map(|open| open.ticket)
    }

    /// Whether the host waits for the answer to a run in flight.
    pub(in crate::adapters::gpu) fn is_awaited(&self) -> bool {
        self.open.iter().any(|open| open.is_awaited)
    }

    /// Whether a run can be in flight while the next begins: it waits for no combined value, and its results are small.
    pub(in crate::adapters::gpu) fn takes(&self, plan: &Plan, run: &Run) -> bool {
        let waits = run.combining == Combining::Host && plan.is_coupled(run.pass);
        let lengths = plan.results(run.pass).into_iter().map(|id| plan.get(id).len.at(run.scalars.rows));
        !waits && !self.free.is_empty() && (lengths.sum::<u64>() + 1) * F32_BYTES <= self.chunk_bytes
    }

    /// Enters a run that begins; gives its number.
    pub(super) fn enter(&mut self, ticket: Ticket, is_awaited: bool) -> u64 {
        self.n_begun += 1;
        let order = self.n_begun;
        self.open.push_back(Open { order, ticket, is_awaited, is_given_up: false, read: Vec::new(), results: None });
        order
    }

    /// Drops the run that was being encoded, if there is one. What it has sent is dropped when it comes.
    pub(in crate::adapters::gpu) fn leave(&mut self, program: &mut Program) {
        if self.open.back().is_some_and(|open| open.results.is_none()) {
            self.open.pop_back();
            program.readbacks.not_submitted();
        }
    }

    /// Ends the run that was encoded last, whose results came one by one; gives them.
    pub(super) fn end(&mut self, now_ms: f64) -> Vec<Vec<f32>> {
        self.ended_ms = now_ms;
        self.open.pop_back().map(|open| open.read).unwrap_or_default()
    }

    /// Gives up a run in flight: it is not answered. Gives whether it is the one that is being encoded.
    pub(in crate::adapters::gpu) fn give_up(&mut self, ticket: Ticket) -> bool {
        let Some(open) = self.open.iter_mut().find(|open| open.ticket == ticket) else { return false };
        open.is_given_up = true;
        open.results.is_none()
    }

    /// Answers the oldest runs until no more than so many are in flight.
    pub(in crate::adapters::gpu) async fn answer(
        &mut self,
        gpu: &Gpu,
        program: &mut Program,
        mailbox: &mut Mailbox,
        stay: usize,
    ) -> Result<(), Stop> {
        while self.open.len() > stay {
            self.step(gpu, program, mailbox).await?;
        }
        Ok(())
    }

    /// Asks the device, and handles what it has already.
    pub(in crate::adapters::gpu) async fn answer_ready(
        &mut self,
        gpu: &Gpu,
        program: &mut Program,
        mailbox: &mut Mailbox,
    ) -> Result<(), Stop> {
        if self.is_idle() {
            return Ok(());
        }
        gpu.poll()?;
        while self.next_chunk(program).is_some_and(|chunk| chunk.is_mapped()) {
            self.step(gpu, program, mailbox).await?;
        }
        Ok(())
    }

    /// Answers runs until one more may begin; all of them if their pass has not run with as many rows before, since it
    /// may then fail for want of memory, or if runs are made slower by waiting.
    pub(in crate::adapters::gpu) async fn answer_older(
        &mut self,
        gpu: &Gpu,
        program: &mut Program,
        mailbox: &mut Mailbox,
    ) -> Result<(), Stop> {
        let is_proven = |results: &RunResults| {
            let pace = program.passes.get(&results.pass).and_then(|prepass| prepass.pace);
            pace.is_some_and(|(_, rows)| rows >= results.rows)
        };
        let may_stay = !mailbox.is_throttled() && self.open.iter().flat_map(|open| &open.results).all(is_proven);
        self.answer(gpu, program, mailbox, if may_stay { AHEAD } else { 0 }).await
    }

    /// Waits until the device has what comes next, which is handled, or a request comes. Something must be in flight.
    pub(in crate::adapters::gpu) async fn step(
        &mut self,
        gpu: &Gpu,
        program: &mut Program,
        mailbox: &mut Mailbox,
    ) -> Result<(), Stop> {
        let n_open = self.open.len();
        let stepped = self.try_step(gpu, program, mailbox).await;
        if n_open > 1 { stepped.map_err(too_late) } else { stepped }
    }

    async fn try_step(&mut self, gpu: &Gpu, program: &mut Program, mailbox: &mut Mailbox) -> Result<(), Stop> {
        let in_flight: Vec<Ticket> = self.open.iter().map(|open| open.ticket).collect();
        let Some(chunk) = self.next_chunk(program) else {
            return Err(Fault::Lost("nothing is in flight that could be waited for".into()).into());
        };
        let mapped = async { chunk.mapped(gpu).await.map(|()| None).map_err(Stop::from) };
        let heard = async { mailbox.heard(&in_flight).await.map(Some) };
        match futures_lite::future::or(mapped, heard).await? {
            None => self.take(gpu, program, mailbox).await,
            Some(Some(given_up)) if self.give_up(given_up) => Err(Stop::Abandoned),
            Some(_) => Ok(()),
        }
    }

    /// Runs are answered in order, each behind what it has exchanged.
    fn next(&self, program: &Program) -> Option<Next> {
        let front = self.open.front();
        match (program.readbacks.oldest(), front) {
            (Some(part), Some(front)) if part.order <= front.order => Some(Next::Copy),
            (Some(_), None) => Some(Next::Copy),
            (_, Some(front)) if front.results.is_some() => Some(Next::Results),
            _ => None,
        }
    }

    fn next_chunk<'a>(&'a mut self, program: &'a mut Program) -> Option<&'a mut StagingChunk> {
        match self.next(program)? {
            Next::Copy => program.readbacks.oldest_chunk(),
            Next::Results => Some(&mut self.open.front_mut()?.results.as_mut()?.chunk),
        }
    }

    /// Takes what the device has given: sends an exchanged value, or answers the oldest run.
    async fn take(&mut self, gpu: &Gpu, program: &mut Program, mailbox: &mut Mailbox) -> Result<(), Stop> {
        match self.next(program) {
            Some(Next::Copy) => match program.readbacks.take()? {
                Some(arrived) => self.deliver(mailbox, arrived).await,
                None => Ok(()),
            },
            Some(Next::Results) => self.answer_oldest(gpu, program, mailbox).await,
            None => Ok(()),
        }
    }

    /// Sends an exchanged value, or keeps a result. One of a run that was dropped is dropped, too.
    pub(super) async fn deliver(&mut self, mailbox: &mut Mailbox, arrived: Arrived) -> Result<(), Stop> {
        let Arrived { order, target, values } = arrived;
        let Some(open) = self.open.iter_mut().find(|open| open.order == order) else { return Ok(()) };
        match target {
            ReadBackUse::Exchange(_) if open.is_given_up => Ok(()),
            ReadBackUse::Exchange(command) => {
                mailbox.send(Event::Exchange { ticket: open.ticket, command, data: values }).await
            }
            ReadBackUse::Result => {
                open.read.push(values);
                Ok(())
            }
        }
    }

    async fn answer_oldest(&mut self, gpu: &Gpu, program: &mut Program, mailbox: &mut Mailbox) -> Result<(), Stop> {
        let Some(Open { ticket, is_given_up, results: Some(results), .. }) = self.open.pop_front() else {
            return Ok(());
        };
        let mapped_ms = mailbox.now_ms();
        let RunResults { pass, rows, marker, chunk, lengths, .. } = results;
        let bytes = (lengths.iter().sum::<u64>() + 1) * F32_BYTES;
        let mut values = Vec::with_capacity(usize::try_from(bytes / F32_BYTES).unwrap_or_default());
        chunk.read(bytes, &mut values)?;
        self.free.push(chunk);
        let mut rest = values.as_slice();
        let mut read = Vec::with_capacity(lengths.len());
        for length in &lengths {
            let (result, after) = rest.split_at(usize::try_from(*length).unwrap_or(usize::MAX));
            read.push(result.to_vec());
            rest = after;
        }
        check_marker(rest.first().copied(), marker)?;
        let now_ms = mailbox.now_ms();
        let start_ms = results.start_ms.max(self.ended_ms);
        // A part of it, or all, was hidden behind the run before.
        let uploaded_ms = results.start_ms + results.upload_ms;
        let upload_ms = (uploaded_ms.min(mapped_ms) - start_ms).max(0.0);
        let (elapsed_ms, readback_ms) = (mapped_ms - start_ms - upload_ms, now_ms - mapped_ms);
        let tuning_ms = tuning_ms(program, (pass, rows), results.is_trying, elapsed_ms, results.n_dispatches);
        let compute_ms = elapsed_ms - tuning_ms;
        let (wait_ms, weights) = (0.0, results.weights);
        let timing = Timing { start_ms, upload_ms, compute_ms, readback_ms, wait_ms, tuning_ms, weights };
        gpu.check()?;
        let answered =
            if is_given_up { Ok(()) } else { mailbox.done(Done::new((ticket, pass, rows), read, timing)).await };
        self.ended_ms = mailbox.now_ms();
        answered
    }
}

/// Begins a run that [`Ahead::answer`] ends. [`Ahead::takes`] must have said that it can.
pub(in crate::adapters::gpu) async fn begin(
    mut execution: Execution<'_>,
    run: &Run,
    weights: Writes,
) -> Result<Trials, Stop> {
    let started = execution.start(run).await?;
    let Some(mut chunk) = execution.ahead.free.pop() else {
        return Err(Fault::Unsupported("too many runs are in flight".into()).into());
    };
    let (plan, mut lengths, mut at) = (execution.program.plan.clone(), Vec::new(), 0);
    for id in plan.results(run.pass) {
        let length = plan.get(id).len.at(run.scalars.rows);
        if let Some(buffer) = execution.program.buffer(id.0 as usize).filter(|_| length > 0) {
            chunk.copy(&mut execution.encoder, (buffer, 0), at, length * F32_BYTES);
        }
        lengths.push(length);
        at += length * F32_BYTES;
    }
    chunk.copy(&mut execution.encoder, (&execution.program.completion.marker, 0), at, F32_BYTES);
    let submission = execution.submit();
    chunk.map(wgpu::MapMode::Read, at + F32_BYTES, submission);
    if let Some(open) = execution.ahead.open.back_mut() {
        open.results = Some(RunResults {
            pass: run.pass,
            rows: run.scalars.rows,
            marker: execution.program.completion.expected(),
            chunk,
            lengths,
            start_ms: started.start_ms,
            upload_ms: started.upload_ms,
            weights,
            n_dispatches: started.n_dispatches,
            is_trying: !execution.trials.is_empty(),
        });
    }
    Ok(execution.trials)
}

/// A failure while other runs are in flight leaves a state that is neither old nor new, or values of which nobody knows
/// whether they are right, so it counts as a loss.
pub(in crate::adapters::gpu) fn too_late(stop: Stop) -> Stop {
    match stop {
        Stop::Fault(Fault::OutOfMemory(text) | Fault::Unsupported(text)) => Fault::Lost(text).into(),
        other => other,
    }
}
