//! The link between the host and a simulated adapter: what is underway, both ways at once.

use std::collections::VecDeque;

use super::spec::AdapterSpec;
use super::virtual_time::Virtual;
use crate::runtime::Runtime;
use manyhands_engine::adapters::mailbox::{Done, Mailbox, Stop};
use manyhands_engine::adapters::{Event, Ticket};

/// The link of an adapter. Values of each way go one after the other.
pub(super) struct Link {
    runtime: Virtual,
    /// Time when all values sent to the adapter so far are there.
    up_free_ms: f64,
    /// Time when all values sent to the host so far have left: buckets are sent while later commands compute.
    down_free_ms: f64,
    /// Time when the last answer arrives. Until then the adapter is busy with the run that it answers.
    ended_ms: f64,
    /// Values underway to the host, in order, with the time of their arrival.
    underway: VecDeque<(f64, Outgoing)>,
}

/// A value on its way to the host.
enum Outgoing {
    Exchange(Ticket, usize, Vec<f32>),
    Done(Done),
}

impl Outgoing {
    fn ticket(&self) -> Ticket {
        match self {
            Self::Exchange(ticket, ..) => *ticket,
            Self::Done(done) => done.ticket,
        }
    }
}

impl Link {
    pub fn new(runtime: Virtual) -> Self {
        Self { runtime, up_free_ms: 0.0, down_free_ms: 0.0, ended_ms: 0.0, underway: VecDeque::new() }
    }

    /// Feeds a run from a time on, when what was sent before is there; gives the milliseconds until its values are, too.
    pub fn feed(&mut self, spec: &AdapterSpec, bytes: f64, from_ms: f64) -> f64 {
        self.up_free_ms = self.up_free_ms.max(from_ms) + transfer_ms(bytes, spec.upload_gb_s, spec.latency_ms);
        self.up_free_ms - self.runtime.now_ms()
    }

    /// Notes that all that was sent to the adapter is there now.
    pub fn note_written(&mut self) {
        self.up_free_ms = self.runtime.now_ms();
    }

    /// Sends bytes to the host; gives the time when they have left.
    pub fn move_down(&mut self, spec: &AdapterSpec, bytes: f64) -> f64 {
        let free_ms = self.down_free_ms.max(self.runtime.now_ms());
        self.down_free_ms = free_ms + transfer_ms(bytes, spec.download_gb_s, 0.0);
        self.down_free_ms
    }

    /// Sends an exchanged value, which arrives while later commands compute.
    pub fn send(&mut self, spec: &AdapterSpec, bytes: f64, (run, command, data): (Ticket, usize, Vec<f32>)) {
        let arrival_ms = self.move_down(spec, bytes) + spec.latency_ms;
        self.underway.push_back((arrival_ms, Outgoing::Exchange(run, command, data)));
    }

    /// Ends a run: gives the times when the answer to the run before it arrives, and when its own does.
    pub fn end(&mut self, spec: &AdapterSpec) -> (f64, f64) {
        let end_ms = self.down_free_ms.max(self.runtime.now_ms()) + spec.latency_ms;
        (std::mem::replace(&mut self.ended_ms, end_ms), end_ms)
    }

    /// Sends the answer to the run that has ended.
    pub fn send_done(&mut self, done: Done) {
        self.underway.push_back((self.ended_ms, Outgoing::Done(done)));
    }

    /// Milliseconds until the next arrival at the host.
    pub fn ms_to_arrival(&self) -> Option<f64> {
        self.underway.front().map(|(arrival_ms, _)| arrival_ms - self.runtime.now_ms())
    }

    /// Gives to the host what has arrived by now.
    pub async fn deliver(&mut self, mailbox: &mut Mailbox) -> Result<(), Stop> {
        while self.underway.front().is_some_and(|(arrival_ms, _)| *arrival_ms <= self.runtime.now_ms()) {
            match self.underway.pop_front() {
                Some((_, Outgoing::Exchange(ticket, command, data))) => {
                    mailbox.send(Event::Exchange { ticket, command, data }).await?;
                }
                Some((_, Outgoing::Done(done))) => mailbox.done(done).await?,
                None => {}
            }
        }
        Ok(())
    }

    /// Waits until nothing is underway.
    pub async fn finish(&mut self, mailbox: &mut Mailbox) -> Result<(), Stop> {
        while let Some(ms) = self.ms_to_arrival() {
            self.runtime.sleep(ms).await;
            self.deliver(mailbox).await?;
        }
        Ok(())
    }

    /// Drops what a run has sent.
    pub fn give_up(&mut self, run: Ticket) {
        self.underway.retain(|(_, outgoing)| outgoing.ticket() != run);
    }

    /// Lets so many milliseconds of a run pass. Meanwhile values arrive, and requests are heard.
    pub async fn pass(&mut self, mailbox: &mut Mailbox, run: Ticket, ms: f64) -> Result<(), Stop> {
        let until_ms = self.runtime.now_ms() + ms;
        loop {
            self.deliver(mailbox).await?;
            let now_ms = self.runtime.now_ms();
            if now_ms >= until_ms {
                return Ok(());
            }
            let next_ms = self.underway.front().map_or(until_ms, |(arrival_ms, _)| arrival_ms.min(until_ms));
            let sent = self.underway.iter().map(|(_, outgoing)| outgoing.ticket());
            let in_flight: Vec<Ticket> = sent.chain([run]).collect();
            let passed = async {
                self.runtime.sleep(next_ms - now_ms).await;
                Ok(None)
            };
            match futures_lite::future::or(passed, mailbox.heard(&in_flight)).await? {
                Some(given_up) if given_up == run => return Err(Stop::Abandoned),
                Some(given_up) => self.give_up(given_up),
                None => {}
            }
        }
    }
}

/// Milliseconds of a transfer; without a speed its bytes cost nothing.
pub(crate) fn transfer_ms(bytes: f64, gb_s: Option<f64>, latency_ms: f64) -> f64 {
    latency_ms + gb_s.map_or(0.0, |gb_s| bytes / (gb_s * 1e6))
}
