//! Runs on a single adapter: the next ones begin before the results of the last are read, so that the device
//! never waits for the host.

use std::collections::VecDeque;

use super::super::super::mailbox::{Done, Mailbox, Stop};
use super::super::super::memory::{AHEAD, Ring};
use super::super::super::{Fault, Run, Ticket, Timing, Writes};
use super::super::device::Gpu;
use super::super::program::Program;
use super::super::staging::Chunk;
use super::super::tuning::Trials;
use super::{Execution, check_marker, tuning_ms};
use crate::plan::Pass;
use crate::size::F32_BYTES;

/// Runs in flight, and the buffers for their results.
pub(in crate::adapters::gpu) struct Ahead {
    free: Vec<Chunk>,
    open: VecDeque<Open>,
    /// Time when the last results were read; until then the device was busy with that run.
    ended_ms: f64,
}

/// A run in flight.
struct Open {
    ticket: Ticket,
    pass: Pass,
    rows: u32,
    number: u32,
    /// Results one after the other, then the completion marker.
    chunk: Chunk,
    lengths: Vec<u64>,
    start_ms: f64,
    upload_ms: f64,
    weights: Writes,
    n_dispatches: usize,
    is_trying: bool,
}

impl Ahead {
    /// Buffers for the results of runs, if they may be in flight.
    pub(in crate::adapters::gpu) fn new(gpu: &Gpu, ring: Ring) -> Self {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let free = (0..ring.count).map(|_| Chunk::new(gpu, "results", ring.chunk_bytes, usage)).collect();
        Self { free, open: VecDeque::new(), ended_ms: 0.0 }
    }

    /// Whether no run is in flight.
    pub(in crate::adapters::gpu) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether there is a buffer for one more run.
    pub(in crate::adapters::gpu) fn has_room(&self) -> bool {
        !self.free.is_empty()
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
            let Some(open) = self.open.pop_front() else { break };
            let answered = self.answer_one(gpu, program, mailbox, open).await;
            answered.map_err(|stop| if self.is_idle() { stop } else { too_late(stop) })?;
        }
        Ok(())
    }

    /// Asks the device, and answers the oldest runs whose results are there already.
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
        self.answer_mapped(gpu, program, mailbox).await
    }

    /// Answers the oldest runs whose results the device had when it was last asked.
    pub(super) async fn answer_mapped(
        &mut self,
        gpu: &Gpu,
        program: &mut Program,
        mailbox: &mut Mailbox,
    ) -> Result<(), Stop> {
        while self.open.front().is_some_and(|open| open.chunk.is_mapped()) {
            let stay = self.open.len() - 1;
            self.answer(gpu, program, mailbox, stay).await?;
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
        let is_proven = |open: &Open| {
            let pace = program.passes.get(&open.pass).and_then(|prepass| prepass.pace);
            pace.is_some_and(|(_, rows)| rows >= open.rows)
        };
        let may_stay = !mailbox.is_throttled() && self.open.iter().all(is_proven);
        self.answer(gpu, program, mailbox, if may_stay { AHEAD } else { 0 }).await
    }

    async fn answer_one(
        &mut self,
        gpu: &Gpu,
        program: &mut Program,
        mailbox: &mut Mailbox,
        mut open: Open,
    ) -> Result<(), Stop> {
        let mapped = async { Ok(open.chunk.mapped(gpu).await?) };
        let interrupted = async { Err(mailbox.interrupted(open.ticket).await) };
        futures_lite::future::or(mapped, interrupted).await?;
        let mapped_ms = mailbox.now_ms();
        let bytes = (open.lengths.iter().sum::<u64>() + 1) * F32_BYTES;
        let mut values = Vec::with_capacity(usize::try_from(bytes / F32_BYTES).unwrap_or_default());
        open.chunk.read(bytes, Some(&mut values))?;
        let mut rest = values.as_slice();
        let mut results = Vec::with_capacity(open.lengths.len());
        for length in &open.lengths {
            let (result, after) = rest.split_at(usize::try_from(*length).unwrap_or(usize::MAX));
            results.push(result.to_vec());
            rest = after;
        }
        check_marker(rest.first().copied(), open.number)?;
        self.free.push(open.chunk);
        let now_ms = mailbox.now_ms();
        let start_ms = open.start_ms.max(self.ended_ms);
        // A part of it, or all, was hidden behind the run before.
        let uploaded_ms = open.start_ms + open.upload_ms;
        let upload_ms = (uploaded_ms.min(mapped_ms) - start_ms).max(0.0);
        let (elapsed_ms, readback_ms) = (mapped_ms - start_ms - upload_ms, now_ms - mapped_ms);
        let tuning_ms = tuning_ms(program, (open.pass, open.rows), open.is_trying, elapsed_ms, open.n_dispatches);
        let compute_ms = elapsed_ms - tuning_ms;
        let (wait_ms, weights) = (0.0, open.weights);
        let timing = Timing { start_ms, upload_ms, compute_ms, readback_ms, wait_ms, tuning_ms, weights };
        gpu.check()?;
        let Open { ticket, pass, rows, .. } = open;
        let answered = mailbox.done(Done { ticket, pass, rows, reports: results, outputs: Vec::new(), timing }).await;
        self.ended_ms = mailbox.now_ms();
        answered
    }
}

/// Begins a run that [`Ahead::answer`] ends. There must be room for it.
pub(in crate::adapters::gpu) async fn begin(
    mut execution: Execution<'_>,
    run: &Run,
    number: u32,
    weights: Writes,
) -> Result<Trials, Stop> {
    let started = execution.start(run, number).await?;
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
    execution.ahead.open.push_back(Open {
        ticket: run.ticket,
        pass: run.pass,
        rows: run.scalars.rows,
        number,
        chunk,
        lengths,
        start_ms: started.start_ms,
        upload_ms: started.upload_ms,
        weights,
        n_dispatches: started.n_dispatches,
        is_trying: !execution.trials.is_empty(),
    });
    Ok(execution.trials)
}

/// A failure while other runs are in flight leaves a state that is neither old nor new, so it counts as a loss.
pub(in crate::adapters::gpu) fn too_late(stop: Stop) -> Stop {
    match stop {
        Stop::Fault(Fault::OutOfMemory(text) | Fault::Unsupported(text)) => Fault::Lost(text).into(),
        other => other,
    }
}
