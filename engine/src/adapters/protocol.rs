//! Requests to adapters and their events: the messages of every adapter, GPU, CPU or simulated.
//!
//! An adapter takes [`Request`]s and answers with [`Event`]s. All adapters share one mailbox (`mailbox.rs`) and this contract:
//!
//! - **Order.** Requests are served in order. While a run waits, for its device or for a combined value, later requests wait.
//!   [`Request::Abandon`] and [`Request::Lose`] take effect at once.
//! - **Runs ahead.** A run that waits for no combined value may begin before those in front of it are answered, so that the
//!   device never waits for the host. Answers come in the order of the runs, each behind what its run has exchanged. All other
//!   requests but `Abandon` and `Lose` are served after the runs before them. What fails while several runs are in flight is
//!   [`Fault::Lost`].
//! - **[`Request::Abandon`]** ends a run in progress at the adapter's next check, at the latest where it would wait; a queued
//!   run is dropped. Neither is answered; other runs in flight are. A run that has ended does not change.
//! - **After a failed run of [`Combining::Device`]** later runs of that kind are dropped until the next `Abandon`.
//! - **A role or a pass that the plan lacks**, and a request without a plan, give [`Fault::Unsupported`]. The adapter stays, and
//!   so does its plan.
//! - **[`Fault::Lost`]** is an adapter's last event. A panic in its thread is reported as one: no request stays without an end.

use std::sync::Arc;

use async_channel::Sender;

use super::Info;
use crate::Result;
use crate::plan::{Command, Pass, Plan, Role, Scalars};
use crate::runtime::Runtime;

/// Names one run of a plan. A late answer of an earlier attempt is known by it, and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// Training step, or index of the batch.
    pub step: u64,
    /// Attempt at that step.
    pub attempt: u32,
    /// Slot of the shard in the step.
    pub slot: u32,
}

/// The place where values of the plan's exchanges are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combining {
    /// The host, over several adapters: exchanges are answered with [`Event::Exchange`].
    Host,
    /// None: this is the only adapter, the update runs on it, exchanges are skipped. Such a run may be answered after
    /// the next ones have begun, so that the device never waits for the host; [`Request::Finish`] asks for the answers.
    /// When it fails, later ones are dropped until [`Request::Abandon`].
    Device,
}

/// One run of a pass.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name of the run.
    pub ticket: Ticket,
    /// Commands to run.
    pub pass: Pass,
    /// Rows, seed, step and the rest.
    pub scalars: Scalars,
    /// Values to write before the run, by role: inputs, targets, sample weights. `rows` rows each.
    pub feeds: Vec<(Role, Arc<[f32]>)>,
    /// The place where exchanged values are combined.
    pub combining: Combining,
}

impl Run {
    /// Whether the run leaves a command of its pass out: one for other adapters if there are none, or a gradient that a
    /// later run adds to.
    pub fn skips(&self, command: &Command) -> bool {
        self.combining == Combining::Device && command.is_for_others()
            || self.scalars.is_last == 0 && command.is_of_last()
    }
}

/// A request to an adapter. Requests are served in order.
#[derive(Clone, Debug)]
pub enum Request {
    /// Make buffers, pipelines and bind groups for runs of up to `capacity` rows. Answer: [`Event::Loaded`].
    Load {
        /// The plan.
        plan: Arc<Plan>,
        /// Rows that a run may have.
        capacity: u32,
    },
    /// Write a part of a buffer that outlives a pass. No answer.
    Write {
        /// The buffer.
        role: Role,
        /// First element; a multiple of [`ALIGN`](crate::plan::ALIGN).
        offset: u64,
        /// The values.
        data: Arc<[f32]>,
    },
    /// Run a pass. Answers: [`Event::Exchange`] for each exchange, then [`Event::Done`].
    Run(Run),
    /// Answer to an [`Event::Exchange`] that the run waits for.
    Combined {
        /// The run.
        ticket: Ticket,
        /// Index of the command in its pass.
        command: usize,
        /// The combined value.
        data: Arc<[f32]>,
    },
    /// Abandon a run, in progress or queued. No answer. Runs of [`Combining::Device`] are served again
    /// after one that failed.
    Abandon(Ticket),
    /// Answer all started runs.
    Finish,
    /// Read a buffer that outlives a pass. Answer: [`Event::Contents`].
    Read(Role),
    /// Refuse plans that take more than so many bytes, before anything is allocated, as where memory does not suffice. No
    /// answer.
    Limit(u64),
    /// Slows later runs down by this factor, by waiting. For tests and demonstrations.
    Throttle(f64),
    /// Destroy the device, as a driver reset would. For tests and demonstrations.
    Lose,
}

/// Times of a run's parts, in milliseconds by the runtime's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Timing {
    /// Start of the run.
    pub start_ms: f64,
    /// Writing inputs.
    pub upload_ms: f64,
    /// Computing; waits for exchanges are not counted.
    pub compute_ms: f64,
    /// Reading gradients, reports and outputs back, after computing.
    pub readback_ms: f64,
    /// Waiting for the other adapters at exchanges.
    pub wait_ms: f64,
    /// Extra time of computing because tiles were tried; not a part of the adapter's normal time.
    pub tuning_ms: f64,
    /// Writing weights since the run before; not a part of this run.
    pub weights: Writes,
}

/// Requests to write that were served one after the other, in milliseconds by the runtime's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Writes {
    /// Start of the first.
    pub start_ms: f64,
    /// Time of all.
    pub ms: f64,
}

impl Writes {
    /// Adds a span of time.
    pub(crate) fn add(&mut self, begin_ms: f64, end_ms: f64) {
        if self.ms == 0.0 {
            self.start_ms = begin_ms;
        }
        self.ms += end_ms - begin_ms;
    }
}

impl Timing {
    /// Time in which the adapter was busy, as a measure of its speed.
    pub fn busy_ms(&self) -> f64 {
        self.upload_ms + self.compute_ms + self.readback_ms
    }

    /// End of the run.
    pub fn end_ms(&self) -> f64 {
        self.start_ms + self.busy_ms() + self.wait_ms + self.tuning_ms
    }
}

/// Reason of a loss: a run ended, as the device says, but not all of it was computed.
pub const UNFINISHED: &str = "the device did not run to the end";

/// Beginning of the reason of a loss: a kernel has other results than its definition.
pub const WRONG_RESULTS: &str = "it has wrong results:";

/// Cause why an adapter can't continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device is gone; the text is the reason, as far as it is known.
    Lost(String),
    /// The plan does not fit its memory for that capacity; it still serves smaller ones.
    OutOfMemory(String),
    /// A plan that this adapter can't run, for example a limit that it does not reach.
    Unsupported(String),
}

/// A report of an adapter.
#[derive(Clone, Debug)]
pub enum Event {
    /// Answer to [`Request::Load`].
    Loaded {
        /// Bytes of memory that the plan takes on the device.
        bytes: u64,
    },
    /// A value to be combined over all adapters.
    Exchange {
        /// The run.
        ticket: Ticket,
        /// Index of the command in its pass.
        command: usize,
        /// This adapter's value.
        data: Vec<f32>,
    },
    /// A run is done: everything it exchanged before the update was sent before this.
    Done {
        /// The run.
        ticket: Ticket,
        /// [`Role::Report`] buffers (training and evaluating), by output.
        reports: Vec<Vec<f32>>,
        /// [`Role::Output`] buffers (predicting), by output.
        outputs: Vec<Vec<f32>>,
        /// Times of the run's parts.
        timing: Timing,
    },
    /// The run at hand gets on, but takes long. It comes at most every two seconds, and answers nothing.
    Working,
    /// Answer to [`Request::Read`].
    Contents {
        /// The buffer.
        role: Role,
        /// Its values.
        data: Vec<f32>,
    },
    /// The adapter can't serve a request. [`Fault::Lost`] is its last event.
    Failed {
        /// The run, if it was one.
        ticket: Option<Ticket>,
        /// Cause of the failure.
        fault: Fault,
    },
}

/// The actor behind an adapter. An adapter that is opened again has a new one, so that late events of the lost one are
/// told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActorId {
    /// Position of the adapter in the rig.
    pub adapter_idx: usize,
    /// Number of times it was opened before.
    pub reopened: u32,
}

/// An event, and the actor that it comes from.
#[derive(Clone, Debug)]
pub struct Message {
    /// The actor.
    pub actor: ActorId,
    /// The event.
    pub event: Event,
}

/// Handle of an adapter: requests are sent here; its events come on the channel given when it was opened.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Description of the adapter.
    pub info: Info,
    /// Channel for requests.
    pub requests: async_channel::Sender<Request>,
}

/// Function that opens adapters: [`open`](super::open), or that of a simulated rig.
pub type Opener = Arc<dyn Fn(&Info, ActorId, Arc<dyn Runtime>, Sender<Message>) -> Result<Handle> + Send + Sync>;
