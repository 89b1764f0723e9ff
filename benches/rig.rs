//! How much of the adapters' speed is left when they train together: each alone, evenly split, and split by speed.
//!
//! `cargo bench --bench rig -- [ADAPTERS] [ROUNDS]`, by default all software adapters, each with one thread of its own
//! (`LP_NUM_THREADS=1`, `SwiftShader.ini`). Rigs take turns, so that other work on the machine hits all alike; the
//! medians of whole training steps count, host time included.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

#[path = "common/models.rs"]
mod models;

use std::sync::Arc;

use manyhands::adapters::{self, Info};
use manyhands::data::Batch;
use manyhands::model::Objective;
use manyhands::runtime::{Native, Runtime};
use manyhands::scheduler::split::SplitMode;
use manyhands::scheduler::{CpuFallback, RigSettings, Scheduler, Step, TrainingState};
use manyhands::{Loss, Model, Optimizer};

/// Training steps of one turn; the first few are not counted.
const STEPS: usize = 14;
const WARM_UP: usize = 6;

struct Rig {
    name: String,
    scheduler: Scheduler,
    step: u64,
    step_ms: Vec<f64>,
    rows: Vec<u32>,
}

impl Rig {
    async fn open(
        name: &str,
        model: &Model,
        optimizer: Optimizer,
        adapters: &[Info],
        split: SplitMode,
        rows: u32,
    ) -> Self {
        let objective = Objective { losses: vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], optimizer, clip_norm: 0.0 };
        let settings = RigSettings {
            adapters: adapters.to_vec(),
            split,
            capacity: rows,
            cpu_fallback: CpuFallback::Refused,
            accumulation_steps: 1,
        };
        let state = TrainingState::new(model.weights.clone(), optimizer);
        let (plan, layout) = (model.plan(&objective).unwrap(), model.layout().clone());
        let mut scheduler =
            Scheduler::open(Arc::new(Native), settings, plan, layout, Some(&objective), state).await.unwrap();
        // All adapters are to be measured together, also where fewer would do.
        scheduler.keep_all();
        Self { name: name.into(), scheduler, step: 0, step_ms: Vec::new(), rows: Vec::new() }
    }

    async fn turn(&mut self, batch: &Batch) {
        for count in 0..STEPS {
            let scale = 1.0 / f32::from(u16::try_from(batch.rows).unwrap());
            let step = Step { step: self.step, seed: 0, learning_rate: 1e-3, loss_scales: vec![scale] };
            let begin_ms = Native.now_ms();
            let report = self.scheduler.train(batch, &step).await.unwrap();
            let ms = Native.now_ms() - begin_ms;
            self.step += 1;
            if count >= WARM_UP {
                self.step_ms.push(ms);
            }
            self.rows = report.shards.iter().map(|shard| shard.rows).collect();
        }
    }

    fn samples_per_s(&self, rows: usize) -> f64 {
        let mut sorted = self.step_ms.clone();
        sorted.sort_by(f64::total_cmp);
        f64::from(u32::try_from(rows).unwrap()) * 1e3 / sorted[sorted.len() / 2]
    }
}

fn batch(rows: usize) -> Batch {
    let inputs: Vec<f32> = (0..rows * 784).map(|i| f32::from(u8::try_from(i * 7919 % 251).unwrap()) / 251.0).collect();
    let targets: Vec<f32> = (0..rows).map(|row| f32::from(u8::try_from(row % 10).unwrap())).collect();
    Batch { rows, inputs: vec![inputs.into()], targets: vec![targets.into()], sample_weights: None }
}

async fn measure(name: &str, model: &Model, optimizer: Optimizer, adapters: &[Info], rows: usize, rounds: usize) {
    let batch = batch(rows);
    let capacity = u32::try_from(rows).unwrap();
    let mut rigs = Vec::new();
    for info in adapters {
        let alone = std::slice::from_ref(info);
        rigs.push(Rig::open(&info.name, model, optimizer, alone, SplitMode::Learned, capacity).await);
    }
    rigs.push(Rig::open("together, even split", model, optimizer, adapters, SplitMode::Even, capacity).await);
    rigs.push(Rig::open("together, learned split", model, optimizer, adapters, SplitMode::Learned, capacity).await);
    for _ in 0..rounds {
        for rig in &mut rigs {
            rig.turn(&batch).await;
        }
    }
    let sum: f64 = rigs[..adapters.len()].iter().map(|rig| rig.samples_per_s(rows)).sum();
    let fastest = rigs[..adapters.len()].iter().map(|rig| rig.samples_per_s(rows)).fold(0.0, f64::max);
    println!("\n{name}, batch {rows}");
    println!("{:<40} {:>12} {:>12} {:>14}  rows", "adapters", "samples/s", "of the sum", "of the fastest");
    for rig in &rigs {
        let speed = rig.samples_per_s(rows);
        let (of_sum, of_fastest) = (100.0 * speed / sum, 100.0 * speed / fastest);
        println!("{:<40} {speed:>12.1} {of_sum:>10.1} % {of_fastest:>12.1} %  {:?}", rig.name, rig.rows);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = arguments.first().map_or("software", String::as_str);
    let rounds = arguments.get(1).map_or(5, |rounds| rounds.parse().unwrap());
    pollster::block_on(async {
        let adapters = adapters::choose(&adapters::list().await, wanted).unwrap();
        measure("MLP 784-1024-1024-10, Adam", &models::mlp(), Optimizer::adam(1e-3), &adapters, 256, rounds).await;
        measure("CNN, SGD momentum", &models::cnn(), Optimizer::sgd(0.01, 0.9), &adapters, 64, rounds).await;
        measure("small CNN, SGD momentum", &models::small_cnn(), Optimizer::sgd(0.01, 0.9), &adapters, 128, rounds)
            .await;
    });
}
