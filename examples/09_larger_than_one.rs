//! A model that is larger than any one adapter may hold, trained over three, each with a part of its layers.
//!
//!     cargo run --release --example 09_larger_than_one
//!
//! Each adapter may take 60 % of what the whole model needs. As copies of all layers, training is refused. In stages each
//! adapter holds its own layers alone, and pieces of each batch go from one to the next. `-- --short` trains for a few steps.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]

use manyhands::adapters::{self, Info, Kind, MemoryLimits};
use manyhands::data::digits;
use manyhands::layers::{Activation, Dense, Dropout, Flatten};
use manyhands::{Compile, CpuFallback, Fit, Loss, Model, Optimizer, Placement, Result, Sequential, Trainer};

const ROWS: usize = 64;
const PIECES: u32 = 4;

fn main() -> Result<()> {
    let is_short = std::env::args().any(|argument| argument == "--short");
    let rig = three();
    let width = if is_short { 128 } else { 1024 };
    let fit = || Fit::new(if is_short { 1 } else { 4 }).batch_size(ROWS).micro_batches(PIECES);

    let whole = trainer(width, &rig)?;
    let mut limits = MemoryLimits::default();
    for info in &rig {
        let need = whole.memory_need(info.kind, ROWS, PIECES, None)?.map_or(0, |need| need.bytes);
        println!("{}: all layers take {}, it may take {}", info.name, kilobytes(need), kilobytes(need / 5 * 3));
        limits = limits.limit(info.name.clone(), need / 5 * 3);
    }
    match whole.memory(limits.clone()).fit(digits::train()?, &fit()) {
        Ok(_) => println!("copies of all layers fit after all"),
        Err(error) => println!("copies of all layers: {error}"),
    }

    let stages = [(["..hidden1"], [0]), (["hidden2"], [1]), (["hidden3.."], [2])];
    let mut staged = trainer(width, &rig)?.memory(limits).placement(Placement::stages(stages));
    let history = staged.fit(digits::train()?, &fit())?;
    for (position, adapter) in staged.open_adapters().iter().enumerate() {
        println!("stage {position} takes {} on {}", kilobytes(adapter.bytes), adapter.info.name);
    }
    let loss = history.of("loss").last().copied().unwrap_or_default();
    println!("trained in stages: loss {loss:.4}, test {}", staged.evaluate(digits::test()?, ROWS)?);
    Ok(())
}

fn model(width: usize) -> Result<Model> {
    let hidden = || Dense::new(width).activation(Activation::Relu);
    let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add_named("hidden1", hidden());
    let model = model.add_named("hidden2", hidden()).add_named("hidden3", hidden()).add(Dropout::new(0.2));
    model.add_named("scores", Dense::new(10)).build(0)
}

fn trainer(width: usize, rig: &[Info]) -> Result<Trainer> {
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    Ok(Trainer::new(model(width)?, compile)?.on(rig.to_vec()).cpu_fallback(CpuFallback::Refused))
}

fn kilobytes(bytes: u64) -> String {
    format!("{} kB", bytes / 1000)
}

/// Up to three adapters of this machine, filled up with workers on the CPU.
fn three() -> Vec<Info> {
    let gpus = adapters::list().into_iter().filter(|info| info.kind != Kind::Cpu);
    gpus.chain(vec![Info::cpu(); 3]).take(3).collect()
}
