//! Compares the losses that the page draws below its own with those of the engine: `www/reference-losses.js` holds them.

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use manyhands::adapters::Info;
use manyhands::{SplitMode, Trainer};
use manyhands_engine::adapters::cpu;
use manyhands_web_demo::models;
use manyhands_web_demo::settings::{BatchNorm, RowSplit, RunSettings};
use manyhands_web_demo::tasks::{LearnedData, LearningTask};

/// Recorded steps. Of digits ten epochs: sums of other shards round otherwise, and training amplifies that: to 2e-7 in the first 46
/// steps on two, three and five adapters, to 1e-4 in 92, to 2e-3 in 230. Of a text two: there it grows more slowly.
const STEPS: [usize; 2] = [230, 230];
/// The recorded steps that each run of the tests computes again.
const CHECKED: [usize; 2] = [46, 24];

fn settings(data: LearnedData, batch_norm: BatchNorm) -> RunSettings {
    let (model, batch_size, learning_rate) =
        if data == LearnedData::Text { ("gru", 32, 0.005) } else { ("cnn", 64, 0.002) };
    RunSettings {
        data,
        model: model.to_owned(),
        adapters: vec![0],
        throttles: Vec::new(),
        batch_size,
        split: RowSplit::Even,
        batch_norm,
        learning_rate,
        seed: 0,
        epochs: 0,
        varied_from: 0,
        temperature: 0.7,
    }
}

/// Losses of the first steps, as the page's worker trains them, on so many CPU adapters.
fn losses(data: LearnedData, n_adapters: usize, batch_norm: BatchNorm, steps: usize) -> Vec<f64> {
    let settings = settings(data, batch_norm);
    let task = LearningTask::read(data, include_bytes!("../data/lincoln.txt")).unwrap();
    let model = models::build(&task, &settings.model, settings.batch_norm, settings.seed).unwrap();
    let infos: Vec<Info> = (0..n_adapters).map(|_| cpu::info()).collect();
    let mut trainer = Trainer::new(model, models::compile(&settings)).unwrap().on(infos).split(SplitMode::Even);
    pollster::block_on(async {
        let rows = models::training(&settings, &task, 0).unwrap();
        let mut session = trainer.asynchronous().session(rows, models::fit(&settings, &task, 0)).await.unwrap();
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

/// The text before, between and behind the lists of losses, and the lists.
fn parts(text: &str) -> (Vec<&str>, Vec<&str>) {
    let mut pieces = text.split("losses: [");
    let mut around = vec![pieces.next().unwrap()];
    let lists = pieces.map(|piece| {
        let (list, rest) = piece.split_once(']').unwrap();
        around.push(rest);
        list
    });
    let lists = lists.collect();
    (around, lists)
}

fn recorded() -> Vec<Vec<f64>> {
    let text = fs::read_to_string(file()).unwrap();
    let numbers = |list: &str| {
        list.split(',')
            .map(str::trim)
            .filter(|number| !number.is_empty())
            .map(|number| number.parse().unwrap())
            .collect()
    };
    parts(&text).1.into_iter().map(numbers).collect()
}

fn record(all: &[Vec<f64>]) {
    let before = fs::read_to_string(file()).unwrap();
    let (around, _) = parts(&before);
    let mut text = around[0].to_owned();
    for (losses, rest) in all.iter().zip(&around[1..]) {
        text.push_str("losses: [");
        for line in losses.chunks(10) {
            let numbers: Vec<String> = line.iter().map(|loss| format!("{loss:.7}")).collect();
            write!(text, "\n      {},", numbers.join(", ")).unwrap();
        }
        text.push_str("\n    ]");
        text.push_str(rest);
    }
    fs::write(file(), text).unwrap();
}

#[test]
fn the_recorded_losses_are_the_engines_and_those_of_three_adapters() {
    const DATA: [LearnedData; 2] = [LearnedData::Digits, LearnedData::Text];
    if std::env::var_os("UPDATE").is_some() {
        record(&[0, 1].map(|at| losses(DATA[at], 1, BatchNorm::PerShard, STEPS[at])));
    }
    let recorded = recorded();
    assert_eq!(recorded.iter().map(Vec::len).collect::<Vec<_>>(), STEPS);
    for (at, data) in DATA.into_iter().enumerate() {
        let largest = |others: &[f64]| recorded[at].iter().zip(others).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let alone = largest(&losses(data, 1, BatchNorm::WholeBatch, CHECKED[at]));
        let three = largest(&losses(data, 3, BatchNorm::WholeBatch, CHECKED[at]));
        // Other processors add in another order.
        let message = format!("{data:?}: one adapter {alone:e}, three {three:e}: `UPDATE=1` records them again");
        assert!(alone < 1e-4 && three < 1e-4, "{message}");
    }
    let shards = losses(LearnedData::Digits, 8, BatchNorm::PerShard, 8);
    let shards = recorded[0].iter().zip(&shards).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(shards > 1e-2, "statistics of each shard differ by {shards:e} alone");
}
