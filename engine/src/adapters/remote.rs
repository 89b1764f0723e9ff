//! An adapter at the other end of a link: in another worker of a page, where it does not block this one.
//!
//! Requests and events are sent as [`Packet`]s: numbers for their structure and arrays for their values. The caller
//! provides the transport: in a page, messages between workers.

use std::sync::Arc;

use async_channel::{Receiver, Sender};

use super::{ActorId, Combining, Event, Fault, Handle, Info, Message, Request, Run, Ticket, Timing, Writes, cpu};
use crate::kernels::Families;
use crate::plan::wire::{enums, structs};
use crate::plan::{Pass, Plan, Reader, Role, Scalars, Wire};
use crate::runtime::{LocalTask, Runtime};

/// A request or an event on its way.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    /// Structure of the message.
    pub words: Vec<u32>,
    /// Its values, in order.
    pub arrays: Vec<Arc<[f32]>>,
}

/// One end of a link.
#[derive(Clone, Debug)]
pub struct LinkEnd {
    /// Packets for the other end.
    pub there: Sender<Packet>,
    /// Packets from the other end; closed when it is gone.
    pub here: Receiver<Packet>,
}

/// Messages to the adapter: [`Request`] without its values.
enum RequestHead {
    Load { plan: Plan, capacity: u32 },
    Write { role: Role, offset: u64 },
    Run { ticket: Ticket, pass: Pass, scalars: Scalars, feeds: Vec<Role>, combining: Combining },
    Combined { ticket: Ticket, command: usize },
    Abandon(Ticket),
    Read(Role),
    Throttle(f64),
    Finish,
    Limit(u64),
}

/// Messages from the adapter: [`Event`] without its values.
enum EventHead {
    Loaded { bytes: u64 },
    Exchange { ticket: Ticket, command: usize },
    Done { ticket: Ticket, n_reports: usize, timing: Timing },
    Contents { role: Role },
    Failed { ticket: Option<Ticket>, fault: Fault },
    Working,
}

/// The scheduler's end: an adapter like any other. When the link closes, the adapter is lost; losing it closes the link.
pub fn connect(info: &Info, actor: ActorId, runtime: &dyn Runtime, events: Sender<Message>, link: LinkEnd) -> Handle {
    let (requests, received) = async_channel::unbounded();
    let LinkEnd { there, here } = link;
    let forward = move || -> LocalTask {
        Box::pin(async move {
            while let Ok(request) = received.recv().await {
                if matches!(request, Request::Lose) {
                    // The link is cut: its owner ends the far side, even in mid-run.
                    return;
                }
                if there.send(pack(request)).await.is_err() {
                    return;
                }
            }
        })
    };
    let back = move || -> LocalTask {
        Box::pin(async move {
            loop {
                let event = match here.recv().await {
                    Ok(packet) => unpack_event(packet).unwrap_or_else(|error| lost(&error)),
                    Err(_) => lost("its worker has ended"),
                };
                let is_last = matches!(event, Event::Failed { fault: Fault::Lost(_), .. });
                if events.send(Message { actor, event }).await.is_err() || is_last {
                    return;
                }
            }
        })
    };
    runtime.spawn(&format!("requests {}", actor.adapter_idx), Box::new(forward));
    runtime.spawn(&format!("events {}", actor.adapter_idx), Box::new(back));
    Handle { info: info.clone(), requests }
}

/// The worker's end: a CPU adapter that serves a link until it closes, with plans of these kernels. It is lost with the first
/// request that can't be read.
pub async fn serve(runtime: Arc<dyn Runtime>, link: LinkEnd, kernels: Families) {
    let (events, messages) = async_channel::unbounded();
    let handle = cpu::open(&cpu::info(), ActorId::default(), runtime, events);
    let LinkEnd { there, here } = link;
    let requests = handle.requests;
    let take = async {
        while let Ok(packet) = here.recv().await {
            match unpack_request(packet, kernels) {
                Ok(request) => drop(requests.send(request).await),
                Err(error) => {
                    // The last message to the other end, which may be gone already.
                    drop(there.send(pack_event(lost(&error))).await);
                    return;
                }
            }
        }
        requests.close();
    };
    let give = async {
        while let Ok(message) = messages.recv().await {
            if there.send(pack_event(message.event)).await.is_err() {
                return;
            }
        }
    };
    // Whichever ends first: a closed link reports the adapter as lost.
    futures_lite::future::or(take, give).await;
}

fn lost(text: &str) -> Event {
    Event::Failed { ticket: None, fault: Fault::Lost(text.into()) }
}

structs! {
    Ticket { step, attempt, slot }
    Timing { start_ms, upload_ms, compute_ms, readback_ms, wait_ms, tuning_ms, weights }
    Writes { start_ms, ms }
}

enums! {
    Combining { 0 => Host, 1 => Device }
    Fault { 0 => Lost(text), 1 => OutOfMemory(text), 2 => Unsupported(text) }
    RequestHead {
        0 => Load { plan, capacity }, 1 => Write { role, offset }, 2 => Run { ticket, pass, scalars, feeds, combining },
        3 => Combined { ticket, command }, 4 => Abandon(ticket), 5 => Read(role), 6 => Throttle(factor),
        7 => Finish, 8 => Limit(bytes),
    }
    EventHead {
        0 => Loaded { bytes }, 1 => Exchange { ticket, command }, 2 => Done { ticket, n_reports, timing },
        3 => Contents { role }, 4 => Failed { ticket, fault }, 5 => Working,
    }
}

fn packet(head: &impl Wire, arrays: Vec<Arc<[f32]>>) -> Packet {
    let mut words = Vec::new();
    head.put(&mut words);
    Packet { words, arrays }
}

fn head<T: Wire>(packet: &Packet, kernels: Families) -> Result<T, String> {
    let mut reader = Reader::new(&packet.words, kernels);
    T::take(&mut reader).ok_or_else(|| match reader.unknown() {
        Some(kernel) => format!("its worker has no kernel `{kernel}`"),
        None => "a packet can't be read".into(),
    })
}

fn pack(request: Request) -> Packet {
    match request {
        Request::Load { plan, capacity } => {
            packet(&RequestHead::Load { plan: Plan::clone(&plan), capacity }, Vec::new())
        }
        Request::Write { role, offset, data } => packet(&RequestHead::Write { role, offset }, vec![data]),
        Request::Run(Run { ticket, pass, scalars, feeds, combining }) => {
            let (feeds, arrays) = feeds.into_iter().unzip();
            packet(&RequestHead::Run { ticket, pass, scalars, feeds, combining }, arrays)
        }
        Request::Combined { ticket, command, data } => packet(&RequestHead::Combined { ticket, command }, vec![data]),
        Request::Abandon(ticket) => packet(&RequestHead::Abandon(ticket), Vec::new()),
        Request::Read(role) => packet(&RequestHead::Read(role), Vec::new()),
        Request::Finish => packet(&RequestHead::Finish, Vec::new()),
        Request::Limit(bytes) => packet(&RequestHead::Limit(bytes), Vec::new()),
        Request::Throttle(factor) => packet(&RequestHead::Throttle(factor), Vec::new()),
        // It never travels: see `connect`.
        Request::Lose => Packet::default(),
    }
}

fn unpack_request(packet: Packet, kernels: Families) -> Result<Request, String> {
    let request: RequestHead = head(&packet, kernels)?;
    let mut arrays = packet.arrays.into_iter();
    let mut array = || arrays.next().ok_or("an array is missing");
    Ok(match request {
        RequestHead::Load { plan, capacity } => Request::Load { plan: Arc::new(plan), capacity },
        RequestHead::Write { role, offset } => Request::Write { role, offset, data: array()? },
        RequestHead::Run { ticket, pass, scalars, feeds, combining } => {
            let feeds = feeds.into_iter().map(|role| Ok((role, array()?))).collect::<Result<_, &str>>()?;
            Request::Run(Run { ticket, pass, scalars, feeds, combining })
        }
        RequestHead::Combined { ticket, command } => Request::Combined { ticket, command, data: array()? },
        RequestHead::Abandon(ticket) => Request::Abandon(ticket),
        RequestHead::Read(role) => Request::Read(role),
        RequestHead::Finish => Request::Finish,
        RequestHead::Limit(bytes) => Request::Limit(bytes),
        RequestHead::Throttle(factor) => Request::Throttle(factor),
    })
}

fn pack_event(event: Event) -> Packet {
    match event {
        Event::Loaded { bytes } => packet(&EventHead::Loaded { bytes }, Vec::new()),
        Event::Exchange { ticket, command, data } => {
            packet(&EventHead::Exchange { ticket, command }, vec![data.into()])
        }
        Event::Done { ticket, reports, outputs, timing } => {
            let n_reports = reports.len();
            let arrays = reports.into_iter().chain(outputs).map(Arc::from).collect();
            packet(&EventHead::Done { ticket, n_reports, timing }, arrays)
        }
        Event::Working => packet(&EventHead::Working, Vec::new()),
        Event::Contents { role, data } => packet(&EventHead::Contents { role }, vec![data.into()]),
        Event::Failed { ticket, fault } => packet(&EventHead::Failed { ticket, fault }, Vec::new()),
    }
}

fn unpack_event(packet: Packet) -> Result<Event, String> {
    // An event names no kernel.
    let event: EventHead = head(&packet, &[])?;
    let mut arrays: Vec<Vec<f32>> = packet.arrays.iter().map(|values| values.to_vec()).collect();
    let mut only = || arrays.pop().ok_or("an array is missing");
    Ok(match event {
        EventHead::Loaded { bytes } => Event::Loaded { bytes },
        EventHead::Exchange { ticket, command } => Event::Exchange { ticket, command, data: only()? },
        EventHead::Done { ticket, n_reports, timing } => {
            let outputs = arrays.split_off(n_reports.min(arrays.len()));
            Event::Done { ticket, reports: arrays, outputs, timing }
        }
        EventHead::Working => Event::Working,
        EventHead::Contents { role } => Event::Contents { role, data: only()? },
        EventHead::Failed { ticket, fault } => Event::Failed { ticket, fault },
    })
}
