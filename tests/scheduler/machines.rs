//! Several simulated machines: does the prediction for them follow from what can be worked out by hand?

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use std::path::Path;

use manyhands::simulator::step_ms;
use manyhands::simulator::{AdapterSpec, HostSpec, MachinePoint, MachineSpec, Machines, RigConfig, simulate};
use proptest::prelude::*;

use crate::close::assert_relative;

/// Bytes of the gradients of the preset `mlp`.
const GRADIENTS: f64 = 4.0 * (784.0 * 1024.0 + 1024.0 + 1024.0 * 1024.0 + 1024.0 + 1024.0 * 10.0 + 10.0);
/// Pieces of up to a MiB in which they are added.
const PIECES: f64 = 8.0;

fn machine(name: &str, count: u32, per_row_ms: &[f64]) -> MachineSpec {
    let adapter = |(idx, ms): (usize, &f64)| AdapterSpec::new(format!("{name} {idx}"), 0.0, *ms);
    MachineSpec {
        name: name.into(),
        count,
        network_gb_s: Some(1.0),
        network_latency_ms: 0.0,
        host: HostSpec { copy_gb_s: 1e6 },
        adapters: per_row_ms.iter().enumerate().map(adapter).collect(),
    }
}

fn rig(batch_size: u32, machine: Vec<MachineSpec>) -> RigConfig {
    RigConfig { batch_size, preset: Some("mlp".into()), machine, ..RigConfig::default() }
}

fn machines(rig: &RigConfig) -> Machines {
    simulate(rig).unwrap().machines.unwrap()
}

fn together(rig: &RigConfig) -> MachinePoint {
    machines(rig).strong.last().unwrap().clone()
}

/// A network as it is for all machines of a rig.
fn on_network(mut rig: RigConfig, gb_s: f64, latency_ms: f64) -> RigConfig {
    for machine in &mut rig.machine {
        (machine.network_gb_s, machine.network_latency_ms) = (Some(gb_s), latency_ms);
    }
    rig
}

#[test]
fn gradients_take_their_time_on_the_network() {
    for (count, bytes) in [(2, GRADIENTS), (4, 1.5 * GRADIENTS), (8, 1.75 * GRADIENTS), (3, 4.0 / 3.0 * GRADIENTS)] {
        let point = together(&rig(256 * count, vec![machine("node", count, &[0.1])]));
        assert_relative("ms of the network", &[point.network_ms], &[bytes / 1e6], 0.01);
        assert_relative("ms of a step", &[point.step_ms], &[25.6 + bytes / 1e6], 0.01);
        assert_eq!((point.n_machines, point.n_adapters, point.rows), (count as usize, count as usize, vec![256]));
    }
}

#[test]
fn every_message_takes_the_latency() {
    for (count, rounds) in [(2, 1.0), (4, 2.0), (16, 4.0)] {
        let rig = on_network(rig(256 * count, vec![machine("node", count, &[0.1])]), 1e6, 1.0);
        // Twice a step all machines tell all: a message to the first one, and two broadcasts of as many rounds. Pieces of gradients are
        // swapped with one machine in each round, as long as bytes cost nothing.
        let expected = 2.0 * (1.0 + 2.0 * rounds) + PIECES * rounds;
        assert_relative("ms of the network", &[together(&rig).network_ms], &[expected], 0.01);
    }
}

/// Each host reads the values of its adapter and writes their sum where the network takes it, takes the sum of all over, and updates.
#[test]
fn hosts_work_at_the_same_time() {
    for count in [2, 4] {
        let mut node = machine("node", count, &[0.1]);
        node.host = HostSpec { copy_gb_s: 1.0 };
        let rig = on_network(rig(256 * count, vec![node]), 1e6, 0.0);
        let expected = 25.6 + (2.0 + 2.0 + 9.0) * GRADIENTS / 1e6;
        assert_relative("ms of a step", &[together(&rig).step_ms], &[expected], 0.02);
    }
}

#[test]
fn rows_go_by_the_summed_speed_of_a_machine() {
    let rig = rig(250, vec![machine("slow", 1, &[0.2]), machine("fast", 1, &[0.1, 0.1])]);
    let predicted = machines(&rig);
    assert_eq!(predicted.names, ["fast", "slow"]);
    let [alone, both] = predicted.strong.as_slice() else { panic!("{predicted:?}") };
    assert_eq!((alone.n_machines, alone.n_adapters, alone.rows.as_slice()), (1, 2, &[250][..]));
    assert_eq!((both.n_machines, both.n_adapters), (2, 3));
    // 20 rows a millisecond on the fast one, 5 on the other.
    assert!(both.rows[0].abs_diff(200) <= 4 && both.rows[0] + both.rows[1] == 250, "{both:?}");
    assert_relative("ms of a step", &[both.step_ms], &[10.0 + GRADIENTS / 1e6], 0.03);
}

#[test]
fn a_machine_by_itself_is_a_rig_of_its_adapters() {
    let one = machine("one", 1, &[0.1, 0.2, 0.3]);
    let alone = RigConfig { host: one.host, adapters: one.adapters.clone(), ..rig(256, Vec::new()) };
    let one = MachineSpec { network_gb_s: None, ..one };
    let of_machines = machines(&rig(256, vec![one.clone()]));
    assert!(of_machines.links.is_empty() && of_machines.strong.len() == 1, "{of_machines:?}");
    assert_eq!(of_machines.strong[0].network_ms, 0.0);
    let adapters = simulate(&alone).unwrap().strong.pop().unwrap();
    assert_relative("ms of a step", &[of_machines.strong[0].step_ms], &[adapters.step_ms], 1e-9);
    assert_eq!(step_ms(&rig(256, vec![one])).unwrap(), of_machines.strong[0].step_ms);
}

#[test]
fn machines_of_a_kind_are_as_fast_as_those_that_are_listed() {
    let counted = together(&rig(512, vec![machine("node", 4, &[0.1, 0.3]), machine("old", 2, &[0.4])]));
    let listed = [("a", 4, 0.1), ("old", 2, 0.4)].map(|(name, count, ms)| {
        let adapters: &[f64] = if name == "old" { &[ms] } else { &[ms, 0.3] };
        (0..count).map(|_| machine(name, 1, adapters)).collect::<Vec<_>>()
    });
    let listed = together(&rig(512, listed.concat()));
    assert_relative("ms of a step", &[counted.step_ms], &[listed.step_ms], 0.02);
    assert_eq!(counted.n_adapters, listed.n_adapters);
    assert!(counted.rows[0].abs_diff(listed.rows[0]) <= 2, "{counted:?}, {listed:?}");
}

#[test]
fn hundreds_of_machines_are_predicted_and_the_network_limits_them() {
    let rig = on_network(rig(1024, vec![machine("node", 300, &[0.1])]), 0.117, 0.05);
    let predicted = machines(&rig);
    let counts: Vec<usize> = predicted.strong.iter().map(|point| point.n_machines).collect();
    assert_eq!(counts, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    assert!(predicted.strong.windows(2).all(|two| two[1].efficiency <= 1.02 * two[0].efficiency), "{predicted:?}");
    let all = &predicted.strong[9];
    assert!(all.limit.starts_with("the network's sums of gradients"), "{all:?}");
    assert!(all.step_ms > GRADIENTS / 0.117e6, "{all:?}");
    // A batch that grows keeps every machine as busy as one alone.
    for point in &predicted.weak {
        assert_relative("ms of a step", &[point.step_ms], &[102.4 + point.network_ms], 0.02);
    }
    assert!(predicted.links.windows(2).all(|two| two[1].step_ms <= two[0].step_ms), "{:?}", predicted.links);
    let text = simulate(&rig).unwrap().to_string();
    for part in ["Machines, the fastest first: node × 300.", "The batch stays 1024 rows", "100 Gbit/s"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn fewer_rows_than_machines_leave_some_without_any() {
    let point = together(&rig(2, vec![machine("fast", 2, &[1.0]), machine("slow", 2, &[5.0])]));
    assert_eq!(point.rows, [1, 0], "{point:?}");
    assert_relative("ms of a step", &[point.step_ms], &[1.0 + point.network_ms], 0.02);
}

/// Batch normalization over the whole batch waits for all machines, twice a layer: forward and backward.
#[test]
fn statistics_of_the_whole_batch_go_over_the_network() {
    let of = |statistics: &str| {
        let machine = "count = 2\nnetwork_gb_s = 1000.0\nnetwork_latency_ms = 1.0\nadapters = [{ name = \"a\", per_row_ms = 0.1 }]";
        let text = format!(
            "preset = \"resnet18\"\nbatch_size = 64\nbatch_statistics = \"{statistics}\"\n[[machine]]\nname = \"n\"\n{machine}"
        );
        together(&RigConfig::parse(&text).unwrap())
    };
    let (shard, batch) = (of("shard"), of("batch"));
    // 20 layers of it, and three messages one after the other in each exchange.
    let more = batch.step_ms - shard.step_ms;
    assert!((2.0 * 20.0 * 3.0 * 0.95..2.0 * 20.0 * 3.0 * 1.3).contains(&more), "{more} ms: {shard:?}, {batch:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// Whatever the machines: every row has its machine, no step is faster than its parts, and no worse network makes one faster.
    #[test]
    fn a_worse_network_never_makes_a_step_faster(
        kinds in prop::collection::vec((1_u32..5, prop::collection::vec(0.05_f64..2.0, 1..3)), 1..4),
        batch_size in 16_u32..512,
        gb_s in 0.01_f64..10.0,
        latency_ms in 0.0_f64..0.5,
    ) {
        let list = kinds.iter().enumerate().map(|(idx, (count, ms))| machine(&format!("kind {idx}"), *count, ms));
        let rig = on_network(rig(batch_size, list.collect()), gb_s, latency_ms);
        let predicted = machines(&rig);
        let (point, names) = (predicted.strong.last().unwrap(), predicted.names);
        let count = |name: &String| rig.machine.iter().find(|it| name.starts_with(&it.name)).unwrap().count;
        let rows: u32 = point.rows.iter().zip(&names).map(|(rows, name)| rows * count(name)).sum();
        let n_machines = u32::try_from(point.n_machines).unwrap();
        prop_assert!(rows >= batch_size && rows <= batch_size + n_machines, "{:?}", point);
        prop_assert!(point.step_ms >= point.network_ms && point.efficiency <= 1.05, "{:?}", point);
        if n_machines > 1 {
            let slower = together(&on_network(rig.clone(), gb_s / 2.0, latency_ms));
            let later = together(&on_network(rig, gb_s, 2.0 * latency_ms));
            // Shares follow measurements, so rows may differ a little.
            prop_assert!(slower.step_ms >= 0.97 * point.step_ms, "{:?}, {:?}", slower, point);
            prop_assert!(later.step_ms >= 0.97 * point.step_ms, "{:?}, {:?}", later, point);
        }
    }
}

#[test]
fn the_example_tells_what_a_faster_network_brings() {
    let rig = RigConfig::load(Path::new("examples/rigs/two_machines.toml")).unwrap();
    assert_eq!(RigConfig::parse(&rig.to_toml().unwrap()).unwrap(), rig);
    let predicted = machines(&rig);
    assert_eq!(predicted.names, ["desk", "laptop"]);
    assert_eq!(predicted.strong.len(), 2);
    let [slow, .., fast] = predicted.links.as_slice() else { panic!("{predicted:?}") };
    assert_relative("the rig's own network", &[slow.step_ms], &[predicted.strong[1].step_ms], 1e-9);
    assert!(fast.efficiency > slow.efficiency, "{predicted:?}");
}

#[test]
fn what_does_not_fit_on_a_machine_is_left_out_and_told() {
    let mut small = machine("small", 2, &[0.1]);
    small.adapters[0].memory_gb = Some(0.001);
    let report = simulate(&rig(64, vec![small.clone(), machine("large", 2, &[0.2])])).unwrap();
    assert_eq!(report.machines.as_ref().unwrap().names, ["large × 2"]);
    assert!(report.to_string().contains("does not fit on small 0 of small: it has too little memory"), "{report}");
    let error = simulate(&rig(64, vec![small])).unwrap_err().to_string();
    assert!(error.contains("has too little memory for one row"), "{error}");
}

#[test]
fn mistakes_are_named() {
    let error = |machines: &str| {
        let text = format!("preset = \"mlp\"\nbatch_size = 8\n{machines}");
        RigConfig::parse(&text).unwrap_err().to_string()
    };
    let adapters = "adapters = [{ name = \"a\", per_row_ms = 1.0 }]";
    let two = error(&format!("[[machine]]\nname = \"pc\"\ncount = 2\n{adapters}"));
    assert!(two.starts_with("machine 0 `pc` needs `network_gb_s` beside other machines, but has none"), "{two}");
    let none = error("[[machine]]\nname = \"pc\"\nadapters = []");
    assert!(none.starts_with("machine 0 `pc` needs `adapters`, one or more, but has none"), "{none}");
    let zero = error(&format!("[[machine]]\nname = \"pc\"\ncount = 0\n{adapters}"));
    assert!(zero.starts_with("machine 0 `pc` needs a `count` of 1 or more, but it is 0"), "{zero}");
    let negative = error(&format!("[[machine]]\nname = \"pc\"\nnetwork_gb_s = -1.0\n{adapters}"));
    assert!(negative.contains("needs `network_gb_s` above 0, but it is -1"), "{negative}");
    let late = error(&format!("[[machine]]\nname = \"pc\"\nnetwork_latency_ms = -1.0\n{adapters}"));
    assert!(late.contains("needs `network_latency_ms` from 0 up, but it is -1"), "{late}");
    let many = error(&format!("[[machine]]\nname = \"pc\"\ncount = 5000\nnetwork_gb_s = 1.0\n{adapters}"));
    assert!(many.contains("needs up to 4096 machines, but has 5000"), "{many}");
    let slow = error("[[machine]]\nname = \"pc\"\nadapters = [{ name = \"a\" }]");
    assert!(slow.starts_with("machine 0 `pc`, adapter 0 `a` needs a speed, but has none"), "{slow}");
    let both = error(&format!("{adapters}\n[[machine]]\nname = \"pc\"\n{adapters}"));
    assert!(both.starts_with("`adapters` needs a machine, where the rig has `[[machine]]`"), "{both}");
    let host = error(&format!("host = {{ copy_gb_s = 20.0 }}\n[[machine]]\nname = \"pc\"\n{adapters}"));
    assert!(host.starts_with("`host` needs a machine"), "{host}");
    let staged = error(&format!("placement = \"auto\"\n[[machine]]\nname = \"pc\"\n{adapters}"));
    assert!(staged.contains("no stages go over several processes"), "{staged}");
    let unknown = error(&format!("[[machine]]\nname = \"pc\"\nbandwidth = 1.0\n{adapters}"));
    assert!(unknown.contains("key `bandwidth`, is not known here"), "{unknown}");
}
