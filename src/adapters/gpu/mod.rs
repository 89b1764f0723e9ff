//! The GPU adapter: runs the shaders of a plan through wgpu. Nothing outside this folder names wgpu.
//!
//! A device has a thread of its own, which owns it with its queue, submits, polls and reads back: a submit can
//! block behind running work. The thread ends when its requests or its events have no other end any more, or
//! when the device is lost.

mod desk;
mod device;
mod direct;
mod enumerate;
mod grid;
mod pipelines;
mod program;
mod run;
mod staging;
mod tuning;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_lite::FutureExt;

use super::throttle::Throttle;
use super::{Combining, Event, Fault, Handle, Info, Message, Request, Run, Ticket, Writes};
use crate::runtime::Runtime;
use crate::{Error, Result};
use desk::{Desk, Stop};
use device::Gpu;
pub use device::{CHECKED_VARIABLE, Checks, devices_opened, objects_created, round_trips_made, submissions_made};
pub use direct::{Direct, Launch};
pub use enumerate::enumerate;
#[cfg(target_arch = "wasm32")]
pub use enumerate::{Missing, missing, requested_as};
use pipelines::Pipelines;
use program::Program;
use run::{Execution, ahead};
use tuning::Tuner;
pub use tuning::{TUNING_VARIABLE, Tuning, tiles_tried};

/// Opens a device of an adapter, tuned as [`TUNING_VARIABLE`] says; see [`open_tuned`].
///
/// # Errors
/// [`Error::Adapter`] if the adapter is not one of [`enumerate`].
pub fn open(
    info: &Info,
    adapter_idx: usize,
    runtime: Arc<dyn Runtime>,
    events: async_channel::Sender<Message>,
) -> Result<Handle> {
    open_tuned(info, adapter_idx, runtime, events, Tuning::from_environment())
}

/// Opens a device of an adapter, in a thread of its own. Opened twice, an adapter is two devices.
///
/// The device is requested in that thread; if there is none, [`Event::Failed`] says so with [`Fault::Lost`]. Messages carry
/// `adapter_idx`. Events of one device keep their order.
///
/// A new [`Request::Load`] gives up the memory of the plan before it and starts with zeros: parameters,
/// statistics and optimizer state are written again. Where memory or limits do not suffice the device stays,
/// without a plan. A run that was given up by [`Request::Abandon`] has no answer.
///
/// # Errors
/// [`Error::Adapter`] if the adapter is not one of [`enumerate`].
pub fn open_tuned(
    info: &Info,
    adapter_idx: usize,
    runtime: Arc<dyn Runtime>,
    events: async_channel::Sender<Message>,
    tuning: Tuning,
) -> Result<Handle> {
    if !enumerate::is_known(info) {
        return Err(Error::adapter(
            format!("adapter {} `{}`", info.index, info.name),
            "is not among the GPUs of this machine",
            "list the adapters again",
        ));
    }
    let (sender, requests) = async_channel::unbounded();
    let (last_words, has_ended) = (events.clone(), Arc::new(AtomicBool::new(false)));
    let (backlog, throttle) = (VecDeque::new(), Throttle::default());
    let clock = runtime.clone();
    let desk = Desk { adapter_idx, requests, events, runtime: clock, backlog, has_ended: has_ended.clone(), throttle };
    let info = info.clone();
    let handle = Handle { info: info.clone(), requests: sender };
    let actor = move || -> crate::runtime::Task {
        Box::pin(async move {
            // wgpu panics in a poll that meets a lost device, and may once more when that device is dropped.
            let Err(panic) = AssertUnwindSafe(serve(info, desk, tuning)).catch_unwind().await else { return };
            if !has_ended.load(Ordering::Relaxed) {
                let text = panic.downcast_ref::<String>().map_or("a call into the driver failed", String::as_str);
                let event = Event::Failed { ticket: None, fault: Fault::Lost(text.into()) };
                drop(last_words.send(Message { adapter_idx, event }).await);
            }
        })
    };
    runtime.spawn(&format!("adapter {adapter_idx}"), Box::new(actor));
    Ok(handle)
}

/// The actor: serves requests in order until nobody is there, or the device is not.
async fn serve(info: Info, mut desk: Desk, tuning: Tuning) {
    let gpu = match Gpu::open(&info, Checks::from_environment(), desk.runtime.clone()).await {
        Ok(gpu) => gpu,
        Err(fault) => {
            log::warn!("adapter {} `{}`: {fault:?}", info.index, info.name);
            // Without a device there is nothing more to say.
            drop(desk.say(Event::Failed { ticket: None, fault }).await);
            return;
        }
    };
    let tuner = Tuner::open(&info, &gpu, &tuning);
    let (pipelines, weights) = (Pipelines::default(), Writes::default());
    let mut actor = Actor { gpu, pipelines, tuner, program: None, run_number: 0, weights, is_halted: false };
    while let Ok(request) = desk.next().await {
        let ticket = match &request {
            Request::Run(run) => Some(run.ticket),
            _ => None,
        };
        let fault = match actor.serve(&mut desk, request).await {
            Ok(()) | Err(Stop::Abandoned) => continue,
            Err(Stop::Closed) => break,
            Err(Stop::Lose) => actor.gpu.destroy(),
            Err(Stop::Fault(fault)) => fault,
        };
        let is_lost = matches!(fault, Fault::Lost(_));
        if desk.say(Event::Failed { ticket, fault }).await.is_err() || is_lost {
            break;
        }
    }
    actor.gpu.close();
}

struct Actor {
    gpu: Gpu,
    pipelines: Pipelines,
    tuner: Tuner,
    program: Option<Program>,
    /// Number of the last run, which the proof of life writes. Below 2^23, so that it is whole as a float too.
    run_number: u32,
    /// Weights that were written since the last run.
    weights: Writes,
    /// Did a run without other adapters fail, so that what was asked behind it makes no sense?
    is_halted: bool,
}

impl Actor {
    async fn serve(&mut self, desk: &mut Desk, request: Request) -> Result<(), Stop> {
        if let Request::Run(run) = &request
            && run.combining == Combining::Device
        {
            return if self.is_halted { Ok(()) } else { self.run_alone(desk, run).await };
        }
        self.answer_all(desk).await?;
        match request {
            Request::Load { plan, capacity } => {
                // Its memory first: two plans may not fit.
                self.program = None;
                self.gpu.poll()?;
                let mut program = Program::new(&self.gpu, &mut self.pipelines, plan, capacity).await?;
                self.tuner.forget_plan();
                program.adopt(&self.gpu, &mut self.pipelines, &self.tuner).await?;
                let bytes = program.bytes;
                self.program = Some(program);
                desk.say(Event::Loaded { bytes }).await
            }
            Request::Write { role, offset, data } => {
                let program = loaded(&mut self.program)?;
                let begin_ms = desk.now_ms();
                program.write(&self.gpu, role, offset, &data).await?;
                self.weights.add(begin_ms, desk.now_ms());
                Ok(())
            }
            Request::Run(run) => self.run(desk, &run, false).await,
            Request::Read(role) => {
                let program = loaded(&mut self.program)?;
                Execution::new(&self.gpu, program, desk, NO_RUN).contents(role).await
            }
            Request::Throttle(factor) => {
                desk.throttle.set(factor);
                Ok(())
            }
            Request::Lose => Err(Stop::Lose),
            Request::Abandon(_) => {
                self.is_halted = false;
                Ok(())
            }
            // Of a run that has ended, or done by now.
            Request::Combined { .. } | Request::Finish => Ok(()),
        }
    }
}

impl Actor {
    /// Runs under way are answered before anything else than the next.
    async fn answer_all(&mut self, desk: &mut Desk) -> Result<(), Stop> {
        match &mut self.program {
            Some(program) => ahead::answer(&self.gpu, program, desk, 0).await,
            None => Ok(()),
        }
    }

    /// A run without other adapters: it begins while the device still works on those before.
    async fn run_alone(&mut self, desk: &mut Desk, run: &Run) -> Result<(), Stop> {
        let result = match &self.program {
            Some(program) if program.ahead.has_room() => self.run(desk, run, true).await,
            _ => self.run(desk, run, false).await,
        };
        self.is_halted = matches!(result, Err(Stop::Fault(_)));
        let is_behind_others = self.program.as_ref().is_some_and(|program| !program.ahead.is_idle());
        if is_behind_others { result.map_err(ahead::too_late) } else { result }
    }

    async fn run(&mut self, desk: &mut Desk, run: &Run, is_ahead: bool) -> Result<(), Stop> {
        self.run_number = self.run_number % ((1 << 23) - 1) + 1;
        let (gpu, pipelines) = (&self.gpu, &mut self.pipelines);
        let program = loaded(&mut self.program)?;
        ahead::answer_ready(gpu, program, desk).await?;
        let trials = self.tuner.plan(gpu, pipelines, program, run, || desk.now_ms()).await?;
        if !trials.is_empty() {
            // What is measured must be alone.
            ahead::answer(gpu, program, desk, 0).await?;
        }
        let weights = std::mem::take(&mut self.weights);
        let execution = Execution::new(gpu, program, desk, run.ticket).trying(trials);
        let tried = if is_ahead {
            let tried = execution.begin(run, self.run_number, weights).await?;
            ahead::answer_older(gpu, program, desk).await?;
            tried
        } else {
            execution.run(run, self.run_number, weights).await?
        };
        if self.tuner.learn(tried, run.scalars.rows) {
            program.adopt(gpu, pipelines, &self.tuner).await?;
        }
        Ok(())
    }
}

/// A read exchanges nothing, so nobody sees this.
const NO_RUN: Ticket = Ticket { step: 0, attempt: 0, slot: 0 };

fn loaded(program: &mut Option<Program>) -> Result<&mut Program, Fault> {
    program.as_mut().ok_or_else(|| Fault::Unsupported("no plan is loaded".into()))
}
