//! A rig of simulated adapters.

use manyhands::model::Objective;
use manyhands::scheduler::{Builder, Scheduler};
use manyhands::simulator::World;
use manyhands::{CpuFallback, Model};

/// A rig of all adapters of a world, to be opened in it. Losing all of them ends the run.
pub fn rig<'a>(world: &World, model: &'a Model, objective: &'a Objective) -> Builder<'a> {
    let builder = Scheduler::builder(model, objective).adapters(world.adapters()).opener(world.opener());
    builder.runtime(world.runtime()).cpu_fallback(CpuFallback::Refused)
}
