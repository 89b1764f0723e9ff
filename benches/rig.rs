//! Combined speed of adapters that train together: each alone, evenly split, and split by speed.
//!
//! `cargo bench --bench rig -- [ADAPTERS] [ROUNDS] [THROTTLES]`, by default all software adapters, each with one thread of its own
//! (`LP_NUM_THREADS=1`, `SwiftShader.ini`); throttles `3:1` make the first three times as slow. Rigs take turns, so that
//! other work on the machine hits all alike; the medians of whole training steps count, host time included.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

use manyhands::SplitMode;
use manyhands::adapters;
use manyhands_bench::rig;
use manyhands_bench::rig::{BenchRig, Data, RigAdapter, Source, Turn};
use manyhands_bench::workloads::{self, Workload};
use manyhands_engine::timing::median;

/// A model and its adapters.
struct Bench<'a> {
    members: &'a [RigAdapter],
    rounds: usize,
}

impl Bench<'_> {
    async fn measure(&self, workload: &Workload) {
        let rows = workload.batch_size;
        let mut rigs = Vec::new();
        for member in self.members {
            let alone = std::slice::from_ref(member);
            rigs.push((rig::name(alone), BenchRig::open(workload, alone, SplitMode::Learned, rows).await.unwrap()));
        }
        for (name, split) in
            [("together, even split", SplitMode::Even), ("together, learned split", SplitMode::Learned)]
        {
            rigs.push((name.to_owned(), BenchRig::open(workload, self.members, split, rows).await.unwrap()));
        }
        let mut source = Source::new(workload, Data::Synthetic, rows).unwrap();
        for _ in 0..self.rounds {
            for (_, rig) in &mut rigs {
                rig.turn(&mut source, Turn::new(6, 8)).await.unwrap();
            }
        }
        print(workload, self.members.len(), &rigs);
    }
}

fn print(workload: &Workload, n_alone: usize, rigs: &[(String, BenchRig)]) {
    let rows = workload.batch_size;
    let speed = |rig: &BenchRig| f64::from(rows) * 1e3 / median(rig.samples.iter().map(|sample| sample.step_ms));
    let alone: Vec<f64> = rigs[..n_alone].iter().map(|(_, rig)| speed(rig)).collect();
    let (sum, fastest) = (alone.iter().sum::<f64>(), alone.iter().copied().fold(0.0, f64::max));
    println!("\n{}, batch {rows}", workload.about);
    println!("{:<40} {:>12} {:>12} {:>14}  rows", "adapters", "samples/s", "of the sum", "of the fastest");
    for (name, rig) in rigs {
        let speed = speed(rig);
        let (of_sum, of_fastest) = (100.0 * speed / sum, 100.0 * speed / fastest);
        println!("{name:<40} {speed:>12.1} {of_sum:>10.1} % {of_fastest:>12.1} %  {:?}", rig.shares());
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = arguments.first().map_or("software", String::as_str);
    let rounds = arguments.get(1).map_or(5, |rounds| rounds.parse().unwrap());
    pollster::block_on(async {
        let chosen = adapters::choose(&adapters::list_async().await, wanted).unwrap();
        let mut members: Vec<RigAdapter> = chosen.into_iter().map(RigAdapter::from).collect();
        let throttles = arguments.get(2).map_or("", String::as_str);
        for (member, factor) in members.iter_mut().zip(throttles.split(':').filter(|factor| !factor.is_empty())) {
            member.throttle = factor.parse().unwrap();
        }
        let bench = Bench { members: &members, rounds };
        for name in ["mlp", "cnn", "small_cnn"] {
            bench.measure(&workloads::by_name(name).unwrap()).await;
        }
    });
}
