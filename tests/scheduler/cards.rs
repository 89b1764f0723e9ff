//! Do cards by name keep the ratios of published figures, and does a rig read them?

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use manyhands::layers::{BatchNormalization, Dense};
use manyhands::simulator::{AdapterSpec, RigConfig, cards, simulate_model};
use manyhands::{Model, Sequential, presets};

use crate::close::assert_relative;

/// Milliseconds of a step of a model on each card alone.
fn alone_ms<const N: usize>(model: &Model, batch_size: u32, names: [&str; N]) -> [f64; N] {
    names.map(|name| {
        // Data from the host would hide what the memory takes.
        let adapters = vec![AdapterSpec { upload_gb_s: None, ..AdapterSpec::of_card(cards::find(name).unwrap()) }];
        let rig = RigConfig { batch_size, adapters, ..RigConfig::on_host(20.0) };
        simulate_model(&rig, model).unwrap().strong[0].step_ms
    })
}

/// Trained images a second of ResNet-50 with 32-bit floats, 64 images a step. Source: Lambda, "RTX 2080 Ti Deep Learning Benchmarks with
/// TensorFlow", 4 March 2019, <https://lambdalabs.com/blog/2080-ti-deep-learning-benchmarks>: TensorFlow 1.12, cuDNN 7.4.1.
const RESNET50: [(&str, f64); 3] = [("RTX 2080 Ti", 294.0), ("RTX 2080", 213.0), ("GTX 1080 Ti", 209.0)];

#[test]
fn resnet50_is_as_fast_as_published_within_a_factor_of_one_and_a_half() {
    let resnet = presets::find("resnet50").unwrap().build(0).unwrap();
    let ms = alone_ms(&resnet, 64, RESNET50.map(|(name, _)| name));
    let predicted = ms.map(|ms| 64.0 / ms * 1e3);
    for (at, (name, measured)) in RESNET50.into_iter().enumerate() {
        let factor = predicted[at] / measured;
        assert!((1.0 / 1.5..1.5).contains(&factor), "{name}: {} images/s, measured {measured}", predicted[at]);
    }
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let ratio = RESNET50[one].1 / RESNET50[other].1;
        let names = [RESNET50[one].0, RESNET50[other].0];
        assert_relative(&names.join(" beside "), &[predicted[one] / predicted[other]], &[ratio], 0.15);
    }
}

/// Pairs of cards, and their TFLOP/s as the makers state them. Of RX 7900 XTX AMD counts pairs of operations that our kernels do not
/// use: half of its 61.4.
const PRODUCTS: [[(&str, f64); 2]; 5] = [
    [("RTX 3060", 12.7), ("RX 6600", 8.93)],
    [("RTX 4070", 29.1), ("RTX 3060", 12.7)],
    [("RX 6800", 16.17), ("RX 580", 6.2)],
    [("RTX 4090", 82.6), ("RTX 3090", 35.6)],
    [("RX 7900 XTX", 30.7), ("A770", 17.2)],
];

#[test]
fn large_products_are_as_fast_as_stated_peaks_within_a_factor_of_one_and_a_half() {
    let model = Sequential::new([4096]).add(Dense::new(4096)).add(Dense::new(4096)).build(0).unwrap();
    let rows = 8192_u32;
    // Both layers go forward and compute gradients of their weights, the second one those of its input.
    let gflop = 5.0 * 2.0 * f64::from(rows) * 4096.0 * 4096.0 / 1e9;
    for pair in PRODUCTS {
        let tflops = alone_ms(&model, rows, pair.map(|(name, _)| name)).map(|ms| gflop / ms);
        for ((name, stated), reached) in pair.iter().zip(tflops) {
            let factor = reached / stated;
            assert!((1.0 / 1.5..1.0).contains(&factor), "{name}: {reached} of {stated} TFLOP/s");
        }
        let names = pair.map(|(name, _)| name).join(" beside ");
        assert_relative(&names, &[tflops[0] / tflops[1]], &[pair[0].1 / pair[1].1], 0.15);
    }
}

/// Pairs of cards, and the bandwidths of their memories in GB/s as the makers state them.
const MEMORIES: [[(&str, f64); 2]; 3] = [
    [("RTX 3080", 760.0), ("RTX 3070", 448.0)],
    [("RX 6700 XT", 384.0), ("RX 6600", 224.0)],
    [("GTX 1660 Super", 336.0), ("GTX 1660", 192.0)],
];

#[test]
fn normalization_takes_the_time_of_the_memory() {
    let layer = BatchNormalization::new;
    let model = Sequential::new([64, 64, 16]).add(layer()).add(layer()).add(layer()).add(layer()).build(0).unwrap();
    for pair in MEMORIES {
        let ms = alone_ms(&model, 512, pair.map(|(name, _)| name));
        let names = pair.map(|(name, _)| name).join(" beside ");
        assert_relative(&names, &[ms[1] / ms[0]], &[pair[0].1 / pair[1].1], 0.15);
    }
}

#[test]
fn numbers_beside_a_card_take_the_place_of_its_own() {
    let head = "preset = \"mlp\"\nbatch_size = 64\n";
    let read = |adapter: &str| RigConfig::parse(&format!("{head}adapters = [{{ {adapter} }}]"));
    let rig = read("card = \"radeon rx 6600\", memory_gb_s = 99.0, name = \"mine\"").unwrap();
    let table = AdapterSpec::of_card(cards::find("RX 6600").unwrap());
    assert_eq!(rig.adapters, [AdapterSpec { memory_gb_s: Some(99.0), name: "mine".into(), ..table.clone() }]);
    assert_eq!(read("card = \"RX6600\"").unwrap().adapters, [table]);
    assert_eq!(RigConfig::parse(&rig.to_toml().unwrap()).unwrap(), rig);
    assert_eq!(serde_json::from_str::<RigConfig>(&serde_json::to_string(&rig).unwrap()).unwrap(), rig);
    let error = read("card = \"RX 660\"").unwrap_err().to_string();
    assert!(error.starts_with("`the rig`, line 3, key `card`, needs a card of the table, but got `RX 660`"), "{error}");
    assert!(error.contains("did you mean `RX 6600`"), "{error}");
    let error = read("card = \"RX 6600\", gflop = 1.0").unwrap_err().to_string();
    assert!(error.contains("key `gflop`, is not known here\n  help: did you mean `gflops`"), "{error}");
}
