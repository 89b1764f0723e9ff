//! Error of the simulator's prediction against measured adapters.
//!
//! `cargo bench --bench simulator_error -- [ADAPTERS]`, by default all software adapters, each with one thread of its own
//! (`LP_NUM_THREADS=1`, `SwiftShader.ini`). For each model, a short run tells the adapters' speeds, before and after
//! some steps whose median is compared with the prediction. Only a quiet machine tells anything.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may panic")]

use manyhands::Optimizer;
use manyhands::adapters;
use manyhands::simulator::step_ms;
use manyhands_bench::rig::{Opening, RigAdapter};
use manyhands_bench::speeds::measure;
use manyhands_bench::workloads::{self, Workload};

fn main() {
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_else(|| "software".into());
    let adapters = adapters::choose(&adapters::list(), &wanted).unwrap();
    let names: Vec<&str> = adapters.iter().map(|info| info.name.as_str()).collect();
    println!("{} adapters: {}", adapters.len(), names.join(", "));
    println!("{:<10} {:>6} {:>14} {:>14} {:>8}", "model", "rows", "predicted", "measured", "error");
    for (name, rows) in [("mlp", 256), ("cnn", 32), ("small_cnn", 64)] {
        let optimizer = Optimizer::adam(1e-3);
        let workload = Workload { optimizer, batch_size: rows, ..workloads::by_name(name).unwrap() };
        let members: Vec<RigAdapter> = adapters.iter().cloned().map(RigAdapter::from).collect();
        let measured = pollster::block_on(measure(&Opening::default(), &workload, &members)).unwrap();
        let predicted_ms = step_ms(&measured.rig).unwrap();
        let error = 100.0 * (predicted_ms / measured.step_ms - 1.0);
        println!("{name:<10} {rows:>6} {predicted_ms:>11.1} ms {:>11.1} ms {error:>6.1} %", measured.step_ms);
        for adapter in &measured.rig.adapters {
            println!(
                "    {}: {:.2} ms + {:.3} ms a row, weights at {:.2} GB/s",
                adapter.name,
                adapter.fixed_ms,
                adapter.per_row_ms.unwrap_or_default(),
                adapter.upload_gb_s.unwrap_or(f64::INFINITY)
            );
        }
        println!("    host: {:.2} GB/s", measured.rig.host.copy_gb_s);
    }
}
