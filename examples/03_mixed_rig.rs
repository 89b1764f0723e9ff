//! Three adapters of unequal speed share each batch so that none waits long for another.
//!
//!     cargo run --release --example 03_mixed_rig
//!
//! Takes the adapters that are there: GPUs first, then drivers that compute on the CPU (lavapipe, SwiftShader), then
//! the CPU adapter, up to three. Speeds are made unequal on purpose: the CPU adapter is slowed down until it is about
//! as fast as the others. Where there is nothing but the CPU, it is opened three times, at three speeds.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]

use manyhands::adapters::{self, Info, Kind};
use manyhands::callbacks::Callback;
use manyhands::data::digits;
use manyhands::layers::{Activation, Dense, Flatten};
use manyhands::logs::StepLog;
use manyhands::{Compile, Fit, Loss, Optimizer, Result, Sequential, SplitMode, Trainer};

const BATCH: usize = 400;

fn main() -> Result<()> {
    let rig = choose_rig();
    let factors = factors(&rig)?;
    for (position, (info, factor)) in rig.iter().zip(&factors).enumerate() {
        println!("adapter {position}: {} ({:?}), slowed down {factor:.1} times", info.name, info.kind);
    }

    println!("the same share for each");
    let mut even = Steps::of(&rig);
    throttled(trainer(&rig)?.split(SplitMode::Even), &factors).fit_with(digits::train()?, &fit(3), &mut [&mut even])?;

    println!("shares by speed, as it is learned");
    let mut learned = Steps::of(&rig);
    let mut trainer = throttled(trainer(&rig)?, &factors);
    trainer.fit_with(digits::train()?, &fit(7), &mut [&mut learned])?;

    let (even_ms, learned_ms) = (even.slowest_ms(), learned.slowest_ms());
    println!(
        "the slowest adapter is busy for {even_ms:.1} ms a step with even shares, {learned_ms:.1} ms with learned ones"
    );
    let test = trainer.evaluate(digits::test()?, BATCH)?;
    println!("test: {test}");
    assert!(test.get("accuracy") > Some(0.9));
    Ok(())
}

fn trainer(rig: &[Info]) -> Result<Trainer> {
    let model = Sequential::new([8, 8, 1])
        .add(Flatten::default())
        .add(Dense::new(512).activation(Activation::Relu))
        .add(Dense::new(512).activation(Activation::Relu))
        .add(Dense::new(10))
        .build(3)?;
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    Ok(Trainer::new(model, compile)?.on(rig.to_vec()))
}

/// Epochs of three steps.
fn fit(epochs: u64) -> Fit {
    Fit::new(epochs).batch_size(BATCH).drop_remainder()
}

fn throttled(trainer: Trainer, factors: &[f64]) -> Trainer {
    factors.iter().enumerate().fold(trainer, |trainer, (position, factor)| trainer.throttle(position, *factor))
}

/// Up to three adapters, the CPU adapter last.
fn choose_rig() -> Vec<Info> {
    let list = adapters::list();
    println!("this machine has {}", list.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", "));
    let (cpu, mut rig): (Vec<Info>, Vec<Info>) = list.into_iter().partition(|info| info.kind == Kind::Cpu);
    if rig.is_empty() {
        println!("no GPU and no software adapter: the CPU adapter is opened three times");
        return cpu.iter().cycle().take(3).cloned().collect();
    }
    rig.truncate(2);
    rig.extend(cpu);
    rig
}

/// By how much each adapter is slowed down: the CPU adapter to the speed of the fastest other; of three alike, each
/// twice as much as the one before.
fn factors(rig: &[Info]) -> Result<Vec<f64>> {
    if rig.iter().all(|info| info.kind == Kind::Cpu) {
        return Ok(vec![1.0, 2.0, 4.0]);
    }
    let mut steps = Steps { is_quiet: true, ..Steps::of(rig) };
    trainer(rig)?.split(SplitMode::Even).fit_with(digits::train()?, &fit(2), &mut [&mut steps])?;
    let ms = steps.mean_ms();
    let (cpu, others) = (ms[ms.len() - 1], &ms[..ms.len() - 1]);
    let mut factors = vec![1.0; rig.len()];
    factors[rig.len() - 1] = (others.iter().copied().fold(f64::INFINITY, f64::min) / cpu).max(1.0);
    Ok(factors)
}

/// Keeps each step, and prints every third.
struct Steps {
    logs: Vec<StepLog>,
    n_adapters: usize,
    is_quiet: bool,
}

impl Callback for Steps {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        if !self.is_quiet && log.step.is_multiple_of(3) {
            let shares = (0..self.n_adapters).map(|adapter| part_text(log, adapter));
            println!("step {:>3}   {}", log.step, shares.collect::<Vec<_>>().join("   "));
        }
        self.logs.push(log.clone());
        Ok(())
    }
}

fn part_text(log: &StepLog, adapter: usize) -> String {
    match log.adapters.iter().find(|part| part.adapter == adapter) {
        Some(part) => format!("{:>4} rows {:>6.1} ms", part.rows, part.ms),
        None => format!("{:>4} rows {:>9}", 0, ""),
    }
}

impl Steps {
    fn of(rig: &[Info]) -> Self {
        Self { logs: Vec::new(), n_adapters: rig.len(), is_quiet: false }
    }

    /// The steps of the second half: drivers have compiled, speeds are known.
    fn settled(&self) -> &[StepLog] {
        &self.logs[self.logs.len() / 2..]
    }

    /// Busy time of each adapter in a step, mean of the second half.
    fn mean_ms(&self) -> Vec<f64> {
        let of = |adapter| {
            let parts = self.settled().iter().flat_map(|log| &log.adapters).filter(move |part| part.adapter == adapter);
            mean(parts.map(|part| part.ms))
        };
        (0..self.n_adapters).map(of).collect()
    }

    /// Busy time of the slowest adapter of each step, mean of the second half.
    fn slowest_ms(&self) -> f64 {
        mean(self.settled().iter().map(|log| log.adapters.iter().map(|part| part.ms).fold(0.0, f64::max)))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0_f64), |(sum, count), value| (sum + value, count + 1.0));
    sum / count.max(1.0)
}
