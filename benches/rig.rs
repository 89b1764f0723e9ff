//! How much of the adapters' speed is left when they train together: each alone, evenly split, and split by speed.
//!
//! `cargo bench --bench rig -- [ADAPTERS] [ROUNDS] [THROTTLES]`, by default all software adapters, each with one thread of its own
//! (`LP_NUM_THREADS=1`, `SwiftShader.ini`); throttles `3:1` make the first three times as slow. Rigs take turns, so that
//! other work on the machine hits all alike; the medians of whole training steps count, host time included.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

#[path = "common/rig.rs"]
mod rig;

use manyhands::adapters::{self, Info};
use manyhands::bench::models;
use manyhands::scheduler::split::SplitMode;
use manyhands::{Model, Optimizer};

use rig::{Rig, batch};

/// What is trained on which adapters.
struct Bench<'a> {
    adapters: &'a [Info],
    /// Factors by which the adapters are slowed down.
    throttles: &'a [f64],
    rounds: usize,
}

impl Bench<'_> {
    async fn rig(
        &self,
        name: &str,
        model: &Model,
        optimizer: Optimizer,
        chosen: &[usize],
        split: SplitMode,
        rows: usize,
    ) -> Rig {
        let adapters: Vec<Info> = chosen.iter().map(|idx| self.adapters[*idx].clone()).collect();
        let mut rig = Rig::open(name, model, optimizer, &adapters, split, u32::try_from(rows).unwrap()).await;
        for (position, idx) in chosen.iter().enumerate() {
            rig.scheduler.throttle(position, self.throttles.get(*idx).copied().unwrap_or(1.0));
        }
        rig
    }

    async fn measure(&self, name: &str, model: &Model, optimizer: Optimizer, rows: usize) {
        let batch = batch(rows);
        let all: Vec<usize> = (0..self.adapters.len()).collect();
        let mut rigs = Vec::new();
        for idx in &all {
            rigs.push(self.rig(&self.adapters[*idx].name, model, optimizer, &[*idx], SplitMode::Learned, rows).await);
        }
        rigs.push(self.rig("together, even split", model, optimizer, &all, SplitMode::Even, rows).await);
        rigs.push(self.rig("together, learned split", model, optimizer, &all, SplitMode::Learned, rows).await);
        for _ in 0..self.rounds {
            for rig in &mut rigs {
                rig.turn(&batch).await;
            }
        }
        print(name, rows, all.len(), &rigs);
    }
}

fn print(name: &str, rows: usize, n_alone: usize, rigs: &[Rig]) {
    let alone: Vec<f64> = rigs[..n_alone].iter().map(|rig| rig.samples_per_s(rows)).collect();
    let (sum, fastest) = (alone.iter().sum::<f64>(), alone.iter().copied().fold(0.0, f64::max));
    println!("\n{name}, batch {rows}");
    println!("{:<40} {:>12} {:>12} {:>14}  rows", "adapters", "samples/s", "of the sum", "of the fastest");
    for rig in rigs {
        let speed = rig.samples_per_s(rows);
        let (of_sum, of_fastest) = (100.0 * speed / sum, 100.0 * speed / fastest);
        println!("{:<40} {speed:>12.1} {of_sum:>10.1} % {of_fastest:>12.1} %  {:?}", rig.name, rig.rows);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = arguments.first().map_or("software", String::as_str);
    let rounds = arguments.get(1).map_or(5, |rounds| rounds.parse().unwrap());
    let throttles: Vec<f64> =
        arguments.get(2).map_or(Vec::new(), |parts| parts.split(':').map(|part| part.parse().unwrap()).collect());
    pollster::block_on(async {
        let adapters = adapters::choose(&adapters::list().await, wanted).unwrap();
        let bench = Bench { adapters: &adapters, throttles: &throttles, rounds };
        bench.measure("MLP 784-1024-1024-10, Adam", &models::mlp().unwrap().model, Optimizer::adam(1e-3), 256).await;
        bench.measure("CNN, SGD momentum", &models::cnn().unwrap().model, Optimizer::sgd(0.01, 0.9), 64).await;
        bench
            .measure("small CNN, SGD momentum", &models::small_cnn().unwrap().model, Optimizer::sgd(0.01, 0.9), 128)
            .await;
    });
}
