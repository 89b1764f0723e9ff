//! Compares the losses that the page draws below its own with those of the engine: `www/reference-losses.js` holds them.

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use manyhands::adapters::Info;
use manyhands::internals::adapters::cpu;
use manyhands::{SplitMode, Trainer};
use manyhands_web_demo::messages::{BatchNorm, Settings, Split};
use manyhands_web_demo::models;
use manyhands_web_demo::tasks::{Data, Task};

/// Recorded steps: ten epochs. Sums of other shards round otherwise, and training amplifies that: to 2e-7 in the first 46 steps on two,
/// three and five adapters, to 1e-4 in 92, to 2e-3 in 230.
const STEPS: usize = 230;
/// The recorded steps that each run of the tests computes again.
const CHECKED: usize = 46;

fn settings(batch_norm: BatchNorm) -> Settings {
    Settings {
        data: Data::Digits,
        model: "cnn".to_owned(),
        adapters: vec![0],
        throttles: Vec::new(),
        batch_size: 64,
        split: Split::Even,
        batch_norm,
        learning_rate: 0.002,
        seed: 0,
        epochs: 0,
        varied_from: 0,
        temperature: 0.7,
    }
}

/// Losses of the first steps, as the page's worker trains them, on so many CPU adapters.
fn losses(n_adapters: usize, batch_norm: BatchNorm, steps: usize) -> Vec<f64> {
    let settings = settings(batch_norm);
    let task = Task::digits().unwrap();
    let model = models::build(&task, &settings.model, settings.batch_norm, settings.seed).unwrap();
    let infos: Vec<Info> = (0..n_adapters).map(|_| cpu::info()).collect();
    let mut trainer = Trainer::new(model, models::compile(&settings)).unwrap().on(infos).split(SplitMode::Even);
    pollster::block_on(async {
        let rows = models::training(&settings, &task, 0).unwrap();
        let mut session = trainer.session_async(rows, models::fit(&settings, &task, 0)).await.unwrap();
        let mut losses = Vec::new();
        while losses.len() < steps {
            match session.step_async(&mut trainer).await.unwrap() {
                Some(log) => losses.push(log.values.get("loss").unwrap()),
                None => drop(session.end_epoch_async(&mut trainer).await.unwrap()),
            }
        }
        losses
    })
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("www/reference-losses.js")
}

fn recorded() -> Vec<f64> {
    let text = fs::read_to_string(file()).unwrap();
    let (_, list) = text.split_once("LOSSES = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    list.split(',').map(str::trim).filter(|number| !number.is_empty()).map(|number| number.parse().unwrap()).collect()
}

fn record(losses: &[f64]) {
    let text = fs::read_to_string(file()).unwrap();
    let (head, _) = text.split_once("LOSSES = [").unwrap();
    let mut text = format!("{head}LOSSES = [");
    for line in losses.chunks(10) {
        let numbers: Vec<String> = line.iter().map(|loss| format!("{loss:.7}")).collect();
        write!(text, "\n  {},", numbers.join(", ")).unwrap();
    }
    text.push_str("\n];\n");
    fs::write(file(), text).unwrap();
}

#[test]
fn the_recorded_losses_are_the_engines_and_those_of_three_adapters() {
    if std::env::var_os("UPDATE").is_some() {
        record(&losses(1, BatchNorm::PerShard, STEPS));
    }
    let recorded = recorded();
    assert_eq!(recorded.len(), STEPS);
    let largest = |others: &[f64]| recorded.iter().zip(others).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let alone = largest(&losses(1, BatchNorm::WholeBatch, CHECKED));
    let three = largest(&losses(3, BatchNorm::WholeBatch, CHECKED));
    // Other processors add in another order.
    assert!(alone < 1e-4 && three < 1e-4, "one adapter {alone:e}, three {three:e}: `UPDATE=1` records them again");
    let shards = largest(&losses(8, BatchNorm::PerShard, 8));
    assert!(shards > 1e-2, "statistics of each shard differ by {shards:e} alone");
}
