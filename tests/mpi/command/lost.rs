//! A run in which process 1 loses its only adapter, and no other takes over. The command itself can't be made to lose one.

#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "a program for a test")]

use manyhands::callbacks::Callback;
use manyhands::data::digits;
use manyhands::layers::{Dense, Flatten};
use manyhands::logs::StepLog;
use manyhands::processes::Group;
use manyhands::{Compile, CpuFallback, Fit, Loss, Optimizer, Result, Sequential, Trainer};
use manyhands_engine::adapters::Request;

use crate::breakable::{Requests, breakable};

/// Step after which the adapter is taken away.
const STEP: u64 = 4;

/// Takes the adapter away in one process.
struct Thief {
    requests: Requests,
    is_here: bool,
}

impl Callback for Thief {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        if self.is_here && log.step == STEP {
            self.requests.lock().unwrap().as_ref().unwrap().try_send(Request::Lose).unwrap();
        }
        Ok(())
    }
}

fn train(group: &Group) -> Result<()> {
    let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
    let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let (opener, requests) = breakable();
    let trainer = Trainer::new(model, compile)?.processes(group.clone()).adapters("cpu")?;
    let mut trainer = trainer.cpu_fallback(CpuFallback::Refused).opener(opener);
    let mut thief = Thief { requests, is_here: group.rank() == 1 };
    trainer.fit_with(digits::train()?, &Fit::new(100), &mut [&mut thief]).map(|_| ())
}

/// Gives the exit status.
pub fn run(group: &Group) -> i32 {
    match pollster::block_on(group.close(train(group))) {
        Ok(()) => 0,
        Err(error) => {
            if group.is_first() {
                eprintln!("error: {error}");
            }
            1
        }
    }
}
