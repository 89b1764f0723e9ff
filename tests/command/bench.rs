//! `manyhands bench`: are reports whole, are their numbers those of a closed form, do all models train?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;
use std::ops::ControlFlow;

use manyhands::adapters::ADAPTERS_VARIABLE;
use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten};
use manyhands::simulator::RigConfig;
use manyhands::{BatchStatistics, GradientCompression, Precision, Sequential, SplitMode};
use manyhands_bench::rig::{BenchRig, Data, Opening, RigAdapter, Source, Turn};
use manyhands_bench::scaling::{ScalingJob, ScalingKind, ScalingPart};
use manyhands_bench::workloads::{self, Workload};
use manyhands_bench::{BenchSettings, machine, scaling, speeds};
use manyhands_cli::plot;
use manyhands_engine::adapters::cpu;
use manyhands_engine::kernels::cases::compare;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, outputs_of, refused_of};

/// Runs `manyhands bench`, which must succeed; gives its text and its JSON.
fn bench(folder: &TempDir, line: &str) -> (String, Value) {
    let mut command = command(folder, &format!("bench {line} --json out/report.json"));
    let (text, _) = outputs_of(command.env_remove(ADAPTERS_VARIABLE));
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
        assert_eq!(rig["batch_size"], 16);
        // One a round, and as many more as last the 100 ms that a card's clock takes.
        assert!(rig["counted"].as_u64() > Some(2), "{rig}");
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
    let point = |n_adapters: usize, samples_per_s: f64| scaling::ScalingPoint {
        n_adapters,
        batch_size: 8,
        shares: vec![],
        step_ms: 1.0,
        quartiles_ms: [1.0; 2],
        samples_per_s,
        ideal_samples_per_s: 100.0 * f64::from(u8::try_from(n_adapters).unwrap()),
        efficiency: 1.0,
    };
    let alone = |name: &str| scaling::Alone { name: name.into(), step_ms: 1.0, samples_per_s: 100.0 };
    let curve = scaling::ScalingCurve {
        model: "mlp",
        about: "MLP",
        parameters: 1,
        batch_size: 8,
        alone: vec![alone("a"), alone("b")],
        strong: vec![point(1, 100.0), point(2, 150.0)],
        weak: vec![point(1, 100.0), point(2, 200.0)],
    };
    let svg = plot::svg(&scaling::MeasuredScaling { data: Data::Synthetic, curves: vec![curve] }).unwrap();
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
        ("bench steps --adapters cpu --models mlp,gpt2", "error: model `gpt2` is not measured by this bench"),
        ("bench kernels --adapters cpu --only embedding", "error: kernel `embedding` is not measured by this bench"),
        ("bench scaling --adapters cpu --models mlp --throttle 3=2", "error: `--throttle` needs an adapter in use"),
        ("bench scaling --adapters cpu,cpu --models mlp --split 1:2:3", "error: split"),
    ];
    for (line, expected) in cases {
        let error = refused_of(command(&folder, line).env_remove(ADAPTERS_VARIABLE));
        assert!(error.contains(expected), "{line}: {error}");
    }
}

/// One step of a model on the CPU adapter, or on several.
fn train_once(name: &str, n_adapters: usize) {
    let workload = workloads::by_name(name).unwrap();
    let members = vec![RigAdapter::from(cpu::info()); n_adapters];
    pollster::block_on(async {
        let mut rig = BenchRig::open(&workload, &members, SplitMode::Even, 2).await.unwrap();
        let mut source = Source::new(&workload, Data::Synthetic, 2).unwrap();
        let before = rig.scheduler.sync().await.unwrap().weights.parameters[0].clone();
        // A gradient that is not finite would be an error.
        rig.turn(&mut source, Turn::new(0, 1)).await.unwrap();
        assert_eq!(rig.shares().iter().sum::<u32>(), 2);
        assert_ne!(rig.scheduler.sync().await.unwrap().weights.parameters[0], before, "{name} did not learn");
    });
}

#[test]
fn every_model_trains() {
    for name in workloads::names().filter(|name| *name != "make_parallel") {
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
    use manyhands_engine::adapters::gpu::{Checks, Direct, Launch};
    let runtime = manyhands_engine::runtime::system();
    for info in manyhands::adapters::list() {
        if info.kind == manyhands::adapters::Kind::Cpu {
            continue;
        }
        let mut device = pollster::block_on(Direct::open(&info, Checks::Checked, runtime.clone())).unwrap();
        for kernel in [&machine::COPY, &machine::CHAINS] {
            for case in (kernel.cases)() {
                let (inputs, outputs) = (case.input_values(), case.output_values());
                let tile = manyhands_engine::kernels::Tile::Registers;
                let got = pollster::block_on(device.run(Launch::of(kernel, tile, &case, (&inputs, &outputs)))).unwrap();
                compare(kernel, &case, &got, &case.run(kernel.twin)).unwrap();
            }
        }
    }
}

#[test]
fn the_same_adapter_twice_is_measured_alone_once() {
    let settings = BenchSettings {
        members: vec![RigAdapter::from(cpu::info()); 2],
        models: vec!["small_cnn".into()],
        rounds: 1,
        steps: 1,
        batch_size: Some(16),
        data: Data::Synthetic,
        split: SplitMode::Even,
        gradient_compression: GradientCompression::Fp16,
        batch_statistics: BatchStatistics::Batch,
        micro_batches: 2,
        precision: Precision::MixedFloat16,
    };
    let mut said = Vec::new();
    let report =
        pollster::block_on(manyhands_bench::steps::measure(&settings, |text| said.push(text.to_owned()))).unwrap();
    let rigs = &report.measured.rigs;
    assert_eq!((rigs.len(), said.len()), (8, 8), "{said:?}");
    let rows = |rig: usize| rigs[rig].adapters.iter().map(|adapter| adapter.rows).collect::<Vec<_>>();
    assert_eq!([rows(0), rows(1), rows(3), rows(4)], [vec![16], vec![16], vec![8, 8], vec![8, 8]]);
    for (rig, with) in rigs[1..3].iter().zip(["2 micro-batches", "mixed_float16"]) {
        assert_eq!(rig.rig, format!("{}, {with}", rigs[0].rig));
    }
    for (rig, with) in rigs[4..].iter().zip(["2 micro-batches", "mixed_float16", "fp16", "batch statistics"]) {
        assert_eq!(rig.rig, format!("{}, {with}", rigs[3].rig));
    }
}

#[test]
fn scaling_is_measured_for_each_number_of_adapters_and_can_be_cancelled() {
    let model = Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]))
        .add(BatchNormalization::new().momentum(0.9).synchronized())
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(3)
        .unwrap();
    let workload = Workload { model, batch_size: 24, ..workloads::by_name("small_cnn").unwrap() };
    let same = vec![RigAdapter::from(cpu::info()); 3];
    let mut others = same.clone();
    (others[1].info.index, others[2].info.index) = (1, 2);
    let job = |members| ScalingJob {
        opening: Opening::default(),
        workload: &workload,
        members,
        data: Data::Synthetic,
        split: SplitMode::Learned,
        turns: vec![Turn { enough: Some((3_000.0, 5)), ..Turn::new(6, 15) }],
    };
    let mut parts = Vec::new();
    let go_on = |part: ScalingPart| {
        parts.push((part.scaling, part.n_adapters, part.done, part.total));
        ControlFlow::Continue(())
    };
    let curve = pollster::block_on(job(&same).measure(go_on)).unwrap().unwrap();
    assert_eq!(curve.alone.len(), 3);
    let report = curve.report(vec!["a".into(), "b".into(), "c".into()]);
    let counts = |points: &[manyhands::simulator::Point]| -> Vec<(usize, u32, u32)> {
        points.iter().map(|point| (point.n_adapters, point.batch_size, point.shares.iter().sum())).collect()
    };
    assert_eq!(counts(&report.strong), [(1, 24, 24), (2, 24, 24), (3, 24, 24)]);
    assert_eq!(counts(&report.weak), [(1, 24, 24), (2, 48, 48), (3, 72, 72)]);
    assert!(report.strong.iter().chain(&report.weak).all(|point| point.shares.len() == point.n_adapters));
    assert!((report.strong[0].efficiency - 1.0).abs() < 1e-9);
    // The three are the same adapter: one of them is measured alone.
    assert_eq!(parts.len(), 5);
    assert_eq!((parts[0], parts[4]), ((ScalingKind::Alone, 1, 0, 5), (ScalingKind::Weak, 3, 4, 5)));
    let mut n_parts = 0;
    let cancelled = |part: ScalingPart| {
        n_parts = part.total;
        if part.done < 4 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    assert!(pollster::block_on(job(&others).measure(cancelled)).unwrap().is_none());
    assert_eq!(n_parts, 7);
}

#[test]
fn a_turn_ends_early_where_that_is_enough() {
    let workload = workloads::by_name("small_cnn").unwrap();
    pollster::block_on(async {
        let mut rig = BenchRig::open(&workload, &[RigAdapter::from(cpu::info())], SplitMode::Learned, 4).await.unwrap();
        let mut source = Source::new(&workload, Data::Synthetic, 4).unwrap();
        rig.turn(&mut source, Turn { enough: Some((0.0, 3)), ..Turn::new(1, 50) }).await.unwrap();
        // A lone adapter has the next step in flight already.
        assert_eq!((rig.samples.len(), rig.scheduler.is_idle()), (4, true));
    });
}

#[test]
fn speeds_of_adapters_are_a_rig_to_simulate() {
    let workload = Workload { batch_size: 16, ..workloads::by_name("small_cnn").unwrap() };
    let members = vec![RigAdapter::from(cpu::info()); 2];
    let measured = pollster::block_on(speeds::measure(&Opening::default(), &workload, &members)).unwrap();
    assert_eq!((measured.rig.adapters.len(), measured.rig.batch_size), (2, 16));
    assert!(measured.step_ms > 0.0 && measured.rig.host.copy_gb_s > 0.0, "{measured:?}");
    let report = manyhands::simulator::simulate(&RigConfig::parse(&measured.rig.to_toml().unwrap()).unwrap()).unwrap();
    assert_eq!(report.strong[1].shares.iter().sum::<u32>(), 16);
}

/// Runs `manyhands bench report`, which must succeed; gives its page and its JSON.
fn report(folder: &TempDir, line: &str) -> (String, Value) {
    let mut command = command(folder, &format!("bench report --output out/sitting.1 {line}"));
    outputs_of(command.env_remove(ADAPTERS_VARIABLE));
    let read = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
    (read("out/sitting.1.html"), serde_json::from_str(&read("out/sitting.1.json")).unwrap())
}

/// As `scripts/bench-table` shows it.
fn tabled(folder: &TempDir, file: &str) -> Result<String, String> {
    let script = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("scripts/bench-table");
    let run = std::process::Command::new("python3").arg(script).arg(file).current_dir(folder.path()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    if run.status.success() { Ok(text(&run.stdout)) } else { Err(text(&run.stderr)) }
}

#[test]
fn a_report_of_no_time_names_all_that_it_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (page, told) = report(&folder, "--adapters cpu,cpu --minutes 0 --quiet");
    assert_about(&told, "report");
    assert_eq!(told["machine"]["adapters"].as_array().unwrap().len(), 2);
    let left: Vec<&str> = told["left_out"].as_array().unwrap().iter().map(|it| it["what"].as_str().unwrap()).collect();
    for what in [
        "speed of single kernels",
        "training steps of mlp",
        "one to 2 adapters with cnn",
        "adapters that are lost",
        "PyTorch",
    ] {
        assert!(left.iter().any(|left| left.contains(what)) && page.contains(what), "{what} of {left:?}");
    }
    assert!(["http:", "https:", "<script", "src="].iter().all(|text| !page.contains(text)), "it loads nothing: {page}");
    // Nothing of the owner is told.
    let home = std::env::var("HOME").unwrap_or_default();
    assert!(home.len() < 2 || !(page.contains(&home) || told.to_string().contains(&home)));
    let table = tabled(&folder, "out/sitting.1.json").unwrap();
    assert_eq!(table.lines().filter(|line| line.contains("| right |")).count(), 2, "{table}");
    fs::write(folder.path().join("mine.json"), "{}").unwrap();
    assert!(tabled(&folder, "mine.json").unwrap_err().contains("needs to be the JSON of `manyhands bench report`"));
    fs::write(folder.path().join("mine.html"), "mine").unwrap();
    for name in ["mine", "mine.html", "mine.json"] {
        let refused = refused_of(&mut command(&folder, &format!("bench report --output {name}")));
        assert!(refused.contains("holds something else"), "{refused}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("mine.html")).unwrap(), "mine");
}

#[test]
#[ignore = "measures all adapters for minutes"]
fn a_report_holds_every_part() {
    let folder = tempfile::tempdir().unwrap();
    let (page, told) = report(&folder, "--minutes 8");
    let adapters = told["machine"]["adapters"].as_array().unwrap();
    for checked in told["checked"].as_array().unwrap() {
        assert_eq!(checked["wrong"], Value::Array(Vec::new()), "{checked}");
        assert!(checked["name"].as_str().unwrap().starts_with("CPU") || checked["kernels"].as_u64().unwrap() > 30);
    }
    assert_eq!(told["kernels"].as_array().unwrap().len(), adapters.len());
    for kernels in told["kernels"].as_array().unwrap() {
        assert_positive(&kernels["peaks"], &["copy_gb_s", "gflop_per_s"]);
        kernels["kernels"].as_array().unwrap().iter().for_each(|timed| assert_positive(timed, &["ms", "of_peak"]));
    }
    let models: Vec<&str> =
        told["steps"].as_array().unwrap().iter().map(|steps| steps["model"].as_str().unwrap()).collect();
    assert!(models.contains(&"mlp"), "{models:?}");
    assert!(told["faults"]["lost"] == 3 && told["faults"]["largest_difference"].as_f64().unwrap() < 1e-4);
    assert!(told["seconds"].as_f64().unwrap() < 600.0);
    let table = tabled(&folder, "out/sitting.1.json").unwrap();
    for adapter in adapters {
        let name = adapter["name"].as_str().unwrap();
        assert!(page.contains(name) && table.contains(name), "{name}");
    }
}

#[test]
fn a_simulated_batch_has_a_limit() {
    let rig = "batch_size = 4294967295\npreset = 'mlp'\n[[adapters]]\nname = 'a'\ngflops = 1.0\n";
    let report = RigConfig::parse(rig).and_then(|rig| manyhands::simulator::simulate(&rig));
    let error = report.unwrap_err().to_string();
    assert!(error.contains("needs to be 1 to 1048576, but is 4294967295\n  help: "), "{error}");
}
