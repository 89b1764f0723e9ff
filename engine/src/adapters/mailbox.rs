//! An actor's mailbox: keeps the contract of adapters (`protocol.rs`) for every kind of device, GPU, CPU or simulated.

use std::collections::VecDeque;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_channel::{Receiver, Sender};
use futures_lite::FutureExt;

use super::heartbeat::Heartbeat;
use super::throttle::Throttle;
use super::{ActorId, Combining, Event, Fault, Message, Request, Run, Ticket, Timing, Writes};
use crate::plan::{Pass, Plan, Role};
use crate::runtime::{LocalTask, Runtime, panic_text};
use crate::shown::bytes;

/// Reason why a request was not served to its end.
pub enum Stop {
    /// The other end of a channel is gone: nobody waits for an answer.
    Closed,
    /// The run was given up.
    Abandoned,
    /// The device is to be destroyed.
    Lose,
    /// The request can't be served.
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Work of a device on a request.
pub type Serving<'a, T = ()> = Pin<Box<dyn Future<Output = Result<T, Stop>> + 'a>>;

/// A device that is being opened.
type OpeningDevice = Pin<Box<dyn Future<Output = Result<Box<dyn Device>, Fault>>>>;

/// Operations of an adapter for the requests of the contract.
///
/// Its futures are boxed, so that an actor's code is there once and not for each kind of device.
pub trait Device {
    /// The next request. A device that may fail while it is idle waits for that, too.
    fn next<'a>(&'a mut self, mailbox: &'a mut Mailbox) -> Serving<'a, Request> {
        Box::pin(mailbox.next())
    }

    /// The plan that is loaded, and the rows that a run may have.
    fn loaded(&self) -> Option<(&Plan, u32)>;

    /// Bytes that a plan will take, loaded for runs of up to `capacity` rows.
    fn needs(&self, plan: &Plan, capacity: u32) -> u64;

    /// Loads a plan in place of the last one, for runs of up to `capacity` rows; gives the bytes that it takes.
    fn load(&mut self, plan: Arc<Plan>, capacity: u32) -> Serving<'_, u64>;

    /// Writes a part of a buffer that the plan has.
    fn write<'a>(&'a mut self, role: Role, offset: u64, data: &'a [f32]) -> Serving<'a>;

    /// Reads a buffer that the plan has.
    fn read<'a>(&'a mut self, mailbox: &'a mut Mailbox, role: Role) -> Serving<'a, Vec<f32>>;

    /// Runs a pass that the plan has and answers it with [`Mailbox::done`]: at once, or in a later call. A run of
    /// [`Combining::Host`] is answered without another request, in [`next`](Self::next). `weights` is the time that
    /// writing has taken since the last run.
    fn run<'a>(&'a mut self, mailbox: &'a mut Mailbox, run: &'a Run, weights: Writes) -> Serving<'a>;

    /// Answers all runs in flight.
    fn finish<'a>(&'a mut self, _mailbox: &'a mut Mailbox) -> Serving<'a> {
        Box::pin(ready(Ok(())))
    }

    /// The oldest run in flight, if there is one.
    fn in_progress(&self) -> Option<Ticket> {
        None
    }

    /// Gives up a run in flight: it is not answered.
    fn give_up(&mut self, _ticket: Ticket) {}

    /// Destroys the device, as a driver reset would; gives the fault to report.
    fn destroy(&mut self) -> Fault {
        Fault::Lost("it was asked to fail".into())
    }

    /// Frees what the device holds, when the actor ends.
    fn close(&mut self) {}
}

/// A run that is done, with what it gave.
pub struct Done {
    /// Number of the run.
    pub ticket: Ticket,
    /// Its pass: training, evaluation, prediction.
    pub pass: Pass,
    /// Rows that it computed.
    pub rows: u32,
    /// Values of each report of the plan.
    pub reports: Vec<Vec<f32>>,
    /// Values of each output of the plan.
    pub outputs: Vec<Vec<f32>>,
    /// Times of its parts.
    pub timing: Timing,
}

impl Done {
    /// A run of a pass on some rows, and its results: outputs if it ends at them, else reports.
    pub fn new((ticket, pass, rows): (Ticket, Pass, u32), results: Vec<Vec<f32>>, timing: Timing) -> Self {
        let gives_outputs = matches!(pass, Pass::Predict | Pass::Forward);
        let (reports, outputs) = if gives_outputs { (Vec::new(), results) } else { (results, Vec::new()) };
        Self { ticket, pass, rows, reports, outputs, timing }
    }
}

/// The near end of an actor: its requests, its events, its clock.
pub struct Mailbox {
    actor: ActorId,
    requests: Receiver<Request>,
    events: Sender<Message>,
    runtime: Arc<dyn Runtime>,
    /// Requests that were received, but not served yet, and the time when each run came.
    backlog: VecDeque<(Request, f64)>,
    heartbeat: Heartbeat,
    /// Time when the run that is served came, as far as this end saw it.
    came_ms: f64,
    /// Whether the loss of the device was reported.
    has_ended: Arc<AtomicBool>,
    throttle: Throttle,
    /// Most bytes that a plan may take.
    limit: Option<u64>,
}

/// Starts an actor in a thread of its own; `open` makes its device there. Gives the end to send requests to.
pub fn spawn<D, F>(
    name: &str,
    actor: ActorId,
    runtime: &Arc<dyn Runtime>,
    events: Sender<Message>,
    open: impl FnOnce(Arc<dyn Runtime>) -> F + Send + 'static,
) -> Sender<Request>
where
    D: Device + 'static,
    F: Future<Output = Result<D, Fault>> + 'static,
{
    let open = move |clock| -> OpeningDevice {
        let opened = open(clock);
        Box::pin(async move { Ok(Box::new(opened.await?) as Box<dyn Device>) })
    };
    spawn_boxed(name, actor, runtime, events, Box::new(open))
}

fn spawn_boxed(
    name: &str,
    actor: ActorId,
    runtime: &Arc<dyn Runtime>,
    events: Sender<Message>,
    open: Box<dyn FnOnce(Arc<dyn Runtime>) -> OpeningDevice + Send>,
) -> Sender<Request> {
    let (sender, requests) = async_channel::unbounded();
    let (last_event, has_ended) = (events.clone(), Arc::new(AtomicBool::new(false)));
    let (backlog, throttle) = (VecDeque::new(), Throttle::default());
    let (clock, reported) = (runtime.clone(), has_ended.clone());
    let heartbeat = Heartbeat::new(actor, events.clone(), clock.clone());
    let mailbox = Mailbox {
        actor,
        requests,
        events,
        runtime: clock.clone(),
        backlog,
        heartbeat,
        came_ms: 0.0,
        has_ended,
        throttle,
        limit: None,
    };
    let unstarted = Unstarted { actor, events: Some(last_event.clone()) };
    let task = move || -> LocalTask {
        unstarted.start();
        Box::pin(async move {
            // wgpu panics in a poll that meets a lost device, and may once more when that device is dropped.
            let served = AssertUnwindSafe(serve(open(clock), mailbox)).catch_unwind().await;
            if let Err(panic) = served
                && !reported.load(Ordering::Relaxed)
            {
                let fault = Fault::Lost(format!("its thread panicked: {}", panic_text(panic.as_ref())));
                let event = Event::Failed { ticket: None, fault };
                drop(last_event.send(Message { actor, event }).await);
            }
        })
    };
    runtime.spawn(name, Box::new(task));
    sender
}

/// Reports an actor as lost that the runtime could not start.
struct Unstarted {
    actor: ActorId,
    events: Option<Sender<Message>>,
}

impl Unstarted {
    fn start(mut self) {
        self.events = None;
    }
}

impl Drop for Unstarted {
    fn drop(&mut self) {
        if let Some(events) = self.events.take() {
            let fault = Fault::Lost("the system gives it no thread".into());
            // Nobody to tell is no matter.
            drop(events.try_send(Message { actor: self.actor, event: Event::Failed { ticket: None, fault } }));
        }
    }
}

/// The actor: opens its device, then serves requests until nobody sends any, or the device is lost.
async fn serve(open: OpeningDevice, mut mailbox: Mailbox) {
    let mut device = match open.await {
        Ok(device) => device,
        Err(fault) => {
            log::warn!("adapter {} has no device: {fault:?}", mailbox.actor.adapter_idx);
            drop(mailbox.send(Event::Failed { ticket: None, fault }).await);
            return;
        }
    };
    let (mut weights, mut is_halted) = (Writes::default(), false);
    loop {
        let (ticket, served) = match device.next(&mut mailbox).await {
            Ok(request) => {
                let ticket = if let Request::Run(run) = &request { Some(run.ticket) } else { None };
                (ticket, serve_one(&mut *device, &mut mailbox, request, &mut weights, &mut is_halted).await)
            }
            Err(stop) => (None, Err(stop)),
        };
        let fault = match served {
            Ok(()) | Err(Stop::Abandoned) => continue,
            Err(Stop::Closed) => break,
            Err(Stop::Lose) => device.destroy(),
            Err(Stop::Fault(fault)) => fault,
        };
        let is_lost = matches!(fault, Fault::Lost(_));
        let ticket = device.in_progress().or(ticket);
        if mailbox.send(Event::Failed { ticket, fault }).await.is_err() || is_lost {
            break;
        }
    }
    device.close();
}

async fn serve_one(
    device: &mut dyn Device,
    mailbox: &mut Mailbox,
    request: Request,
    weights: &mut Writes,
    is_halted: &mut bool,
) -> Result<(), Stop> {
    match &request {
        Request::Run(run) => {
            let is_alone = run.combining == Combining::Device;
            if is_alone && *is_halted {
                return Ok(());
            }
            let ran = run_checked(device, mailbox, run, weights).await;
            if is_alone {
                *is_halted = matches!(ran, Err(Stop::Fault(_)));
            }
            return ran;
        }
        Request::Abandon(ticket) => {
            *is_halted = false;
            device.give_up(*ticket);
            return Ok(());
        }
        Request::Lose => return Err(Stop::Lose),
        _ => {}
    }
    // Runs in flight are answered before anything else is served.
    device.finish(mailbox).await?;
    match request {
        Request::Load { plan, capacity } => {
            if let Some(limit) = mailbox.limit {
                check_limit(device.needs(&plan, capacity), limit, capacity)?;
            }
            mailbox.throttle.forget();
            let bytes = device.load(plan, capacity).await?;
            mailbox.send(Event::Loaded { bytes }).await
        }
        Request::Write { role, offset, data } => {
            // What depends on rows is fed by each run.
            check_values(device.loaded(), role, 0, offset.saturating_add(data.len() as u64))?;
            let begin_ms = mailbox.now_ms();
            device.write(role, offset, &data).await?;
            weights.add(begin_ms, mailbox.now_ms());
            Ok(())
        }
        Request::Read(role) => {
            check_values(device.loaded(), role, 0, 0)?;
            let data = device.read(mailbox, role).await?;
            mailbox.send(Event::Contents { role, data }).await
        }
        Request::Limit(limit) => {
            mailbox.limit = Some(limit);
            Ok(())
        }
        Request::Throttle(factor) => {
            mailbox.throttle.set(factor);
            Ok(())
        }
        // An answer to a run that has ended; or what is done by now.
        Request::Combined { .. } | Request::Finish | Request::Run(_) | Request::Abandon(_) | Request::Lose => Ok(()),
    }
}

async fn run_checked(
    device: &mut dyn Device,
    mailbox: &mut Mailbox,
    run: &Run,
    weights: &mut Writes,
) -> Result<(), Stop> {
    check_run(device.loaded(), run)?;
    device.run(mailbox, run, std::mem::take(weights)).await
}

/// Checks that a plan for so many rows takes no more than the user allows.
fn check_limit(needed: u64, limit: u64, capacity: u32) -> Result<(), Fault> {
    if needed <= limit {
        return Ok(());
    }
    let rows = if capacity == 1 { "1 row at once needs" } else { &format!("{capacity} rows at once need") };
    let (more, needed, limit) = (bytes(needed - limit), bytes(needed), bytes(limit));
    Err(Fault::OutOfMemory(format!("{rows} {needed}, {more} more than its limit of {limit}")))
}

/// Checks that the plan has all that a run names.
fn check_run(loaded: Option<(&Plan, u32)>, run: &Run) -> Result<(), Fault> {
    for (role, data) in &run.feeds {
        check_values(loaded, *role, run.scalars.rows, data.len() as u64)?;
    }
    let (plan, capacity) = loaded.ok_or_else(no_plan)?;
    if !plan.passes.contains_key(&run.pass) {
        return Err(Fault::Unsupported(format!("the plan has no pass {:?}", run.pass)));
    }
    if run.scalars.rows > capacity {
        let text = format!("the plan was loaded for {capacity} rows, but the run has {}", run.scalars.rows);
        return Err(Fault::Unsupported(text));
    }
    Ok(())
}

/// Checks that the plan has a buffer of this role, with room for values up to `end` in a run of some rows.
fn check_values(loaded: Option<(&Plan, u32)>, role: Role, rows: u32, end: u64) -> Result<(), Fault> {
    let (plan, _) = loaded.ok_or_else(no_plan)?;
    let buffer = plan.find(role).ok_or_else(|| Fault::Unsupported(format!("the plan has no buffer for {role:?}")))?;
    let room = plan.get(buffer).len.at(rows);
    if end > room {
        return Err(Fault::Unsupported(format!("{role:?} has room for {room} values, but {end} were written")));
    }
    Ok(())
}

fn no_plan() -> Fault {
    Fault::Unsupported("no plan is loaded".into())
}

impl Mailbox {
    pub(crate) fn now_ms(&self) -> f64 {
        self.runtime.now_ms()
    }

    /// Sends an event. After [`Fault::Lost`] the actor must end.
    ///
    /// # Errors
    /// [`Stop`] if the actor is to end, or the current run to stop.
    pub async fn send(&self, event: Event) -> Result<(), Stop> {
        if matches!(event, Event::Failed { fault: Fault::Lost(_), .. }) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        self.events.send(Message { actor: self.actor, event }).await.map_err(|_| Stop::Closed)
    }

    /// The next request, in the order in which they came. Runs that were given up meanwhile are left out.
    ///
    /// # Errors
    /// [`Stop`] if the actor is to end, or the current run to stop.
    pub async fn next(&mut self) -> Result<Request, Stop> {
        match self.waiting() {
            Some(request) => Ok(request),
            None => {
                let request = self.requests.recv().await.map_err(|_| Stop::Closed)?;
                self.came_ms = self.coming_ms(&request);
                Ok(request)
            }
        }
    }

    /// Time when the run that is served came: before its turn, if it was heard while another was served.
    pub fn came_ms(&self) -> f64 {
        self.came_ms
    }

    /// The time now for a run, which is all that is asked for later.
    fn coming_ms(&self, request: &Request) -> f64 {
        if matches!(request, Request::Run(_)) { self.now_ms() } else { 0.0 }
    }

    /// The next request, if one has come.
    pub(crate) fn waiting(&mut self) -> Option<Request> {
        while let Ok(request) = self.requests.try_recv() {
            self.queue(request);
        }
        let (request, came_ms) = self.backlog.pop_front()?;
        self.came_ms = came_ms;
        Some(request)
    }

    /// Waits for a request while runs are in flight. Gives the run that it gives up, if it is one of them; other requests
    /// wait their turn.
    ///
    /// # Errors
    /// [`Stop`] if the actor is to end, or the current run to stop.
    pub async fn heard(&mut self, in_flight: &[Ticket]) -> Result<Option<Ticket>, Stop> {
        match self.requests.recv().await.map_err(|_| Stop::Closed)? {
            Request::Lose => Err(Stop::Lose),
            Request::Abandon(ticket) if in_flight.contains(&ticket) => Ok(Some(ticket)),
            other => {
                self.queue(other);
                Ok(None)
            }
        }
    }

    fn queue(&mut self, request: Request) {
        let came_ms = self.coming_ms(&request);
        match request {
            // Nothing that stands before it is of use any more.
            Request::Lose => self.backlog.push_front((Request::Lose, came_ms)),
            Request::Abandon(ticket) => {
                self.backlog.retain(|(request, _)| !matches!(request, Request::Run(run) if run.ticket == ticket));
                self.backlog.push_back((Request::Abandon(ticket), came_ms));
            }
            other => self.backlog.push_back((other, came_ms)),
        }
    }

    /// Handles a request that comes while a run is in progress.
    fn take_in(&mut self, run: Ticket, request: Request) -> Result<(), Stop> {
        match request {
            Request::Lose => Err(Stop::Lose),
            Request::Abandon(ticket) if ticket == run => Err(Stop::Abandoned),
            other => {
                self.queue(other);
                Ok(())
            }
        }
    }

    /// Waits for the answer to an exchange. Requests of later runs wait their turn.
    ///
    /// # Errors
    /// [`Stop`] if the actor is to end, or the current run to stop.
    pub async fn combined(&mut self, run: Ticket, wanted: usize) -> Result<Arc<[f32]>, Stop> {
        loop {
            match self.requests.recv().await.map_err(|_| Stop::Closed)? {
                Request::Combined { ticket, command, data } if ticket == run && command == wanted => return Ok(data),
                // Late answers of earlier attempts.
                Request::Combined { .. } => {}
                other => self.take_in(run, other)?,
            }
        }
    }

    /// Ends when the run at hand is given up, or the device is to be destroyed. Other requests wait their turn.
    #[cfg(feature = "gpu")]
    pub(crate) async fn interrupted(&mut self, run: Ticket) -> Stop {
        loop {
            let taken_in = match self.requests.recv().await {
                Err(_) => Err(Stop::Closed),
                Ok(request) => self.take_in(run, request),
            };
            if let Err(stop) = taken_in {
                return stop;
            }
        }
    }

    /// Says that a part of the current run is done, for as long as no answer tells it.
    pub fn beat(&self) {
        self.heartbeat.beat();
    }

    /// Checks without waiting whether the current run was abandoned, or the device is to be destroyed. The run gets on.
    ///
    /// # Errors
    /// [`Stop`] if the actor is to end, or the current run to stop.
    pub fn check(&mut self, run: Ticket) -> Result<(), Stop> {
        self.beat();
        while let Ok(request) = self.requests.try_recv() {
            self.take_in(run, request)?;
        }
        Ok(())
    }

    /// Whether the adapter is slowed down.
    pub fn is_throttled(&self) -> bool {
        self.throttle.is_on()
    }

    /// Answers a run, after the wait that makes the adapter as slow as was asked for.
    ///
    /// # Errors
    /// [`Stop`] if the actor is to end, or the current run to stop.
    pub async fn done(&mut self, done: Done) -> Result<(), Stop> {
        let Done { ticket, pass, rows, reports, outputs, mut timing } = done;
        let wait_ms = self.throttle.wait_ms(pass, rows, timing.busy_ms());
        if wait_ms > 0.0 {
            let start_ms = self.now_ms();
            self.heartbeat.sleep(wait_ms).await;
            timing.compute_ms += self.now_ms() - start_ms;
        }
        self.send(Event::Done { ticket, reports, outputs, timing }).await
    }
}
