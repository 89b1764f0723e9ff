//! The GPU adapter: runs the shaders of a plan through wgpu. Nothing outside this folder names wgpu.
//!
//! A device has a thread of its own, which owns it with its queue, submits, polls and reads back: a submit can
//! block behind running work. The thread ends when the other end of its requests or events is gone, or
//! when the device is lost.

// Files: `device.rs`: the device and its thread; `matrices.rs`: its cooperative matrices; `options.rs`, `checks.rs`: its choices; `program.rs`, `prepared.rs`, `grid.rs`: a loaded
// plan; `pipelines.rs`, `bindings.rs`: compiled shaders; `verdicts/`: whether they compute right; `profile.rs`: the time of each;
// `patience.rs`, `parts.rs`: long dispatches in parts; `staging.rs`: rings for transfers; `direct.rs`: one kernel at a time, for tests and
// measurements; `run.rs`, `run/`: runs, several in flight; `enumerate/`: the adapters of a system or a browser; `tuning/`: the tile of
// each product; `cache/`: files about adapters.

mod bindings;
mod cache;
mod checks;
mod device;
mod direct;
mod enumerate;
mod grid;
mod matrices;
mod options;
mod parts;
mod patience;
mod pipelines;
mod prepared;
mod profile;
mod program;
mod run;
mod staging;
mod tuning;
mod verdicts;

use std::sync::Arc;

use super::heartbeat::Heartbeat;
use super::mailbox::{self, Device, Mailbox, Serving, Stop};
use super::memory;
use super::{ActorId, Combining, Fault, Handle, Info, Message, Request, Run, Ticket, Writes};
use crate::plan::{Plan, Role};
use crate::runtime::Runtime;
use crate::{Error, Result};
pub use cache::{CACHE_VARIABLE, Cache};
pub use checks::{CHECKED_VARIABLE, Checks};
use device::Gpu;
pub use device::{devices_opened, objects_created, round_trips_made, submissions_made};
pub use direct::{Direct, Launch};
pub use enumerate::enumerate;
#[cfg(target_arch = "wasm32")]
pub use enumerate::{Missing, missing, requested_as};
pub use options::Options;
use patience::Patience;
use pipelines::Pipelines;
pub use profile::PROFILE_VARIABLE;
use run::{Execution, LoadedPlan, ahead};
use tuning::Tuner;
pub use tuning::{TUNING_VARIABLE, Tuning, tiles_tried};
#[doc(hidden)]
pub use verdicts::chosen as cases_for;
pub use verdicts::{Verdict, verdicts};

/// Opens a device of an adapter, with the choices of the environment variables; see [`open_with`].
///
/// # Errors
/// [`ErrorKind::Adapter`](crate::ErrorKind::Adapter) if the adapter is not one of `enumerate`.
pub fn open(
    info: &Info,
    actor: ActorId,
    runtime: Arc<dyn Runtime>,
    events: async_channel::Sender<Message>,
) -> Result<Handle> {
    open_with(info, actor, runtime, events, Options::from_environment())
}

/// Opens a device of an adapter, in a thread of its own. Opened twice, an adapter is two devices.
///
/// The device is requested in that thread; if there is none, it sends [`Event::Failed`](super::Event::Failed) with
/// [`Fault::Lost`]. Messages carry `actor`. Events of one device keep their order.
///
/// A new [`Request::Load`] releases the memory of the old plan and starts with zeros:
/// parameters, statistics and optimizer state are written again. Where memory or limits do not suffice the device stays,
/// without a plan.
///
/// # Errors
/// [`ErrorKind::Adapter`](crate::ErrorKind::Adapter) if the adapter is not one of `enumerate`.
pub fn open_with(
    info: &Info,
    actor: ActorId,
    runtime: Arc<dyn Runtime>,
    events: async_channel::Sender<Message>,
    options: Options,
) -> Result<Handle> {
    if !enumerate::is_known(info) {
        return Err(Error::adapter(
            format!("adapter {} `{}`", info.index, info.name),
            "is not among the GPUs of this machine",
            "list the adapters again",
        ));
    }
    let opened = info.clone();
    let heartbeat = Heartbeat::new(actor, events.clone(), runtime.clone());
    let device = async move |clock| GpuDevice::open(&opened, &options, heartbeat, clock).await;
    let requests = mailbox::spawn(&format!("adapter {}", actor.adapter_idx), actor, &runtime, events, device);
    Ok(Handle { info: info.clone(), requests })
}

struct GpuDevice {
    gpu: Gpu,
    pipelines: Pipelines,
    tuner: Tuner,
    /// Workgroups that a product should have; sums are split for them.
    workgroups: u32,
    loaded: Option<LoadedPlan>,
}

impl Device for GpuDevice {
    fn loaded(&self) -> Option<(&Plan, u32)> {
        self.loaded.as_ref().map(|loaded| (&*loaded.program.plan, loaded.program.capacity))
    }

    fn needs(&self, plan: &Plan, capacity: u32) -> u64 {
        memory::device_bytes(plan, capacity, self.workgroups)
    }

    fn load(&mut self, plan: Arc<Plan>, capacity: u32) -> Serving<'_, u64> {
        Box::pin(async move {
            // Release the memory first: two plans may not fit.
            self.loaded = None;
            self.gpu.poll()?;
            self.tuner.forget_plan();
            let plan = plan.with_split_sums(capacity, self.workgroups);
            self.pipelines.judge(&self.gpu, program::usual(&self.gpu, &plan.plan, capacity)).await?;
            let loaded = LoadedPlan::new(&self.gpu, &mut self.pipelines, &self.tuner, plan, capacity).await?;
            self.pipelines.keep();
            Ok(self.loaded.insert(loaded).bytes)
        })
    }

    fn write<'a>(&'a mut self, role: Role, offset: u64, data: &'a [f32]) -> Serving<'a> {
        Box::pin(async move {
            match &mut self.loaded {
                Some(loaded) => Ok(loaded.program.write(&self.gpu, role, offset, data).await?),
                None => Ok(()),
            }
        })
    }

    fn read<'a>(&'a mut self, mailbox: &'a mut Mailbox, role: Role) -> Serving<'a, Vec<f32>> {
        Box::pin(async move {
            let Some(loaded) = &mut self.loaded else { return Ok(Vec::new()) };
            let read = Execution::new(&self.gpu, loaded, mailbox, NO_RUN, Combining::Device).contents(role).await;
            loaded.ahead.leave(&mut loaded.program);
            read
        })
    }

    fn run<'a>(&'a mut self, mailbox: &'a mut Mailbox, run: &'a Run, weights: Writes) -> Serving<'a> {
        Box::pin(async move {
            let result = self.start(mailbox, run, weights).await;
            let Some(loaded) = &mut self.loaded else { return result };
            loaded.ahead.leave(&mut loaded.program);
            if loaded.ahead.is_idle() { result } else { result.map_err(ahead::too_late) }
        })
    }

    /// The next request. While none comes, runs in flight are answered that the host waits for.
    fn next<'a>(&'a mut self, mailbox: &'a mut Mailbox) -> Serving<'a, Request> {
        Box::pin(async move {
            loop {
                if let Some(request) = mailbox.waiting() {
                    return Ok(request);
                }
                match &mut self.loaded {
                    Some(LoadedPlan { program, ahead, .. }) if ahead.is_awaited() => {
                        ahead.step(&self.gpu, program, mailbox).await?;
                    }
                    _ => return mailbox.next().await,
                }
            }
        })
    }

    fn in_progress(&self) -> Option<Ticket> {
        self.loaded.as_ref()?.ahead.oldest()
    }

    fn give_up(&mut self, ticket: Ticket) {
        if let Some(loaded) = &mut self.loaded {
            loaded.ahead.give_up(ticket);
        }
    }

    fn finish<'a>(&'a mut self, mailbox: &'a mut Mailbox) -> Serving<'a> {
        Box::pin(async move {
            match &mut self.loaded {
                Some(LoadedPlan { program, ahead, .. }) => ahead.answer(&self.gpu, program, mailbox, 0).await,
                None => Ok(()),
            }
        })
    }

    fn destroy(&mut self) -> Fault {
        self.gpu.destroy()
    }

    fn close(&mut self) {
        self.gpu.close();
    }
}

impl GpuDevice {
    async fn open(
        info: &Info,
        options: &Options,
        heartbeat: Heartbeat,
        clock: Arc<dyn Runtime>,
    ) -> Result<Self, Fault> {
        let patience = Patience::of(info.kind, options.dispatch_ms);
        let special = (patience, options.left_out, options.profile.as_deref());
        let mut gpu = Gpu::open(info, Checks::from_environment(), special, clock).await?;
        gpu.heartbeat = Some(heartbeat);
        let pipelines = Pipelines::open(info, &gpu, &options.cache);
        let tuner = Tuner::open(info, &gpu, &options.tuning);
        let workgroups = options.workgroups.unwrap_or_else(|| info.kind.workgroups());
        Ok(Self { gpu, pipelines, tuner, workgroups, loaded: None })
    }

    async fn start(&mut self, mailbox: &mut Mailbox, run: &Run, weights: Writes) -> Result<(), Stop> {
        let (gpu, pipelines) = (&self.gpu, &mut self.pipelines);
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let LoadedPlan { program, ahead, .. } = loaded;
        ahead.answer_ready(gpu, program, mailbox).await?;
        let trials =
            self.tuner.plan(gpu, pipelines, (&program.plan, program.capacity), run, || mailbox.now_ms()).await?;
        let begins_ahead = ahead.takes(&program.plan, run);
        if !begins_ahead || !trials.is_empty() {
            // What is measured must be alone.
            ahead.answer(gpu, program, mailbox, 0).await?;
        }
        let execution = Execution::new(gpu, loaded, mailbox, run.ticket, run.combining).trying(trials);
        let tried = if begins_ahead {
            let tried = ahead::begin(execution, run, weights).await?;
            loaded.ahead.answer_older(gpu, &mut loaded.program, mailbox).await?;
            tried
        } else {
            execution.run(run, weights).await?
        };
        if self.tuner.learn(tried, run.scalars.rows) {
            loaded.program.adopt(gpu, pipelines, &self.tuner).await?;
        }
        Ok(())
    }
}

/// A read has no exchanges, so this is unused.
const NO_RUN: Ticket = Ticket { step: 0, attempt: 0, slot: 0 };
