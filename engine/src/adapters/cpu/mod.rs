//! The CPU adapter: runs plans through the kernels' twins, or their fast forms.

mod interpreter;
mod slabs;

use std::sync::Arc;

use async_channel::Sender;

use super::mailbox::{self, Device, Done, Mailbox, Serving, Stop};
use super::memory;
use super::{ActorId, Event, Fault, Handle, Info, Kind, Message, Run, Timing, Writes};
use crate::plan::{Command, Exchange, MOST_ELEMENTS, Plan, Role};
use crate::runtime::{Runtime, threads};

pub use interpreter::Interpreter;

/// Description of the CPU adapter, which every machine has.
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

/// Opens the CPU adapter. It may be opened several times.
pub fn open(info: &Info, actor: ActorId, runtime: Arc<dyn Runtime>, events: Sender<Message>) -> Handle {
    let name = format!("manyhands-cpu{}", actor.adapter_idx);
    let device = async |clock: Arc<dyn Runtime>| Ok(Cpu { clock, interpreter: None });
    Handle { info: info.clone(), requests: mailbox::spawn(&name, actor, &runtime, events, device) }
}

/// The device of the CPU adapter.
struct Cpu {
    clock: Arc<dyn Runtime>,
    interpreter: Option<Interpreter>,
}

impl Device for Cpu {
    fn loaded(&self) -> Option<(&Plan, u32)> {
        self.interpreter.as_ref().map(Interpreter::loaded)
    }

    fn needs(&self, plan: &Plan, capacity: u32) -> u64 {
        memory::bytes(plan, capacity, Kind::Cpu)
    }

    fn load(&mut self, plan: Arc<Plan>, capacity: u32) -> Serving<'_, u64> {
        Box::pin(async move {
            self.interpreter = None;
            if let Some(buffer) = plan.buffers.iter().find(|buffer| buffer.len.at(capacity) > MOST_ELEMENTS) {
                let text = format!("`{}` has more than {MOST_ELEMENTS} values", buffer.name);
                return Err(Fault::OutOfMemory(text).into());
            }
            // More rows are asked for when they come.
            interpreter::check_free(memory::bytes(&plan, 1, Kind::Cpu))
                .map_err(|text| Fault::OutOfMemory(format!("one row {text}")))?;
            Ok(self.interpreter.insert(Interpreter::growing(Arc::new(slabs::fewer(&plan)), capacity)).most_bytes())
        })
    }

    fn write<'a>(&'a mut self, role: Role, offset: u64, data: &'a [f32]) -> Serving<'a> {
        Box::pin(async move {
            if let Some(interpreter) = &mut self.interpreter {
                interpreter.write(role, offset, data);
            }
            Ok(())
        })
    }

    fn read<'a>(&'a mut self, _mailbox: &'a mut Mailbox, role: Role) -> Serving<'a, Vec<f32>> {
        Box::pin(async move {
            Ok(self.interpreter.as_ref().map_or_else(Vec::new, |interpreter| interpreter.read(role).to_vec()))
        })
    }

    fn run<'a>(&'a mut self, mailbox: &'a mut Mailbox, run: &'a Run, weights: Writes) -> Serving<'a> {
        Box::pin(async move {
            let (clock, Some(interpreter)) = (&self.clock, &mut self.interpreter) else { return Ok(()) };
            // No part of the run's time, by which shares are measured.
            if let Err(error) = interpreter.make_room(run.scalars.rows) {
                return Err(Fault::OutOfMemory(format!("{} rows at once {error}", run.scalars.rows)).into());
            }
            let mut timing = Timing { start_ms: clock.now_ms(), weights, ..Timing::default() };
            for (role, data) in &run.feeds {
                interpreter.write(*role, 0, data);
            }
            timing.upload_ms = clock.now_ms() - timing.start_ms;
            let plan = interpreter.plan();
            for (command_idx, command) in plan.commands(run.pass).iter().enumerate() {
                mailbox.check(run.ticket)?;
                let begin_ms = clock.now_ms();
                match command {
                    command if run.skips(command) => {}
                    Command::Dispatch(dispatch) => {
                        interpreter.dispatch(dispatch, &run.scalars);
                        timing.compute_ms += clock.now_ms() - begin_ms;
                    }
                    Command::Exchange(exchange) => {
                        let waited_ms = combine(interpreter, mailbox, run, (command_idx, exchange)).await?;
                        timing.wait_ms += waited_ms;
                        timing.readback_ms += clock.now_ms() - begin_ms - waited_ms;
                    }
                }
            }
            let begin_ms = clock.now_ms();
            let (ticket, pass, rows) = (run.ticket, run.pass, run.scalars.rows);
            let results = interpreter.results(pass, rows);
            timing.readback_ms += clock.now_ms() - begin_ms;
            mailbox.done(Done::new((ticket, pass, rows), results, timing)).await
        })
    }
}

/// Sends a value to be combined, and waits for the result where the next command needs it. Gives the milliseconds of the
/// wait.
async fn combine(
    interpreter: &mut Interpreter,
    mailbox: &mut Mailbox,
    run: &Run,
    (command, exchange): (usize, &Exchange),
) -> Result<f64, Stop> {
    let data = interpreter.view(exchange.sent(), run.scalars.rows).to_vec();
    mailbox.send(Event::Exchange { ticket: run.ticket, command, data }).await?;
    if !exchange.is_awaited() {
        return Ok(0.0);
    }
    let asked_ms = mailbox.now_ms();
    let data = mailbox.combined(run.ticket, command).await?;
    let waited_ms = mailbox.now_ms() - asked_ms;
    interpreter.view_mut(exchange.view, run.scalars.rows).copy_from_slice(&data);
    Ok(waited_ms)
}
