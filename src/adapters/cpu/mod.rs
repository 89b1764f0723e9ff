//! The CPU adapter: runs plans through the kernels' twins, or their fast forms.

mod machine;

use std::collections::VecDeque;
use std::sync::Arc;

use async_channel::{Receiver, Sender};

use super::throttle::Throttle;
use super::{Combining, Event, Fault, Handle, Info, Kind, Message, Request, Run, Ticket, Timing, Writes};
use crate::plan::{Command, Exchange, MOST_ELEMENTS, When};
use crate::runtime::{Runtime, threads};

pub use machine::Machine;

/// What the CPU adapter says of itself. It is always there.
pub fn info() -> Info {
    Info {
        index: 0,
        name: name(threads::count()),
        kind: Kind::Cpu,
        backend: "host".into(),
        driver: String::new(),
        vendor: 0,
        device: 0,
        bus_id: String::new(),
    }
}

fn name(n_threads: usize) -> String {
    if n_threads == 1 { "CPU (1 thread)".into() } else { format!("CPU ({n_threads} threads)") }
}

/// Opens the CPU adapter, as the `adapter_idx`th of those in use. It may be opened several times.
pub fn open(info: &Info, adapter_idx: usize, runtime: Arc<dyn Runtime>, events: Sender<Message>) -> Handle {
    let (requests, inbox) = async_channel::unbounded();
    let clock = runtime.clone();
    let actor = move || -> crate::runtime::Task {
        Box::pin(async move {
            let mut actor = Actor {
                adapter_idx,
                runtime: clock,
                events,
                inbox,
                held: VecDeque::new(),
                machine: None,
                throttle: Throttle::default(),
                weights: Writes::default(),
            };
            actor.serve().await;
        })
    };
    runtime.spawn(&format!("manyhands-cpu{adapter_idx}"), Box::new(actor));
    Handle { info: info.clone(), requests }
}

struct Actor {
    adapter_idx: usize,
    runtime: Arc<dyn Runtime>,
    events: Sender<Message>,
    inbox: Receiver<Request>,
    /// Requests that came while a run waited for a combined value.
    held: VecDeque<Request>,
    machine: Option<Machine>,
    throttle: Throttle,
    /// Weights that were written since the last run.
    weights: Writes,
}

/// The other end is gone: the actor ends.
struct Gone;

impl Actor {
    async fn serve(&mut self) {
        while let Ok(request) = self.next().await {
            if self.answer(request).await.is_err() {
                return;
            }
        }
    }

    async fn next(&mut self) -> Result<Request, Gone> {
        match self.held.pop_front() {
            Some(request) => Ok(request),
            None => self.inbox.recv().await.map_err(|_| Gone),
        }
    }

    async fn say(&self, event: Event) -> Result<(), Gone> {
        self.events.send(Message { adapter_idx: self.adapter_idx, event }).await.map_err(|_| Gone)
    }

    async fn answer(&mut self, request: Request) -> Result<(), Gone> {
        match request {
            Request::Load { plan, capacity } => {
                if let Some(buffer) = plan.buffers.iter().find(|buffer| buffer.len.at(capacity) > MOST_ELEMENTS) {
                    let text = format!("`{}` has more than {MOST_ELEMENTS} values", buffer.name);
                    return self.say(Event::Failed { ticket: None, fault: Fault::OutOfMemory(text) }).await;
                }
                let machine = Machine::new(plan, capacity);
                let bytes = machine.bytes();
                self.machine = Some(machine);
                self.say(Event::Loaded { bytes }).await
            }
            Request::Write { role, offset, data } => {
                let begin_ms = self.runtime.now_ms();
                if let Some(machine) = &mut self.machine {
                    machine.write(role, offset, &data);
                }
                self.weights.add(begin_ms, self.runtime.now_ms());
                Ok(())
            }
            Request::Read(role) => {
                let data = self.machine.as_ref().map_or_else(Vec::new, |machine| machine.read(role).to_vec());
                self.say(Event::Contents { role, data }).await
            }
            Request::Throttle(factor) => {
                self.throttle.set(factor);
                Ok(())
            }
            Request::Lose => {
                let fault = Fault::Lost("it was told to fail".into());
                self.say(Event::Failed { ticket: None, fault }).await?;
                Err(Gone)
            }
            // Late: the run that waited for it is over. Runs are answered as they end.
            Request::Combined { .. } | Request::Abandon(_) | Request::Finish => Ok(()),
            Request::Run(run) => self.run(&run).await,
        }
    }

    async fn run(&mut self, run: &Run) -> Result<(), Gone> {
        let Some(mut machine) = self.machine.take() else {
            let fault = Fault::Unsupported("it has no plan loaded".into());
            return self.say(Event::Failed { ticket: Some(run.ticket), fault }).await;
        };
        let done = self.run_commands(&mut machine, run).await;
        self.machine = Some(machine);
        match done? {
            Some(done) => self.say(done).await,
            None => Ok(()),
        }
    }

    /// The commands of a pass; `None` if the run was abandoned.
    async fn run_commands(&mut self, machine: &mut Machine, run: &Run) -> Result<Option<Event>, Gone> {
        let weights = std::mem::take(&mut self.weights);
        let mut timing = Timing { start_ms: self.runtime.now_ms(), weights, ..Timing::default() };
        for (role, data) in &run.feeds {
            machine.write(*role, 0, data);
        }
        timing.upload_ms = self.runtime.now_ms() - timing.start_ms;
        let plan = machine.plan();
        for (command_idx, command) in plan.commands(run.pass).iter().enumerate() {
            let begin_ms = self.runtime.now_ms();
            match command {
                command if run.combining == Combining::Device && command.is_for_others() => {}
                Command::Dispatch(dispatch) => {
                    machine.dispatch(dispatch, &run.scalars);
                    timing.compute_ms += self.runtime.now_ms() - begin_ms;
                }
                Command::Exchange(exchange) => {
                    let Some(waited_ms) = self.exchange(machine, run, command_idx, exchange).await? else {
                        return Ok(None);
                    };
                    timing.wait_ms += waited_ms;
                    timing.readback_ms += self.runtime.now_ms() - begin_ms - waited_ms;
                }
            }
        }
        self.wait_throttled(run, &mut timing).await;
        let begin_ms = self.runtime.now_ms();
        let (reports, outputs) = machine.results(run.pass, run.scalars.rows);
        timing.readback_ms += self.runtime.now_ms() - begin_ms;
        Ok(Some(Event::Done { ticket: run.ticket, reports, outputs, timing }))
    }

    async fn wait_throttled(&mut self, run: &Run, timing: &mut Timing) {
        let extra_ms = self.throttle.wait_ms(run.pass, run.scalars.rows, timing.busy_ms());
        if extra_ms > 0.0 {
            self.runtime.sleep(extra_ms).await;
            timing.compute_ms += extra_ms;
        }
    }

    /// Sends a value to be combined, and waits for the result where the next command needs it.
    /// Gives the milliseconds of the wait, or `None` if the run was abandoned.
    async fn exchange(
        &mut self,
        machine: &mut Machine,
        run: &Run,
        command: usize,
        exchange: &Exchange,
    ) -> Result<Option<f64>, Gone> {
        let data = machine.view(exchange.sent(), run.scalars.rows).to_vec();
        self.say(Event::Exchange { ticket: run.ticket, command, data }).await?;
        if exchange.when == When::Update {
            return Ok(Some(0.0));
        }
        let asked_ms = self.runtime.now_ms();
        let Some(data) = self.combined(run.ticket, command).await? else { return Ok(None) };
        let waited_ms = self.runtime.now_ms() - asked_ms;
        machine.view_mut(exchange.view, run.scalars.rows).copy_from_slice(&data);
        Ok(Some(waited_ms))
    }

    async fn combined(&mut self, wanted: Ticket, wanted_command: usize) -> Result<Option<Arc<[f32]>>, Gone> {
        loop {
            match self.inbox.recv().await.map_err(|_| Gone)? {
                Request::Combined { ticket, command, data } if ticket == wanted && command == wanted_command => {
                    return Ok(Some(data));
                }
                Request::Abandon(ticket) if ticket == wanted => return Ok(None),
                Request::Combined { .. } | Request::Abandon(_) => {}
                other => self.held.push_back(other),
            }
        }
    }
}
