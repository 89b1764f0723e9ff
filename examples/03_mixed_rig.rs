//! Three adapters of unequal speed share each batch so that none waits long for another.
//!
//!     cargo run --release --example 03_mixed_rig
//!
//! Takes the adapters that are there: GPUs first, then drivers that compute on the CPU (lavapipe, SwiftShader), then
//! the CPU adapter, up to three. Speeds are made unequal on purpose: the CPU adapter is slowed down until it is about
//! as fast as the others. Where there is nothing but the CPU, it is opened three times, at three speeds.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]

use manyhands::adapters::{self, Info, Kind};
use manyhands::data::digits;
use manyhands::layers::{Activation, Dense, Flatten};
use manyhands::scheduler::split::SplitMode;
use manyhands::trainer::{Callback, StepLog};
use manyhands::{Compile, Fit, Loss, Model, Optimizer, Result, Sequential, Trainer};

const BATCH: usize = 240;

fn main() -> Result<()> {
    let (rig, factors) = choose_rig()?;
    for (position, (info, factor)) in rig.iter().zip(&factors).enumerate() {
        println!("adapter {position}: {} ({:?}), slowed down {factor:.1} times", info.name, info.kind);
    }
    let mut trainer = trainer(rig)?;
    for (position, factor) in factors.iter().enumerate() {
        trainer = trainer.throttle(position, *factor);
    }
    let mut steps = Steps::default();
    trainer.fit_with(digits::train()?, &Fit::new(8).batch_size(BATCH).drop_remainder(), &mut [&mut steps])?;

    let (first, last) = (steps.imbalance(0..1), steps.imbalance(steps.logs.len() - 10..steps.logs.len()));
    println!("slowest over fastest: {first:.2} in the first step, {last:.2} over the last ten");
    assert!(last < 2.0, "the split follows the speeds");
    let test = trainer.evaluate(digits::test()?, BATCH)?;
    println!("test: {test}");
    assert!(test.get("accuracy") > Some(0.9));
    Ok(())
}

fn model() -> Result<Model> {
    Sequential::new([8, 8, 1])
        .add(Flatten::default())
        .add(Dense::new(256).activation(Activation::Relu))
        .add(Dense::new(256).activation(Activation::Relu))
        .add(Dense::new(10))
        .build(3)
}

fn trainer(rig: Vec<Info>) -> Result<Trainer> {
    let compile = Compile::new(Optimizer::adam(1e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    Ok(Trainer::new(model()?, compile)?.on(rig))
}

/// Up to three adapters, and by how much to slow each of them down.
fn choose_rig() -> Result<(Vec<Info>, Vec<f64>)> {
    let list = pollster::block_on(adapters::list());
    println!("this machine has {}", list.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", "));
    let (cpu, mut rig): (Vec<Info>, Vec<Info>) = list.into_iter().partition(|info| info.kind == Kind::Cpu);
    rig.truncate(2);
    if rig.is_empty() {
        println!("no GPU and no software adapter: the CPU adapter is opened three times");
        return Ok((cpu.iter().cycle().take(3).cloned().collect(), vec![1.0, 2.0, 4.0]));
    }
    rig.extend(cpu);
    let mut factors = vec![1.0; rig.len()];
    factors[rig.len() - 1] = cpu_factor(&rig)?;
    Ok((rig, factors))
}

/// How many times faster the CPU adapter, the last one, is than the fastest of the others: from a few steps of equal shares.
fn cpu_factor(rig: &[Info]) -> Result<f64> {
    let mut steps = Steps { is_quiet: true, ..Steps::default() };
    let fit = Fit::new(1).batch_size(BATCH).drop_remainder();
    trainer(rig.to_vec())?.split(SplitMode::Even).fit_with(digits::train()?, &fit, &mut [&mut steps])?;
    let ms = steps.mean_ms(2..steps.logs.len());
    let (cpu, others) = (ms[ms.len() - 1], &ms[..ms.len() - 1]);
    Ok((others.iter().copied().fold(f64::INFINITY, f64::min) / cpu).max(1.0))
}

/// Keeps each step, and prints every fifth.
#[derive(Default)]
struct Steps {
    logs: Vec<StepLog>,
    is_quiet: bool,
}

impl Callback for Steps {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        if !self.is_quiet && log.step % 5 == 1 {
            let shares = log.adapters.iter().map(|part| format!("{:>4} rows {:>6.1} ms", part.rows, part.ms));
            println!("step {:>3}   {}", log.step, shares.collect::<Vec<_>>().join("   "));
        }
        self.logs.push(log.clone());
        Ok(())
    }
}

impl Steps {
    /// Mean busy time of each adapter over some steps.
    fn mean_ms(&self, steps: std::ops::Range<usize>) -> Vec<f64> {
        let n_adapters = self.logs[steps.start].adapters.len();
        let mut sums = vec![0.0; n_adapters];
        let mut counts = vec![0.0_f64; n_adapters];
        for part in self.logs[steps].iter().flat_map(|log| &log.adapters) {
            sums[part.adapter] += part.ms;
            counts[part.adapter] += 1.0;
        }
        sums.iter().zip(counts).map(|(sum, count)| sum / count.max(1.0)).collect()
    }

    /// Time of the slowest adapter over that of the fastest.
    fn imbalance(&self, steps: std::ops::Range<usize>) -> f64 {
        let ms = self.mean_ms(steps);
        ms.iter().copied().fold(0.0, f64::max) / ms.iter().copied().fold(f64::INFINITY, f64::min)
    }
}
