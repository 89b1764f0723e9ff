//! Speedup of training steps if the trunk of a network is frozen and only its head is trained.
//!
//! `cargo bench --bench frozen -- [ADAPTERS] [ROUNDS] [ROWS] [PIXELS]`, by default ResNet-18 on the CPU adapter with 16 rows
//! of 32 × 32. All of it and the head alone take turns, so that other work on the machine hits both alike; the medians
//! of whole training steps count.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

use manyhands::{SplitMode, adapters, presets};
use manyhands_bench::rig::{BenchRig, Data, RigAdapter, Source, Turn};
use manyhands_bench::workloads::{self, Workload};
use manyhands_engine::timing::median;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |at: usize, default: u32| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    let wanted = arguments.first().map_or("cpu", String::as_str);
    let (rounds, rows, pixels) = (number(1, 5), number(2, 16), number(3, 32) as usize);

    let whole = workloads::by_name("resnet18").unwrap();
    let model = presets::find("resnet18").unwrap().build_for([pixels, pixels, 3], whole.classes, 0).unwrap();
    let whole = Workload { model, batch_size: rows, ..whole };
    let mut head = whole.clone();
    let last = head.model.outputs()[0].0.to_owned();
    head.model.freeze_all_but([last.as_str()]).unwrap();

    pollster::block_on(async {
        let members = adapters::choose(&adapters::list_async().await, wanted).unwrap();
        let members: Vec<RigAdapter> = members.into_iter().map(RigAdapter::from).collect();
        let mut rigs = Vec::new();
        for workload in [&whole, &head] {
            rigs.push(BenchRig::open(workload, &members, SplitMode::Learned, rows).await.unwrap());
        }
        let mut source = Source::new(&whole, Data::Synthetic, rows).unwrap();
        for _ in 0..rounds {
            for rig in &mut rigs {
                rig.turn(&mut source, Turn::new(1, 3)).await.unwrap();
            }
        }
        println!("ResNet-18, {rows} rows of {pixels} × {pixels} × 3 on {}", rigs[0].name);
        let step_ms = |rig: &BenchRig| median(rig.samples.iter().map(|sample| sample.step_ms));
        let memory = |rig: &BenchRig| rig.scheduler.bytes().iter().sum::<u64>() >> 20;
        for (rig, (name, workload)) in rigs.iter().zip([("all of it", &whole), ("head alone", &head)]) {
            let (trained, ms, megabytes) = (workload.model.n_trainable(), step_ms(rig), memory(rig));
            println!(
                "{name:<12} {trained:>10} trainable values {ms:>9.1} ms a step {megabytes:>6} MiB on the adapters"
            );
        }
        println!("ratio {:.2}", step_ms(&rigs[0]) / step_ms(&rigs[1]));
    });
}
