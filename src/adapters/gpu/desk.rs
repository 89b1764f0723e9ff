//! The actor's desk: requests come in, events go out, the clock stands on it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::throttle::Throttle;
use super::super::{Event, Fault, Message, Request, Ticket};
use crate::plan::Pass;
use crate::runtime::Runtime;

/// Why a request was not served to its end.
pub(super) enum Stop {
    /// The other end of a channel is gone: nobody wants anything any more.
    Closed,
    /// The run was given up.
    Abandoned,
    /// The device is to be destroyed.
    Lose,
    /// It can't be served.
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

pub(super) struct Desk {
    pub(super) adapter_idx: usize,
    pub(super) requests: async_channel::Receiver<Request>,
    pub(super) events: async_channel::Sender<Message>,
    pub(super) runtime: Arc<dyn Runtime>,
    /// Requests that came while a run waited for a combined value.
    pub(super) backlog: VecDeque<Request>,
    /// Was the loss of the device reported?
    pub(super) has_ended: Arc<AtomicBool>,
    /// How many times as long a run shall take.
    pub(super) throttle: Throttle,
}

impl Desk {
    pub(super) fn now_ms(&self) -> f64 {
        self.runtime.now_ms()
    }

    /// Sends an event. After [`Fault::Lost`] the actor must end.
    pub(super) async fn say(&self, event: Event) -> Result<(), Stop> {
        if matches!(event, Event::Failed { fault: Fault::Lost(_), .. }) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        let message = Message { adapter_idx: self.adapter_idx, event };
        self.events.send(message).await.map_err(|_| Stop::Closed)
    }

    pub(super) async fn next(&mut self) -> Result<Request, Stop> {
        match self.backlog.pop_front() {
            Some(request) => Ok(request),
            None => self.requests.recv().await.map_err(|_| Stop::Closed),
        }
    }

    /// Waits for the answer to an exchange. Requests of later runs wait their turn.
    pub(super) async fn combined(&mut self, run: Ticket, wanted: usize) -> Result<Arc<[f32]>, Stop> {
        loop {
            match self.requests.recv().await.map_err(|_| Stop::Closed)? {
                Request::Combined { ticket, command, data } if ticket == run && command == wanted => return Ok(data),
                // Late answers of earlier attempts.
                Request::Combined { .. } => {}
                Request::Abandon(ticket) if ticket == run => return Err(Stop::Abandoned),
                Request::Abandon(ticket) => self.forget(ticket),
                Request::Lose => return Err(Stop::Lose),
                other => self.backlog.push_back(other),
            }
        }
    }

    /// Ends when the run at hand is given up, or the device is to be destroyed. Other requests wait their turn.
    ///
    /// Only where waits for the device let others work, in a browser, can it end before they do.
    pub(super) async fn interrupted(&mut self, run: Ticket) -> Stop {
        loop {
            match self.requests.recv().await {
                Err(_) => return Stop::Closed,
                Ok(Request::Lose) => return Stop::Lose,
                Ok(Request::Abandon(ticket)) if ticket == run => return Stop::Abandoned,
                Ok(Request::Abandon(ticket)) => self.forget(ticket),
                Ok(other) => self.backlog.push_back(other),
            }
        }
    }

    /// Drops a run that has not begun.
    fn forget(&mut self, ticket: Ticket) {
        self.backlog.retain(|request| !matches!(request, Request::Run(run) if run.ticket == ticket));
    }

    /// Waits so that a run of `busy_ms` takes as long as was asked for; gives the time waited.
    pub(super) async fn wait_throttled(&mut self, pass: Pass, rows: u32, busy_ms: f64) -> f64 {
        let wait_ms = self.throttle.wait_ms(pass, rows, busy_ms);
        if wait_ms <= 0.0 {
            return 0.0;
        }
        let start_ms = self.now_ms();
        self.runtime.sleep(wait_ms).await;
        self.now_ms() - start_ms
    }
}
