//! Training steps of causal attention over long sequences; memory of the adapters.
//!
//! `cargo bench --bench attention -- [ADAPTERS] [STEPS]`, by default 5 steps on the CPU adapter; medians count. Attention has 4
//! heads of 64 numbers and one row of 1,024 or 4,096 positions of 256 features.
//! `benches/peers/attention_keras.py` times the same with Keras on JAX.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

use std::sync::Arc;
use std::time::Instant;

use manyhands::data::Batch;
use manyhands::layers::MultiHeadAttention;
use manyhands::{Loss, Optimizer, Sequential, SplitMode, adapters};
use manyhands_bench::rig::{BenchRig, RigAdapter};
use manyhands_bench::workloads::{self, Workload};
use manyhands_engine::timing::median;

/// Features of a position.
const FEATURES: usize = 256;

fn attention(steps: usize) -> (Workload, Batch) {
    let layer = MultiHeadAttention::new(4, FEATURES / 4).causal();
    let model = Sequential::new([steps, FEATURES]).add(layer).build(0).unwrap();
    let values: Arc<[f32]> = (0..steps * FEATURES).map(|at| ((at * 37 % 101) as f32 - 50.0) * 0.02).collect();
    let targets = vec![values.clone()];
    let batch = Batch { rows: 1, inputs: vec![values], targets, sample_weights: None };
    let (loss, optimizer) = (Loss::MEAN_SQUARED_ERROR, Optimizer::adam(1e-3));
    (Workload { model, loss, optimizer, batch_size: 1, ..workloads::by_name("mlp").unwrap() }, batch)
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock")]
async fn measure(name: &str, (workload, batch): (Workload, Batch), members: &[RigAdapter], steps: usize) {
    let mut rig = BenchRig::open(&workload, members, SplitMode::Learned, workload.batch_size).await.unwrap();
    let mut times = Vec::new();
    for step in 0..=steps {
        let before = Instant::now();
        rig.train(&batch).await.unwrap();
        if step > 0 {
            times.push(before.elapsed().as_secs_f64() * 1e3);
        }
    }
    let kilobytes = rig.scheduler.bytes().iter().sum::<u64>() >> 10;
    println!("{name:<32} {:>9.1} ms a step {kilobytes:>9} KiB on the adapters", median(times));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = arguments.first().map_or("cpu", String::as_str);
    let steps = arguments.get(1).map_or(5, |text| text.parse().unwrap());
    pollster::block_on(async {
        let members = adapters::choose(&adapters::list_async().await, wanted).unwrap();
        let members: Vec<RigAdapter> = members.into_iter().map(RigAdapter::from).collect();
        for length in [1_024, 4_096] {
            measure(&format!("attention over {length} positions"), attention(length), &members, steps).await;
        }
    });
}
