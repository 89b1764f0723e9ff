//! Does the simulator predict what can be worked out by hand, and does it end in seconds?

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use std::path::Path;

use manyhands::adapters::Kind;
use manyhands::placer::rig::simulate as placed;
use manyhands::presets;
use manyhands::simulator::{Incident, IncidentKind, Point, RigConfig, simulate, simulate_incidents};
use manyhands::{GradientCompression, Placement, SplitMode};

use crate::close::assert_relative;

const PERCEPTRON_BYTES: f64 = 4.0 * (784.0 * 1024.0 + 1024.0 + 1024.0 * 1024.0 + 1024.0 + 1024.0 * 10.0 + 10.0);

fn rig(host_gb_s: f64, adapters: &[&str]) -> RigConfig {
    let adapters: Vec<String> =
        adapters.iter().enumerate().map(|(idx, text)| format!("[[adapters]]\nname = \"{idx}\"\n{text}\n")).collect();
    let head = "preset = \"mlp\"\nbatch_size = 256\noptimizer = { type = \"Adam\" }";
    RigConfig::parse(&format!("{head}\n[host]\ncopy_gb_s = {host_gb_s}\n{}", adapters.concat())).unwrap()
}

fn both(rig: &RigConfig) -> Point {
    simulate(rig).unwrap().strong[1].clone()
}

#[test]
fn computing_is_shared_by_speed() {
    let point = both(&rig(1e6, &["fixed_ms = 2.0\nper_row_ms = 0.1", "fixed_ms = 4.0\nper_row_ms = 0.3"]));
    // 2 + 0.1 a = 4 + 0.3 (256 - a): a = 197.
    assert_eq!(point.shares, [197, 59]);
    assert_relative("ms of a step", &[point.step_ms], &[21.7], 0.02);
    assert!(point.limit.starts_with("computing on"), "{}", point.limit);
}

#[test]
fn a_slowed_and_then_lost_adapter_costs_what_its_rows_cost_elsewhere() {
    let half = "per_row_ms = 0.1";
    let rig = RigConfig { split: SplitMode::Even, ..rig(1e6, &[half, half]) };
    let model = presets::find("mlp").unwrap().build(0).unwrap();
    let incident = |step, what| Incident { step, adapter: 1, what };
    let incidents = [incident(9, IncidentKind::Lost), incident(4, IncidentKind::Slowed(3.0))];
    let steps = simulate_incidents(&rig, &model, &incidents).unwrap();
    let ms: Vec<f64> = steps.iter().map(|step| step.ms).collect();
    assert_relative("both", &ms[..4], &[12.8; 4], 0.01);
    assert_relative("one takes three times as long", &ms[4..9], &[38.4; 5], 0.01);
    // It is lost with a kernel that runs in the middle of its 38.4 ms; then its half runs on the other, which had ended before.
    assert!(ms[9] > 38.4 / 2.0 + 12.8 && ms[9] < 38.4 + 12.8, "{ms:?}");
    assert_relative("one alone", &ms[10..], &[25.6; 20], 0.01);
    assert!(steps.iter().all(|step| step.report.shards.iter().map(|shard| shard.rows).sum::<u32>() == 256));
}

#[test]
fn gradients_and_weights_take_their_time_on_the_links() {
    let adapter = "per_row_ms = 0.01\nupload_gb_s = 2.0\ndownload_gb_s = 1.0";
    let point = both(&rig(1e6, &[adapter, adapter]));
    let (rows, gradients, weights) = (128.0 * 4.0 * (784.0 + 10.0 + 1.0), PERCEPTRON_BYTES, PERCEPTRON_BYTES);
    // Buckets travel while earlier layers compute, but 1.28 ms of computing hides little of 7.6 ms of gradients.
    assert_relative("ms of a step", &[point.step_ms], &[1.0 + (rows + weights) / 2e6 + gradients / 1e6], 0.02);
    assert!(point.limit.starts_with("transfers of rows and gradients of"), "{}", point.limit);
}

/// Practical speeds of slow links, in GB/s: PCI Express 3 with four lanes, and a card in a USB4 case.
const SLOW_LINKS: [(&str, f64); 2] = [("PCIe 3 x4", 3.2), ("USB4", 2.5)];

#[test]
fn gradients_of_16_bits_take_half_the_time_on_slow_links() {
    for (name, gb_s) in SLOW_LINKS {
        let adapter = format!("per_row_ms = 0.01\nupload_gb_s = {gb_s}\ndownload_gb_s = {gb_s}");
        let full = rig(1e6, &[&adapter, &adapter]);
        let half = RigConfig { gradient_compression: GradientCompression::Fp16, ..full.clone() };
        let rows = 128.0 * 4.0 * (784.0 + 10.0 + 1.0);
        // As above; a block of 64 values is 32 words of halves, and one of their factor.
        let ms = |part: f64| 1.0 + (rows + PERCEPTRON_BYTES + part * PERCEPTRON_BYTES) / (gb_s * 1e6);
        let (full, half) = (both(&full).step_ms, both(&half).step_ms);
        assert_relative(name, &[full, half], &[ms(1.0), ms(33.0 / 64.0)], 0.03);
        assert!(half < 0.87 * full, "{name}: {half} ms, {full} ms");
    }
}

#[test]
fn an_adapter_that_waits_for_its_weights_gets_fewer_rows() {
    let point = both(&rig(1e6, &["per_row_ms = 0.1", "per_row_ms = 0.1\nupload_gb_s = 1.0"]));
    // 7.45 MB of weights at 1 GB/s, and 784 values a row: 0.1 a = 7.45 + (0.1 + 0.0032) (256 - a).
    let rows = (PERCEPTRON_BYTES / 1e6 + 0.1032 * 256.0) / 0.2032;
    assert!((f64::from(point.shares[0]) - rows).abs() < 3.0, "{:?}, by hand {rows}", point.shares);
    assert_relative("ms of a step", &[point.step_ms], &[0.1 * rows], 0.02);
}

#[test]
fn the_host_adds_and_updates_at_its_own_speed() {
    let point = both(&rig(1.0, &["per_row_ms = 0.01"; 2]));
    // Adding two shards touches three values for each parameter; Adam's update and the copy for the adapters, nine.
    assert_relative("ms of a step", &[point.step_ms], &[1.28 + 12.0 * PERCEPTRON_BYTES / 1e6], 0.02);
    assert!(point.limit.starts_with("the host's sums and update"), "{}", point.limit);
}

#[test]
fn an_adapter_that_does_not_help_gets_nothing() {
    let point = both(&rig(1e6, &["per_row_ms = 0.01", "fixed_ms = 50.0\nper_row_ms = 0.01"]));
    assert_eq!(point.shares, [256, 0]);
}

#[test]
fn the_examples_say_what_limits_them() {
    for name in ["mixed", "eight"] {
        let rig = RigConfig::load(Path::new(&format!("examples/rigs/{name}.toml"))).unwrap();
        let report = simulate(&rig).unwrap();
        assert_eq!(report.strong.len(), rig.adapters.len());
        for point in report.strong.iter().chain(&report.weak) {
            // Above 1 where the batch grows and fixed costs stay.
            assert!(point.efficiency > 0.3 && point.efficiency < 1.05, "{name}: {point:?}");
            assert_eq!(point.shares.iter().sum::<u32>(), point.batch_size);
        }
        assert!(report.to_string().contains("computing on"), "{report}");
    }
}

/// What the README says of a fast card and an old one.
#[test]
fn equal_parts_are_slower_than_the_fast_card_alone() {
    let rig = RigConfig::load(Path::new("examples/rigs/fast_and_old.toml")).unwrap();
    let report = simulate(&rig).unwrap();
    let even = report.even.clone().unwrap();
    assert_eq!((&even.shares, &report.strong[1].shares), (&vec![256, 256], &vec![409, 103]));
    let ms = [report.strong[0].step_ms, even.step_ms, report.strong[1].step_ms].map(f64::round);
    assert_eq!(ms, [15.0, 29.0, 13.0]);
    let split = RigConfig { split: SplitMode::Even, ..rig };
    assert_eq!(simulate(&split).unwrap().strong[1], even);
    assert_eq!(RigConfig::parse(&split.to_toml().unwrap()).unwrap(), split);
}

#[test]
fn the_table_and_the_placement_say_one_number() {
    for preset in ["mlp", "cnn6"] {
        let text = format!(
            "preset = {preset:?}\nbatch_size = 512\nplacement = \"auto\"\nhost = {{ copy_gb_s = 20.0 }}\n\
             adapters = [{{ card = \"RTX 4070\", fixed_ms = 2.0 }}, {{ card = \"GTX 1060\" }}]"
        );
        let (report, chosen) = placed(&RigConfig::parse(&text).unwrap()).unwrap();
        let chosen = chosen.unwrap();
        let copies: Vec<f64> = report.strong.iter().map(|point| point.step_ms).collect();
        assert!(copies.contains(&chosen.step_ms), "{preset}: {} ms, in the table {copies:?}", chosen.step_ms);
        assert_eq!(chosen.all_copies_ms, copies.last().copied(), "{preset}");
        assert_eq!(report.alone[0].step_ms, Some(copies[0]), "{preset}");
    }
}

#[test]
fn an_update_of_a_lone_adapter_takes_no_fixed_time_of_its_own() {
    let ms = |fixed_ms: f64| {
        let adapter = format!("fixed_ms = {fixed_ms}\ngflops = 1000.0\nmemory_gb_s = 100.0");
        simulate(&rig(1e6, &[&adapter])).unwrap().strong[0].step_ms
    };
    assert_relative("ms more", &[ms(5.0) - ms(0.0)], &[5.0], 1e-6);
}

/// A rig whose layers are in two stages, cut behind the first hidden layer.
fn in_stages(micro_batches: u32, adapters: &[&str]) -> RigConfig {
    let placement = Placement::stages([(["..dense"], [0]), (["dense_1.."], [1])]);
    RigConfig { placement, micro_batches: Some(micro_batches), ..rig(1e6, adapters) }
}

/// Milliseconds of a step, and those in which the two adapters are busy.
fn staged(rig: &RigConfig) -> (f64, [f64; 2]) {
    let staged = simulate(rig).unwrap().staged.unwrap();
    (staged.step_ms, [0, 1].map(|stage: usize| staged.stages[stage].busy_ms[0]))
}

#[test]
fn pieces_fill_the_stages_and_then_the_slowest_sets_the_pace() {
    for (first, second) in [("0.1", "0.1"), ("0.1", "0.4"), ("0.3", "0.05")] {
        let adapters = [first, second].map(|ms| format!("per_row_ms = {ms}"));
        let adapters = adapters.each_ref().map(String::as_str);
        for pieces in [1, 2, 4, 8, 16] {
            let (step_ms, busy) = staged(&in_stages(pieces, &adapters));
            let count = f64::from(pieces);
            // Going forward takes a third of training, and the first stage does both.
            let (forward, backward, last) = (busy[0] / count / 4.0, busy[0] / count * 0.75, busy[1] / count);
            let fill = forward + last + backward;
            let by_hand = fill + (count - 1.0) * last.max(forward + backward);
            // Where the first stage is slowest, the last one's piece may end while the first still works.
            let slack = if last < forward + backward { last } else { 0.0 };
            assert!(
                step_ms <= by_hand * 1.02 + 0.1 && step_ms >= (by_hand - slack) * 0.98,
                "{first} and {second} ms, {pieces} pieces: {step_ms} ms, by hand {by_hand}, or {slack} less"
            );
            // All stages together do the whole model's work, and the first one's forward once more.
            let rates = [first, second].map(|ms| 256.0 * ms.parse::<f64>().unwrap());
            let parts = busy[0] * 0.75 / rates[0] + busy[1] / rates[1];
            assert_relative("parts of the stages", &[parts], &[1.0], 0.05);
        }
    }
}

#[test]
fn values_that_are_handed_over_take_their_time_on_the_links() {
    let free = staged(&in_stages(1, &["per_row_ms = 0.1"; 2]));
    let linked = staged(&in_stages(1, &["per_row_ms = 0.1\nupload_gb_s = 1.0\ndownload_gb_s = 1.0"; 2]));
    // 1024 values of a row go down and up, and so do their gradients; rows of 784 values go up for both passes, targets
    // and weights once. The first stage gets new weights before it begins, the second one's gradients leave before the
    // gradient of a row that it hands over, and the first one's at the end.
    let rows = 256.0 * 4.0 * (4.0 * 1024.0 + 2.0 * 784.0 + 11.0) / 1e6;
    let first = 4.0 * (784.0 * 1024.0 + 1024.0) / 1e6;
    let second = PERCEPTRON_BYTES / 1e6 - first;
    assert_relative("ms more", &[linked.0 - free.0], &[rows + 2.0 * first + second], 0.02);
}

#[test]
fn a_card_is_fed_while_it_computes_and_the_cpu_before() {
    let (pieces, rows) = (8.0, 256.0 / 8.0);
    let linked = "per_row_ms = 0.1\nupload_gb_s = 1.0\ndownload_gb_s = 1.0";
    let card = in_stages(8, &["per_row_ms = 0.001", linked]);
    let mut cpu = card.clone();
    cpu.adapters[1].kind = Some(Kind::Cpu);
    // 1024 values of a row go up, with its targets and weight, and as many gradients down: all but those of the first piece and of the
    // last are hidden.
    let hidden = (pieces - 1.0) * rows * 4.0 * (1024.0 + 11.0 + 1024.0) / 1e6;
    assert_relative("ms less", &[staged(&cpu).0 - staged(&card).0], &[hidden], 0.1);
}

#[test]
fn what_does_not_fit_as_copies_may_fit_in_stages() {
    let adapters = ["per_row_ms = 0.1\nmemory_gb = 0.045", "per_row_ms = 0.1\nmemory_gb = 0.085"];
    let report = simulate(&in_stages(8, &adapters)).unwrap();
    assert!(report.strong.is_empty() && report.weak.is_empty());
    let text = report.to_string();
    assert!(text.contains("A copy of the model does not fit on 0: it has too little memory for one row"), "{text}");
    let staged = report.staged.unwrap();
    assert!(staged.stages[0].bytes < 45_000_000 && staged.stages[1].bytes < 85_000_000, "{staged:?}");
    assert!(text.contains("In stages, 256 rows in 8 pieces"), "{text}");
    assert!(simulate(&rig(1e6, &["per_row_ms = 0.1\nmemory_gb = 0.2"])).unwrap().notes.is_empty());
}

#[test]
fn a_rig_survives_its_file() {
    let rig = RigConfig::load(Path::new("examples/rigs/mixed.toml")).unwrap();
    assert_eq!(RigConfig::parse(&rig.to_toml().unwrap()).unwrap(), rig);
    let staged = in_stages(4, &["per_row_ms = 0.1\nmemory_gb = 2.0"; 2]);
    assert_eq!(RigConfig::parse(&staged.to_toml().unwrap()).unwrap(), staged);
    let auto = RigConfig { placement: Placement::Auto, ..staged };
    assert_eq!(RigConfig::parse(&auto.to_toml().unwrap()).unwrap(), auto);
}

#[test]
fn mistakes_are_named() {
    let error = |text: &str| RigConfig::parse(text).unwrap_err().to_string();
    let none = error("preset = \"mlp\"\nbatch_size = 1\nadapters = []");
    assert!(none.starts_with("`adapters` needs one or more, but there are none"), "{none}");
    let slow = error("preset = \"mlp\"\nbatch_size = 1\n[[adapters]]\nname = \"a\"");
    assert!(slow.starts_with("adapter 0 `a` needs a speed, but has none"), "{slow}");
    let negative = error("preset = \"mlp\"\nbatch_size = 1\n[[adapters]]\nname = \"a\"\nper_row_ms = -1.0");
    assert!(negative.contains("needs `per_row_ms` above 0, but it is -1"), "{negative}");
    let placement = error("preset = \"mlp\"\nbatch_size = 1\nplacement = \"fastest\"\nadapters = []");
    assert!(placement.contains("\"replicas\", \"auto\", or a list of stages"), "{placement}");
    let unknown = error("preset = \"mlp\"\nbatch_size = 1\nbatchsize = 2\nadapters = []");
    assert!(unknown.contains("key `batchsize`, is not known here"), "{unknown}");
}
