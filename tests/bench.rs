//! `manyhands bench`: are reports whole, are their numbers those of a closed form, do all models train?

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use manyhands::adapters::cpu;
use manyhands::bench::rig::{Data, Rig, Seat, Source, Turn};
use manyhands::bench::{Settings, machine, models, plot, scaling};
use manyhands::kernels::cases::compare;
use manyhands::scheduler::split::SplitMode;
use manyhands::{BatchStatistics, GradientCompression};
use serde_json::Value;
use tempfile::TempDir;

fn run(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manyhands"));
    command.current_dir(folder).env_remove("RUST_LOG").env("XDG_RUNTIME_DIR", folder);
    command.args(line.split_whitespace()).stdin(Stdio::null()).output().unwrap()
}

/// Runs `manyhands bench`, which must succeed; gives its text and its JSON.
fn bench(folder: &TempDir, line: &str) -> (String, Value) {
    let output = run(folder.path(), &format!("bench {line} --json out/report.json"));
    let (text, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{line}: {error}");
    (text, serde_json::from_str(&fs::read_to_string(folder.path().join("out/report.json")).unwrap()).unwrap())
}

/// Numbers under a name that must all be above 0.
fn assert_positive(value: &Value, names: &[&str]) {
    for name in names {
        assert!(value[name].as_f64().unwrap_or(0.0) > 0.0, "{name} of {value}");
    }
}

fn assert_about(report: &Value, bench: &str) {
    assert_eq!((&report["bench"], &report["version"]), (&bench.into(), &env!("CARGO_PKG_VERSION").into()));
    assert_positive(report, &["threads", "rounds"]);
    let adapter = &report["adapters"][0];
    assert_eq!((&adapter["kind"], &adapter["backend"]), (&"cpu".into(), &"host".into()));
    assert!(adapter["driver"].is_string() && adapter["name"].is_string(), "{adapter}");
}

#[test]
fn steps_are_told_by_phase() {
    let folder = tempfile::tempdir().unwrap();
    let line = "steps --adapters cpu,cpu --models small_cnn --batch-size 16 --rounds 1 --steps 2 --split even \
                --data loaded";
    let (text, report) = bench(&folder, line);
    assert_about(&report, "steps");
    assert_eq!(report["data"], "loaded");
    let rigs = report["rigs"].as_array().unwrap();
    assert_eq!(rigs.len(), 2, "the CPU alone, and two of it together: {text}");
    for rig in rigs {
        assert_positive(rig, &["step_ms", "least_ms", "most_ms", "samples_per_s", "gflop_per_s", "dispatches"]);
        // Forward and both gradients, but for that of the input: 2 flops for each multiply-add.
        let first = 28 * 28 * 8 * 9;
        let second = 14 * 14 * 16 * 9 * 8;
        let head = 7 * 7 * 16 * 10;
        let flops = 16 * 2 * (2 * first + 3 * second + 3 * head);
        assert_eq!(rig["gflop"].as_f64().unwrap(), f64::from(flops) / 1e9);
        assert!(["submissions", "round_trips", "objects"].iter().all(|name| rig[name].is_u64()), "{rig}");
        assert_eq!((&rig["counted"], &rig["batch_size"]), (&2.into(), &16.into()));
        for adapter in rig["adapters"].as_array().unwrap() {
            assert_positive(adapter, &["rows", "bytes", "compute_ms"]);
        }
    }
    assert!(rigs[0]["host_gb_s"].is_null(), "one adapter updates itself: {}", rigs[0]);
    assert_positive(&rigs[0]["adapters"][0], &["update_ms"]);
    assert_positive(&rigs[1], &["host_gb_s", "reduce_ms", "update_ms"]);
    let rows: u64 = rigs[1]["adapters"].as_array().unwrap().iter().map(|it| it["rows"].as_u64().unwrap()).sum();
    assert_eq!(rows, 16);
    assert!(text.contains("small_cnn") && text.contains("batches that a loader's threads make"), "{text}");
}

#[test]
fn scaling_is_told_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let line = "scaling --adapters cpu,cpu --models small_cnn --batch-size 16 --rounds 1 --steps 1 --svg out/curve.svg \
                --throttle 1=2";
    let (text, report) = bench(&folder, line);
    assert_about(&report, "scaling");
    let curve = &report["curves"][0];
    let alone: Vec<f64> =
        curve["alone"].as_array().unwrap().iter().map(|alone| alone["samples_per_s"].as_f64().unwrap()).collect();
    assert_eq!(alone.len(), 2);
    for (scaling, batches) in [("strong", [16, 16]), ("weak", [16, 32])] {
        for (idx, batch) in batches.into_iter().enumerate() {
            let point = &curve[scaling][idx];
            assert_eq!((&point["n_adapters"], &point["batch_size"]), (&(idx + 1).into(), &batch.into()));
            let ideal: f64 = alone[..=idx].iter().sum();
            assert!((point["ideal_samples_per_s"].as_f64().unwrap() - ideal).abs() < 1e-6 * ideal, "{point}");
            let efficiency = point["samples_per_s"].as_f64().unwrap() / ideal;
            assert!((point["efficiency"].as_f64().unwrap() - efficiency).abs() < 1e-9, "{point}");
            let shares = point["shares"].as_array().unwrap().iter().map(|rows| rows.as_u64().unwrap());
            assert_eq!(shares.sum::<u64>(), batch);
        }
        assert_eq!(curve[scaling].as_array().unwrap().len(), 2);
    }
    assert!(text.contains("The batch stays") && text.contains("The batch grows with the adapters"), "{text}");
    let svg = fs::read_to_string(folder.path().join("out/curve.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    // Ideal, strong and weak, two points each.
    assert_eq!(svg.matches("<circle").count(), 6, "{svg}");
    for word in ["samples a second", "adapters", "ideal: the sum of each alone", "the batch grows"] {
        assert!(svg.contains(word), "{word}");
    }
}

/// What is drawn stands where its numbers say.
#[test]
fn points_stand_at_their_height() {
    let point = |n_adapters: usize, samples_per_s: f64| scaling::Point {
        n_adapters,
        batch_size: 8,
        shares: vec![],
        step_ms: 1.0,
        samples_per_s,
        ideal_samples_per_s: 100.0 * f64::from(u8::try_from(n_adapters).unwrap()),
        efficiency: 1.0,
    };
    let alone = |name: &str| scaling::Alone { name: name.into(), step_ms: 1.0, samples_per_s: 100.0 };
    let curve = scaling::Curve {
        model: "mlp",
        about: "MLP",
        parameters: 1,
        batch_size: 8,
        alone: vec![alone("a"), alone("b")],
        strong: vec![point(1, 100.0), point(2, 150.0)],
        weak: vec![point(1, 100.0), point(2, 200.0)],
    };
    let svg = plot::svg(&scaling::Scaling { data: Data::Synthetic, curves: vec![curve] }).unwrap();
    let heights: Vec<f64> = svg
        .lines()
        .filter(|line| line.contains("<circle"))
        .map(|line| line.split("cy=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
        .collect();
    let [ideal_1, ideal_2, strong_1, strong_2, weak_1, weak_2] = heights[..] else { panic!("{heights:?}") };
    assert_eq!((ideal_1, ideal_1, ideal_2), (strong_1, weak_1, weak_2));
    // Higher is less in SVG; 150 lies in the middle between 100 and 200, up to whole pixels.
    assert!((f64::midpoint(ideal_1, ideal_2) - strong_2).abs() <= 1.0, "{heights:?}");
}

#[test]
fn kernels_are_told_beside_the_peak() {
    let folder = tempfile::tempdir().unwrap();
    let (text, report) = bench(&folder, "kernels --adapters cpu --rounds 1 --only dense.forward");
    assert_about(&report, "kernels");
    let adapter = &report["kernels"][0];
    assert_positive(&adapter["peaks"], &["copy_gb_s", "gflop_per_s"]);
    let kernels = adapter["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 2);
    for (kernel, size) in kernels.iter().zip(["1024 x 1024 x 1024", "256 x 1024 x 784"]) {
        assert_eq!((&kernel["kernel"], &kernel["size"]), (&"dense.forward".into(), &size.into()));
        assert!(kernel["tile"].is_null() && kernel["gb_s"].is_null(), "{kernel}");
        let flops: f64 = 2.0 * size.split(" x ").map(|side| side.parse::<f64>().unwrap()).product::<f64>();
        let rate = flops / kernel["ms"].as_f64().unwrap() / 1e6;
        assert!((kernel["gflop_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{kernel}");
        let of_peak = kernel["of_peak"].as_f64().unwrap();
        assert!(of_peak > 0.0 && of_peak <= 1.0, "{kernel}");
    }
    assert!(text.contains("dense.forward") && text.contains("the fastest product"), "{text}");
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("bench steps --adapters cpu --models mlp,gpt2", "error: model `gpt2` is none that is measured"),
        ("bench kernels --adapters cpu --only attention", "error: kernel `attention` is none that is measured"),
        ("bench scaling --adapters cpu --models mlp --throttle 3=2", "error: `--throttle` needs an adapter in use"),
        ("bench scaling --adapters cpu,cpu --models mlp --split 1:2:3", "error: split"),
    ];
    for (line, expected) in cases {
        let output = run(folder.path(), line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {error}");
        assert!(error.contains(expected) && error.contains("\n  help: "), "{line}: {error}");
    }
}

/// One step of a model on the CPU adapter, or on several.
fn train_once(name: &str, n_adapters: usize) {
    let workload = models::by_name(name).unwrap();
    let seats = vec![Seat::from(cpu::info()); n_adapters];
    pollster::block_on(async {
        let mut rig = Rig::open(&workload, &seats, SplitMode::Even, 2).await.unwrap();
        let mut source = Source::new(&workload, Data::Synthetic, 2).unwrap();
        let before = rig.scheduler.sync().await.unwrap().weights.parameters[0].clone();
        // A gradient that is not finite would be an error.
        rig.turn(&mut source, Turn { warm_up: 0, counted: 1 }).await.unwrap();
        assert_eq!(rig.shares().iter().sum::<u32>(), 2);
        assert_ne!(rig.scheduler.sync().await.unwrap().weights.parameters[0], before, "{name} did not learn");
    });
}

#[test]
fn every_model_trains() {
    for name in models::names().filter(|name| *name != "make_parallel") {
        train_once(name, 1);
    }
}

#[test]
#[ignore = "makes and trains 41 million parameters three times"]
fn the_network_of_make_parallel_trains() {
    train_once("make_parallel", 1);
    train_once("make_parallel", 2);
}

#[test]
#[cfg(feature = "gpu")]
fn the_kernels_of_peaks_agree_with_their_twins() {
    use manyhands::adapters::gpu::{Checks, Direct, Launch};
    let runtime = manyhands::runtime::system();
    for info in pollster::block_on(manyhands::adapters::list()) {
        if info.kind == manyhands::adapters::Kind::Cpu {
            continue;
        }
        let mut device = pollster::block_on(Direct::open(&info, Checks::Checked, runtime.clone())).unwrap();
        for kernel in [&machine::COPY, &machine::CHAINS] {
            for case in (kernel.cases)() {
                let (inputs, outputs) = (case.input_values(), case.output_values());
                let launch = Launch {
                    kernel,
                    tile: manyhands::kernels::Tile::Registers,
                    params: &case.params,
                    constants: &[],
                    grid: case.grid,
                    inputs: &inputs,
                    outputs: &outputs,
                };
                let got = pollster::block_on(device.run(launch)).unwrap();
                compare(kernel, &case, &got, &case.run(kernel.twin)).unwrap();
            }
        }
    }
}

#[test]
fn the_same_adapter_twice_is_measured_alone_once() {
    let settings = Settings {
        seats: vec![Seat::from(cpu::info()); 2],
        models: vec!["small_cnn".into()],
        rounds: 1,
        steps: 1,
        batch_size: Some(16),
        data: Data::Synthetic,
        split: SplitMode::Even,
        gradient_compression: GradientCompression::Fp16,
        batch_statistics: BatchStatistics::Batch,
    };
    let mut said = Vec::new();
    let report =
        pollster::block_on(manyhands::bench::steps::measure(&settings, |text| said.push(text.to_owned()))).unwrap();
    let rigs = &report.measured.rigs;
    assert_eq!((rigs.len(), said.len()), (4, 4), "{said:?}");
    assert_eq!(rigs[1].adapters.iter().map(|adapter| adapter.rows).collect::<Vec<_>>(), [8, 8]);
    assert_eq!(rigs[2].rig, format!("{}, fp16", rigs[1].rig));
    assert_eq!(rigs[3].rig, format!("{}, batch statistics", rigs[1].rig));
}
